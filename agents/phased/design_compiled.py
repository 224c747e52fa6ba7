"""The first-order climb of a design, compiled by numba: the steps of `design_climb` as plain loops.

Importing this module compiles it, which takes about 5 s once in a process. Numba could keep the result on disk, but
only as pickles. The arrays are those of `information_compiled`.
"""

from functools import lru_cache

import numpy as np
from numba import boolean, float64, int64, njit
from numba.types import Tuple

from fedbandit_agents.phased.design_climb import DOUBLINGS, DROPS, PATIENCE, WARM_SHARE
from fedbandit_agents.phased.design_problem import WELL_SPREAD, whiten
from fedbandit_agents.phased.information_compiled import dot, evaluate, fill_products, fill_rest, gap_of, inner
from fedbandit_agents.phased.interior_point import TINY_G
from fedbandit_agents.types_compiled import read_only
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray

# How a compiled climb can end. Uneven: nothing was done, because the directions have to be whitened first.
_UNEVEN, _UNMET, _MET, _TRIVIAL = range(4)
# What a `Design` says about each of these ends.
_STOPPED = ("iterations", "iterations", "gap", "trivial")


@inner
def _start_evenly(active: BoolArray, pi: FloatArray, chosen: IntArray) -> int:
    """Fills in uniform weights pi (M, K), and which agents have a choice; returns how many these are."""
    agents, arms = active.shape
    n = 0
    for i in range(agents):
        count = 0
        for a in range(arms):
            count += active[i, a]
        for a in range(arms):
            pi[i, a] = active[i, a] / count
        if count > 1:
            chosen[n] = i
            n += 1
    return n


@inner
def _begin(active: BoolArray, chosen: IntArray, start: FloatArray, share: float, pi: FloatArray) -> None:
    """Fills in pi (K, n): `share` of the start, cut down to the active sets, and uniform weights for the rest."""
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
    """The multiplicative step, with g to the power 2^doublings; if `drop` > 0, without the weights that it drops."""
    pi, g = point[0], point[1]
    arms, n = pi.shape
    mean = 0.0
    if drop > 0:
        for a in range(arms):
            mean += dot(pi[a], g[a])
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
    """Whether F is at least as high there as here; F is concave, so surely if it still climbs there."""
    pi, candidate, g = here[0], there[0], there[1]
    slope = 0.0
    for a in range(len(pi)):
        slope += dot(g[a], candidate[a]) - dot(g[a], pi[a])
    if slope >= 0:
        return True
    change = 0.0
    for m in range(before.shape[0]):
        for k in range(before.shape[1]):
            change += np.log(after[m, k] / before[m, k])
    return change >= 0


@inner
def _step(
    products: FloatArray,
    rest: FloatArray,
    points: FloatArray,
    pivots: FloatArray,
    here: int,
    largest: FloatArray,
    total: FloatArray,
    doublings: int,
) -> tuple[bool, bool]:
    """Fills in the other point with a step that does not lower F.

    The plain step, power 1, is taken where the wanted one would lower F. Returns whether V is regular there, and
    whether the wanted step was taken.
    """
    there, regular = 1 - here, False
    for power in (doublings, 0):
        _move(points[here], largest, power, 0.0, points[there, 0], total)
        regular = evaluate(products, rest, points[there], pivots[there]) > 0
        if regular and _rose(points[here], pivots[here], points[there], pivots[there]):
            return True, power == doublings
    return regular, False


@inner
def _drop(
    products: FloatArray,
    rest: FloatArray,
    points: FloatArray,
    pivots: FloatArray,
    here: int,
    largest: FloatArray,
    total: FloatArray,
    target: float,
) -> float:
    """Fills in the other point without weights that vanish at the optimum; returns its gap, infinite if it fails."""
    there = 1 - here
    for share in DROPS:
        _move(points[here], largest, np.int64(0), share, points[there, 0], total)
        if evaluate(products, rest, points[there], pivots[there]) > 0:
            after = gap_of(points[there], total)
            if after <= target and _rose(points[here], pivots[here], points[there], pivots[there]):
                return after
    return np.inf


_DIRECTIONS, _FLAGS, _WEIGHTS = read_only(float64, 3), read_only(boolean, 2), read_only(float64, 2)


@njit(
    Tuple((float64[:, ::1], float64, int64, int64, int64))(_DIRECTIONS, _FLAGS, _DIRECTIONS, _WEIGHTS, float64, int64),
    error_model="numpy",
    no_cfunc_wrapper=True,
)
def _climb(
    x: FloatArray, active: BoolArray, base: FloatArray, start: FloatArray, target: float, limit: int
) -> tuple[FloatArray, float, int, int, int]:
    """The warm start and the multiplicative steps, over x (M, K, d), active (M, K) and base (groups, d, d).

    x need not be scaled: no g depends on the scale. `start` (M, K) may have size 0. Returns pi (M, K), its gap, D if
    all V have full rank, the number of steps, and how the climb ended.
    """
    agents, arms, d = x.shape
    groups = len(base)
    pi, chosen = np.empty((agents, arms)), np.empty(agents, np.int64)
    n = _start_evenly(active, pi, chosen)
    chosen = chosen[:n]
    products, rest = np.empty((arms, d * (d + 1) // 2, n)), np.empty((groups, d, d))
    fill_rest(x, active, base, chosen, rest)
    dimension = fill_products(x, active, chosen, products, rest)
    points, pivots, largest, total = np.empty((2, 2, arms, n)), np.empty((2, groups, d)), np.empty(n), np.empty(n)
    here = 0
    points[here, 0] = 1.0
    if not evaluate(products, rest, points[here], pivots[here]) > WELL_SPREAD:
        return pi, np.inf, dimension, 0, _UNEVEN
    share, left, iteration, rejected, outcome = 1.0 if start.size else 0.0, np.inf, 0, 0, _UNMET
    while True:
        _begin(active, chosen, start, share, points[here, 0])
        regular = evaluate(products, rest, points[here], pivots[here]) > 0
        left = gap_of(points[here], largest) if regular else np.inf
        if share < 1 or left <= target:
            break
        share = 1 - WARM_SHARE
    while regular and not left <= target and iteration < limit and rejected < PATIENCE:
        regular, wanted = _step(products, rest, points, pivots, here, largest, total, iteration % DOUBLINGS)
        rejected = 0 if wanted else rejected + 1
        if regular:
            here = 1 - here
            iteration += 1
            left = gap_of(points[here], largest)
    if left <= target:
        outcome = _MET if n else _TRIVIAL
        if share < 1:  # a start that meets the gap as it is stays as it is
            after = _drop(products, rest, points, pivots, here, largest, total, target)
            if after <= target:
                left, here = after, 1 - here
    for i in range(n):
        for a in range(arms):
            pi[chosen[i], a] = points[here, 0, a, i]
    return pi, max(left, 0.0), dimension, iteration, outcome


@lru_cache(maxsize=32)
def _zeros(*shape: int) -> FloatArray:
    """Zeros that are only read: the base of a problem without settled agents, or a start that is not there."""
    return np.zeros(shape)


def first_order(
    directions: FloatArray, active: BoolArray, gap: float, start: FloatArray | None, shared: bool, limit: int
) -> tuple[FloatArray, float, int, int, str]:
    """The fields of a `Design` after at most `limit` first-order steps; the arguments are those of `g_optimal`.

    Fewer steps are taken where the gap is met before, or where rounding forbids more.
    """
    x, active = np.ascontiguousarray(directions, dtype=np.float64), np.ascontiguousarray(active)
    earlier = _zeros(0, 0) if start is None else np.ascontiguousarray(start, dtype=np.float64)
    base = _zeros(1 if shared else x.shape[1], x.shape[2], x.shape[2])
    pi, left, dimension, iterations, outcome = _climb(x, active, base, earlier, float(gap), limit)
    if outcome == _UNEVEN:
        problem, ranks, _ = whiten(x, active, shared)
        x, dimension = np.ascontiguousarray(problem.x.transpose(2, 0, 1)), int(np.add.reduce(ranks))
        pi, left, _, iterations, outcome = _climb(x, active, problem.base, earlier, float(gap), limit)
    return pi, left, dimension, iterations, _STOPPED[outcome]
