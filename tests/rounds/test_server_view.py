"""A server draws from its own view: the run is the same wherever, and in however many parts, it is played."""

import numpy as np
import pytest
import random_server
from federation_loop import Loop, assert_same, federated, in_process, settings

import fedbandit_envs as fb
from fedbandit_envs.testing import check_policy


def environment() -> fb.HiddenContextBandit:
    return fb.make("fedbandit/Synthetic-v0", num_agents=3, num_arms=4, max_cycles=60)


def test_the_numbers_of_a_server_come_from_the_seed_of_the_run() -> None:
    first, again, other = (fb.play(environment(), random_server.RandomArms(), seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.pulls, again.pulls)
    assert not np.array_equal(first.pulls, other.pulls)
    assert (first.pulls[-1] > 0).sum(axis=1).min() > 1  # several arms were drawn


def test_a_resumed_server_goes_on_drawing_where_it_was() -> None:
    whole = fb.play(environment(), random_server.RandomArms(), seed=1)
    first = fb.CommunicationRounds(environment(), random_server.RandomArms())
    first.start(1)
    for _ in range(5):
        first.advance()
    second = fb.CommunicationRounds(environment(), random_server.RandomArms())
    second.restore(first.snapshot())
    second.finish()
    np.testing.assert_array_equal(second.history().pulls, whole.pulls)


def test_a_federated_server_draws_the_same() -> None:
    of = settings(random_server.NAME)
    loop = Loop(of, [[4, 5], [2, 0, 1], [3]])
    assert_same(loop, federated(loop), in_process(of))


def test_a_server_that_draws_passes_the_checks() -> None:
    check_policy(random_server.RandomArms())


def test_a_history_can_be_counted_from_a_checkpoint() -> None:
    history = fb.play(environment(), fb.make_policy("Uniform"), seed=0)
    at = int(history.steps[3])
    later = history.counted_from(at)
    np.testing.assert_array_equal(later.steps, history.steps[4:] - at)
    np.testing.assert_allclose(later.regret(), history.regret()[4:] - history.regret()[3], rtol=1e-12)
    assert later.ledger is history.ledger


def test_a_history_counts_from_checkpoints_only() -> None:
    history = fb.play(environment(), fb.make_policy("Fed-PECD"), seed=0)
    gap = next(step for step in range(1, 60) if step not in history.steps)
    with pytest.raises(ValueError, match=rf"step: expected a checkpoint, got {gap}; the nearest are \[\d+, \d+\]"):
        history.counted_from(gap)
