"""The multi-agent environment: a thin PettingZoo shell over an array core."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.envs.bandit import RENDER_MODES, EpisodicBandit
from fedbandit_envs.envs.episode import UpcomingSteps
from fedbandit_envs.problems.generator import InstanceGenerator
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.seeding import Randomness, Stream, derived_seed
from fedbandit_envs.validation import whole_number

Observation = dict[str, FloatArray]


class HiddenContextBandit(EpisodicBandit, ParallelEnv[str, Observation, int]):
    """M agents in different linear bandits; agent i observes mu_i, the distribution of its hidden context.

    Args:
        problem: what is drawn at each reset, for example `Synthetic(num_agents=100)`.
        max_cycles: the horizon T, after which all agents are truncated.
        observe: "distribution" (mu_i as it is) or "context" (a point mass at the true context: the exact setting).
        render_mode: "ansi", "rgb_array", "human" or None.
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
        render_mode: str | None = None,
    ):
        super().__init__(problem, max_cycles=max_cycles, observe=observe, render_mode=render_mode)
        self._space = self._prototype.observed(observe)[0].space()
        self.possible_agents = [f"agent_{number}" for number in range(self._prototype.num_agents)]
        self.agents: list[str] = []
        self._observation_spaces: dict[str, spaces.Dict] = {}
        self._action_spaces: dict[str, spaces.Discrete] = {}
        # The dicts of a step are copied from this one, and actions read in one go: faster than one by one.
        self._going = dict.fromkeys(self.possible_agents, False)
        self._of_all = itemgetter(*self.possible_agents)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.problem!r}, max_cycles={self.max_cycles}, observe={self.observe!r})"

    def observation_space(self, agent: str) -> spaces.Dict:
        """The space of mu_i."""
        if agent not in self._observation_spaces:
            self._observation_spaces[agent] = spaces.Dict(
                {name: spaces.Box(box.low, box.high, dtype=np.float64) for name, box in self._space.items()}  # type: ignore[attr-defined,arg-type]
            )
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        """The arms."""
        if agent not in self._action_spaces:
            self._action_spaces[agent] = spaces.Discrete(self.num_arms)
        return self._action_spaces[agent]

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
        self.start(seed)
        return self._observations(), {agent: {} for agent in self.agents}

    def start(self, seed: int | None = None) -> None:
        """`reset` for who doesn't look at observations, such as policies that are given a `view`."""
        self._restart(seed)
        self._batch: Observation = {}  # of all agents, (M, ...); made when somebody looks
        self.agents = self.possible_agents[:]

    def _observations(self) -> dict[str, Observation]:
        if not self._batch:
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
        """One pull per agent."""
        agents = self.possible_agents
        paid = self._play(self._running(), self._arms(actions))
        rewards: dict[str, float] = {**self._going}
        rewards.update(zip(agents, paid.tolist(), strict=True))
        return (
            self._observations(),
            rewards,
            self._going.copy(),
            dict.fromkeys(agents, True) if self.over else self._going.copy(),
            {agent: {} for agent in agents},
        )

    def _end(self) -> None:
        super()._end()
        self.agents = []

    def _arms(self, actions: Mapping[str, int]) -> IntArray:
        """The actions as one checked array (M,)."""
        num_agents = len(self.possible_agents)
        try:
            arms = self._of_all(actions) if num_agents > 1 else [self._of_all(actions)]
        except TypeError:
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
        return self._checked_arms(arms)

    def pull(self, plan: Plan) -> Feedback:
        """A whole plan at once: equal in distribution to stepping, at a cost that does not grow with its length."""
        episode = self._running()
        plan = plan.checked(len(self.possible_agents), self.num_arms)
        left = self.max_cycles - episode.steps
        if plan.length > left:
            raise ValueError(
                f"plan.length: expected at most the {left} steps left, got {plan.length}; use plan.cut({left})"
            )
        feedback = episode.pull(plan)
        if self._tally is not None:
            self._tally.add_plan(plan, feedback)
        if episode.steps >= self.max_cycles:
            self._end()
        return feedback

    @property
    def tallies(self) -> bool:
        """Whether this episode keeps the tally of pulls and rewards, so that somebody wants to see each plan."""
        return self._tally is not None

    def upcoming(self, most: int) -> UpcomingSteps:
        """The rewards of the next plans of one step, `most` of them or fewer; `skip` says how many were played."""
        episode = self._running()
        whole_number("most", most, at_least=1)
        return episode.upcoming(min(most, self.max_cycles - episode.steps))

    def skip(self, steps: int) -> None:
        """Count `steps` plans of one step, whose rewards `upcoming` gave."""
        self.episode.skip(steps)
        if self.episode.steps >= self.max_cycles:
            self._end()

    def resume(self, steps: int, plans: int) -> None:
        """Go on with an episode that has come to `steps` steps and `plans` plans, right after its reset."""
        self.episode.steps, self.episode.plans = steps, plans
        if steps >= self.max_cycles:
            self._end()
