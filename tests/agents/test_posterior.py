"""Beliefs about mean rewards: what rewards teach them, by dense algebra, and what samples of them say."""

import numpy as np
from beliefs import covariance

from fedbandit_agents.inference.posterior import Belief


def random_belief(rng, n=3, components=2, num_arms=4, q=2):
    weights = rng.dirichlet(np.ones(components), size=n)
    return Belief(
        np.log(weights),
        rng.normal(size=(n, components, num_arms)),
        rng.uniform(0.05, 0.5, size=(n, components, num_arms)),
        0.5 * rng.normal(size=(n, components, num_arms, q)),
    )


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


def test_learning_in_two_steps_is_learning_at_once():
    rng = np.random.default_rng(2)
    prior, noise = random_belief(rng), np.full((3, 4), 0.7)
    first, second = rng.integers(0, 4, size=(2, 3, 4))
    sums = rng.normal(size=(2, 3, 4)) * (np.array([first, second]) > 0)
    at_once = prior.given(first + second, sums[0] + sums[1], noise)
    stepwise = prior.given(first, sums[0], noise).given(second, sums[1], noise)
    np.testing.assert_allclose(stepwise.expected_rewards(), at_once.expected_rewards())
    np.testing.assert_allclose(covariance(stepwise), covariance(at_once), atol=1e-12)


# --- samples and what is read off them -------------------------------------------------------------------------------


def dense_samples(rng, belief, number):
    chosen = np.stack([rng.choice(len(w), size=number, p=w / w.sum()) for w in belief.weights])
    rows = np.arange(len(chosen))[:, None]
    own = rng.normal(size=(*chosen.shape, belief.mean.shape[2])) * np.sqrt(belief.variance)[rows, chosen]
    z = rng.normal(size=(*chosen.shape, belief.factors.shape[3]))
    return belief.mean[rows, chosen] + own + np.einsum("nkaq,nkq->nka", belief.factors[rows, chosen], z)


def test_the_difference_to_an_arm_has_the_moments_of_samples():
    belief = random_belief(np.random.default_rng(9))
    arm = np.array([0, 2, 3])
    mean, variance, hope, chance = belief.against(arm)
    samples = dense_samples(np.random.default_rng(10), belief, 200_000)
    difference = samples - np.take_along_axis(samples, arm[:, None, None], 2)
    np.testing.assert_allclose(mean, difference.mean(axis=1), atol=0.02)
    np.testing.assert_allclose(variance, difference.var(axis=1), rtol=0.03, atol=1e-12)
    np.testing.assert_allclose(hope, difference.clip(min=0).mean(axis=1), atol=0.02)
    others = np.arange(4) != arm[:, None]
    np.testing.assert_allclose(chance[others], (difference > 0).mean(axis=1)[others], atol=0.01)


def test_a_belief_without_any_uncertainty_stays_finite():
    belief = Belief(np.zeros((1, 1)), np.array([[[0.3, 0.1]]]), np.zeros((1, 1, 2)), np.zeros((1, 1, 2, 0)))
    found = belief.given(np.array([[5, 0]]), np.array([[1.0, 0.0]]), np.full((1, 2), 1e-12))
    np.testing.assert_array_equal(found.mean, belief.mean)
    assert all(np.isfinite(part).all() for part in found.against(np.array([0])))
