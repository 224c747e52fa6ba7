"""How Fed-CI shares its pulls out: the shares against samples of independent arms, and the rounding."""

import numpy as np
import pytest

from fedbandit_agents.inference.fed_ci import shared_out, shares
from fedbandit_agents.inference.posterior import Belief


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
    found = shares(belief.against(best)[3], best, np.ones(frequency.shape, dtype=bool))
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
    share = np.tile(rng.dirichlet(np.ones(5)), (40_000, 1))
    for length in (1, 7, 10**6):
        pulls = shared_out(length, share, rng.random(len(share)))
        assert (pulls.sum(axis=1) == length).all()
        assert (abs(pulls - length * share) <= 1).all()
        # The standard deviation of a mean is at most 0.5 / 200, and 0.0125 is five of them.
        assert abs(pulls.mean(axis=0) - length * share[0]).max() < 0.0125
