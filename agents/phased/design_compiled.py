"""The first-order climb of `design`, compiled by numba.

Importing this compiles it, about 5 s once in a process: numba could keep the result on disk, but only as pickles. Loops
are plain, and arrays that they fill in come from outside, because anything else takes longer still to compile. Sums run
in an order that depends on the processor and on nothing else.

Arrays hold the n agents that have a choice, arms first; s = d (d + 1) / 2 products of coordinates stand for x x^T. A
point (2, K, n) is pi and g, with the pivots of V (groups, d) beside it: their product is det V.
"""

from functools import lru_cache

import numpy as np
from numba import boolean, float64, int64, njit
from numba.types import Array, Tuple

from fedbandit_agents.phased.design_steps import (
    DOUBLINGS,
    DROPS,
    PATIENCE,
    SINGULAR,
    TINY_G,
    WARM_SHARE,
    WELL_SPREAD,
    whiten,
)
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray

_UNEVEN, _UNMET, _MET, _TRIVIAL = range(4)  # outcomes; uneven: nothing done, directions have to be whitened first

inner = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)  # called by compiled code only
_sum = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath={"reassoc", "nsz"})
_vectors, _flags, _weights = (Array(of, n, "C", readonly=True) for of, n in ((float64, 3), (boolean, 2), (float64, 2)))
_outer = njit(
    Tuple((float64[:, ::1], float64, int64, int64, int64))(_vectors, _flags, _vectors, _weights, float64, int64),
    error_model="numpy",
    no_cfunc_wrapper=True,
)


@inner
def _collect(
    x: FloatArray, active: BoolArray, base: FloatArray, chosen: IntArray, products: FloatArray, rest: FloatArray
) -> int:
    """Fills in the products (K, s, n), and the rest of V (groups, d, d); returns D if all V have full rank.

    The rest is the base, agents without a choice, and the identity for arms without vectors.
    """
    agents, arms, d = x.shape
    groups, n = len(rest), len(chosen)
    for m in range(groups):
        for j in range(d):
            for k in range(d):
                rest[m, j, k] = base[m, j, k]
    passed = 0
    for i in range(agents):
        if passed < n and chosen[passed] == i:
            passed += 1
            continue
        for a in range(arms):
            if active[i, a]:
                m = a if groups == arms else 0
                for j in range(d):
                    for k in range(d):
                        rest[m, j, k] += x[i, a, j] * x[i, a, k]
    own, dimension = np.empty((d, n)), 0
    for a in range(arms):
        m = a if groups == arms else 0
        for j in range(d):
            row = own[j]
            for i in range(n):
                row[i] = x[chosen[i], a, j] if active[chosen[i], a] else 0.0
        size, t = 0.0, 0
        for j in range(d):
            size += rest[m, j, j]
            for k in range(j, d):
                left, right, row = own[j], own[k], products[a, t]
                for i in range(n):
                    row[i] = left[i] * right[i]
                if j == k:
                    for i in range(n):
                        size += row[i]
                t += 1
        if size > 0:
            dimension += d
        elif groups == arms:
            for j in range(d):
                rest[m, j, j] = 1.0
    return dimension if groups == arms else d


@_sum  # in any order, so that processors can add several terms at a time
def _dot(left: FloatArray, right: FloatArray) -> float:
    total = 0.0
    for n in range(len(left)):
        total += left[n] * right[n]
    return total


@inner
def invert(V: FloatArray, L: FloatArray, pivots: FloatArray) -> float:
    """Makes V (d, d) its inverse; returns det V over that of the ball with the same trace, 0 if V is singular.

    V = L D L^T, so the inverse is the sum over i of row i of L^-1, times itself, over D_i.
    """
    d = len(V)
    trace, inverse_trace, evenness = 0.0, 0.0, 1.0
    for j in range(d):
        trace += V[j, j]
    scale = d / trace
    for j in range(d):  # L below its diagonal, and D^-1 on it
        for i in range(j, d):
            total = V[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k] * pivots[k]
            if i == j:
                if not total > 0:
                    return 0.0
                pivots[j] = total
                evenness *= total * scale
                L[j, j] = 1 / total
            else:
                L[i, j] = total * L[j, j]
    for i in range(d):  # L^-1 in place of L
        for j in range(i):
            total = -L[i, j]
            for k in range(j + 1, i):
                total -= L[i, k] * L[k, j]
            L[i, j] = total
    for j in range(d):
        for k in range(j + 1):
            total = L[j, j] if k == j else L[j, j] * L[j, k]
            for i in range(j + 1, d):
                total += L[i, j] * L[i, k] * L[i, i]
            V[j, k] = V[k, j] = total
        inverse_trace += V[j, j]
    return evenness if trace * inverse_trace * SINGULAR < 1 else 0.0  # more than the ratio of the eigenvalues


@inner
def _evaluate(products: FloatArray, rest: FloatArray, point: FloatArray, pivots: FloatArray) -> float:
    """Fills in g and the pivots at pi; returns the least of what `invert` does."""
    pi, g = point[0], point[1]
    groups, d = pivots.shape
    arms, _, n = products.shape
    each = arms // groups
    V, L, least = np.empty((d, d)), np.empty((d, d)), 1.0
    for m in range(groups):
        t = 0
        for j in range(d):
            for k in range(j, d):
                entry = rest[m, j, k]
                for a in range(m * each, (m + 1) * each):
                    entry += _dot(products[a, t], pi[a])
                V[j, k] = V[k, j] = entry
                t += 1
        evenness = invert(V, L, pivots[m])
        if not evenness > 0:
            return 0.0
        if evenness < least:
            least = evenness
        for a in range(m * each, (m + 1) * each):
            own = g[a]
            for i in range(n):
                own[i] = 0.0
            t = 0
            for j in range(d):
                for k in range(j, d):
                    entry, row = V[j, k] if j == k else 2 * V[j, k], products[a, t]
                    for i in range(n):
                        own[i] += entry * row[i]
                    t += 1
    return least


@inner
def _gap(point: FloatArray, largest: FloatArray) -> float:
    """G - D over these agents; fills in the largest g of each (n,)."""
    pi, g = point[0], point[1]
    arms, n = pi.shape
    for i in range(n):
        largest[i] = 0.0
    total = 0.0
    for a in range(arms):
        own = g[a]
        for i in range(n):
            largest[i] = own[i] if own[i] > largest[i] else largest[i]
        total -= _dot(pi[a], own)
    for i in range(n):
        total += largest[i]
    return total


@inner
def _begin(active: BoolArray, chosen: IntArray, start: FloatArray, share: float, pi: FloatArray) -> None:
    """Fills in that share of the start, cut down to the active sets, and uniform weights for the rest."""
    arms, n = pi.shape
    for i in range(n):
        row, count, total = chosen[i], 0, 0.0
        for a in range(arms):
            if active[row, a]:
                count += 1
                if share > 0:
                    total += start[row, a]
        own = share if total > 0 else 0.0
        for a in range(arms):
            pi[a, i] = 0.0
            if active[row, a]:
                pi[a, i] = (1 - own) / count
                if own > 0:
                    pi[a, i] += own * (start[row, a] / total)


@inner
def _move(
    point: FloatArray, largest: FloatArray, doublings: int, drop: float, moved: FloatArray, total: FloatArray
) -> None:
    """The multiplicative step, with g to the power 2^doublings, less the weights that `drop` > 0 says."""
    pi, g = point[0], point[1]
    arms, n = pi.shape
    mean = 0.0
    if drop > 0:
        for a in range(arms):
            mean += _dot(pi[a], g[a])
        mean /= n
    for i in range(n):
        total[i] = 0.0
    for a in range(arms):
        new, old, own = moved[a], pi[a], g[a]
        for i in range(n):
            raised = own[i] + TINY_G
            raised = raised * raised if doublings > 0 else raised
            raised = raised * raised if doublings > 1 else raised
            raised = raised * raised if doublings > 2 else raised
            new[i] = raised * old[i] if old[i] * mean >= drop * (largest[i] - own[i]) else 0.0
        for i in range(n):
            total[i] += new[i]
    for a in range(arms):
        new = moved[a]
        for i in range(n):
            new[i] /= total[i]


@inner
def _rose(here: FloatArray, before: FloatArray, there: FloatArray, after: FloatArray) -> bool:
    """Whether F is at least as high there: surely if, being concave, it still climbs there."""
    pi, candidate, g = here[0], there[0], there[1]
    slope = 0.0
    for a in range(len(pi)):
        slope += _dot(g[a], candidate[a]) - _dot(g[a], pi[a])
    if slope >= 0:
        return True
    change = 0.0
    for m in range(before.shape[0]):
        for k in range(before.shape[1]):
            change += np.log(after[m, k] / before[m, k])
    return change >= 0


@_outer
def _climb(
    x: FloatArray, active: BoolArray, base: FloatArray, start: FloatArray, target: float, limit: int
) -> tuple[FloatArray, float, int, int, int]:
    """The warm start and the multiplicative steps of `design`, over x (M, K, d), active (M, K) and base (groups, d, d).

    x need not be scaled: no g depends on that. `start` (M, K) may have size 0. Returns pi (M, K), its gap, D if all V
    have full rank, the number of steps, and the outcome.
    """
    agents, arms, d = x.shape
    groups = len(base)
    pi, chosen, n = np.empty((agents, arms)), np.empty(agents, np.int64), 0
    for i in range(agents):
        count = 0
        for a in range(arms):
            count += active[i, a]
        for a in range(arms):
            pi[i, a] = active[i, a] / count
        if count > 1:
            chosen[n] = i
            n += 1
    chosen = chosen[:n]
    products, rest = np.empty((arms, d * (d + 1) // 2, n)), np.empty((groups, d, d))
    dimension = _collect(x, active, base, chosen, products, rest)
    points, pivots, largest, total = np.empty((2, 2, arms, n)), np.empty((2, groups, d)), np.empty(n), np.empty(n)
    here, there = 0, 1
    for a in range(arms):
        for i in range(n):
            points[here, 0, a, i] = 1.0
    if not _evaluate(products, rest, points[here], pivots[here]) > WELL_SPREAD:
        return pi, np.inf, dimension, 0, _UNEVEN
    share, left, iteration, rejected, outcome = 1.0 if start.size else 0.0, np.inf, 0, 0, _UNMET
    while True:
        _begin(active, chosen, start, share, points[here, 0])
        regular = _evaluate(products, rest, points[here], pivots[here]) > 0
        left = _gap(points[here], largest) if regular else np.inf
        if share < 1 or left <= target:
            break
        share = 1 - WARM_SHARE
    while regular:
        if left <= target:
            outcome = _MET if n else _TRIVIAL
            for drop in DROPS:
                if share == 1:
                    break  # the start as it is
                _move(points[here], largest, np.int64(0), drop, points[there, 0], total)
                if _evaluate(products, rest, points[there], pivots[there]) > 0:
                    after = _gap(points[there], total)
                    if after <= target and _rose(points[here], pivots[here], points[there], pivots[there]):
                        left, here = after, there
                        break
            break
        if iteration >= limit or rejected == PATIENCE:
            break
        rejected += 1
        for doublings in (iteration % DOUBLINGS, 0):  # the plain step never lowers F
            _move(points[here], largest, doublings, 0.0, points[there, 0], total)
            regular = _evaluate(products, rest, points[there], pivots[there]) > 0
            if regular and _rose(points[here], pivots[here], points[there], pivots[there]):
                rejected = 0 if doublings == iteration % DOUBLINGS else rejected
                break
        if regular:
            here, there = there, here
            iteration += 1
            left = _gap(points[here], largest)
    for i in range(n):
        for a in range(arms):
            pi[chosen[i], a] = points[here, 0, a, i]
    return pi, max(left, 0.0), dimension, iteration, outcome


@lru_cache(maxsize=32)
def _zeros(*shape: int) -> FloatArray:
    return np.zeros(shape)


def first_order(
    directions: FloatArray, active: BoolArray, gap: float, start: FloatArray | None, shared: bool, limit: int
) -> tuple[FloatArray, float, int, int, str]:
    """What a `Design` holds, after `limit` steps at most; rounding may have forbidden some of them."""
    x, active = np.ascontiguousarray(directions, dtype=np.float64), np.ascontiguousarray(active)
    earlier = _zeros(0, 0) if start is None else np.ascontiguousarray(start, dtype=np.float64)
    base = _zeros(1 if shared else x.shape[1], x.shape[2], x.shape[2])
    pi, left, dimension, iterations, outcome = _climb(x, active, base, earlier, float(gap), limit)
    if outcome == _UNEVEN:
        problem, ranks, _ = whiten(x, active, shared)
        x, dimension = np.ascontiguousarray(problem.x.transpose(2, 0, 1)), int(np.add.reduce(ranks))
        pi, left, _, iterations, outcome = _climb(x, active, problem.base, earlier, float(gap), limit)
    return pi, left, dimension, iterations, ("iterations", "iterations", "gap", "trivial")[outcome]
