"""Expectation propagation: sites by hand, by brute-force integration, and their sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit_agents.inference.expectation_propagation import Information, full, leave_one_out, site, upper_triangles


def standard(n=1, num_arms=1, d=1):
    """Cavities theta_a ~ N(0, I)."""
    return Information(np.tile(np.eye(d), (n, num_arms, 1, 1)), np.zeros((n, num_arms, d)))


def together(cavity, told):
    """The mean and the covariance of theta given the cavity and a site."""
    mean, root = Information(cavity.precision + told.precision, cavity.shift + told.shift).moments()
    return mean, np.einsum("naxd,naxe->nade", root, root)


def points(*values):
    """Features (1, S, 1, 1) of one agent and one arm."""
    return np.array(values, dtype=float).reshape(1, -1, 1, 1)


def even(count):
    return np.full((1, count), -np.log(count))


def test_one_possible_context_is_linear_regression():
    rng = np.random.default_rng(0)
    d, precision, means = 3, np.array([[4.0, 0.5]]), np.array([[0.7, -2.0]])
    roots = rng.normal(size=(1, 2, d, d))
    cavity = Information(np.eye(d) + roots @ roots.swapaxes(2, 3), rng.normal(size=(1, 2, d)))
    x = rng.normal(size=(1, 1, 2, d))
    told = site(cavity, x, np.zeros((1, 1)), means, precision)
    for arm in range(2):
        expected = precision[0, arm] * np.outer(x[0, 0, arm], x[0, 0, arm])
        np.testing.assert_allclose(told.precision[0, arm], expected, atol=1e-12)
        np.testing.assert_allclose(told.shift[0, arm], precision[0, arm] * means[0, arm] * x[0, 0, arm], atol=1e-12)


def test_two_opposite_contexts_tell_the_size_of_theta_and_not_its_sign():
    # theta ~ N(0, 1), phi = 1 or -1, y = phi theta + N(0, 1): either has mean +-y / 2 and variance 1 / 2, so the
    # mixture has mean 0 and variance 1/2 + y^2 / 4. For y = 1 that is 3/4: precision 4/3, of which the prior has 1.
    told = site(standard(), points(1, -1), even(2), np.array([[1.0]]), np.array([[1.0]]))
    assert told.precision.item() == pytest.approx(1 / 3)
    assert told.shift.item() == pytest.approx(0, abs=1e-15)


def test_what_would_widen_the_cavity_moves_its_mean_alone():
    # phi = 1 or -1 with probabilities 3/4 and 1/4, y = 4: the mixture has mean (3/4 - 1/4) y / 2 = 1 and variance
    # 1/2 + (1 - 1/4) y^2 / 4 = 3.5 > 1.
    weights = np.log([[0.75, 0.25]])
    told = site(standard(), points(1, -1), weights, np.array([[4.0]]), np.array([[1.0]]))
    assert told.precision.item() == pytest.approx(0, abs=1e-12)
    assert told.shift.item() == pytest.approx(1)


def test_arms_that_were_not_pulled_tell_nothing_and_those_with_weight_0_are_impossible():
    told = site(standard(num_arms=2), np.ones((1, 2, 2, 1)), even(2), np.array([[3.0, 0.0]]), np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(told.precision.ravel(), [1, 0], atol=1e-15)
    with np.errstate(divide="ignore"):
        sure = np.log([[1.0, 0.0]])
    told = site(standard(), points(1, -1), sure, np.array([[3.0]]), np.array([[1.0]]))
    assert (told.precision.item(), told.shift.item()) == pytest.approx((1, 3))


def test_in_doubt_rewards_say_less_and_nothing_if_no_context_explains_them():
    # theta ~ N(0, 1), phi = 1, y = 1 of precision 1: y has N(0, 2), by N(0, 1) at 0 a density of e^-1/4 / sqrt(2).
    # With doubt of that very density the chances are even: mean 1/4, variance (1/2 + 1) / 2 + 1/16 = 13/16.
    likely = -0.25 - 0.5 * np.log(2)
    told = site(standard(), points(1), np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)), np.array([likely]))
    assert told.precision.item() == pytest.approx(16 / 13 - 1)
    assert told.shift.item() == pytest.approx(0.25 * 16 / 13)
    nothing = site(standard(), points(1), np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)), np.array([700.0]))
    np.testing.assert_allclose([nothing.precision.item(), nothing.shift.item()], 0, atol=1e-15)


def test_the_moments_are_those_of_brute_force_integration():
    # Two arms say together which of two contexts it is: the exact posterior on a grid of both theta_a.
    features = np.array([[[1.0, 0.5], [0.4, -1.0]]])[..., None]  # (1, 2, 2, 1)
    weights, means, precision = np.log([[0.6, 0.4]]), np.array([[0.9, 0.3]]), np.array([[5.0, 3.0]])
    one, two = np.meshgrid(*[np.linspace(-6, 6, 601)] * 2, indexing="ij")
    density = np.zeros(one.shape)
    for s in range(2):
        off = (means[0, 0] - features[0, s, 0, 0] * one) ** 2 * precision[0, 0]
        off = off + (means[0, 1] - features[0, s, 1, 0] * two) ** 2 * precision[0, 1]
        density += np.exp(weights[0, s] - (off + one**2 + two**2) / 2)
    density /= density.sum()
    mean, variance = together(standard(num_arms=2), site(standard(num_arms=2), features, weights, means, precision))
    for arm, theta in enumerate((one, two)):
        exact = (density * theta).sum()
        assert mean[0, arm, 0] == pytest.approx(exact, abs=1e-6)
        assert variance[0, arm, 0, 0] == pytest.approx((density * (theta - exact) ** 2).sum(), abs=1e-6)


def test_sweeps_over_some_agents_come_near_the_exact_posterior():
    # Six agents, one theta, two contexts each. EP is not exact: before the first run a tenth of the exact standard
    # deviation was allowed for the mean, and a fifth of the variance.
    rng = np.random.default_rng(1)
    M, theta, noise = 6, 0.8, 0.3
    features = rng.uniform(0.3, 1.5, size=(M, 2, 1, 1))
    means = theta * features[:, 0, :, 0] + noise * rng.normal(size=(M, 1))
    weights, precision = np.full((M, 2), np.log(0.5)), np.full((M, 1), noise**-2)
    sites = Information(np.zeros((M, 1, 1, 1)), np.zeros((M, 1, 1)))
    for _ in range(20):
        sites = site(leave_one_out(Information(np.eye(1), np.zeros(1)), sites), features, weights, means, precision)
    grid = np.linspace(-4, 4, 8001)
    off = (means[:, :, None] - features[:, :, 0] * grid) ** 2 / noise**2  # (M, 2, grid)
    log_density = np.log(np.exp(-off / 2).sum(axis=1)).sum(axis=0) - grid**2 / 2
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    mean = (density * grid).sum()
    variance = (density * (grid - mean) ** 2).sum()
    precision = 1 + sites.precision.sum()
    assert abs(sites.shift.sum() / precision - mean) < 0.1 * np.sqrt(variance)
    assert 1 / precision == pytest.approx(variance, rel=0.2)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 5), contexts=st.integers(1, 4), scale=st.floats(1e-3, 1e3))
def test_sites_never_have_negative_precision_and_rows_are_independent(seed, d, contexts, scale):
    rng = np.random.default_rng(seed)
    n, num_arms = 4, 3
    cavity = Information(standard(n, num_arms, d).precision, rng.normal(size=(n, num_arms, d)))
    arguments = (
        scale * rng.normal(size=(n, contexts, num_arms, d)),
        np.log(rng.dirichlet(np.ones(contexts), size=n)),
        rng.normal(scale=3, size=(n, num_arms)),
        rng.exponential(size=(n, num_arms)) / scale,
    )
    told = site(cavity, *arguments)
    values = np.linalg.eigvalsh(told.precision)
    assert (values >= -1e-9 * values.max()).all()
    for row in range(n):
        part = slice(row, row + 1)
        alone = site(Information(cavity.precision[part], cavity.shift[part]), *(each[part] for each in arguments))
        np.testing.assert_array_equal(alone.precision, told.precision[part])
        np.testing.assert_array_equal(alone.shift, told.shift[part])


def test_an_agent_that_knows_more_than_all_others_does_not_drown_them():
    precision = np.array([1e20, 3.0, 4.0]).reshape(3, 1, 1, 1)
    others = leave_one_out(Information(np.eye(1), np.ones(1)), Information(precision, np.zeros((3, 1, 1))))
    assert others.precision[0].item() == 8  # the whole minus 1e20 would be 0
    np.testing.assert_array_equal(others.shift.ravel(), [1, 1, 1])


def test_triangles_hold_the_whole_matrix():
    matrices = np.random.default_rng(2).normal(size=(2, 3, 4, 4))
    matrices = matrices + matrices.swapaxes(2, 3)
    assert upper_triangles(matrices).shape == (2, 3, 10)
    np.testing.assert_array_equal(full(upper_triangles(matrices), 4), matrices)
