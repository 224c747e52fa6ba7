"""What runs on this machine and where it listens, read from /proc."""

import contextlib
import os
import socket
from pathlib import Path


def running_with(variable: str) -> list[int]:
    """The processes whose environment holds `NAME=value`."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            alive = "State:\tZ" not in (place / "status").read_text()
            if alive and variable.encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found


def children_of(pid: int) -> set[int]:
    """All processes below one, without those that have ended."""
    below: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The name of the program, in brackets, may hold anything.
            state, parent = (place / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                below.setdefault(int(parent), []).append(int(place.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        new = below.get(todo.pop(), [])
        found.update(new)
        todo += new
    return found


def listening(processes: set[int]) -> set[str]:
    """The addresses on which these processes listen for TCP connections."""
    sockets: set[str] = set()
    for pid in processes:
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(os.readlink(link))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.add(_address(*fields[1].split(":")))
    return found


def _address(host: str, port: str) -> str:
    words = [bytes.fromhex(host[start : start + 8])[::-1] for start in range(0, len(host), 8)]
    one = len(words) == 1
    text = socket.inet_ntop(socket.AF_INET if one else socket.AF_INET6, b"".join(words))
    return f"{text if one else f'[{text}]'}:{int(port, 16)}"
