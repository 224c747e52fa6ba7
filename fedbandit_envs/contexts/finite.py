"""Distributions over finitely many contexts: a context that is known, and one of several with known weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray, read_only, short_repr
from fedbandit_envs.contexts.distributions import ContextDistribution, joined
from fedbandit_envs.contexts.features import FeatureMap
from fedbandit_envs.contexts.rewards import GaussianRewards, MixtureRewards, RewardLaw
from fedbandit_envs.validation import real_array


@dataclass(frozen=True, eq=False)
class PointMass(ContextDistribution):
    """Contexts that are known exactly: the setting without hidden contexts.

    Use it to compare with algorithms that see the context. The variance of the features is 0 then, and psi is phi of
    the one point. An environment with `observe="context"` shows this distribution in place of its own.

    >>> PointMass([[0.3, 0.4]]).sample(np.random.default_rng(0))
    array([[0.3, 0.4]])
    """

    finite_support: ClassVar[bool] = True

    points: FloatArray  #: (M, n) the contexts

    __repr__ = short_repr

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", real_array("points", self.points, ("agents", "context")))

    @property
    def num_agents(self) -> int:
        """The number of agents, M."""
        return self.points.shape[0]

    @property
    def dim(self) -> int:
        """The length of a context, n."""
        return self.points.shape[1]

    def rows(self, index: IntArray | slice) -> "PointMass":
        """The distributions of the agents with these positions, in this order."""
        return unchecked(PointMass, points=self.points[index])

    @classmethod
    def stacked(cls, parts: Sequence[ContextDistribution]) -> ContextDistribution:
        """One distribution of longer arrays; a subclass may keep more than arrays, so its parts are kept."""
        return PointMass(joined(parts)["context"]) if cls is PointMass else super().stacked(parts)

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """The points themselves, (M, n)."""
        return self.points.copy()

    @property
    def known(self) -> FloatArray:
        """The points, (M, n)."""
        return self.points

    def reward_law(self, feature_map: FeatureMap, theta: FloatArray, noise_std: float) -> RewardLaw:
        """Normal rewards with the noise alone, because a known context is the same at each pull."""
        return GaussianRewards(np.einsum("ad,mad->ma", theta, self.expected_features(feature_map)), noise_std)

    def reward_proxy(self, feature_map: FeatureMap, theta: FloatArray) -> float:
        """A known context does not vary."""
        return 0.0

    def encode(self) -> dict[str, FloatArray]:
        """One array: `context` (M, n)."""
        return {"context": self.points}

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """One node per agent, with weight 1."""
        return self.points[:, None], np.ones((self.num_agents, 1))


@dataclass(frozen=True, eq=False)
class Discrete(ContextDistribution):
    """One of S contexts per agent, with known weights: for example one of the members of a household.

    All expectations are finite sums, so they are exact under any feature map. Agents with fewer than S contexts repeat
    one of them with weight 0. With `context="resampled"` each pull draws one of the contexts anew.

    >>> mu = Discrete(support=[[[0.0], [1.0]]], weights=[[0.25, 0.75]])
    >>> mu.choose(np.array([[0.1, 0.9]]))
    array([[0, 1]])
    """

    finite_support: ClassVar[bool] = True

    support: FloatArray  #: (M, S, n) the contexts that can occur
    weights: FloatArray  #: (M, S) their probabilities

    __repr__ = short_repr

    def __post_init__(self) -> None:
        support = real_array("support", self.support, ("agents", "points", "context"))
        weights = real_array("weights", self.weights, support.shape[:2])
        sums = weights.sum(axis=1)
        if (weights < 0).any() or (np.abs(sums - 1) > 1e-9).any():
            raise ValueError(
                "weights: expected non-negative rows that sum to 1, got "
                f"a smallest weight of {weights.min():g} and sums from {sums.min():g} to {sums.max():g}; "
                "divide each row by its sum"
            )
        object.__setattr__(self, "support", support)
        object.__setattr__(self, "weights", weights)

    @property
    def num_agents(self) -> int:
        """The number of agents, M."""
        return self.support.shape[0]

    @property
    def dim(self) -> int:
        """The length of a context, n."""
        return self.support.shape[2]

    def rows(self, index: IntArray | slice) -> "Discrete":
        """The distributions of the agents with these positions, in this order."""
        return unchecked(Discrete, support=self.support[index], weights=self.weights[index])

    @classmethod
    def stacked(cls, parts: Sequence[ContextDistribution]) -> ContextDistribution:
        """One distribution of longer arrays; a subclass may keep more than arrays, so its parts are kept."""
        return Discrete(**joined(parts)) if cls is Discrete else super().stacked(parts)

    def choose(self, uniforms: FloatArray) -> IntArray:
        """The number of the support point that each of the uniforms (M, ...) selects, never one of weight 0."""
        cumulative = self.weights.cumsum(axis=1)
        cumulative = (cumulative / cumulative[:, -1:])[:, :-1]
        return (uniforms[..., None] >= cumulative.reshape(len(cumulative), *[1] * (uniforms.ndim - 1), -1)).sum(axis=-1)

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """Draw one point of the support per agent, (M, n)."""
        chosen = self.choose(rng.random(self.num_agents))
        return self.support[np.arange(self.num_agents), chosen]

    def reward_law(self, feature_map: FeatureMap, theta: FloatArray, noise_std: float) -> RewardLaw:
        """A mixture of normal rewards over the points of the support."""
        at_support = np.einsum("msad,ad->msa", feature_map(self.support), theta)
        return MixtureRewards(self, at_support, noise_std)

    def reward_proxy(self, feature_map: FeatureMap, theta: FloatArray) -> float:
        """Half the range of the rewards, squared: they are bounded."""
        rewards = np.einsum("msad,ad->msa", feature_map(self.support), theta)
        possible = self.weights[..., None] > 0
        highest, lowest = np.where(possible, rewards, -np.inf).max(1), np.where(possible, rewards, np.inf).min(1)
        return float(((highest - lowest) / 2).max() ** 2)

    def bounds(self) -> Mapping[str, tuple[float, float]]:
        """The lower end of `weights`, which is 0."""
        return {"weights": (0.0, np.inf)}

    def encode(self) -> dict[str, FloatArray]:
        """Two arrays: `support` (M, S, n) and `weights` (M, S)."""
        return {"support": self.support, "weights": self.weights}

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """The support and its weights: sums over them are exact."""
        return self.support, self.weights


_Finite = TypeVar("_Finite", PointMass, Discrete)


def unchecked(kind: type[_Finite], **arrays: FloatArray) -> _Finite:
    """A distribution of arrays that have been checked before; they are not copied."""
    part = object.__new__(kind)
    for name, array in arrays.items():
        object.__setattr__(part, name, read_only(array))
    return part
