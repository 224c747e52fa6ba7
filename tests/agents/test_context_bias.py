"""The prior that a hidden context gives, and what is inferred of it: by hand, by dense algebra, by integration."""

import numpy as np
import pytest
from beliefs import covariance, others, prior_of, view_of

from fedbandit_agents.inference.context_bias import (
    bias_of,
    inferred_features,
    without_own_share,
)
from fedbandit_envs import Discrete, FeatureFunction, Gaussian, Identity, PointMass, Table

# --- by hand ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def trusting(monkeypatch):
    """Agents that take mu for right whatever they see."""
    monkeypatch.setattr("fedbandit_agents.inference.context_bias.WRONG", 1e-15)


def test_posterior_of_two_arms_by_hand(trusting):
    # r = (c, 2c), c ~ N(1, 1/4). One reward 2 of the first arm, noise 1: the precision of c goes from 4 to 5, its mean
    # to (4 * 1 + 1 * 2) / 5 = 1.2.
    view = view_of(Gaussian(np.array([[1.0]]), std=0.5), Identity(2, 1))
    prior = prior_of(view, others(view, np.array([[1.0], [2.0]]), np.zeros((2, 1, 1))))
    found = prior.given(np.array([[1, 0]]), np.array([[2.0, 0.0]]), np.ones((1, 2)))
    np.testing.assert_allclose(found.expected_rewards(), [[1.2, 2.4]])
    np.testing.assert_allclose(covariance(found), [[[0.2, 0.4], [0.4, 0.8]]])


def test_uncertain_theta_is_learnt_arm_by_arm_when_the_context_is_known():
    # r_a = theta_a, theta_a ~ N(0, 1). Three rewards with sum 3 and noise 1: precision 4, mean 3/4; arm 2 unseen.
    view = view_of(PointMass(np.ones((1, 2))), Table(2, 1))
    prior = prior_of(view, others(view, np.zeros((2, 1)), np.ones((2, 1, 1))))
    found = prior.given(np.array([[3, 0]]), np.array([[3.0, 0.0]]), np.ones((1, 2)))
    np.testing.assert_allclose(found.expected_rewards(), [[0.75, 0.0]])
    np.testing.assert_allclose(covariance(found), [[[0.25, 0.0], [0.0, 1.0]]])


def test_who_is_behind_the_screen_by_hand():
    # Two equally likely people with r = 0 and r = 2; a reward of 2 with noise 1: odds exp(-(0 - 4) / 2) = e^2.
    view = view_of(Discrete(np.array([[[0.0], [2.0]]]), np.array([[0.5, 0.5]])), Identity(1, 1))
    prior = prior_of(view, others(view, np.ones((1, 1)), np.zeros((1, 1, 1))))
    found = prior.given(np.array([[1]]), np.array([[2.0]]), np.ones((1, 1)))
    np.testing.assert_allclose(found.weights, [[1 / (1 + np.e**2), np.e**2 / (1 + np.e**2)]])
    np.testing.assert_allclose(found.expected_rewards(), [[2 * np.e**2 / (1 + np.e**2)]])


def test_own_share_is_taken_out_by_hand():
    # Prior precision 1; reports 2 (precision 1) and 4 (precision 2): V = 1/4, theta = 10/4. The other alone: 1/3, 8/3.
    V, theta, psi = np.full((1, 1, 1), 1 / 4), np.full((1, 1), 10 / 4), np.ones((2, 1, 1))
    found = without_own_share(theta, V, psi, np.array([[2.0], [4.0]]), np.array([[1.0], [2.0]]))
    mean, variance = found.predict(psi[:, None])
    np.testing.assert_allclose(mean[:, 0], [[8 / 3], [2 / 2]])
    np.testing.assert_allclose(variance[:, 0], [[1 / 3], [1 / 2]])


# --- by dense algebra ------------------------------------------------------------------------------------------------


def test_own_share_taken_out_is_the_estimate_without_it():
    rng = np.random.default_rng(0)
    n, num_arms, d = 6, 3, 2
    psi, reported = rng.normal(size=(n, num_arms, d)), rng.normal(size=(n, num_arms))
    precision = rng.uniform(0.1, 5, size=(n, num_arms)) * (rng.random((n, num_arms)) < 0.8)

    def fit(keep):
        information = np.einsum("na,nad,nae->ade", precision[keep], psi[keep], psi[keep]) + np.eye(d)
        V = np.linalg.inv(information)
        return np.einsum("ade,nae,na->ad", V, psi[keep], precision[keep] * reported[keep]), V

    found = without_own_share(*fit(np.arange(n)), psi, reported, precision)
    features = rng.normal(size=(n, 4, num_arms, d))
    mean, variance = found.predict(features)
    for i in range(n):
        theta, V = fit(np.arange(n) != i)
        np.testing.assert_allclose(mean[i], np.einsum("sad,ad->sa", features[i], theta))
        np.testing.assert_allclose(variance[i], np.einsum("sad,ade,sae->sa", features[i], V, features[i]))


@pytest.mark.parametrize("name", ["std", "covariance"])
def test_inferred_features_are_the_context_given_the_other_arms(name):
    # Three arms, theta known: regress c ~ N(psi, Sigma) on the mean rewards of the two other arms.
    rng = np.random.default_rng(12)
    view = view_of(DISTRIBUTIONS[name](rng, 5, 2), Identity(3, 2))
    theta, pulls, noise = rng.normal(size=(3, 2)), np.array([[1, 2, 3]] * 5), np.full((5, 3), 0.2)
    V, sums = np.zeros((3, 2, 2)), rng.normal(size=(5, 3)) * pulls
    prior = prior_of(view, others(view, theta, V))
    bias = bias_of(view, theta, V).variances
    x, tau2 = inferred_features(view, prior, np.ones((len(view.psi), 1)), theta, V, bias, pulls, sums, noise)
    for i, arm in np.ndindex(5, 3):
        rest = np.arange(3) != arm
        sigma = view.distribution.rows(np.array([i])).reward_covariance(Identity(2, 2), np.eye(2))[0]
        seen = theta[rest] @ sigma @ theta[rest].T + np.diag(noise[i, rest] / pulls[i, rest])
        gain, psi = sigma @ theta[rest].T @ np.linalg.inv(seen), view.psi[i, 0]
        expected = psi + gain @ (sums[i, rest] / pulls[i, rest] - theta[rest] @ psi)
        np.testing.assert_allclose(x[i, arm], expected, atol=1e-9)
        left = sigma - gain @ theta[rest] @ sigma
        # As much as 9 % of the bias counts as left at least: see the tests on divergence.
        expected = max(theta[arm] @ left @ theta[arm], 0.09 * bias[i, arm])
        np.testing.assert_allclose(tau2[i, arm], expected, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "feature_map"),
    [("point", "identity"), ("discrete", "identity"), ("std", "table"), ("std", "function")],
)
def test_where_nothing_is_inferred_features_are_the_expected_ones(name, feature_map):
    rng = np.random.default_rng(13)
    chosen = MAPS[feature_map]
    view = view_of(DISTRIBUTIONS[name](rng, 5, chosen.context_dim), chosen)
    theta, V = rng.normal(size=(4, 2)), np.tile(0.1 * np.eye(2), (4, 1, 1))
    prior, ones = prior_of(view, others(view, theta, V)), np.ones((5, 4))
    bias = bias_of(view, theta, V).variances
    x, tau2 = inferred_features(view, prior, np.ones((len(view.psi), 1)), theta, V, bias, ones.astype(int), ones, ones)
    np.testing.assert_array_equal(x, view.psi)
    np.testing.assert_array_equal(tau2, bias)


DISTRIBUTIONS = {
    "std": lambda rng, n, dim: Gaussian(rng.normal(size=(n, dim)), std=rng.uniform(0.1, 0.5, size=(n, dim))),
    "covariance": lambda rng, n, dim: Gaussian(
        rng.normal(size=(n, dim)), covariance=(lambda A: A @ A.transpose(0, 2, 1))(rng.normal(size=(n, dim, dim)))
    ),
    "discrete": lambda rng, n, dim: Discrete(rng.normal(size=(n, 3, dim)), rng.dirichlet(np.ones(3), size=n)),
    "point": lambda rng, n, dim: PointMass(rng.normal(size=(n, dim))),
}
MAPS = {
    "identity": Identity(4, 2),
    "table": Table(4, 2),
    "function": FeatureFunction(lambda c: np.stack([c**k for k in range(1, 5)], axis=1), 4, 2, 2),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("feature_map", MAPS.values(), ids=MAPS)
def test_factors_and_variances_of_the_bias_make_up_its_covariance(name, feature_map):
    rng = np.random.default_rng(3)
    distribution = DISTRIBUTIONS[name](rng, 5, feature_map.context_dim)
    theta = rng.normal(size=(4, 2))
    factors, own = distribution.reward_factors(feature_map, theta)
    expected = distribution.reward_covariance(feature_map, theta)
    found = factors @ factors.transpose(0, 2, 1) + own[:, :, None] * np.eye(4)
    np.testing.assert_allclose(found, expected, atol=1e-9 * abs(expected).max(initial=1))
    # With theta uncertain, tau^2 adds trace(V Cov(phi)): summed over the columns of a root of V.
    root = rng.normal(size=(4, 2, 2))
    tau2 = bias_of(view_of(distribution, feature_map), theta, root @ root.transpose(0, 2, 1)).variances
    columns = [theta, root[..., 0], root[..., 1]]
    parts = [np.einsum("naa->na", distribution.reward_covariance(feature_map, column)) for column in columns]
    np.testing.assert_allclose(tau2, sum(parts), atol=1e-8 * abs(tau2).max(initial=1))


# --- by integration --------------------------------------------------------------------------------------------------


def moments(grid, density):
    """Mean and covariance of points (G, K) with unnormalised weights (G,)."""
    weights = density / density.sum()
    mean = weights @ grid
    return mean, (grid - mean).T @ (weights[:, None] * (grid - mean))


def test_gaussian_context_equals_integration_over_the_context(trusting):
    theta, noise = np.array([[0.8], [-0.5]]), 0.3
    view = view_of(Gaussian(np.array([[0.6]]), std=0.4), Identity(2, 1))
    pulls, sums = np.array([[2, 1]]), np.array([[1.9, -0.6]])
    found = prior_of(view, others(view, theta, np.zeros((2, 1, 1)))).given(pulls, sums, np.full((1, 2), noise))
    c = np.linspace(0.6 - 4, 0.6 + 4, 40_001)
    rewards = c[:, None] * theta[:, 0]
    log_density = -0.5 * ((c - 0.6) / 0.4) ** 2 - 0.5 * ((sums / pulls - rewards) ** 2 * pulls / noise).sum(axis=1)
    mean, dense = moments(rewards, np.exp(log_density))
    np.testing.assert_allclose(found.expected_rewards()[0], mean, atol=1e-8)
    np.testing.assert_allclose(covariance(found)[0], dense, atol=1e-8)


def test_table_of_two_arms_equals_integration_over_both(trusting):
    # Contexts with independent rows and theta known: the two mean rewards are independent; integrate the plane.
    theta, noise, std = np.array([[1.0], [0.7]]), 0.5, 0.3
    view = view_of(Gaussian(np.array([[0.5, 0.9]]), std=std), Table(2, 1))
    pulls, sums = np.array([[3, 1]]), np.array([[2.4, 0.2]])
    found = prior_of(view, others(view, theta, np.zeros((2, 1, 1)))).given(pulls, sums, np.full((1, 2), noise))
    line = np.linspace(-2, 3, 1001)
    c = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    rewards = c * theta[:, 0]
    prior = -0.5 * (((c - [0.5, 0.9]) / std) ** 2).sum(axis=1)
    mean, dense = moments(rewards, np.exp(prior - 0.5 * ((sums / pulls - rewards) ** 2 * pulls / noise).sum(axis=1)))
    np.testing.assert_allclose(found.expected_rewards()[0], mean, atol=1e-8)
    np.testing.assert_allclose(covariance(found)[0], dense, atol=1e-8)


def test_discrete_context_equals_integration_over_theta_and_people():
    # Exact with theta uncertain too: given the person, r_a = c_s theta_a is normal.
    support, weights = np.array([[[0.4], [0.9], [-0.3]]]), np.array([[0.2, 0.5, 0.3]])
    theta, V, noise = np.array([[0.8], [-0.5]]), np.array([[[0.04]], [[0.09]]]), 0.05
    view = view_of(Discrete(support, weights), Identity(2, 1))
    pulls, sums = np.array([[2, 1]]), np.array([[1.0, -0.1]])
    found = prior_of(view, others(view, theta, V)).given(pulls, sums, np.full((1, 2), noise))
    grids = [np.linspace(theta[a, 0] - 8 * V[a, 0, 0] ** 0.5, theta[a, 0] + 8 * V[a, 0, 0] ** 0.5, 601) for a in (0, 1)]
    thetas = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, 2)
    prior = np.exp(-0.5 * ((thetas - theta[:, 0]) ** 2 / V[:, 0, 0]).sum(axis=1))
    rewards = thetas[None] * support[0, :, 0, None, None]  # (S, G, K)
    likelihood = np.exp(-0.5 * ((sums / pulls - rewards) ** 2 * pulls / noise).sum(axis=2))
    density = weights[0, :, None] * prior * likelihood
    np.testing.assert_allclose(found.weights[0], density.sum(axis=1) / density.sum(), atol=1e-8)
    mean, dense = moments(rewards.reshape(-1, 2), density.ravel())
    np.testing.assert_allclose(found.expected_rewards()[0], mean, atol=1e-8)
    np.testing.assert_allclose(covariance(found)[0], dense, atol=1e-8)
