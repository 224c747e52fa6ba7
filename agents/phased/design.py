"""The multi-agent G-optimal design of phased elimination, always with its certificate.

Minimise G(pi) = sum_i max_{a in A_i} g_{a,i}, g_{a,i} = e^T V_a^+ e, V_a = sum_j pi_{a,j} e_{a,j} e_{a,j}^T, over rows
of pi that sum to 1 on the active arms. Equivalently maximise F = sum_a log det V_a on the span of the arm's directions.
With D the sum of the ranks, sum pi g = D for every pi, G = D at the optimum, and 0 <= F* - F <= G - D: the gap proves
how good a design is, whoever found it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedbandit_agents.phased.design_steps import (
    DOUBLINGS,
    DROPS,
    PATIENCE,
    RANK_TOLERANCE,
    SINGULAR,
    WARM_SHARE,
    InteriorPoint,
    Problem,
    gap_of,
    log_det,
    multiplied,
    settle,
    unknowns,
    whiten,
)
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.threads import one_thread
from fedbandit_envs.validation import needs

__all__ = [
    "RANK_TOLERANCE",
    "Design",
    "allocate",
    "g_optimal",
    "uniform",
]

# A climb takes this many multiplicative steps before it changes to second-order steps, for a small system.
_FIRST_ORDER_STEPS = 29
# A climb changes earlier when its gap is still this many times the gap wanted after one round of doublings.
_SWITCH_EARLY_ABOVE = 10.0
# A system of at most this many unknowns is small; a larger second-order step must save more multiplicative steps.
_SMALL_SYSTEM = 180
# Compiled multiplicative steps cost some hundredths of a second-order step, so that more of them are worth while.
_FIRST_ORDER_STEPS_COMPILED = 201
# A second-order step has at most this many unknowns; beyond, all steps are multiplicative.
_LARGEST_SYSTEM = 3000
# A pair of agent and arm that is due fewer pulls than this gets none.
_DROPPED = 1e-10
# Shares are often 1/2 or 1/8: without this factor the last bits of another CPU would decide about a pull.
_JUST_WHOLE = 1 - 1e-9


@dataclass(frozen=True)
class Design:
    """How each agent spreads its pulls, and the proof of how good that is."""

    pi: FloatArray  # (M, K) rows sum to 1 over the active arms, 0 elsewhere
    gap: float  # G - D, so that 0 <= F* - F <= gap
    dimension: int  # D, the sum of the ranks: sum pi g, and the least possible G
    iterations: int
    stopped: str  # "trivial" (no choice), "gap", "iterations", or "stalled" (rounding forbids more)


def g_optimal(
    directions: FloatArray,
    active: BoolArray,
    *,
    gap: float = 0.1,
    start: FloatArray | None = None,
    shared: bool = False,
    max_iterations: int = 10_000,
    compiled: bool = False,
) -> Design:
    """Solve the design over directions (M, K, d) and active sets (M, K) until G - D <= gap.

    `start` (M, K), an earlier pi, is cut down to the active sets: it is returned as it is if it still meets the gap.
    `shared` uses one matrix for all arms, for arms with a common theta. Directions need not have norm 1. `compiled`
    takes the first-order steps in compiled code, which needs numba: faster, with other rounding.
    """
    _check(directions, active, gap, start, max_iterations)
    begun = _compiled_begin(directions, active, gap, start, shared, max_iterations) if compiled else None
    if begun and begun.stopped != "iterations":
        return begun
    solver, free, arms, agents, dimension = _prepare(directions, active, shared)
    pi = uniform(active)
    if not len(agents):
        return Design(pi, 0.0, dimension, 0, "trivial")
    chosen = ... if pi.size == len(arms) * len(agents) else (agents[:, None], arms)
    weights = pi[chosen].T.copy()  # (arms, agents)
    result = None
    if begun:
        weights = begun.pi[chosen].T.copy()
    elif start is not None:
        kept = _cut_down(start[chosen].T * free, weights)
        result = _still_good(solver, kept, gap)
        weights = (1 - WARM_SHARE) * kept + WARM_SHARE * weights
    if result is None:
        with one_thread:
            result = _climb(solver, weights, gap, max_iterations, begun.iterations if begun else 0)
    weights, left, iterations, stopped = result
    pi[chosen] = weights.T
    design = Design(pi, left, dimension, iterations, stopped)
    if begun and stopped == "stalled":  # hundreds of steps can end too near the boundary for second-order ones
        again = g_optimal(directions, active, gap=gap, start=start, shared=shared, max_iterations=max_iterations)
        return min(again, design, key=lambda found: found.gap)
    return design


def _compiled_begin(
    directions: FloatArray, active: BoolArray, gap: float, start: FloatArray | None, shared: bool, max_iterations: int
) -> Design:
    """The design after as many compiled first-order steps as are worth while; it may not meet the gap yet."""
    size = unknowns(1 if shared else directions.shape[1], directions.shape[2])
    limit = max_iterations if size > _LARGEST_SYSTEM else int(_FIRST_ORDER_STEPS_COMPILED * _dear(size))
    return Design(*_first_order()(directions, active, gap, start, shared, min(limit, max_iterations)))


def _cut_down(kept: FloatArray, evenly: FloatArray) -> FloatArray:
    """An earlier design (arms, agents), 0 off the active sets, with columns that sum to 1 again.

    `kept` is overwritten. An agent with nothing left gets its column of `evenly`.
    """
    total = np.add.reduce(kept)
    lost = total == 0  # agents none of whose earlier arms are still active
    kept /= total + lost
    kept += evenly * lost
    return kept


Solver = Problem | InteriorPoint
Result = tuple[FloatArray, float, int, str]  # pi (K, M), its gap, iterations, why it stopped


def _prepare(
    directions: FloatArray, active: BoolArray, shared: bool
) -> tuple[Solver, BoolArray, IntArray, IntArray, int]:
    """What steps need, the pairs there are to choose from, as (arms, agents), which arms and agents, and D."""
    problem, ranks, _ = whiten(directions, active, shared)
    free, arms, agents = settle(problem)
    solver = InteriorPoint(free) if unknowns(*free.base.shape[:2]) <= _LARGEST_SYSTEM else free
    return solver, free.active, arms, agents, int(np.add.reduce(ranks))


def _still_good(solver: Solver, pi: FloatArray, target: float) -> Result | None:
    """An earlier design that meets the gap as it is. Without an arm's full rank its g is infinite, so it does not."""
    try:
        information, g = solver.evaluate(pi)
    except np.linalg.LinAlgError:
        return None
    left = gap_of(pi, g)
    if left > target or np.linalg.eigvalsh(information).min() < SINGULAR:
        return None
    return pi, max(left, 0.0), 0, "gap"


def _climb(solver: Solver, pi: FloatArray, target: float, max_iterations: int, done: int = 0) -> Result:
    """Steps from pi > 0, with some `done`, until the gap is met; F never falls from one to the next.

    Multiplicative steps cost little and soon come near; from there, interior-point steps finish.
    """
    information, g = solver.evaluate(pi)
    newton: InteriorPoint | None = None
    met, rejected = False, 0
    for iteration in range(done, max_iterations + 1):
        left = gap_of(pi, g)
        if left <= target:
            sparse = _sparse(solver, pi, information, g, target)
            if sparse or met or newton is None:
                pi, left = sparse or (pi, left)
                return pi, max(left, 0.0), iteration, "gap"
            met = True  # one more second-order step, and there is room to drop weights
        if rejected >= PATIENCE:
            return pi, left, iteration, "stalled"
        if iteration == max_iterations:
            break
        turn = iteration % DOUBLINGS
        if newton is None and turn == 1 and iteration > 1 and isinstance(solver, InteriorPoint):
            dear = _dear(solver.unknowns)
            if iteration >= _FIRST_ORDER_STEPS * dear or left > _SWITCH_EARLY_ABOVE * dear * target:
                newton = solver
                pi = newton.begin(pi, g)
        try:
            candidate = newton.step(pi, information, g, target) if newton else multiplied(pi, g, turn)
            ahead = solver.evaluate(candidate)
            rose = _rose(pi, information, candidate, *ahead)
        except np.linalg.LinAlgError:
            rose = False
        rejected = 0 if rose else rejected + 1
        if not rose:
            candidate = multiplied(pi, g)  # never lowers F
            ahead = solver.evaluate(candidate)
        pi, (information, g) = candidate, ahead
    return pi, left, max_iterations, "iterations"


def _dear(size: int) -> float:
    """How much more of the first-order steps a second-order one has to save."""
    return max(1.0, size / _SMALL_SYSTEM) ** 2


def _rose(
    pi: FloatArray, information: FloatArray, candidate: FloatArray, ahead: FloatArray, g_ahead: FloatArray
) -> bool:
    """Whether F is at least as high at `candidate` as at pi: surely if, being concave, it still climbs there."""
    climbs = g_ahead.ravel().dot((candidate - pi).ravel()) >= 0
    return bool(climbs) or log_det(ahead) >= log_det(information)


def _sparse(
    solver: Solver, pi: FloatArray, information: FloatArray, g: FloatArray, target: float
) -> tuple[FloatArray, float] | None:
    """Pi without weights that vanish at the optimum, if that meets the gap and raises F, as it nearly always does.

    Fewer pairs mean fewer pulls lost to rounding up and fewer scalars to send. A weight vanishes at the optimum where
    its g stays below the agent's largest: small weights with much to spare go.
    """
    moved = multiplied(pi, g)
    worth, spare = pi * (np.vdot(pi, g) / pi.shape[1]), g.max(0) - g
    for share in DROPS:
        candidate = np.where(worth >= share * spare, moved, 0.0)
        candidate /= candidate.sum(0)
        try:
            ahead, g_ahead = solver.evaluate(candidate)
        except np.linalg.LinAlgError:  # too few are left to span the arm
            continue
        after = gap_of(candidate, g_ahead)
        if after <= target and _rose(pi, information, candidate, ahead, g_ahead):
            return candidate, after
    return None


@lru_cache(maxsize=1)
def _first_order() -> Callable[..., tuple[FloatArray, float, int, int, str]]:
    needs("numba", extra="compiled", instead="leave compiled out")
    from fedbandit_agents.phased.design_compiled import first_order  # numba takes long to import, and then to compile

    return first_order


def uniform(active: BoolArray) -> FloatArray:
    """Every active arm alike, (M, K)."""
    return np.asarray(active / np.add.reduce(active, axis=1, keepdims=True))


def allocate(pi: FloatArray, budget: int, directions: FloatArray) -> IntArray:
    """Whole pulls (M, K) of a phase: ceil(pi budget (1 - 1e-9)), 0 where less than 1e-10 is due.

    The factor makes the result the same on every CPU: pi budget is often a whole number but for its last bits, which
    differ between CPUs. A row sums to at most budget + |A_i|.
    The pairs left out never cost an arm's V_a a dimension: where they would, they are pulled once.
    """
    if budget < 0:
        raise ValueError(f"budget: expected 0 pulls or more, got {budget}; pass the phase's f_p")
    due = pi * budget
    pulls = np.ceil(due * _JUST_WHOLE).astype(np.int64)
    small = (due > 0) & (due < _DROPPED)
    if not np.count_nonzero(small):
        return pulls
    pulls[small] = 0
    wanted, left = (whiten(directions, pairs)[1] for pairs in (due > 0, pulls > 0))
    pulls[small & (left < wanted)] = 1
    return pulls


def _check(
    directions: FloatArray, active: BoolArray, gap: float, start: FloatArray | None, max_iterations: int
) -> None:
    if directions.ndim != 3 or 0 in directions.shape:
        raise ValueError(
            f"directions: expected shape (agents, arms, dimensions), none of them 0, got {directions.shape}; "
            "add the missing axis"
        )
    if active.shape != directions.shape[:2] or active.dtype != np.bool_:
        raise ValueError(
            f"active: expected booleans of shape {directions.shape[:2]}, as directions, got {active.dtype} of shape "
            f"{active.shape}; pass one flag for each agent and arm"
        )
    if np.count_nonzero(np.logical_or.reduce(active, axis=1)) < len(active):
        without = int(np.flatnonzero(~active.any(1))[0])
        raise ValueError(
            f"active: expected an active arm for every agent, got none for agent {without}; "
            "leave agents without arms out of the design"
        )
    # The sum of squares mostly tells at once; it can overflow.
    if not math.isfinite(np.vdot(directions, directions)) and not np.isfinite(directions).all():
        raise ValueError("directions: expected finite numbers, got NaN or infinity; check the reports they come from")
    if max_iterations < 0:
        raise ValueError(f"max_iterations: expected 0 or more, got {max_iterations}")
    if not gap > 0:
        raise ValueError(
            f"gap: expected a number above 0, got {gap}; 0.1 is usual, 1e-7 about the least that can be proved"
        )
    if start is not None and (start.shape != active.shape or not np.minimum.reduce(start, axis=None) >= 0):
        raise ValueError(
            f"start: expected weights >= 0 of shape {active.shape}, got shape {start.shape} with least value "
            f"{start.min() if start.size else 'none'}; pass the pi of an earlier design over the same agents and arms"
        )
