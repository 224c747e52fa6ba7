"""Robust aggregation: how far a server believes each report, when some agents report falsely.

A report about an arm is a pair of a matrix G_i and a vector m_i, with m_i = G_i theta + noise of covariance G_i: for
phased elimination G_i = f e e^T and m_i = f theta_{a,i}, for DisLinUCB they are what agents send. The mean is
theta = (sum_i G_i)^-1 sum_i m_i: least squares, in which one outlier can move everything. Here each report gets a
weight from 0 to 1 by its residual ||m_i - G_i theta|| / sqrt(tr G_i), which is in units of the noise of one pull.

A report that is believed by half also counts for half in V = (sum_i w_i G_i)^-1, so that widths grow with what is lost.
They don't allow for the bias that attackers cause who stay within the noise of a report: it is at most some standard
errors of the mean report, and the confidence factor of the widths has room for it at 10 % attackers, as measured.
"""

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray
from fedbandit_envs.protocol.knowledge import Constants

AGGREGATIONS = ("mean", "huber", "tukey")  #: the ways to aggregate reports
# Tuning constants for 95 % of the mean's efficiency when all reports are honest and noise is normal.
_HUBER, _TUKEY = 1.345, 6.0
_TO_STD = 1.4826  # the standard deviation of normal numbers, as a multiple of their median absolute value
# The largest leverage of a report: alone it has at most half of the say in any direction.
_MOST_LEVERAGE = 0.5
_LEAST_WEIGHT = 0.01  # leverage can't reduce the weight of a report further
# Arms with fewer reports than this multiple of d keep the mean: from so few nobody can say which one is wrong.
_ENOUGH = 2
_FARTHEST = 1e150  # the residual of a report whose own is not finite, because tiny matrices came with huge vectors
_ITERATIONS = 20  # the iterations of each of the three stages; after them the weights change by less than the noise


def report_weights(
    gram: FloatArray, moments: FloatArray, aggregation: str, least_scale: float, bias: float = 0.0
) -> FloatArray:
    """How far each report is believed, (n, K): from 0 to 1, and 0 where nothing is reported.

    The start is a fit of least absolute deviations with bounded leverage, since after plain least squares an outlier
    hides behind its own leverage. The scale of the residuals is their median absolute value. From there reweighted
    least squares minimise Huber's loss ("huber"), and then Tukey's, which leaves far outliers out altogether ("tukey").

    Args:
        gram: G of each report, (n, K, d, d); 0: no report.
        moments: m of each report, (n, K, d).
        aggregation: "mean", "huber" or "tukey".
        least_scale: the least standard deviation of an honest residual, so that a close fit by chance rejects nobody.
        bias: the variance of what never averages out in a report, such as a hidden context that stays, as a multiple of
            the variance of one pull. A residual of trace t then has the variance 1 + t bias instead of 1.

    >>> gram, moments = np.ones((7, 1, 1, 1)), np.array([1.1, 0.9, 1.0, 1.1, 0.9, 1.0, -9.0]).reshape(7, 1, 1)
    >>> report_weights(gram, moments, "tukey", least_scale=0.1)[:, 0].round(1)
    array([1., 1., 1., 1., 1., 1., 0.])
    """
    traces = gram.trace(axis1=2, axis2=3)
    reported = traces > 0
    if aggregation == "mean":
        return reported.astype(np.float64)
    count, dim = np.count_nonzero(reported, axis=0), moments.shape[2]
    bounded = _bounded_leverage(gram, reported)
    spread = np.where(reported, 1 + bias * traces, 1.0)
    units = np.sqrt(np.where(reported, traces, 1.0) * spread)

    def residuals(weights: FloatArray) -> FloatArray:
        return _residuals(gram, moments, weights) / units

    r = residuals(bounded)
    for _ in range(_ITERATIONS):
        least = 0.01 * _medians(r, reported) + 1e-6 * r.max(axis=0)  # reports that fit exactly don't decide alone
        least = np.where(least > 0, least, 1.0)
        r = residuals(bounded * least / (np.maximum(r, least) * spread))
    scale = np.maximum(np.maximum(_TO_STD * _medians(r, reported), least_scale), 1e-9 * r.max(axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    weights = bounded
    for _ in range(_ITERATIONS):
        weights = bounded * _huber(r / scale)
        r = residuals(weights)
    if aggregation == "tukey":
        for _ in range(_ITERATIONS):
            weights = reported * _tukey(r / scale)  # far from the robust start leverage no longer hides an outlier
            r = residuals(weights)
    return np.where(count < _ENOUGH * dim, reported, weights)


def lasting_bias(constants: Constants) -> float:
    """The variance of a hidden context's part in a mean reward, as a multiple of the variance of one pull's noise.

    It is 0 where nothing lasts (resampled contexts), where nothing is guaranteed, and where rewards have no noise.
    """
    if constants.context != "fixed" or not constants.context_proxy or not constants.noise_std:
        return 0.0
    return constants.context_proxy / constants.noise_std**2


def _huber(r: FloatArray) -> FloatArray:
    return _HUBER / np.maximum(r, _HUBER)


def _tukey(r: FloatArray) -> FloatArray:
    return np.square(np.maximum(1 - np.square(r / _TUKEY), 0))


def _residuals(gram: FloatArray, moments: FloatArray, weights: FloatArray) -> FloatArray:
    """||m_i - G_i theta|| (n, K) at the theta of least squares with these weights (n, K)."""
    total = np.einsum("na,nade->ade", weights, gram)
    inverse = np.linalg.pinv(total, rcond=1e-10, hermitian=True)
    with np.errstate(over="ignore", invalid="ignore"):
        theta = np.einsum("ade,na,nae->ad", inverse, weights, moments)
        missing = moments - np.einsum("nade,ae->nad", gram, theta)
        found = np.sqrt(np.einsum("nad,nad->na", missing, missing))
    return np.where(np.isfinite(found), found, _FARTHEST)


def _bounded_leverage(gram: FloatArray, reported: BoolArray) -> FloatArray:
    """Weights (n, K) up to 1 with which hardly a report has a leverage h = w tr(G_i (sum_j w G_j)^+) above the largest.

    A report that has nearly all the say gets half of it by the weight (1 - h) / h, since all others have 1 - h.
    No weight falls below the least, since the one report in a direction has all the say there and may well be true.
    """
    weights = reported.astype(np.float64)
    for _ in range(5):
        total = np.einsum("na,nade->ade", weights, gram)
        leverage = weights * np.einsum("nade,ade->na", gram, np.linalg.pinv(total, rcond=1e-10, hermitian=True))
        odds = np.clip(1 - leverage, 0, None) / np.maximum(leverage, _MOST_LEVERAGE)
        most = _MOST_LEVERAGE / (1 - _MOST_LEVERAGE) * odds
        weights = np.where(leverage > _MOST_LEVERAGE, np.maximum(weights * most, _LEAST_WEIGHT), weights)
    return weights


def _medians(r: FloatArray, reported: BoolArray) -> FloatArray:
    """(K,) the median over the agents that reported an arm; 0 for an arm without reports."""
    count = np.count_nonzero(reported, axis=0)
    ordered = np.sort(np.where(reported, r, np.inf), axis=0)
    middle = [
        np.take_along_axis(ordered, place[None], axis=0)[0] for place in (np.maximum(count - 1, 0) // 2, count // 2)
    ]
    return np.where(count > 0, (middle[0] + middle[1]) / 2, 0.0)
