"""A run can be copied and pickled in memory, when it is over and in the middle."""

import copy
import pickle

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.testing.comparing import first_difference

COPIES = {"deep copy": copy.deepcopy, "pickle": lambda value: pickle.loads(pickle.dumps(value))}
POLICIES = ["Fed-PECD", "Local-UCB"]


def make():
    return fb.make("fedbandit/Synthetic-v0", num_agents=4, max_cycles=3000)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", POLICIES)
def test_a_recorded_history_can_be_copied(name, how):
    history = fb.play(make(), fb.make_policy(name), seed=1, record=True)
    other = COPIES[how](history)
    assert other is not history
    np.testing.assert_array_equal(other.pulls, history.pulls)
    np.testing.assert_array_equal(other.regret(), history.regret())
    assert first_difference(list(history.exchanges), list(other.exchanges)) is None
    assert (other.ledger.scalars, other.ledger.rounds) == (history.ledger.scalars, history.ledger.rounds)
    np.testing.assert_array_equal(other.view.psi, history.view.psi)
    np.testing.assert_array_equal(other.instance.means, history.instance.means)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", POLICIES)
def test_rounds_can_be_copied_in_the_middle_of_a_run_and_both_go_on_alike(name, how):
    rounds = fb.CommunicationRounds(make(), fb.make_policy(name), record=True)
    rounds.reset(seed=1)
    for _ in range(3):
        rounds.advance()
    other = COPIES[how](rounds)
    rounds.finish()
    other.finish()
    assert first_difference(list(rounds.history().exchanges), list(other.history().exchanges)) is None
    np.testing.assert_array_equal(other.history().pulls, rounds.history().pulls)
