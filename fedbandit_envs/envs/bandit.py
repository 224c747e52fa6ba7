"""Successive episodes of a problem, in arrays: PettingZoo's environment and Gymnasium's views are built on this."""

from typing import Any

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.envs.episode import Episode, Tally, episode_regret
from fedbandit_envs.problems.generator import InstanceGenerator, draw_instance, shape_of
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.segments import Segments, summed_regrets
from fedbandit_envs.problems.streams import changes
from fedbandit_envs.protocol.knowledge import LONGEST_HORIZON
from fedbandit_envs.seeding import Stream, checked_seed, derived_seed, fresh_seed
from fedbandit_envs.validation import one_of, whole_number

MOST_AGENTS = 10**7  # each agent has a name; more would fill the memory before anything is drawn
RENDER_MODES = ("ansi", "rgb_array", "human")


class EpisodeSeeds:
    """The seeds of successive episodes: the given one first, then others that follow from it.

    >>> seeds = EpisodeSeeds()
    >>> first, second = seeds.next(7), seeds.next(None)
    >>> first, seeds.next(7) == first, seeds.next(None) == second
    (7, True, True)
    """

    def __init__(self) -> None:
        self._first: int | None = None
        self._number = 0

    def next(self, seed: int | None) -> int:
        """The seed of the episode that starts now; None: the one that follows from the seeds before."""
        seed = checked_seed(seed)
        if seed is not None or self._first is None:
            self._first, self._number = fresh_seed() if seed is None else seed, 0
            return self._first
        self._number += 1
        return derived_seed(self._first, Stream.EPISODE, self._number)


class EpisodicBandit:
    """A block of agents that plays one episode after the other.

    Args:
        problem: the problem family of which each reset draws an instance, for example `Synthetic(num_agents=100)`.
        rows: the numbers of the block's agents; None: all. An agent meets the same rewards whoever else is there.
        max_cycles: the horizon T, after which all agents are truncated.
        observe: "distribution" (agents are shown mu_i) or "context" (they are shown a point mass at their true context,
            which is the exact setting).
        reveal: "never", or "after": the context of a step is revealed once the arm is pulled. That is possible where
            contexts are new at each step, `context="streaming"`.
        render_mode: "ansi" (a text), "rgb_array", "human" (a window) or None.
    """

    shared_arms = False  #: whether rewards depend on how many agents pull an arm

    def __init__(
        self,
        problem: InstanceGenerator,
        *,
        rows: IntArray | None = None,
        max_cycles: int = 2**13,
        observe: str = "distribution",
        reveal: str = "never",
        render_mode: str | None = None,
    ):
        self.problem = problem
        self.max_cycles = whole_number("max_cycles", max_cycles, at_least=1, at_most=LONGEST_HORIZON)
        self.observe = one_of("observe", observe, ("distribution", "context"))
        self.reveal = one_of("reveal", reveal, ("never", "after"))
        #: the number of steps after which contexts change; None: never
        self.segment_steps: int | None = getattr(problem, "segment_steps", None)
        if reveal == "after" and self.segment_steps != 1:
            raise ValueError(
                "reveal: expected 'never' where a context lasts for more than a step, got 'after'; a context that is "
                "revealed must not come again, so use context='streaming'"
            )
        if render_mode is not None:
            one_of("render_mode", render_mode, RENDER_MODES)
        self.render_mode = render_mode
        self.over = False
        self._remember = render_mode is not None  # whether the next episodes keep a tally; pictures need it
        self._rows = rows
        self._shape = shape_of(problem)
        whole_number("num_agents", self._shape.num_agents, at_least=1, at_most=MOST_AGENTS)
        self._block_size = self._shape.num_agents if rows is None else len(rows)
        self._mu_space = self._shape.space(observe)
        self._seeds = EpisodeSeeds()
        self._episode: Episode | None = None
        self._tally: Tally | None = None

    @property
    def episode(self) -> Episode:
        """The running episode, or the last one when it is over."""
        if self._episode is None:
            raise ValueError("env: expected reset() before this call, got an environment that was never reset")
        return self._episode

    @property
    def instance(self) -> BanditInstance:
        """The problem of the running episode with its truth; it is for recorders, never for policies.

        Where contexts change, it is the problem of the next step.
        """
        return self.episode.instance

    @property
    def exact(self) -> bool:
        """Whether agents are shown their true contexts."""
        return self.observe == "context" or self._shape.exact

    @property
    def resampled(self) -> bool:
        """Whether each pull draws a new context."""
        return self._shape.context == "resampled"

    @property
    def num_arms(self) -> int:
        """The number of arms, K."""
        return self._shape.feature_map.num_arms

    @property
    def dim(self) -> int:
        """The length of a feature vector, d."""
        return self._shape.feature_map.dim

    @property
    def steps(self) -> int:
        """The number of steps taken in this episode."""
        return self.episode.steps

    def remember(self) -> None:
        """Keep a tally of pulls and rewards from the next reset on."""
        self._remember = True

    @property
    def tally(self) -> Tally:
        """What was pulled and paid in this episode."""
        steps = self.episode.steps
        if self._tally is None or self._tally.steps != steps:
            raise ValueError(
                f"tally: expected one of all {steps} steps, got {self._tally.steps if self._tally else 'none'}; call "
                "remember() and reset(), and don't resume an episode whose statistics are wanted"
            )
        return self._tally

    def episode_regret(self) -> dict[str, FloatArray]:
        """The regret (n,) of each agent so far, by kind; `remember` must have been called before the reset."""
        if self.episode.segments is None:
            return episode_regret(self.instance, self.tally.pulls)
        return dict(zip(summed_regrets(), self.tally.regret.copy(), strict=True))

    def next_seed(self, seed: int | None) -> int:
        """The seed of an episode that is played elsewhere: the given one, or the one that follows from those before."""
        return self._seeds.next(seed)

    def _restart(self, seed: int | None) -> None:
        """Start a new episode: with the given seed, or with the one that follows from the seeds before."""
        self.episode_seed = self._seeds.next(seed)
        whole = draw_instance(self.problem, self.episode_seed)
        self._shape.check(whole)
        block = whole if self._rows is None else whole.rows(self._rows)
        segments = None
        if changes(self.problem):
            segments = Segments(self.problem, whole, self.episode_seed, self._rows, self.max_cycles)
        reveal = self.reveal == "after"
        self._episode = Episode(block, self.episode_seed, whole.num_agents, self._rows, segments, reveal)
        self._tally = Tally(self._block_size, self.num_arms) if self._remember else None
        self.over = False

    def _running(self) -> Episode:
        """The episode; refuses one that is over."""
        episode = self.episode
        if self.over:
            raise ValueError(
                f"step: expected a running episode, got one that ended after {episode.steps} steps; call reset()"
            )
        return episode

    def _checked_arms(self, arms: Any) -> IntArray:
        """The arms (n,) as whole numbers of 64 bits; refuses what are no arms."""
        num_agents, num_arms = self._block_size, self.num_arms
        try:
            array = np.asarray(arms)
        except ValueError:  # ragged
            array = np.asarray(arms, dtype=object)
        if array.shape != (num_agents,) or array.dtype.kind not in "iu":
            raise ValueError(
                f"actions: expected {num_agents} whole numbers, one per agent, got {array.dtype} of shape "
                f"{array.shape}; an arm is an int from 0 to {num_arms - 1}"
            )
        array = array.astype(np.int64, copy=False)
        if array.view(np.uint64).max() >= num_arms:  # numbers below 0 become huge, so one maximum checks both ends
            place = int(np.flatnonzero((array < 0) | (array >= num_arms))[0])
            raise ValueError(
                f"actions: expected arms from 0 to {num_arms - 1}, got {array[place]} for "
                f"agent_{place if self._rows is None else self._rows[place]}; arms count from 0"
            )
        return array

    def _play(self, episode: Episode, arms: IntArray) -> FloatArray:
        """Pull `arms` (n,) once, and return the rewards (n,)."""
        segment = episode.segment if self._tally is not None else None
        rewards = episode.step(arms)
        if self._tally is not None:
            self._tally.add_step(arms, rewards, segment)
        if episode.steps >= self.max_cycles:
            self._end()
        if self.render_mode == "human":
            self.render()
        return rewards

    def _end(self) -> None:
        """Mark the episode as over."""
        self.over = True

    def render(self) -> Any:
        """Show the state of play: as a text ("ansi"), an RGB array ("rgb_array") or in a window ("human")."""
        if self.render_mode is None:
            raise ValueError(
                "render: expected a render_mode of 'ansi', 'rgb_array' or 'human', got None; pass it to make()"
            )
        from fedbandit_envs.envs import rendering

        tally = self.tally
        regret = self.episode_regret()["regret"]
        state = self.instance, tally.pulls, regret, tally.steps, self.max_cycles
        return rendering.render(self.render_mode, *state, self._rows)

    def close(self) -> None:
        """Close the window of `render`, if there is one."""
        if self.render_mode == "human":
            from fedbandit_envs.envs import rendering

            rendering.close()
