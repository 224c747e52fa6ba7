"""Decisions don't depend on the units in which rewards are given: c times rewards and noise, the same pulls."""

from importlib.metadata import entry_points

import numpy as np
import pytest
from playable import home
from units import in_units

import fedbandit_envs as fb
from fedbandit_envs.protocol.registry import policy_class

ALL = sorted(point.name for point in entry_points(group="fedbandit.policies"))
# Arms that agents share pay coins: a problem with means above 1 is refused, so there are no other units.
ON_COINS = ("OrchExplore", "Shared-Oracle", "Shared-Uniform")
NAMES = [name for name in ALL if name not in ON_COINS]
# These count in units of their own, as their references do: no parameter changes them.
IN_UNITS_OF_THEIR_OWN = {
    "Local-UCB": "its bonus sqrt(2 ln(1 + n ln^2 n) / t) is for noise of scale 1",
    "KK-UCB": "the spread of a hidden context adds at most 4 to the variance of rewards within [-1, 1]",
    "Lin-Hidden": "as KK-UCB",
    "DCB": "as KK-UCB",
    "Private-FedLinUCB": "its noise covers x x^T and x y together, so it depends on the unit of y",
    "Multi-Round": "its intervals begin with length 1, the range of rewards within [0, 1]",
}
# Parameters: the noise scale, a bound on ||theta||, and the range to which rewards are clipped.
IN_UNITS = ("sigma", "theta_bound", "low", "high")
TESTED = [name for name in NAMES if name not in IN_UNITS_OF_THEIR_OWN]


def in_units_of(policy, factor):
    """The parameters of a policy that are in units of rewards, where they are numbers, times `factor`."""
    given = {name: getattr(policy, name, None) for name in IN_UNITS}
    return {name: factor * value for name, value in given.items() if value is not None}


def pulls(name, factor):
    _, problem, shown = home(name)
    policy = fb.make_policy(name)
    policy = fb.make_policy(name, **in_units_of(policy, factor))
    env = fb.HiddenContextBandit(in_units(problem, factor), max_cycles=600, **shown)
    return fb.play(env, policy, seed=3, network="ring").pulls


@pytest.mark.parametrize("name", TESTED)
def test_rewards_in_other_units_give_the_same_pulls(name):
    # Times a power of two every number keeps its digits. Times 3 or 0.1 the last digits change, but no pull of these
    # runs: numbers equal but for rounding count as equal.
    unscaled = pulls(name, 1.0)
    for factor in (2.0**-10, 8.0, 3.0, 0.1):
        np.testing.assert_array_equal(pulls(name, factor), unscaled)


@pytest.mark.parametrize("name", IN_UNITS_OF_THEIR_OWN)
def test_the_exceptions_are_exceptions(name):
    assert not np.array_equal(pulls(name, 8.0), pulls(name, 1.0))


def test_coins_have_no_other_units():
    assert [name for name in ALL if policy_class(name).shares_arms] == list(ON_COINS)
    with pytest.raises(ValueError, match="means: expected numbers from 0 to 1"):
        fb.SharedArms(means=[1.8, 1.0, 0.2], num_agents=2)
