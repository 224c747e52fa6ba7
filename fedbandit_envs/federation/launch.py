"""Starts Flower's programs for a federation on this machine: they know each other by keys and by a certificate."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fedbandit_envs.federation.isolation import FederationError, enter_private_network, listens
from fedbandit_envs.federation.programs import Programs, free_ports
from fedbandit_envs.federation.settings import Config, write_app, write_toml
from fedbandit_envs.threads import ONE_THREAD_ENVIRONMENT

HOST = "127.0.0.1"
_START_SECONDS = 120.0  # how long the SuperLink may take to start, to take a key, and to take the run


def start(
    programs: Programs, folder: Path, config: Config, blocks: Sequence[Sequence[int]], *, private_network: bool
) -> None:
    """Start a SuperLink and a SuperNode for each block of agents, and submit the run.

    Args:
        programs: starts and stops all programs.
        folder: the folder of the federation; each client has its key there.
        config: the configuration of the run.
        blocks: the agents of each client.
        private_network: whether the programs have a network of their own.
    """
    from fedbandit_envs.federation.keys import new_certificate  # it needs the extra `flower`

    app, home = folder / "app", folder / "flower"
    certificate, key = new_certificate(folder / "server", HOST)
    port, *ports = free_ports(1 + len(blocks), HOST)
    address = f"{HOST}:{port}"
    write_app(app, config)
    connection = {"address": address, "root-certificates": str(certificate)}
    write_toml(home / "config.toml", {"superlink": {"default": "here", "here": connection}})
    environment = _environment(home)
    if private_network:
        enter_private_network(programs, environment)
    command = ["flower-superlink", "--host", HOST, "--port", str(port), "--ssl-certfile", str(certificate)]
    command += ["--ssl-keyfile", str(key), "--ssl-ca-certfile", str(certificate), "--enable-supernode-auth"]
    programs.start("superlink", [*command, "--disable-runtime-dependency-installation"], environment)
    _wait_for_superlink(programs, port)
    nodes = [write_node(client_folder(folder, number), block) for number, block in enumerate(blocks)]
    registering = {f"register-{node.parent.name}": node.parent / "key.pub" for node in nodes}
    for name, public_key in registering.items():
        programs.start(name, ["flwr", "supernode", "register", str(public_key), "here"], environment)
    for name in registering:
        _wait_for(programs, name, "the key of a client")
    for node, own in zip(nodes, ports, strict=True):
        command = ["flower-supernode", "--superlink", address, "--root-certificates", str(certificate)]
        command += ["--auth-supernode-private-key", str(node.parent / "key"), "--node-config", str(node)]
        programs.start(f"client-{node.parent.name}", [*command, "--host", HOST, "--port", str(own)], environment)
    programs.start("submit", ["flwr", "run", str(app), "here"], environment)
    _wait_for(programs, "submit", "the run")


def client_folder(folder: Path, number: int) -> Path:
    """The folder of a client: its key, its configuration and its state."""
    return folder / "clients" / f"{number:03d}"


def write_node(folder: Path, agents: Sequence[int]) -> Path:
    """Write the configuration of a SuperNode into the folder of its state, and return the file.

    Flower reads it from a TOML file, because a quote in a path would end a value on the command line.
    """
    file = folder / "node.toml"
    write_toml(file, {"agents": ",".join(map(str, agents)), "folder": str(folder)})
    return file


def _environment(home: Path) -> dict[str, str]:
    """The environment of Flower's programs: they find each other, have a folder of their own, and report to nobody."""
    quiet = {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    return {**os.environ, **quiet, **ONE_THREAD_ENVIRONMENT}


def _wait_for_superlink(programs: Programs, port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not listens(programs, HOST, port):
        if "superlink" in programs.ended() or time.monotonic() > deadline:
            log = programs.log("superlink")
            raise FederationError(f"expected the SuperLink to listen on port {port}, got no answer; its log:\n{log}")
        time.sleep(0.2)


def _wait_for(programs: Programs, name: str, what: str) -> None:
    """Wait until the SuperLink has taken what the program `name` hands to it."""
    if programs.wait(name, _START_SECONDS) != 0:
        raise FederationError(f"expected the SuperLink to take {what}, got an error:\n{programs.log(name)}")
