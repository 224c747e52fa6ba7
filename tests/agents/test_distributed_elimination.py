"""Distributed elimination: designs on few arms, shares of pulls, and which arms are kept."""

import numpy as np
import pytest
from refusals import assert_refused

from fedbandit_agents.linear.distributed_elimination import kept, phase_estimate, phase_pulls, shares, small_design


def test_the_pulls_of_the_first_phases_by_hand():
    """M = 2, T = 1,000 and the arms e_1 and e_2."""
    pi, rank = small_design(np.eye(2))
    np.testing.assert_array_equal(pi, [0.5, 0.5])
    for phase, expected in ((1, 61), (2, 244), (3, 973)):
        pulls = phase_pulls(pi, phase, rank, num_agents=2, horizon=1000, constant=1.0)
        assert pulls.tolist() == [expected, expected]
        assert shares(pulls, 2).tolist() == [[expected, 0], [0, expected]]  # one arm for each agent


def test_with_the_published_constant_the_first_phase_is_longer_than_the_run():
    pulls = phase_pulls(np.array([0.5, 0.5]), 1, 2, num_agents=2, horizon=1000, constant=600.0)
    assert pulls.tolist() == [36_485, 36_485]


def test_pulls_that_are_whole_but_for_rounding_stay_whole():
    horizon = 1000
    share = 3 / (4 * np.log(2 * horizon))  # 4 * share * ln(M T) is 3, but for rounding
    assert phase_pulls(np.array([share * (1 + 1e-15)]), 1, 1, 2, horizon, 1.0).tolist() == [3]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dim", [1, 2, 5, 12])
def test_a_design_knows_every_arm_and_plays_few(dim, seed):
    rng = np.random.default_rng(seed)
    arms = rng.normal(size=(200, dim)) * rng.uniform(0.01, 1, size=(200, 1))
    pi, rank = small_design(arms)
    assert rank == dim
    assert pi.sum() == pytest.approx(1)
    assert pi.min() >= 0
    V = np.einsum("k,kd,ke->de", pi, arms, arms)
    assert np.einsum("kd,de,ke->k", arms, np.linalg.inv(V), arms).max() <= 2 * dim * (1 + 1e-6)
    assert (
        np.count_nonzero(pi) <= 4 * dim * max(np.log(np.log(max(dim, 3))), 0) + 16
    )  # Lattimore and Szepesvari, ch. 21


def test_a_design_on_arms_that_span_less_works_in_their_span():
    arms = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    pi, rank = small_design(arms)
    assert rank == 2
    V = np.einsum("k,kd,ke->de", pi, arms, arms)
    assert np.einsum("kd,de,ke->k", arms, np.linalg.pinv(V), arms).max() <= 4 + 1e-9
    assert_refused(lambda: small_design(np.zeros((2, 3))), "arms: ")


@pytest.mark.parametrize("pulls", [[5], [1, 1, 1], [7, 0, 2, 9], [100, 1, 1]])
@pytest.mark.parametrize("num_agents", [1, 2, 3, 5])
def test_shares_add_up_and_no_agent_has_more_than_its_piece(pulls, num_agents):
    pulls = np.array(pulls)
    cut = shares(pulls, num_agents)
    np.testing.assert_array_equal(cut.sum(axis=0), pulls)
    assert cut.sum(axis=1).max() == -(-pulls.sum() // num_agents)
    assert np.count_nonzero(cut) <= np.count_nonzero(pulls) + num_agents - 1


def test_an_arm_is_cut_between_agents():
    assert shares(np.array([3, 3]), 4).tolist() == [[2, 0], [1, 1], [0, 2], [0, 0]]


def test_without_noise_the_best_arm_stays_and_worse_ones_go_in_time():
    rng = np.random.default_rng(1)
    arms, theta = rng.uniform(-0.5, 0.5, size=(30, 3)), np.array([0.6, -0.5, 0.3])
    values = arms @ theta
    gaps, active = values.max() - values, np.ones(30, dtype=bool)
    for phase in range(1, 12):
        pi, rank = small_design(arms[active])
        pulls = np.zeros(30, dtype=np.int64)
        pulls[active] = phase_pulls(pi, phase, rank, num_agents=4, horizon=1000, constant=1.0)
        estimate = phase_estimate(arms, pulls, np.where(pulls > 0, values, np.nan))
        active = kept(arms, estimate, active, phase)
        assert active[values.argmax()]
        assert gaps[active].max() <= 2.0 ** (1 - phase) + 1e-6
    assert active.sum() < 30


def test_estimates_use_counts_as_weights():
    arms, pulls = np.array([[1.0], [1.0]]), np.array([1, 3])
    np.testing.assert_allclose(phase_estimate(arms, pulls, np.array([1.0, 5.0])), [4.0])


def test_an_arm_at_the_edge_is_kept_and_one_that_is_gone_does_not_come_back():
    arms = np.array([[1.0], [0.5], [0.499], [2.0]])
    active = np.array([True, True, True, False])
    assert kept(arms, np.array([1.0]), active, phase=2).tolist() == [True, True, False, False]


def test_with_noise_the_best_arm_mostly_stays():
    """M = 4, T = 10,000, d = 2, C = 1 and noise 1, in 100 runs of 4 phases.

    A difference of two estimates has a standard deviation of at most 2 * 2^-l sqrt(2 / (d ln(M T))) = 0.61 * 2^-l. The
    best arm is lost if one of 19 differences is off by 2 * 2^-l or 3.2 standard deviations, so by the union bound 5.2
    times in 400 phases on average, at most. More than 18 times has a chance below 1e-5.
    """
    lost = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        arms, theta = rng.uniform(-0.7, 0.7, size=(20, 2)), np.array([0.6, 0.8])
        values, active = arms @ theta, np.ones(20, dtype=bool)
        for phase in range(1, 5):
            pi, rank = small_design(arms[active])
            pulls = np.zeros(20, dtype=np.int64)
            pulls[active] = phase_pulls(pi, phase, rank, num_agents=4, horizon=10_000, constant=1.0)
            means = values + rng.normal(size=20) / np.sqrt(pulls.clip(min=1))
            active = kept(arms, phase_estimate(arms, pulls, means), active, phase)
        lost += not active[values.argmax()]
    assert lost <= 18
    assert active.sum() < 10
