"""Estimates, widths and confidence factors, by hand."""

import math

import numpy as np
import pytest
import reference as ref
from designs import random_problem

from fedbandit_agents.phased.confidence import confidence, covering_factor, number_of_phases
from fedbandit_agents.phased.estimation import (
    aggregate,
    inner_products,
    inverse_on_span,
    local_estimate,
    outside_range,
    predictions,
    quadratic_forms,
    squared_widths,
    survivors,
    unit_vectors,
)


def test_the_covering_factor_and_alpha_match_the_published_setting():
    assert covering_factor(10, 3, 17, 0.1) == pytest.approx(8.044, abs=5e-4)
    assert math.sqrt(3 * covering_factor(10, 3, 17, 0.1)) == pytest.approx(4.912, abs=5e-4)
    # alpha1 = 4.908 for 50 agents is the smaller of the two; for 100 and 150 alpha2 = 4.912 is.
    assert [confidence(M, 10, 3, 17, 0.1) for M in (50, 100, 150)] == pytest.approx([4.908, 4.912, 4.912], abs=5e-4)


@pytest.mark.parametrize(("arms", "dim", "phases", "delta"), [(2, 1, 1, 0.9), (10, 3, 17, 0.1), (300, 30, 24, 1e-6)])
def test_the_covering_factor_solves_its_equation(arms, dim, phases, delta):
    k = covering_factor(arms, dim, phases, delta)
    assert k > 1
    assert k * dim == pytest.approx(2 * math.log(arms * phases / delta) + dim * math.log(k * math.e), rel=1e-12)


def test_the_number_of_phases_is_the_rounded_up_logarithm():
    assert [number_of_phases(T, 2) for T in (1, 2, 3, 4, 2**17, 2**17 + 1)] == [1, 1, 2, 2, 17, 18]
    assert number_of_phases(3**7, 3) == 7


def test_a_local_estimate_predicts_the_mean_reward():
    psi = np.array([[[3.0, 4.0], [0.0, 2.0]]])
    theta = local_estimate(np.array([[5.0, 1.0]]), psi, inner_products(psi, psi))
    np.testing.assert_allclose(theta, [[[0.6, 0.8], [0.0, 0.5]]])
    np.testing.assert_allclose(np.einsum("nad,nad->na", theta, psi), [[5.0, 1.0]])


def test_an_estimate_of_zero_keeps_its_direction_and_adds_nothing():
    psi = np.array([[[3.0, 4.0]]])
    theta = local_estimate(np.zeros((1, 1)), psi, inner_products(psi, psi))
    np.testing.assert_allclose(unit_vectors(theta), [[[0.6, 0.8]]])
    assert np.abs(theta).max() < 1e-99


def test_aggregation_of_two_agents_and_two_arms_by_hand():
    # Arm 0: agents look along (1, 0) and (0, 1), with weights 2 and 3: V = diag(1/2, 1/3), theta = (mean_1, mean_2).
    # Arm 1: both look along (1, 1)/sqrt(2), weights 1 and 3: sum = 4 e e^T, V = e e^T / 4, theta = weighted mean.
    s = math.sqrt(0.5)
    e = np.array([[[1.0, 0.0], [s, s]], [[0.0, 1.0], [s, s]]])
    means = np.array([[0.7, 1.0], [0.2, 2.0]])
    weights = np.array([[2.0, 1.0], [3.0, 3.0]])
    theta, V = aggregate(local_estimate(means, e, inner_products(e, e)), e, weights)
    np.testing.assert_allclose(V[0], [[1 / 2, 0], [0, 1 / 3]], atol=1e-12)
    np.testing.assert_allclose(V[1], [[1 / 8, 1 / 8], [1 / 8, 1 / 8]], atol=1e-12)
    np.testing.assert_allclose(theta, [[0.7, 0.2], [1.75 * s, 1.75 * s]], atol=1e-12)
    np.testing.assert_allclose(predictions(e, theta), [[0.7, 1.75], [0.2, 1.75]], atol=1e-12)
    np.testing.assert_allclose(squared_widths(e, V), [[1 / 2, 1 / 4], [1 / 3, 1 / 4]], atol=1e-12)


def test_a_width_is_infinite_outside_the_range_of_what_was_seen():
    V = np.array([[[1.0, 0.0], [0.0, 0.0]], np.eye(2)])
    psi = np.array([[[1.0, 0.0], [1.0, 1.0]], [[1.0, 1e-3], [0.0, 1.0]], [[0.0, 1.0], [3.0, 4.0]]])
    np.testing.assert_array_equal(outside_range(psi, V), [[False, False], [True, False], [True, False]])
    np.testing.assert_allclose(squared_widths(psi, V), [[1, 2], [np.inf, 1], [np.inf, 25]])


def test_nothing_is_outside_a_full_range():
    assert outside_range(np.ones((2, 1, 2)), np.eye(2)[None]) is None


@pytest.mark.parametrize("scale", [1e-12, 1e12])  # their 40th powers are no numbers of 64 bits
def test_widths_of_any_size_in_many_dimensions(scale):
    V = np.tile(scale * np.eye(40), (2, 1, 1))
    np.testing.assert_allclose(squared_widths(np.ones((3, 2, 40)), V), 40 * scale)


def test_very_unequal_pulls_leave_every_direction_in_range():
    rng = np.random.default_rng(0)
    e = unit_vectors(rng.standard_normal((60, 1, 3)))
    e[:58, :, 2] = 0  # most agents see a plane only ...
    e = unit_vectors(e)
    weights = np.full((60, 1), 65536.0)
    weights[58:] = 1  # ... and those who see more pulled once
    _, V = aggregate(e, e, weights)
    assert outside_range(e, V) is None
    assert np.isfinite(squared_widths(e, V)).all()


@pytest.mark.parametrize("arms", [1, 2, 5])
@pytest.mark.parametrize("dim", [1, 2, 3, 6])
def test_what_an_agent_computes_does_not_depend_on_who_is_beside_it(arms, dim):
    rng = np.random.default_rng(0)
    psi, theta = rng.standard_normal((17, arms, dim)), rng.standard_normal((arms, dim))
    V = rng.standard_normal((arms, dim, dim))
    V = V @ V.transpose(0, 2, 1)
    for agent in range(17):
        alone = slice(agent, agent + 1)
        np.testing.assert_array_equal(quadratic_forms(psi[alone], V), quadratic_forms(psi, V)[alone])
        np.testing.assert_array_equal(predictions(psi[alone], theta), predictions(psi, theta)[alone])
        np.testing.assert_array_equal(inner_products(psi[alone], psi[alone]), inner_products(psi, psi)[alone])


def test_inverse_on_span_is_the_pseudo_inverse():
    directions, active = random_problem(3, m=5, k=4, d=3)
    directions[:, 0] = directions[0, 0]
    weights = np.where(active, np.random.default_rng(0).integers(1, 10**5, active.shape), 0.0)
    inverse = inverse_on_span(directions, weights)
    for a in range(4):
        v = sum(w * np.outer(e, e) for w, e in zip(weights[:, a], directions[:, a], strict=True))
        expected = np.linalg.pinv(v, rcond=1e-12, hermitian=True)
        assert inverse[a] == pytest.approx(expected, rel=1e-7, abs=1e-9 * abs(expected).max())


def test_an_arm_of_which_nothing_was_heard_has_no_inverse_beside_very_unequal_weights():
    e = np.zeros((4, 2, 2))
    e[:, 0] = e[:, 1] = [[1, 0], [0, 1], [0.6, 0.8], [0.8, -0.6]]
    weights = np.array([[1e12, 0], [1e-3, 0], [1e-3, 0], [1e-3, 0]])
    inverse = inverse_on_span(e, weights)
    np.testing.assert_array_equal(inverse[1], np.zeros((2, 2)))
    np.testing.assert_allclose(inverse[0][1, 1], 1 / 2e-3, rtol=1e-6)


NOISE = [-2.7e-17, 1.4e-17, 5.6e-17]  # zeros, but for the last bits of some kernel


@pytest.mark.parametrize(
    ("r", "u", "best", "kept"),
    [
        ([0.3, 0.1 + 0.2, 0.1], 0.01, 0, [True, True, False]),  # 0.1 + 0.2 > 0.3 by rounding
        ([0.3, 0.3 + 1e-8, 0.1], 0.01, 1, [True, True, False]),  # a difference that counts
        (NOISE, 0.5, 0, [True, True, True]),  # terms as large as the widths have cancelled
        (NOISE[::-1], 0.5, 0, [True, True, True]),
        ([0.0, 0.5, 0.1 + 0.2], [0.1, 0.1, 0.1], 1, [False, True, True]),
        (
            [0.5, 0.3 - 1e-17, 0.2],
            [0.1, 0.1, math.inf],
            0,
            [True, True, True],
        ),  # 0.3 + 0.1 = 0.5 - 0.1, but for rounding
        ([0.5, 0.3 - 1e-7, 0.2], [0.1, 0.1, 0.1], 0, [True, False, False]),
    ],
)
def test_numbers_that_are_equal_but_for_rounding_count_as_equal(r, u, best, kept):
    r, u, active = np.array([r]), np.broadcast_to(u, (1, 3)), np.ones((1, 3), dtype=bool)
    ours = survivors(r, u, active, np.ones(3, dtype=bool), np.array([2]))
    assert (ours[0][0].tolist(), ours[1].tolist()) == (kept, [best])
    oracle = ref.decide(r[0], u[0], active[0])
    assert (oracle.active.tolist(), oracle.best) == (kept, best)


def test_arms_that_are_out_decide_no_tie():
    r, u = np.array([[1e9, 0.1, 0.2]]), np.zeros((1, 3))
    assert survivors(r, u, np.array([[False, True, True]]), np.ones(3, dtype=bool), np.array([0]))[1] == [2]
