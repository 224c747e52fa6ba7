"""Points that stand for a context distribution where features are not linear in the context."""

import numpy as np
import pytest
from beliefs import prior_of
from bumps import bumps

import fedbandit_envs as fb
from fedbandit_agents.inference.cloud import cloud, needs_cloud, spread_normals
from fedbandit_agents.inference.context_bias import average_belief, without_own_share
from fedbandit_agents.inference.posterior import Belief
from fedbandit_envs.seeding import Randomness, Stream


def view_of(mu, feature_map):
    n, (K, d) = mu.num_agents, (feature_map.num_arms, feature_map.dim)
    constants = fb.Constants(n, K, d, 100, ell=1.0, L=1.0, noise_std=1.0, context="fixed")
    psi = mu.expected_features(feature_map)
    return fb.View(constants, np.arange(n), mu, feature_map, psi, Randomness(0, Stream.POLICY, n))


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_points_have_the_moments_of_normals(dim):
    points = spread_normals(256, dim)
    assert points.mean(axis=0) == pytest.approx(0, abs=1e-12)
    assert np.cov(points.T, bias=True).reshape(dim, dim) == pytest.approx(np.eye(dim), abs=0.2)
    assert np.mean(points**4, axis=0) == pytest.approx(3, abs=0.8)


def test_a_cloud_has_the_mean_and_the_variance_of_the_bias_nearly():
    mu, feature_map = fb.Gaussian([[0.8], [-0.5], [1.3]], std=0.5), fb.FeatureFunction(bumps, 8, 6, 1)
    view, theta = view_of(mu, feature_map), np.random.default_rng(0).normal(size=(8, 6))
    others = without_own_share(theta, np.zeros((8, 6, 6)), view.psi, np.zeros((3, 8)), np.zeros((3, 8)))
    belief = prior_of(view, others)
    mean = belief.expected_rewards()
    variance = np.einsum("ns,nsa->na", belief.weights, belief.variance + (belief.mean - mean[:, None]) ** 2)
    assert mean == pytest.approx(np.einsum("nad,ad->na", view.psi, theta), abs=0.05)
    assert variance == pytest.approx(mu.reward_variances(feature_map, theta), rel=0.15)


def test_only_maps_that_are_not_linear_need_a_cloud():
    curved, straight = fb.FeatureFunction(bumps, 8, 6, 1), fb.Identity(8, 1)
    assert needs_cloud(view_of(fb.Gaussian([[0.8]], std=0.5), curved))
    assert not needs_cloud(view_of(fb.Gaussian([[0.8]], std=0.5), straight))
    assert not needs_cloud(view_of(fb.Discrete([[[0.8], [0.1]]], [[0.5, 0.5]]), curved))


def test_fewer_points_stand_for_many_agents_whatever_the_block():
    view = view_of(fb.Gaussian(np.full((3000, 1), 0.8), std=0.5), fb.FeatureFunction(bumps, 8, 6, 1))
    assert cloud(view)[0].shape == cloud(view.rows(np.arange(1)))[0].repeat(3000, axis=0).shape == (3000, 58, 1)


def test_a_cloud_infers_rewards_better_than_one_gaussian():
    # theta is known, and half of the arms have been pulled 30 times. Root mean square errors of the other arms, over
    # 300 contexts: the bound on their ratio was chosen after seeing 0.39.
    rng, theta = np.random.default_rng(1), np.random.default_rng(0).normal(size=(8, 6))
    feature_map, mu = fb.FeatureFunction(bumps, 8, 6, 1), fb.Gaussian(rng.uniform(-1.5, 1.5, size=(300, 1)), std=0.5)
    view = view_of(mu, feature_map)
    truth = np.einsum("nad,ad->na", feature_map(mu.sample(rng)), theta)
    pulls = np.tile([30, 30, 30, 30, 0, 0, 0, 0], (300, 1))
    sums = pulls * truth + 0.3 * np.sqrt(pulls) * rng.normal(size=pulls.shape)
    nothing = np.zeros((300, 8))
    others = without_own_share(theta, np.zeros((8, 6, 6)), view.psi, nothing, nothing)
    factors, own = mu.reward_factors(feature_map, theta)
    average = average_belief(view, others)
    gaussian = Belief(average.log_weights, average.mean, average.variance + own[:, None], factors[:, None])
    errors = [
        np.sqrt(np.mean((belief.given(pulls, sums, np.full((300, 8), 0.09)).expected_rewards() - truth)[:, 4:] ** 2))
        for belief in (prior_of(view, others), gaussian)
    ]
    assert errors[0] < 0.6 * errors[1]
