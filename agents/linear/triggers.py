"""When agents of linear bandits communicate: they have learnt enough since the last time.

All tests are on logarithms of determinants. An agent adds up what `ridge.learn` returns, and no determinant is
computed at a step. A value counts as larger than its threshold only if it is so by more than rounding, so that every
CPU communicates at the same steps.
"""

import math

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray
from fedbandit_envs.ties import TIE


def exceeds(value: FloatArray, threshold: float) -> BoolArray:
    """Whether values are larger than a threshold of at least 0, by more than rounding.

    >>> exceeds(np.array([0.1 + 0.2, 0.4]), 0.3)  # the first is 0.3, but for rounding
    array([False,  True])
    """
    return value > threshold * (1 + TIE)


def dis_lin_ucb_threshold(horizon: int, num_agents: int, dim: int) -> float:
    """T ln(MT) / (d M), the threshold of DisLinUCB, after Wang, Hu, Chen and Wang (2020); recalled from the paper.

    Args:
        horizon: T, the steps of each agent.
        num_agents: M.
        dim: the length of a regressor: d, or K d with a theta for each arm.

    >>> round(dis_lin_ucb_threshold(horizon=1000, num_agents=10, dim=5), 3)  # 20 ln 10,000
    184.207
    """
    return horizon * math.log(num_agents * horizon) / (dim * num_agents)


def wants_to_synchronise(growth: FloatArray, since: int, threshold: float) -> BoolArray:
    """The test of DisLinUCB: (steps since the last synchronisation) * ln(det V / det V_last) > threshold, (n,).

    Args:
        growth: (n,) ln det V - ln det V_last, summed over blocks.
        since: how many steps have passed since the last synchronisation of all agents.
        threshold: D; 0 synchronises at each step.

    >>> wants_to_synchronise(np.array([0.5, 1.0]), since=3, threshold=2.0)
    array([False,  True])
    """
    return exceeds(since * growth, threshold)


def has_learnt(growth: FloatArray, factor: float) -> BoolArray:
    """The test of FedLinUCB and of Async-LinUCB: a determinant has grown by more than a factor, (n,).

    FedLinUCB (He et al. 2022) uploads if det(Sigma + L) > (1 + alpha) det Sigma, so its factor is 1 + alpha.
    Async-LinUCB (Li and Wang 2022) uploads if det V > gamma_U det(V - dV). Both agree with the code of their authors.

    Args:
        growth: (n,) the logarithm of the ratio of the determinants, summed over blocks.
        factor: at least 1, which uploads whatever is new; infinity never uploads.

    >>> has_learnt(np.log([2.0, 3.0]), factor=2.0)
    array([False,  True])
    """
    return exceeds(growth, math.log(factor))


def out_of_date(total: FloatArray, missing: FloatArray, regularisation: float, factor: float) -> BoolArray:
    """The server's test of Async-LinUCB (Li and Wang 2022): to whom it sends what they miss, (M,).

    Agent j is sent its buffer if det(V_g + lambda I) > gamma_D det(V_g - dV_j + lambda I).

    Args:
        total: (B, d, d) V_g, the sum of all uploads.
        missing: (M, B, d, d) dV_j, what was uploaded by others and not yet sent to agent j.
        regularisation: lambda.
        factor: gamma_D, at least 1.

    >>> out_of_date(np.array([[[4.0]]]), np.array([[[[2.0]]], [[[3.0]]]]), regularisation=1.0, factor=2.0)
    array([False,  True])
    """
    ridge = regularisation * np.eye(total.shape[-1])
    after = np.linalg.slogdet(total + ridge)[1].sum()
    before = np.linalg.slogdet(total - missing + ridge)[1].sum(axis=1)
    return has_learnt(after - before, factor)


def fed_ucb_threshold(horizon: int, dim: int, rmin: float, rmax: float, feature_bound: float) -> float:
    """2 T d / (1 + ln(rmax / rmin + T L^2 / (d rmin))), the threshold of FedUCB.

    It is after Dubey and Pentland (2020), recalled from the paper.

    Args:
        horizon: T, the steps of each agent.
        dim: the length of a regressor.
        rmin: the smallest eigenvalue of one agent's noise, with its shift.
        rmax: the largest one.
        feature_bound: L, an upper bound on the norms of regressors.

    >>> round(fed_ucb_threshold(horizon=100, dim=1, rmin=1.0, rmax=3.0, feature_bound=1.0), 3)  # 200 / (1 + ln 103)
    35.494
    """
    growth = math.log(rmax / rmin + horizon * feature_bound**2 / (dim * rmin))
    return 2 * horizon * dim / (1 + growth)


def fed_ucb_growth(V: FloatArray, synchronised: FloatArray, num_agents: int, rmin: float, rmax: float) -> FloatArray:
    """What FedUCB compares in place of the growth of DisLinUCB, (n, ...), after Dubey and Pentland (2020); recalled.

    It is ln det(V + M (rmax - rmin) I) - ln det S, where S is what all agents know since the last synchronisation. It
    reads raw data, so the times of synchronisation leak: FedUCB is not private, as Zhou and Chowdhury (2024) found.

    Args:
        V: (n, ..., d, d) S and the agent's own data since then, the newest observation included.
        synchronised: (..., d, d) S, with its noise and shift.
        num_agents: M.
        rmin: the smallest eigenvalue of one agent's noise, with its shift.
        rmax: the largest one.

    >>> fed_ucb_growth(np.full((1, 1, 1), 6.0), np.full((1, 1, 1), 5.0), 2, rmin=1.0, rmax=3.0).round(5)  # ln(10 / 5)
    array([0.69315])
    """
    most = num_agents * (rmax - rmin) * np.eye(V.shape[-1])
    return np.asarray(np.linalg.slogdet(V + most)[1] - np.linalg.slogdet(synchronised)[1])
