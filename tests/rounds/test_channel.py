"""What crosses is sorted, checked and charged by what is present."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import assert_refused

from fedbandit_envs import storage
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import ProtocolError
from fedbandit_envs.rounds.channel import Channel
from fedbandit_envs.rounds.ledger import COUNTS, Ledger


def channel(num_agents=3):
    return Channel(num_agents, Ledger(num_agents))


def column(ledger, name):
    return ledger.per_agent[:, COUNTS.index(name)].tolist()


def numbers(agents, kind="x", **arrays):
    return Message(kind, {"a": np.array(agents, dtype=float), **arrays}, np.array(agents))


def test_ragged_messages_are_charged_by_what_is_present():
    carrier = channel()
    active = np.array([[True, True, False], [True, False, False], [True, True, True]])
    carrier.up([Message("active", {"arms": np.ones((3, 3), dtype=np.int64)}, np.arange(3), {"arms": active})], step=4)
    carrier.down(Message("theta", {"theta": np.ones((3, 2))}, None, {"theta": np.array([True, False, True])}))
    ledger = carrier.ledger
    assert column(ledger, "scalars_up") == [2, 1, 3]
    assert column(ledger, "bytes_up") == [16, 8, 24]
    assert column(ledger, "messages_up") == [1, 1, 1]
    assert column(ledger, "scalars_down") == [4, 4, 4]
    assert (ledger.scalars_up, ledger.scalars_down, ledger.scalars) == (6, 12, 18)
    assert (ledger.bytes_up, ledger.bytes_down) == (48, 96)
    assert (ledger.messages_up, ledger.messages_down, ledger.messages, ledger.rounds) == (3, 3, 6, 1)
    assert ledger.per_round.tolist() == [[4, 3, 3, 0, 6, 12, 0, 48, 96, 0]]


def test_a_message_to_some_is_charged_to_them_alone():
    carrier = channel(4)
    carrier.up([numbers([2])], step=0)
    carrier.down(Message("x", {"a": np.ones((2, 5))}, np.array([3, 1])))
    assert column(carrier.ledger, "messages_up") == [0, 0, 1, 0]
    assert column(carrier.ledger, "scalars_down") == [0, 5, 0, 5]
    assert column(carrier.ledger, "messages_down") == [0, 1, 0, 1]


def test_a_message_without_arrays_is_a_message_of_no_scalars():
    carrier = channel()
    carrier.up([Message("request", {}, np.array([1]))], step=0)
    carrier.down(Message("call"))
    assert (carrier.ledger.messages_up, carrier.ledger.messages_down, carrier.ledger.scalars) == (1, 3, 0)


def test_masks_kinds_and_ids_are_free():
    carrier = channel()
    nothing = np.zeros((3, 2), dtype=bool)
    carrier.up([Message("a long kind", {"a": np.ones((3, 2))}, np.arange(3), {"a": nothing})], step=0)
    assert (carrier.ledger.messages_up, carrier.ledger.scalars_up, carrier.ledger.bytes_up) == (3, 0, 0)


@pytest.mark.parametrize("silence", [[], [None, None], [Message("x", {}, np.array([], dtype=int)), None]])
def test_no_round_is_counted_when_nobody_speaks(silence):
    carrier = channel()
    assert carrier.up(silence, step=3) is None
    assert carrier.ledger.rounds == carrier.ledger.messages == 0


def test_the_server_gets_one_message_sorted_by_agent_whoever_sent_it():
    carrier = channel(5)
    up = carrier.up([numbers([4, 1]), None, numbers([3]), numbers([0])], step=0)
    assert up.agents.tolist() == [0, 1, 3, 4]
    assert up["a"].tolist() == [0.0, 1.0, 3.0, 4.0]


def test_a_single_block_is_sorted_too():
    up = channel().up([numbers([2, 0, 1])], step=0)
    assert up.agents.tolist() == up["a"].tolist() == [0, 1, 2]


def test_the_answer_is_sorted_by_agent():
    carrier = channel()
    carrier.up([numbers([0])], step=0)
    down = carrier.down(numbers([2, 0]))
    assert down.agents.tolist() == down["a"].tolist() == [0, 2]


def test_an_answer_to_nobody_is_not_sent():
    carrier = channel()
    carrier.up([numbers([0])], step=0)
    assert carrier.down(numbers([])) is None
    assert carrier.down(None) is None
    assert carrier.ledger.messages_down == 0


@pytest.mark.parametrize("agents", [[0, 0], [3], [-1], [1, 2, 1]])
def test_agents_that_do_not_exist_or_speak_twice_are_refused_and_not_charged(agents):
    carrier = channel()
    assert_refused(lambda: carrier.up([numbers(agents)], step=0), "different agents from 0 to 2")
    assert carrier.ledger.rounds == 0
    carrier.up([numbers([0])], step=0)
    assert_refused(lambda: carrier.down(numbers(agents)), "different agents from 0 to 2")
    assert carrier.ledger.messages_down == 0


def test_two_blocks_that_speak_for_the_same_agent_are_refused():
    assert_refused(lambda: channel().up([numbers([0, 1]), numbers([1])], step=0), "different agents")


@pytest.mark.parametrize(
    "other",
    [
        numbers([1], kind="y"),
        numbers([1], b=np.ones(1)),
        Message("x", {"a": np.ones(1)}, np.array([1]), {"a": np.ones(1) > 0}),
    ],
    ids=["kind", "arrays", "masks"],
)
def test_different_messages_in_one_round_are_refused(other):
    assert_refused(lambda: channel().up([numbers([0]), other], step=0), "one kind with the same arrays")


def test_a_report_that_does_not_say_whose_it_is_is_refused():
    assert_refused(lambda: channel().up([Message("x")], step=0), "the agents it comes from", "agents=view.agents")


def test_what_is_not_a_message_is_refused():
    carrier = channel()
    assert_refused(lambda: carrier.up([{"a": 1}], step=0), "agents.report", "got dict")
    assert_refused(lambda: carrier.down(np.ones(3)), "server.answer", "got ndarray")
    with pytest.raises(ProtocolError):
        carrier.down("text")


@st.composite
def exchanges(draw):
    """(who speaks with how many numbers, who is answered with how many; None: all)."""
    some = st.lists(st.integers(0, 3), unique=True, min_size=1)
    return draw(st.lists(st.tuples(some, st.integers(0, 4), st.none() | some, st.integers(0, 4)), max_size=6))


def traffic(carrier, turns):
    for step, (senders, size, receivers, answer_size) in enumerate(turns):
        carrier.up([Message("x", {"a": np.ones((len(senders), size))}, np.array(senders))], step)
        rows = () if receivers is None else (len(receivers),)
        answer = Message("y", {"a": np.ones((*rows, answer_size), dtype=np.float32)}, receivers)
        carrier.down(answer)


@given(exchanges())
def test_rounds_and_agents_add_up_to_the_same_totals(turns):
    carrier = channel(4)
    traffic(carrier, turns)
    ledger = carrier.ledger
    np.testing.assert_array_equal(ledger.per_round[:, 1:].sum(axis=0), ledger.per_agent.sum(axis=0))
    assert ledger.scalars_up == sum(len(senders) * size for senders, size, _, _ in turns)
    assert ledger.scalars_down == sum((4 if to is None else len(to)) * size for _, _, to, size in turns)
    assert ledger.bytes_down == 4 * ledger.scalars_down
    assert ledger.rounds == len(turns)


@given(exchanges())
def test_a_ledger_goes_on_from_its_snapshot(turns):
    whole, part = channel(4), channel(4)
    traffic(whole, turns)
    traffic(whole, turns)
    traffic(part, turns)
    snapshot = part.ledger.snapshot()
    traffic(part, turns)  # what happens later does not reach the snapshot
    resumed = Channel(4, Ledger.restored(snapshot))
    traffic(resumed, turns)
    np.testing.assert_array_equal(resumed.ledger.per_agent, whole.ledger.per_agent)
    np.testing.assert_array_equal(resumed.ledger.per_round, whole.ledger.per_round)


def test_a_ledger_survives_the_disk(tmp_path):
    carrier = channel()
    storage.save(tmp_path / "empty", carrier.ledger.snapshot())
    assert Ledger.restored(storage.load(tmp_path / "empty")).rounds == 0
    carrier.up([numbers([0, 2])], step=9)
    storage.save(tmp_path / "ledger", carrier.ledger.snapshot())
    again = Ledger.restored(storage.load(tmp_path / "ledger"))
    np.testing.assert_array_equal(again.per_agent, carrier.ledger.per_agent)
    assert again.per_round.tolist() == [[9, 2, 0, 0, 2, 0, 0, 16, 0, 0]]


def test_a_ledger_prints_its_totals():
    carrier = channel(3)
    carrier.up([numbers([0, 2])], step=0)
    assert repr(carrier.ledger) == (
        "Ledger(rounds=1, messages=2, scalars_up=2, scalars_down=0, bytes_up=16, bytes_down=0)"
    )


def test_a_copy_of_a_ledger_bounds_its_memory_as_the_ledger_does():
    carrier, mask = channel(2), np.ones((2, 2**15), dtype=bool)  # 2**16 bytes: half of what may wait
    mask[0, 0] = False
    message = Message("x", {"a": np.ones((2, 2**15))}, np.arange(2), {"a": mask})
    carrier.up([message], step=0)
    copied = carrier.ledger.copy()
    for ledger in (carrier.ledger, copied):
        ledger.charge(message, "up")
        assert not ledger._waiting
        assert column(ledger, "scalars_up") == [2**16 - 2, 2**16]


def test_messages_of_ever_new_shapes_are_counted_right_in_bounded_memory():
    carrier, expected = channel(4), np.zeros(4, dtype=int)
    rng = np.random.default_rng(0)
    for length in range(1, 60):
        mask = rng.random((4, length)) < 0.5
        carrier.up([Message("ragged", {"a": np.ones((4, length))}, np.arange(4), {"a": mask})], step=length)
        expected += mask.sum(axis=1)
    assert column(carrier.ledger, "scalars_up") == expected.tolist()
    assert column(carrier.ledger, "bytes_up") == (8 * expected).tolist()
    assert carrier.ledger.scalars_up == expected.sum()


def test_the_ledger_does_not_keep_the_numbers_of_many_agents_for_many_messages():
    ledger = Ledger(10_000)
    for step in range(40):
        ledger.open_round(step)
        ledger.charge(Message("news", {"x": np.zeros((9_000, 1))}, np.arange(step, 9_000 + step)), "up")
    assert sum(agents.nbytes for _, agents, *_ in ledger._waiting) < 2**18  # 40 times 72 kB before
    assert (ledger.messages_up, column(ledger, "scalars_up")[5000]) == (360_000, 40)
