"""One client of six sends whatever it likes: the run ends as it should, and nobody else loses a report."""

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from federation_loop import EACH_ITS_OWN, Loop, coordinator_of

import fedbandit_envs as fb
from fedbandit_envs.federation.settings import Settings
from fedbandit_envs.federation.wire import Packet
from fedbandit_envs.protocol.policy import partner_of

LIAR = 1
TALKING = [  # whatever talks; arms that agents share can't be simulated by clients apart
    name
    for name in fb.policy_names()
    if not name.startswith("Test-")  # other tests register policies, some of which fail on purpose
    and partner_of(type(fb.make_policy(name))) != "nobody"
    and not fb.make_policy(name).shares_arms
]
ENVIRONMENTS = ("fedbandit/Synthetic-v0", "fedbandit/MultiArmed-v0")
STEPS = 30
VALUES = [0, -1, 1, 7, 10**6, 2**31, 2**61, 2**64, 0.5, True, None, "", "\x1b[2J", "\udc80" * 50, [], [0], [[1]], {}]
NUMBERS = [0.0, -1.0, 1e8, -1e8, 1e60, -1e60, 9e99, -9e99, 1e-300, np.nan, np.inf, -np.inf]
FACTORS = [-1, -10, 100, 1e4, 1e90]
WHOLE_NUMBERS = [-1, 0, 1, 10**6, 2**62, -(2**62), 2**63 - 1]


def settings_of(name: str, seed: int) -> Settings:
    """A small problem that the policy plays."""
    arguments = {"num_agents": 6, "num_arms": 6, "max_cycles": STEPS}
    if fb.make_policy(name).observes == "delayed":
        arguments |= {"context": "streaming", "reveal": "after"}
    for environment in ENVIRONMENTS:
        with contextlib.suppress(ValueError):
            of = Settings.simulated(name, {}, environment, arguments, seed, "ring")
            if not fb.why_not(of.make_policy(), of.make_environment(), network="ring"):
                return of
    raise AssertionError(name)


class Liar:
    """Changes replies at random, in a way that depends on the seed alone."""

    def __init__(self, seed: int):
        self._random = np.random.default_rng(seed)

    def __call__(self, packet: Packet) -> Packet | str:
        if self._random.random() < 0.3:
            return packet
        return self._one_of(
            [self._envelope, self._message, self._form, self._bytes, self._whole, self._numbers, self._numbers]
        )(packet)

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

    def _numbers(self, packet: Packet) -> Packet:
        """Some of the numbers are others, in a report whose form is right."""
        header, changed = json.loads(packet["header"]), dict(packet)
        for name, form in header["messages"][0]["arrays"].items() if any(header["messages"]) else ():
            content = packet[f"0/{name}"]
            assert isinstance(content, bytes)
            array = np.frombuffer(content, dtype=form["dtype"]).copy()
            chosen = self._random.random(array.shape) < self._random.choice([0.1, 0.5, 1.0])
            if array.dtype.kind == "f":
                factor = self._one_of(FACTORS)
                with np.errstate(over="ignore"):
                    array[chosen] = array[chosen] * factor if self._random.random() < 0.4 else self._one_of(NUMBERS)
            elif array.dtype == np.int64:
                array[chosen] = self._one_of(WHOLE_NUMBERS)
            changed[f"0/{name}"] = array.tobytes()
        return changed

    def _whole(self, packet: Packet) -> Packet | str:
        return self._one_of([{}, {"header": "{"}, {"header": "[" * 10**5}, "failed: \x1b[2J\udc80", "x" * 10**5])


def play(seed: int) -> None:
    of = settings_of(TALKING[seed % len(TALKING)], seed)
    loop, liar = Loop(of, EACH_ITS_OWN), Liar(seed)
    loop.tampered = {(LIAR, turn): liar for turn in range(1000)}
    coordinator = coordinator_of(loop)
    while not coordinator.done:
        coordinator.advance()
        assert coordinator.turn < 2000
    assert coordinator.step == STEPS
    assert {fault.agent for fault in coordinator.faults} <= {LIAR}
    assert all(fault.reason.isprintable() and len(fault.reason) < 400 for fault in coordinator.faults)
    for _, packet in loop.sent:
        forms = json.loads(packet["header"])["messages"]
        for place, form in enumerate(forms):
            for name, one in (form or {"arrays": {}})["arrays"].items():
                if one["dtype"] == "<f8":
                    assert np.isfinite(np.frombuffer(packet[f"{place}/{name}"])).all()  # type: ignore[arg-type]
    for node in set(range(6)) - {LIAR}:
        assert (loop.client(node).snapshot()["checkpoints"]["now"].sum(axis=1) == STEPS).all()


@pytest.mark.parametrize(
    "seed", [seed if seed % 4 == 0 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(len(TALKING))]
)
def test_no_reply_of_one_client_ends_the_run_wrongly_or_shuts_another_out(seed: int) -> None:
    play(seed)


@pytest.mark.study
def test_a_thousand_malicious_clients() -> None:
    for seed in range(1000):
        play(seed)
