"""Information matrices V, variances g and the gap of a design, compiled by numba for `design_compiled`.

These functions are called by compiled code alone, and are compiled when it is. Loops are plain, and arrays that they
fill in come from outside, because anything else takes longer to compile. Sums run in an order that depends on the
processor and on nothing else.

Arrays hold the n agents that have a choice, arms first. The s = d (d + 1) / 2 products of two coordinates stand for
x x^T. A point (2, K, n) is pi and g. Beside it stand the pivots (groups, d) of V, whose product is det V.
"""

import numpy as np
from numba import njit

from fedbandit_agents.phased.design_climb import SINGULAR
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray

#: The decorator of functions that only compiled code calls.
inner = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
# A sum may run in any order, so that processors can add several terms at a time.
_in_any_order = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath={"reassoc", "nsz"})


@inner
def fill_rest(x: FloatArray, active: BoolArray, base: FloatArray, chosen: IntArray, rest: FloatArray) -> None:
    """Fills in `rest` (groups, d, d), the part of V that no weight changes: the base, and agents without a choice."""
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


@inner
def fill_products(x: FloatArray, active: BoolArray, chosen: IntArray, products: FloatArray, rest: FloatArray) -> int:
    """Fills in the products (K, s, n); returns D if all V have full rank.

    An arm without vectors gets the identity as its rest.
    """
    arms, d = x.shape[1:]
    groups, n = len(rest), len(chosen)
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


@_in_any_order
def dot(left: FloatArray, right: FloatArray) -> float:
    """The inner product of two vectors."""
    total = 0.0
    for n in range(len(left)):
        total += left[n] * right[n]
    return total


@inner
def invert(V: FloatArray, L: FloatArray, pivots: FloatArray) -> float:
    """Makes V (d, d) its inverse, and fills in its pivots (d,).

    Returns det V over its value for equal eigenvalues with the same sum; 0 if V is singular. Only the entries on and
    below the diagonal of V are read. With V = L D L^T, the inverse is the sum over i of row i of L^-1, times itself,
    over D_i.

    Args:
        V: a symmetric matrix, which is overwritten.
        L: work space, (d, d).
        pivots: filled in with D.
    """
    d = len(V)
    trace, inverse_trace, evenness = 0.0, 0.0, 1.0
    for j in range(d):
        trace += V[j, j]
    scale = d / trace
    # First L is found below its diagonal, with 1 / D on it.
    for j in range(d):
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
    # Then L^-1 takes the place of L.
    for i in range(d):
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
    # The product of the traces is more than the ratio of the eigenvalues.
    return evenness if trace * inverse_trace * SINGULAR < 1 else 0.0


@inner
def evaluate(products: FloatArray, rest: FloatArray, point: FloatArray, pivots: FloatArray) -> float:
    """Fills in g and the pivots at the point's pi; returns the least number that `invert` returns for a group."""
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
                    entry += dot(products[a, t], pi[a])
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
def gap_of(point: FloatArray, largest: FloatArray) -> float:
    """The gap G - D over these agents; fills in the largest g of each agent (n,)."""
    pi, g = point[0], point[1]
    arms, n = pi.shape
    for i in range(n):
        largest[i] = 0.0
    total = 0.0
    for a in range(arms):
        own = g[a]
        for i in range(n):
            largest[i] = own[i] if own[i] > largest[i] else largest[i]
        total -= dot(pi[a], own)
    for i in range(n):
        total += largest[i]
    return total
