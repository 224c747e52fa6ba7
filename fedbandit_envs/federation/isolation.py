"""A network of the federation's own, which no other user of the machine can reach.

Flower's SuperLink takes apps, which are code, from everybody who reaches its port. So its programs run in a network
namespace of Linux that has a loopback device and nothing else: its ports exist for these programs alone.
"""

import socket
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from fedbandit_envs.federation.texts import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbandit_envs.federation.programs import Programs

_NAME = "network"
_READY = "the loopback device is up"
_START_SECONDS = 30.0


class FederationError(RuntimeError):
    """The federation could not start, or it ended before the horizon."""


def enter_private_network(programs: "Programs", environment: "Mapping[str, str]") -> None:
    """Make a network, and let all programs that are started from now on run in it.

    Raises:
        FederationError: the machine does not allow it.
    """
    try:
        command = ["unshare", "--map-root-user", "--net", sys.executable, "-m", __name__]
        programs.start(_NAME, command, environment)
        deadline = time.monotonic() + _START_SECONDS
        while _READY not in programs.log(_NAME):
            if _NAME in programs.ended() or time.monotonic() > deadline:
                raise OSError(programs.log(_NAME) or "no answer")
            time.sleep(0.05)
    except OSError as error:
        raise FederationError(
            f"expected to make a private network with `unshare --map-root-user --net`, got {shown(str(error))}; "
            "without it every user of this machine could submit code to Flower. On a machine without other users, "
            "choose the shared network: private_network=False, or --shared-network"
        ) from error
    target = str(programs.pid(_NAME))
    programs.prefix = ["nsenter", "--target", target, "--user", "--net", "--preserve-credentials"]


def listens(programs: "Programs", host: str, port: int) -> bool:
    """Whether a program accepts TCP connections there, seen from the network of the programs."""
    connect = f"import socket; socket.create_connection(({host!r}, {port}), timeout=1)"
    command = [*programs.prefix, sys.executable, "-I", "-S", "-c", connect]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


def _raise_loopback() -> None:
    """Switch the loopback device on: in a new network namespace it is off."""
    import fcntl

    get_flags, set_flags, up = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS and IFF_UP of Linux
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        _, flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, get_flags, request))
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sH14x", b"lo", flags | up))


if __name__ == "__main__":
    _raise_loopback()
    print(_READY, flush=True)
    while True:  # the network lasts as long as a process is in it
        time.sleep(3600)
