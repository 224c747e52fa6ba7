"""Programs that end with the process that started them."""

import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import psutil  # it comes with the extra `flower`, so it is imported where it is needed

_GRACE_SECONDS = 5.0  # how long a program may take to end before it is killed


class Programs:
    """Starts programs, and stops them with all their children.

    Use it in a `with` statement: the programs are stopped at its end, after an error, and at SIGTERM.

    Example: `with Programs(Path("logs")) as programs: programs.start("sleep", ["sleep", "5"], os.environ)`.

    Args:
        logs: the folder of the programs' output, a file for each.
    """

    def __init__(self, logs: Path):
        self._logs = logs
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._before: Any = None
        self.prefix: list[str] = []  #: what stands in front of each command, such as a program that enters a network

    def __enter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        try:
            self._before = signal.signal(signal.SIGTERM, _end)
        except ValueError:  # only the main thread may handle signals
            self._before = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a program.

        Args:
            name: what the program and its log are called.
            command: the program and its arguments.
            environment: all environment variables of the program.
        """
        with open(self._logs / f"{name}.log", "ab") as log:
            # In a session of its own the program does not see Ctrl-C, so this process can stop all in order.
            process = subprocess.Popen(
                [*self.prefix, *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o077,  # what it writes is for its owner alone
            )
        self._started[name] = process

    def pid(self, name: str) -> int:
        """The process id of a program."""
        return self._started[name].pid

    def ended(self) -> dict[str, int]:
        """The programs that have ended by themselves, with their exit codes."""
        codes = {name: process.poll() for name, process in self._started.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def wait(self, name: str, timeout: float) -> int:
        """Wait until a program has ended, and return its exit code."""
        return self._started[name].wait(timeout)

    def log(self, name: str, characters: int = 2000) -> str:
        """The last `characters` of a program's output."""
        file = self._logs / f"{name}.log"
        return file.read_text(errors="replace")[-characters:] if file.exists() else ""

    def stop(self) -> None:
        """End every program with all its children, also those children that have a session of their own."""
        if not self._started:
            return
        family = _existing([process.pid for process in self._started.values()])
        self._running(family)
        for process in reversed(self._started.values()):
            process.terminate()
        deadline = time.monotonic() + _GRACE_SECONDS
        while (left := self._running(family)) and time.monotonic() < deadline:
            time.sleep(0.1)
        while left:
            for one in left:
                _kill(one)
            time.sleep(0.1)
            left = self._running(family)
        for process in self._started.values():
            process.wait()  # it has ended, and would stay a zombie
        self._started.clear()

    def _running(self, family: "set[psutil.Process]") -> "set[psutil.Process]":
        """The members of the family that still run. New children join the family."""
        for process in self._started.values():
            process.poll()  # a program that has ended is a zombie until its parent polls it
        for one in list(family):
            family |= _children(one)
        return {one for one in family if _alive(one)}


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _existing(pids: Sequence[int]) -> "set[psutil.Process]":
    """The processes with these ids that exist."""
    import psutil

    existing = set()
    for pid in pids:
        try:
            existing.add(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    return existing


def _children(process: "psutil.Process") -> "set[psutil.Process]":
    import psutil

    try:
        return set(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return set()


def _alive(process: "psutil.Process") -> bool:
    """Whether a process runs; a zombie does not."""
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _kill(process: "psutil.Process") -> None:
    import psutil

    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def runs(pid: int) -> bool:
    """Whether a process with this id runs; a zombie does not."""
    return any(_alive(process) for process in _existing([pid]))


def free_ports(number: int, host: str = "127.0.0.1") -> list[int]:
    """The numbers of `number` TCP ports on which no program listens now."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind((host, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
