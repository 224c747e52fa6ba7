"""Feature maps phi(a, c): from a context to one feature vector per arm."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeGuard, runtime_checkable

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.validation import whole_number


@runtime_checkable
class FeatureMap(Protocol):
    """The map phi for all arms at once: it takes contexts (..., n) to features (..., K, d).

    A map of your own needs these four members, and no base class. `FeatureFunction` makes one of a function. It must
    give equal features for equal contexts, because environments and policies call it whenever they need them.

    >>> is_feature_map(Identity(num_arms=3, dim=2))
    True
    """

    @property
    def num_arms(self) -> int:
        """The number of arms, K."""

    @property
    def dim(self) -> int:
        """The length of a feature vector, d."""

    @property
    def context_dim(self) -> int:
        """The length of a context, n."""

    def __call__(self, contexts: FloatArray) -> FloatArray:
        """Features (..., K, d) of contexts (..., n)."""


class LinearMap(FeatureMap, Protocol):
    """A feature map that is linear in the context: with Gaussian contexts everything is then exact and fast.

    A map of your own is taken for linear if its class has the method `reward_matrix`. No number tells whether that is
    true, so a class whose map is not linear must not have it. `Identity` and `Table` are the two of the library.

    >>> Table(num_arms=2, dim=2).reward_matrix(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[1., 2., 0., 0.],
           [0., 0., 3., 4.]])
    """

    def reward_matrix(self, theta: FloatArray) -> FloatArray:
        """The (K, n) matrix that takes a context to the K mean rewards."""


def is_linear(feature_map: FeatureMap) -> TypeGuard[LinearMap]:
    """Whether the map says that it is linear: its class has a method `reward_matrix`.

    >>> is_linear(Table(3, 2)), is_linear(FeatureFunction(np.cos, 3, 2, 1))
    (True, False)
    """
    return hasattr(type(feature_map), "reward_matrix")


def is_feature_map(value: object) -> TypeGuard[FeatureMap]:
    """Whether `value` has the members of a FeatureMap.

    isinstance with a protocol says the same, but takes much longer.
    """
    named = all(hasattr(value, name) for name in ("num_arms", "dim", "context_dim"))
    return named and callable(value) and not isinstance(value, type)


@dataclass(frozen=True)
class Table:
    """The map of contexts that are the table of features itself, row by row: n = K d.

    Use it where each arm has features of its own for each agent, as in the paper's synthetic problem: the context of an
    agent is then the whole table. It is linear, so psi is the table of means.

    >>> Table(num_arms=2, dim=2)(np.array([1.0, 2.0, 3.0, 4.0]))
    array([[1., 2.],
           [3., 4.]])
    """

    num_arms: int  #: the number of arms, K
    dim: int  #: the length of a feature vector, d

    def __post_init__(self) -> None:
        _check_sizes(self)

    @property
    def context_dim(self) -> int:
        """The length of a context, n = K d."""
        return self.num_arms * self.dim

    def __call__(self, contexts: FloatArray) -> FloatArray:
        """Features (..., K, d) of contexts (..., K d)."""
        return contexts.reshape(*contexts.shape[:-1], self.num_arms, self.dim)

    def reward_matrix(self, theta: FloatArray) -> FloatArray:
        """The (K, n) matrix that takes a context to the K mean rewards."""
        matrix = np.zeros((self.num_arms, self.num_arms, self.dim))
        matrix[np.arange(self.num_arms), np.arange(self.num_arms)] = theta
        return matrix.reshape(self.num_arms, self.context_dim)


@dataclass(frozen=True)
class Identity:
    """The map of contexts that are the feature vector of every arm: phi(a, c) = c, n = d.

    Use it where arms differ in theta alone, as films differ in what they offer to one user. It is linear, so psi is the
    mean of the context.

    >>> Identity(num_arms=2, dim=2)(np.array([1.0, 2.0]))
    array([[1., 2.],
           [1., 2.]])
    """

    num_arms: int  #: the number of arms, K
    dim: int  #: the length of a feature vector, d

    def __post_init__(self) -> None:
        _check_sizes(self)

    @property
    def context_dim(self) -> int:
        """The length of a context, n = d."""
        return self.dim

    def __call__(self, contexts: FloatArray) -> FloatArray:
        """Features (..., K, d) of contexts (..., d)."""
        return np.repeat(contexts[..., None, :], self.num_arms, axis=-2)

    def reward_matrix(self, theta: FloatArray) -> FloatArray:
        """The (K, n) matrix that takes a context to the K mean rewards."""
        return theta


@dataclass(frozen=True)
class FeatureFunction:
    """A map of your own, made from a function that takes all contexts at once.

    Use it for features that are not linear in the context. Expected features then come from a rule of quadrature for
    Gaussian contexts, and are exact for `PointMass` and `Discrete`. The map is never taken for a linear one.

    >>> powers = FeatureFunction(lambda c: np.stack([c, c**2], axis=1), num_arms=2, dim=1, context_dim=1)
    >>> powers(np.array([3.0]))
    array([[3.],
           [9.]])
    """

    function: Callable[[FloatArray], FloatArray]  #: takes contexts (N, n), returns features (N, K, d)
    num_arms: int  #: the number of arms, K
    dim: int  #: the length of a feature vector, d
    context_dim: int  #: the length of a context, n

    def __post_init__(self) -> None:
        _check_sizes(self)
        whole_number("context_dim", self.context_dim, at_least=1)
        if not callable(self.function):
            raise ValueError(
                f"function: expected one that takes contexts (N, n) to features (N, K, d), got {self.function!r}"
            )

    def __call__(self, contexts: FloatArray) -> FloatArray:
        """Features (..., K, d) of contexts (..., n)."""
        flat = contexts.reshape(-1, self.context_dim)
        features = np.asarray(self.function(flat))
        expected = (len(flat), self.num_arms, self.dim)
        if features.dtype.kind not in "biuf":
            raise ValueError(
                f"feature_map: expected real features, got {features.dtype}; return floats of shape {expected}"
            )
        if features.shape != expected:
            raise ValueError(
                f"feature_map: expected features of shape {expected} = (contexts, num_arms, dim) for contexts of shape "
                f"{flat.shape}, got {features.shape}; the function takes all contexts at once"
            )
        if not np.isfinite(features).all():
            raise ValueError("feature_map: expected finite features, got NaN or infinity")
        features = np.array(features, dtype=np.float64, order="C")  # the order decides how later sums are rounded
        return features.reshape(*contexts.shape[:-1], self.num_arms, self.dim)


def _check_sizes(feature_map: FeatureMap) -> None:
    whole_number("num_arms", feature_map.num_arms, at_least=1)
    whole_number("dim", feature_map.dim, at_least=1)
