"""How a design is solved: cheap multiplicative steps first, then a few interior-point steps.

No accepted step lowers F, so that a climb can stop at any time. The numbers that this climb and the compiled one in
`design_compiled` have in common stand here.
"""

from typing import NamedTuple

import numpy as np

from fedbandit_agents.phased.design_problem import Problem, gap_of, log_det
from fedbandit_agents.phased.interior_point import TINY_G, InteriorPoint
from fedbandit_envs.arrays import FloatArray

#: The share of uniform weight in a warm start. It restores the rank, and lets weights that were 0 return.
WARM_SHARE = 0.5
#: Multiplicative steps take g to the powers 1, 2, 4 and 8 in turn: far fewer are needed than with power 1 alone.
DOUBLINGS = 4
#: After this many steps in a row that would have lowered F, rounding is blamed and the climb ends.
PATIENCE = 10
#: V with an eigenvalue below this counts as singular. In these coordinates no eigenvalue of a design with finite G is
#: below 1 / (M G).
SINGULAR = 1e-12
#: How small a weight must be, compared with what its g spares, to be dropped. The largest number is tried first.
DROPS = (0.3, 0.03, 0.003)
# A climb takes this many multiplicative steps before it changes to second-order steps, for a small system.
_FIRST_ORDER_STEPS = 29
# A climb changes earlier when its gap is still this many times the gap wanted after one round of doublings.
_SWITCH_EARLY_ABOVE = 10.0
# A system of at most this many unknowns is small; a larger second-order step must save more multiplicative steps.
_SMALL_SYSTEM = 180

Solver = Problem | InteriorPoint


class Climb(NamedTuple):
    """Where a climb ended."""

    pi: FloatArray  #: (K, M) the weights
    gap: float  #: their gap
    iterations: int  #: how many steps were taken
    stopped: str  #: "gap", "iterations" or "stalled", as in a `Design`


def multiplied(pi: FloatArray, g: FloatArray, doublings: int = 0) -> FloatArray:
    """The multiplicative step: pi times g to the power 2^doublings, scaled so that an agent's weights sum to 1.

    Only power 1 is sure not to lower F. An agent all of whose g are 0 stays where it is.

    >>> multiplied(np.array([[0.5], [0.5]]), np.array([[1.0], [3.0]]))
    array([[0.25],
           [0.75]])
    """
    raised = g + TINY_G
    for _ in range(doublings):
        raised *= raised
    raised *= pi
    raised /= np.add.reduce(raised)
    return raised


def cost_factor(size: int) -> float:
    """How many times more multiplicative steps a second-order step with `size` unknowns must save than a small one."""
    return max(1.0, size / _SMALL_SYSTEM) ** 2


def still_good(solver: Solver, pi: FloatArray, target: float) -> Climb | None:
    """An earlier design as it is, if it still meets the gap `target`; else None.

    Where an arm has lost a dimension its g is infinite, so that the gap is not met.
    """
    try:
        information, g = solver.evaluate(pi)
    except np.linalg.LinAlgError:
        return None
    left = gap_of(pi, g)
    if left > target or is_singular(information):
        return None
    return Climb(pi, max(left, 0.0), 0, "gap")


def is_singular(information: FloatArray) -> bool:
    """Whether some arm has lost a dimension. The inverse and g are then noise, even if they were computed."""
    return bool(np.linalg.eigvalsh(information).min() < SINGULAR)


def climb(solver: Solver, pi: FloatArray, target: float, max_iterations: int, done: int = 0) -> Climb:
    """Step from pi > 0 until the gap is at most `target`.

    Multiplicative steps cost little and soon come near the optimum. From there interior-point steps finish, if the
    solver has them.

    Args:
        solver: the problem; with interior-point steps unless it is too large for them.
        pi: where to start, (K, M).
        target: the gap to reach.
        max_iterations: how many steps may be taken in all.
        done: how many steps were taken before.
    """
    information, g = solver.evaluate(pi)
    newton: InteriorPoint | None = None  # the solver, once second-order steps have begun
    met, rejected = False, 0
    for iteration in range(done, max_iterations + 1):
        left = gap_of(pi, g)
        if left <= target:
            sparse = _sparse(solver, pi, information, g, target)
            if sparse or met or newton is None:
                pi, left = sparse or (pi, left)
                return Climb(pi, max(left, 0.0), iteration, "gap")
            met = True  # after one more second-order step there is room to drop weights
        if rejected >= PATIENCE:
            return Climb(pi, left, iteration, "stalled")
        if iteration == max_iterations:
            break
        if newton is None and isinstance(solver, InteriorPoint) and _time_for_newton(solver, iteration, left, target):
            newton = solver
            pi = newton.begin(pi, g)
        try:
            candidate = newton.step(pi, information, g, target) if newton else multiplied(pi, g, iteration % DOUBLINGS)
            ahead = solver.evaluate(candidate)
            rose = _rose(pi, information, candidate, *ahead)
        except np.linalg.LinAlgError:
            rose = False
        rejected = 0 if rose else rejected + 1
        if not rose:
            candidate = multiplied(pi, g)  # this step never lowers F
            ahead = solver.evaluate(candidate)
        pi, (information, g) = candidate, ahead
    return Climb(pi, left, max_iterations, "iterations")


def _time_for_newton(solver: InteriorPoint, iteration: int, left: float, target: float) -> bool:
    """Whether second-order steps begin now: only after a step with power 1, and after a whole round of doublings."""
    if iteration <= 1 or iteration % DOUBLINGS != 1:
        return False
    factor = cost_factor(solver.unknowns)
    return iteration >= _FIRST_ORDER_STEPS * factor or left > _SWITCH_EARLY_ABOVE * factor * target


def _rose(
    pi: FloatArray, information: FloatArray, candidate: FloatArray, ahead: FloatArray, g_ahead: FloatArray
) -> bool:
    """Whether F is at least as high at `candidate` as at pi.

    F is concave: if it still climbs at the candidate, in the direction of the step, it has risen all the way.
    """
    climbs = g_ahead.ravel().dot((candidate - pi).ravel()) >= 0
    return bool(climbs) or log_det(ahead) >= log_det(information)


def _sparse(
    solver: Solver, pi: FloatArray, information: FloatArray, g: FloatArray, target: float
) -> tuple[FloatArray, float] | None:
    """Weights without those that vanish at the optimum, and their gap; None if this misses the gap or lowers F.

    Fewer pairs mean fewer pulls lost to rounding up and fewer scalars to send. A weight vanishes at the optimum where
    its g stays below the agent's largest: small weights with much to spare go.
    """
    moved = multiplied(pi, g)
    worth, most = np.vdot(pi, g) / pi.shape[1], g.max(0)
    for share in DROPS:
        candidate = np.where(pi * worth >= share * (most - g), moved, 0.0)
        candidate /= candidate.sum(0)
        try:
            ahead, g_ahead = solver.evaluate(candidate)
        except np.linalg.LinAlgError:  # the weights that are left do not span the arm
            continue
        after = gap_of(candidate, g_ahead)
        if after <= target and not is_singular(ahead) and _rose(pi, information, candidate, ahead, g_ahead):
            return candidate, after
    return None
