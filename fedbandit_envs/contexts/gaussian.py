"""Normal context distributions, exact for linear feature maps and by quadrature for all others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray, short_repr
from fedbandit_envs.contexts.distributions import ContextDistribution, check_fit, joined
from fedbandit_envs.contexts.features import FeatureMap, Identity, Table, is_linear
from fedbandit_envs.contexts.quadrature import standard_normal_rule
from fedbandit_envs.contexts.rewards import GaussianRewards, RewardLaw
from fedbandit_envs.contexts.roots import matrix_root
from fedbandit_envs.validation import real_array, real_numbers


@dataclass(frozen=True, eq=False)
class Gaussian(ContextDistribution):
    """A normal distribution around `mean`, with `std` (independent coordinates) or with a full `covariance`.

    Under a linear feature map its expected features and rewards are exact; under any other map they come from the rules
    of `fedbandit_envs.contexts.quadrature`.

    >>> mu = Gaussian([[0.0, 1.0], [2.0, 3.0]], std=0.05)
    >>> sorted(mu.encode())
    ['mean', 'std']
    >>> Gaussian([[0.0, 1.0]], covariance=[[1.0, 0.5], [0.5, 1.0]]).encode()["covariance"].shape
    (1, 2, 2)
    """

    mean: FloatArray  #: (M, n) the centres
    std: FloatArray | float | None = None  #: a number, (n,), (M, 1) or (M, n); kept as (1 or M, n)
    covariance: FloatArray | None = None  #: (n, n) or (M, n, n); kept as (1 or M, n, n)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        mean = real_array("mean", self.mean, ("agents", "context"))
        object.__setattr__(self, "mean", mean)
        if (self.std is None) == (self.covariance is None):
            came = "neither" if self.std is None else "both"
            raise ValueError(f"Gaussian: expected either std or covariance, got {came}")
        if self.std is not None:
            object.__setattr__(self, "std", _checked_std(self.std, mean.shape))
        else:
            object.__setattr__(self, "covariance", _checked_covariance(self.covariance, mean.shape))

    @property
    def num_agents(self) -> int:
        """The number of agents, M."""
        return self.mean.shape[0]

    @property
    def dim(self) -> int:
        """The length of a context, n."""
        return self.mean.shape[1]

    def rows(self, index: IntArray | slice) -> "Gaussian":
        """The distributions of the agents with these positions, in this order."""

        def own(spread: FloatArray | None) -> FloatArray | None:
            return spread if spread is None or len(spread) == 1 else spread[index]

        return _unchecked_gaussian(self.mean[index], own(self._std), own(self.covariance))

    @classmethod
    def stacked(cls, parts: Sequence[ContextDistribution]) -> ContextDistribution:
        """One distribution of longer arrays; a subclass may keep more than arrays, so its parts are kept."""
        return Gaussian(**joined(parts)) if cls is Gaussian else super().stacked(parts)

    @property
    def _std(self) -> FloatArray | None:
        return self.std  # type: ignore[return-value]

    def from_normals(self, normals: FloatArray) -> FloatArray:
        """Make S contexts per agent, (M, S, n), of standard normals (M, S, n)."""
        if self._std is not None:
            return self.mean[:, None] + self._std[:, None] * normals
        return self.mean[:, None] + np.einsum("msj,mij->msi", normals, np.broadcast_to(self._root, self._full()))

    def _full(self) -> tuple[int, int, int]:
        return (self.num_agents, self.dim, self.dim)

    @cached_property
    def _root(self) -> FloatArray:
        """A matrix A with A A^T = covariance, (1 or M, n, n)."""
        assert self.covariance is not None  # asked for only where there is no std
        return matrix_root(self.covariance)

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """Draw one context per agent, (M, n)."""
        return self.from_normals(rng.standard_normal((self.num_agents, 1, self.dim)))[:, 0]

    def bounds(self) -> Mapping[str, tuple[float, float]]:
        """The lower end of `std`, which is 0."""
        return {"std": (0.0, np.inf)}

    def reward_law(self, feature_map: FeatureMap, theta: FloatArray, noise_std: float) -> RewardLaw:
        """Normal rewards under a linear map; drawn context by context under any other."""
        if not is_linear(feature_map):
            return super().reward_law(feature_map, theta, noise_std)
        means = np.einsum("ad,mad->ma", theta, self.expected_features(feature_map))
        return GaussianRewards(means, np.sqrt(self.reward_variances(feature_map, theta) + noise_std**2))

    def encode(self) -> dict[str, FloatArray]:
        """Two arrays: `mean` (M, n), and `std` (M, n) or `covariance` (M, n, n)."""
        if self._std is not None:
            return {"mean": self.mean, "std": np.broadcast_to(self._std, self.mean.shape)}
        assert self.covariance is not None  # one of the two is always there
        return {"mean": self.mean, "covariance": np.broadcast_to(self.covariance, self._full())}

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """The points and weights of a fixed rule of `fedbandit_envs.contexts.quadrature`."""
        points, weights = standard_normal_rule(self.dim)
        spread = np.broadcast_to(points, (self.num_agents, *points.shape))
        return self.from_normals(spread), np.broadcast_to(weights, (self.num_agents, len(weights)))

    def expected_features(self, feature_map: FeatureMap) -> FloatArray:
        """The expected features psi_{a,i} = E[phi(a, c)] under mu_i, (M, K, d); exact for a linear map."""
        check_fit(self, feature_map)
        if is_linear(feature_map):
            return feature_map(self.mean)
        return super().expected_features(feature_map)

    def reward_covariance(self, feature_map: FeatureMap, theta: FloatArray) -> FloatArray:
        """The covariances of theta_a^T phi(a, c) and theta_b^T phi(b, c) under mu_i; exact for a linear map."""
        if not is_linear(feature_map):
            return super().reward_covariance(feature_map, theta)
        check_fit(self, feature_map)
        matrix = feature_map.reward_matrix(theta)
        if self._std is not None:
            covariance = np.einsum("mai,bi->mab", matrix * self._std[:, None] ** 2, matrix)
        else:
            assert self.covariance is not None  # one of the two is always there
            covariance = np.einsum("maj,bj->mab", np.einsum("ai,mij->maj", matrix, self.covariance), matrix)
        return np.broadcast_to(covariance, (self.num_agents, *covariance.shape[1:]))

    def reward_proxy(self, feature_map: FeatureMap, theta: FloatArray) -> float:
        """The largest variance of a reward where the map is linear, because rewards are then Gaussian."""
        if not is_linear(feature_map):
            return super().reward_proxy(feature_map, theta)
        return float(self.reward_variances(feature_map, theta).max())

    def reward_variances(self, feature_map: FeatureMap, theta: FloatArray) -> FloatArray:
        """Var_{c ~ mu_i}(theta_a^T phi(a, c)), (M, K); exact for a linear map."""
        if not is_linear(feature_map):
            return super().reward_variances(feature_map, theta)
        check_fit(self, feature_map)
        if isinstance(feature_map, Table) and self._std is not None:
            return self.reward_factors(feature_map, theta)[1]
        matrix = feature_map.reward_matrix(theta)
        if self._std is not None:
            variances = np.einsum("ai,mi->ma", matrix**2, self._std**2)
        else:
            assert self.covariance is not None  # one of the two is always there
            variances = np.einsum("maj,aj->ma", np.einsum("ai,mij->maj", matrix, self.covariance), matrix)
        return np.broadcast_to(variances, (self.num_agents, len(theta)))

    def reward_factors(self, feature_map: FeatureMap, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """F (M, K, q) and D (M, K) with `reward_covariance` = F F^T + diag(D): one of them is 0 for the usual maps."""
        check_fit(self, feature_map)
        nothing = np.zeros((self.num_agents, len(theta)))
        root = self.common_root(feature_map)
        if root is not None:
            return np.einsum("ad,mde->mae", theta, root), nothing
        if isinstance(feature_map, Table) and self._std is not None:  # the rows of the table are independent
            scaled = theta * self._std.reshape(-1, *theta.shape)  # one row, if all agents have the same std
            own = np.einsum("mad,mad->ma", scaled, scaled)
            return np.zeros((*nothing.shape, 0)), np.broadcast_to(own, nothing.shape)
        return super().reward_factors(feature_map, theta)

    def common_root(self, feature_map: FeatureMap) -> FloatArray | None:
        """A (M, d, d) with c = mean + A z for standard normal z, where the context is the features of every arm."""
        if not isinstance(feature_map, Identity):
            return None
        if self._std is not None:
            return np.broadcast_to(self._std, self.mean.shape)[:, None] * np.eye(self.dim)
        return np.broadcast_to(self._root, self._full())


def _unchecked_gaussian(mean: FloatArray, std: FloatArray | None, covariance: FloatArray | None) -> Gaussian:
    """A Gaussian of rows of a checked one, which needs no second check."""
    part = object.__new__(Gaussian)
    for name, value in (("mean", mean), ("std", std), ("covariance", covariance)):
        object.__setattr__(part, name, value)
    return part


def _checked_std(std: FloatArray | float, shape: tuple[int, ...]) -> FloatArray:
    """The standard deviations as (1 or M, n), for a mean of `shape` (M, n)."""
    agents, n = shape
    expected = f"a number, (n,), (1, n), (M, 1) or (M, n) for M, n = {shape}"
    array = real_numbers("std", std, f"of shape {expected}")
    allowed: list[tuple[int, ...]] = [(), (1,), (n,), (agents, 1), (1, n), (agents, n)]
    if array.shape not in allowed:
        raise ValueError(f"std: expected {expected}, got shape {array.shape}; use covariance= for full matrices")
    array = real_array("std", array, array.shape)
    if (array < 0).any():
        raise ValueError(f"std: expected numbers of at least 0, got {array.min():g}")
    return np.broadcast_to(array, (len(array) if array.ndim == 2 else 1, n))


def _checked_covariance(covariance: FloatArray | None, shape: tuple[int, ...]) -> FloatArray:
    """The covariances as (1 or M, n, n), for a mean of `shape` (M, n)."""
    agents, n = shape
    array = real_numbers("covariance", covariance, "of shape (n, n) or (M, n, n)")  # type: ignore[arg-type]
    shared = array.shape == (1, n, n)  # the form in which a shared covariance is kept
    expected = (n, n) if array.ndim == 2 else (1 if shared else agents, n, n)
    array = real_array("covariance", array, expected).reshape(-1, n, n)
    scale = np.abs(array).max(axis=(1, 2))  # one scale per matrix: a large one must not excuse another's faults
    asymmetry = np.abs(array - array.transpose(0, 2, 1)).max(axis=(1, 2))
    if (asymmetry > 1e-9 * scale).any():
        raise ValueError(
            f"covariance: expected symmetric matrices, got entries that differ from their mirror by "
            f"{asymmetry.max():g}; use (C + C.T) / 2"
        )
    smallest = np.linalg.eigvalsh(array)[:, 0]
    if (smallest < -1e-9 * scale).any():
        raise ValueError(
            f"covariance: expected positive semi-definite matrices, got an eigenvalue of {smallest.min():g}"
        )
    return array
