"""Distributed elimination on one action set (DELB): its designs, its shares of pulls, and what it keeps.

After Wang, Hu, Chen and Wang (2020), whose constants are recalled from the paper and agree with a public
reimplementation. All agents face the same arms and the same theta.
"""

import math

import numpy as np

from fedbandit_agents.phased.design_problem import RANK_TOLERANCE
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.ties import JUST_WHOLE, TIE, first_largest

_MOST_STEPS = 10_000  # the search for a design ends after this many steps; it needs some d ln ln d


def small_design(arms: FloatArray) -> tuple[FloatArray, int]:
    """A design pi (K,) on few arms with max_x ||x||^2_{V(pi)^-1} <= 2 r, and r, the rank of the arms (K, d).

    Where the arms span less than R^d, V is inverted on their span. The search starts on r arms, each farthest from the
    span of those before, and goes on by steps of Frank and Wolfe with an exact line search, each towards the arm that
    is known least. A step adds one arm at most, so that few arms have any weight.

    >>> small_design(np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 0.1]]))
    (array([0.5, 0.5, 0. ]), 2)
    """
    chosen, x = _spanning(arms)
    rank = x.shape[1]
    pi = np.zeros(len(arms))
    pi[chosen] = 1 / rank
    for _ in range(_MOST_STEPS):
        V = np.einsum("k,kd,ke->de", pi, x, x)
        squares = np.einsum("kd,kd->k", x, np.linalg.solve(V, x.T).T)
        farthest = int(first_largest(squares[None])[0])
        most = float(squares[farthest])
        if most <= 2 * rank * (1 + TIE):
            return pi, rank
        step = (most / rank - 1) / (most - 1)
        pi *= 1 - step
        pi[farthest] += step
    raise ArithmeticError(f"small_design: expected a design within {_MOST_STEPS} steps, got none for {len(arms)} arms")


def _spanning(arms: FloatArray) -> tuple[list[int], FloatArray]:
    """Positions of r arms that span all others, and all arms in an orthonormal basis of the span, (K, r)."""
    left, basis, chosen = arms.copy(), [], list[int]()
    longest = float(np.sqrt(np.einsum("kd,kd->k", arms, arms)).max())
    while len(chosen) < arms.shape[1]:
        lengths = np.sqrt(np.einsum("kd,kd->k", left, left))
        farthest = int(first_largest(lengths[None])[0])
        if lengths[farthest] <= RANK_TOLERANCE * longest:
            break
        chosen.append(farthest)
        direction = left[farthest] / lengths[farthest]
        basis.append(direction)
        left = left - np.einsum("kd,d->k", left, direction)[:, None] * direction
    if not chosen:
        raise ValueError(f"arms: expected an arm other than 0, got {len(arms)} arms that are all 0")
    return chosen, np.einsum("kd,rd->kr", arms, np.array(basis))


def phase_pulls(pi: FloatArray, phase: int, rank: int, num_agents: int, horizon: int, constant: float) -> IntArray:
    """The pulls of each arm (K,) in phase l: ceil(C 4^l r^2 pi ln(M T)).

    With the published constant C = 600 the first phase takes more steps than most horizons have.

    Args:
        pi: (K,) the design.
        phase: l, from 1.
        rank: r, the rank of the arms that are left.
        num_agents: M.
        horizon: T, the steps of each agent.
        constant: C.

    >>> [phase_pulls(np.array([0.5, 0.5]), l, 2, num_agents=2, horizon=1000, constant=1.0).tolist() for l in (1, 2, 3)]
    [[61, 61], [244, 244], [973, 973]]
    """
    pulls = constant * 4.0**phase * rank**2 * pi * math.log(num_agents * horizon)
    return np.ceil(pulls * JUST_WHOLE).astype(np.int64)


def shares(pulls: IntArray, num_agents: int) -> IntArray:
    """The pulls of each agent, (M, K): all pulls (K,) laid end to end and cut into M pieces of equal length.

    The last pieces may be shorter. At most K + M - 1 pairs of agent and arm have any pulls.

    >>> shares(np.array([3, 2, 1]), num_agents=2)
    array([[3, 0, 0],
           [0, 2, 1]])
    """
    ends = np.cumsum(pulls)
    length = -(-int(ends[-1]) // num_agents)
    first = length * np.arange(num_agents)[:, None]
    return np.maximum(np.minimum(ends, first + length) - np.maximum(ends - pulls, first), 0)


def phase_estimate(arms: FloatArray, pulls: IntArray, means: FloatArray) -> FloatArray:
    """theta (d,) from the pulls of one phase alone, (sum m x x^T)^+ sum m r x.

    Args:
        arms: (K, d) x.
        pulls: (K,) m, 0 for arms that were not pulled.
        means: (K,) r, the mean rewards; whatever stands at an arm that was not pulled is ignored.

    >>> phase_estimate(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([3, 3]), np.array([0.5, 1.0]))
    array([0.5, 0.5])
    """
    pulled = pulls > 0
    x, m, r = arms[pulled], pulls[pulled].astype(np.float64), means[pulled]
    gram = np.einsum("k,kd,ke->de", m, x, x)
    inverse = np.linalg.pinv(gram, rcond=RANK_TOLERANCE**2, hermitian=True)
    return np.asarray(np.einsum("de,e->d", inverse, np.einsum("k,k,kd->d", m, r, x)))


def kept(arms: FloatArray, theta: FloatArray, active: BoolArray, phase: int) -> BoolArray:
    """The arms that are active after phase l, (K,): those within 2^(1 - l) of the best, by the estimate.

    Args:
        arms: (K, d) all arms.
        theta: (d,) the estimate of the phase.
        active: (K,) the arms that were active in the phase.
        phase: l, from 1.

    >>> kept(np.array([[0.9], [0.5], [0.0]]), np.array([1.0]), np.ones(3, dtype=bool), phase=2)
    array([ True,  True, False])
    """
    values = np.einsum("kd,d->k", arms, theta)
    best = values[active].max()
    return active & (best - values <= 2.0 ** (1 - phase) + TIE * np.abs(values[active]).max())
