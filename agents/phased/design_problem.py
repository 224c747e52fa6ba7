"""The multi-agent design problem in good coordinates: information matrices, variances g, and the gap that proves.

F(pi) = sum_a log det V_a(pi) with V_a = sum_i pi_{a,i} x_{a,i} x_{a,i}^T is to be raised, over weights pi whose sum is
1 for each agent. In all arrays the arms come first and the agents last: a product over agents then runs along
contiguous memory.
"""

from dataclasses import dataclass

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray

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


def span(vectors: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """The spans of some groups of vectors.

    The Gram matrix tells the span cheaply, unless a singular value comes near the tolerance: squares lose half of the
    digits. A group with such a value is decomposed a second time, by its singular values.

    Args:
        vectors: the vectors of each group as columns, (groups, d, n).

    Returns:
        Orthonormal bases (groups, d, d), squared singular values (groups, d) and ranks (groups,). Columns and values
        outside the span are 0.

    >>> basis, squares, ranks = span(np.array([[[3.0, 0.0], [0.0, 0.0]]]))
    >>> squares, ranks
    (array([[0., 9.]]), array([1]))
    """
    values, axes = np.linalg.eigh(vectors @ vectors.transpose(0, 2, 1))
    largest = values[:, -1:]
    if np.logical_and.reduce(values > _CLEAR * largest, axis=None):
        return axes, values, np.full(len(values), values.shape[1])
    near = (values < _CLEAR * largest) & (values > _ZERO * largest)
    for group in np.flatnonzero(near.any(1)):
        left, singular, _ = np.linalg.svd(vectors[group], full_matrices=False)
        axes[group], values[group] = 0.0, 0.0
        axes[group, :, : len(singular)], values[group, : len(singular)] = left, singular**2
    kept = values > RANK_TOLERANCE**2 * values.max(1, keepdims=True)
    return axes * kept[:, None, :], values * kept, kept.sum(1)


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


def whiten(directions: FloatArray, active: BoolArray, shared: bool = False) -> tuple[Problem, IntArray, FloatArray]:
    """The design problem of some directions, in good coordinates.

    Vectors that are well spread anyway are only scaled.

    Args:
        directions: e_{a,i}, (M, K, d).
        active: which arms each agent may pull, (M, K).
        shared: whether all arms are one group, because they have a common theta.

    Returns:
        The problem, the rank of each group (groups,), and the bases (groups, d, d). A basis has one orthogonal column
        for each dimension of the span, scaled so that x = basis^T e.

    >>> problem, ranks, _ = whiten(np.array([[[1.0, 0.0]], [[1.0, 0.0]]]), np.ones((2, 1), dtype=bool))
    >>> ranks
    array([1])
    """
    mask = active.T  # (K, M)
    raw = directions.transpose(1, 2, 0) * mask[:, None, :]  # (K, d, M)
    d = raw.shape[1]
    if not shared:
        gram = raw @ raw.transpose(0, 2, 1)
        mean_eigenvalue = gram.trace(axis1=1, axis2=2) / d
        unused = mean_eigenvalue == 0
        base = np.eye(d) * unused[:, None, None]
        if np.logical_and.reduce(np.linalg.det(gram + base) > WELL_SPREAD * mean_eigenvalue**d):
            scale = (~unused / np.sqrt(mean_eigenvalue + unused))[:, None, None]
            return Problem(raw * scale, mask.copy(), base), d * ~unused, np.eye(d) * scale
    axes, values, ranks = span(raw.transpose(1, 0, 2).reshape(1, d, -1) if shared else raw)
    outside = values == 0
    basis = axes / np.sqrt(values + outside)[:, None, :]
    base = np.eye(d) * outside[:, None, :]
    return Problem(basis.transpose(0, 2, 1) @ raw, mask.copy(), base), ranks, basis


def settle(problem: Problem) -> tuple[Problem, IntArray, IntArray]:
    """The same problem over the agents that have a choice, with the numbers of its arms and of its agents.

    An agent with one active arm gives it all its weight: it is settled, and its share of V goes into `base`. Where this
    would save little the settled agents stay, and no step moves them. If nobody has a choice, no agents are returned.
    """
    free = np.add.reduce(problem.active) > 1
    agents = free.nonzero()[0]
    if not len(agents) or len(agents) == len(free):
        return problem, np.arange(len(problem.x)), agents
    if problem.active.size <= _FEW_PAIRS:
        return problem, np.arange(len(problem.x)), np.arange(len(free))
    base = problem.information(np.where(free, 0.0, problem.active))
    active = problem.active[:, agents]
    arms = np.logical_or.reduce(active, axis=1).nonzero()[0]
    x = problem.x[:, :, agents]
    if len(arms) < len(x):
        x, active, base = x[arms], active[arms], base if problem.shared else base[arms]
    return Problem(x, active, base), arms, agents


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
