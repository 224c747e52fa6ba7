"""A whole federation on this machine: a SuperLink, SuperNodes and the run, started, watched and stopped."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_envs.federation.processes import Processes, free_ports, listens, runs
from fedbandit_envs.federation.record import collected
from fedbandit_envs.federation.settings import Config, Settings, write_app, write_toml
from fedbandit_envs.rounds.faults import Faults, QuorumLost
from fedbandit_envs.rounds.history import History
from fedbandit_envs.validation import real_number, whole_number

HOST = "127.0.0.1"
_START = 120.0  # seconds for the SuperLink to start, to take the run, and to start the server
_LOOK = 10.0  # seconds between two looks whether the server is still there
_POLL = 0.3  # seconds between two looks at the progress


class FederationError(RuntimeError):
    """The federation could not start, or came to an end before the horizon."""


def federate(
    settings: Settings,
    clients: int | Sequence[Sequence[int]],
    *,
    out: str | Path | None = None,
    quorum: float = 0.5,
    timeout: float = 120.0,
    rewards: Mapping[int, str] | None = None,
    on_progress: Callable[[dict[str, Any]], None] = lambda line: None,
    on_start: Callable[[Processes], None] = lambda processes: None,
) -> History:
    """Run a simulated federation over real Flower processes, all of which are gone afterwards.

    Args:
        settings: the run; `Settings.simulated(...)` makes one.
        clients: how many, or the agents of each.
        out: a folder for the states and logs; a run that stopped goes on from there. None: a temporary one.
        quorum: least share of the agents that must be heard in a turn.
        timeout: seconds that clients have for a turn.
        rewards: reward sources ("module:class") of some clients, in place of the simulation's.
        on_progress: is given each turn: its number, the step, the agents heard and the faults.
        on_start: is given the processes once they run.

    Raises:
        QuorumLost: when too few agents were heard; the state is in `out`.
        FederationError: when something else stopped the run.
    """
    _check_flower()
    blocks = _blocks(clients, settings.constants.num_agents)
    real_number("timeout", timeout, above=0)
    Faults(quorum=quorum)  # refuses what is no share
    with _folder(out) as folder, Processes(folder / "logs") as processes:
        config = {
            **settings.config(),
            "clients": len(blocks),
            "quorum": float(quorum),
            "timeout": float(timeout),
            "folder": str(folder / "server"),
        }
        _check_same_run(folder, settings, blocks)
        told = _told(folder)
        _start(processes, folder, config, blocks, rewards or {})
        on_start(processes)
        _watch(processes, folder, told, on_progress)
        return collected(settings, folder)


def _check_flower() -> None:
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise ImportError("federate: expected Flower to be installed, got none; pip install 'fedbandit-envs[flower]'")


def _blocks(clients: int | Sequence[Sequence[int]], num_agents: int) -> list[list[int]]:
    if isinstance(clients, int):
        if whole_number("clients", clients, at_least=1) > num_agents:
            raise ValueError(f"clients: expected at most one for each of {num_agents} agents, got {clients}; use fewer")
        return [block.tolist() for block in np.array_split(np.arange(num_agents), clients)]
    blocks = [list(map(int, block)) for block in clients]
    if sorted(agent for block in blocks for agent in block) != list(range(num_agents)) or not all(blocks):
        raise ValueError(
            f"clients: expected lists that hold each agent from 0 to {num_agents - 1} once, none empty, got {blocks}; "
            "give a number to split them evenly"
        )
    return blocks


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    if out is not None:
        folder = Path(out).resolve()
        (folder / "server").mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="fedbandit-") as name:
        (Path(name) / "server").mkdir()
        yield Path(name)


def _check_same_run(folder: Path, settings: Settings, blocks: list[list[int]]) -> None:
    """Refuse a folder of another run, and note which run it is."""
    file = folder / "run.json"
    text = json.dumps({**settings.config(), "blocks": blocks}, indent=1)
    if file.exists() and file.read_text() != text:
        raise FederationError(
            f"{folder}: expected an empty folder or one of this run, got one of another run; choose another folder"
        )
    file.write_text(text)


def _start(
    processes: Processes, folder: Path, config: Config, blocks: list[list[int]], rewards: Mapping[int, str]
) -> None:
    app, home = folder / "app", folder / "flower"
    home.mkdir(exist_ok=True)
    port, *ports = free_ports(1 + len(blocks), HOST)
    write_app(app, config)
    connection = {"address": f"{HOST}:{port}", "insecure": True}
    write_toml(home / "config.toml", {"superlink": {"default": "here", "here": connection}})
    environment = _environment(home)
    command = ["flower-superlink", "--insecure", "--host", HOST, "--port", str(port)]
    processes.start("superlink", [*command, "--disable-runtime-dependency-installation"], environment)
    for number, (block, own) in enumerate(zip(blocks, ports, strict=True)):
        node = write_node(folder / "clients" / f"{number:03d}", block, rewards.get(number, ""))
        command = [
            "flower-supernode",
            "--insecure",
            "--superlink",
            f"{HOST}:{port}",
            "--host",
            HOST,
            "--port",
            str(own),
        ]
        processes.start(f"client-{number:03d}", [*command, "--node-config", str(node)], environment)
    _submit(processes, app, port, environment)


def write_node(folder: Path, agents: Sequence[int], rewards: str = "") -> Path:
    """Write the configuration of a SuperNode into the folder of its state.

    Flower reads it from a TOML file, because a quote in a path would end a value on the command line.
    """
    content = {"agents": ",".join(map(str, agents)), "folder": str(folder)}
    if rewards:
        content["rewards"] = rewards
    file = folder / "node.toml"
    write_toml(file, content)
    return file


def _environment(home: Path) -> dict[str, str]:
    """What Flower's programs need: each other in the path, a home of their own, and no calls home."""
    quiet = {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**os.environ, **quiet, **one_thread}


def _submit(processes: Processes, app: Path, port: int, environment: Mapping[str, str]) -> None:
    """Hand the app to the SuperLink, once it listens."""
    deadline = time.monotonic() + _START
    while not listens(HOST, port):
        if "superlink" in processes.ended() or time.monotonic() > deadline:
            raise FederationError(f"expected the SuperLink to listen, got:\n{processes.log('superlink')}")
        time.sleep(0.2)
    processes.start("submit", ["flwr", "run", str(app), "here"], environment)
    if processes.wait("submit", _START) != 0:
        raise FederationError(f"expected the SuperLink to take the run, got:\n{processes.log('submit')}")


def _told(folder: Path) -> int:
    """Characters of progress that earlier runs have left."""
    file = folder / "server" / "progress.jsonl"
    return len(file.read_text()) if file.exists() else 0


def _watch(processes: Processes, folder: Path, told: int, on_progress: Callable[[dict[str, Any]], None]) -> None:
    """Follow the run to its end."""
    file = folder / "server" / "progress.jsonl"
    server, deadline = 0, time.monotonic() + _START
    while True:
        text = file.read_text()[told:] if file.exists() else ""
        complete = text[: text.rfind("\n") + 1]
        told += len(complete)
        for line in map(json.loads, complete.splitlines()):
            if "error" in line:
                kind, _, message = line["error"].partition(": ")
                raise QuorumLost(message) if kind == QuorumLost.__name__ else FederationError(line["error"])
            if "done" in line:
                return
            if "process" in line:
                server = line["process"]
            else:
                on_progress(line)
        if not complete and time.monotonic() > deadline:
            if not server or not runs(server) or "superlink" in processes.ended():
                raise FederationError(f"expected the server to run, got its end:\n{processes.log('superlink')}")
            deadline = time.monotonic() + _LOOK
        time.sleep(_POLL)
