"""Confidence intervals with proved coverage: from an agent's own rewards, and from mu_i and the reports of all agents.

The proofs are on the page "A guarantee under hidden contexts" of the documentation. Everything here is for
sub-Gaussian numbers. A proxy is a variance proxy: E exp(u x) <= exp(u^2 proxy / 2) for all u.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import FeatureMap, is_linear
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.contexts.roots import inverse_root

# An arm whose information matrix has a smaller eigenvalue than this, as a share of the largest, is not estimated.
_RANK = 1e-6


def own_radius(pulls: IntArray, proxy: FloatArray, failure: float) -> FloatArray:
    """The half-width of an interval around the mean of n rewards that holds for all n at once.

    It is sqrt(proxy (n + 1) (2 ln(1 / failure) + ln(n + 1))) / n, from the mixture of supermartingales over a normal
    prior; infinite without a pull.

    Args:
        pulls: n, in any shape.
        proxy: the variance proxy of one reward about its mean, in a shape that fits.
        failure: the probability that the interval fails for some n.

    >>> own_radius(np.array([0, 1, 100]), np.array(1.0), failure=0.1).round(3)
    array([  inf, 3.255, 0.305])
    """
    n = np.maximum(pulls, 1)
    with np.errstate(invalid="ignore"):
        radius = np.sqrt(proxy * (n + 1) * (2 * math.log(1 / failure) + np.log1p(n))) / n
    return np.where(pulls > 0, radius, np.inf)


def direction_factor(dim: int, failure: float) -> float:
    """alpha, for which |x^T e| <= alpha ||x||_V for all vectors x at once.

    Here e (d,) is a sub-Gaussian vector with the covariance proxy V. By Hsu, Kakade and Zhang (2012),
    alpha^2 = d + 2 sqrt(d u) + 2 u with u = ln(1 / failure).

    >>> round(direction_factor(3, 0.01), 4)
    4.4322
    """
    u = math.log(1 / failure)
    return math.sqrt(dim + 2 * math.sqrt(dim * u) + 2 * u)


def spread_of_features(distribution: ContextDistribution, feature_map: FeatureMap) -> FloatArray:
    """s^2 (n, K): <u, phi(a, c) - psi_a> has the proxy s^2 ||u||^2, for every vector u; infinite where none is known.

    For a Gaussian and a linear map, s^2 is the largest eigenvalue of the covariance of phi(a, c). For a finite support
    it is the square of half its diameter (Hoeffding's lemma).

    >>> from fedbandit_envs.contexts.features import Identity
    >>> spread_of_features(Gaussian([[1.0, 0.0]], std=[0.1, 0.2]), Identity(2, 2)).round(6)
    array([[0.04, 0.04]])
    """
    shape = (distribution.num_agents, feature_map.num_arms)
    if distribution.finite_support:
        points, weights = distribution.nodes()
        phi, possible = feature_map(points), weights > 0  # (n, S, K, d)
        squares = np.zeros(shape)
        for node in range(points.shape[1]):
            distance = ((phi - phi[:, node : node + 1]) ** 2).sum(axis=-1)
            both = possible & possible[:, node : node + 1]
            squares = np.maximum(squares, np.where(both[..., None], distance, 0).max(axis=1))
        return squares / 4
    if isinstance(distribution, Gaussian) and is_linear(feature_map):
        return np.linalg.eigvalsh(_feature_covariance(distribution, feature_map))[..., -1].clip(min=0)
    return np.full(shape, np.inf)


def _feature_covariance(distribution: ContextDistribution, feature_map: FeatureMap) -> FloatArray:
    """Cov(phi(a, c)), (n, K, d, d), from the variances of <u, phi(a, c)> for unit vectors u and their sums."""
    d = feature_map.dim
    unit = np.eye(d)

    def variances(u: FloatArray) -> FloatArray:
        return distribution.reward_variances(feature_map, np.tile(u, (feature_map.num_arms, 1)))

    single = [variances(unit[j]) for j in range(d)]
    covariance = np.empty((*single[0].shape, d, d))
    for j in range(d):
        for k in range(j + 1):
            both = (variances(unit[j] + unit[k]) - single[j] - single[k]) / 2
            covariance[..., j, k] = covariance[..., k, j] = both
    return covariance


@dataclass(frozen=True, eq=False)
class Pooled:
    """Least squares over the agents' mean rewards, arm by arm, and what is known of its errors.

    `Pooled.of` makes it. Its error theta - theta_a has the covariance proxy V.
    """

    known: BoolArray  #: (K,) the arms that are estimated
    theta: FloatArray  #: (K, d) the estimates
    V: FloatArray  #: (K, d, d) their covariance proxies
    norm: FloatArray  #: (K,) upper bounds on the norms of theta_a

    @classmethod
    def of(cls, psi: FloatArray, means: FloatArray, noise: float, spread: FloatArray, limits: "Limits") -> "Pooled":
        """The estimates from the reports of n agents.

        Args:
            psi: (n, K, d) the expected features.
            means: (n, K) the mean rewards.
            noise: the proxy of the noise in a mean reward.
            spread: (n, K) the proxy of the hidden context in a mean reward, as a share of ||theta_a||^2.
            limits: what is known of theta_a and of the contexts beforehand.

        >>> psi, means = np.ones((100, 1, 1)), np.full((100, 1), 2.0)
        >>> found = Pooled.of(psi, means, 1.0, np.full((100, 1), 0.01), Limits(alpha=3.0))
        >>> found.theta, found.norm.round(4)  # (2 + 3 * 0.1) / (1 - 3 * 0.01)
        (array([[2.]]), array([2.3711]))
        """
        information = np.einsum("nad,nae->ade", psi, psi)
        values = np.linalg.eigvalsh(information)
        known = values[:, 0] > _RANK * values[:, -1]
        root = inverse_root(np.where(known[:, None, None], information, np.eye(psi.shape[2])))
        inverse = np.einsum("axd,axe->ade", root, root)
        theta = np.einsum("ade,ae->ad", inverse, np.einsum("nad,na->ad", psi, means))

        def sandwich(weights: FloatArray) -> FloatArray:
            middle = np.einsum("na,nad,nae->ade", weights, psi, psi)
            return np.einsum("ade,aef,afg->adg", inverse, middle, inverse)

        norm = np.full(len(theta), np.inf)
        if limits.proxy is None:
            offset, growth = (limits.alpha * _longest_axis(part) for part in (noise * inverse, sandwich(spread)))
            # ||theta_a|| <= ||theta|| + offset + growth ||theta_a||
            bounded = known & (growth < 1)
            norm[bounded] = ((np.linalg.norm(theta, axis=1) + offset) / np.where(bounded, 1 - growth, 1))[bounded]
            norm = np.minimum(norm, limits.norm)
            known = known & np.isfinite(norm)
            bias = spread * np.where(known, norm, 0) ** 2
        else:
            bias = np.full(means.shape, limits.proxy)
        return cls(known, theta, noise * inverse + sandwich(bias), norm)


@dataclass(frozen=True)
class Limits:
    """What is known about theta and the contexts before any reward."""

    alpha: float  #: the factor of all directions, see `direction_factor`
    proxy: float | None = None  #: the proxy of the hidden context in a mean reward; None: only as a share
    norm: float = math.inf  #: a guaranteed bound on the norms of theta_a


def _longest_axis(matrices: FloatArray) -> FloatArray:
    """The roots of the largest eigenvalues, (K,)."""
    return np.sqrt(np.linalg.eigvalsh(matrices)[:, -1].clip(min=0))
