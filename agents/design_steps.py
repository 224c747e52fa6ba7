"""The steps that solve a multi-agent G-optimal design: coordinates on the span, then three ways to climb.

Every step raises F(pi) = sum_a log det V_a(pi), V_a = sum_i pi_{a,i} x_{a,i} x_{a,i}^T, over rows that sum to 1.
Arrays put arms first and agents last, so that every product over agents runs along contiguous memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

RANK_TOLERANCE = 1e-6
"""A set of vectors spans a direction when its singular value there exceeds this share of the largest one."""

CAP=1e-5
_BLOCK = 4096  # agents whose Hessian terms are held at once: bounds memory, and fits the cache


def span(gram: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Bases (..., d, d) of the spans behind Gram matrices (..., d, d), their eigenvalues (..., d) and ranks (...).

    Columns and eigenvalues outside the span are 0. The Gram matrix must be of unweighted vectors: an eigenvalue is
    a squared singular value, so the threshold is the square of `RANK_TOLERANCE`, still far above rounding.
    """
    values, vectors = np.linalg.eigh(gram)
    kept = values > RANK_TOLERANCE**2 * values[..., -1:]
    return vectors * kept[..., None, :], values * kept, kept.sum(-1)


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


def whiten(directions: FloatArray, active: BoolArray, shared: bool) -> tuple[Problem, IntArray]:
    """The problem over directions (M, K, d) and active sets (M, K), and the rank of each group."""
    mask = active.T  # (K, M)
    raw = directions.transpose(1, 2, 0) * mask[:, None, :]  # (K, d, M)
    gram = raw @ raw.transpose(0, 2, 1)
    basis, values, ranks = span(gram.sum(0, keepdims=True) if shared else gram)
    inside = values > 0
    scale = 1 / np.sqrt(np.where(inside, values, 1.0))
    x = (basis * scale[..., None, :]).transpose(0, 2, 1) @ raw
    base = np.eye(raw.shape[1]) * ~inside[:, None, :]
    return Problem(x, np.ascontiguousarray(mask), base), ranks


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


def multiplicative_step(problem: Problem, pi: FloatArray, power: float = 1.0) -> FloatArray:
    """All agents at once: pi_{a,i} in proportion to pi_{a,i} g_{a,i}^power. F never falls for power 1 (Baum-Eagon)."""
    g = problem.variances(np.linalg.inv(problem.information(pi)))
    raised = pi * (g if power == 1.0 else g**power)
    return np.asarray(raised / raised.sum(0))


def block_sweep(problem: Problem, pi: FloatArray) -> FloatArray:
    """Agent by agent, each the exact maximiser of F given the others: pi_a = max(0, nu - s_a), s_a = 1/g_a - pi_a.

    Along one agent's row det V_a is (1 + (p_a - pi_a) g_a) times itself, so the maximiser equalises the slopes
    1 / (s_a + p_a): water-filling, its level nu found by sorting.
    """
    if problem.shared:
        raise ValueError("block_sweep expects one matrix per arm, received a shared one; use multiplicative_step there")
    pi = pi.copy()
    inverse = np.linalg.inv(problem.information(pi))
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
def _pair_index(d: int) -> tuple[Any, Any, FloatArray, FloatArray]:
    """Rows and columns of the upper triangle, the scale of symmetric coordinates, and that of their products."""
    rows, columns = np.triu_indices(d)
    diagonal = rows == columns
    return rows, columns, np.where(diagonal, 1.0, np.sqrt(2.0)), np.where(diagonal, np.sqrt(0.5), 1.0)


class InteriorPoint:
    """Mehrotra's predictor-corrector method: a handful of steps whatever the gap, each one small linear system.

    The Hessian of F is minus sum_a S_a^T (W_a (x) W_a) S_a, S the symmetric products x x^T: its rank is only
    K d (d + 1) / 2. So the Newton system over all pairs and rows shrinks (Woodbury) to that many unknowns y, and no
    array is larger than S. `z` (K, M) are the multipliers of pi >= 0; inactive pairs hold pi = z = 1 and never move.
    """

    def __init__(self, problem: Problem) -> None:
        rows, columns, scale, _ = _pair_index(problem.x.shape[1])
        self.problem = problem
        self.products = problem.x[:, rows] * problem.x[:, columns] * scale[:, None]  # (K, s, M)
        self.on = problem.active.astype(np.float64)
        self.pairs = float(self.on.sum())
        self.z = self.on

    def centre(self, pi: FloatArray, g: FloatArray) -> None:
        """Start from pi > 0, with multipliers as of a point of the central path with the same gap."""
        mu = row_gaps(pi, g).sum() / self.pairs
        self.floor = CAP * float((pi*g).sum()/pi.shape[1]) ** 2
        self.z = np.where(self.problem.active, mu / np.where(self.problem.active, pi, 1.0), 1.0)

    def evaluate(self, pi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """V (groups, d, d) and g (K, M)."""
        rows, columns, scale, _ = _pair_index(self.problem.x.shape[1])
        upper = np.matvec(self.products, pi)
        if self.problem.shared:
            upper = upper.sum(0, keepdims=True)
        information = self.problem.base.copy()
        information[:, rows, columns] += upper / scale
        information[:, columns, rows] = information[:, rows, columns]
        return information, np.vecmat(np.linalg.inv(information)[:, rows, columns] * scale, self.products)

    def system(self, information: FloatArray, theta: FloatArray, total: FloatArray) -> FloatArray:
        """The matrix (groups s, groups s) of V (x) V + S P S^T, P = diag(theta) - theta theta^T / total by row."""
        rows, columns, _, half = _pair_index(self.problem.x.shape[1])
        groups, s = len(information), len(rows)
        v_rows, v_columns = information[:, rows], information[:, columns]  # (groups, s, d)
        cross = v_rows[:, :, columns]
        own = v_rows[:, :, rows] * v_columns[:, :, columns] + cross * cross.transpose(0, 2, 1)
        own *= half * half[:, None]
        matrix = np.zeros((groups * s, groups * s))
        share = theta / total
        diagonal = theta * _others(share)  # of P, without the cancellation of theta - theta^2 / total
        for first in range(0, theta.shape[1], _BLOCK):
            block = slice(first, first + _BLOCK)
            products = self.products[:, :, block]
            if self.problem.shared:
                centred = products - (products * share[:, None, block]).sum(0)
                own += ((centred * theta[:, None, block]) @ centred.transpose(0, 2, 1)).sum(0)
                continue
            own += (products * diagonal[:, None, block]) @ products.transpose(0, 2, 1)
            scaled = (products * (theta[:, block] / np.sqrt(total[block]))[:, None, :]).reshape(groups * s, -1)
            matrix -= scaled @ scaled.T
        diagonal_blocks = np.arange(groups)
        matrix.reshape(groups, s, groups, s)[diagonal_blocks, :, diagonal_blocks, :] = own
        return matrix

    def step(self, pi: FloatArray, information: FloatArray, g: FloatArray, target: float) -> FloatArray:
        """The next pi, z moved along; no further than the gap `target` asks, as small z cost accuracy."""
        groups = len(information)
        w = np.where(self.problem.active, pi, 1.0) * self.z
        inverse_z = 1 / np.maximum(self.z, self.floor * pi)
        theta = pi * inverse_z
        total = theta.sum(0)
        matrix = self.system(information, theta, total)

        def ratio(r: FloatArray) -> FloatArray:
            """The Newton step, relative to pi, where r stands for g plus the centring terms."""
            right = np.matvec(self.products, theta * (r - (theta * r).sum(0) / total))
            if self.problem.shared:
                right = right.sum(0, keepdims=True)
            y = np.linalg.solve(matrix, right.ravel()).reshape(groups, -1)
            slope = r - np.vecmat(y, self.products)
            slope -= (theta * slope).sum(0) / total
            return np.asarray(slope * inverse_z * self.on)

        mu = float((w * self.on).sum()) / self.pairs
        rho = ratio(g)
        length, length_z = _length(rho, 1.0), _length(-1 - rho, 1.0)
        ahead = w * (1 + length * rho) * (1 - length_z * (1 + rho))
        sigma = (float((ahead * self.on).sum()) / self.pairs / mu) ** 3
        c = max(sigma * mu, 0.2 * target / self.pairs) + w * rho * (1 + rho)
        centred = c / w
        rho = ratio(g + centred * self.z)
        rho_z = (centred - 1 - rho) * self.on
        self.z = self.z * (1 + _length(rho_z, 0.95) * rho_z)
        pi = pi * (1 + _length(rho, 0.95) * rho)
        return np.asarray(pi / pi.sum(0))


def _others(share: FloatArray) -> FloatArray:
    """1 - share for columns (K, M) that sum to 1, to full relative accuracy where a share is near 1."""
    largest, columns = share.argmax(0), np.arange(share.shape[1])
    rest = 1 - share
    share = share.copy()
    share[largest, columns] = 0.0
    rest[largest, columns] = share.sum(0)
    return np.asarray(rest)


def _length(ratio: FloatArray, share: float) -> float:
    """The largest step that keeps `share` of the way to the boundary, at most 1."""
    worst = -float(ratio.min())
    return 1.0 if worst <= share else share / worst
