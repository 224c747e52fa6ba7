"""One client of six sends whatever it likes: the run ends as it should, and nobody else loses a report."""

import json
from typing import Any

import numpy as np
import pytest
from federation_loop import EACH_ITS_OWN, Loop, coordinator_of, settings

from fedbandit_envs.federation.wire import Packet

LIAR = 1
POLICIES = ("Fed-PECD", "Fed-PE", "Enhanced-Fed-PE", "Collaborative", "Shared-Theta-Fed-PE", "DisLinUCB", "Fed-CI")
VALUES = [0, -1, 1, 7, 10**6, 2**31, 2**61, 2**64, 0.5, True, None, "", "\x1b[2J", "\udc80" * 50, [], [0], [[1]], {}]
NUMBERS = [0.0, np.nan, np.inf, -np.inf]  # finite lies are a matter of the policy's server, and of its tests


class Liar:
    """Changes replies at random, in a way that depends on the seed alone."""

    def __init__(self, seed: int):
        self._random = np.random.default_rng(seed)

    def __call__(self, packet: Packet) -> Packet | str:
        if self._random.random() < 0.3:
            return packet
        return self._one_of([self._envelope, self._message, self._form, self._bytes, self._whole])(packet)

    def _one_of(self, choices: list[Any]) -> Any:
        return choices[self._random.integers(len(choices))]

    def _envelope(self, packet: Packet) -> Packet:
        header = json.loads(packet["header"])
        header[self._one_of(["verb", "turn", "length", "agents", "messages"])] = self._one_of(
            [*VALUES, "hello", "missing", "play", [LIAR], [LIAR, LIAR], [0, LIAR], list(range(6))]
        )
        return {**packet, "header": json.dumps(header)}

    def _message(self, packet: Packet) -> Packet:
        header = json.loads(packet["header"])
        if any(header["messages"]):
            header["messages"][0][self._one_of(["kind", "agents", "arrays"])] = self._one_of(
                [*VALUES, [LIAR], [LIAR, 0]]
            )
        return {**packet, "header": json.dumps(header)}

    def _form(self, packet: Packet) -> Packet:
        header = json.loads(packet["header"])
        for form in header["messages"][0]["arrays"].values() if any(header["messages"]) else ():
            choices = [*VALUES, "<f4", "<i8", "|O", [1], [1, 4], [1, 4, 3], [1, 10**9], [1, 0], [2, 2]]
            form[self._one_of(["dtype", "shape", "mask"])] = self._one_of(choices)
        return {**packet, "header": json.dumps(header)}

    def _bytes(self, packet: Packet) -> Packet:
        names = [name for name in packet if name != "header"]
        if not names:
            return packet
        name = self._one_of(names)
        content = packet[name]
        assert isinstance(content, bytes)
        whole = np.full(len(content) // 8, self._one_of(NUMBERS)).tobytes()
        return {**packet, name: self._one_of([b"", content[:-1], content + b"\0", whole, "text", bytes(len(content))])}

    def _whole(self, packet: Packet) -> Packet | str:
        return self._one_of([{}, {"header": "{"}, {"header": "[" * 10**5}, "failed: \x1b[2J\udc80", "x" * 10**5])


def play(seed: int) -> None:
    of = settings(POLICIES[seed % len(POLICIES)], seed=seed, max_cycles=60)
    loop, liar = Loop(of, EACH_ITS_OWN), Liar(seed)
    loop.tampered = {(LIAR, turn): liar for turn in range(1000)}
    coordinator = coordinator_of(loop)
    while not coordinator.done:
        coordinator.advance()
        assert coordinator.turn < 500
    assert coordinator.step == 60
    assert {fault.agent for fault in coordinator.faults} <= {LIAR}
    assert all(fault.reason.isprintable() and len(fault.reason) < 400 for fault in coordinator.faults)
    for _, packet in loop.sent:
        forms = json.loads(packet["header"])["messages"]
        for place, form in enumerate(forms):
            for name, one in (form or {"arrays": {}})["arrays"].items():
                if one["dtype"] == "<f8":
                    assert np.isfinite(np.frombuffer(packet[f"{place}/{name}"])).all()  # type: ignore[arg-type]
    for node in set(range(6)) - {LIAR}:
        assert (loop.client(node).snapshot()["checkpoints"]["now"].sum(axis=1) == 60).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(21))
def test_no_reply_of_one_client_ends_the_run_wrongly_or_shuts_another_out(seed: int) -> None:
    play(seed)


@pytest.mark.study
def test_a_thousand_malicious_clients() -> None:
    for seed in range(1000):
        play(seed)
