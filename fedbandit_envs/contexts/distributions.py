"""Context distributions mu_i, batched over agents: what an agent may know about its hidden context.

Expected features psi and reward covariances are exact for a linear feature map and for distributions with finite
support. For a Gaussian under any other map they come from the fixed rules of
`fedbandit_envs.contexts.quadrature`, whose errors are stated there.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.features import FeatureMap
from fedbandit_envs.contexts.rewards import RewardLaw, SampledRewards
from fedbandit_envs.contexts.roots import matrix_root

_CHUNK = 2**20  # the quadrature holds at most this many entries of features at a time


class ContextDistribution(ABC):
    """One distribution per agent; row i is mu_i, what agent i may know about its hidden context.

    A distribution of your own defines `num_agents`, `dim`, `rows`, `sample`, `encode` and `nodes`. For
    `context="resampled"` it also defines `from_normals`, or a `reward_law` with a closed form. `bounds` says in which
    range the arrays of `encode` lie. Contexts that change need nothing more; `stacked` can make them faster.

    >>> from fedbandit_envs.contexts.gaussian import Gaussian
    >>> mu = Gaussian([[0.0, 1.0], [2.0, 3.0]], std=0.5)
    >>> mu.num_agents, mu.dim
    (2, 2)
    >>> mu.space()["std"].low
    array([0., 0.])
    """

    #: Whether `nodes` gives all contexts that can occur, and not merely a rule for integrals.
    finite_support: ClassVar[bool] = False

    @property
    @abstractmethod
    def num_agents(self) -> int:
        """The number of agents, M."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """The length of a context, n."""

    @abstractmethod
    def rows(self, index: IntArray | slice) -> "ContextDistribution":
        """The distributions of the agents with these positions, in this order."""

    @classmethod
    def stacked(cls, parts: "Sequence[ContextDistribution]") -> "ContextDistribution":
        """The rows of several distributions of this class as one, part after part: the segments of changing contexts.

        The default keeps the parts, and asks each of them. Override it where one distribution of longer arrays is
        faster.

        Args:
            parts: objects of this class, whose arrays of `encode` have the same shapes.

        >>> from fedbandit_envs.contexts.finite import PointMass
        >>> PointMass.stacked([PointMass([[1.0]]), PointMass([[2.0]])]).points
        array([[1.],
               [2.]])
        """
        return _Stacked(parts)

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> FloatArray:
        """Draw one context per agent, (M, n)."""

    @abstractmethod
    def encode(self) -> dict[str, FloatArray]:
        """mu as named arrays, each (M, ...); row i is what agent i observes. There may be any number of arrays."""

    @abstractmethod
    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """S points per agent (M, S, n) and their weights (M, S), by which expectations under mu_i are computed."""

    @property
    def known(self) -> FloatArray | None:
        """The contexts (M, n) if agents know them exactly, else None."""
        return None

    def bounds(self) -> Mapping[str, tuple[float, float]]:
        """The lower and upper end of arrays of `encode`, by name; an array that is left out has no bounds."""
        return {}

    def space(self) -> spaces.Dict:
        """The space of one agent's observation."""
        bounds = self.bounds()
        boxes: dict[str, spaces.Space[Any]] = {}
        for name, rows in self.encode().items():
            low, high = bounds.get(name, (-np.inf, np.inf))
            boxes[name] = spaces.Box(low, high, rows.shape[1:], np.float64)
        return spaces.Dict(boxes)

    @property
    def normals_per_context(self) -> int:
        """How many standard normals `from_normals` takes for one context."""
        return self.dim

    def from_normals(self, normals: FloatArray) -> FloatArray:
        """Make S contexts per agent, (M, S, n), of standard normals (M, S, normals_per_context)."""
        name = type(self).__name__
        raise ValueError(
            f"distribution: expected one with from_normals for context='resampled', got {name} without it; define "
            f"{name}.from_normals(normals) or {name}.reward_law(feature_map, theta, noise_std), or use context='fixed'"
        )

    def reward_law(self, feature_map: FeatureMap, theta: FloatArray, noise_std: float) -> RewardLaw:
        """The law of rewards whose context is drawn anew at each pull: <theta_a, phi(a, c)> plus Gaussian noise.

        The default draws each context by `from_normals`. A distribution with a closed form gives a faster law.

        Args:
            feature_map: phi, from contexts to features.
            theta: (K, d) the parameters of the arms.
            noise_std: the standard deviation of the noise of one reward.
        """
        if type(self).from_normals is ContextDistribution.from_normals:
            self.from_normals(np.empty((self.num_agents, 0, self.normals_per_context)))  # says what is missing
        return SampledRewards(self, feature_map, theta, noise_std)

    def expected_features(self, feature_map: FeatureMap) -> FloatArray:
        """The expected features psi_{a,i} = E[phi(a, c)] under mu_i, (M, K, d)."""
        check_fit(self, feature_map)
        return self._averaged(lambda phi, weights: np.einsum("msad,ms->mad", phi, weights), feature_map)

    def reward_covariance(self, feature_map: FeatureMap, theta: FloatArray) -> FloatArray:
        """The covariances of theta_a^T phi(a, c) and theta_b^T phi(b, c) under mu_i, (M, K, K)."""
        check_fit(self, feature_map)

        def covariance(phi: FloatArray, weights: FloatArray) -> FloatArray:
            rewards = np.einsum("msad,ad->msa", phi, theta)
            deviation = rewards - np.einsum("msa,ms->ma", rewards, weights)[:, None]
            return np.einsum("msa,msb,ms->mab", deviation, deviation, weights)

        return self._averaged(covariance, feature_map)

    def reward_proxy(self, feature_map: FeatureMap, theta: FloatArray) -> float:
        """A variance proxy: <theta_a, phi(a, c) - psi_a> is sub-Gaussian with it, for all agents and arms.

        The default is infinite: nothing is known about the law of the rewards.
        """
        return np.inf

    def reward_variances(self, feature_map: FeatureMap, theta: FloatArray) -> FloatArray:
        """Var_{c ~ mu_i}(theta_a^T phi(a, c)), (M, K): the diagonal of `reward_covariance`.

        >>> from fedbandit_envs.contexts.features import Identity
        >>> from fedbandit_envs.contexts.finite import Discrete
        >>> mu = Discrete(support=[[[0.0], [2.0]]], weights=[[0.5, 0.5]])
        >>> mu.reward_variances(Identity(num_arms=1, dim=1), np.array([[3.0]]))
        array([[9.]])
        """
        check_fit(self, feature_map)

        def variances(phi: FloatArray, weights: FloatArray) -> FloatArray:
            rewards = np.einsum("msad,ad->msa", phi, theta)
            deviation = rewards - np.einsum("ms,msa->ma", weights, rewards)[:, None]
            return np.einsum("ms,msa,msa->ma", weights, deviation, deviation)

        return self._averaged(variances, feature_map)

    def reward_factors(self, feature_map: FeatureMap, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """F (M, K, q) and D (M, K) with `reward_covariance` = F F^T + diag(D).

        F is what the arms have in common, D what each arm has of its own. The fewer columns F has, the faster policies
        are that infer the context.
        """
        factors = matrix_root(self.reward_covariance(feature_map, theta))
        return factors, np.zeros(factors.shape[:2])

    def common_root(self, feature_map: FeatureMap) -> FloatArray | None:
        """A (M, d, q) with phi(a, c) = psi_a + A z for all arms a, where z (q,) is standard normal.

        Such a distribution must give F = theta A and D = 0 as its `reward_factors`. None where the features are not so.
        """
        return None

    def _averaged(self, average: Callable[[FloatArray, FloatArray], FloatArray], feature_map: FeatureMap) -> FloatArray:
        """The rows of `average(phi, weights)` over the nodes, for some agents at a time to bound the memory."""
        first_points, _ = self.rows(np.arange(1)).nodes()
        size = max(1, _CHUNK // (first_points.shape[1] * feature_map.num_arms * feature_map.dim))
        parts = []
        for start in range(0, self.num_agents, size):
            points, weights = self.rows(np.arange(start, min(start + size, self.num_agents))).nodes()
            parts.append(average(feature_map(points), weights))
        return np.concatenate(parts)


class _Stacked(ContextDistribution):
    """The rows of several distributions, part after part; each part does its own work.

    Args:
        parts: one or more distributions.
    """

    def __init__(self, parts: Sequence[ContextDistribution]):
        self._parts = list(parts)
        self._starts = np.cumsum([0, *(part.num_agents for part in parts)])  # the row at which each part begins

    @property
    def num_agents(self) -> int:
        return int(self._starts[-1])

    @property
    def dim(self) -> int:
        return self._parts[0].dim

    def rows(self, index: IntArray | slice) -> ContextDistribution:
        """The distributions of these rows; those of one part are of its own class."""
        rows = np.arange(self.num_agents)[index]
        numbers = np.searchsorted(self._starts, rows, side="right") - 1  # the part of each row
        runs = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(numbers)) + 1)
        pieces = [self._parts[of].rows(rows[run] - self._starts[of]) for run in runs for of in numbers[run[:1]]]
        return pieces[0] if len(pieces) == 1 else _Stacked(pieces or [self._parts[0].rows(rows)])

    def sample(self, rng: np.random.Generator) -> FloatArray:
        return np.concatenate([part.sample(rng) for part in self._parts])

    def encode(self) -> dict[str, FloatArray]:
        return joined(self._parts)

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        points, weights = zip(*(part.nodes() for part in self._parts), strict=True)
        return np.concatenate(points), np.concatenate(weights)

    @property
    def known(self) -> FloatArray | None:
        known = [part.known for part in self._parts]
        return None if any(one is None for one in known) else np.concatenate([one for one in known if one is not None])

    def expected_features(self, feature_map: FeatureMap) -> FloatArray:
        return np.concatenate([part.expected_features(feature_map) for part in self._parts])

    def reward_covariance(self, feature_map: FeatureMap, theta: FloatArray) -> FloatArray:
        return np.concatenate([part.reward_covariance(feature_map, theta) for part in self._parts])

    def reward_proxy(self, feature_map: FeatureMap, theta: FloatArray) -> float:
        return max(part.reward_proxy(feature_map, theta) for part in self._parts)

    def reward_variances(self, feature_map: FeatureMap, theta: FloatArray) -> FloatArray:
        return np.concatenate([part.reward_variances(feature_map, theta) for part in self._parts])


def joined(parts: Sequence[ContextDistribution]) -> dict[str, FloatArray]:
    """The arrays of `encode` of several distributions, part after part."""
    encoded = [part.encode() for part in parts]
    return {name: np.concatenate([one[name] for one in encoded]) for name in encoded[0]}


def check_fit(distribution: ContextDistribution, feature_map: FeatureMap) -> None:
    """Refuse a feature map that takes contexts of another length than the distribution has."""
    if distribution.dim != feature_map.context_dim:
        raise ValueError(
            f"feature_map: expected contexts of length {feature_map.context_dim}, got a distribution over contexts of "
            f"length {distribution.dim}; Table takes K * d numbers, Identity takes d"
        )
