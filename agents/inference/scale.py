"""The scale of theta, learnt from the first rewards: what is believed of theta must not depend on the units of rewards.

All beliefs start from theta_a ~ N(m, s^2 I). A prior that is ten times too wide costs next to nothing, one that is too
narrow costs much: s is therefore at least as large as the most unusual arm suggests.
"""

import numpy as np

from fedbandit_agents.inference.sums import differences, groups_of, weighted_sums
from fedbandit_agents.linear.ridge import from_scaled_sums
from fedbandit_agents.phased.estimation import NOTHING
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.contexts.roots import inverse_root

# The rounds in which centre, width and noise are fitted by turns.
_SWEEPS = 8
# A first value that is larger than this many medians of its arm counts as if it were that large: it may be false.
_MOST_MEDIANS = 6.0
#: The least noise scale, in units of theta. With less noise, 64 bits can't separate an own share from the whole.
LEAST_SIGMA = 1e-4
# Values up to this one stand for 0.
_ZERO = 1e10 * NOTHING
# The least share of an arm's first values that must not be 0; with fewer, the median is taken over all arms.
_ENOUGH = 0.25
# The least noise of the first values, in units of their scale.
_LEAST_NOISE = 1e-4
# The least width, in noise scales of one pull: rewards of 0 or 1 may all be 0 at first.
_LEAST_WIDTH = 0.1


def own_variance(pulls: IntArray, sums: FloatArray, squares: FloatArray, sigma: FloatArray) -> FloatArray:
    """s^2 for agents who know their own rewards alone, (n, 1): that of the arm with the largest mean reward.

    Args:
        pulls: how often each arm was pulled, (n, K).
        sums: the sums of the rewards, (n, K).
        squares: E ||phi(a, c)||^2, (n, K).
        sigma: the noise scale, (n, 1).

    >>> one = np.ones((1, 1))
    >>> own_variance(np.array([[1, 2]]), np.array([[3.0, -8.0]]), np.array([[1.0, 4.0]]), one)  # 3^2 / 1 and 4^2 / 4
    array([[9.]])
    """
    means = sums / pulls.clip(min=1)
    variance = (np.maximum(means**2, (_LEAST_WIDTH * sigma) ** 2) / squares).max(axis=1, keepdims=True)
    return np.where(variance > 0, variance, 1.0)  # any scale will do where all rewards are 0, without noise


def scale_of(centre: FloatArray, width: float) -> float:
    """The root mean square of the entries of theta_a ~ N(m, s^2 I).

    >>> scale_of(np.array([0.0, 0.0]), width=3.0), scale_of(np.array([1.0, 7.0]), width=0.0)
    (3.0, 5.0)
    """
    return float(np.sqrt(width**2 + np.einsum("d,d->", centre, centre) / len(centre)))


def common_prior(e: FloatArray, values: FloatArray, weights: FloatArray, sigma: float) -> tuple[FloatArray, float]:
    """The centre m (d,) and the width s of theta_a ~ N(m, s^2 I), by empirical Bayes.

    By turns each theta_a is estimated given m and s, then m and s given these, and the noise given the residuals, which
    hold the bias of hidden contexts. s covers the most unusual arm, and what is not known about m.

    Args:
        e: the directions of the first estimates of M agents, (K, d, M).
        values: the first estimates along these directions, (K, M).
        weights: their precision in units of 1 / sigma^2, ||psi||^2 times the pulls, (K, M); 0 where there is none.
        sigma: the noise scale that is assumed, the least that residuals are taken for.
    """
    present = weights > 0
    values = _tamed(values, present)
    weights = np.minimum(weights, _MOST_MEDIANS * np.median(weights[present]))
    total, d = weights.sum(axis=1), e.shape[1]
    weight = float(total.sum() / np.count_nonzero(present))
    squares = np.einsum("an,an,an->a", weights, values, values) / np.where(total > 0, total, 1)
    largest = max(float(squares.max()), (_LEAST_WIDTH * sigma) ** 2 / weight)
    if largest <= NOTHING:  # all rewards are 0, without noise: any width will do
        return np.zeros(d), 1.0
    A, b = weighted_sums(e, weights, values)
    least = max(sigma**2 / weight, _LEAST_NOISE**2 * largest)  # a floor for the noise of a value of average weight
    width, noise, identity = largest, largest, np.eye(d)
    for _ in range(_SWEEPS):
        scaled = A / (noise * weight)
        root = inverse_root(scaled + identity / width)
        V = np.einsum("axd,axe->ade", root, root)  # the covariance of theta_a, given m and the rewards
        shares = np.einsum("ade,aef->adf", scaled, V) / width  # (A^-1 + s^2 I)^-1: what arm a tells about m
        centre_root = inverse_root(shares.sum(axis=0) + identity / largest)
        spread = np.einsum("xd,xe->de", centre_root, centre_root)
        weighted = np.einsum("ade,ae->ad", V, b / (noise * weight)) / width
        centre = np.einsum("de,e->d", spread, weighted.sum(axis=0))
        theta = np.einsum("ade,ae->ad", V, b / (noise * weight) + centre / width)
        left = 0.0
        for arms in groups_of(len(e), e.shape[2]):
            left += float((weights[arms] * differences(e[arms], values[arms], theta[arms]) ** 2).sum())
        noise = max(least, left / total.sum())
        unusual = np.einsum("ad,ad->a", theta - centre, theta - centre) + np.einsum("add->a", V)
        width = float(unusual.max() / d)
    return centre, float(np.sqrt(width + np.einsum("dd->", spread) / d))


def notable(values: FloatArray, present: BoolArray) -> BoolArray:
    """Which of the values (K, M) that are present are not 0: a mean reward of 0 is sent as a tiny value.

    The others say nothing about how large values usually are, where rewards are 0 or 1 for example.
    """
    return np.asarray(present & (np.abs(values) > _ZERO))


def variance_given_sums(gram: FloatArray, moments: FloatArray, noise: FloatArray) -> FloatArray:
    """s^2 (n, 1) of theta_a ~ N(0, s^2 I), by empirical Bayes: it covers the most unusual of the theta_a that are seen.

    By turns each theta_a is estimated given s, then s given these. The first s is at least as large as the sums allow
    for features without a preferred direction.

    Args:
        gram: (n, B, d, d) the weighted sums of x x^T, in units of the noise; 0 where nothing is seen.
        moments: (n, B, d) the weighted sums of x y.
        noise: (n, 1) the variance of a reward of weight 1, above 0 unless all rewards are 0.

    >>> variance_given_sums(np.full((1, 1, 1, 1), 1e6), np.full((1, 1, 1), 3e6), np.ones((1, 1))).round(3)
    array([[9.]])
    """
    d = gram.shape[-1]
    traces = np.einsum("nbdd->nb", gram)
    seen, total = traces > 0, np.where(traces > 0, traces, 1.0)
    squares = np.einsum("nbd,nbd->nb", moments, moments)
    variance = _most(d * (squares / total + noise) / total, seen, np.ones(noise.shape))
    for _ in range(_SWEEPS):
        inverse = from_scaled_sums(gram, noise / variance)
        theta = np.einsum("nbde,nbe->nbd", inverse, moments)
        unusual = np.einsum("nbd,nbd->nb", theta, theta) + noise * np.einsum("nbdd->nb", inverse)
        variance = _most(unusual / d, seen, variance)
    return variance


def _most(values: FloatArray, seen: BoolArray, otherwise: FloatArray) -> FloatArray:
    """The largest value that is seen, (n, 1); `otherwise` where there is none above 0."""
    most = np.where(seen, values, 0).max(axis=1, keepdims=True)
    return np.where(most > 0, most, otherwise)


def _tamed(values: FloatArray, present: BoolArray) -> FloatArray:
    """The values (K, M), none of them larger than some medians of its arm, or of all arms where most of its are 0."""
    counted = notable(values, present)
    most = np.full((len(values), 1), np.inf)
    if counted.any():
        most[:] = _MOST_MEDIANS * np.median(values[counted])
    few = np.count_nonzero(counted, axis=1) < _ENOUGH * np.count_nonzero(present, axis=1)
    for arm in np.flatnonzero(counted.any(axis=1) & ~few):
        most[arm] = _MOST_MEDIANS * np.median(values[arm, counted[arm]])
    return np.minimum(values, np.where(most > 0, most, np.inf))
