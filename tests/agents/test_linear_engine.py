"""The engine of linear bandits: ridge regression, widths and triggers, by hand and by dense algebra."""

import math

import numpy as np
import pytest

from fedbandit_agents.linear.ridge import choose, for_agents, from_sums, learn, predictions, start
from fedbandit_agents.linear.triggers import dis_lin_ucb_threshold, exceeds, fed_ucb_growth, out_of_date
from fedbandit_agents.linear.widths import ellipsoid_width, fed_lin_ucb_width, hidden_scale

ARMS = np.eye(2)[None]  # one agent, whose two arms have the features e_1 and e_2
USUAL = {"delta": 0.1, "regularisation": 1.0, "theta_bound": 1.0}


def indices(ridge, psi, width):
    means, lengths = predictions(ridge, psi)
    return means + width * lengths


# --- Kirschner and Krause: one agent, lambda = S = sigma = 1, delta = 0.1 ---------------------------------------------


def test_kk_ucb_with_a_hidden_context_by_hand():
    ridge, scale = start(1, 1, 2, 1.0), hidden_scale(1.0)
    width = ellipsoid_width(ridge.growth, scale=scale, **USUAL)
    assert width[0, 0] == pytest.approx(5.79853, abs=5e-6)
    learn(ridge, np.array([0]), np.array([[1.0, 0.0]]), np.array([1]), np.array([1.0]))
    width = ellipsoid_width(ridge.growth, scale=scale, **USUAL)
    assert width[0, 0] == pytest.approx(6.14700, abs=5e-6)
    np.testing.assert_allclose(ridge.theta()[0, 0], [0.5, 0])
    np.testing.assert_allclose(indices(ridge, ARMS, width)[0], [4.84658, 6.14700], atol=5e-6)
    assert choose(ridge, ARMS, width).tolist() == [1]


def test_kk_ucb_with_a_context_that_is_revealed_by_hand():
    ridge = start(1, 1, 2, 1.0)
    assert ellipsoid_width(ridge.growth, scale=1.0, **USUAL)[0, 0] == pytest.approx(3.14597, abs=5e-6)
    learn(ridge, np.array([0]), np.array([[0.6, 0.8]]), np.array([1]), np.array([1.0]))
    width = ellipsoid_width(ridge.growth, scale=1.0, **USUAL)
    assert width[0, 0] == pytest.approx(3.30181, abs=5e-6)
    np.testing.assert_allclose(ridge.theta()[0, 0], [0.3, 0.4])
    np.testing.assert_allclose(indices(ridge, ARMS, width)[0], [3.28991, 3.12274], atol=5e-6)
    assert choose(ridge, ARMS, width).tolist() == [0]


# --- triggers ---------------------------------------------------------------------------------------------------------


def test_a_server_counts_all_blocks_when_it_asks_who_is_out_of_date():
    # Determinants 4 * 6 against 2 * 6 and 2 * 3: ratios 2 and 4.
    total = np.array([[[3.0]], [[5.0]]])
    missing = np.array([[[[2.0]], [[0.0]]], [[[2.0]], [[3.0]]]])
    assert out_of_date(total, missing, 1.0, factor=2.0).tolist() == [False, True]


def test_what_equals_its_threshold_but_for_rounding_does_not_exceed_it():
    values = np.log1p(1 / np.arange(5, 10)).cumsum()[-1:]  # ln(10 / 5), in five steps
    assert abs(values[0] - math.log(2)) < 1e-15
    assert exceeds(values, math.log(2)).tolist() == [False]
    assert exceeds(values * (1 + 1e-8), math.log(2)).tolist() == [True]
    assert exceeds(np.array([1e-300, 0.0]), 0.0).tolist() == [True, False]


def test_the_growth_of_fed_ucb_allows_for_the_noise_of_all_agents():
    V, synchronised = np.diag([3.0, 7.0])[None], np.diag([2.0, 6.0])[None]
    # M (rmax - rmin) = 4: ln(7 * 11) - ln(2 * 6)
    assert fed_ucb_growth(V, synchronised, 2, rmin=1.0, rmax=3.0)[0] == pytest.approx(math.log(77 / 12))


# --- widths -----------------------------------------------------------------------------------------------------------


def test_separate_ellipsoids_share_delta():
    growth = np.log([[4.0, 1.0]])  # two arms, the first of which was pulled
    separate = ellipsoid_width(growth, scale=2.0, **USUAL)
    expected = [2 * math.sqrt(math.log(4) + 2 * math.log(20)) + 1, 2 * math.sqrt(2 * math.log(20)) + 1]
    np.testing.assert_allclose(separate[0], expected)


def test_confidence_bounds_hold_in_more_runs_than_they_promise():
    """400 agents with delta = 0.1 each: 40 failures at any step are allowed; more than 60 have a chance below 1e-3."""
    rng = np.random.default_rng(5)
    agents, arms, dim, steps = 400, 3, 2, 100
    theta = rng.normal(size=(agents, arms, dim))
    theta /= np.linalg.norm(theta, axis=2, keepdims=True)
    ridge, failed, rows = start(agents, arms, dim, 1.0), np.zeros(agents, dtype=bool), np.arange(agents)
    for _ in range(steps):
        psi = rng.uniform(-0.7, 0.7, size=(agents, arms, dim))
        width = ellipsoid_width(ridge.growth, scale=1.0, **USUAL)
        means, lengths = predictions(ridge, psi)
        failed |= (np.einsum("nkd,nkd->nk", psi, theta) > means + width * lengths + 1e-12).any(axis=1)
        arm = choose(ridge, psi, width)
        reward = np.einsum("nd,nd->n", psi[rows, arm], theta[rows, arm]) + rng.normal(size=agents)
        learn(ridge, arm, psi[rows, arm], np.ones(agents), reward)
    assert failed.sum() <= 60


def test_the_width_of_fed_lin_ucb_grows_with_what_agents_may_keep_to_themselves():
    settings = {"dim": 3, "scale": 0.3, "delta": 0.1, "regularisation": 1.0, "theta_bound": 1.0, "feature_bound": 1.0}
    widths = [fed_lin_ucb_width(num_agents=10, horizon=100, alpha=alpha, **settings) for alpha in (0.01, 0.1, 1.0)]
    assert widths == sorted(widths)
    # alpha = 1 / M^2 = 0.01: sqrt(1.1) + sqrt(2) times (0.3 sqrt(3 ln((1 + 100,000) / 0.1)) + 1), and 1
    expected = 1 + (math.sqrt(1.1) + math.sqrt(2)) * (0.3 * math.sqrt(3 * math.log(1_000_010)) + 1)
    assert widths[0] == pytest.approx(expected)


def test_the_usual_threshold_of_dis_lin_ucb():
    assert dis_lin_ucb_threshold(horizon=100, num_agents=2, dim=6) == pytest.approx(100 * math.log(200) / 12)


# --- ridge regression ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 3])
def test_rank_one_updates_are_dense_ridge_regression(blocks):
    rng = np.random.default_rng(2)
    ridge, rows = start(4, blocks, 3, 0.5), np.arange(4)
    gram, moments, grown = np.zeros((4, blocks, 3, 3)), np.zeros((4, blocks, 3)), np.zeros(4)
    for _ in range(300):
        block, x, pulls = rng.integers(blocks, size=4), rng.normal(size=(4, 3)), rng.integers(0, 3, size=4)
        rewards = rng.normal(size=4) * pulls
        grown += learn(ridge, block, x, pulls, rewards)
        gram[rows, block] += pulls[:, None, None] * x[:, :, None] * x[:, None, :]
        moments[rows, block] += x * rewards[:, None]
    dense = from_sums(gram, moments, 0.5)
    for found, expected in zip(ridge, dense, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(grown, dense.growth.sum(axis=1))
    V = gram + 0.5 * np.eye(3)
    np.testing.assert_allclose(ridge.theta(), np.linalg.solve(V, moments[..., None])[..., 0])
    np.testing.assert_allclose(dense.growth, np.log(np.linalg.det(2 * V)))


def test_a_weighted_regression_is_ordinary_regression_on_scaled_data():
    x, weight, y = np.array([[0.6, 0.8]]), np.array([0.25]), np.array([2.0])
    weighted, scaled = start(1, 1, 2, 1.0), start(1, 1, 2, 1.0)
    learn(weighted, np.array([0]), x, weight, weight * y)
    learn(scaled, np.array([0]), 0.5 * x, np.array([1]), 0.5 * y)
    for found, expected in zip(weighted, scaled, strict=True):
        np.testing.assert_allclose(found, expected)


def test_each_agent_has_a_copy_of_its_own_of_what_is_common():
    ridge = for_agents(from_sums(np.eye(2)[None, None], np.ones((1, 1, 2)), 1.0), 2)
    learn(ridge, np.array([0, 0]), np.array([[1.0, 0.0], [0.0, 0.0]]), np.ones(2), np.ones(2))
    np.testing.assert_array_equal(ridge.inverse[1, 0], np.eye(2) / 2)


def test_bounds_that_are_equal_but_for_rounding_go_to_the_first_arm():
    ridge = start(1, 2, 1, 1.0)
    for arm, rewards in ((0, [0.1, 0.2, 0.3]), (1, [0.3, 0.2, 0.1])):  # the sums differ in their last bits
        for reward in rewards:
            learn(ridge, np.array([arm]), np.ones((1, 1)), np.ones(1), np.array([reward]))
    means, _ = predictions(ridge, np.ones((1, 2, 1)))
    assert means[0, 0] != means[0, 1]
    for order in ([0, 1], [1, 0]):
        swapped = type(ridge)(*(array[:, order] for array in ridge))
        assert choose(swapped, np.ones((1, 2, 1)), 0.0).tolist() == [0]  # a width would round the bits away


@pytest.mark.parametrize("blocks", [1, 7])
def test_rows_have_the_same_bits_however_agents_are_split(blocks):
    rng = np.random.default_rng(4)
    ridge, rows = start(9, blocks, 5, 1.0), np.array([7, 2])
    own = start(2, blocks, 5, 1.0)
    for _ in range(30):
        block, x, y = rng.integers(blocks, size=9), rng.normal(size=(9, 5)), rng.normal(size=9)
        learn(ridge, block, x, np.ones(9), y)
        learn(own, block[rows], x[rows], np.ones(2), y[rows])
    psi = rng.normal(size=(9, 7, 5))
    for some, every in zip(own, ridge, strict=True):
        np.testing.assert_array_equal(some, every[rows])
    for some, every in zip(predictions(own, psi[rows]), predictions(ridge, psi), strict=True):
        np.testing.assert_array_equal(some, every[rows])
