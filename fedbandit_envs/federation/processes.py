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
    """Starts programs, each in a process group of its own, and stops the groups: by the end, an error or a signal."""

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
        """End every group, children of children included; the last that was started first."""
        groups = [process.pid for process in reversed(self._started.values())]
        for group in groups:
            _signal(group, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE
        while any(map(_alive, groups)) and time.monotonic() < deadline:
            for process in self._started.values():
                process.poll()  # takes note of those that have ended, so that their groups can be empty
            time.sleep(0.1)
        for group in groups:
            _signal(group, signal.SIGKILL)
        for process in self._started.values():
            process.wait()
        self._started.clear()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it is gone
        os.killpg(group, number)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


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
