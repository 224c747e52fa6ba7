"""Problems for the design, and its certificate from the definition: shared by the tests of both solvers."""

import numpy as np
import pytest

from fedbandit_agents.phased.design_problem import RANK_TOLERANCE


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def random_problem(seed, m=6, k=4, d=3, density=0.7):
    rng = np.random.default_rng(seed)
    active = rng.random((m, k)) < density
    active[np.arange(m), rng.integers(k, size=m)] = True
    return unit(rng.standard_normal((m, k, d))), active


def certificate(directions, active, pi):
    """G - D, D and sum pi g from the definition: loops, a thin SVD for the span, nothing of the program under test."""
    m, k, _ = directions.shape
    g = np.full((m, k), -np.inf)
    rank = 0
    for a in range(k):
        rows = np.flatnonzero(active[:, a])
        if not len(rows):
            continue
        left, values, _ = np.linalg.svd(directions[rows, a], full_matrices=False)
        x = left[:, values > RANK_TOLERANCE * values[0]] if values[0] > 0 else left[:, :0]
        rank += x.shape[1]
        v = sum((pi[i, a] * np.outer(x[n], x[n]) for n, i in enumerate(rows)), np.zeros((x.shape[1],) * 2))
        for n, i in enumerate(rows):
            g[i, a] = x[n] @ np.linalg.solve(v, x[n]) if x.shape[1] else 0.0
    spent = sum(pi[i, a] * g[i, a] for i in range(m) for a in range(k) if active[i, a])
    return g.max(1).sum() - rank, rank, spent


def objective(directions, active, pi):
    """F = sum_a log det V_a, for arms whose directions span everything."""
    return sum(
        np.linalg.slogdet(sum(p * np.outer(e, e) for p, e in zip(pi[:, a], directions[:, a], strict=True)))[1]
        for a in range(active.shape[1])
    )


def assert_proved(design, directions, active, gap):
    assert design.stopped in {"gap", "trivial"}
    left, rank, spent = certificate(directions, active, design.pi)
    assert design.dimension == rank
    assert spent == pytest.approx(rank, abs=1e-8)
    assert -1e-8 <= left <= gap + 1e-8
    assert design.gap == pytest.approx(left, abs=1e-8)
    assert np.all(design.pi >= 0)
    assert np.all(design.pi[~active] == 0)
    assert design.pi.sum(1) == pytest.approx(np.ones(len(active)), abs=1e-12)


KINDS = ["random", "grid", "equal", "flat", "near"]


def special_problem(kind, seed, m, k, d):
    """Directions, degenerate in one of the ways that have a name, active sets, and smaller ones of a later phase."""
    rng = np.random.default_rng(seed)
    _, active = random_problem(seed, m, k, d, rng.uniform(0.2, 1))
    directions = rng.standard_normal((m, k, d))
    if kind == "grid":
        directions = np.eye(d)[rng.integers(d, size=(m, k))]
    elif kind == "equal":
        directions = np.repeat(directions[:, :1], k, 1)
    elif kind == "flat":
        directions[..., d // 2 + 1 :] = 0
    elif kind == "near":
        directions = directions[:1] + 1e-3 * directions
    smaller = active & (rng.random((m, k)) < 0.7)
    smaller[~smaller.any(1)] = active[~smaller.any(1)]
    return unit(directions), active, smaller


def synthetic_directions(seed):
    """Those of the synthetic instances, (100, 10, 3)."""
    rng = np.random.default_rng(seed)
    best = rng.uniform(0.8, 0.9, 100)
    x = best[:, None] - rng.uniform(0.2, 0.4, (100, 10))
    x[np.arange(100), rng.integers(10, size=100)] = best
    rest = rng.uniform(np.sqrt(np.maximum(0, 0.25 - x**2)), np.sqrt(1 - x**2))
    angle = rng.uniform(0, 2 * np.pi, (100, 10))
    return unit(np.stack([x, rest * np.cos(angle), rest * np.sin(angle)], -1))
