"""Sums over agents that go by groups of rows are the sums over all agents, but for rounding."""

import numpy as np
import pytest

from fedbandit_agents.inference import context_bias
from fedbandit_agents.linear import ridge
from fedbandit_agents.phased import plausibility
from fedbandit_agents.phased.design import g_optimal
from fedbandit_agents.phased.design_problem import coordinates, settle_jointly
from fedbandit_agents.phased.estimation import Estimates, aggregate, eliminated, unit_vectors
from fedbandit_agents.phased.plausibility import impossible_grams
from fedbandit_agents.phased.server import PhasedServer
from fedbandit_envs import arrays, make_policy
from fedbandit_envs.joint import alone
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.messages import Message

M, K, D = 23, 4, 3


@pytest.fixture(params=[1, 5, 22, 23])
def in_groups(request, monkeypatch):
    """A function that computes the same once with all rows together, and once in groups of so many."""

    def both(function):
        whole = function()
        with monkeypatch.context() as patch:
            patch.setattr(arrays, "ROWS", request.param)
            patch.setattr(plausibility, "_TOGETHER", request.param)
            patch.setattr(ridge, "ROWS", request.param)
            return whole, function()

    return both


def directions(seed=0, rank=D):
    vectors = np.random.default_rng(seed).normal(size=(M, K, D))
    vectors[..., rank:] = 0
    return unit_vectors(vectors)


def active(seed=0):
    """A third of the agents have one arm left."""
    chosen = np.random.default_rng(seed).random((M, K)) < 0.7
    chosen[np.arange(M), np.arange(M) % K] = True
    chosen[::3] = np.eye(K, dtype=bool)[np.arange(M) % K][::3]
    return chosen


@pytest.mark.parametrize("rank", [D, D - 1])
def test_estimates_and_widths(in_groups, rank):
    rng = np.random.default_rng(1)
    theta, weights = rng.normal(size=(M, K, 1)) * directions(rank=rank), rng.integers(0, 9, (M, K)).astype(float)
    one, two = in_groups(lambda: aggregate(theta, directions(rank=rank), weights))
    for whole, grouped in zip(one, two, strict=True):
        np.testing.assert_allclose(grouped, whole, rtol=1e-9, atol=1e-12)
    V = one[1]
    # The pseudo-inverse of the sum, straight from the definition.
    e = directions(rank=rank)
    expected = np.linalg.pinv(np.einsum("na,nad,nae->ade", weights, e, e), rcond=1e-9, hermitian=True)
    np.testing.assert_allclose(V, expected, atol=1e-9)


def test_eliminations_are_the_same_bit_for_bit(in_groups):
    rng = np.random.default_rng(2)
    psi, best = rng.normal(size=(M, K, D)), np.zeros(M, dtype=np.int64)
    estimates = Estimates(rng.normal(size=(K, D)), np.stack([0.1 * np.eye(D)] * K), np.ones(K, dtype=bool))
    one, two = in_groups(lambda: eliminated(psi, estimates, 1.0, active(), best))
    for whole, grouped in zip(one, two, strict=True):
        np.testing.assert_array_equal(grouped, whole, strict=True)
    assert 0 < np.count_nonzero(one[0]) < np.count_nonzero(active())


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rank", [D, D - 1])
def test_designs(in_groups, shared, rank, monkeypatch):
    monkeypatch.setattr("fedbandit_agents.phased.design_problem._FEW_PAIRS", 0)  # settled agents are left out
    one, two = in_groups(lambda: coordinates(directions(rank=rank), active(), shared))
    assert one.ranks.tolist() == two.ranks.tolist()
    np.testing.assert_allclose(two.base, one.base, atol=1e-12)
    whole, grouped = in_groups(lambda: alone(settle_jointly(directions(rank=rank), active(), shared)))
    np.testing.assert_array_equal(grouped.agents, whole.agents)
    assert grouped.x.shape == whole.x.shape == (len(whole.agents), K, D)
    np.testing.assert_allclose(abs(np.linalg.det(grouped.base + np.eye(D))), np.linalg.det(whole.base + np.eye(D)))
    one, two = in_groups(lambda: g_optimal(directions(rank=rank), active(), gap=1e-6, shared=shared))
    assert max(one.gap, two.gap) <= 1e-6
    assert one.dimension == two.dimension
    np.testing.assert_allclose(two.pi[::3], one.pi[::3])  # the settled agents


def test_refused_reports_are_the_same(in_groups):
    theta, e = 0.5 * directions(), directions()
    theta[4, 1] = [9.0, -9.0, 0.0]  # another direction
    theta[17, 2] *= 1e6  # too long
    constants = Constants(M, K, D, 100, ell=0.5, L=1.0, noise_std=1.0, context="fixed", theta_bound=1.0,
                          context_proxy=0.0, shortest=0.5, longest=1.0)  # fmt: skip

    def refused(rows):
        server = PhasedServer(make_policy("Fed-PECD"), constants)
        server.directions, server.known = e, np.ones((M, K), dtype=bool)
        mask = {"theta": np.ones((len(rows), K), dtype=bool)}
        return server.refuses(Message("estimates", {"theta": theta[rows]}, rows, mask))

    for rows in (np.arange(M), np.arange(2, M)):
        whole, grouped = in_groups(lambda rows=rows: refused(rows))
        assert whole == grouped
        assert set(whole) == {4, 17}


def test_sums_that_cannot_be_are_the_same_agents_for_the_same_reasons(in_groups):
    psi = np.random.default_rng(3).normal(size=(M, K, D))
    gram = psi[..., None] * psi[..., None, :]
    gram[2, 1, 0, 1] += 0.5  # not symmetric
    gram[[5, 19], 0] *= -1.0  # negative
    gram[22, 3, 2, 0] -= 0.5
    constants = Constants(M, K, D, 100, ell=0.5, L=1.0, noise_std=1.0, context="fixed")
    whole, grouped = in_groups(lambda: impossible_grams(gram, constants))
    assert whole == grouped
    assert {row: reason.split(" in ")[0] for row, reason in whole.items()} == {
        2: "sent a matrix that is not symmetric",
        5: "sent a matrix with a negative eigenvalue",
        19: "sent a matrix with a negative eigenvalue",
        22: "sent a matrix that is not symmetric",
    }


@pytest.mark.parametrize("width", [0.5, np.full((M, 1), 0.5), np.linspace(0.1, 1, M * K).reshape(M, K)])
@pytest.mark.parametrize("blocks", [1, K])
def test_choices_are_the_same_bit_for_bit(in_groups, width, blocks):
    rng = np.random.default_rng(4)
    known = ridge.start(M, blocks, D, regularisation=1.0)
    known.inverse[:] *= rng.uniform(0.5, 1.5, (M, blocks, 1, 1))
    known.moments[:] = rng.normal(size=(M, blocks, D))
    psi = rng.normal(size=(M, K, D))
    whole, grouped = in_groups(lambda: ridge.choose(known, psi, width))
    np.testing.assert_array_equal(grouped, whole, strict=True)
    assert len(set(whole)) > 1


def test_predictions_without_the_own_share_are_the_same_bit_for_bit(in_groups):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(M, K, D))
    reported, precision = rng.normal(size=(M, K)), rng.uniform(0, 0.2, (M, K))
    others = context_bias.without_own_share(rng.normal(size=(K, D)), np.stack([np.eye(D)] * K), x, reported, precision)
    one, two = in_groups(lambda: others.predict(x[:, None]))
    for whole, grouped in zip(one, two, strict=True):
        np.testing.assert_array_equal(grouped, whole, strict=True)
