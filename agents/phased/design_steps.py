"""The steps that solve a multi-agent G-optimal design: coordinates on the span, then two ways to climb.

Every step raises F(pi) = sum_a log det V_a(pi), V_a = sum_i pi_{a,i} x_{a,i} x_{a,i}^T, over rows that sum to 1.
Arrays put arms first and agents last, so that every product over agents runs along contiguous memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray

RANK_TOLERANCE = 1e-6
"""A set of vectors spans a direction when its singular value there exceeds this share of the largest one."""

WARM_SHARE = 0.5  # of uniform weight in a warm start: restores rank, and lets weights that were 0 return
DOUBLINGS = 4  # multiplicative steps take g to the powers 1, 2, 4, 8 in turn: far fewer than with power 1 alone
PATIENCE = 10  # steps in a row that would lower F before rounding is blamed
SINGULAR = 1e-12  # eigenvalue of V, in coordinates where a design with finite G has none below 1 / (M G)
DROPS = (0.3, 0.03, 0.003)  # how small weights must be beside what they spare to be dropped; the most is tried first
WELL_SPREAD = 1e-4  # det over that of the ball with the same trace: eigenvalues then differ by some thousands at most
_CLEAR, _ZERO = 1e-8, 1e-15  # shares of the largest eigenvalue that surely count, and surely do not
_SMALLEST_CURVATURE = 1e-5  # in units of g^2, added where pi / z is so large that rounding would drown the step
_SCIPY_FROM = 100  # unknowns from which scipy's Cholesky repays its import
TINY_G = 1e-30  # far below any g that matters, and its eighth power is still a number
_FEW_PAIRS = 2048  # of arms and agents, up to which leaving some out costs more than it saves
_BLOCK = 4096  # agents whose Hessian terms are held at once: bounds memory, and fits the cache


def span(vectors: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Spans of vectors (groups, d, n): orthonormal bases (groups, d, d), squared singular values (groups, d), ranks.

    Columns and values outside the span are 0. The Gram matrix tells all, cheaply, unless a singular value comes near
    the tolerance, where squares lose half of the digits.
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


@lru_cache(maxsize=32)
def _identity(d: int) -> FloatArray:
    """`np.eye`, which takes longer than what is done with it here; read-only."""
    identity = np.eye(d)
    identity.setflags(write=False)
    return identity


def invert(matrices: FloatArray) -> FloatArray:
    """Inverses (..., d, d), typed: numpy's stubs lose the precision."""
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64)


@dataclass(frozen=True)
class Problem:
    """Designs to solve, in coordinates where the unweighted vectors of each group are spread over all dimensions.

    F changes by a constant and g not at all under a linear map of a group's vectors, so near-collinear and
    rank-deficient vectors become harmless here once and for all. A group is an arm, or all arms when theta is shared.
    """

    x: FloatArray  # (K, d, M) coordinates; 0 for inactive pairs and outside the span
    active: BoolArray  # (K, M)
    base: FloatArray  # (K, d, d), or (1, d, d) if shared: what V gets from settled agents, identity off the span

    @property
    def shared(self) -> bool:
        """One matrix for all arms."""
        return len(self.base) < len(self.x)

    def information(self, pi: FloatArray) -> FloatArray:
        """V of each group."""
        gram = (self.x * pi[:, None, :]) @ self.x.transpose(0, 2, 1)
        return self.base + (gram.sum(0, keepdims=True) if self.shared else gram)

    def variances(self, inverse: FloatArray) -> FloatArray:
        """g (K, M), the quadratic form of each pair's vector in its group's inverse information."""
        return np.asarray(((inverse @ self.x) * self.x).sum(1))

    def evaluate(self, pi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """V (groups, d, d) and g (K, M) at pi."""
        information = self.information(pi)
        return information, self.variances(invert(information))


def whiten(directions: FloatArray, active: BoolArray, shared: bool = False) -> tuple[Problem, IntArray, FloatArray]:
    """The problem over directions (M, K, d) and active sets (M, K), the rank of each group, and its bases.

    The bases (groups, d, d) have one orthogonal column for each dimension of the span, scaled so that x = basis^T e.
    Vectors that are well spread anyway are only scaled.
    """
    mask = active.T  # (K, M)
    raw = directions.transpose(1, 2, 0) * mask[:, None, :]  # (K, d, M)
    d = raw.shape[1]
    if not shared:
        gram = raw @ raw.transpose(0, 2, 1)
        mean = gram.trace(axis1=1, axis2=2) / d  # of the eigenvalues
        nobody = mean == 0
        base = _identity(d) * nobody[:, None, None]
        if np.logical_and.reduce(np.linalg.det(gram + base) > WELL_SPREAD * mean**d):
            scale = (~nobody / np.sqrt(mean + nobody))[:, None, None]
            return Problem(raw * scale, mask.copy(), base), d * ~nobody, _identity(d) * scale
    axes, values, ranks = span(raw.transpose(1, 0, 2).reshape(1, raw.shape[1], -1) if shared else raw)
    outside = values == 0
    basis = axes / np.sqrt(values + outside)[:, None, :]
    base = np.eye(raw.shape[1]) * outside[:, None, :]
    return Problem(basis.transpose(0, 2, 1) @ raw, mask.copy(), base), ranks, basis


def settle(problem: Problem) -> tuple[Problem, IntArray, IntArray]:
    """What is left to choose: the same problem on agents with two active arms or more and on the arms they have.

    Returns it with those arms and agents. Agents with one active arm give it all their weight, through `base`; where
    that would save little they stay, and no step moves them. No agents: there is nothing to choose.
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
    """G - D over these agents."""
    # Reductions by name, because methods of arrays would cost twice as much.
    return float(np.add.reduce(np.maximum.reduce(g)) - pi.ravel().dot(g.ravel()))


def log_det(information: FloatArray) -> float:
    """F, up to the constant of the coordinates."""
    return float(np.linalg.slogdet(information)[1].sum())


def multiplied(pi: FloatArray, g: FloatArray, doublings: int = 0) -> FloatArray:
    """The multiplicative step where g is known, with g to the power 2^doublings: only power 1 is sure to raise F."""
    raised = g + TINY_G  # an agent all of whose vectors are zero stays where it is
    for _ in range(doublings):
        raised *= raised
    raised *= pi
    raised /= np.add.reduce(raised)
    return raised


@lru_cache(maxsize=32)
def _triangle(d: int) -> tuple[IntArray, IntArray, IntArray, FloatArray, IntArray, IntArray, IntArray, IntArray]:
    """Index tables of symmetric matrices (d, d) stored as their s = d (d + 1) / 2 upper entries.

    Rows, columns and flat places of the entries, how often each occurs (1 or 2), the entry of each place (d, d), and
    the flat places of V_ik, V_jl and V_il (s, s) for entries ij and kl.
    """
    rows, columns = np.triu_indices(d)
    entry = np.zeros((d, d), dtype=np.int64)
    entry[rows, columns] = entry[columns, rows] = np.arange(len(rows))
    times = np.where(rows == columns, 1.0, 2.0)
    ik, jl, il = (left[:, None] * d + right for left, right in ((rows, rows), (columns, columns), (rows, columns)))
    return rows, columns, rows * d + columns, times, entry, ik, jl, il


def unknowns(groups: int, d: int) -> int:
    """The size of the linear system of an interior-point step."""
    return groups * d * (d + 1) // 2


class InteriorPoint:
    """Mehrotra's predictor-corrector method: a handful of steps whatever the gap, each one small linear system.

    g is linear in W_a, and W_a depends on pi through V_a only: so the Hessian of F is -S^T (W (x) W) S, S the products
    x x^T, of rank K s only, s = d (d + 1) / 2. The Newton system over all pairs and rows then shrinks (Woodbury) to
    K s unknowns, the change of W, and no array is larger than S. `z` (K, M) are the multipliers of pi >= 0.
    """

    def __init__(self, problem: Problem) -> None:
        rows, columns, self.upper, self.times, self.entry = _triangle(problem.x.shape[1])[:5]
        self.base, self.shared, self.unknowns = problem.base, problem.shared, unknowns(*problem.base.shape[:2])
        if self.unknowns >= _SCIPY_FROM:
            import scipy.linalg  # noqa: F401 - now, so that `one_thread` knows of it when steps begin
        self.products = problem.x.take(rows, axis=1)  # (K, s, M)
        self.products *= problem.x.take(columns, axis=1)
        self.based = bool(np.count_nonzero(problem.base))
        self.on = problem.active.astype(np.float64)
        self.off = 1.0 - self.on
        self.pairs = np.count_nonzero(problem.active)

    def evaluate(self, pi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """V (groups, d, d) and g (K, M)."""
        information: FloatArray = self._collect(pi).take(self.entry, axis=1)
        if self.based:
            information += self.base
        inverse = invert(information).reshape(len(information), -1).take(self.upper, axis=1)
        inverse *= self.times
        g: FloatArray = np.vecmat(inverse, self.products)
        return information, g

    def _collect(self, weights: FloatArray) -> FloatArray:
        """The upper entries (groups, s) of sum_i weights x x^T."""
        upper: FloatArray = np.matvec(self.products, weights)
        return upper.sum(0, keepdims=True) if self.shared else upper

    def begin(self, pi: FloatArray, g: FloatArray) -> FloatArray:
        """Start from pi, with multipliers as of a point of the central path with the same gap.

        Returns where to start: first-order steps may have brought weights down to 0, from which no step would return.
        Zero vectors stay there, unless an agent has no others: nothing is gained by them.
        """
        if np.count_nonzero(g) < self.pairs:
            self.on *= (g > 0) | (np.maximum.reduce(g) == 0)
            self.off, self.pairs = 1.0 - self.on, np.count_nonzero(self.on)
            pi = pi * self.on / np.add.reduce(pi * self.on)
        pi = np.maximum(pi, TINY_G * self.on)
        groups, (arms, s, agents) = len(self.base), self.products.shape
        # Work space: fresh memory of this size costs more than the arithmetic on it.
        self.weighted = np.empty((arms, s, min(agents, _BLOCK)))
        self.matrix = np.empty((self.unknowns, self.unknowns))
        self.diagonal = np.einsum("isit->ist", self.matrix.reshape(groups, s, groups, s))  # a view
        self.z = self.on * (gap_of(pi, g) / self.pairs) / (pi + self.off) + self.off
        self.floor = _SMALLEST_CURVATURE * float(np.vdot(pi, g) / pi.shape[1]) ** 2
        return pi

    def _system(self, information: FloatArray, theta: FloatArray, total: FloatArray) -> FloatArray:
        """V (x) V + S P S^T (groups s, groups s), where P = diag(theta) - theta theta^T / total for each agent."""
        ik, jl, il = _triangle(information.shape[1])[5:]
        entries = information.reshape(len(information), -1)
        cross = entries.take(il, axis=1)
        own = entries.take(ik, axis=1) * entries.take(jl, axis=1)
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
        """The next pi, z moved along; mu goes no lower than the gap `target` needs, since small z cost accuracy."""
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
        # Predictor: towards mu = 0, where rho is the relative change of pi and -(1 + rho) that of z.
        rho = newton(g)
        w_rho = w * rho
        length, length_z = _length(-rho.min(), 1.0), _length(1 + rho.max(), 1.0)
        slope, bend = (length * (1 - length_z) - length_z) * np.vdot(w, rho), length * length_z * np.vdot(w_rho, rho)
        sigma = (1 - length_z + float(slope - bend) / self.pairs / mu) ** 3
        # Corrector: to sigma mu, with the predictor's second-order error taken out.
        centring = w_rho * rho
        centring += w_rho
        centring += max(sigma * mu, 0.2 * target / self.pairs)
        centring /= w + self.off
        rho = newton(g + centring * self.z)
        centring -= 1 + rho
        centring *= self.on  # now the relative change of z
        self.z = self.z + (_length(-centring.min(), 0.95) * centring) * self.z
        pi = pi + (_length(-rho.min(), 0.95) * rho) * pi
        return np.asarray(pi / pi.sum(0))


def _length(worst: float, share: float) -> float:
    """The step, at most 1, that goes at most `share` of the way to a boundary which 1 / worst would hit."""
    return 1.0 if worst <= share else share / float(worst)


def _factor(matrix: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Solves matrix y = right, for a positive definite matrix that may be overwritten."""
    if len(matrix) < _SCIPY_FROM:
        return partial(np.linalg.solve, matrix)
    from scipy.linalg.lapack import dpotrf, dpotrs  # two solves from one factorisation, in place

    factor, failed = dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("Newton matrix is not positive definite")
    return lambda right: np.asarray(dpotrs(factor, right, lower=1)[0])
