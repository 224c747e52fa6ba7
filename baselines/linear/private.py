"""What private linear agents share: clipped observations, and the tree of noisy sums behind their reports."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbandit_agents.privacy import Budget, clipped, noisy_node
from fedbandit_baselines.linear.agents import LinearPolicy, LinearSettings, StepData
from fedbandit_baselines.linear.sharing import SharingAgents
from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.steps import Outcome
from fedbandit_envs.validation import checked, optional, probability, real_number

# Noise may be this many standard deviations large: one of 10^14 numbers is larger.
_DEVIATIONS = 8.0


def real_epsilon(name: str, value: Any) -> float:
    """The value as a float, which may be infinite; refuses what is not a number above 0."""
    return value if isinstance(value, float) and value == math.inf else real_number(name, value, above=0)


@dataclass(frozen=True)
class PrivatePolicy(LinearPolicy):
    """The hyper-parameters of private linear systems."""

    #: the bound on what a report tells about one observation of its agent; infinity: no noise. The files of experiments
    #: know no infinity: take 1e9 there, whose noise is next to nothing
    epsilon: float = checked(1.0, real_epsilon)
    privacy_delta: float = checked(1e-5, probability)  #: how far that bound may be missed
    #: Y: rewards are clipped to [-Y, Y] before use; most should lie there, and noise grows with it
    reward_bound: float = checked(1.0, real_number, above=0)
    #: features are shortened to this norm before use; None takes L, the upper end of the norms of psi
    feature_bound: float | None = checked(None, optional(real_number), above=0)

    @property
    def budget(self) -> Budget:
        """What all reports of an agent together may tell about one of its observations."""
        return Budget(self.epsilon, self.privacy_delta)

    def longest_feature(self, constants: Constants) -> float:
        """The norm to which features are shortened."""
        return constants.L if self.feature_bound is None else self.feature_bound


class PrivateAgents(SharingAgents):
    """Agents whose reports are made of noisy nodes of a binary tree over their reports; see `fedbandit_agents.privacy`.

    Args:
        policy: the hyper-parameters.
        view: what the agents know.
        settings: what the policy decides about its regression.
        levels: m, the number of levels of the tree, enough for all reports. Each takes memory from its first node on.
    """

    def __init__(self, policy: PrivatePolicy, view: View, settings: LinearSettings, levels: int):
        super().__init__(view, settings)
        self.feature_bound, self.reward_bound = policy.longest_feature(view.constants), policy.reward_bound
        n, blocks, dim = self.moments.shape
        self.levels, self.releases = levels, 0  # how many reports were made
        # The exact sums behind the newest node of each level that was reached.
        self.exact_gram: FloatArray = np.zeros((n, 0, blocks, dim, dim))
        self.exact_moments: FloatArray = np.zeros((n, 0, blocks, dim))

    def observation(self, outcome: Outcome) -> StepData:
        """What a step adds to the regression, clipped: without clipping one reward could tell everything."""
        block, x, weight, total = super().observation(outcome)
        x, mean = clipped(x, total / np.maximum(weight, 1), self.feature_bound, self.reward_bound)
        return StepData(block, x, weight, mean * weight)

    def next_node(self, gram_noise: FloatArray, moment_noise: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The noisy node of the next report, of x x^T (n, B, d, d) and of x y (n, B, d); what is new is in it then.

        Args:
            gram_noise: (n, B, d, d) fresh noise.
            moment_noise: (n, B, d) fresh noise.
        """
        self.releases += 1
        if self.exact_gram.shape[1] < min(self.releases.bit_length(), self.levels):
            self.exact_gram, self.exact_moments = with_level(self.exact_gram), with_level(self.exact_moments)
        parts = (
            (self.exact_gram, self.new_gram, gram_noise),
            (self.exact_moments, self.new_moments, moment_noise),
        )
        gram, moments = (noisy_node(exact.swapaxes(0, 1), self.releases, new, noise) for exact, new, noise in parts)
        self.forget_news(slice(None))
        return gram, moments


def with_level(nodes: FloatArray) -> FloatArray:
    """The nodes (n, m, ...) of each level, and one level more, of zeros.

    >>> with_level(np.ones((2, 1, 3))).sum(axis=2)
    array([[3., 0.],
           [3., 0.]])
    """
    return np.concatenate([nodes, np.zeros((len(nodes), 1, *nodes.shape[2:]))], axis=1)


def largest_node(policy: PrivatePolicy, constants: Constants, std: float, shift: float = 0.0) -> dict[str, float]:
    """The largest entries of an agent's reports, which sum at most T clipped observations and Gaussian noise.

    Args:
        policy: the hyper-parameters, which say how observations are clipped.
        constants: the public constants.
        std: the standard deviation of the noise in an entry.
        shift: what is added to the diagonal.
    """
    longest, noise = policy.longest_feature(constants), _DEVIATIONS * std
    return {
        "gram": constants.horizon * longest**2 + noise + shift,
        "moments": constants.horizon * longest * policy.reward_bound + noise,
    }
