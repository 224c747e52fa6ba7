"""What crosses is what is counted, and nothing from outside is trusted."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
from federation_loop import Loop, federated, in_process, settings
from hypothesis import given

from fedbandit_envs import Constants, Message
from fedbandit_envs.federation.wire import Packet, WireError, most_bytes, pack, unpack

MOST = 10_000


@st.composite
def messages(draw: st.DrawFn) -> Message:
    rows = draw(st.integers(1, 4))
    found: dict[str, Any] = {}
    present: dict[str, Any] = {}
    for name in draw(st.sets(st.sampled_from(["theta", "V", "odd name/?"]))):
        shape = (rows, *draw(st.lists(st.integers(0, 3), max_size=2)))
        dtype = draw(st.sampled_from([np.float64, np.int64, np.bool_, np.float32]))
        found[name] = draw(arrays.arrays(dtype, shape))
        if draw(st.booleans()):
            present[name] = draw(arrays.arrays(np.bool_, shape[: draw(st.integers(1, len(shape)))]))
    agents = draw(st.permutations(range(rows))) if draw(st.booleans()) else None
    return Message(draw(st.text(max_size=5)), found, None if agents is None else np.array(agents), present)


def payload(packet: Packet) -> int:
    """Bytes of the arrays, without header and masks."""
    return sum(len(value) for name, value in packet.items() if name != "header" and not is_mask(packet, name))


def is_mask(packet: Packet, name: str) -> bool:
    return name.endswith("?") and name[:-1] in packet


@given(messages())
def test_a_message_comes_back_bit_for_bit_and_only_what_is_present_crosses(message: Message) -> None:
    packet = pack({"turn": 3}, [None, message])
    envelope, (nothing, back) = unpack(packet, MOST, 2)
    assert (envelope, nothing) == ({"turn": 3}, None)
    assert back is not None
    assert back.kind == message.kind
    assert (back.agents is None) == (message.agents is None)
    assert back.agents is None or back.agents.tolist() == message.agents.tolist()  # type: ignore[union-attr]
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in back.arrays.items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in message.arrays.items()
    }
    assert {name: a.tolist() for name, a in back.present.items()} == {
        name: a.tolist() for name, a in message.present.items()
    }
    assert payload(packet) == message.bytes().sum()


def theta_packet() -> Packet:
    present = {"theta": np.array([[True, False], [True, True]])}
    return pack({}, [Message("estimates", {"theta": np.arange(12.0).reshape(2, 2, 3)}, np.array([4, 7]), present)])


def with_header(change: Callable[[Any], Any]) -> Packet:
    packet = theta_packet()
    header = json.loads(packet["header"])
    change(header)
    return {**packet, "header": json.dumps(header)}


def claim(name: str, value: Any) -> Packet:
    return with_header(lambda header: header["messages"][0]["arrays"]["theta"].update({name: value}))


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        ({}, "expected a header"),
        ({"header": b"{}"}, "expected a header"),
        ({"header": "{" * 5000}, "expected JSON"),
        ({"header": "[" * 9000}, "expected JSON"),
        ({"header": " " * (MOST + 1)}, "at most 10000 characters"),
        ({"header": "[]"}, "expected a list of messages"),
        ({"header": json.dumps({"messages": [None, None]})}, "at most 1 messages"),
        ({"header": json.dumps({"messages": [7]})}, "expected a kind, agents and arrays"),
        (claim("dtype", "|O"), "expected a dtype among"),
        (claim("dtype", "|V8"), "expected a dtype among"),
        (claim("shape", [2, 10**6, 10**6]), "at most 10000 bytes"),
        (claim("shape", [2, 2**61, 2**61]), "at most 10000 bytes"),
        (claim("shape", [2, -2, -3]), "expected a shape"),
        (claim("shape", [2, 2.0, 3]), "expected a shape"),
        (claim("shape", [2, 2, True]), "expected a shape"),
        (claim("shape", [2] * 9), "expected a shape of at most 8 axes"),
        (claim("shape", [3, 2, 3]), "expected one row for each of 2 agents"),
        (claim("shape", [2, 2, 2]), "expected 48 bytes, got 72 of bytes"),
        (claim("mask", [2, 3]), "expected a mask of its leading axes"),
        (claim("mask", []), "expected a mask of its leading axes"),
        (claim("mask", None), "expected 96 bytes"),
        (with_header(lambda header: header["messages"][0].update(agents=["4", "7"])), "agents: expected a list"),
        (
            with_header(lambda header: header["messages"][0].update(kind="k" * 101)),
            "expected a text of at most 100",
        ),
        ({**theta_packet(), "0/theta": b"short"}, "expected 72 bytes, got 5 of bytes"),
        ({**theta_packet(), "0/theta": pickle.dumps([1])}, "expected 72 bytes"),
        ({**theta_packet(), "0/theta": "text"}, "expected 72 bytes, got 4 of str"),
        ({**theta_packet(), "0/theta?": b"\0\0"}, "mask of theta: expected 1 bytes"),
    ],
)
def test_what_is_not_a_message_is_refused_with_the_reason(packet: Any, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        unpack(packet, MOST, 1)


def test_sizes_are_refused_before_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    packets = claim("shape", [2, 10**5, 3]), claim("shape", [2, 2**60, 3])
    for name in ("zeros", "frombuffer", "unpackbits"):
        monkeypatch.setattr(np, name, lambda *arguments, **_: taken.append(arguments))
    for packet in packets:
        with pytest.raises(WireError):
            unpack(packet, MOST, 1)
    assert not taken


def test_several_arrays_share_one_bound() -> None:
    message = Message("two", {"one": np.zeros(900), "other": np.zeros(900)})
    with pytest.raises(WireError, match="other: expected at most 2800 bytes"):
        unpack(pack({}, [message]), MOST, 1)


def test_a_boolean_is_true_or_false_whatever_its_byte() -> None:
    packet = pack({}, [Message("b", {"b": np.array([True, False])})])
    packet["0/b"] = bytes([2, 0])
    _, (message,) = unpack(packet, MOST, 1)
    assert message is not None
    assert message["b"].tobytes() == bytes([1, 0])


def test_the_bound_leaves_room_for_every_policys_messages() -> None:
    constants = Constants(100, 10, 3, 1000, 0.5, 1.0, 1.0, "fixed")
    assert most_bytes(constants, 100) > 100 * 8 * (10 * (9 + 3 + 3))
    assert most_bytes(constants, 100) < 50e6


@pytest.mark.parametrize("policy", ["Fed-PECD", "Fed-PE", "Collaborative", "DisLinUCB"])
def test_counted_bytes_are_those_in_the_packets(policy: str) -> None:
    loop = Loop(settings(policy, max_cycles=60, num_agents=3), [[0], [1], [2]])
    coordinator = federated(loop)
    assert sum(payload(packet) for _, packet in loop.answered) == coordinator.ledger.bytes_up > 0
    assert sum(payload(packet) for _, packet in loop.sent) == coordinator.ledger.bytes_down > 0


@pytest.mark.parametrize("policy", ["Fed-PECD", "Fed-PE"])
def test_no_message_holds_features_contexts_rewards_or_actions(policy: str) -> None:
    """Searched for in the bytes themselves, number by number; that theta has the direction of psi is documented."""
    of = settings(policy, num_agents=3, max_cycles=200)
    history = in_process(of)
    assert history.instance is not None
    assert history.exchanges is not None
    hidden = [history.instance.psi, history.instance.phi, history.instance.theta, history.instance.means]
    assert history.instance.contexts is not None
    hidden.append(history.instance.contexts)
    for exchange in history.exchanges:
        feedback = exchange.feedback
        hidden += [feedback.explored_sums, feedback.played_sums]
        hidden += [feedback.explored_sums / feedback.explored.clip(min=1)]
    secrets = np.unique(np.concatenate([array.ravel() for array in hidden]))
    secrets = secrets[~np.isin(secrets, (0.0, 1.0))]  # zeros and ones occur everywhere
    loop = Loop(of, [[0], [1, 2]])
    federated(loop)
    crossed = {name.partition("/")[2] for _, packet in loop.sent + loop.answered for name in packet}
    assert crossed == {"", "theta", "theta?", "V", "V?", "pulls", "pulls?", "arms", "arms?"}
    for _, packet in loop.sent + loop.answered:
        for name, value in packet.items():
            if name != "header" and isinstance(value, bytes) and len(value) % 8 == 0 and not is_mask(packet, name):
                assert not np.isin(np.frombuffer(value), secrets).any(), name
    # Up go arms still considered and estimates; the pulls that come down are the server's allocation.
    assert {name.partition("/")[2] for _, packet in loop.answered for name in packet} == {
        "",
        "theta",
        "theta?",
        "arms",
        "arms?",
    }
