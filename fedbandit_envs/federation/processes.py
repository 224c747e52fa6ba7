"""Processes that end with whoever started them."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

_GRACE = 5.0  # seconds between asking and forcing


class Processes:
    """Starts programs, and stops them with all their children: in the end, after an error, or at SIGTERM."""

    def __init__(self, logs: Path):
        self._logs = logs
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._before: Any = None

    def __enter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        try:
            self._before = signal.signal(signal.SIGTERM, _end)
        except ValueError:  # not in the main thread: signals are somebody else's business
            self._before = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a program whose output goes to a log of its name."""
        with open(self._logs / f"{name}.log", "ab") as log:
            # A group of its own: Ctrl-C at the terminal is for this process, which then stops the others in order.
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._started[name] = process

    def pid(self, name: str) -> int:
        """The process id of a program, which is also that of its group."""
        return self._started[name].pid

    def ended(self) -> dict[str, int]:
        """The programs that have ended by themselves, with their exit codes."""
        codes = {name: process.poll() for name, process in self._started.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def wait(self, name: str, timeout: float) -> int:
        """Wait until a program has ended; its exit code."""
        return self._started[name].wait(timeout)

    def log(self, name: str, characters: int = 2000) -> str:
        """The end of a program's output."""
        file = self._logs / f"{name}.log"
        return file.read_text(errors="replace")[-characters:] if file.exists() else ""

    def stop(self) -> None:
        """End every program with all its children; some of these have sessions of their own, so they are looked up."""
        family = _family({process.pid for process in self._started.values()})
        for process in reversed(self._started.values()):
            _signal(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE
        while (left := self._running(family)) and time.monotonic() < deadline:
            time.sleep(0.1)
        while left:
            for pid in left:
                _signal(pid, signal.SIGKILL)
            time.sleep(0.1)
            left = self._running(family)
        self._started.clear()

    def _running(self, family: set[int]) -> set[int]:
        """Those of the family that still run, with children that they have had since; added to the family."""
        for process in self._started.values():
            process.poll()  # takes note of those that have ended
        family |= _family(family)
        return family & _table().keys()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it is gone
        os.kill(pid, number)


def _table() -> dict[int, int]:
    """The parent of each process that runs; those that have ended and wait to be noticed are left out."""
    lines = subprocess.check_output(["ps", "-A", "-o", "pid=,ppid=,stat="], text=True).splitlines()
    rows = [line.split() for line in lines]
    return {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}


def _family(pids: set[int]) -> set[int]:
    """These processes that run, and all below them."""
    table = _table()
    found = pids & table.keys()
    while below := {pid for pid, parent in table.items() if parent in found and pid not in found}:
        found |= below
    return found


def runs(pid: int) -> bool:
    """Whether a process runs."""
    return pid in _table()


def free_ports(number: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind((host, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def listens(host: str, port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
