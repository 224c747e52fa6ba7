"""The scale of theta is learnt from the first rewards: by the server, or by an agent alone."""

import numpy as np
import pytest
from units import in_units

import fedbandit_envs as fb
from fedbandit_agents import FedCI
from fedbandit_agents.inference.scale import common_prior, own_variance
from fedbandit_agents.phased.estimation import local_estimate, unit_vectors
from fedbandit_baselines import LocalThompson


def prior_of(estimates, weights, sigma):
    """The common prior by these estimates (M, K, d) and weights, (M, K)."""
    e = unit_vectors(estimates)
    values = np.einsum("nad,nad->an", estimates, e)
    return common_prior(e.transpose(1, 2, 0), values, weights.T, sigma)


def first_reports(rng, theta, num_agents, sigma, bias=0.0):
    """Estimates (M, K, d) and weights (M, K) from one pull of each arm, for random psi of length 1."""
    num_arms, d = theta.shape
    psi = rng.normal(size=(num_agents, num_arms, d))
    psi /= np.linalg.norm(psi, axis=2, keepdims=True)
    off = np.hypot(sigma, bias) * rng.normal(size=(num_agents, num_arms))
    return local_estimate(np.einsum("nad,ad->na", psi, theta) + off, psi, np.ones(off.shape)), np.ones(off.shape)


@pytest.mark.parametrize("sigma", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_the_prior_covers_every_arm_and_is_not_ten_times_too_wide(sigma, scale):
    # The most unusual of 12 arms is at most three widths off, and the width at most three times the arms' spread.
    rng = np.random.default_rng(1)
    for _ in range(20):
        centre = 3 * scale * rng.normal(size=3)
        theta = centre + scale * rng.normal(size=(12, 3))
        m, s = prior_of(*first_reports(rng, theta, 60, sigma * scale, 0.3 * scale), sigma * scale)
        assert np.abs(theta - m).max() < 3 * s
        assert s < 3 * (theta - centre).std()


def test_one_arm_that_is_unlike_all_others_makes_the_prior_wide():
    rng = np.random.default_rng(2)
    theta = np.concatenate([0.1 * rng.normal(size=(11, 3)), [[10.0, 0.0, 0.0]]])
    _, s = prior_of(*first_reports(rng, theta, 60, 0.1), 0.1)
    assert s > 5


def test_a_few_reports_don_t_pass_for_many():
    # One agent: one value for each arm says nothing about two of three directions.
    rng = np.random.default_rng(3)
    for _ in range(20):
        theta = rng.normal(size=(3, 3))
        m, s = prior_of(*first_reports(rng, theta, 1, 0.01), 0.01)
        assert np.abs(theta - m).max() < 5 * s


def test_false_first_reports_move_the_prior_little():
    rng = np.random.default_rng(4)
    theta = rng.normal(size=(6, 3))
    estimates, weights = first_reports(rng, theta, 60, 0.1)
    _, honest = prior_of(estimates, weights, 0.1)
    estimates[:3] *= -1e6
    weights[3:6] *= 1e6
    _, poisoned = prior_of(estimates, weights, 0.1)
    assert honest / 2 < poisoned < 2 * honest


@pytest.mark.parametrize(("sigma", "width"), [(0.0, 1.0), (0.5, 0.05)])
def test_rewards_that_are_all_zero_give_some_width(sigma, width):
    estimates = local_estimate(np.zeros((2, 3)), np.ones((2, 3, 2)), np.full((2, 3), 2.0))
    m, s = prior_of(estimates, np.ones((2, 3)), sigma)
    assert np.abs(m).max() < 1e-50
    assert s == pytest.approx(width, rel=0.5)
    alone = own_variance(np.ones((2, 3), dtype=int), np.zeros((2, 3)), np.ones((2, 3)), np.full((2, 1), sigma))
    assert np.sqrt(alone) == pytest.approx(width)


@pytest.mark.parametrize("policy", [FedCI(), LocalThompson()], ids=["with a server", "alone"])
def test_regret_grows_with_the_scale_of_rewards_and_no_faster(policy):
    problem = fb.Linear(
        np.random.default_rng(0).normal(size=(5, 3)) / 2,
        contexts=fb.Gaussian(np.random.default_rng(1).normal(size=(20, 15)), std=0.2),
        feature_map=fb.Table(5, 3),
    )
    one, twenty = (
        np.mean(
            [
                fb.play(
                    fb.HiddenContextBandit(in_units(problem, scale), max_cycles=2**13), policy, seed=seed
                ).mean_regret()[-1]
                for seed in range(3)
            ]
        )
        for scale in (1.0, 20.0)
    )
    assert twenty == pytest.approx(20 * one, rel=1e-9)


def test_agents_that_no_answer_reaches_judge_the_scale_alone():
    # All reports are lost: agents play like those who never had a server, but for the length of their first plan.
    problem = in_units(fb.Synthetic(num_agents=10, num_arms=5, context_std=0.1), 1000.0)
    env = fb.HiddenContextBandit(problem, max_cycles=2**12)
    deaf, alone = (
        np.mean([fb.play(env, policy, seed=seed, faults=faults).mean_regret()[-1] for seed in range(12)])
        for policy, faults in ((FedCI(), fb.Faults(dropout=1.0)), (LocalThompson(), None))
    )
    assert deaf == pytest.approx(alone, rel=0.3)


@pytest.mark.parametrize("rate", [0.4, 0.1])
def test_rewards_that_are_mostly_zero_are_not_taken_for_tiny_ones(rate):
    """Each arm pays 1 with this probability. Its theta, (rate, 0), lies within three widths of the centre.

    The median of an arm's values was that of its zeros, and all values were cut to 0: the width was 0.05.
    """
    rng = np.random.default_rng(5)
    psi = np.tile([1.0, 0.0], (60, 4, 1))
    for _ in range(20):
        rewards = (rng.random((60, 4)) < rate).astype(float)
        m, s = prior_of(local_estimate(rewards, psi, np.ones(rewards.shape)), np.ones(rewards.shape), 0.5)
        assert abs(rate - m[0]) < 3 * s
        assert m[0] > rate / 3


def test_a_false_value_among_zeros_counts_for_six_usual_ones():
    """The median is then taken over all arms: each has one value of 1, and the first has a false one."""
    values = np.zeros((60, 4))
    values[:4] = np.eye(4)
    psi, weights = np.tile([1.0, 0.0], (60, 4, 1)), np.ones((60, 4))
    widths = []
    for values[7, 0] in (6.0, 1e6):
        _, width = prior_of(local_estimate(values, psi, weights), weights, 0.5)
        widths.append(width)
    assert widths[0] == widths[1]
