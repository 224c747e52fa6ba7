"""Gymnasium views of the environments: all agents as one, one agent alone, or the agents as rows of a vector.

gymnasium.make("fedbandit_envs:fedbandit/Synthetic-v0")
gymnasium.make("fedbandit_envs:fedbandit/Synthetic-Agent-v0", agent=3)
gymnasium.make_vec("fedbandit_envs:fedbandit/Synthetic-Agent-v0", num_envs=100)

With the same seed and the same actions each gives the rewards of the PettingZoo environment. All take its keywords and
two more, `observation` and `record_regret`, which do here what the wrappers of `fedbandit_envs.envs.wrappers` do there.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.envs.bandit import RENDER_MODES, EpisodicBandit
from fedbandit_envs.envs.registration import split_keywords
from fedbandit_envs.protocol.observations import (
    Rows,
    features_space,
    flat_features,
    joined,
    pull_statistics,
    statistics_space,
)
from fedbandit_envs.seeding import checked_seed
from fedbandit_envs.validation import one_of, whole_number

OBSERVATIONS = ("features", "distribution", "statistics")
ViewObservation = Rows | dict[str, FloatArray]
Info = dict[str, Any]


class _BanditView(EpisodicBandit):
    """What all views have in common.

    Args:
        problem: the name of the problem, for example "Synthetic".
        rows: the numbers of the agents that are looked at; None: all.
        observation: "features" (a flat Box of psi), "distribution" (mu_i as a Dict of Boxes) or "statistics" (psi and
            what the agent remembers of its episode, `observations.pull_statistics`, in one flat Box).
        record_regret: whether the last info of an episode has the `episode_regret` of each kind.
        keywords: the keywords of the problem, and `max_cycles`, `observe` and `render_mode` of the environment.
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 4}  # noqa: RUF012 - see Gymnasium's
    _keywords: ClassVar[tuple[str, ...]] = (
        "observation",
        "record_regret",
    )  # taken by the view itself

    def __init__(
        self,
        problem: str,
        rows: IntArray | None = None,
        *,
        observation: str = "features",
        record_regret: bool = False,
        **keywords: Any,
    ):
        generator, rest = split_keywords(problem, keywords, self._keywords)
        if rows is not None and generator.num_agents is not None and rows.max() >= generator.num_agents:
            raise ValueError(
                f"agent: expected a number from 0 to {generator.num_agents - 1}, got {rows.max()}; num_agents is their "
                "number"
            )
        self.observation = one_of("observation", observation, OBSERVATIONS)
        self.record_regret = record_regret
        super().__init__(generator, rows=rows, **rest)
        if record_regret or observation == "statistics":
            self.remember()

    def _agent_space(self) -> spaces.Box | spaces.Dict:
        """The space of one agent's observation."""
        if self.observation == "distribution":
            return self._mu_space
        features = features_space(self.num_arms, self.dim)
        if self.observation == "features":
            return features
        return joined(features, statistics_space(self.num_arms))

    def _restart(self, seed: int | None) -> None:
        super()._restart(seed)
        self._see()

    def _see(self) -> None:
        """Take in what is shown now."""
        distribution, psi = self.episode.observed(self.observe)
        self._features, self._mu = flat_features(psi), distribution.encode()

    def _observations(self) -> ViewObservation:
        """What all agents are shown, in new arrays with one row per agent."""
        if self.segment_steps is not None:
            self._see()
        if self.observation == "distribution":
            return {name: rows.copy() for name, rows in self._mu.items()}
        if self.observation == "features":
            return self._features.copy()
        statistics = pull_statistics(self.tally.pulls, self.tally.sums, self.max_cycles)
        return np.concatenate([self._features, statistics], axis=1)

    def _regret(self) -> dict[str, FloatArray] | None:
        """The regret (n,) of each agent by kind, if the episode is over and regret is recorded; else None."""
        return self.episode_regret() if self.over and self.record_regret else None

    def _info(self) -> Info:
        """What the last step reveals: the `context` (n, ...) of all agents, or nothing."""
        contexts = self.episode.revealed()
        return {} if contexts is None else {"context": contexts}


class _SingleView(_BanditView, gymnasium.Env[Any, Any]):
    """A view that is a plain Gymnasium environment."""

    @abstractmethod
    def _observed(self) -> ViewObservation:
        """What the learner is shown now."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ViewObservation, Info]:
        """Start an episode with a new instance: of the given seed, or of the one that follows from the seeds before."""
        self._restart(seed)
        gymnasium.Env.reset(self, seed=seed)  # sets env.np_random, from which nothing here draws
        return self._observed(), {}


class JointView(_SingleView):
    """All agents as one learner, which chooses an arm for each of them.

    The reward of a step is the sum of the rewards of all agents, not their mean. "features" and "statistics" are flat,
    agent after agent. The arrays of "distribution", and of the last info's `episode_regret`, have an axis for the
    agents.

    >>> env = JointView("Synthetic", num_agents=3, num_arms=4, dim=2, max_cycles=100)
    >>> observation, info = env.reset(seed=0)
    >>> observation.shape, env.action_space
    ((24,), MultiDiscrete([4 4 4]))
    """

    def __init__(self, problem: str, **keywords: Any):
        super().__init__(problem, **keywords)
        agents = self._block_size
        one = self._agent_space()
        self.observation_space = joined(*[one] * agents) if isinstance(one, spaces.Box) else batch_space(one, agents)
        self.action_space = spaces.MultiDiscrete([self.num_arms] * agents)

    def _observed(self) -> ViewObservation:
        rows = self._observations()
        return rows if isinstance(rows, dict) else rows.reshape(-1)

    def step(self, action: IntArray) -> tuple[ViewObservation, float, bool, bool, Info]:
        """Pull one arm per agent; the reward is the sum of theirs."""
        rewards = self._play(self._running(), self._checked_arms(action))
        regret = self._regret()
        info = self._info() | ({} if regret is None else {"episode_regret": regret})
        return self._observed(), float(rewards.sum()), False, self.over, info


class OneAgentView(_SingleView):
    """One agent alone, which is shown and paid exactly what agent number `agent` is among all others.

    Args:
        problem: the name of the problem, for example "Synthetic".
        agent: the number of the agent, from 0.
        keywords: the keywords of the problem, of the environment and of all views.

    >>> env = OneAgentView("Synthetic", agent=2, num_agents=3, num_arms=4, dim=2, max_cycles=100)
    >>> observation, info = env.reset(seed=0)
    >>> observation.shape, env.action_space
    ((8,), Discrete(4))
    """

    _keywords: ClassVar[tuple[str, ...]] = (*_BanditView._keywords, "agent")

    def __init__(self, problem: str, *, agent: int = 0, **keywords: Any):
        self.agent = whole_number("agent", agent, at_least=0)
        super().__init__(problem, np.array([self.agent]), **keywords)
        self.observation_space = self._agent_space()
        self.action_space = spaces.Discrete(self.num_arms)

    def _observed(self) -> ViewObservation:
        rows = self._observations()
        return {name: row[0] for name, row in rows.items()} if isinstance(rows, dict) else rows[0]

    def step(self, action: int) -> tuple[ViewObservation, float, bool, bool, Info]:
        """Pull arm `action` once."""
        (reward,) = self._play(self._running(), self._checked_arms([action])).tolist()
        regret = self._regret()
        info = {name: rows[0] for name, rows in self._info().items()}
        if regret is not None:
            info["episode_regret"] = {kind: float(row[0]) for kind, row in regret.items()}
        return self._observed(), reward, False, self.over, info


class AgentsVectorEnv(_BanditView, VectorEnv[ViewObservation, IntArray, Any]):
    """The agents as the rows of a vector environment, in array code: `num_envs` is the number of agents.

    With `num_envs=1`, the default of make_vec, the number of agents is that of `num_agents`, of Linear's arrays or of
    File's file where these are given. All rows end together, and the step after the end starts the next episode. All
    rows share one problem and so one seed: of a list of seeds, one per row, the first is taken, since Gymnasium's list
    for a seed s is [s, s + 1, ...].

    >>> envs = AgentsVectorEnv("Synthetic", num_envs=3, num_arms=4, dim=2, max_cycles=100)
    >>> observations, infos = envs.reset(seed=0)
    >>> observations, rewards, *_ = envs.step(np.array([0, 3, 1]))
    >>> observations.shape, rewards.shape
    ((3, 8), (3,))
    """

    metadata = {**_BanditView.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as Gymnasium declares it
    _keywords: ClassVar[tuple[str, ...]] = (*_BanditView._keywords, "num_envs")

    def __init__(self, problem: str, *, num_envs: int = 1, **keywords: Any):
        whole_number("num_envs", num_envs, at_least=1)
        given = any(keywords.get(name) is not None for name in ("theta", "path"))
        if "num_agents" not in keywords and not (num_envs == 1 and given):
            keywords["num_agents"] = num_envs
        super().__init__(problem, **keywords)
        self.num_envs = self._block_size
        if num_envs not in (1, self.num_envs):
            raise ValueError(
                f"num_envs: expected {self.num_envs}, the number of agents, got {num_envs}; leave out one of the two"
            )
        self.single_observation_space = self._agent_space()
        self.single_action_space = spaces.Discrete(self.num_arms)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ViewObservation, Info]:
        """Start an episode with a new instance: of the given seed, or of the one that follows from the seeds before."""
        first = self._one_seed(seed)
        if options and "reset_mask" in options and not np.all(options["reset_mask"]):
            raise ValueError(
                f"reset_mask: expected all rows, got {options['reset_mask']!r}; the agents share one problem, so they "
                "can only start again together"
            )
        self._restart(first)
        VectorEnv.reset(self, seed=first)
        return self._observations(), {}

    def _one_seed(self, seed: int | Sequence[int | None] | None) -> int | None:
        """The one seed of all rows."""
        if not isinstance(seed, Sequence | np.ndarray) or isinstance(seed, str):
            return checked_seed(seed)
        if len(seed) != self.num_envs:
            raise ValueError(f"seed: expected one or a list of {self.num_envs}, got a list of {len(seed)}")
        first, *_ = map(checked_seed, seed)
        return first

    def step(self, actions: IntArray) -> tuple[ViewObservation, FloatArray, BoolArray, BoolArray, Info]:
        """Pull one arm per agent, or start the next episode if the last one is over."""
        episode, arms, info = self.episode, self._checked_arms(actions), dict[str, Any]()
        if self.over:
            self._restart(None)
            rewards = np.zeros(self.num_envs)
        else:
            rewards = self._play(episode, arms)
            info = self._info()
            info |= {
                f"_{name}": np.ones(self.num_envs, dtype=np.bool_) for name in info
            }  # masks, as Gymnasium's infos have them
        going, over = np.zeros(self.num_envs, dtype=np.bool_), np.zeros(self.num_envs, dtype=np.bool_)
        over[:] = self.over
        regret = self._regret()
        if regret is not None:
            info |= {"episode_regret": regret, "_episode_regret": over.copy()}
        return self._observations(), rewards, going, over, info

    def render(self) -> tuple[Any, ...] | None:
        """The same picture of all agents once for each row, as Gymnasium's recorders want it."""
        frame = super().render()
        return None if frame is None else (frame,) * self.num_envs

    def close(self, **kwargs: Any) -> None:
        """Close the window, if there is one."""
        VectorEnv.close(self, **kwargs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the window, if there is one."""
        EpisodicBandit.close(self)
