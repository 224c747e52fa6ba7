"""What comes from the other side is bounded before it is believed, stored or printed."""

import json
import tracemalloc
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from federation_loop import EACH_ITS_OWN, SEVERAL, Loop, Tamper, assert_same, federated, in_process, settings
from refusals import assert_refused

from fedbandit_envs import Message, ProtocolError, storage
from fedbandit_envs.federation.client import Client
from fedbandit_envs.federation.settings import Settings
from fedbandit_envs.federation.sources import SimulatedRewards
from fedbandit_envs.federation.texts import shown
from fedbandit_envs.federation.wire import Packet, WireError, pack
from fedbandit_envs.rounds.faults import Faults


def with_header(**values: Any) -> Tamper:
    return lambda packet: {**packet, "header": json.dumps({**json.loads(packet["header"]), **values})}


@pytest.mark.parametrize("length", [2**61, 301, 10**9])
def test_a_length_beyond_the_horizon_is_refused(length: int) -> None:
    of = settings()
    loop = Loop(of, EACH_ITS_OWN)
    loop.tampered = {(1, 0): with_header(length=length)}
    coordinator = federated(loop)
    assert [fault.reason for fault in coordinator.faults] == [
        f"length: expected at most the 300 steps that are left, got {length}"
    ]
    assert_same(loop, coordinator, in_process(of, Faults(schedule={1: [0]})))


def test_not_even_the_only_client_ends_the_run_by_a_length() -> None:
    of = settings()
    loop = Loop(of, [[0, 1, 2, 3, 4, 5]])
    loop.tampered = {(0, 0): with_header(length=2**61)}
    with pytest.raises(
        RuntimeError, match="length: expected at most the 300 steps that are left, got 2305843009213693952"
    ):
        federated(loop)


@pytest.mark.parametrize("turn", [2**61, 3])
def test_a_client_that_says_it_is_ahead_of_the_server_is_refused(turn: int) -> None:
    of = settings()
    loop = Loop(of, EACH_ITS_OWN)
    loop.tampered = {(1, 2): with_header(verb="missing", turn=turn)}
    coordinator = federated(loop)
    assert [fault.reason for fault in coordinator.faults] == [
        f"turn: expected at most 2, that of the server, got {turn}"
    ]
    assert_same(loop, coordinator, in_process(of, Faults(schedule={1: [2]})))


@pytest.mark.parametrize("text", ["x" * 10**6, "\x1b[2J\udc80\r\n" * 10**5, "\u202e" * 10**5])
def test_error_texts_of_clients_are_cut_and_can_be_printed_and_stored(text: str) -> None:
    of = settings()
    loop = Loop(of, EACH_ITS_OWN)
    loop.tampered = {(1, turn): (lambda packet: text) for turn in range(20)}
    audit: list[Any] = []
    coordinator = federated(loop, audit=audit.append)
    for reason in [fault.reason for fault in coordinator.faults] + [refusal.reason for refusal in audit]:
        assert len(reason) < 350
        assert reason.isprintable()
        reason.encode()
    assert len(storage.to_bytes(coordinator.snapshot())) < 200_000


@pytest.mark.parametrize("kind", ["\x1b[2J" * 20, "\udc80" * 100])
def test_texts_inside_messages_are_made_visible_too(kind: str) -> None:
    loop = Loop(settings(), EACH_ITS_OWN)

    def renamed(packet: Packet) -> Packet:
        header = json.loads(packet["header"])
        header["messages"][0]["kind"] = kind
        return {**packet, "header": json.dumps(header)}

    loop.tampered = {(1, 2): renamed}
    (fault,) = federated(loop).faults
    assert fault.reason.startswith("form of the message")
    assert fault.reason.isprintable()


def test_a_text_that_is_cut_says_how_long_it_was() -> None:
    assert shown("\x1b" * 400) == "\\x1b" * 75 + "... (400 characters)"


def client_of(of: Settings, agents: list[int]) -> Client:
    return Client(of.make_policy(), of.constants, SimulatedRewards(np.array(agents), of.source()), run=of.run)


def test_few_bytes_of_a_server_do_not_become_gigabytes_at_a_client() -> None:
    nothing = Message("zeros", {"theta": np.zeros(130_000)}, present={"theta": np.zeros(130_000, dtype=bool)})
    client = client_of(settings(), [0])
    packet = pack({"verb": "play", "turn": 5000}, [nothing] * 100)  # a client at turn 0 lacks the turns before
    tracemalloc.start()
    try:
        client.answer(packet)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6  # the messages together would take 104 MB


def test_a_header_as_long_as_all_messages_together_is_refused() -> None:
    client = client_of(settings(), [0])
    with pytest.raises(WireError, match="expected a header of at most"):
        client.answer({"header": " " * 50_000_000})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_client_takes_no_estimates_that_are_not_finite(value: float) -> None:
    client = client_of(settings(), [0, 2])
    before = storage.to_bytes(client.snapshot())
    with pytest.raises(ProtocolError, match="server: expected finite numbers in theta, got NaN or infinity"):
        client.answer(pack({"verb": "play", "turn": 0}, [Message("estimates", {"theta": np.array([1.0, value])})]))
    assert storage.to_bytes(client.snapshot()) == before


def test_a_client_takes_no_rows_of_other_agents() -> None:
    client = client_of(settings(), [0, 2])
    with pytest.raises(ProtocolError, match=r"server: expected rows for agents \[0, 2\], got rows for others"):
        client.answer(pack({"verb": "play", "turn": 0}, [Message("pulls", {"n": np.ones((2, 4))}, np.array([0, 1]))]))


@pytest.mark.parametrize("turn", [-1, 2**63, "0", None, 0.5, True])
def test_a_client_takes_no_turn_that_is_no_number(turn: Any) -> None:
    assert_refused(lambda: client_of(settings(), [0]).answer(pack({"verb": "play", "turn": turn}, [None])), "turn: exp")


def test_a_client_does_not_pull_arms_that_it_has_eliminated() -> None:
    """The server of a run in which arms have been eliminated allocates pulls to all arms."""
    of = settings(max_cycles=20_000, context_std=0.0, noise_std=0.01)
    loop = Loop(of, SEVERAL)
    refused: list[str] = []

    def all_arms(packet: Packet) -> Packet:
        name = next((name for name in packet if name.endswith("/pulls")), None)
        if name is None:
            return packet
        header, place = json.loads(packet["header"]), int(name.partition("/")[0])
        form = header["messages"][place]["arrays"]["pulls"]
        content = np.ones(form["shape"], dtype=form["dtype"])
        form["mask"] = None
        changed = {**packet, "header": json.dumps(header), name: content.tobytes()}
        changed.pop(f"{name}?", None)
        return changed

    honest = loop.exchange

    def exchange(requests: Any, timeout: float) -> Any:
        for node, packet in requests.items():
            changed = all_arms(packet)
            active = loop.client(node)._blocks.sides[0].active
            if changed is not packet and not active.all():  # type: ignore[union-attr]
                try:
                    loop.client(node).answer(changed)
                except ProtocolError as error:
                    refused.append(str(error))
        return honest(requests, timeout)

    loop.exchange = exchange  # type: ignore[method-assign]
    federated(loop)
    assert refused
    assert all("which has eliminated it" in text for text in refused)


CHANGES = [
    {"num_agents": 10**12}, {"num_agents": 0}, {"num_agents": 2.5}, {"dim": -3}, {"dim": 10**6}, {"num_arms": 10**9},
    {"num_arms": True}, {"horizon": 2**60}, {"horizon": 0}, {"ell": "x"}, {"ell": float("nan")}, {"L": float("inf")},
    {"noise_std": float("nan")}, {"noise_std": -1.0}, {"context": "\x1b[2J"}, {"shared_theta": "yes"},
    {"theta_bound": float("nan")}, {"context_proxy": -1.0}, {"L": None},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_constants_that_no_problem_has_are_refused(change: dict[str, Any]) -> None:
    of = settings()
    config = {**of.config(), "constants": json.dumps({**asdict(of.constants), **change})}
    assert_refused(lambda: Settings.of(config), f"{next(iter(change))}: expected")


@pytest.mark.parametrize(
    "change",
    [
        {"constants": "[]"},
        {"constants": "[" * 10**5},
        {"constants": '{"dim": 3}'},
        {"parameters": "7"},
        {"arguments": "no"},
        {"seed": "-1"},
        {"seed": "9" * 5000},
        {"seed": "1e3"},
    ],
    ids=lambda change: str(change)[:30],
)
def test_a_configuration_of_another_form_is_refused(change: dict[str, str]) -> None:
    assert_refused(lambda: Settings.of({**settings().config(), **change}), "expected")


def test_constants_that_the_environments_have_are_taken() -> None:
    for arguments in ({}, {"context": "resampled"}, {"noise_std": 0.0}):
        of = settings(**arguments)
        assert Settings.of(of.config()) == of
        assert Settings.of(replace(of, parameters={"delta": 0.2}).config()).parameters == {"delta": 0.2}
