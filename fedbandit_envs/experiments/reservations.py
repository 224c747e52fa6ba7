"""Who computes what: files by which processes that share a folder, also on several machines, divide their work.

A target such as `trial_000003.npz` is reserved by creating `trial_000003.npz.reserved-0`, which only one process can
do. The file says which process that was. While the process lives, it renews the file's time again and again. When the
process is dead, another one creates `...reserved-1`, which again only one can do, and so on: nobody ever deletes the
reservation of somebody else, so nobody can delete a fresh one by mistake.
"""

import contextlib
import json
import os
import secrets
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

from fedbandit_envs.storage import StoredFileError, read_whole

HEARTBEAT = 30.0  # seconds between two renewals
SILENCE = 300.0  # seconds without a renewal after which a process on another machine is taken to be dead
THREAD = "renews reservations"  # the name of the thread that does so
_SILENT = 2.0  # seconds that are waited for others before a word is said
_PAUSES = 0.02, 1.0  # the first and the longest pause, in seconds, between two looks: looks cost a shared disk much
_SUFFIX = ".reserved-"
_MOST_BYTES = 10_000  # a reservation is far smaller


class Reservations:
    """The reservations of this process; a context manager that renews them, and gives them back at its end.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "trial_000003.npz"
    >>> with Reservations() as mine, Reservations() as others:
    ...     mine.take(target), others.take(target)
    ...     mine.give_back(target)
    ...     others.take(target)
    (True, False)
    True
    """

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}  # the number of the reservation for each target
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._holder = json.dumps(_this_process())

    def __enter__(self) -> Self:
        self._ended.clear()
        threading.Thread(target=self._renew, name=THREAD, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for target in list(self._held):
            self.give_back(target)

    def take(self, target: Path) -> bool:
        """Reserve a target, unless a living process has it."""
        number = 0
        while not self._create(target, number):
            if _is_alive(_file(target, number)):
                return False
            number += 1
        # Meanwhile somebody else may have taken over, finished and tidied up, and the target may be reserved anew. Then
        # there is nothing to take over. Only the own file is removed, because the others can be fresh.
        if any(_is_alive(_file(target, earlier)) for earlier in range(number)):
            with self._lock:
                del self._held[target]
            _file(target, number).unlink(missing_ok=True)
            return False
        return True

    def _create(self, target: Path, number: int) -> bool:
        if not _create_with(_file(target, number), self._holder):
            return False
        with self._lock:
            self._held[target] = number
        return True

    def give_back(self, target: Path) -> None:
        """End a reservation, and with it those of dead processes that it took over."""
        with self._lock:
            held = self._held.pop(target, -1)
        # From the first one: whoever creates the last one anew then finds the first one gone, or fresh.
        for number in range(held + 1):
            with contextlib.suppress(OSError):
                _file(target, number).unlink()

    def _renew(self) -> None:
        while not self._ended.wait(HEARTBEAT):
            with self._lock:
                held = list(self._held.items())
            for target, number in held:
                with contextlib.suppress(OSError):
                    os.utime(_file(target, number))


def wait_for(reservations: Reservations, target: Path, seconds: float = SILENCE + 60) -> None:
    """Reserve a target as soon as others give it back; each of them is waited for `seconds` at most."""
    start = since = time.monotonic()
    holders, announced, pause = _holders(target), False, _PAUSES[0]
    while not reservations.take(target):
        now = time.monotonic()
        if (present := _holders(target)) != holders:  # many jobs may wait in a row: only one that hangs ends the wait
            holders, since = present, now
        if now - since > seconds:
            raise TimeoutError(f"{target}: expected others to be done with it within {seconds:g} s, got no end")
        if now - start > _SILENT and not announced:
            print(f"waiting for another process that uses {target}", file=sys.stderr)
            announced = True
        time.sleep(pause)
        pause = min(2 * pause, _PAUSES[1])


def _holders(target: Path) -> list[bytes]:
    """What the reservations of a target say at this moment: it changes with the process that has it."""
    said = []
    for file in sorted(target.parent.glob(f"{target.name}{_SUFFIX}*")):
        with contextlib.suppress(OSError, StoredFileError):
            said.append(read_whole(file, _MOST_BYTES))
    return said


def _create_with(file: Path, text: str) -> bool:
    """Create a file with its text in one step, so that a process that dies leaves no empty one; False if it exists."""
    if file.exists():
        return False
    own = file.with_name(f".{file.name}.{secrets.token_hex(8)}.part")
    own.write_text(text, encoding="utf-8")
    try:
        os.link(own, file)
    except FileExistsError:
        return False
    except OSError:  # some file systems have no links; there it takes two steps
        try:
            with open(file, "x", encoding="utf-8") as opened:
                opened.write(text)
        except FileExistsError:
            return False
    finally:
        own.unlink()
    return True


def reserved(folder: Path) -> list[Path]:
    """The targets in a folder that are reserved by anybody, dead or alive."""
    suffix = f"{_SUFFIX}0"
    return [file.with_name(file.name.removesuffix(suffix)) for file in sorted(folder.glob(f"*{suffix}"))]


def _file(target: Path, number: int) -> Path:
    return target.with_name(f"{target.name}{_SUFFIX}{number}")


def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    return {"machine": _machine(), "pid": pid, "started": _started(pid), "host": socket.gethostname()}


def _machine() -> str:
    """The machine since its last start, and the space of process ids on it; empty where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process started, in ticks of its machine; empty if there is no such process, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def _is_alive(reservation: Path) -> bool:
    """Whether the process of a reservation is still there, as far as can be known from here."""
    try:
        holder = _holder(read_whole(reservation, _MOST_BYTES))
    except (OSError, StoredFileError):  # given back this moment, or no file at all
        holder = None
    if holder is not None and holder["machine"] == _machine():
        return bool(_started(holder["pid"]) == holder["started"])
    try:
        return clock_of(reservation.parent) - reservation.lstat().st_mtime < SILENCE
    except FileNotFoundError:
        return True  # it was given back this moment: look again later


def _holder(content: bytes) -> dict[str, Any] | None:
    """The process that a reservation names; None if it names none: it may be not written to its end yet, or never."""
    try:
        holder = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(holder, dict):
        return None
    pid, texts = holder.get("pid"), [holder.get("machine"), holder.get("started")]
    whole = isinstance(pid, int) and not isinstance(pid, bool) and all(isinstance(one, str) and one for one in texts)
    return holder if whole else None


def clock_of(folder: Path) -> float:
    """The time by the clock of a folder's file system: clocks of machines that share it may differ."""
    file = folder / f".{secrets.token_hex(8)}.part"
    file.touch()
    try:
        return file.stat().st_mtime
    finally:
        file.unlink()
