"""What runs on this machine and where it listens."""

import contextlib
import subprocess

import psutil


def running_with(variable: str) -> list[int]:
    """The processes whose environment holds `NAME=value`."""
    name, _, value = variable.partition("=")
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has ended, or is somebody else's
            if _runs(process) and process.environ().get(name) == value:
                found.append(process.pid)
    return found


def started_with(argument: str) -> list[int]:
    """The processes whose command has this argument."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has ended, or is somebody else's
            if _runs(process) and argument in process.cmdline():
                found.append(process.pid)
    return found


def children_of(pid: int) -> set[int]:
    """All processes below one, without those that have ended."""
    found = set()
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if _runs(process):
                found.add(process.pid)
    return found


def listening(processes: set[int]) -> set[str]:
    """The addresses on which these processes listen for TCP connections."""
    found = set()
    for pid in processes:
        with contextlib.suppress(psutil.Error):
            for connection in psutil.Process(pid).net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    host, port = connection.laddr
                    found.add(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return found


def private_network_is_possible() -> bool:
    """Whether this machine lets us make a network namespace, as some containers do not."""
    try:
        return subprocess.run(["unshare", "--map-root-user", "--net", "true"], check=False).returncode == 0
    except FileNotFoundError:
        return False


def _runs(process: psutil.Process) -> bool:
    return process.status() != psutil.STATUS_ZOMBIE
