"""The multi-agent design problem in good coordinates: information matrices, variances g, and the gap that proves.

F(pi) = sum_a log det V_a(pi) with V_a = sum_i pi_{a,i} x_{a,i} x_{a,i}^T is to be raised, over weights pi whose sum is
1 for each agent. In all arrays the arms come first and the agents last: a product over agents then runs along
contiguous memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray, row_groups
from fedbandit_envs.joint import Joint, Jointly, alone, joined, sum_jointly, summed

#: A set of vectors spans a direction when its singular value there exceeds this share of the largest one.
RANK_TOLERANCE = 1e-6
#: Vectors are well spread when det V exceeds this share of its value for equal eigenvalues with the same sum. The
#: eigenvalues then differ by a factor of some thousands at most.
WELL_SPREAD = 1e-4
# An eigenvalue above this share of the largest one surely counts for the rank.
_CLEAR = 1e-8
# An eigenvalue below this share of the largest one surely does not count for the rank.
_ZERO = 1e-15
# Up to this many pairs of arm and agent, leaving out the settled agents costs more than it saves.
_FEW_PAIRS = 2048


def invert(matrices: FloatArray) -> FloatArray:
    """The inverses (..., d, d) of `matrices`; numpy's own function has a less precise type."""
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64)


@dataclass(frozen=True)
class Problem:
    """A design problem in coordinates where the unweighted vectors of each group are spread over all dimensions.

    A linear map of a group's vectors changes F by a constant and g not at all. In these coordinates vectors that are
    nearly collinear, or that do not span the space, do no harm. A group is one arm, or all arms when theta is shared.
    """

    x: FloatArray  #: (K, d, M) coordinates, 0 for inactive pairs and outside the span
    active: BoolArray  #: (K, M) the pairs of arm and agent that may have weight
    #: (K, d, d), or (1, d, d) if shared: the part of V that no weight changes. It comes from agents with one active
    #: arm; off the span it is the identity.
    base: FloatArray

    @property
    def shared(self) -> bool:
        """Whether all arms have one matrix V."""
        return len(self.base) < len(self.x)

    def information(self, pi: FloatArray) -> FloatArray:
        """V (groups, d, d) at the weights pi (K, M)."""
        gram = (self.x * pi[:, None, :]) @ self.x.transpose(0, 2, 1)
        return self.base + (gram.sum(0, keepdims=True) if self.shared else gram)

    def variances(self, inverse: FloatArray) -> FloatArray:
        """g (K, M): x^T V^-1 x of each pair, from the inverses (groups, d, d)."""
        return np.asarray(((inverse @ self.x) * self.x).sum(1))

    def evaluate(self, pi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """V (groups, d, d) and g (K, M) at the weights pi (K, M)."""
        information = self.information(pi)
        return information, self.variances(invert(information))


@dataclass(frozen=True)
class Coordinates:
    """Good coordinates x = basis^T e for the directions of each group of a design problem."""

    basis: FloatArray  #: (groups, d, d) an orthogonal column for each dimension of the span, scaled
    ranks: IntArray  #: (groups,) the dimension of the span
    base: FloatArray  #: (groups, d, d) the identity off the span, 0 on it
    scale: FloatArray | None  #: (K, 1, 1) the basis is this multiple of the identity; None: it is another one

    def of(self, directions: FloatArray, active: BoolArray) -> FloatArray:
        """The coordinates (K, d, n) of n agents, from directions (n, K, d) and active arms (n, K), others being 0."""
        raw = _arms_first(directions, active)
        return raw * self.scale if self.scale is not None else np.asarray(self.basis.transpose(0, 2, 1) @ raw)

    def gram_jointly(self, directions: FloatArray, active: BoolArray, weights: FloatArray) -> Jointly[FloatArray]:
        """sum_i weights x x^T (groups, d, d) over all agents, with weights (K, n) for the n of these arrays."""

        def part(rows: slice) -> FloatArray:
            x = self.of(directions[rows], active[rows])
            return np.asarray((x * weights[:, None, rows]) @ x.transpose(0, 2, 1))

        total = yield from sum_jointly(part, len(directions))
        return total.sum(0, keepdims=True) if len(self.base) < len(total) else total


def coordinates(directions: FloatArray, active: BoolArray, shared: bool = False) -> Coordinates:
    """Good coordinates for some directions; those that are well spread anyway are only scaled.

    Args:
        directions: e_{a,i}, (M, K, d).
        active: which arms each agent may pull, (M, K).
        shared: whether all arms are one group, because they have a common theta.

    >>> found = coordinates(np.array([[[3.0, 0.0]]]), np.ones((1, 1), dtype=bool))
    >>> found.ranks, found.of(np.array([[[3.0, 0.0]]]), np.ones((1, 1), dtype=bool)).ravel()
    (array([1]), array([0., 1.]))
    """
    return alone(coordinates_jointly(directions, active, shared))


def coordinates_jointly(directions: FloatArray, active: BoolArray, shared: bool = False) -> Jointly[Coordinates]:
    """The `coordinates` of the directions of all agents, from those of n agents, (n, K, d)."""

    def gram_of(rows: slice) -> FloatArray:
        raw = _grouped(directions[rows], active[rows], shared)
        return np.asarray(raw @ raw.transpose(0, 2, 1))

    d, gram = directions.shape[2], (yield from sum_jointly(gram_of, len(directions)))
    if not shared:
        mean_eigenvalue = gram.trace(axis1=1, axis2=2) / d
        unused = mean_eigenvalue == 0
        base = np.eye(d) * unused[:, None, None]
        if np.logical_and.reduce(np.linalg.det(gram + base) > WELL_SPREAD * mean_eigenvalue**d):
            scale = (~unused / np.sqrt(mean_eigenvalue + unused))[:, None, None]
            return Coordinates(np.eye(d) * scale, d * ~unused, base, scale)
    axes, values, ranks = yield from _span_jointly(gram, directions, active, shared)
    outside = values == 0
    return Coordinates(axes / np.sqrt(values + outside)[:, None, :], ranks, np.eye(d) * outside[:, None, :], None)


def _arms_first(directions: FloatArray, active: BoolArray) -> FloatArray:
    """Directions as (K, d, n), 0 for inactive pairs."""
    return directions.transpose(1, 2, 0) * active.T[:, None, :]


def _grouped(directions: FloatArray, active: BoolArray, shared: bool) -> FloatArray:
    """The vectors of each group as columns, (groups, d, n), or (1, d, K n) if all arms are one group."""
    raw = _arms_first(directions, active)
    return raw.transpose(1, 0, 2).reshape(1, raw.shape[1], -1) if shared else raw


def _span_jointly(
    gram: FloatArray, directions: FloatArray, active: BoolArray, shared: bool
) -> Jointly[tuple[FloatArray, FloatArray, IntArray]]:
    """Orthonormal bases (groups, d, d), squared singular values (groups, d) and ranks (groups,) of groups of vectors.

    The Gram matrix tells the span cheaply, unless a singular value comes near the tolerance: squares lose half of the
    digits. A group with such a value is decomposed a second time, by its singular values. Columns and values outside
    the span are 0.
    """
    values, axes = np.linalg.eigh(gram)
    largest = values[:, -1:]
    if np.logical_and.reduce(values > _CLEAR * largest, axis=None):
        return axes, values, np.full(len(values), values.shape[1])
    near = (values < _CLEAR * largest) & (values > _ZERO * largest)
    for group in np.flatnonzero(near.any(1)):
        arms = slice(None) if shared else slice(group, group + 1)
        left, singular = yield Joint(_decomposed, iter([(directions[:, arms], active[:, arms])]), (shared,))
        axes[group], values[group] = 0.0, 0.0
        axes[group, :, : len(singular)], values[group, : len(singular)] = left, singular**2
    kept = values > RANK_TOLERANCE**2 * values.max(1, keepdims=True)
    return axes * kept[:, None, :], values * kept, kept.sum(1)


def _decomposed(parts: Iterable[tuple[FloatArray, BoolArray]], shared: bool) -> tuple[FloatArray, FloatArray]:
    """The left singular vectors and the singular values of one group of vectors."""
    directions, active = map(joined, zip(*parts, strict=True))
    (vectors,) = _grouped(directions, active, shared)
    left, singular, _ = np.linalg.svd(vectors, full_matrices=False)
    return left, singular


def whiten(directions: FloatArray, active: BoolArray, shared: bool = False) -> tuple[Problem, IntArray, FloatArray]:
    """The design problem of all agents in good `coordinates`, the rank of each group (groups,), and the bases.

    >>> problem, ranks, _ = whiten(np.array([[[1.0, 0.0]], [[1.0, 0.0]]]), np.ones((2, 1), dtype=bool))
    >>> ranks
    array([1])
    """
    found = coordinates(directions, active, shared)
    return Problem(found.of(directions, active), active.T.copy(), found.base), found.ranks, found.basis


class Choice(NamedTuple):
    """The agents with a choice among those of one part of a design problem, and what is known of all agents."""

    coordinates: Coordinates  #: those of all agents
    anybody: bool  #: whether there is an agent with a choice among all
    agents: IntArray  #: (m,) the rows of those of this part
    base: FloatArray  #: (groups, d, d) the part of V that no weight changes
    x: FloatArray | None  #: (m, K, d) their coordinates; None: nobody is left out, and none are made yet


def settle_jointly(directions: FloatArray, active: BoolArray, shared: bool = False) -> Jointly[Choice]:
    """Settle the agents without a choice: one with one active arm gives it all its weight.

    Its share of V goes into `base`. Where this would save little the settled agents stay among those with a choice, and
    no step moves them. Coordinates are made group by group of agents, and kept for those alone who have a choice.

    Args:
        directions: e_{a,i} of n agents, (n, K, d).
        active: which arms each of them may pull, (n, K).
        shared: whether all arms are one group, because they have a common theta.
    """
    found = yield from coordinates_jointly(directions, active, shared)
    free = np.add.reduce(active, axis=1) > 1
    agents = free.nonzero()[0]
    everybody, choosing = yield Joint(summed, iter([np.array([len(free), len(agents)])]))
    if not choosing:
        return Choice(found, False, agents, found.base, None)
    if choosing == everybody or everybody * active.shape[1] <= _FEW_PAIRS:
        return Choice(found, True, agents, found.base, None)
    weights = np.where(free, 0.0, active.T.copy())
    base = found.base + (yield from found.gram_jointly(directions, active, weights))
    groups = row_groups(len(free))
    x = joined(found.of(directions[rows], active[rows])[:, :, free[rows]].transpose(2, 0, 1) for rows in groups)
    return Choice(found, True, agents, base, x)


def put_together(
    vectors: FloatArray, active: BoolArray, base: FloatArray, coordinates: Coordinates | None
) -> tuple[Problem, IntArray]:
    """The design problem of all agents with a choice, and the numbers of its arms.

    Args:
        vectors: their coordinates, (m, K, d), or directions.
        active: their active arms, (m, K).
        base: the part of V that no weight changes, (groups, d, d).
        coordinates: what makes coordinates of directions; None: `vectors` are coordinates.
    """
    if coordinates is not None:
        return Problem(coordinates.of(vectors, active), active.T.copy(), base), np.arange(active.shape[1])
    x, chosen = vectors.transpose(1, 2, 0), active.T
    arms = np.logical_or.reduce(chosen, axis=1).nonzero()[0]
    if len(arms) < len(x):
        x, chosen, base = x[arms], chosen[arms], base if len(base) < len(x) else base[arms]
    return Problem(x, chosen, base), arms


def gap_of(pi: FloatArray, g: FloatArray) -> float:
    """The gap G - D of weights pi (K, M) with variances g (K, M), for the agents of these arrays.

    >>> gap_of(np.array([[0.5], [0.5]]), np.array([[1.0], [3.0]]))  # 3 - (0.5 * 1 + 0.5 * 3)
    1.0
    """
    # The ufuncs' own reductions take half the time of the arrays' methods.
    return float(np.add.reduce(np.maximum.reduce(g)) - pi.ravel().dot(g.ravel()))


def log_det(information: FloatArray) -> float:
    """F at V (groups, d, d), up to a constant that depends on the coordinates alone.

    >>> log_det(np.array([np.eye(2), np.eye(2)]))
    0.0
    """
    return float(np.linalg.slogdet(information)[1].sum())
