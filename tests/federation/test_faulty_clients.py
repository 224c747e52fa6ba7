"""Clients that fail or send garbage lose that report and nothing else, as the fault model of one process says."""

import json

import numpy as np
import pytest
from federation_loop import (
    EACH_ITS_OWN,
    SEVERAL,
    Loop,
    Tamper,
    assert_same,
    coordinator_of,
    federated,
    in_process,
    settings,
)

from fedbandit_envs import Message, ProtocolError, ServerSide
from fedbandit_envs.federation.settings import Settings
from fedbandit_envs.federation.wire import Packet, pack
from fedbandit_envs.rounds.faults import Faults, QuorumLost


def nonsense(packet: Packet) -> Packet:
    return {"header": "nonsense"}


def other_shape(packet: Packet) -> Packet:
    header = json.loads(packet["header"])
    for form in header["messages"][0]["arrays"].values():
        form["shape"].append(1)
    return {**packet, "header": json.dumps(header)}


def more_arms(packet: Packet) -> Packet:
    """As if the client had another number of arms."""
    agents = np.array(json.loads(packet["header"])["messages"][0]["agents"])
    theta = np.ones((len(agents), 7, 3))
    return again(packet, "estimates", {"theta": theta}, agents, {"theta": np.ones((len(agents), 7), dtype=bool)})


def again(packet: Packet, kind: str, arrays: object, agents: object, present: object) -> Packet:
    header = json.loads(packet["header"])
    header.pop("messages")
    return pack(header, [Message(kind, arrays, agents, present)])  # type: ignore[arg-type]


def not_a_number(packet: Packet) -> Packet:
    name = next(name for name in packet if name.startswith("0/") and not name.endswith("?"))
    content = packet[name]
    assert isinstance(content, bytes)
    return {**packet, name: np.array([np.nan]).tobytes() + content[8:]}


def unknown_agent(packet: Packet) -> Packet:
    header = json.loads(packet["header"])
    header["agents"] = [17]
    return {**packet, "header": json.dumps(header)}


def anothers_rows(packet: Packet) -> Packet:
    header = json.loads(packet["header"])
    header["messages"][0]["agents"] = [5] * len(header["messages"][0]["agents"])
    return {**packet, "header": json.dumps(header)}


def another_client(packet: Packet) -> Packet:
    header = json.loads(packet["header"])
    header["agents"], header["messages"][0]["agents"] = [5], [5]
    return {**packet, "header": json.dumps(header)}


def old_round(packet: Packet) -> Packet:
    header = json.loads(packet["header"])
    return {**packet, "header": json.dumps({**header, "turn": header["turn"] - 1})}


def odd_length(packet: Packet) -> Packet:
    header = json.loads(packet["header"])
    return {**packet, "header": json.dumps({**header, "length": header["length"] + 1})}


def negative_length(packet: Packet) -> Packet:
    header = json.loads(packet["header"])
    return {**packet, "header": json.dumps({**header, "length": -5})}


def error(packet: Packet) -> str:
    return "failed: out of memory"


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (nonsense, "unreadable"),
        (other_shape, "form of the message"),
        (more_arms, "form of the message"),
        (not_a_number, "sent NaN or infinity in theta"),
        (unknown_agent, "agents: expected numbers from 0 to 5, got 17"),
        (anothers_rows, "rows: expected those of its own agents [1], got those of ["),
        (another_client, "agents: expected those of its key, [1], got [5]"),
        (old_round, "turn: expected 2, got 1"),
        (odd_length, "length of the plan: expected 6 as most others have, got 7"),
        (negative_length, "unreadable: expected a whole number for length"),
        (error, "failed: out of memory"),
    ],
)
def test_garbage_costs_its_sender_that_round_and_is_recorded(tamper: Tamper, reason: str) -> None:
    of = settings("Fed-PECD")
    loop = Loop(of, EACH_ITS_OWN)
    loop.tampered[1, 2] = tamper
    coordinator = federated(loop)
    assert [(fault.agent, fault.round) for fault in coordinator.faults] == [(1, 2)]
    assert reason in coordinator.faults[0].reason
    assert_same(loop, coordinator, in_process(of, Faults(schedule={1: [2]})))


def test_a_report_that_the_server_can_not_take_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    of = settings("Fed-PECD")
    server = type(of.make_policy().server(of.server_view))
    answer = server.answer

    def refuses_sevens(self: ServerSide, up: Message) -> Message | None:
        down = answer(self, up)  # the refusal comes when the server has learnt from the report
        if (up.arrays.get("theta", np.zeros(1)) == 7).any():
            raise ArithmeticError("seven")
        return down

    def sevens(packet: Packet) -> Packet:
        theta = packet["0/theta"]
        assert isinstance(theta, bytes)
        return {**packet, "0/theta": np.full(len(theta) // 8, 7.0).tobytes()}

    monkeypatch.setattr(server, "answer", refuses_sevens)
    monkeypatch.setattr(server, "refuses", lambda self, up: {})  # it would notice before
    loop = Loop(of, EACH_ITS_OWN)
    loop.tampered[1, 2] = sevens
    coordinator = federated(loop)
    found = [(fault.agent, fault.round, fault.reason) for fault in coordinator.faults]
    assert found == [(1, 2, "sent what the server can't take (seven)")]
    assert_same(loop, coordinator, in_process(of, Faults(schedule={1: [2]})))


@pytest.mark.parametrize("name", ["Fed-PECD", "Fed-PE", "Enhanced-Fed-PE", "Collaborative", "Shared-Theta-Fed-PE"])
@pytest.mark.parametrize("lost", [[0], [1], [2], [0, 1], [2, 3, 4], [1, 4, 5], list(range(12))])
def test_a_client_that_dies_and_comes_back_plays_as_the_fault_model_says(name: str, lost: list[int]) -> None:
    of = settings(name)
    loop = Loop(of, SEVERAL)
    # It gets nothing: in the turn of its return it catches up on what it has missed.
    loop.dead = {(1, turn) for turn in lost}
    coordinator = federated(loop, quorum=0.3)
    history = in_process(of, Faults(schedule=dict.fromkeys([0, 1, 2], lost)))
    assert_same(loop, coordinator, history)
    lost_reports = {(fault.agent, fault.round) for fault in coordinator.faults}
    assert lost_reports == {(fault.agent, fault.round) for fault in history.faults}
    reasons = {fault.reason for fault in coordinator.faults}
    assert reasons == {"no answer within 120 s"}


def test_an_answer_that_came_too_late_is_a_lost_report_and_nothing_more() -> None:
    of = settings("Fed-PECD")
    loop = Loop(of, SEVERAL)
    loop.tampered[2, 3] = lambda packet: "no answer within 120 s"  # the client has played the turn
    coordinator = federated(loop)
    assert_same(loop, coordinator, in_process(of, Faults(schedule={3: [3]})))


def test_a_client_that_has_lost_its_state_plays_its_turns_again() -> None:
    of = settings("Fed-PECD")
    loop = Loop(of, SEVERAL)
    coordinator = coordinator_of(loop)
    for _ in range(3):
        coordinator.advance()
    del loop.states[2]  # its SuperNode was started again
    while not coordinator.done:
        coordinator.advance()
    assert coordinator.faults == []
    assert_same(loop, coordinator, in_process(of))


class Moving(Loop):
    """Its third client goes away and comes back under another number."""

    def nodes(self) -> dict[int, str]:
        there = [0, 1, 2] if self.turn < 3 else [0, 1] if self.turn < 5 else [0, 1, 7]
        return {node: f"key {2 if node == 7 else node}" for node in there}

    def exchange(self, requests: dict[int, Packet], timeout: float) -> dict[int, Packet | str]:  # type: ignore[override]
        answers = super().exchange({2 if node == 7 else node: packet for node, packet in requests.items()}, timeout)
        return {7 if node == 2 and 7 in requests else node: answer for node, answer in answers.items()}


def test_a_client_may_come_back_under_another_number() -> None:
    of = settings("Fed-PECD")
    loop = Moving(of, SEVERAL)
    coordinator = federated(loop)
    reasons = [(fault.agent, fault.round, fault.reason) for fault in coordinator.faults]
    assert reasons == [(3, 3, "not connected"), (3, 4, "not connected")]
    loop.turn = 0  # for its nodes to be the first ones again
    assert_same(loop, coordinator, in_process(of, Faults(schedule={3: [3, 4]})))


def test_below_the_quorum_the_run_stops_and_goes_on_from_its_saved_state_as_if_nothing_had_been() -> None:
    of = settings("Fed-PECD")
    loop = Loop(of, SEVERAL)
    first = coordinator_of(loop, quorum=0.5)
    first.advance()
    first.advance()
    saved = first.snapshot()
    loop.dead = {(0, 2), (1, 2)}
    with pytest.raises(
        QuorumLost, match=r"round 2: expected to hear from at least 50% of 6 agents, got 1 \(agent 0: no"
    ):
        first.advance("results/mine")
    second = coordinator_of(loop, quorum=0.5)
    second.restore(saved)
    while not second.done:
        second.advance()
    assert second.faults == []
    assert_same(loop, second, in_process(of))


def test_without_any_answer_the_run_stops_whatever_the_quorum() -> None:
    of = settings("Fed-PECD")
    loop = Loop(of, SEVERAL)
    loop.dead = {(node, 1) for node in range(3)}
    with pytest.raises(QuorumLost, match="got 0"):
        federated(loop, quorum=0.0)


def test_plans_of_different_lengths_are_refused_with_the_reason() -> None:
    of = Settings.simulated(
        "Fed-PECD", {"pad": False}, "fedbandit/Synthetic-v0", {"num_agents": 6, "max_cycles": 300}, 3
    )
    with pytest.raises(QuorumLost, match="length of the plan: expected"):
        federated(Loop(of, EACH_ITS_OWN), quorum=1.0)


def without_kind(packet: Packet) -> Packet:
    header = json.loads(packet["header"])
    if any(header["messages"]):
        header["messages"][0]["kind"] = ""
    return {**packet, "header": json.dumps(header)}


@pytest.mark.parametrize("name", ["FedLinUCB", "Async-LinUCB", "DisLinUCB", "Fed-PECD", "Fed-CI", "FedUCB"])
def test_of_two_forms_the_one_that_the_server_knows_is_right(name: str) -> None:
    """The liar comes first, and of two clients that speak each has half of the agents."""
    of = settings(name, num_agents=2, max_cycles=60)
    loop = Loop(of, [[0], [1]])
    loop.tampered = {(0, turn): without_kind for turn in range(200)}
    coordinator = federated(loop)
    assert {fault.agent for fault in coordinator.faults} == {0}


@pytest.mark.parametrize("dead", [[], [2]])
def test_half_of_the_agents_can_not_end_the_run_by_a_false_length(dead: list[int]) -> None:
    """One of the two clients that are heard says that it has played to the end: nobody knows which of them is right."""

    def to_the_end(packet: Packet) -> Packet:
        return {**packet, "header": json.dumps(json.loads(packet["header"]) | {"length": 300})}

    of = settings("Fed-PECD", num_agents=2 + len(dead), max_cycles=300)
    loop = Loop(of, [[agent] for agent in range(2 + len(dead))])
    loop.tampered[0, 0] = to_the_end
    loop.dead = {(node, 0) for node in dead}
    coordinator = coordinator_of(loop)
    with pytest.raises(
        QuorumLost, match="more than half of the 2 agents that were heard, got 4 steps from 1, 300 steps"
    ):
        coordinator.advance()
    assert (coordinator.step, coordinator.turn) == (0, 0)
    while not coordinator.done:  # the false client has come to its senses
        coordinator.advance()
    assert loop.client(1).snapshot()["step"] == 300


def test_what_no_client_can_send_right_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    of = settings("Fed-PECD")
    loop = Loop(of, SEVERAL)
    coordinator = coordinator_of(loop)
    monkeypatch.setattr(type(coordinator._carrier.server), "answer", lambda self, up: 1 / 0)
    with pytest.raises(ProtocolError, match="expected to answer the messages of turn 0, got ZeroDivisionError"):
        coordinator.advance()
