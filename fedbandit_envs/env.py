"""The multi-agent environment: a thin PettingZoo shell over an array core."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from fedbandit_envs.core import Episode, Tally
from fedbandit_envs.generators import InstanceGenerator
from fedbandit_envs.instance import BanditInstance
from fedbandit_envs.knowledge import View
from fedbandit_envs.protocol import Feedback, Plan
from fedbandit_envs.seeding import Randomness, Stream, checked_seed, derived_seed, fresh_seed, generator
from fedbandit_envs.validation import FloatArray, IntArray, one_of, whole_number

Observation = dict[str, FloatArray]
RENDER_MODES = ("ansi", "rgb_array", "human")
DEFAULT_CYCLES = 2**13


class EpisodeSeeds:
    """The seeds of successive episodes: the given one first, then others that follow from it."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._number = 0

    def next(self, seed: int | None) -> int:
        """The seed of the episode that starts now."""
        seed = checked_seed(seed)
        if seed is not None or self._first is None:
            self._first, self._number = fresh_seed() if seed is None else seed, 0
            return self._first
        self._number += 1
        return derived_seed(self._first, Stream.EPISODE, self._number)


def draw_instance(problem: InstanceGenerator, seed: int) -> BanditInstance:
    """The instance of an episode: problem and hidden contexts come from streams of their own."""
    return problem.instance(generator(seed, Stream.INSTANCE), generator(seed, Stream.CONTEXTS))


class HiddenContextBandit(ParallelEnv[str, Observation, int]):
    """M agents in different linear bandits; agent i observes mu_i, the distribution of its hidden context.

    Args:
        problem: what is drawn at each reset, for example `Synthetic(num_agents=100)`.
        max_cycles: the horizon T, after which all agents are truncated.
        observe: "distribution" (mu_i as it is) or "context" (a point mass at the true context: the exact setting).
        render_mode: "ansi", "rgb_array", "human" or None.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "hidden_context_bandit_v0",
        "render_modes": list(RENDER_MODES),
        "render_fps": 4,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        problem: InstanceGenerator,
        *,
        max_cycles: int = DEFAULT_CYCLES,
        observe: str = "distribution",
        render_mode: str | None = None,
    ):
        self.problem = problem
        self.max_cycles = whole_number("max_cycles", max_cycles, at_least=1)
        self.observe = one_of("observe", observe, ("distribution", "context"))
        if render_mode is not None:
            one_of("render_mode", render_mode, RENDER_MODES)
        self.render_mode = render_mode
        prototype = draw_instance(problem, 0)
        self._space = prototype.observed(observe)[0].space()
        self._num_arms = prototype.num_arms
        self.possible_agents = [f"agent_{number}" for number in range(prototype.num_agents)]
        self.agents: list[str] = []
        self._observation_spaces: dict[str, spaces.Dict] = {}
        self._action_spaces: dict[str, spaces.Discrete] = {}
        self._seeds = EpisodeSeeds()
        self._episode: Episode | None = None
        self._tally: Tally | None = None  # kept for pictures only
        self._going = dict.fromkeys(self.possible_agents, False)  # copied at each step: faster than to build it

    def observation_space(self, agent: str) -> spaces.Dict:
        """The space of mu_i."""
        if agent not in self._observation_spaces:
            self._observation_spaces[agent] = spaces.Dict(
                {name: spaces.Box(box.low, box.high, dtype=np.float64) for name, box in self._space.items()}  # type: ignore[attr-defined]
            )
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        """The arms."""
        if agent not in self._action_spaces:
            self._action_spaces[agent] = spaces.Discrete(self._num_arms)
        return self._action_spaces[agent]

    @property
    def episode(self) -> Episode:
        """The running episode."""
        return started(self._episode)

    @property
    def instance(self) -> BanditInstance:
        """The problem of the running episode, with its truth: for recorders, never for policies."""
        return self.episode.instance

    @property
    def steps(self) -> int:
        """Steps taken in this episode."""
        return self.episode.steps

    def view(self, observe: str | None = None) -> View:
        """What the agents know, in arrays; `observe` defaults to the environment's."""
        randomness = Randomness(
            derived_seed(self.episode_seed, Stream.POLICY), Stream.POLICY, len(self.possible_agents)
        )
        return self.instance.view(self.max_cycles, randomness, observe or self.observe)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """A new instance: of the given seed, or the next one."""
        self.episode_seed = self._seeds.next(seed)
        instance = draw_instance(self.problem, self.episode_seed)
        self._episode = Episode(instance, self.episode_seed, instance.num_agents)
        self._batch = {
            name: np.ascontiguousarray(rows) for name, rows in instance.observed(self.observe)[0].encode().items()
        }
        self.agents = self.possible_agents[:]
        self._tally = None if self.render_mode is None else Tally(instance.num_agents, instance.num_arms)
        return self._observations(), {agent: {} for agent in self.agents}

    def _observations(self) -> dict[str, Observation]:
        copies = {name: rows.copy() for name, rows in self._batch.items()}
        if len(copies) == 1:
            ((name, rows),) = copies.items()
            return {agent: {name: row} for agent, row in zip(self.possible_agents, rows, strict=True)}
        (first, first_rows), (second, second_rows) = copies.items()
        return {
            agent: {first: one, second: other}
            for agent, one, other in zip(self.possible_agents, first_rows, second_rows, strict=True)
        }

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """One pull per agent."""
        episode, agents = self.episode, self.possible_agents
        self._check_running()
        arms = self._arms(actions)
        rewards = episode.step(arms)
        if self._tally is not None:
            self._tally.add_step(arms, rewards)
        over = self._end_if_over()
        if self.render_mode == "human":
            self.render()
        return (
            self._observations(),
            dict(zip(agents, rewards.tolist(), strict=True)),
            self._going.copy(),
            dict.fromkeys(agents, True) if over else self._going.copy(),
            {agent: {} for agent in agents},
        )

    def _check_running(self) -> None:
        if not self.agents:
            raise ended(self.episode.steps)

    def _end_if_over(self) -> bool:
        over = self.episode.steps >= self.max_cycles
        if over:
            self.agents = []
        return over

    def _arms(self, actions: Mapping[str, int]) -> IntArray:
        """The actions as one checked array (M,)."""
        num_agents = len(self.possible_agents)
        try:
            arms = list(map(actions.__getitem__, self.possible_agents))
        except (AttributeError, TypeError):
            raise ValueError(
                f"actions: expected a dict from agent to arm, got {type(actions).__name__}; "
                "{agent: arm for agent in env.agents} is one"
            ) from None
        except KeyError as error:
            raise ValueError(
                f"actions: expected one for each of the {num_agents} agents, got none for {error}; "
                "all agents act at every step"
            ) from None
        if len(actions) != num_agents:
            unknown = ", ".join(sorted(map(str, set(actions) - set(self.possible_agents))))
            raise ValueError(
                f"actions: expected agents agent_0 to agent_{num_agents - 1}, got also {unknown}; leave them out"
            )
        return checked_arms(arms, num_agents, self._num_arms)

    def pull(self, plan: Plan) -> Feedback:
        """A whole plan at once: equal in distribution to stepping, at a cost that does not grow with its length."""
        self._check_running()
        plan.check(len(self.possible_agents), self._num_arms)
        left = self.max_cycles - self.episode.steps
        if plan.length > left:
            raise ValueError(
                f"plan.length: expected at most the {left} steps left, got {plan.length}; use plan.cut({left})"
            )
        feedback = self.episode.pull(plan)
        if self._tally is not None:
            self._tally.add_plan(plan, feedback)
        self._end_if_over()
        return feedback

    def resume(self, steps: int, plans: int) -> None:
        """Go on with an episode that has come to `steps` steps and `plans` plans, right after its reset."""
        self.episode.steps, self.episode.plans = steps, plans
        self._end_if_over()

    def render(self) -> Any:
        """The state of play: text ("ansi"), an RGB array, or a window."""
        from fedbandit_envs import rendering

        return rendering.render(self.render_mode, self.instance, self._tally, self.max_cycles)

    def close(self) -> None:
        """Close the window, if there is one."""
        if self.render_mode == "human":
            from fedbandit_envs import rendering

            rendering.close()


def started(episode: Episode | None) -> Episode:
    """The episode, if there is one."""
    if episode is None:
        raise ValueError("expected reset() before this call, got an environment that was never reset; call reset()")
    return episode


def ended(steps: int) -> ValueError:
    """What to raise when an episode that is over is stepped."""
    return ValueError(f"step: expected a running episode, got one that ended after {steps} steps; call reset()")


def checked_arms(arms: Any, num_agents: int, num_arms: int, rows: IntArray | None = None) -> IntArray:
    """Arms (n,) as whole numbers in range; `rows` are the agents' numbers when they are not all there are."""
    try:
        array = np.asarray(arms)
    except ValueError:  # ragged
        array = np.asarray(arms, dtype=object)
    if array.shape != (num_agents,) or array.dtype.kind not in "iu":
        raise ValueError(
            f"actions: expected {num_agents} whole numbers, one per agent, got {array.dtype} of shape {array.shape}; "
            "an arm is an int from 0 up"
        )
    if array.min() < 0 or array.max() >= num_arms:
        place = int(np.flatnonzero((array < 0) | (array >= num_arms))[0])
        raise ValueError(
            f"actions: expected arms from 0 to {num_arms - 1}, got {array[place]} for "
            f"agent_{place if rows is None else rows[place]}; arms count from 0"
        )
    return array
