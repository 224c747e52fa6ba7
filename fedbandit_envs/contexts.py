"""Context distributions mu_i, batched over agents: what an agent may know about its hidden context.

Expected features psi and reward covariances are exact for a linear feature map and for distributions with finite
support. For a Gaussian under any other map they come from the fixed rules of `fedbandit_envs.quadrature`, whose errors
are stated there.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from gymnasium import spaces

from fedbandit_envs.features import LINEAR_MAPS, FeatureMap
from fedbandit_envs.quadrature import standard_normal_rule
from fedbandit_envs.validation import FloatArray, IntArray, real_array, real_numbers

_CHUNK = 2**20  # feature entries held at a time by the quadrature


class ContextDistribution(ABC):
    """One distribution per agent; row i is mu_i."""

    @property
    @abstractmethod
    def num_agents(self) -> int:
        """M."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """n, the length of a context."""

    @abstractmethod
    def rows(self, index: IntArray) -> Self:
        """The distributions of these agents alone."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> FloatArray:
        """One context per agent, (M, n)."""

    @abstractmethod
    def encode(self) -> dict[str, FloatArray]:
        """mu as named arrays, each (M, ...): row i is the observation of agent i."""

    @abstractmethod
    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """Points (M, S, n) and weights (M, S) with which expectations under mu_i are computed."""

    def space(self) -> spaces.Dict:
        """The space of one agent's observation."""
        return spaces.Dict(
            {
                name: spaces.Box(0.0 if name in ("std", "weights") else -np.inf, np.inf, rows.shape[1:], np.float64)
                for name, rows in self.encode().items()
            }
        )

    def expected_features(self, feature_map: FeatureMap) -> FloatArray:
        """psi_{a,i} = E[phi(a, c)], (M, K, d)."""
        _check_fit(self, feature_map)
        return self._averaged(lambda phi, weights: np.einsum("msad,ms->mad", phi, weights), feature_map)

    def reward_covariance(self, feature_map: FeatureMap, theta: FloatArray) -> FloatArray:
        """Cov_{c ~ mu_i}(theta_a^T phi(a, c), theta_b^T phi(b, c)), (M, K, K)."""
        _check_fit(self, feature_map)

        def covariance(phi: FloatArray, weights: FloatArray) -> FloatArray:
            rewards = np.einsum("msad,ad->msa", phi, theta)
            deviation = rewards - np.einsum("msa,ms->ma", rewards, weights)[:, None]
            return np.einsum("msa,msb,ms->mab", deviation, deviation, weights)

        return self._averaged(covariance, feature_map)

    def _averaged(self, average: Callable[[FloatArray, FloatArray], FloatArray], feature_map: FeatureMap) -> FloatArray:
        """`average(phi, weights)` over the nodes, some agents at a time."""
        first_points, _ = self.rows(np.arange(1)).nodes()
        size = max(1, _CHUNK // (first_points.shape[1] * feature_map.num_arms * feature_map.dim))
        parts = []
        for start in range(0, self.num_agents, size):
            points, weights = self.rows(np.arange(start, min(start + size, self.num_agents))).nodes()
            parts.append(average(feature_map(points), weights))
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class PointMass(ContextDistribution):
    """The context is known exactly."""

    points: FloatArray  # (M, n)

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", real_array("points", self.points, ("agents", "context")))

    @property
    def num_agents(self) -> int:
        """M."""
        return self.points.shape[0]

    @property
    def dim(self) -> int:
        """n, the length of a context."""
        return self.points.shape[1]

    def rows(self, index: IntArray) -> "PointMass":
        """The distributions of these agents alone."""
        return PointMass(self.points[index])

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """The points themselves, (M, n)."""
        return self.points.copy()

    def encode(self) -> dict[str, FloatArray]:
        """`context` (M, n)."""
        return {"context": self.points}

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """One node per agent."""
        return self.points[:, None], np.ones((self.num_agents, 1))


@dataclass(frozen=True, eq=False)
class Discrete(ContextDistribution):
    """One of S contexts, with known weights."""

    support: FloatArray  # (M, S, n)
    weights: FloatArray  # (M, S)

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
        """M."""
        return self.support.shape[0]

    @property
    def dim(self) -> int:
        """n, the length of a context."""
        return self.support.shape[2]

    def rows(self, index: IntArray) -> "Discrete":
        """The distributions of these agents alone."""
        return Discrete(self.support[index], self.weights[index])

    def choose(self, uniforms: FloatArray) -> IntArray:
        """The support point that each of the uniforms (M, ...) selects; never one of weight 0."""
        cumulative = self.weights.cumsum(axis=1)
        cumulative = (cumulative / cumulative[:, -1:])[:, :-1]
        return (uniforms[..., None] >= cumulative.reshape(len(cumulative), *[1] * (uniforms.ndim - 1), -1)).sum(axis=-1)

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """One point of the support per agent, (M, n)."""
        chosen = self.choose(rng.random(self.num_agents))
        return self.support[np.arange(self.num_agents), chosen]

    def encode(self) -> dict[str, FloatArray]:
        """`support` (M, S, n) and `weights` (M, S)."""
        return {"support": self.support, "weights": self.weights}

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """The support itself."""
        return self.support, self.weights


@dataclass(frozen=True, eq=False)
class Gaussian(ContextDistribution):
    """A normal distribution: give `std` (independent coordinates) or a full `covariance`.

    Example: `Gaussian(means, std=0.05)`, `Gaussian(means, covariance=shared)` with shared (n, n), or one (M, n, n).
    """

    mean: FloatArray  # (M, n)
    std: FloatArray | float | None = None  # a number, (n,), (M, 1) or (M, n); kept as (1 or M, n)
    covariance: FloatArray | None = None  # (n, n) or (M, n, n); kept as (1 or M, n, n)

    def __post_init__(self) -> None:
        mean = real_array("mean", self.mean, ("agents", "context"))
        object.__setattr__(self, "mean", mean)
        if (self.std is None) == (self.covariance is None):
            came = "neither" if self.std is None else "both"
            raise ValueError(f"Gaussian: expected either std or covariance, got {came}; pass exactly one of them")
        if self.std is not None:
            object.__setattr__(self, "std", _checked_std(self.std, mean.shape))
        else:
            object.__setattr__(self, "covariance", _checked_covariance(self.covariance, mean.shape))

    @property
    def num_agents(self) -> int:
        """M."""
        return self.mean.shape[0]

    @property
    def dim(self) -> int:
        """n, the length of a context."""
        return self.mean.shape[1]

    def rows(self, index: IntArray) -> "Gaussian":
        """The distributions of these agents alone."""

        def own(spread: FloatArray | None) -> FloatArray | None:
            return spread if spread is None or len(spread) == 1 else spread[index]

        return _unchecked_gaussian(self.mean[index], own(self._std), own(self.covariance))

    @property
    def _std(self) -> FloatArray | None:
        return self.std  # type: ignore[return-value]

    def from_normals(self, normals: FloatArray) -> FloatArray:
        """Contexts (M, S, n) from standard normals (M, S, n)."""
        if self._std is not None:
            return self.mean[:, None] + self._std[:, None] * normals
        return self.mean[:, None] + np.einsum("msj,mij->msi", normals, np.broadcast_to(self._root, self._full()))

    def _full(self) -> tuple[int, int, int]:
        return (self.num_agents, self.dim, self.dim)

    @cached_property
    def _root(self) -> FloatArray:
        """A with A A^T = covariance, (1 or M, n, n); by eigenvalues, since the covariance may be singular."""
        assert self.covariance is not None  # asked for only where there is no std
        values, vectors = np.linalg.eigh(self.covariance)
        rounding = self.dim * np.finfo(np.float64).eps * values[:, -1:]  # below it, an eigenvalue is 0
        return vectors * np.sqrt(np.where(values > rounding, values, 0))[:, None, :]

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """One context per agent, (M, n)."""
        return self.from_normals(rng.standard_normal((self.num_agents, 1, self.dim)))[:, 0]

    def encode(self) -> dict[str, FloatArray]:
        """`mean` (M, n), and `std` (M, n) or `covariance` (M, n, n)."""
        if self._std is not None:
            return {"mean": self.mean, "std": np.broadcast_to(self._std, self.mean.shape)}
        assert self.covariance is not None  # one of the two is always there
        return {"mean": self.mean, "covariance": np.broadcast_to(self.covariance, self._full())}

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """Those of `fedbandit_envs.quadrature`."""
        points, weights = standard_normal_rule(self.dim)
        spread = np.broadcast_to(points, (self.num_agents, *points.shape))
        return self.from_normals(spread), np.broadcast_to(weights, (self.num_agents, len(weights)))

    def expected_features(self, feature_map: FeatureMap) -> FloatArray:
        """psi_{a,i} = E[phi(a, c)], (M, K, d); exact for a linear map."""
        _check_fit(self, feature_map)
        if isinstance(feature_map, LINEAR_MAPS):
            return feature_map(self.mean)
        return super().expected_features(feature_map)

    def reward_covariance(self, feature_map: FeatureMap, theta: FloatArray) -> FloatArray:
        """Cov_{c ~ mu_i}(theta_a^T phi(a, c), theta_b^T phi(b, c)), (M, K, K); exact for a linear map."""
        if not isinstance(feature_map, LINEAR_MAPS):
            return super().reward_covariance(feature_map, theta)
        _check_fit(self, feature_map)
        matrix = feature_map.reward_matrix(theta)
        if self._std is not None:
            covariance = (matrix * self._std[:, None] ** 2) @ matrix.T
        else:
            assert self.covariance is not None  # one of the two is always there
            covariance = matrix @ self.covariance @ matrix.T
        return np.broadcast_to(covariance, (self.num_agents, *covariance.shape[1:]))


def _unchecked_gaussian(mean: FloatArray, std: FloatArray | None, covariance: FloatArray | None) -> Gaussian:
    """Rows of a checked Gaussian need no second eigenvalue decomposition."""
    part = object.__new__(Gaussian)
    for name, value in (("mean", mean), ("std", std), ("covariance", covariance)):
        object.__setattr__(part, name, value)
    return part


def _checked_std(std: FloatArray | float, shape: tuple[int, ...]) -> FloatArray:
    agents, n = shape
    expected = f"a number, (n,), (1, n), (M, 1) or (M, n) for M, n = {shape}"
    array = real_numbers("std", std, f"of shape {expected}")
    allowed: list[tuple[int, ...]] = [(), (1,), (n,), (agents, 1), (1, n), (agents, n)]
    if array.shape not in allowed:
        raise ValueError(f"std: expected {expected}, got shape {array.shape}; use covariance= for full matrices")
    array = real_array("std", array, array.shape)
    if (array < 0).any():
        raise ValueError(f"std: expected numbers of at least 0, got {array.min():g}; it is a standard deviation")
    return np.broadcast_to(array, (len(array) if array.ndim == 2 else 1, n))


def _checked_covariance(covariance: FloatArray | None, shape: tuple[int, ...]) -> FloatArray:
    agents, n = shape
    array = real_numbers("covariance", covariance, "of shape (n, n) or (M, n, n)")  # type: ignore[arg-type]
    shared = array.shape == (1, n, n)  # as it is kept
    expected = (n, n) if array.ndim == 2 else (1 if shared else agents, n, n)
    array = real_array("covariance", array, expected).reshape(-1, n, n)
    scale = np.abs(array).max(axis=(1, 2))  # of each matrix: a large one must not excuse another's faults
    asymmetry = np.abs(array - array.transpose(0, 2, 1)).max(axis=(1, 2))
    if (asymmetry > 1e-9 * scale).any():
        raise ValueError(
            f"covariance: expected symmetric matrices, got entries that differ from their mirror by "
            f"{asymmetry.max():g}; use (C + C.T) / 2"
        )
    smallest = np.linalg.eigvalsh(array)[:, 0]
    if (smallest < -1e-9 * scale).any():
        raise ValueError(
            f"covariance: expected positive semi-definite matrices, got an eigenvalue of {smallest.min():g}; "
            "a covariance has none below 0"
        )
    return array


def _check_fit(distribution: ContextDistribution, feature_map: FeatureMap) -> None:
    if distribution.dim != feature_map.context_dim:
        raise ValueError(
            f"feature_map: expected contexts of length {feature_map.context_dim}, got a distribution over contexts of "
            f"length {distribution.dim}; Table takes K * d numbers, Identity takes d"
        )
