"""The estimates and widths of phased elimination, each written once, as pure functions of arrays."""

from typing import NamedTuple

import numpy as np

from fedbandit_agents.phased.design_problem import RANK_TOLERANCE, coordinates_jointly, invert
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray, row_groups
from fedbandit_envs.joint import Jointly, alone, sum_jointly
from fedbandit_envs.protocol.pull_tables import places
from fedbandit_envs.ties import first_largest, rounding

_TINY = np.finfo(np.float64).tiny
#: A sum of e e^T is inverted at once up to this ratio of its eigenvalues; beyond, its span is found first.
CLEARLY_REGULAR = 1e9
#: A matrix, scaled so that its eigenvalues sum to 1, has full rank if their product exceeds this.
CLEARLY_FULL = 1e-12
#: The length, in units of psi, of an estimate that should be zero and must still show its direction.
NOTHING = 1e-100

#: An estimate is along a direction if the square of their cosine is at least 1 - this.
SAME_DIRECTION = 1e-9


class Estimates(NamedTuple):
    """What the server tells all agents after a phase. Where all arms share one theta, K is 1 here."""

    theta: FloatArray  #: (K, d) the estimate of each theta_a
    V: FloatArray  #: (K, d, d) V_a = (sum_i f e e^T)^+, from which agents compute widths
    known: BoolArray  #: (K,) the arms about which the server has heard anything


def local_estimate(mean_rewards: FloatArray, psi: FloatArray, squares: FloatArray) -> FloatArray:
    """theta_{a,i} = (mean reward) psi / ||psi||^2, (n, K, d): the estimates that agents send.

    The server reads the direction of psi off an estimate. An estimate of zero therefore becomes a tiny one.

    Args:
        mean_rewards: the mean reward of each agent and arm, (n, K).
        psi: the expected features, (n, K, d).
        squares: ||psi||^2, (n, K).

    >>> local_estimate(np.array([[2.0]]), np.array([[[0.5, 0.0]]]), np.array([[0.25]]))
    array([[[4., 0.]]])
    """
    scale = mean_rewards / squares
    return np.where(scale == 0, NOTHING, scale)[..., None] * psi


def unit_vectors(vectors: FloatArray) -> FloatArray:
    """e = v / ||v|| along the last axis; the vector 0 stays 0.

    The largest entry is taken out first, because the square of a tiny estimate would be 0.

    >>> unit_vectors(np.array([[3e-200, 4e-200], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    defined = largest > 0
    if np.count_nonzero(defined) == defined.size:
        scaled = vectors / largest
    else:
        scaled = np.divide(vectors, largest, out=np.zeros(vectors.shape), where=defined)
    norms = np.sqrt(np.einsum("...d,...d->...", scaled, scaled))[..., None]
    return np.divide(scaled, norms, out=scaled, where=norms > 0)


def lengths_and_turns(
    theta: FloatArray, directions: FloatArray, squares: FloatArray | float = 1.0
) -> tuple[FloatArray, BoolArray]:
    """||theta||^2 (n, K), and whether an estimate is not along the direction of the agent's first one, (n, K).

    Args:
        theta: the estimates, (n, K, d).
        directions: the directions, (n, K, d).
        squares: the squared lengths of the directions, (n, K); 1 stands for unit vectors.

    >>> theta = np.array([[[-2.0, 0.0], [1.0, 1.0]]])
    >>> lengths_and_turns(theta, np.array([[[1.0, 0.0], [1.0, 0.0]]]))
    (array([[4., 2.]]), array([[False,  True]]))
    """
    with np.errstate(over="ignore", invalid="ignore"):  # an estimate can be anything
        lengths = np.einsum("nad,nad->na", theta, theta)
        products = np.square(np.einsum("nad,nad->na", theta, directions))
        return lengths, np.asarray(products < (1 - SAME_DIRECTION) * lengths * squares)


def aggregate(theta: FloatArray, directions: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """theta_a = V_a sum_i w theta_{a,i} (K, d) and V_a = (sum_i w e e^T)^+ (K, d, d), the server's estimates.

    Args:
        theta: the estimates theta_{a,i} of n agents, (n, K, d).
        directions: e_{a,i}, (n, K, d).
        weights: w, the pulls behind each estimate, (n, K); 0 leaves an estimate out.

    >>> ones = np.ones((2, 1, 1))
    >>> aggregate(np.array([[[1.0]], [[4.0]]]), ones, np.array([[2.0], [1.0]]))[0]  # (2 * 1 + 1 * 4) / 3
    array([[2.]])
    """
    return alone(aggregate_jointly(theta, directions, weights))


def aggregate_jointly(
    theta: FloatArray, directions: FloatArray, weights: FloatArray
) -> Jointly[tuple[FloatArray, FloatArray]]:
    """The part of `aggregate` for n agents of all: the arrays have a row for each of them."""
    V = yield from _inverse_jointly(directions, weights)
    total = yield from sum_jointly(lambda rows: np.vecmat(weights[rows].T, theta[rows].transpose(1, 0, 2)), len(theta))
    return np.matvec(V, total), V


def inverse_on_span(directions: FloatArray, weights: FloatArray) -> FloatArray:
    """V_a = (sum_i weights_{a,i} e e^T)^+ (K, d, d), from directions (M, K, d) and weights (M, K).

    Its range is the span of the directions with positive weight, by `RANK_TOLERANCE`, however unequal the weights are.

    >>> inverse_on_span(np.array([[[1.0, 0.0]]]), np.array([[4.0]]))
    array([[[0.25, 0.  ],
            [0.  , 0.  ]]])
    """
    return alone(_inverse_jointly(directions, weights))


def _inverse_jointly(directions: FloatArray, weights: FloatArray) -> Jointly[FloatArray]:
    """The part of `inverse_on_span` for n agents of all."""

    def gram(rows: slice) -> FloatArray:
        arms_first = directions[rows].transpose(1, 2, 0)  # (K, d, rows)
        return np.asarray((arms_first * weights[rows].T[:, None, :]) @ arms_first.transpose(0, 2, 1))

    total = yield from sum_jointly(gram, len(directions))
    traces = total.trace(axis1=1, axis2=2)
    unheard = (traces == 0).nonzero()[0]
    if len(unheard):
        total = total.copy()  # what comes from another process is read-only
        total[unheard] = np.eye(total.shape[1])
    try:
        inverse = invert(total)
        inverse[unheard] = 0
        entries = inverse.reshape(len(inverse), -1)
        # The trace of a matrix times the norm of its inverse is more than the ratio of its eigenvalues.
        if np.maximum.reduce(traces**2 * np.vecdot(entries, entries)) < CLEARLY_REGULAR**2:
            return inverse
    except np.linalg.LinAlgError:
        pass
    found = yield from coordinates_jointly(directions, weights > 0)
    information = found.base + (yield from found.gram_jointly(directions, weights > 0, weights.T))
    return found.basis @ invert(information) @ found.basis.transpose(0, 2, 1)


def predictions(psi: FloatArray, theta: FloatArray) -> FloatArray:
    """r = psi^T theta_a (n, K), the predicted mean rewards, from psi (n, K, d) and theta (K or 1, d)."""
    return inner_products(psi, theta)


def eliminated(
    psi: FloatArray, estimates: Estimates, scale: float, active: BoolArray, best: IntArray
) -> tuple[BoolArray, IntArray]:
    """The `survivors` by predictions r = psi^T theta_a and widths u = scale ||psi||_{V_a}.

    Args:
        psi: the expected features, (n, K, d).
        estimates: what the server says about the arms.
        scale: the factor on the widths.
        active: the active sets before, (n, K).
        best: the best arms before, (n,).

    Returns:
        The active sets (n, K) and the best arms (n,) after.
    """
    if (active.shape, best.shape) != (psi.shape[:2], psi.shape[:1]):
        raise ValueError(
            f"active: expected {psi.shape[:2]} arms, {psi.shape[:1]} best, got {active.shape}, {best.shape}"
        )
    left, found = np.empty_like(active), np.empty_like(best)
    for rows in row_groups(len(psi)):
        r, u = predictions(psi[rows], estimates.theta), scale * np.sqrt(squared_widths(psi[rows], estimates.V))
        left[rows], found[rows] = survivors(r, u, active[rows], estimates.known, best[rows])
    return left, found


def survivors(
    r: FloatArray, u: FloatArray, active: BoolArray, known: BoolArray, best: IntArray
) -> tuple[BoolArray, IntArray]:
    """A_i^p = {a : r_a + u_a >= r_best - u_best}, the active arms that are left (n, K), and the best of them (n,).

    Both comparisons follow the rule of `fedbandit_envs.ties`: what is equal but for rounding counts as equal. An
    estimate can be a sum of large terms that cancel, so that the widths count as magnitudes, too.
    An arm may be unknown because the reports of all its explorers were lost. Such an arm is neither best nor
    eliminated. An agent that knows none of its active arms keeps the best arm it had.

    Args:
        r: the predicted mean rewards, (n, K).
        u: the widths, (n, K).
        active: the active sets before, (n, K).
        known: the arms about which the server has heard anything, (K,) or (1,).
        best: the best arms before, (n,).

    >>> r, u, active = np.array([[1.0, 0.9, 0.1]]), np.array([[0.2, 0.2, 0.2]]), np.ones((1, 3), dtype=bool)
    >>> survivors(r, u, active, np.ones(3, dtype=bool), np.array([2]))
    (array([[ True,  True, False]]), array([0]))
    """
    every = np.count_nonzero(known) == known.size
    candidates = active if every else active & known
    tolerance = rounding(np.where(candidates, np.abs(r) + np.where(np.isfinite(u), u, 0), 0))
    found = first_largest(np.where(candidates, r, -np.inf), tolerance)
    if not every:
        found = np.where(candidates.any(axis=1), found, best)
    where = places(found, r.shape[1])
    kept = r + u >= (r.take(where) - u.take(where) - tolerance)[:, None]
    return active & (kept if every else kept | ~known), found


def inner_products(left: FloatArray, right: FloatArray) -> FloatArray:
    """left^T right along the last axis.

    The sum runs dimension by dimension, since d is small. No row can then depend on how many other rows there are.

    >>> inner_products(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    np.float64(11.0)
    """
    total = left[..., 0] * right[..., 0]
    for axis in range(1, left.shape[-1]):
        total += left[..., axis] * right[..., axis]
    return total


def quadratic_forms(psi: FloatArray, V: FloatArray) -> FloatArray:
    """psi^T V_a psi (n, K), from psi (n, K, d) and symmetric V (K or 1, d, d).

    The sum runs dimension by dimension, as in `inner_products`.

    >>> quadratic_forms(np.array([[[1.0, 2.0]]]), np.array([[[1.0, 0.5], [0.5, 2.0]]]))  # 1 + 2 * 0.5 * 2 + 2 * 4
    array([[11.]])
    """
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
    """||psi||_V^2 (n, K); infinite where psi leaves the range of V, since nothing is known outside it.

    >>> squared_widths(np.array([[[1.0, 0.0]], [[0.0, 1.0]]]), np.array([[[0.25, 0.0], [0.0, 0.0]]]))
    array([[0.25],
           [ inf]])
    """
    squares = np.maximum(quadratic_forms(psi, V), 0)
    outside = outside_range(psi, V)
    return squares if outside is None else np.where(outside, np.inf, squares)


def outside_range(psi: FloatArray, V: FloatArray) -> BoolArray | None:
    """Whether psi leaves the range of V_a, (n, K): ||(I - V V^+) psi|| > RANK_TOLERANCE ||psi||.

    None stands for nowhere: every V_a (K or 1, d, d) has full rank.
    """
    # Off its range V is 0 but for rounding. On its range, very unequal pulls make the eigenvalues very unequal. Scaled
    # to the sum 1, their product is less than the ratio of the least to the largest: mostly it tells at once.
    traces = V.trace(axis1=1, axis2=2)
    empty = traces == 0  # arms about which nothing is known
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
