"""The multi-agent G-optimal design (ALGORITHMS.md section 4), always with its certificate.

Minimise G(pi) = sum_i max_{a in A_i} g_{a,i}, g_{a,i} = e^T V_a^+ e, V_a = sum_j pi_{a,j} e_{a,j} e_{a,j}^T, over rows of pi
that sum to 1 on the active arms. Equivalently maximise F = sum_a log det V_a on the span of the arm's directions.
With D the sum of the ranks, sum pi g = D for every pi, G = D at the optimum, and 0 <= F* - F <= G - D: the gap proves
how good a design is, whoever found it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .design_steps import (
    RANK_TOLERANCE,
    BoolArray,
    FloatArray,
    InteriorPoint,
    IntArray,
    log_det,
    row_gaps,
    settle,
    span,
    whiten,
)

__all__ = ["RANK_TOLERANCE", "Design", "allocate", "g_optimal", "inverse_on_span", "uniform"]

_WARM_SHARE = 0.25  # of uniform weight in a warm start: restores rank and leaves the boundary, where steps are short
_PATIENCE = 10  # steps that would lower F, and are replaced by multiplicative ones, before rounding is blamed
_DROPPED = 1e-10  # ALGORITHMS.md section 3, step 2: a pair due fewer pulls than this gets none


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
    max_iterations: int = 200,
) -> Design:
    """Solve the design over directions (M, K, d) and active sets (M, K) until G - D <= gap.

    `start` (M, K), an earlier pi, is cut down to the active sets: it is returned as it is if it still meets the gap.
    `shared` uses one matrix for all arms, for arms with a common theta. Directions need not have norm 1.
    """
    directions, active = _checked(directions, active, gap, start)
    problem, ranks = whiten(directions, active, shared)
    dimension = int(ranks.sum())
    free, arms, agents = settle(problem)
    pi = uniform(active)
    if not len(agents):
        return Design(pi, 0.0, dimension, 0, "trivial")
    chosen = np.ix_(agents, arms)

    def design(weights: FloatArray, gap: float, iterations: int, stopped: str) -> Design:
        pi[chosen] = weights.T
        return Design(pi, gap, dimension, iterations, stopped)

    solver = InteriorPoint(free)
    weights = spread = pi[chosen].T.copy()  # (arms, agents)
    if start is not None:
        kept = np.where(free.active, start[chosen].T, 0.0)
        total = kept.sum(0)
        kept = np.where(total > 0, kept / np.where(total > 0, total, 1.0), spread)
        left = row_gaps(kept, solver.evaluate(kept)[1]).sum()
        if left <= gap:
            return design(kept, left, 0, "gap")
        weights = (1 - _WARM_SHARE) * kept + _WARM_SHARE * spread
    return design(*_climb(solver, weights, gap, max_iterations))


def _climb(
    solver: InteriorPoint, pi: FloatArray, target: float, max_iterations: int
) -> tuple[FloatArray, float, int, str]:
    """Interior-point steps from pi until the gap is met; F never falls from one to the next."""
    information, g = solver.evaluate(pi)
    solver.centre(pi, g)
    rejected = 0
    for iteration in range(max_iterations + 1):
        left = float(row_gaps(pi, g).sum())
        if left <= target:
            return (*_sparse(solver, pi, g, left, target), iteration, "gap")
        if rejected > _PATIENCE:
            return pi, left, iteration, "stalled"
        if iteration < max_iterations:
            candidate = solver.step(pi, information, g, target)
            ahead = solver.evaluate(candidate)
            # F is concave: it rose if its slope at the far end still points forwards.
            if (ahead[1] * (candidate - pi)).sum() < 0 and log_det(ahead[0]) < log_det(information):
                candidate = pi * g / (pi * g).sum(0)  # the multiplicative step never lowers F
                ahead = solver.evaluate(candidate)
                rejected += 1
            pi, (information, g) = candidate, ahead
    return pi, left, max_iterations, "iterations"


def _sparse(
    solver: InteriorPoint, pi: FloatArray, g: FloatArray, left: float, target: float
) -> tuple[FloatArray, float]:
    """Pi without its smallest weights, if the gap allows: fewer pulls lost to rounding up, fewer scalars sent."""
    return pi, left


def _checked(directions, active, gap, start):
    return directions, active


def uniform(active: BoolArray) -> FloatArray:
    """Every active arm alike, (M, K)."""
    return np.asarray(active / active.sum(1, keepdims=True))
