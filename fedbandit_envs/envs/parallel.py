"""The multi-agent environment of PettingZoo: a thin shell over an episode in arrays."""

from collections.abc import Callable, Mapping
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.envs.bandit import RENDER_MODES
from fedbandit_envs.envs.planned import PlannedBandit
from fedbandit_envs.problems.generator import InstanceGenerator

Observation = dict[str, FloatArray]


class HiddenContextBandit(PlannedBandit, ParallelEnv[str, Observation, int]):
    """M agents in different linear bandits; agent i observes mu_i, the distribution of its hidden context.

    It is a parallel environment of PettingZoo: all agents act at every step. `fb.make(id)` makes one by its id; make
    one yourself for a problem of your own. Learners call `reset` and `step`. Policies are played by `fb.play`, which
    carries out whole plans at once by `pull`.

    Args:
        problem: the problem family of which each reset draws an instance, for example `Synthetic(num_agents=100)`.
        max_cycles: the horizon T, after which all agents are truncated.
        observe: "distribution" (agents are shown mu_i) or "context" (they are shown a point mass at their true context,
            which is the exact setting).
        reveal: "never", or "after": the infos of a step have the `context` of that step, where contexts are new at each
            step (`context="streaming"`).
        render_mode: "ansi" (a text), "rgb_array", "human" (a window) or None.

    >>> from fedbandit_envs.problems.synthetic import Synthetic
    >>> env = HiddenContextBandit(Synthetic(num_agents=2, num_arms=3), max_cycles=100)
    >>> observations, infos = env.reset(seed=0)
    >>> sorted(observations["agent_0"])
    ['mean', 'std']
    >>> observations, rewards, terminations, truncations, infos = env.step({"agent_0": 2, "agent_1": 0})
    >>> list(rewards), truncations
    (['agent_0', 'agent_1'], {'agent_0': False, 'agent_1': False})
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as PettingZoo declares it: an instance may have its own
        "name": "hidden_context_bandit_v0",
        "render_modes": list(RENDER_MODES),
        "render_fps": 4,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        problem: InstanceGenerator,
        *,
        max_cycles: int = 2**13,
        observe: str = "distribution",
        reveal: str = "never",
        render_mode: str | None = None,
    ):
        super().__init__(problem, max_cycles=max_cycles, observe=observe, reveal=reveal, render_mode=render_mode)
        self.possible_agents = [f"agent_{number}" for number in range(self._shape.num_agents)]
        self.agents: list[str] = []
        self._observation_spaces: dict[str, spaces.Dict] = {}
        self._action_spaces: dict[str, spaces.Discrete] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.problem!r}, max_cycles={self.max_cycles}, observe={self.observe!r})"

    # A step copies its dicts from the first of these, and reads all actions by one call of the second: both are faster
    # than one by one. Whole plans do without them.
    @cached_property
    def _going(self) -> dict[str, bool]:
        return dict.fromkeys(self.possible_agents, False)

    @cached_property
    def _of_all(self) -> Callable[[Mapping[str, int]], Any]:
        return itemgetter(*self.possible_agents)

    def observation_space(self, agent: str) -> spaces.Dict:
        """The space of what agent `agent` is shown: the arrays of its mu_i by name."""
        if agent not in self._observation_spaces:
            self._observation_spaces[agent] = spaces.Dict(
                {name: spaces.Box(box.low, box.high, dtype=np.float64) for name, box in self._mu_space.items()}  # type: ignore[attr-defined,arg-type]
            )
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        """The arms of agent `agent`, numbered from 0."""
        if agent not in self._action_spaces:
            self._action_spaces[agent] = spaces.Discrete(self.num_arms)
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Start an episode with a new instance, and return what agents are shown and empty infos.

        Args:
            seed: the seed of the episode; None: the one that follows from the seeds before.
            options: not used; PettingZoo passes them.
        """
        self.start(seed)
        return self._observations(), {agent: {} for agent in self.agents}

    def start(self, seed: int | None = None) -> None:
        """Do what `reset` does, but without observations: policies are given a `view` in their place."""
        super().start(seed)
        self._batch: Observation = {}  # the arrays (M, ...) of all agents, made at the first look
        self.agents = self.possible_agents[:]

    def _observations(self) -> dict[str, Observation]:
        """What each agent is shown, in new arrays."""
        segment = self.episode.segment
        if segment is not None:
            self._batch = segment.encoded(self.observe)
        elif not self._batch:
            shown, _ = self.instance.observed(self.observe)
            self._batch = {name: np.ascontiguousarray(rows) for name, rows in shown.encode().items()}
        copies = {name: rows.copy() for name, rows in self._batch.items()}
        if len(copies) == 1:
            ((name, rows),) = copies.items()
            return {agent: {name: row} for agent, row in zip(self.possible_agents, rows, strict=True)}
        if len(copies) == 2:
            (first, first_rows), (second, second_rows) = copies.items()
            return {
                agent: {first: one, second: other}
                for agent, one, other in zip(self.possible_agents, first_rows, second_rows, strict=True)
            }
        # The general form; the two above say the same faster, and every distribution of the library has one or two.
        return {
            agent: dict(zip(copies, rows, strict=True))
            for agent, *rows in zip(self.possible_agents, *copies.values(), strict=True)
        }

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Pull one arm per agent.

        Args:
            actions: an arm for each agent.

        Returns:
            Observations, rewards, terminations (always False), truncations (True at the horizon) and infos, by agent.
        """
        agents = self.possible_agents
        paid = self._play(self._running(), self._arms(actions))
        rewards: dict[str, float] = {**self._going}
        rewards.update(zip(agents, paid.tolist(), strict=True))
        return (
            self._observations(),
            rewards,
            self._going.copy(),
            dict.fromkeys(agents, True) if self.over else self._going.copy(),
            self._infos(),
        )

    def _infos(self) -> dict[str, dict[str, Any]]:
        """What the last step reveals to each agent: its context, or nothing."""
        contexts = self.episode.revealed()
        if contexts is None:
            return {agent: {} for agent in self.possible_agents}
        return {agent: {"context": row} for agent, row in zip(self.possible_agents, contexts, strict=True)}

    def _end(self) -> None:
        super()._end()
        self.agents = []

    def _arms(self, actions: Mapping[str, int]) -> IntArray:
        """The actions as one array (M,); refuses what are no actions of all agents."""
        num_agents = len(self.possible_agents)
        try:
            arms = self._of_all(actions) if num_agents > 1 else [self._of_all(actions)]
        except (TypeError, IndexError):  # lists and arrays raise these when asked for a name
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
            raise ValueError(f"actions: expected agents agent_0 to agent_{num_agents - 1}, got also {unknown}")
        return self._checked_arms(arms)
