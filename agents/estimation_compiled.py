"""The arithmetic of phased elimination, compiled by numba: the same functions as in `estimation`, of the same results.

Predictions, widths and survivors are the same bit for bit; sums over agents differ by rounding. Where a matrix is not
clearly regular, numpy's functions decide.
"""

from typing import Any

import numpy as np
from numba import boolean, float64, int64, njit, types

from fedbandit_agents import estimation
from fedbandit_agents.design import CLEARLY_REGULAR
from fedbandit_agents.estimation import CLEARLY_FULL, NOTHING
from fedbandit_envs.validation import BoolArray, FloatArray, IntArray


def _given(kind: Any, axes: int) -> Any:
    """The type of an array that is only read."""
    return types.Array(kind, axes, "C", readonly=True)


@njit(boolean(float64[:, ::1], float64[:, ::1]), error_model="numpy")
def _factor(V: FloatArray, L: FloatArray) -> bool:
    """V = L D L^T with ones on the diagonal of L, where D is put; False if V is not positive."""
    for j in range(len(V)):
        for i in range(j, len(V)):
            entry = V[i, j]
            for k in range(j):
                entry -= L[i, k] * L[j, k] * L[k, k]
            if i > j:
                entry /= L[j, j]
            elif not entry > 0:
                return False
            L[i, j] = entry
    return True


@njit(
    types.Tuple((boolean, float64[:, ::1], float64[:, ::1]))(
        _given(float64, 3), _given(float64, 2), _given(float64, 3), float64
    ),
    error_model="numpy",
)
def _predicted(
    psi: FloatArray, theta: FloatArray, V: FloatArray, scale: float
) -> tuple[bool, FloatArray, FloatArray]:
    """As `predictions_and_widths`, and whether every V has full rank: else the widths may be infinite."""
    agents, arms, d = psi.shape
    r, widths, L = np.empty((agents, arms)), np.empty((agents, arms)), np.empty((d, d))
    for m in range(len(V)):
        trace, shares = 0.0, 1.0
        for j in range(d):
            trace += V[m, j, j]
        if not _factor(V[m].copy(), L):
            return False, r, widths
        for j in range(d):
            shares *= L[j, j] / trace
        if not shares > CLEARLY_FULL:
            return False, r, widths
    for i in range(agents):
        for a in range(arms):
            m = a if len(V) > 1 else 0
            total, square = psi[i, a, 0] * theta[m, 0], 0.0
            for j in range(1, d):
                total += psi[i, a, j] * theta[m, j]
            r[i, a] = total
            for j in range(d):
                row = psi[i, a, j] * V[m, j, j]
                for k in range(j + 1, d):
                    row += psi[i, a, k] * (2 * V[m, j, k])
                square += row * psi[i, a, j]
            widths[i, a] = scale * np.sqrt(max(square, 0.0))
    return True, r, widths


def predictions_and_widths(
    psi: FloatArray, theta: FloatArray, V: FloatArray, scale: float
) -> tuple[FloatArray, FloatArray]:
    """r = psi^T theta_a and u = scale ||psi||_{V_a}, each (n, K)."""
    full, r, widths = _predicted(*map(np.ascontiguousarray, (psi, theta, V)), scale)
    return (r, widths) if full else estimation.predictions_and_widths(psi, theta, V, scale)


@njit(float64[:, :, ::1](_given(float64, 2), _given(float64, 3), _given(float64, 2)), error_model="numpy")
def _local(mean_rewards: FloatArray, psi: FloatArray, squares: FloatArray) -> FloatArray:
    agents, arms, d = psi.shape
    theta = np.empty((agents, arms, d))
    for i in range(agents):
        for a in range(arms):
            scale = mean_rewards[i, a] / squares[i, a]
            scale = NOTHING if scale == 0 else scale
            for j in range(d):
                theta[i, a, j] = scale * psi[i, a, j]
    return theta


def local_estimate(mean_rewards: FloatArray, psi: FloatArray, squares: FloatArray) -> FloatArray:
    """theta_{a,i} = (mean reward) psi / ||psi||^2, (n, K, d), tiny where it would be zero."""
    return _local(*map(np.ascontiguousarray, (mean_rewards, psi, squares)))


@njit(
    types.Tuple((boolean[:, ::1], int64[::1]))(
        _given(float64, 2), _given(float64, 2), _given(boolean, 2), _given(boolean, 1), _given(int64, 1)
    ),
    error_model="numpy",
)
def _surviving(
    r: FloatArray, u: FloatArray, active: BoolArray, known: BoolArray, best: IntArray
) -> tuple[BoolArray, IntArray]:
    agents, arms = r.shape
    kept, found = np.empty((agents, arms), np.bool_), np.empty(agents, np.int64)
    for i in range(agents):
        top = -1
        for a in range(arms):
            if active[i, a] and known[a % len(known)] and (top < 0 or r[i, a] > r[i, top]):
                top = a
        top = best[i] if top < 0 else top
        threshold = r[i, top] - u[i, top]
        for a in range(arms):
            kept[i, a] = active[i, a] and (r[i, a] + u[i, a] >= threshold or not known[a % len(known)])
        found[i] = top
    return kept, found


def survivors(
    r: FloatArray, u: FloatArray, active: BoolArray, known: BoolArray, best: IntArray
) -> tuple[BoolArray, IntArray]:
    """A_i^p (n, K) of the active arms, and the best arms (n,)."""
    return _surviving(*map(np.ascontiguousarray, (r, u, active, known, best)))


@njit(
    types.Tuple((boolean, float64[:, ::1], float64[:, :, ::1]))(
        _given(float64, 3), _given(float64, 3), _given(float64, 2)
    ),
    error_model="numpy",
)
def _aggregated(theta: FloatArray, directions: FloatArray, weights: FloatArray) -> tuple[bool, FloatArray, FloatArray]:
    """As `aggregate`, and whether every sum of w e e^T that has a weight is clearly regular."""
    agents, arms, d = directions.shape
    mean, total, L = np.zeros((arms, d)), np.zeros((arms, d)), np.empty((d, d))
    V = np.zeros((arms, d, d))
    for i in range(agents):
        for a in range(arms):
            weight = weights[i, a]
            if weight > 0:
                for j in range(d):
                    total[a, j] += weight * theta[i, a, j]
                    for k in range(j + 1):
                        V[a, j, k] += weight * directions[i, a, j] * directions[i, a, k]
    for a in range(arms):
        trace = 0.0
        for j in range(d):
            trace += V[a, j, j]
        if trace == 0:
            continue  # nobody was heard
        if not _factor(V[a], L):
            return False, mean, V
        # L becomes its inverse, below the diagonal; then V^-1 is the sum of its rows' products over D.
        for i in range(d):
            for j in range(i):
                entry = -L[i, j]
                for k in range(j + 1, i):
                    entry -= L[i, k] * L[k, j]
                L[i, j] = entry
        squares = 0.0
        for j in range(d):
            for k in range(j + 1):
                entry = 0.0
                for i in range(j, d):
                    entry += (L[i, j] if i > j else 1.0) * (L[i, k] if i > k else 1.0) / L[i, i]
                V[a, j, k] = V[a, k, j] = entry
                squares += entry * entry if j == k else 2 * entry * entry
        if not trace * np.sqrt(squares) < CLEARLY_REGULAR:
            return False, mean, V
        for j in range(d):
            for k in range(d):
                mean[a, j] += V[a, j, k] * total[a, k]
    return True, mean, V


def aggregate(theta: FloatArray, directions: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """theta_a (K, d) and V_a (K, d, d) from estimates and directions (n, K, d) and weights (n, K)."""
    regular, mean, V = _aggregated(*map(np.ascontiguousarray, (theta, directions, weights)))
    return (mean, V) if regular else estimation.aggregate(theta, directions, weights)
