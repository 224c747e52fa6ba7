"""How Fed-CI shares its pulls out: shares against samples of independent arms, rounding, and what is pulled for all."""

import math

import numpy as np
import pytest

from fedbandit_agents import FedCI
from fedbandit_agents.inference.fed_ci import FedCIAgents, shared_out, shares
from fedbandit_agents.inference.posterior import Belief
from fedbandit_envs import Constants, PointMass, Table, View
from fedbandit_envs.seeding import Randomness, Stream


def independent(seed, num_arms, spread, num_agents=100):
    """A belief in which arms have nothing in common, the arm that it expects most of, and how often each is best."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(num_agents, num_arms))
    variance = np.full(mean.shape, spread**2)
    belief = Belief(np.zeros((num_agents, 1)), mean[:, None], variance[:, None], np.zeros((num_agents, 1, num_arms, 0)))
    samples = mean + spread * rng.normal(size=(2000, *mean.shape))
    frequency = (samples.argmax(axis=2)[..., None] == np.arange(num_arms)).mean(axis=0)
    return belief, mean.argmax(axis=1), frequency


# Known before: 0.01 to 0.05 with ten arms, where the odds without the power have up to 0.09. Frequencies of 2000
# samples add at most 0.03 to the mean distance.
@pytest.mark.parametrize("spread", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("num_arms", [2, 10])
def test_shares_are_nearly_the_probabilities_to_be_best(num_arms, spread):
    belief, best, frequency = independent(1, num_arms, spread)
    found = shares(belief.against(best).chance, best, np.ones(frequency.shape, dtype=bool))
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert (abs(found - frequency).sum(axis=1) / 2).mean() < 0.06


def test_equal_arms_have_equal_shares_and_others_none():
    among = np.array([[True, True, False, True]])
    np.testing.assert_allclose(shares(np.full((1, 4), 0.5), np.array([3]), among), [[1 / 3, 1 / 3, 0, 1 / 3]])


def test_an_arm_that_is_surely_better_takes_all():
    found = shares(np.array([[1.0, 0.5]]), np.array([1]), np.array([[True, False]]))
    np.testing.assert_allclose(found, [[1, 0]], atol=1e-9)


def test_pulls_are_whole_numbers_with_the_right_sum_and_mean():
    rng = np.random.default_rng(2)
    for length in (1, 7.25, 10**6):
        wanted = length * np.tile(rng.dirichlet(np.ones(5)), (40_000, 1))
        pulls = shared_out(wanted, math.ceil(length), rng.random(len(wanted)))
        assert set(pulls.sum(axis=1)) <= {math.floor(length), math.ceil(length), round(length)}
        assert (abs(pulls - wanted) <= 1).all()
        # The standard deviation of a mean is at most 0.5 / 200, and 0.0125 is five of them.
        assert abs(pulls.mean(axis=0) - wanted[0]).max() < 0.0125


def test_the_largest_uniform_takes_no_step_more_than_a_plan_has():
    largest = np.array([np.nextafter(1.0, 0.0)])
    assert shared_out(np.array([[3.0, 4.0]]), 7, largest).sum() == 7


# --- what is explored for the sake of all ---------------------------------------------------------------------------


class Heard(FedCIAgents):
    """Agents with a belief of a test's own, of which `uncertain` is due to theta."""

    def __init__(self, belief, uncertain, error):
        num_agents = len(belief.mean)
        self.belief, self.variance = belief, belief.variance
        self.view = View(
            Constants(num_agents, 2, 1, 2000, 1.0, 1.0, 1.0, "fixed"),
            np.arange(num_agents),
            PointMass(np.ones((num_agents, 2))),
            Table(2, 1),
            np.ones((num_agents, 2, 1)),
            Randomness(0, Stream.POLICY, num_agents),
        )
        self.policy, self.number, self.told, self.phase_start = FedCI(), 3, True, 1000
        shape = (num_agents, 2)
        self.pulls, self.noise = np.ones(shape, dtype=np.int64), np.full(shape, error)
        self.tau2, self.uncertain = np.zeros(shape), np.tile([0.0, uncertain], (num_agents, 1))

    def posterior(self, rows=slice(None)):
        """The belief of the test."""
        return self.belief.rows(rows)


def believed(num_agents, gap, variance):
    """Arm 1 is worse by `gap`, with this variance."""
    mean, own = np.tile([0.0, -gap], (num_agents, 1)), np.tile([0.0, variance], (num_agents, 1))
    return Belief(np.zeros((num_agents, 1)), mean[:, None], own[:, None], np.zeros((num_agents, 1, 2, 0)))


def test_what_no_agent_would_explore_alone_is_explored_for_all():
    # Arm 1 is worse by 3 standard deviations of 0.1, all of it due to theta. To halve the variance takes 1 / 0.01 =
    # 100 pulls of all 1,000 agents, so each pulls it with probability 0.1: 100 pulls, and 10 is their largest deviation
    # but for a chance of 0.001. One agent alone would lose 0.3 in each of 100 pulls and gain 1,000 times 3.8e-5.
    belief = believed(1000, 0.3, 0.01)
    worth, alone = Heard(belief, 0.01, error=1.0), Heard(believed(1, 0.3, 0.01), 0.01, error=1.0)
    pulls = worth.chosen(length=300, remaining=1000).explore
    assert set(np.unique(pulls[:, 1])) == {0, 1}
    assert not pulls[:, 0].any()
    assert 70 <= pulls[:, 1].sum() <= 130
    assert not alone.chosen(length=300, remaining=1000).explore.any()
    # The same uncertainty teaches nobody else if it is of each agent's own context,
    assert not Heard(belief, uncertain=0.0, error=1.0).chosen(length=300, remaining=1000).explore.any()
    # and pulls for all are dealt out once after a round, not with each plan.
    worth.phase_start = 900
    assert not worth.chosen(length=300, remaining=1000).explore.any()


def test_a_plan_of_one_step_has_one_pull():
    # Both arms are as good: half of the agents explore.
    agents = Heard(believed(1000, 0.0, 0.01), uncertain=0.01, error=0.001)
    pulls = agents.chosen(length=1, remaining=1000).explore
    assert pulls.sum(axis=1).max() == 1
    assert pulls[:, 1].any()
