"""Beliefs about mean rewards, and the prior that a hidden context gives: by hand, by dense algebra, by integration."""

import numpy as np
import pytest

from fedbandit_agents.inference.context_bias import (
    bias_variances,
    inferred_features,
    prior_belief,
    without_own_share,
)
from fedbandit_agents.inference.posterior import Belief
from fedbandit_envs import Discrete, FeatureFunction, Gaussian, Identity, PointMass, Table
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.seeding import Randomness, RowDraws, Stream


def view_of(distribution, feature_map):
    n, num_arms, d = distribution.num_agents, feature_map.num_arms, feature_map.dim
    constants = Constants(n, num_arms, d, 1000, 0.5, 1.0, 1.0, "fixed")
    psi = distribution.expected_features(feature_map)
    return View(constants, np.arange(n), distribution, feature_map, psi, Randomness(0, Stream.POLICY, n))


def others(view, theta, V):
    nothing = np.zeros(view.psi.shape[:2])
    return without_own_share(theta, V, view.psi, nothing, nothing)


def covariance(belief):
    """(n, K, K) of the whole mixture."""
    deviation = belief.mean - belief.expected_rewards()[:, None]
    within = np.einsum("nsaq,nsbq->nsab", belief.factors, belief.factors)
    arms = np.arange(belief.mean.shape[2])
    within[..., arms, arms] += belief.variance
    return np.einsum("ns,nsab->nab", belief.weights, within + np.einsum("nsa,nsb->nsab", deviation, deviation))


def random_belief(rng, n=3, components=2, num_arms=4, q=2):
    weights = rng.dirichlet(np.ones(components), size=n)
    return Belief(
        np.log(weights),
        rng.normal(size=(n, components, num_arms)),
        rng.uniform(0.05, 0.5, size=(n, components, num_arms)),
        0.5 * rng.normal(size=(n, components, num_arms, q)),
    )


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_posterior_of_two_arms_by_hand():
    # r = (c, 2c), c ~ N(1, 1/4). One reward 2 of the first arm, noise 1: the precision of c goes from 4 to 5, its mean
    # to (4 * 1 + 1 * 2) / 5 = 1.2.
    view = view_of(Gaussian(np.array([[1.0]]), std=0.5), Identity(2, 1))
    prior = prior_belief(view, others(view, np.array([[1.0], [2.0]]), np.zeros((2, 1, 1))))
    found = prior.given(np.array([[1, 0]]), np.array([[2.0, 0.0]]), np.ones((1, 2)))
    np.testing.assert_allclose(found.expected_rewards(), [[1.2, 2.4]])
    np.testing.assert_allclose(covariance(found), [[[0.2, 0.4], [0.4, 0.8]]])


def test_uncertain_theta_is_learnt_arm_by_arm_when_the_context_is_known():
    # r_a = theta_a, theta_a ~ N(0, 1). Three rewards with sum 3 and noise 1: precision 4, mean 3/4; arm 2 unseen.
    view = view_of(PointMass(np.ones((1, 2))), Table(2, 1))
    prior = prior_belief(view, others(view, np.zeros((2, 1)), np.ones((2, 1, 1))))
    found = prior.given(np.array([[3, 0]]), np.array([[3.0, 0.0]]), np.ones((1, 2)))
    np.testing.assert_allclose(found.expected_rewards(), [[0.75, 0.0]])
    np.testing.assert_allclose(covariance(found), [[[0.25, 0.0], [0.0, 1.0]]])


def test_who_is_behind_the_screen_by_hand():
    # Two equally likely people with r = 0 and r = 2; a reward of 2 with noise 1: odds exp(-(0 - 4) / 2) = e^2.
    view = view_of(Discrete(np.array([[[0.0], [2.0]]]), np.array([[0.5, 0.5]])), Identity(1, 1))
    prior = prior_belief(view, others(view, np.ones((1, 1)), np.zeros((1, 1, 1))))
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


def test_posterior_is_gaussian_conditioning_in_each_component():
    rng = np.random.default_rng(1)
    prior = random_belief(rng)
    pulls = rng.integers(0, 4, size=(3, 4))
    sums, noise = rng.normal(size=(3, 4)) * pulls, rng.uniform(0.5, 2, size=(3, 4))
    found = prior.given(pulls, sums, noise)
    logs = np.empty((3, 2))
    for i in range(3):
        seen = pulls[i] > 0
        y, R = (sums[i] / pulls[i].clip(1))[seen], np.diag((noise[i] / pulls[i].clip(1))[seen])
        for s in range(2):
            P = prior.factors[i, s] @ prior.factors[i, s].T + np.diag(prior.variance[i, s])
            S = P[np.ix_(seen, seen)] + R
            gain = P[:, seen] @ np.linalg.inv(S)
            residual = y - prior.mean[i, s, seen]
            np.testing.assert_allclose(found.mean[i, s], prior.mean[i, s] + gain @ residual)
            dense = found.factors[i, s] @ found.factors[i, s].T + np.diag(found.variance[i, s])
            np.testing.assert_allclose(dense, P - gain @ P[seen], atol=1e-12)
            fit = residual @ np.linalg.solve(S, residual) + np.linalg.slogdet(S)[1]
            logs[i, s] = prior.log_weights[i, s] - 0.5 * fit
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found.weights, weights / weights.sum(axis=1, keepdims=True))


def test_factors_given_other_arms_are_those_of_gaussian_conditioning_without_the_arm():
    rng = np.random.default_rng(11)
    prior, noise = random_belief(rng), np.full((3, 4), 0.7)
    pulls = rng.integers(0, 4, size=(3, 4))
    sums = rng.normal(size=(3, 4)) * pulls
    z, covariance_of_z = prior.factors_given_other_arms(pulls, sums, noise)
    for i, s, arm in np.ndindex(3, 2, 4):
        seen = (pulls[i] > 0) & (np.arange(4) != arm)
        F = prior.factors[i, s, seen]
        S = F @ F.T + np.diag(prior.variance[i, s, seen] + 0.7 / pulls[i, seen])
        residual = sums[i, seen] / pulls[i, seen] - prior.mean[i, s, seen]
        np.testing.assert_allclose(z[i, s, arm], F.T @ np.linalg.solve(S, residual), atol=1e-12)
        np.testing.assert_allclose(covariance_of_z[i, s, arm], np.eye(2) - F.T @ np.linalg.solve(S, F), atol=1e-12)


@pytest.mark.parametrize("name", ["std", "covariance"])
def test_inferred_features_are_the_context_given_the_other_arms(name):
    # Three arms, theta known: regress c ~ N(psi, Sigma) on the mean rewards of the two other arms.
    rng = np.random.default_rng(12)
    view = view_of(DISTRIBUTIONS[name](rng, 5, 2), Identity(3, 2))
    theta, pulls, noise = rng.normal(size=(3, 2)), np.array([[1, 2, 3]] * 5), np.full((5, 3), 0.2)
    V, sums = np.zeros((3, 2, 2)), rng.normal(size=(5, 3)) * pulls
    prior = prior_belief(view, others(view, theta, V))
    x, tau2 = inferred_features(view, prior, theta, V, pulls, sums, noise)
    for i, arm in np.ndindex(5, 3):
        rest = np.arange(3) != arm
        sigma = view.distribution.rows(np.array([i])).reward_covariance(Identity(2, 2), np.eye(2))[0]
        seen = theta[rest] @ sigma @ theta[rest].T + np.diag(noise[i, rest] / pulls[i, rest])
        gain, psi = sigma @ theta[rest].T @ np.linalg.inv(seen), view.psi[i, 0]
        expected = psi + gain @ (sums[i, rest] / pulls[i, rest] - theta[rest] @ psi)
        np.testing.assert_allclose(x[i, arm], expected, atol=1e-9)
        left = sigma - gain @ theta[rest] @ sigma
        np.testing.assert_allclose(tau2[i, arm], theta[arm] @ left @ theta[arm], atol=1e-9)


@pytest.mark.parametrize(
    ("name", "feature_map"),
    [("point", "identity"), ("discrete", "identity"), ("std", "table"), ("std", "function")],
)
def test_where_nothing_is_inferred_features_are_the_expected_ones(name, feature_map):
    rng = np.random.default_rng(13)
    chosen = MAPS[feature_map]
    view = view_of(DISTRIBUTIONS[name](rng, 5, chosen.context_dim), chosen)
    theta, V = rng.normal(size=(4, 2)), np.tile(0.1 * np.eye(2), (4, 1, 1))
    prior, ones = prior_belief(view, others(view, theta, V)), np.ones((5, 4))
    x, tau2 = inferred_features(view, prior, theta, V, ones.astype(int), ones, ones)
    np.testing.assert_array_equal(x, view.psi)
    np.testing.assert_array_equal(tau2, bias_variances(view, theta, V))


def test_learning_in_two_steps_is_learning_at_once():
    rng = np.random.default_rng(2)
    prior, noise = random_belief(rng), np.full((3, 4), 0.7)
    first, second = rng.integers(0, 4, size=(2, 3, 4))
    sums = rng.normal(size=(2, 3, 4)) * (np.array([first, second]) > 0)
    at_once = prior.given(first + second, sums[0] + sums[1], noise)
    stepwise = prior.given(first, sums[0], noise).given(second, sums[1], noise)
    np.testing.assert_allclose(stepwise.expected_rewards(), at_once.expected_rewards())
    np.testing.assert_allclose(covariance(stepwise), covariance(at_once), atol=1e-12)


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
    tau2 = bias_variances(view_of(distribution, feature_map), theta, root @ root.transpose(0, 2, 1))
    columns = [theta, root[..., 0], root[..., 1]]
    parts = [np.einsum("naa->na", distribution.reward_covariance(feature_map, column)) for column in columns]
    np.testing.assert_allclose(tau2, sum(parts), atol=1e-8 * abs(tau2).max(initial=1))


# --- by integration --------------------------------------------------------------------------------------------------


def moments(grid, density):
    """Mean and covariance of points (G, K) with unnormalised weights (G,)."""
    weights = density / density.sum()
    mean = weights @ grid
    return mean, (grid - mean).T @ (weights[:, None] * (grid - mean))


def test_gaussian_context_equals_integration_over_the_context():
    theta, noise = np.array([[0.8], [-0.5]]), 0.3
    view = view_of(Gaussian(np.array([[0.6]]), std=0.4), Identity(2, 1))
    pulls, sums = np.array([[2, 1]]), np.array([[1.9, -0.6]])
    found = prior_belief(view, others(view, theta, np.zeros((2, 1, 1)))).given(pulls, sums, np.full((1, 2), noise))
    c = np.linspace(0.6 - 4, 0.6 + 4, 40_001)
    rewards = c[:, None] * theta[:, 0]
    log_density = -0.5 * ((c - 0.6) / 0.4) ** 2 - 0.5 * ((sums / pulls - rewards) ** 2 * pulls / noise).sum(axis=1)
    mean, dense = moments(rewards, np.exp(log_density))
    np.testing.assert_allclose(found.expected_rewards()[0], mean, atol=1e-8)
    np.testing.assert_allclose(covariance(found)[0], dense, atol=1e-8)


def test_table_of_two_arms_equals_integration_over_both():
    # Contexts with independent rows and theta known: the two mean rewards are independent; integrate the plane.
    theta, noise, std = np.array([[1.0], [0.7]]), 0.5, 0.3
    view = view_of(Gaussian(np.array([[0.5, 0.9]]), std=std), Table(2, 1))
    pulls, sums = np.array([[3, 1]]), np.array([[2.4, 0.2]])
    found = prior_belief(view, others(view, theta, np.zeros((2, 1, 1)))).given(pulls, sums, np.full((1, 2), noise))
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
    found = prior_belief(view, others(view, theta, V)).given(pulls, sums, np.full((1, 2), noise))
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


# --- samples and what is read off them -------------------------------------------------------------------------------


def dense_samples(rng, belief, number):
    chosen = np.stack([rng.choice(len(w), size=number, p=w / w.sum()) for w in belief.weights])
    rows = np.arange(len(chosen))[:, None]
    own = rng.normal(size=(*chosen.shape, belief.mean.shape[2])) * np.sqrt(belief.variance)[rows, chosen]
    z = rng.normal(size=(*chosen.shape, belief.factors.shape[3]))
    return belief.mean[rows, chosen] + own + np.einsum("nkaq,nkq->nka", belief.factors[rows, chosen], z)


@pytest.mark.parametrize("components", [1, 3])
def test_arms_are_best_in_samples_as_often_as_they_are_best(components):
    belief = random_belief(np.random.default_rng(4), components=components)
    number = 40_001  # odd: one sample stays without its mirror image
    counts = belief.best_in_samples(number, RowDraws(5, (0,), 3), 3, np.arange(3))
    assert (counts.sum(axis=1) == number).all()
    best = dense_samples(np.random.default_rng(6), belief, number).argmax(axis=2)
    expected = np.stack([np.bincount(row, minlength=4) for row in best])
    # Differences of two frequencies: standard deviation below 0.0036, and 0.02 is 5.6 of them.
    assert abs(counts - expected).max() < 0.02 * number


def test_samples_of_some_rows_are_those_of_all_rows():
    belief = random_belief(np.random.default_rng(7), n=5, components=2)

    def draws():
        return RowDraws(8, (0,), 5)

    every = belief.best_in_samples(33, draws(), 5, np.arange(5))
    some = np.array([1, 4])
    np.testing.assert_array_equal(belief.best_in_samples(33, draws(), 5, some), every[some])


def test_the_difference_to_an_arm_has_the_moments_of_samples():
    belief = random_belief(np.random.default_rng(9))
    arm = np.array([0, 2, 3])
    mean, variance, hope = belief.against(arm)
    samples = dense_samples(np.random.default_rng(10), belief, 200_000)
    difference = samples - np.take_along_axis(samples, arm[:, None, None], 2)
    np.testing.assert_allclose(mean, difference.mean(axis=1), atol=0.02)
    np.testing.assert_allclose(variance, difference.var(axis=1), rtol=0.03, atol=1e-12)
    np.testing.assert_allclose(hope, difference.clip(min=0).mean(axis=1), atol=0.02)


def test_bounds_of_differences_hold_in_every_component_that_is_not_ignored():
    # r_2 - r_1 has means 0, 5 and 50. What the arms share leaves a variance of (0.6 - 0.4)^2; their own are added.
    weights = np.array([[0.9, 0.0999, 0.0001]])
    mean = np.array([[[1.0, 1.0], [0.0, 5.0], [0.0, 50.0]]])
    variance = np.array([[[0.6, 0.36], [3.6, 0.36], [0.6, 0.36]]])
    factors = np.broadcast_to(np.array([[0.4], [0.6]]), (1, 3, 2, 1))
    belief = Belief(np.log(weights), mean, variance, factors)
    found = belief.most_above(np.array([0]), 2.0, 0.001)
    np.testing.assert_allclose(found, [[0, 5 + 2 * np.sqrt(0.04 + 3.6 + 0.36)]])
    np.testing.assert_allclose(belief.most_above(np.array([0]), 2.0, 0.2), [[0, 2.0]])


def test_a_belief_without_any_uncertainty_stays_finite():
    belief = Belief(np.zeros((1, 1)), np.array([[[0.3, 0.1]]]), np.zeros((1, 1, 2)), np.zeros((1, 1, 2, 0)))
    found = belief.given(np.array([[5, 0]]), np.array([[1.0, 0.0]]), np.full((1, 2), 1e-12))
    np.testing.assert_array_equal(found.mean, belief.mean)
    assert all(np.isfinite(part).all() for part in found.against(np.array([0])))
