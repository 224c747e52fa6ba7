"""The multi-agent G-optimal design of phased elimination, always with its certificate.

Minimise G(pi) = sum_i max_{a in A_i} g_{a,i}, where g_{a,i} = e^T V_a^+ e and V_a = sum_j pi_{a,j} e_{a,j} e_{a,j}^T,
over weights pi that sum to 1 on the active arms of each agent. This is the same as maximising F = sum_a log det V_a on
the span of each arm's directions. Let D be the sum of the ranks. Then sum pi g = D for every pi, G = D at the optimum,
and 0 <= F* - F <= G - D: the gap G - D proves how good a design is, whoever found it.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from fedbandit_agents.phased.design_climb import WARM_SHARE, climb, cost_factor, still_good
from fedbandit_agents.phased.design_problem import Coordinates, coordinates_jointly, put_together, settle_jointly
from fedbandit_agents.phased.interior_point import InteriorPoint, unknowns
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.joint import Joint, Jointly, alone, joined
from fedbandit_envs.threads import one_thread
from fedbandit_envs.ties import JUST_WHOLE
from fedbandit_envs.validation import needs

# Compiled multiplicative steps cost some hundredths of a second-order step, so that more of them are worth while.
_FIRST_ORDER_STEPS_COMPILED = 201
# A second-order step has at most this many unknowns; beyond, all steps are multiplicative.
_LARGEST_SYSTEM = 3000
# A pair of agent and arm that is due fewer pulls than this gets none.
_DROPPED = 1e-10


@dataclass(frozen=True)
class Design:
    """How each agent spreads its pulls over its arms, and the proof of how good that is.

    `g_optimal` makes designs, and `allocate` makes whole pulls of them.
    """

    pi: FloatArray  #: (M, K) the share of each arm: rows sum to 1 over the active arms and are 0 elsewhere
    gap: float  #: G - D, which bounds how far F is from its maximum F*: 0 <= F* - F <= gap
    dimension: int  #: D, the sum of the ranks: this is sum pi g, and the least possible G
    iterations: int  #: how many steps were taken
    stopped: str  #: why: "trivial" (no choice), "gap" (it is met), "iterations", or "stalled" (rounding forbids more)


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
    """Find a design whose gap G - D is proved to be at most `gap`.

    Args:
        directions: e_{a,i}, (M, K, d); they need not have norm 1.
        active: the arms that each agent may pull, (M, K); at least one for every agent.
        gap: the gap at which to stop; 0.1 is usual, and about 1e-7 is the least that can be proved.
        start: the `pi` (M, K) of an earlier design, from which to start. It is cut down to the active sets, and
            returned as it is if it still meets the gap.
        shared: whether all arms have one matrix V, because they have a common theta.
        max_iterations: how many steps may be taken; a design that stops there may miss the gap.
        compiled: whether the first-order steps run in code compiled by numba, which is faster and rounds differently.

    >>> directions = np.array([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    >>> design = g_optimal(directions, np.ones((2, 2), dtype=bool))
    >>> design.pi, design.dimension
    (array([[0.5, 0.5],
           [0.5, 0.5]]), 4)
    """
    if not compiled:
        return alone(g_optimal_jointly(directions, active, gap, start, shared, max_iterations))
    _check(directions, active, gap, start, max_iterations)
    begun = _compiled_begin(directions, active, gap, start, shared, max_iterations)
    if begun.stopped != "iterations":
        return begun
    design = alone(_climbed_jointly(directions, active, gap, begun.pi, shared, max_iterations, begun.iterations))
    if design.stopped != "stalled":
        return design
    # Hundreds of first-order steps can end too near the boundary for second-order ones: climb anew without them.
    again = alone(_climbed_jointly(directions, active, gap, start, shared, max_iterations))
    return again if again.gap <= design.gap else design


def g_optimal_jointly(
    directions: FloatArray,
    active: BoolArray,
    gap: float,
    start: FloatArray | None,
    shared: bool = False,
    max_iterations: int = 10_000,
) -> Jointly[Design]:
    """The part of `g_optimal` for n agents of all: the arrays, and the pi it finds, have a row for each of them."""
    _check(directions, active, gap, start, max_iterations)
    return (yield from _climbed_jointly(directions, active, gap, start, shared, max_iterations))


def _climbed_jointly(
    directions: FloatArray,
    active: BoolArray,
    gap: float,
    start: FloatArray | None,
    shared: bool,
    max_iterations: int,
    done: int | None = None,
) -> Jointly[Design]:
    """The design that numpy's climb finds: from `start` if given, else from equal shares.

    After `done` steps of another climb, `start` is where that one ended; None: there was none.
    """
    choice = yield from settle_jointly(directions, active, shared)
    dimension, agents = int(np.add.reduce(choice.coordinates.ranks)), choice.agents
    if not choice.anybody:
        return Design(uniform(active), 0.0, dimension, 0, "trivial")
    everybody = choice.x is None
    if choice.x is None:
        part, makes = (directions, active, start), choice.coordinates
    else:
        part, makes = (choice.x, active[agents], None if start is None else start[agents]), None
    joint = Joint(_solved, iter([part]), (choice.base, makes, gap, max_iterations, done), each=True)
    del choice, part  # the coordinates are not needed beside their products
    ((pi, left, iterations, stopped),) = yield joint
    if not everybody:
        found, pi = pi, uniform(active)
        pi[agents] = found
    return Design(pi, left, dimension, iterations, stopped)


class _Solved(NamedTuple):
    """What a climb found for the agents of one part."""

    pi: FloatArray  # (m, K)
    gap: float
    iterations: int
    stopped: str


def _solved(
    parts: Iterable[tuple[FloatArray, BoolArray, FloatArray | None]],
    base: FloatArray,
    coordinates: Coordinates | None,
    gap: float,
    max_iterations: int,
    done: int | None,
) -> list[_Solved]:
    """Solve the design of all agents that have a choice, and split it into parts again.

    Args:
        parts: vectors (m, K, d) and active arms (m, K) of the agents, as `put_together` takes them, and the design
            (m, K) to start from.
        base: as `put_together` takes it.
        coordinates: as `put_together` takes it.
        gap: the gap at which to stop.
        max_iterations: how many steps may be taken.
        done: how many steps have led to the start; None: it is an earlier design, which may still be good.
    """
    vectors, actives, starts = zip(*parts, strict=True)
    active, sizes = joined(actives), [len(part) for part in actives]
    problem, arms = put_together(joined(vectors), active, base, coordinates)
    chosen = np.ix_(np.arange(len(active)), arms)
    start = None if starts[0] is None else joined(starts)[chosen].T
    del vectors, starts
    solver = InteriorPoint(problem) if unknowns(*problem.base.shape[:2]) <= _LARGEST_SYSTEM else problem
    movable = problem.active
    del problem  # its coordinates are not needed beside their products
    weights = uniform(active)[chosen].T.copy()  # (arms, agents)
    found = None
    if done is not None and start is not None:
        weights = start.copy()
    elif start is not None:
        kept = _cut_down(start * movable, weights)
        found = still_good(solver, kept, gap)
        weights = (1 - WARM_SHARE) * kept + WARM_SHARE * weights
        del kept  # a climb takes much memory of its own
    del start
    if found is None:
        with one_thread:
            found = climb(solver, weights, gap, max_iterations, done or 0)
    del solver
    pi = np.zeros(active.shape)
    pi[chosen] = found.pi.T
    rows = zip(sizes, accumulate(sizes), strict=True)
    return [_Solved(pi[end - size : end], found.gap, found.iterations, found.stopped) for size, end in rows]


def _compiled_begin(
    directions: FloatArray, active: BoolArray, gap: float, start: FloatArray | None, shared: bool, max_iterations: int
) -> Design:
    """The design after as many compiled first-order steps as are worth while; it may not meet the gap yet."""
    size = unknowns(1 if shared else directions.shape[1], directions.shape[2])
    limit = max_iterations if size > _LARGEST_SYSTEM else int(_FIRST_ORDER_STEPS_COMPILED * cost_factor(size))
    return Design(*_first_order()(directions, active, gap, start, shared, min(limit, max_iterations)))


@lru_cache(maxsize=1)
def _first_order() -> Callable[..., tuple[FloatArray, float, int, int, str]]:
    """The compiled climb; imported when it is first needed, because numba takes long to import and then to compile."""
    needs("numba", extra="compiled", instead="leave compiled out")
    from fedbandit_agents.phased.design_compiled import first_order

    return first_order


def _cut_down(kept: FloatArray, evenly: FloatArray) -> FloatArray:
    """An earlier design `kept` (arms, agents), 0 off the active sets, with columns that sum to 1 again.

    `kept` is overwritten. An agent with nothing left gets its column of `evenly`.
    """
    total = np.add.reduce(kept)
    lost = total == 0  # agents none of whose earlier arms are still active
    kept /= total + lost
    kept += evenly * lost
    return kept


def uniform(active: BoolArray) -> FloatArray:
    """The design (M, K) that spreads the pulls of each agent evenly over its active arms.

    >>> uniform(np.array([[True, True, False]]))
    array([[0.5, 0.5, 0. ]])
    """
    return np.asarray(active / np.add.reduce(active, axis=1, keepdims=True))


def allocate(pi: FloatArray, budget: int, directions: FloatArray) -> IntArray:
    """The whole pulls (M, K) of a phase: ceil(pi budget (1 - 1e-9)), and 0 where less than 1e-10 is due.

    The factor makes the result the same on every CPU: pi budget is often a whole number but for its last bits, which
    differ between CPUs. A row sums to at most budget + |A_i|. The pairs that get no pull never cost an arm's V_a a
    dimension: where they would, they are pulled once.

    Args:
        pi: the shares of a design, (M, K).
        budget: f_p, the pulls that each agent has to spread.
        directions: e_{a,i}, (M, K, d).

    >>> allocate(np.array([[0.5, 0.5]]), 3, np.ones((1, 2, 1)))
    array([[2, 2]])
    """
    return alone(allocate_jointly(pi, budget, directions))


def allocate_jointly(pi: FloatArray, budget: int, directions: FloatArray) -> Jointly[IntArray]:
    """The part of `allocate` for n agents of all: the arrays have a row for each of them."""
    if budget < 0:
        raise ValueError(f"budget: expected 0 pulls or more, got {budget}")
    due = pi * budget
    pulls = np.ceil(due * JUST_WHOLE).astype(np.int64)
    small = (due > 0) & (due < _DROPPED)
    if not (yield Joint(any, iter([bool(np.count_nonzero(small))]))):
        return pulls
    pulls[small] = 0
    wanted = yield from coordinates_jointly(directions, due > 0)
    left = yield from coordinates_jointly(directions, pulls > 0)
    pulls[small & (left.ranks < wanted.ranks)] = 1
    return pulls


def _check(
    directions: FloatArray, active: BoolArray, gap: float, start: FloatArray | None, max_iterations: int
) -> None:
    if directions.ndim != 3 or 0 in directions.shape:
        raise ValueError(
            f"directions: expected shape (agents, arms, dimensions), none of them 0, got {directions.shape}"
        )
    if active.shape != directions.shape[:2] or active.dtype != np.bool_:
        raise ValueError(
            f"active: expected booleans of shape {directions.shape[:2]}, as directions, got {active.dtype} of shape "
            f"{active.shape}"
        )
    if np.count_nonzero(np.logical_or.reduce(active, axis=1)) < len(active):
        without = int(np.flatnonzero(~active.any(1))[0])
        raise ValueError(
            f"active: expected an active arm for every agent, got none for agent {without}; "
            "leave agents without arms out of the design"
        )
    # The sum of squares mostly tells at once whether all numbers are finite; it can overflow.
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
