"""PettingZoo wrappers for learners and recorders; they can be stacked, and plans can still be pulled at once.

Gymnasium's views do the same by keywords: `observation="features"` or `"statistics"`, and `record_regret=True`.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.envs.bandit import EpisodicBandit
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.protocol.observations import (
    features_space,
    flat_features,
    joined,
    pull_statistics,
    statistics_by_name,
    statistics_space,
)
from fedbandit_envs.protocol.plans import Feedback, Plan

Observations = dict[str, Any]  # what each agent is shown, by its name
Infos = dict[str, dict[str, Any]]
Outcome = tuple[Observations, dict[str, float], dict[str, bool], dict[str, bool], Infos]


class _BanditWrapper(BaseParallelWrapper[str, Any, int]):
    """A wrapper that looks at the bandit beneath it, however many other wrappers are between them."""

    #: The keyword of gymnasium.make() that does the same for Gymnasium's environments.
    in_gymnasium: ClassVar[str]

    def __init__(self, env: ParallelEnv[str, Any, int]):
        super().__init__(env)
        bandit = env.unwrapped
        if not isinstance(bandit, HiddenContextBandit):
            remedy = "fb.make() makes one"
            if isinstance(bandit, EpisodicBandit):  # a view of Gymnasium
                remedy = f"for an environment of Gymnasium pass {self.in_gymnasium} to gymnasium.make() instead"
            raise ValueError(
                f"env: expected a HiddenContextBandit, wrapped or not, got {type(bandit).__name__}; {remedy}"
            )
        self.bandit = bandit

    def pull(self, plan: Plan) -> Feedback:
        """Carry out a whole plan at once; no wrapper needs to see its single steps."""
        return self.env.pull(plan)


class _ObservationWrapper(_BanditWrapper):
    """A wrapper that changes what agents observe."""

    def __init__(self, env: ParallelEnv[str, Any, int]):
        super().__init__(env)
        self._spaces: dict[str, spaces.Space[Any]] = {}

    @abstractmethod
    def _new_space(self, agent: str) -> spaces.Space[Any]:
        """The space of one agent's observation."""

    @abstractmethod
    def _changed(self, observations: Observations) -> Observations:
        """What is shown in place of `observations`, in new arrays."""

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The space of what agent `agent` is shown."""
        if agent not in self._spaces:
            self._spaces[agent] = self._new_space(agent)
        return self._spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observations, Infos]:
        """Start an episode with a new instance: of the given seed, or of the one that follows from the seeds before."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._changed(observations), infos

    def step(self, actions: Mapping[str, int]) -> Outcome:
        """Pull one arm per agent."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        return self._changed(observations), rewards, terminations, truncations, infos


class ExpectedFeatures(_ObservationWrapper):
    """Shows psi_i, the expected features under mu_i, arm by arm in a flat Box, instead of mu_i.

    Learners of reinforcement learning mostly take one flat array, and psi is all that a linear policy needs of mu_i. It
    loses the spread of the context. Put it directly on the environment, beneath wrappers that change observations.

    >>> from fedbandit_envs.envs.registration import make
    >>> env = ExpectedFeatures(make("fedbandit/Synthetic-v0", num_agents=2, num_arms=4, dim=3))
    >>> observations, infos = env.reset(seed=0)
    >>> observations["agent_0"].shape
    (12,)
    """

    in_gymnasium = 'observation="features"'

    def __init__(self, env: ParallelEnv[str, Any, int]):
        super().__init__(env)
        first = self.bandit.possible_agents[0]
        shown = env.observation_space(first)
        if shown != self.bandit.observation_space(first):
            raise ValueError(
                f"env: expected one that shows the distributions mu_i, got observations in {shown}; "
                "put ExpectedFeatures beneath the wrapper that changes them"
            )

    def _new_space(self, agent: str) -> spaces.Box:
        return features_space(self.bandit.num_arms, self.bandit.dim)

    def _changed(self, observations: Observations) -> Observations:
        features = flat_features(self.bandit.episode.observed(self.bandit.observe)[1])
        return dict(zip(self.bandit.possible_agents, features, strict=True))


class PullStatistics(_ObservationWrapper):
    """Adds what the agent remembers of its episode; without it a policy without memory can't learn which arm is best.

    A Dict gets `pulls` (K,), `rewards` (K,) and `time` (1,), the parts of `observations.pull_statistics` by name; to a
    flat Box, such as that of ExpectedFeatures, they are appended in this order. Rewards are as the bandit paid them.

    >>> from fedbandit_envs.envs.registration import make
    >>> env = PullStatistics(make("fedbandit/Synthetic-v0", num_agents=1, num_arms=2, max_cycles=10))
    >>> observations, infos = env.reset(seed=0)
    >>> observations, *_ = env.step({"agent_0": 1})
    >>> observations["agent_0"]["pulls"] > 0
    array([False,  True])
    """

    in_gymnasium = 'observation="statistics"'

    def __init__(self, env: ParallelEnv[str, Any, int]):
        super().__init__(env)
        space = env.observation_space(self.bandit.possible_agents[0])
        if not isinstance(space, spaces.Dict) and not (isinstance(space, spaces.Box) and len(space.shape) == 1):
            raise ValueError(f"env: expected observations in a Dict or a flat Box, got {space}; flatten them first")
        self.bandit.remember()

    def _new_space(self, agent: str) -> spaces.Space[Any]:
        known, added = self.env.observation_space(agent), statistics_space(self.bandit.num_arms)
        if isinstance(known, spaces.Box):
            return joined(known, added)
        low, high = statistics_by_name(added.low), statistics_by_name(added.high)
        boxes = {name: spaces.Box(low[name], high[name], dtype=np.float32) for name in low}
        return spaces.Dict({**known.spaces, **boxes})

    def _changed(self, observations: Observations) -> Observations:
        tally = self.bandit.tally
        rows = pull_statistics(tally.pulls, tally.sums, self.bandit.max_cycles)
        pairs = zip(self.bandit.possible_agents, rows, strict=True)
        if isinstance(next(iter(observations.values())), dict):
            return {agent: {**observations[agent], **statistics_by_name(row)} for agent, row in pairs}
        return {agent: np.concatenate([observations[agent], row]) for agent, row in pairs}


class RecordRegret(_BanditWrapper):
    """Puts the regret of the episode in each agent's last info: `info["episode_regret"]`, by kind.

    Use it to watch a learner that is no policy of this library. The regret is for people and not for agents, because it
    is computed from the truth. After `pull`, which has no infos, and at any other time `episode_regret()` tells it.

    >>> from fedbandit_envs.envs.registration import make
    >>> env = RecordRegret(make("fedbandit/Synthetic-v0", num_agents=2, max_cycles=1))
    >>> observations, infos = env.reset(seed=0)
    >>> *_, infos = env.step({"agent_0": 0, "agent_1": 0})
    >>> list(infos["agent_0"]["episode_regret"])
    ['regret', 'distribution_regret', 'paper_regret', 'group_regret', 'mixed_regret:0.5']
    """

    in_gymnasium = "record_regret=True"

    def __init__(self, env: ParallelEnv[str, Any, int]):
        super().__init__(env)
        self.bandit.remember()

    def __repr__(self) -> str:
        return f"RecordRegret({self.env!r})"

    def episode_regret(self) -> dict[str, FloatArray]:
        """The regret (M,) of each agent so far, by the kinds of `fedbandit_envs.problems.regrets.REGRETS`."""
        return self.bandit.episode_regret()

    def step(self, actions: Mapping[str, int]) -> Outcome:
        """Pull one arm per agent."""
        *outcome, infos = self.env.step(actions)
        if self.bandit.over:
            by_kind = {kind: regret.tolist() for kind, regret in self.episode_regret().items()}
            infos = {
                agent: {**infos[agent], "episode_regret": {kind: regret[number] for kind, regret in by_kind.items()}}
                for number, agent in enumerate(self.bandit.possible_agents)
            }
        return (*outcome, infos)
