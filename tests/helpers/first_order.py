"""Two first-order steps of a G-optimal design that are easy to verify, against which the solver is tested."""

import numpy as np

from fedbandit_agents.phased.design_climb import multiplied
from fedbandit_agents.phased.design_problem import Problem, invert
from fedbandit_envs.arrays import FloatArray


def multiplicative_step(problem: Problem, pi: FloatArray) -> FloatArray:
    """All agents at once: pi_{a,i} in proportion to pi_{a,i} g_{a,i}. F never falls (Baum and Eagon)."""
    return multiplied(pi, problem.evaluate(pi)[1])


def block_sweep(problem: Problem, pi: FloatArray) -> FloatArray:
    """Agent by agent, each the exact maximiser of F given the others: pi_a = max(0, nu - s_a), s_a = 1/g_a - pi_a.

    Along one agent's row det V_a is (1 + (p_a - pi_a) g_a) times itself, so the maximiser equalises the slopes
    1 / (s_a + p_a): water-filling, its level nu found by sorting.
    """
    if problem.shared:
        raise ValueError("problem: expected one matrix per arm, got a shared one; use multiplicative_step there")
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
