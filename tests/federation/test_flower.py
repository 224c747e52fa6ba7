"""Over real Flower processes: SuperLink, SuperNodes and an app process for each message."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation_loop import Loop, federated, in_process, settings
from histories import assert_same_history
from proc import children_of, listening, private_network_is_possible, running_with, started_with

from fedbandit_envs.federation.isolation import FederationError
from fedbandit_envs.federation.one_machine import federate
from fedbandit_envs.federation.settings import Settings
from fedbandit_envs.rounds.faults import Faults, QuorumLost

pytestmark = [pytest.mark.flower, pytest.mark.filterwarnings("default")]  # Flower's warnings are not ours
flwr = pytest.importorskip("flwr")
if not private_network_is_possible():
    pytest.skip("this machine does not let us make a network namespace", allow_module_level=True)


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    """A folder; every process that was started for it must be gone in the end."""
    yield tmp_path
    assert processes_of(tmp_path) == []


def processes_of(folder: Path) -> list[int]:
    return running_with(f"FLWR_HOME={folder / 'flower'}")


def of(policy: str, agents: int, horizon: int) -> Settings:
    """With 10 arms: 10 steps of initialisation, then phases of 12, 14, ... steps, each after a turn without pulls."""
    return settings(policy, num_agents=agents, num_arms=10, max_cycles=horizon)


@pytest.mark.parametrize(
    ("policy", "agents", "clients", "horizon"),
    [("Fed-PECD", 4, 2, 30), ("Fed-PECD", 3, 3, 13), ("Fed-PE", 4, 2, 13), ("Fed-PE", 2, 2, 30)],
)
def test_a_federation_over_flower_plays_as_one_process_bit_for_bit(
    policy: str, agents: int, clients: int, horizon: int, out: Path
) -> None:
    run = of(policy, agents, horizon)
    addresses: set[str] = set()
    turns: list[int] = []

    def on_progress(turn: dict[str, Any]) -> None:
        turns.append(turn["turn"])
        addresses.update(listening(set(processes_of(out))))

    history = federate(run, clients, out=out, on_progress=on_progress)
    assert_same_history(history, in_process(run))
    assert history.faults == ()
    assert turns == list(range(len(turns)))
    assert addresses == set()  # in the network of this machine; Flower's programs have one of their own


def test_over_flower_the_server_is_a_mere_relay_between_peers(out: Path) -> None:
    run = settings("coop-UCB2", num_agents=3, num_arms=3, max_cycles=8, network="path")
    history = federate(run, [[2, 0], [1]], out=out)
    assert_same_history(history, in_process(run))
    assert history.ledger.scalars == history.ledger.scalars_peer == 5 * 6 * 4  # 5 rounds, 2 K numbers, 4 directed edges


def test_contexts_that_change_are_shown_to_the_processes_of_flower_at_each_step(out: Path) -> None:
    arguments = {"num_agents": 2, "num_arms": 3, "max_cycles": 4, "members": 3}
    run = Settings.simulated("DisLinUCB", {"threshold": 2.0}, "fedbandit/Forecast-v0", arguments, seed=0)
    history = federate(run, 2, out=out)
    expected = in_process(run)
    assert_same_history(history, expected)
    assert history.regret().tobytes() == expected.regret().tobytes()
    assert history.ledger.rounds > 0
    assert history.faults == ()


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_a_stranger_whose_key_is_none_is_a_stranger_and_no_error(content: bytes) -> None:
    from fedbandit_envs.federation.keys import fingerprint_of_pem

    assert fingerprint_of_pem(content).startswith("an unreadable key, b")


def test_a_key_has_the_fingerprint_that_openssh_shows(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    from fedbandit_envs.federation.keys import client_key, fingerprint_of_pem

    file, fingerprint = client_key(tmp_path)
    assert client_key(tmp_path) == (file, fingerprint)  # it is made once
    assert file.stat().st_mode & 0o777 == 0o600
    private = serialization.load_ssh_private_key(file.read_bytes(), None)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    assert fingerprint_of_pem(private.public_key().public_bytes(serialization.Encoding.PEM, form)) == fingerprint
    if shutil.which("ssh-keygen") is not None:
        shown = subprocess.run(["ssh-keygen", "-l", "-f", f"{file}.pub"], capture_output=True, text=True, check=True)
        assert shown.stdout.split()[1] == fingerprint


def test_flower_carries_the_counted_bytes_and_little_else() -> None:
    """The serialised content of every message of a run; what is above the count is measured, not charged."""
    from flwr.common.serde import recorddict_to_proto

    from fedbandit_envs.federation.flower import _content

    loop = Loop(of("Fed-PECD", 3, 100), [[0], [1], [2]])
    coordinator = federated(loop)
    packets = [packet for _, packet in loop.sent + loop.answered]
    sizes = [len(recorddict_to_proto(_content(packet)).SerializeToString()) for packet in packets]
    counted = coordinator.ledger.bytes_up + coordinator.ledger.bytes_down
    arrays = sum(len(v) for p in packets for n, v in p.items() if n != "header" and not n.endswith("?"))
    assert arrays == counted
    assert counted < sum(sizes) < counted + 600 * len(packets)


def kill_after_first_turn(out: Path, clients: list[int]) -> Callable[[dict[str, Any]], None]:
    """Kills the SuperNodes of these clients, with all their children, after turn 0."""

    def on_progress(turn: dict[str, Any]) -> None:
        for client in clients if turn["turn"] == 0 else ():
            (supernode,) = started_with(str(client_folder(out, client) / "node.toml"))
            for pid in {supernode, *children_of(supernode)}:
                with contextlib.suppress(ProcessLookupError):  # a child may have ended by itself
                    os.kill(pid, signal.SIGKILL)

    return on_progress


def client_folder(out: Path, client: int) -> Path:
    return out / "clients" / f"{client:03d}"


def test_a_supernode_killed_in_the_middle_is_left_out_and_named(out: Path) -> None:
    run = of("Fed-PECD", 3, 13)
    history = federate(run, 3, out=out, timeout=30, on_progress=kill_after_first_turn(out, [1]))
    assert [(fault.agent, fault.round) for fault in history.faults] == [(1, 1), (1, 2)]
    audit = [json.loads(line) for line in (out / "server" / "audit.jsonl").read_text().splitlines()]
    assert [(line["agents"], line["round"]) for line in audit] == [([1], 1), ([1], 2)]
    assert len({line["who"] for line in audit}) == 1
    assert audit[0]["who"].startswith("SHA256:")
    assert np.isfinite(history.regret()[:, [0, 2]]).all()
    assert (history.pulls[-1].sum(axis=1) == [13, 10, 13]).all()
    expected = in_process(run, Faults(schedule={1: range(1, 9)}))
    np.testing.assert_array_equal(history.pulls[:, [0, 2]], expected.pulls[:, [0, 2]])
    np.testing.assert_array_equal(history.ledger.per_round[:, :2], expected.ledger.per_round[:, :2])


def test_without_a_quorum_the_run_stops_and_goes_on_later_as_if_nothing_had_been(out: Path) -> None:
    run = of("Fed-PE", 3, 13)
    with pytest.raises(QuorumLost, match=rf"round 1: expected .* 50% of 3 agents, got 1 .* from the state in {out}"):
        federate(run, 3, out=out, timeout=25, on_progress=kill_after_first_turn(out, [0, 1]))
    assert processes_of(out) == []
    history = federate(run, 3, out=out)
    assert_same_history(history, in_process(run))


def test_a_client_that_fails_loses_its_reports_and_nothing_more(out: Path) -> None:
    run = of("Fed-PECD", 3, 13)
    torn = client_folder(out, 1) / "state.npz"
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b"not a state")

    def repair(turn: dict[str, Any]) -> None:
        if turn["turn"] == 0:
            torn.unlink()

    history = federate(run, 3, out=out, on_progress=repair)
    rounds = [fault.round for fault in history.faults]
    assert rounds in ([0], [0, 1])  # the next turn may begin before the file is gone
    assert {fault.agent for fault in history.faults} == {1}
    assert_same_history(history, in_process(run, Faults(schedule={1: rounds})))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_leaves_no_process_behind(number: signal.Signals, out: Path) -> None:
    command = [sys.executable, "-m", "fedbandit_envs", "federate", "--policy", "Fed-PECD", "--agents", "2"]
    process = subprocess.Popen(
        [*command, "--set", "max_cycles=30", "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # ignored in a shell's background
    )
    deadline = time.monotonic() + 120
    while not list(out.glob("flower/apps/*")) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(processes_of(out)) >= 4
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert processes_of(out) == []


def test_an_error_of_the_server_ends_the_run_and_all_processes(out: Path) -> None:
    run = of("Fed-PECD", 2, 13)
    broken = Settings(run.policy, {"delta": 2.0}, run.constants, run.environment, run.arguments, run.seed)
    with pytest.raises(FederationError, match="ValueError: delta: expected a number strictly between 0 and 1"):
        federate(broken, 2, out=out)


def test_a_folder_may_have_quotes_in_its_name(tmp_path: Path) -> None:
    run = of("Fed-PECD", 2, 13)
    out = tmp_path / """a"b 'c'"""
    assert_same_history(federate(run, 2, out=out), in_process(run))
    assert {file.name for file in tmp_path.iterdir()} == {out.name}


def test_another_run_in_the_same_folder_is_refused(out: Path) -> None:
    (out / "run.json").write_text(json.dumps({}))
    with pytest.raises(RuntimeError, match="got one of another run; choose another folder"):
        federate(of("Fed-PECD", 2, 13), 2, out=out)
