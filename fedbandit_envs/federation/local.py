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

from fedbandit_envs.federation.programs import Programs, free_ports, listens, runs
from fedbandit_envs.federation.record import collected
from fedbandit_envs.federation.settings import Config, Settings, write_app, write_toml
from fedbandit_envs.rounds.blocks import checked_rows
from fedbandit_envs.rounds.faults import Faults, QuorumLost
from fedbandit_envs.rounds.history import History
from fedbandit_envs.storage import write_whole
from fedbandit_envs.threads import ONE_THREAD_ENVIRONMENT
from fedbandit_envs.validation import needs, real_number, whole_number

HOST = "127.0.0.1"
_START_SECONDS = 120.0  # how long the SuperLink may take to start, to take the run, and to start the server
_CHECK_SECONDS = 10.0  # how often a silent server is checked to be still running
_POLL_SECONDS = 0.3  # how often the progress file is read


class FederationError(RuntimeError):
    """The federation could not start, or it ended before the horizon."""


def federate(
    settings: Settings,
    clients: int | Sequence[Sequence[int]],
    *,
    out: str | Path | None = None,
    quorum: float = 0.5,
    timeout: float = 120.0,
    on_progress: Callable[[dict[str, Any]], None] = lambda line: None,
) -> History:
    """Run a simulated federation over real Flower processes, and stop all of them at the end.

    The history is the same bit for bit as that of `fb.play` with the same seed. It needs the extra `flower`. A turn
    takes some seconds, because Flower starts a process for each message.

    Example: `federate(Settings.simulated("Fed-PECD", {}, "fedbandit/Synthetic-v0", {"num_agents": 4}, seed=0), 2)`.

    Args:
        settings: the run; `Settings.simulated` makes one.
        clients: the number of clients, which share the agents evenly, or a list of agents for each client.
        out: a folder for the states and logs; a run that stopped goes on from there. None: a temporary folder.
        quorum: the least share of the agents that must be heard in a turn.
        timeout: how many seconds clients have for a turn.
        on_progress: a function that is called after each turn with its number ("turn"), the steps taken so far
            ("step"), the number of agents that were heard ("heard") and the lost reports ("faults").

    Raises:
        QuorumLost: too few agents were heard. The state is in `out`.
        FederationError: something else stopped the run.
    """
    needs("flwr", extra="flower")
    blocks = client_blocks(clients, settings.constants.num_agents)
    real_number("timeout", timeout, above=0)
    Faults(quorum=quorum)  # refuses what is no share
    with _folder(out) as folder, Programs(folder / "logs") as programs:
        from fedbandit_envs.federation.keys import client_key  # it needs the extra `flower`

        _check_same_run(folder, settings, blocks)
        keys = [client_key(_client(folder, number)) for number in range(len(blocks))]
        owners = {fingerprint: block for (_, fingerprint), block in zip(keys, blocks, strict=True)}
        config = {
            **settings.config(),
            "owners": json.dumps(owners),
            "clients": len(blocks),
            "quorum": float(quorum),
            "timeout": float(timeout),
            "folder": str(folder / "server"),
        }
        already_read = len(_progress(folder))  # what an earlier run in this folder has left
        _start(programs, folder, config, blocks)
        _watch(programs, folder, already_read, on_progress)
        return collected(settings, folder)


def client_blocks(clients: int | Sequence[Sequence[int]], num_agents: int) -> list[list[int]]:
    """The agents of each client.

    Args:
        clients: the number of clients, which share the agents evenly, or a list of agents for each client.
        num_agents: the number of agents, M.

    >>> client_blocks(2, num_agents=5)
    [[0, 1, 2], [3, 4]]
    >>> client_blocks([[4], [0, 2], [1, 3]], num_agents=5)
    [[4], [0, 2], [1, 3]]
    """
    if not isinstance(clients, int):
        return [rows.tolist() for rows in checked_rows(clients, num_agents, name="clients")]
    if whole_number("clients", clients, at_least=1) > num_agents:
        raise ValueError(f"clients: expected at most one for each of {num_agents} agents, got {clients}")
    return [block.tolist() for block in np.array_split(np.arange(num_agents), clients)]


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


def _client(folder: Path, number: int) -> Path:
    """The folder of a client: its key, its configuration and its state."""
    return folder / "clients" / f"{number:03d}"


def _check_same_run(folder: Path, settings: Settings, blocks: list[list[int]]) -> None:
    """Refuse a folder of another run, and write down which run this folder belongs to."""
    file = folder / "run.json"
    text = json.dumps({**settings.config(), "blocks": blocks}, indent=1)
    if file.exists() and file.read_text() != text:
        raise FederationError(
            f"{folder}: expected an empty folder or one of this run, got one of another run; choose another folder"
        )
    write_whole(file, text.encode())


def _start(programs: Programs, folder: Path, config: Config, blocks: list[list[int]]) -> None:
    app, home = folder / "app", folder / "flower"
    home.mkdir(exist_ok=True)
    port, *ports = free_ports(1 + len(blocks), HOST)
    write_app(app, config)
    connection = {"address": f"{HOST}:{port}", "insecure": True}
    write_toml(home / "config.toml", {"superlink": {"default": "here", "here": connection}})
    environment = _environment(home)
    command = ["flower-superlink", "--insecure", "--host", HOST, "--port", str(port)]
    programs.start("superlink", [*command, "--disable-runtime-dependency-installation"], environment)
    for number, (block, own) in enumerate(zip(blocks, ports, strict=True)):
        node = write_node(_client(folder, number), block)
        command = ["flower-supernode", "--insecure", "--superlink", f"{HOST}:{port}", "--host", HOST]
        command += ["--port", str(own), "--node-config", str(node)]
        command += ["--auth-supernode-private-key", str(node.parent / "key")]
        programs.start(f"client-{number:03d}", command, environment)
    _submit(programs, app, port, environment)


def write_node(folder: Path, agents: Sequence[int]) -> Path:
    """Write the configuration of a SuperNode into the folder of its state, and return the file.

    Flower reads it from a TOML file, because a quote in a path would end a value on the command line.
    """
    file = folder / "node.toml"
    write_toml(file, {"agents": ",".join(map(str, agents)), "folder": str(folder)})
    return file


def _environment(home: Path) -> dict[str, str]:
    """The environment of Flower's programs: they find each other, have a home of their own, and make no calls home."""
    quiet = {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    return {**os.environ, **quiet, **ONE_THREAD_ENVIRONMENT}


def _submit(programs: Programs, app: Path, port: int, environment: Mapping[str, str]) -> None:
    """Wait until the SuperLink listens, then hand the app to it."""
    deadline = time.monotonic() + _START_SECONDS
    while not listens(HOST, port):
        if "superlink" in programs.ended() or time.monotonic() > deadline:
            raise FederationError(f"expected the SuperLink to listen, got:\n{programs.log('superlink')}")
        time.sleep(0.2)
    programs.start("submit", ["flwr", "run", str(app), "here"], environment)
    if programs.wait("submit", _START_SECONDS) != 0:
        raise FederationError(f"expected the SuperLink to take the run, got:\n{programs.log('submit')}")


def _progress(folder: Path) -> str:
    """All lines that the server has written so far, in this run and in earlier ones."""
    file = folder / "server" / "progress.jsonl"
    return file.read_text() if file.exists() else ""


def _watch(programs: Programs, folder: Path, already_read: int, on_progress: Callable[[dict[str, Any]], None]) -> None:
    """Follow the run to its end; the first `already_read` characters of the progress file belong to earlier runs."""
    server, deadline = 0, time.monotonic() + _START_SECONDS
    while True:
        text = _progress(folder)[already_read:]
        complete = text[: text.rfind("\n") + 1]
        already_read += len(complete)
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
            if not server or not runs(server) or "superlink" in programs.ended():
                raise FederationError(f"expected the server to run, got its end:\n{programs.log('superlink')}")
            deadline = time.monotonic() + _CHECK_SECONDS
        time.sleep(_POLL_SECONDS)
