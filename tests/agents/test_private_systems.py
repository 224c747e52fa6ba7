"""Private-FedLinUCB as a whole: the tree, the shift and the width together, beside the oracle and without noise."""

import linear_systems as engine
import numpy as np
import pytest
import reference_linear as oracle
from reference_linear import Problem, dyadic_sizes

from fedbandit_agents.linear.noise import private_shift
from fedbandit_agents.privacy import Budget, clipped, noise_std, report_noise, sensitivity, tree_levels
from fedbandit_envs.seeding import Randomness, Stream


def problem_of(seed, T, M, K, d):
    """Fresh arms of norm 1 at most at each step, one theta of norm 1, rewards clipped to [-1, 1]."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=d)
    theta /= np.linalg.norm(theta)
    x = rng.uniform(-1, 1, size=(T, M, K, d)) / np.sqrt(d)
    means = x @ theta
    _, rewards = clipped(x, means + 0.3 * rng.normal(size=means.shape), feature_bound=1.0, reward_bound=1.0)
    return Problem(x, x, rewards), means


def noises(std, releases, M, d, seed=0):
    drawn = [report_noise(Randomness(seed, Stream.POLICY, M).draws(k), std, d) for k in range(releases)]
    return tuple(np.stack(part) for part in zip(*drawn, strict=True))


def test_sizes_of_dyadic_blocks():
    assert [dyadic_sizes(number) for number in (1, 6, 7)] == [[1], [4, 2], [4, 2, 1]]


@pytest.mark.parametrize("seed", range(3))
def test_private_fed_lin_ucb_decides_as_the_oracle_does(seed):
    problem, _ = problem_of(seed, T=70, M=3, K=5, d=2)
    noise = noises(0.5, releases=7, M=3, d=2, seed=seed)
    settings = {"every": 10, "shift": 4.0, "scale": 0.1, "alpha": 0.5, "bound": 0.1}
    fast = engine.private_fed_lin_ucb(problem, noise, **settings)
    slow = oracle.private_fed_lin_ucb(problem, noise, **settings)
    np.testing.assert_array_equal(fast.arms, slow.arms)
    assert fast.uploads == slow.uploads
    silent = engine.private_fed_lin_ucb(problem, noises(0.0, 7, 3, 2), **settings)
    assert (silent.arms != fast.arms).any()  # the noise does something


def test_without_noise_releases_are_the_sums_of_all_agents():
    """With an infinite epsilon nothing is left of the tree: the same decisions as from plain sums, at all steps."""
    problem, _ = problem_of(0, T=60, M=4, K=5, d=2)
    std = noise_std(Budget(np.inf, 0.1), tree_levels(6), sensitivity(1.0, 1.0))
    settings = {"every": 10, "shift": 1.0, "scale": 0.3, "alpha": 0.1, "bound": 1.0}
    private = engine.private_fed_lin_ucb(problem, noises(std, 6, 4, 2), **settings)
    np.testing.assert_array_equal(private.arms, plain_sums(problem, **settings))


def plain_sums(problem, every, shift, scale, alpha, bound):
    """The arms of agents that share plain sums at every so many steps, with dense matrices."""
    T, M, _, d = problem.shape
    W, U = shift * np.eye(d), np.zeros(d)
    own = [(np.zeros((d, d)), np.zeros(d)) for _ in range(M)]
    arms = np.zeros((T, M), dtype=int)
    for t in range(T):
        width = np.sqrt(shift) * bound + scale * np.sqrt(d * np.log(1 + t * M / (d * shift)) - np.log(alpha))
        for i in range(M):
            arm = arms[t, i] = oracle.best_arm(problem.psi[t, i], W + own[i][0], U + own[i][1], width)
            x = problem.psi[t, i, arm]
            own[i] = own[i][0] + np.outer(x, x), own[i][1] + x * problem.rewards[t, i, arm]
        if (t + 1) % every == 0:
            W, U = W + sum(gram for gram, _ in own), U + sum(moments for _, moments in own)
            own = [(np.zeros((d, d)), np.zeros(d)) for _ in range(M)]
    return arms


@pytest.mark.slow
def test_regret_falls_with_epsilon():
    """M = 50, K = 8, d = 3, T = 2,000 and a release every 25 steps; noise by the exact account, in each of 3 runs."""
    releases, alpha = 80, 0.01
    for seed in range(3):
        problem, means = problem_of(seed, T=2000, M=50, K=8, d=3)
        regrets = []
        for epsilon in (10.0, 1.0, 0.2):
            std = noise_std(Budget(epsilon, 0.1), tree_levels(releases), sensitivity(1.0, 1.0))
            shift = private_shift(std, releases, num_agents=50, dim=3, alpha=alpha)
            noise = noises(std, releases, 50, 3, seed)
            settings = {"every": 25, "shift": shift, "scale": 0.3, "alpha": alpha, "bound": 1.0}
            arms = engine.private_fed_lin_ucb(problem, noise, **settings).arms
            got = np.take_along_axis(means, arms[:, :, None], axis=2)[..., 0]
            regrets.append((means.max(axis=2) - got).sum() / 50)
        assert regrets[0] < regrets[1] < regrets[2]
        assert regrets[2] < 0.25 * (means.max(axis=2) - means.mean(axis=2)).sum() / 50  # far better than uniform play
