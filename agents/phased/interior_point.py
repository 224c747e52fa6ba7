"""Second-order steps for a multi-agent G-optimal design: an interior-point method with small linear systems.

In all arrays the arms come first and the agents last, as in `design_problem`. A symmetric matrix (d, d) is stored as
its s = d (d + 1) / 2 entries on and above the diagonal.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from fedbandit_agents.phased.design_problem import Problem, gap_of, invert
from fedbandit_envs.arrays import FloatArray, IntArray

#: Far below any g that matters; its eighth power is still a number.
TINY_G = 1e-30
# In units of g^2: added to the curvature where pi / z is so large that rounding would drown the step.
_SMALLEST_CURVATURE = 1e-5
# From this many unknowns on, scipy's Cholesky factorisation repays its import.
_SCIPY_FROM = 100
# The Hessian terms of this many agents are held at once: this bounds the memory, and fits the cache.
_BLOCK = 4096


class _Triangle(NamedTuple):
    """Index tables of symmetric matrices (d, d) that are stored as their s upper entries."""

    rows: IntArray  # (s,) the row of each entry
    columns: IntArray  # (s,) the column of each entry
    flat: IntArray  # (s,) the place of each entry in the flattened matrix
    times: FloatArray  # (s,) how often each entry occurs in the matrix: 1 or 2
    entry: IntArray  # (d, d) the entry that stands at each place
    ik: IntArray  # (s, s) the flat place of V_ik, for entries ij and kl
    jl: IntArray  # (s, s) the flat place of V_jl, for entries ij and kl
    il: IntArray  # (s, s) the flat place of V_il, for entries ij and kl


@lru_cache(maxsize=32)
def _triangle(d: int) -> _Triangle:
    """The index tables of matrices (d, d)."""
    rows, columns = np.triu_indices(d)
    entry = np.zeros((d, d), dtype=np.int64)
    entry[rows, columns] = entry[columns, rows] = np.arange(len(rows))
    times = np.where(rows == columns, 1.0, 2.0)
    ik, jl, il = (left[:, None] * d + right for left, right in ((rows, rows), (columns, columns), (rows, columns)))
    return _Triangle(rows, columns, rows * d + columns, times, entry, ik, jl, il)


def unknowns(groups: int, d: int) -> int:
    """The number of unknowns in the linear system of an interior-point step.

    >>> unknowns(groups=10, d=3)
    60
    """
    return groups * d * (d + 1) // 2


class InteriorPoint:
    """Mehrotra's predictor-corrector method: a handful of steps whatever the gap, each with one small linear system.

    Let W_a = V_a^-1. g is linear in W_a, and W_a depends on pi through V_a alone. The Hessian of F is therefore
    -S^T (W (x) W) S, where S are the products x x^T, and its rank is at most K s. By Woodbury's formula the Newton
    system over all pairs shrinks to K s unknowns, the change of W, and no array is larger than S.

    Call `evaluate` at any weights. Call `begin` once, and `step` after it as often as needed: between steps the object
    keeps the multipliers `z` (K, M) of pi >= 0.
    """

    def __init__(self, problem: Problem) -> None:
        self.table = _triangle(problem.x.shape[1])
        self.base, self.shared, self.unknowns = problem.base, problem.shared, unknowns(*problem.base.shape[:2])
        if self.unknowns >= _SCIPY_FROM:
            import scipy.linalg  # noqa: F401 - imported now, so that `one_thread` knows of it when steps begin
        x, (arms, d, agents) = problem.x, problem.x.shape
        self.products = np.empty((arms, len(self.table.rows), agents))  # (K, s, M)
        first = 0
        for row in range(d):  # the entries of one row of the triangles, which nothing is copied for
            last = first + d - row
            np.multiply(x[:, row, None], x[:, row:], out=self.products[:, first:last])
            first = last
        self.based = bool(np.count_nonzero(problem.base))
        self.on = problem.active.copy(order="K")  # (K, M) the pairs that steps move
        self.off = ~self.on
        self.pairs = np.count_nonzero(problem.active)

    def evaluate(self, pi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """V (groups, d, d) and g (K, M) at the weights pi (K, M)."""
        information: FloatArray = self._collect(pi).take(self.table.entry, axis=1)
        if self.based:
            information += self.base
        inverse = invert(information).reshape(len(information), -1).take(self.table.flat, axis=1)
        inverse *= self.table.times
        g: FloatArray = np.vecmat(inverse, self.products)
        return information, g

    def _collect(self, weights: FloatArray) -> FloatArray:
        """The upper entries (groups, s) of sum_i weights x x^T."""
        upper: FloatArray = np.matvec(self.products, weights)
        return upper.sum(0, keepdims=True) if self.shared else upper

    def begin(self, pi: FloatArray, g: FloatArray) -> FloatArray:
        """Start from pi, with the multipliers of a point on the central path that has the same gap.

        Returns the weights to start from. First-order steps may have brought weights down to 0, from which no step
        would return: such weights are raised a little. A zero vector gains nothing and keeps weight 0, unless an agent
        has no other vectors.
        """
        if np.count_nonzero(g) < self.pairs:
            self.on &= (g > 0) | (np.maximum.reduce(g) == 0)
            self.off, self.pairs = ~self.on, np.count_nonzero(self.on)
            pi = pi * self.on / np.add.reduce(pi * self.on)
        pi = np.maximum(pi, TINY_G * self.on)
        groups, (arms, s, agents) = len(self.base), self.products.shape
        # The work space is kept between steps: fresh memory of this size costs more than the arithmetic on it.
        self.weighted = np.empty((arms, s, min(agents, _BLOCK)))
        self.matrix = np.empty((self.unknowns, self.unknowns))
        self.diagonal = np.einsum("isit->ist", self.matrix.reshape(groups, s, groups, s))  # a view of the matrix
        self.z = self.on * (gap_of(pi, g) / self.pairs) / (pi + self.off) + self.off
        self.floor = _SMALLEST_CURVATURE * float(np.vdot(pi, g) / pi.shape[1]) ** 2
        return pi

    def _system(self, information: FloatArray, theta: FloatArray, total: FloatArray) -> FloatArray:
        """V (x) V + S P S^T (groups s, groups s), where P = diag(theta) - theta theta^T / total for each agent."""
        entries = information.reshape(len(information), -1)
        cross = entries.take(self.table.il, axis=1)
        own = entries.take(self.table.ik, axis=1) * entries.take(self.table.jl, axis=1)
        own += cross * cross.transpose(0, 2, 1)
        own *= 0.5
        root = 1 / np.sqrt(total)
        for first in range(0, theta.shape[1], _BLOCK):
            block = slice(first, first + _BLOCK)
            products, weights = self.products[:, :, block], theta[:, None, block]
            weighted = np.multiply(products, weights, out=self.weighted[:, :, : weights.shape[2]])
            terms = weighted @ products.transpose(0, 2, 1)
            own += terms.sum(0) if self.shared else terms
            means = weighted.sum(0) if self.shared else weighted
            means *= root[block]
            means = means.reshape(len(self.matrix), -1)
            if first:
                self.matrix -= means @ means.T
            else:
                np.negative(np.matmul(means, means.T, out=self.matrix), out=self.matrix)
        self.diagonal += own
        return self.matrix

    def step(self, pi: FloatArray, information: FloatArray, g: FloatArray, target: float) -> FloatArray:
        """The next weights (K, M); the multipliers z move along.

        Args:
            pi: the weights, (K, M).
            information: V at pi, (groups, d, d).
            g: the variances at pi, (K, M).
            target: the gap wanted. The step aims no lower than this needs, since small z cost accuracy.
        """
        inverse_z = self.on / np.maximum(self.z, self.floor * pi)
        theta = pi * inverse_z
        total = theta.sum(0)
        share = theta / total
        solve = _factor(self._system(information, theta, total))

        def newton(r: FloatArray) -> FloatArray:
            """The change of pi relative to pi, for r = g plus the centring terms."""
            slope: FloatArray = r - (share * r).sum(0)
            right = self._collect(theta * slope)
            slope -= np.vecmat(solve(right.ravel()).reshape(right.shape), self.products)
            slope -= (share * slope).sum(0)
            slope *= inverse_z
            return slope

        w = pi * self.z
        mu = float(w.sum()) / self.pairs
        # The predictor goes towards mu = 0: rho is the relative change of pi, -(1 + rho) that of z.
        rho = newton(g)
        w_rho = w * rho
        length, length_z = _length(-rho.min(), 1.0), _length(1 + rho.max(), 1.0)
        slope, bend = (length * (1 - length_z) - length_z) * np.vdot(w, rho), length * length_z * np.vdot(w_rho, rho)
        sigma = (1 - length_z + float(slope - bend) / self.pairs / mu) ** 3
        # The corrector goes to sigma mu, with the predictor's second-order error taken out.
        centring = w_rho * rho
        centring += w_rho
        centring += max(sigma * mu, 0.2 * target / self.pairs)
        centring /= w + self.off
        rho = newton(g + centring * self.z)
        centring -= 1 + rho
        change_of_z = centring * self.on  # relative to z
        self.z = self.z + (_length(-change_of_z.min(), 0.95) * change_of_z) * self.z
        pi = pi + (_length(-rho.min(), 0.95) * rho) * pi
        return np.asarray(pi / pi.sum(0))


def _length(worst: float, share: float) -> float:
    """The length of a step, at most 1, that goes at most `share` of the way to the boundary, which is at 1 / worst."""
    return 1.0 if worst <= share else share / float(worst)


def _factor(matrix: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """A function that solves matrix y = right, for a positive definite matrix, which may be overwritten."""
    if len(matrix) < _SCIPY_FROM:
        return partial(np.linalg.solve, matrix)
    from scipy.linalg.lapack import dpotrf, dpotrs  # two solves from one factorisation, which is done in place

    factor, failed = dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("matrix: expected a positive definite Newton matrix, got another")
    return lambda right: np.asarray(dpotrs(factor, right, lower=1)[0])
