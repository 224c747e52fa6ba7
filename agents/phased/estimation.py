"""The estimates and widths of phased elimination, each written once, as pure functions of arrays."""

import math

import numpy as np

from fedbandit_agents.phased.design_problem import RANK_TOLERANCE, invert, whiten
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.plans import places

_TINY = np.finfo(np.float64).tiny
CLEARLY_REGULAR = 1e9  # ratio of eigenvalues up to which a sum of e e^T is inverted without further ado
CLEARLY_FULL = 1e-12  # product of a matrix's eigenvalues over their sum: more, and it has full rank
NOTHING = 1e-100  # in units of psi: an estimate of zero that still has a direction


def number_of_phases(horizon: int, growth: int) -> int:
    """H = ceil(log_n T), at least 1, in whole numbers."""
    phases = 0
    while growth**phases < horizon:
        phases += 1
    return max(phases, 1)


def confidence(num_agents: int, num_arms: int, dim: int, phases: int, delta: float) -> float:
    """alpha = min(alpha1, alpha2), the number of standard deviations that all estimates of a run stay within.

    alpha1 is a union bound over agents, arms and phases; alpha2 = sqrt(k d) one over directions, arms and phases, where
    k d = 2 ln(KH/delta) + d ln(k e), so k = -W_{-1}(-exp(-1 - (2/d) ln(KH/delta))).
    """
    alpha1 = math.sqrt(2 * math.log(2 * num_agents * num_arms * phases / delta))
    return min(alpha1, math.sqrt(covering_factor(num_arms, dim, phases, delta) * dim))


def covering_factor(num_arms: int, dim: int, phases: int, delta: float) -> float:
    """k, by Newton's method from the right of the larger root of k - 1 - ln k = (2/d) ln(KH/delta)."""
    target = 1 + 2 / dim * math.log(num_arms * phases / delta)
    k = 2 * target + 1
    for _ in range(100):
        step = (k - math.log(k) - target) / (1 - 1 / k)
        k -= step
        if abs(step) < 1e-14 * k:
            break
    return k


def local_estimate(mean_rewards: FloatArray, psi: FloatArray, squares: FloatArray) -> FloatArray:
    """theta_{a,i} = (mean reward) psi / ||psi||^2, (n, K, d), with `squares` = ||psi||^2: what an agent says of an arm.

    The server reads the direction of psi off it, so an estimate of zero becomes a tiny one.
    """
    scale = mean_rewards / squares
    return np.where(scale == 0, NOTHING, scale)[..., None] * psi


def unit_vectors(vectors: FloatArray) -> FloatArray:
    """e = v / ||v|| along the last axis, 0 for 0. The scale is taken out first: an estimate may be tiny."""
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    defined = largest > 0
    if np.count_nonzero(defined) == defined.size:
        scaled = vectors / largest
    else:
        scaled = np.divide(vectors, largest, out=np.zeros(vectors.shape), where=defined)
    norms = np.sqrt(np.einsum("...d,...d->...", scaled, scaled))[..., None]
    return np.divide(scaled, norms, out=scaled, where=norms > 0)


def aggregate(theta: FloatArray, directions: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """theta_a = V_a sum_i w theta_{a,i} (K, d), with V_a = (sum_i w e e^T)^+ (K, d, d), from (n, K, d) and (n, K)."""
    V = inverse_on_span(directions, weights)
    total = np.vecmat(weights.T, theta.transpose(1, 0, 2))
    return np.matvec(V, total), V


def inverse_on_span(directions: FloatArray, weights: FloatArray) -> FloatArray:
    """V_a = (sum_i weights_{a,i} e e^T)^+ (K, d, d), from (M, K, d) and (M, K).

    The range is the span of the directions with positive weight, by `RANK_TOLERANCE`, whatever the weights' sizes.
    """
    arms_first = directions.transpose(1, 2, 0)  # (K, d, M)
    total = (arms_first * weights.T[:, None, :]) @ arms_first.transpose(0, 2, 1)
    traces = total.trace(axis1=1, axis2=2)
    unheard = (traces == 0).nonzero()[0]
    if len(unheard):
        total[unheard] = np.eye(total.shape[1])
    try:
        inverse = invert(total)
        inverse[unheard] = 0
        entries = inverse.reshape(len(inverse), -1)
        # The product of trace and norm is more than the ratio of the eigenvalues.
        if np.maximum.reduce(traces**2 * np.vecdot(entries, entries)) < CLEARLY_REGULAR**2:
            return inverse
    except np.linalg.LinAlgError:
        pass
    problem, _, basis = whiten(directions, weights > 0)
    return basis @ invert(problem.information(weights.T)) @ basis.transpose(0, 2, 1)


def predictions(psi: FloatArray, theta: FloatArray) -> FloatArray:
    """r = psi^T theta_a, (n, K)."""
    return inner_products(psi, theta)


def eliminated(
    psi: FloatArray,
    theta: FloatArray,
    V: FloatArray,
    scale: float,
    active: BoolArray,
    known: BoolArray,
    best: IntArray,
) -> tuple[BoolArray, IntArray]:
    """The `survivors` by predictions r = psi^T theta_a and widths u = scale ||psi||_{V_a}."""
    return survivors(predictions(psi, theta), scale * np.sqrt(squared_widths(psi, V)), active, known, best)


def survivors(
    r: FloatArray, u: FloatArray, active: BoolArray, known: BoolArray, best: IntArray
) -> tuple[BoolArray, IntArray]:
    """A_i^p = {a : r_a + u_a >= r_best - u_best} (n, K) of the `active` arms, and the best arms (n,).

    An arm that is not `known` (K,), because its explorers were all lost, is neither best nor eliminated; where none of
    the active ones is known, `best` (n,) stays.
    """
    every = np.count_nonzero(known) == known.size
    candidates = active if every else active & known
    found = np.where(candidates, r, -np.inf).argmax(axis=1)
    if not every:
        found = np.where(candidates.any(axis=1), found, best)
    where = places(found, r.shape[1])
    kept = r + u >= (r.take(where) - u.take(where))[:, None]
    return active & (kept if every else kept | ~known), found


def inner_products(left: FloatArray, right: FloatArray) -> FloatArray:
    """left^T right along the last axis, dimension by dimension: rows can't depend on each other, and d is small."""
    total = left[..., 0] * right[..., 0]
    for axis in range(1, left.shape[-1]):
        total += left[..., axis] * right[..., axis]
    return total


def quadratic_forms(psi: FloatArray, V: FloatArray) -> FloatArray:
    """psi^T V_a psi, (n, K), for symmetric V (K or 1, d, d); dimension by dimension, as `inner_products`."""
    columns, twice = np.ascontiguousarray(psi.transpose(2, 0, 1)), 2 * V
    total: FloatArray | float = 0.0
    for axis, column in enumerate(columns):
        row = column * V[:, axis, axis]
        for other in range(axis + 1, len(columns)):
            row += columns[other] * twice[:, axis, other]
        row *= column
        row += total
        total = row
    return np.asarray(total)


def squared_widths(psi: FloatArray, V: FloatArray) -> FloatArray:
    """||psi||_V^2, (n, K); infinite where psi leaves the range of V, about which V knows nothing."""
    squares = np.maximum(quadratic_forms(psi, V), 0)
    outside = outside_range(psi, V)
    return squares if outside is None else np.where(outside, np.inf, squares)


def outside_range(psi: FloatArray, V: FloatArray) -> BoolArray | None:
    """(n, K) where ||(I - V V^+) psi|| > tolerance ||psi||; None if every V_a (K or 1, d, d) has full rank."""
    # Off its range V is 0 but for rounding; on it, very unequal pulls make its eigenvalues very unequal. Their product
    # where they add up to 1 is less than the ratio of least to largest, so mostly it tells at once.
    traces = V.trace(axis1=1, axis2=2)
    empty = traces == 0  # arms of which nothing is known
    shares = np.linalg.det(V / np.maximum(traces, _TINY)[:, None, None])
    if np.logical_and.reduce((shares > CLEARLY_FULL) | empty):
        return np.broadcast_to(empty, psi.shape[:2]) if np.count_nonzero(empty) else None
    values, vectors = np.linalg.eigh(V)
    missing = values <= 1e-14 * values[:, -1:]
    if not missing.any():
        return None
    vectors = np.broadcast_to(vectors, (psi.shape[1], *vectors.shape[1:]))
    parts = np.einsum("ade,nad->nae", vectors, psi) * missing
    return np.einsum("nae,nae->na", parts, parts) > RANK_TOLERANCE**2 * np.einsum("nad,nad->na", psi, psi)
