"""A whole federation on this machine: a SuperLink, SuperNodes and the run, started, watched and stopped."""

import fcntl
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_envs.federation.isolation import FederationError
from fedbandit_envs.federation.launch import client_folder, start
from fedbandit_envs.federation.programs import Programs, runs
from fedbandit_envs.federation.record import collected
from fedbandit_envs.federation.settings import Settings
from fedbandit_envs.rounds.blocks import checked_rows
from fedbandit_envs.rounds.faults import Faults, QuorumLost
from fedbandit_envs.rounds.history import History
from fedbandit_envs.storage import write_whole
from fedbandit_envs.validation import needs, real_number, whole_number

_START_SECONDS = 120.0  # how long the SuperLink may take to start the server
_CHECK_SECONDS = 10.0  # how often a silent server is checked to be still running
_POLL_SECONDS = 0.3  # how often the progress file is read


def federate(
    settings: Settings,
    clients: int | Sequence[Sequence[int]],
    *,
    out: str | Path | None = None,
    quorum: float = 0.5,
    timeout: float = 120.0,
    private_network: bool = True,
    on_progress: Callable[[dict[str, Any]], None] = lambda line: None,
) -> History:
    """Run a simulated federation over real Flower processes, and stop all of them at the end.

    The history is the same bit for bit as that of `fb.play` with the same seed. It needs the extra `flower`. A turn
    takes some seconds, because Flower starts a process for each message.

    Example: `federate(Settings.simulated("Fed-PECD", {}, "fedbandit/Synthetic-v0", {"num_agents": 4}, seed=0), 2)`.

    Args:
        settings: the run; `Settings.simulated` makes one.
        clients: the number of clients, which share the agents evenly, or a list of agents for each client.
        out: a folder for the states and logs; if a run was stopped there, it goes on. None: a temporary folder.
        quorum: the least share of the agents that must be heard in a turn.
        timeout: how many seconds clients have for a turn.
        private_network: whether Flower's programs get a network of their own, which needs Linux. On the shared network
            every user of the machine can submit code to Flower, which then runs as you.
        on_progress: a function that is called after each turn with its number ("turn"), the steps taken so far
            ("step"), the number of agents that were heard ("heard") and the lost reports ("faults").

    Raises:
        QuorumLost: too few agents were heard. The state is in `out`.
        FederationError: something else stopped the run.
    """
    needs("flwr", extra="flower")
    blocks = client_blocks(clients, settings.constants.num_agents)
    real_number("timeout", timeout, above=0)
    Faults(quorum=quorum)  # it refuses a quorum that is no share
    with _folder(out) as folder, Programs(folder / "logs") as programs:
        from fedbandit_envs.federation.keys import client_key  # it needs the extra `flower`

        _check_same_run(folder, settings, blocks)
        keys = [client_key(client_folder(folder, number)) for number in range(len(blocks))]
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
        start(programs, folder, config, blocks, private_network=private_network)
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
    """The folder of the federation, whose parts nobody else can read, and in which no other federation runs."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="fedbandit-") as name:
            _make_parts(Path(name))
            yield Path(name)
        return
    folder = Path(out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    _make_parts(folder)
    with open(folder / "server" / "lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FederationError(
                f"{folder}: expected a folder in which no federation runs, got one in which another runs now; choose "
                "another folder"
            ) from None
        yield folder


def _make_parts(folder: Path) -> None:
    """Make the parts of the folder, which only their owner can enter: they hold keys, and what Flower runs."""
    for name in ("server", "clients", "app", "flower", "logs"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
        (folder / name).chmod(0o700)


def _check_same_run(folder: Path, settings: Settings, blocks: list[list[int]]) -> None:
    """Refuse a folder of another run, and write down which run this folder belongs to."""
    file = folder / "run.json"
    text = json.dumps({**settings.config(), "blocks": blocks}, indent=1)
    if file.exists() and file.read_text() != text:
        raise FederationError(
            f"{folder}: expected an empty folder or one of this run, got one of another run; choose another folder"
        )
    write_whole(file, text.encode())


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
                log = programs.log("superlink")
                raise FederationError(f"expected the server to play to the horizon, got its end; the log:\n{log}")
            deadline = time.monotonic() + _CHECK_SECONDS
        time.sleep(_POLL_SECONDS)
