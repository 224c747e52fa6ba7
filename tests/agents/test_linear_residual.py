"""Residuals of a common model: estimates by hand, and what they are good for when a hidden context stays."""

import numpy as np
import pytest

from fedbandit_agents.linear.residual import residuals, without_residuals
from fedbandit_agents.linear.ridge import choose, for_agents, from_sums, predictions
from fedbandit_envs.ties import first_largest


def test_a_residual_by_hand():
    # Two pulls with psi = (1, 0) and theta = (0.5, 0) pay 3 in all: 2 beyond the model; 4 * 2 / (1 + 2 * 4).
    estimate, std = residuals(
        np.array([[2]]), np.array([[3.0]]), np.array([[[2.0, 0.0]]]), np.array([[[0.5, 0.0]]]), 4.0, 1.0
    )
    assert estimate[0, 0] == pytest.approx(8 / 9)
    assert std[0, 0] == pytest.approx(np.sqrt(4 / 9))


def test_a_residual_with_other_noise_by_hand():
    # The noise has the variance 4 now: 4 * 2 / (4 + 2 * 4), and 4 * 4 / (4 + 2 * 4).
    estimate, std = residuals(np.array([[2]]), np.array([[2.0]]), np.zeros((1, 1, 2)), np.zeros((1, 1, 2)), 4.0, 2.0)
    assert estimate[0, 0] == pytest.approx(2 / 3)
    assert std[0, 0] == pytest.approx(np.sqrt(4 / 3))


def test_contexts_that_are_known_have_no_residual():
    estimate, std = residuals(np.ones((1, 2)), np.ones((1, 2)), np.zeros((1, 2, 3)), np.zeros((1, 1, 3)), 0.0, 1.0)
    assert (estimate == 0).all()
    assert (std == 0).all()


def test_each_arm_has_its_own_theta_and_variance_where_they_differ():
    theta, variance = np.array([[[1.0], [2.0]]]), np.array([[1.0, 0.0]])
    estimate, std = residuals(np.array([[1, 1]]), np.array([[2.0, 5.0]]), np.ones((1, 2, 1)), theta, variance, 1.0)
    np.testing.assert_allclose(estimate, [[0.5, 0.0]])  # (2 - 1) / (1 + 1)
    np.testing.assert_allclose(std, [[np.sqrt(0.5), 0.0]])


def test_residuals_and_theta_by_turns_are_the_posterior_mode_of_the_mixed_model():
    """theta ~ N(0, I), residuals ~ N(0, 0.5), noise 1: the joint ridge regression, solved at once and by turns."""
    rng = np.random.default_rng(0)
    psi, pulls = rng.normal(size=(6, 1, 2)), rng.integers(1, 6, size=(6, 1))
    sums = rng.normal(size=(6, 1)) * pulls
    features, gram = pulls[..., None] * psi, pulls[..., None, None] * psi[..., :, None] * psi[..., None, :]
    theta, estimate = np.zeros((1, 1, 2)), np.zeros((6, 1))
    for _ in range(500):
        moments = without_residuals(sums[..., None] * psi, features, estimate)
        theta = from_sums(gram.sum(axis=0, keepdims=True), moments.sum(axis=0, keepdims=True), 1.0).theta()
        estimate, _ = residuals(pulls, sums, features, theta, 0.5, 1.0)
    rows = np.repeat(np.concatenate([psi[:, 0], np.eye(6)], axis=1), pulls[:, 0], axis=0)  # one row for each pull
    rewards = np.repeat(sums[:, 0] / pulls[:, 0], pulls[:, 0])
    joint = np.linalg.solve(rows.T @ rows + np.diag([1, 1] + [2] * 6), rows.T @ rewards)
    np.testing.assert_allclose(theta[0, 0], joint[:2], atol=1e-8)
    np.testing.assert_allclose(estimate[:, 0], joint[2:], atol=1e-8)


def play(psi, phi, theta, steps, *, with_residuals, seed):
    """Regret (steps,) per agent of optimistic agents that share sums at each step, against the true best arm."""
    rng = np.random.default_rng(seed)
    M, K, _ = psi.shape
    truth, rows = phi @ theta, np.arange(M)
    pulls, sums, estimate, std = (np.zeros((M, K)) for _ in range(4))
    spread = 0.25 * (theta**2).sum()
    regret = np.zeros(steps)
    for step in range(steps):
        features = pulls[..., None] * psi
        gram = np.einsum("nk,nkd,nke->de", pulls, psi, psi)[None, None]
        moments = without_residuals(sums[..., None] * psi, features, estimate)
        ridge = for_agents(from_sums(gram, moments.sum(axis=(0, 1))[None, None], 1.0), M)
        if with_residuals:
            estimate, std = residuals(pulls, sums, features, ridge.theta(), spread, 0.3)
            means, lengths = predictions(ridge, psi)
            arm = first_largest(means + lengths + estimate + 2 * std)
        else:
            arm = choose(ridge, psi, 1.0)
        pulls[rows, arm] += 1
        sums[rows, arm] += truth[rows, arm] + 0.3 * rng.normal(size=M)
        regret[step] = (truth.max(axis=1) - truth[rows, arm]).mean()
    return regret


def test_where_a_hidden_context_stays_residuals_learn_what_the_common_model_can_not():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        theta = np.array([0.6, 0.8])
        psi = rng.uniform(-0.7, 0.7, size=(20, 5, 2))
        phi = psi + 0.5 * rng.normal(size=psi.shape)
        common, own = (play(psi, phi, theta, 600, with_residuals=how, seed=seed) for how in (False, True))
        assert common[300:].mean() > 0.05  # linear regret: the bias does not average out
        assert own[300:].mean() < 0.2 * common[300:].mean()
