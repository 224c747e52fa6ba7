"""The steps that solve a multi-agent G-optimal design: coordinates on the span, then three ways to climb.

Every step raises F(pi) = sum_a log det V_a(pi), V_a = sum_i pi_{a,i} x_{a,i} x_{a,i}^T, over rows that sum to 1.
Arrays put arms first and agents last, so that every product over agents runs along contiguous memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

RANK_TOLERANCE = 1e-6
"""A set of vectors spans a direction when its singular value there exceeds this share of the largest one."""

_SMALLEST_CURVATURE = 1e-5  # in units of g^2, added where pi / z is so large that rounding would drown the step
_BLOCK = 4096  # agents whose Hessian terms are held at once: bounds memory, and fits the cache


def span(gram: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Bases (..., d, d) of the spans behind Gram matrices (..., d, d), their eigenvalues (..., d) and ranks (...).

    Columns and eigenvalues outside the span are 0. The Gram matrix must be of unweighted vectors: an eigenvalue is
    a squared singular value, so the threshold is the square of `RANK_TOLERANCE`, still far above rounding.
    """
    values, vectors = np.linalg.eigh(gram)
    kept = values > RANK_TOLERANCE**2 * values[..., -1:]
    return vectors * kept[..., None, :], values * kept, kept.sum(-1)


def invert(matrices: FloatArray) -> FloatArray:
    """Inverses (..., d, d), typed: numpy's stubs lose the precision."""
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64)


@dataclass(frozen=True)
class Problem:
    """Designs to solve, in coordinates where the unweighted vectors of each group have the identity as Gram matrix.

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

    The bases (groups, d, d) have one orthonormal column for each dimension of the span, scaled so that x = basis^T e.
    """
    mask = active.T  # (K, M)
    raw = directions.transpose(1, 2, 0) * mask[:, None, :]  # (K, d, M)
    gram = raw @ raw.transpose(0, 2, 1)
    vectors, values, ranks = span(gram.sum(0, keepdims=True) if shared else gram)
    outside = values == 0
    basis = vectors / np.sqrt(values + outside)[:, None, :]
    base = np.eye(raw.shape[1]) * outside[:, None, :]
    return Problem(basis.transpose(0, 2, 1) @ raw, mask.copy(), base), ranks, basis


def settle(problem: Problem) -> tuple[Problem, IntArray, IntArray]:
    """What is left to choose: the same problem on agents with two active arms or more and on the arms they have.

    Returns it with those arms and agents. Agents with one active arm give it all their weight, through `base`.
    """
    free = problem.active.sum(0) > 1
    if free.all():
        return problem, np.arange(len(problem.x)), np.arange(len(free))
    agents = np.flatnonzero(free)
    settled = problem.x[:, :, ~free]
    gram = settled @ settled.transpose(0, 2, 1)
    base = problem.base + (gram.sum(0, keepdims=True) if problem.shared else gram)
    arms = np.flatnonzero(problem.active[:, agents].any(1))
    kept = np.ix_(arms, agents)
    x = np.ascontiguousarray(problem.x.transpose(0, 2, 1)[kept].transpose(0, 2, 1))
    return Problem(x, problem.active[kept], base if problem.shared else base[arms]), arms, agents


def row_gaps(pi: FloatArray, g: FloatArray) -> FloatArray:
    """Each agent's share of G - D, (M,)."""
    return np.asarray(g.max(0) - (pi * g).sum(0))


def log_det(information: FloatArray) -> float:
    """F, up to the constant of the coordinates."""
    return float(np.linalg.slogdet(information)[1].sum())


def multiplicative_step(problem: Problem, pi: FloatArray) -> FloatArray:
    """All agents at once: pi_{a,i} in proportion to pi_{a,i} g_{a,i}. F never falls (Baum and Eagon)."""
    return multiplied(pi, problem.evaluate(pi)[1])


def multiplied(pi: FloatArray, g: FloatArray, power: float = 1.0) -> FloatArray:
    """The multiplicative step where g is known; only power 1 is sure to raise F."""
    mean = (pi * g).sum(0)
    mean += mean == 0  # every active vector is zero: nothing to choose by
    raised = pi * ((g / mean) ** power if power != 1.0 else g / mean)
    return np.asarray(raised / raised.sum(0)) if raised.sum() > 0 else pi


def block_sweep(problem: Problem, pi: FloatArray) -> FloatArray:
    """Agent by agent, each the exact maximiser of F given the others: pi_a = max(0, nu - s_a), s_a = 1/g_a - pi_a.

    Along one agent's row det V_a is (1 + (p_a - pi_a) g_a) times itself, so the maximiser equalises the slopes
    1 / (s_a + p_a): water-filling, its level nu found by sorting.
    """
    if problem.shared:
        raise ValueError("block_sweep expects one matrix per arm, received a shared one; use multiplicative_step there")
    pi = pi.copy()
    inverse = invert(problem.information(pi))
    for i in range(pi.shape[1]):
        arms = np.flatnonzero(problem.active[:, i])
        x = problem.x[arms, :, i]  # (n, d)
        wx = (inverse[arms] @ x[:, :, None])[:, :, 0]
        g = (wx * x).sum(1)
        arms, wx, g = arms[g > 0], wx[g > 0], g[g > 0]  # a zero vector changes nothing, whatever its weight
        if not len(arms):
            continue
        supply = 1 / g - pi[arms, i]
        lowest = np.sort(supply)
        levels = (pi[arms, i].sum() + np.cumsum(lowest)) / np.arange(1, len(arms) + 1)
        target = np.maximum(0.0, levels[np.flatnonzero(levels > lowest)[-1]] - supply)
        change = target - pi[arms, i]
        pi[arms, i] = target
        # Sherman and Morrison: (V + c x x^T)^-1 = W - c (W x)(W x)^T / (1 + c g).
        inverse[arms] -= (change / (1 + change * g))[:, None, None] * wx[:, :, None] * wx[:, None, :]
    return pi


@lru_cache(maxsize=32)
def _triangle(d: int) -> tuple[IntArray, IntArray, FloatArray, IntArray, IntArray, IntArray, IntArray]:
    """Index tables of symmetric matrices (d, d) stored as their s = d (d + 1) / 2 upper entries.

    Rows and columns of the entries, how often each occurs (1 or 2), the entry of each place (d, d), and the flat
    places of V_ik, V_jl and V_il (s, s) for entries ij and kl.
    """
    rows, columns = np.triu_indices(d)
    entry = np.zeros((d, d), dtype=np.int64)
    entry[rows, columns] = entry[columns, rows] = np.arange(len(rows))
    times = np.where(rows == columns, 1.0, 2.0)
    ik, jl, il = (left[:, None] * d + right for left, right in ((rows, rows), (columns, columns), (rows, columns)))
    return rows, columns, times, entry, ik, jl, il


class Multiplicative:
    """The multiplicative step with a power that grows while F rises: for problems too large for second-order steps."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.power = 1.0

    def evaluate(self, pi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """V (groups, d, d) and g (K, M)."""
        return self.problem.evaluate(pi)

    def begin(self, pi: FloatArray, g: FloatArray) -> None:
        """Start from pi > 0."""
        self.power = 1.0

    def step(self, pi: FloatArray, information: FloatArray, g: FloatArray, target: float) -> FloatArray:
        """The next pi."""
        self.power = min(1.25 * self.power, 8.0)
        return multiplied(pi, g, self.power)

    def reject(self) -> None:
        """The last step lowered F."""
        self.power = 1.0


class InteriorPoint:
    """Mehrotra's predictor-corrector method: a handful of steps whatever the gap, each one small linear system.

    g is linear in W_a, and W_a depends on pi through V_a only: so the Hessian of F is -S^T (W (x) W) S, S the products
    x x^T, of rank K s only, s = d (d + 1) / 2. The Newton system over all pairs and rows then shrinks (Woodbury) to
    K s unknowns, the change of W, and no array is larger than S. `z` (K, M) are the multipliers of pi >= 0.
    """

    def __init__(self, problem: Problem) -> None:
        rows, columns = _triangle(problem.x.shape[1])[:2]
        self.problem = problem
        self.products = problem.x[:, rows] * problem.x[:, columns]  # (K, s, M)
        self.on = problem.active.astype(np.float64)
        self.off = 1.0 - self.on
        self.pairs = float(np.count_nonzero(problem.active))
        self.z = self.on
        self.floor = 0.0

    def evaluate(self, pi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """V (groups, d, d) and g (K, M)."""
        d = self.problem.x.shape[1]
        rows, columns, times, entry = _triangle(d)[:4]
        information = self.problem.base + self._collect(pi)[:, entry]
        inverse = invert(information)[:, rows, columns]
        return information, np.asarray(np.vecmat(inverse * times, self.products))

    def _collect(self, weights: FloatArray) -> FloatArray:
        """The upper entries (groups, s) of sum_i weights x x^T."""
        upper: FloatArray = np.matvec(self.products, weights)
        return upper.sum(0, keepdims=True) if self.problem.shared else upper

    def begin(self, pi: FloatArray, g: FloatArray) -> None:
        """Start from pi > 0, with multipliers as of a point of the central path with the same gap."""
        self.z = self.on * (row_gaps(pi, g).sum() / self.pairs) / (pi + self.off) + self.off
        self.floor = _SMALLEST_CURVATURE * float((pi * g).sum() / pi.shape[1]) ** 2

    def reject(self) -> None:
        """The last step lowered F: nothing to undo, z stays a valid scaling."""

    def _system(self, information: FloatArray, theta: FloatArray, total: FloatArray) -> FloatArray:
        """The matrix (groups s, groups s) of V (x) V + S P S^T, P = diag(theta) - theta theta^T / total by row."""
        ik, jl, il = _triangle(information.shape[1])[4:]
        groups, s = len(information), len(ik)
        flat = information.reshape(groups, -1)
        v_il = flat[:, il]
        own = 0.5 * (flat[:, ik] * flat[:, jl] + v_il * v_il.transpose(0, 2, 1))
        matrix = np.zeros((groups, s, groups, s))
        square = matrix.reshape(groups * s, groups * s)
        root = 1 / np.sqrt(total)
        for first in range(0, theta.shape[1], _BLOCK):
            block = slice(first, first + _BLOCK)
            products = self.products[:, :, block]
            weighted = products * theta[:, None, block]
            terms = weighted @ products.transpose(0, 2, 1)
            if self.problem.shared:
                terms, weighted = terms.sum(0, keepdims=True), weighted.sum(0)
            own += terms
            weighted *= root[block]
            flat = weighted.reshape(groups * s, -1)
            square -= flat @ flat.T
        diagonal = np.arange(groups)
        matrix[diagonal, :, diagonal, :] += own
        return square

    def step(self, pi: FloatArray, information: FloatArray, g: FloatArray, target: float) -> FloatArray:
        """The next pi, z moved along; mu goes no lower than the gap `target` needs, since small z cost accuracy."""
        inverse_z = self.on / np.maximum(self.z, self.floor * pi)
        theta = pi * inverse_z
        total = theta.sum(0)
        matrix = self._system(information, theta, total)

        def newton(r: FloatArray) -> FloatArray:
            """The change of pi relative to pi, for g plus the centring terms."""
            right = self._collect(theta * (r - (theta * r).sum(0) / total))
            y = np.linalg.solve(matrix, right.ravel()).reshape(right.shape)
            slope = r - np.vecmat(y, self.products)
            slope -= (theta * slope).sum(0) / total
            slope *= inverse_z
            return np.asarray(slope)

        w = pi * self.z
        mu = float(w.sum()) / self.pairs
        rho = newton(g)
        back = 1 + rho  # the predictor's change of z relative to z is -(1 + rho)
        ahead = w * (1 + _length(rho, 1.0) * rho) * (1 - _length(-back, 1.0) * back)
        sigma = (float(ahead.sum()) / self.pairs / mu) ** 3
        centring = (max(sigma * mu, 0.2 * target / self.pairs) + w * rho * back) / (w + self.off)
        rho = newton(g + centring * self.z)
        rho_z = (centring - 1 - rho) * self.on
        self.z = self.z * (1 + _length(rho_z, 0.95) * rho_z)
        pi = pi * (1 + _length(rho, 0.95) * rho)
        return np.asarray(pi / pi.sum(0))


def _length(ratio: FloatArray, share: float) -> float:
    """The step, at most 1, that goes at most `share` of the way to the boundary."""
    worst = -float(ratio.min())
    return 1.0 if worst <= share else share / worst
