"""Environments whose rewards are given: a function of the agent, the arm and how often it was pulled before."""

from dataclasses import dataclass, replace

import numpy as np

import fedbandit_envs as fb
from fedbandit_envs.protocol.knowledge import Randomness


def table(num_agents, num_arms, horizon, seed=0):
    """(M, K, T) rewards of the first, second, ... pull. Multiples of 1/64: their sums are exact in any order."""
    rng = np.random.default_rng(seed)
    means = rng.uniform(0, 1, (num_agents, num_arms, 1))
    return np.round(64 * (means + rng.standard_normal((num_agents, num_arms, horizon)))) / 64


class ScriptedBandit(fb.HiddenContextBandit):
    """Pays what `rewards` (M, K, T) says."""

    def __init__(self, problem, rewards, **keywords):
        super().__init__(problem, **keywords)
        self.rewards = rewards
        self._sums = np.concatenate([np.zeros((*rewards.shape[:2], 1)), rewards.cumsum(axis=2)], axis=2)

    def reset(self, seed=None, options=None):
        first = super().reset(seed, options)
        self.counts = np.zeros(self.rewards.shape[:2], dtype=np.int64)
        return first

    def step(self, actions):
        observations, paid, *rest = super().step(actions)
        for row, agent in enumerate(self.possible_agents):
            arm = actions[agent]
            paid[agent] = float(self.rewards[row, arm, self.counts[row, arm]])
            self.counts[row, arm] += 1
        return observations, paid, *rest

    def pull(self, plan):
        feedback = super().pull(plan)
        explored_sums = self._paid(plan.explore)
        played = np.zeros(plan.explore.shape, dtype=np.int64)
        played[np.arange(len(plan.arm)), plan.arm] = feedback.played
        return replace(feedback, explored_sums=explored_sums, played_sums=self._paid(played).sum(axis=1))

    def _paid(self, pulls):
        before, self.counts = self.counts, self.counts + pulls
        rows, arms = np.indices(pulls.shape)
        return self._sums[rows, arms, self.counts] - self._sums[rows, arms, before]


@dataclass(frozen=True)
class Permuted:
    """A problem with its agents in another order."""

    problem: fb.Synthetic
    order: tuple[int, ...]

    @property
    def num_agents(self):
        return len(self.order)

    def instance(self, rng, context_rng):
        return self.problem.instance(rng, context_rng).rows(np.array(self.order))


class PermutedBandit(ScriptedBandit):
    """The same agents under other numbers: with their rewards, and with their random numbers."""

    def view(self, observe=None):
        view = super().view(observe)
        own = view.randomness
        order = np.array(self.problem.order)
        return replace(view, randomness=Randomness(own.seed, own.stream, own.num_agents, order))
