"""An agent belongs to a key: nobody else speaks for it, and nobody can shut its owner out."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation_loop import SEVERAL, Loop, assert_same, coordinator_of, federated, in_process, settings
from refusals import assert_refused

from fedbandit_envs.federation.audit_trail import AUDIT_FILE, Refusal, write_refusal
from fedbandit_envs.federation.client import Client
from fedbandit_envs.federation.owners import Owners, owners_of
from fedbandit_envs.federation.sources import SimulatedRewards
from fedbandit_envs.federation.wire import Packet
from fedbandit_envs.rounds.faults import Faults, QuorumLost

THIEF = 100  # the number of a node that claims agents of others


class WithThief(Loop):
    """A fourth node speaks for all agents, with a key of its own or with one that is listed for nobody."""

    owner_is_away: range = range(0)  # the turns in which the client of agent 3 is not connected
    thief_was_asked = False

    def nodes(self) -> dict[int, str]:
        there = {node: key for node, key in super().nodes().items() if node != 2 or self.turn not in self.owner_is_away}
        return {**there, THIEF: "a stolen cheese"}

    def exchange(self, requests: Mapping[int, Packet], timeout: float) -> dict[int, Packet | str]:
        self.thief_was_asked |= THIEF in requests
        honest = {node: packet for node, packet in requests.items() if node != THIEF}
        answers = super().exchange(honest, timeout)
        if THIEF in requests:
            everybody = SimulatedRewards(np.arange(6), self.settings.source())
            client = Client(self.settings.make_policy(), self.settings.constants, everybody, run=self.settings.run)
            answers[THIEF] = client.answer(requests[THIEF])
        return answers


def test_a_node_that_claims_all_agents_from_the_start_is_never_asked_and_is_recorded() -> None:
    of = settings()
    loop, audit = WithThief(of, SEVERAL), list[Refusal]()
    coordinator = federated(loop, audit=audit.append)
    assert not loop.thief_was_asked
    assert audit == [Refusal("a stolen cheese", (), 0, "its key speaks for no agent of this run")]
    assert coordinator.faults == []
    assert_same(loop, coordinator, in_process(of))


def test_an_owner_who_was_away_has_its_agents_when_it_comes_back() -> None:
    of = settings()
    loop = WithThief(of, SEVERAL)
    loop.owner_is_away = range(2, 4)
    coordinator = federated(loop)
    assert [(fault.agent, fault.reason) for fault in coordinator.faults] == [(3, "not connected")] * 2
    assert_same(loop, coordinator, in_process(of, Faults(schedule={3: [2, 3]})))


def test_after_a_restart_of_the_server_the_claims_are_the_same() -> None:
    of = settings()
    loop = WithThief(of, SEVERAL)
    first = coordinator_of(loop)
    first.advance()
    first.advance()
    second = coordinator_of(loop)
    second.restore(first.snapshot())
    while not second.done:
        second.advance()
    assert not loop.thief_was_asked
    assert_same(loop, second, in_process(of))


@pytest.mark.parametrize("claimed", [[0, 1, 2, 3, 4, 5], [5, 4], [4, 5, 3]])
def test_a_listed_client_can_claim_no_agents_of_others(claimed: list[int]) -> None:
    of = settings()
    loop, audit = Loop(of, SEVERAL), list[Refusal]()

    def claims(packet: Packet) -> Packet:
        return {**packet, "header": json.dumps({**json.loads(packet["header"]), "agents": claimed})}

    loop.tampered = {(0, turn): claims for turn in range(3)}
    coordinator = federated(loop, audit=audit.append)
    reason = f"agents: expected those of its key, [4, 5], got {claimed}"
    assert audit == [Refusal("key 0", [4, 5], turn, reason) for turn in range(3)]
    assert {fault.agent for fault in coordinator.faults} == {4, 5}
    assert_same(loop, coordinator, in_process(of, Faults(schedule=dict.fromkeys([4, 5], range(3)))))


def test_the_audit_trail_says_who_in_which_round_and_why(tmp_path: Path) -> None:
    loop = WithThief(settings(), SEVERAL)
    loop.owner_is_away = range(2, 3)
    loop.tampered = {(0, 4): lambda packet: "failed: \x1b[2J\udc80"}
    federated(loop, audit=partial(write_refusal, tmp_path))
    lines = [json.loads(line) for line in (tmp_path / AUDIT_FILE).read_text("ascii").splitlines()]
    assert [(line["who"], line["agents"], line["round"], line["reason"]) for line in lines] == [
        ("a stolen cheese", [], 0, "its key speaks for no agent of this run"),
        ("key 2", [3], 2, "not connected"),
        ("key 0", [4, 5], 4, "failed: \\x1b[2J\\udc80"),
    ]


def test_when_the_quorum_is_lost_the_audit_trail_has_the_reasons() -> None:
    loop, audit = Loop(settings(), SEVERAL), list[Refusal]()
    loop.dead = {(0, 1), (1, 1)}
    with pytest.raises(QuorumLost):
        federated(loop, audit=audit.append)
    assert [(refusal.who, refusal.reason) for refusal in audit] == [
        ("key 0", "no answer within 120 s"),
        ("key 1", "no answer within 120 s"),
    ]


def test_a_stranger_with_ever_new_keys_does_not_fill_the_audit_trail() -> None:
    audit: list[Refusal] = []
    owners = Owners({"mine": [0]}, 1, audit.append)
    for number in range(5000):
        assert owners.connected({0: "mine", 1: f"key {number}"}, 0) == {"mine": 0}
    assert len(audit) == 1000


@pytest.mark.parametrize("agents", [{}, {"a": [0]}, {"a": [0, 1], "b": [1]}, {"a": [0], "b": [2]}, {"a": ["0", "1"]}])
def test_owners_that_do_not_hold_each_agent_once_are_refused(agents: Any) -> None:
    assert_refused(lambda: Owners(agents, 2, print), "owners: expected lists that hold each agent from 0 to 1 once")


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", "[" * 100_000])
def test_a_configuration_without_owners_is_refused(text: str) -> None:
    assert_refused(lambda: owners_of({"owners": text}), 'run-config: expected for "owners" the agents of each')
