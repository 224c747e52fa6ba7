"""The arithmetic of phased elimination, compiled by numba: functions of `estimation`, under the same names.

What agents compute is the same bit for bit; sums over agents are the same but for rounding. Numpy's functions decide,
or refuse, where a matrix is not clearly regular or a number is not finite. They also do so where an array does not have
the type and shape that it should have: compiled code would read beyond its end. Importing this module compiles it,
which takes some 2 s once in a process.
"""

import numpy as np
from numba import boolean, float64, int64, njit, types

from fedbandit_agents.phased import estimation
from fedbandit_agents.phased.estimation import CLEARLY_FULL, CLEARLY_REGULAR, NOTHING, SAME_DIRECTION, Estimates
from fedbandit_agents.phased.information_compiled import invert
from fedbandit_agents.types_compiled import read_only
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.ties import TIE

_NUMBERS, _FLAGS, _WHOLE = {np.dtype(np.float64)}, {np.dtype(np.bool_)}, np.dtype(np.int64)


@njit(
    boolean(
        read_only(float64, 3),
        read_only(float64, 2),
        read_only(float64, 3),
        float64,
        read_only(boolean, 2),
        read_only(boolean, 1),
        boolean[:, ::1],
        int64[::1],
    ),
    error_model="numpy",
)
def _eliminate(
    psi: FloatArray,
    theta: FloatArray,
    V: FloatArray,
    scale: float,
    active: BoolArray,
    known: BoolArray,
    kept: BoolArray,
    best: IntArray,
) -> bool:
    """Puts the survivors into `kept` and the new best arms into `best`.

    Returns False if this function can't decide: some known V may lack a dimension, so that widths can be infinite, or a
    prediction is not finite.
    """
    agents, arms, d = psi.shape
    L, pivots = np.empty((d, d)), np.empty(d)
    for m in range(len(V)):
        if known[m] and not invert(V[m].copy(), L, pivots) > CLEARLY_FULL * float(d) ** d:
            return False
    r, u = np.empty(arms), np.empty(arms)
    for i in range(agents):
        top, highest, magnitude = -1, -np.inf, 0.0
        for a in range(arms):
            if not active[i, a]:
                continue
            m = a if len(V) > 1 else 0
            total, square = psi[i, a, 0] * theta[m, 0], 0.0
            for j in range(1, d):
                total += psi[i, a, j] * theta[m, j]
            for j in range(d):
                row = psi[i, a, j] * V[m, j, j]
                for k in range(j + 1, d):
                    row += psi[i, a, k] * (2 * V[m, j, k])
                square += row * psi[i, a, j]
            if not np.isfinite(total):
                return False
            r[a], u[a] = total, scale * np.sqrt(max(square, 0.0))
            if known[m]:
                highest = max(highest, total)
                magnitude = max(magnitude, abs(total) + (u[a] if np.isfinite(u[a]) else 0.0))
        tolerance = TIE * magnitude
        for a in range(arms):
            if active[i, a] and known[a if len(V) > 1 else 0] and r[a] >= highest - tolerance:
                top = a
                break
        if top < 0:  # no active arm is known: all of them stay, whatever r and u of the best arm are
            top = best[i]
            if not 0 <= top < arms:
                return False
            r[top] = u[top] = 0.0
        for a in range(arms):
            m = a if len(V) > 1 else 0
            kept[i, a] = active[i, a] and (r[a] + u[a] >= r[top] - u[top] - tolerance or not known[m])
        best[i] = top
    return True


def eliminated(
    psi: FloatArray, estimates: Estimates, scale: float, active: BoolArray, best: IntArray
) -> tuple[BoolArray, IntArray]:
    """The active sets (n, K) and the best arms (n,) after an elimination; see `estimation.eliminated`."""
    theta, V, known = estimates
    (agents, arms, d), groups = psi.shape, len(V)
    shapes = theta.shape, V.shape, active.shape, known.shape, best.shape
    if (
        groups in (1, arms)
        and shapes == ((groups, d), (groups, d, d), (agents, arms), (groups,), (agents,))
        and {psi.dtype, theta.dtype, V.dtype} == _NUMBERS
        and {active.dtype, known.dtype} == _FLAGS
        and best.dtype == _WHOLE
    ):
        features, parameters, inverses = map(np.ascontiguousarray, (psi, theta, V))
        flags, heard = map(np.ascontiguousarray, (active, known))
        kept, found = np.empty((agents, arms), dtype=bool), best.copy()
        if _eliminate(features, parameters, inverses, scale, flags, heard, kept, found):
            return kept, found
    return estimation.eliminated(psi, estimates, scale, active, best)


@njit(
    types.void(read_only(float64, 2), read_only(float64, 3), read_only(float64, 2), float64[:, :, ::1]),
    error_model="numpy",
)
def _estimate(mean_rewards: FloatArray, psi: FloatArray, squares: FloatArray, theta: FloatArray) -> None:
    """Fills in theta_{a,i}."""
    agents, arms, d = psi.shape
    for i in range(agents):
        for a in range(arms):
            scale = mean_rewards[i, a] / squares[i, a]
            scale = NOTHING if scale == 0 else scale
            for j in range(d):
                theta[i, a, j] = scale * psi[i, a, j]


def local_estimate(mean_rewards: FloatArray, psi: FloatArray, squares: FloatArray) -> FloatArray:
    """The estimates (n, K, d) that agents send; see `estimation.local_estimate`."""
    kinds = {mean_rewards.dtype, psi.dtype, squares.dtype}
    if kinds != _NUMBERS or not mean_rewards.shape == squares.shape == psi.shape[:2]:
        return estimation.local_estimate(mean_rewards, psi, squares)
    theta = np.empty(psi.shape)
    _estimate(*map(np.ascontiguousarray, (mean_rewards, psi, squares)), theta)
    return theta


@njit(
    types.void(
        read_only(float64, 3), read_only(float64, 3), read_only(float64, 2), float64[:, ::1], types.boolean[:, ::1]
    ),
    error_model="numpy",
)
def _compare(
    theta: FloatArray, directions: FloatArray, squares: FloatArray, lengths: FloatArray, turned: BoolArray
) -> None:
    """Fills in the lengths and what is turned."""
    agents, arms, d = theta.shape
    for i in range(agents):
        for a in range(arms):
            length = product = 0.0
            for j in range(d):
                length += theta[i, a, j] * theta[i, a, j]
                product += theta[i, a, j] * directions[i, a, j]
            lengths[i, a] = length
            turned[i, a] = product * product < (1 - SAME_DIRECTION) * length * squares[i, a]


def lengths_and_turns(
    theta: FloatArray, directions: FloatArray, squares: FloatArray | float = 1.0
) -> tuple[FloatArray, BoolArray]:
    """||theta||^2 (n, K) and which estimates are turned (n, K); see `estimation.lengths_and_turns`."""
    of_directions = np.full(theta.shape[:2], squares) if isinstance(squares, float) else squares
    kinds = {theta.dtype, directions.dtype, of_directions.dtype}
    if kinds != _NUMBERS or directions.shape != theta.shape or of_directions.shape != theta.shape[:2]:
        return estimation.lengths_and_turns(theta, directions, squares)
    lengths, turned = np.empty(theta.shape[:2]), np.empty(theta.shape[:2], dtype=np.bool_)
    _compare(*map(np.ascontiguousarray, (theta, directions, of_directions)), lengths, turned)
    return lengths, turned


@njit(
    boolean(read_only(float64, 3), read_only(float64, 3), read_only(float64, 2), float64[:, ::1], float64[:, :, ::1]),
    error_model="numpy",
)
def _aggregate(theta: FloatArray, directions: FloatArray, weights: FloatArray, mean: FloatArray, V: FloatArray) -> bool:
    """Fills in theta_a and V_a, which are zeros before.

    Returns False if this function can't decide: a sum of w e e^T that has a weight is not clearly regular.
    """
    agents, arms, d = directions.shape
    total, L, pivots = np.zeros((arms, d)), np.empty((d, d)), np.empty(d)
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
            continue  # nobody has reported this arm
        if not invert(V[a], L, pivots) > 0:
            return False
        squares = 0.0
        for j in range(d):
            for k in range(d):
                squares += V[a, j, k] * V[a, j, k]
        if not trace * np.sqrt(squares) < CLEARLY_REGULAR:
            return False
        for j in range(d):
            for k in range(d):
                mean[a, j] += V[a, j, k] * total[a, k]
    return True


def aggregate(theta: FloatArray, directions: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """theta_a (K, d) and V_a (K, d, d) from estimates, directions and weights; see `estimation.aggregate`."""
    agents, arms, d = directions.shape
    kinds = {theta.dtype, directions.dtype, weights.dtype}
    if kinds == _NUMBERS and theta.shape == directions.shape and weights.shape == (agents, arms):
        mean, V = np.zeros((arms, d)), np.zeros((arms, d, d))
        if _aggregate(*map(np.ascontiguousarray, (theta, directions, weights)), mean, V):
            return mean, V
    return estimation.aggregate(theta, directions, weights)
