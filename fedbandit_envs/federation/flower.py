"""The two apps of Flower. The app that Flower distributes only names them, so it holds a configuration and no code.

A SuperNode's own configuration (`--node-config`) says which agents it has. It may also name a folder in which the
SuperNode keeps their state and record, and a reward source of its own in place of the simulation.
"""

import json
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedbandit_envs import storage
from fedbandit_envs.arrays import IntArray
from fedbandit_envs.federation.audit_trail import write_refusal
from fedbandit_envs.federation.client import Client
from fedbandit_envs.federation.coordinator import Coordinator, Progress
from fedbandit_envs.federation.keys import fingerprint_of_pem
from fedbandit_envs.federation.owners import owners_of
from fedbandit_envs.federation.settings import Settings
from fedbandit_envs.federation.sources import reward_source
from fedbandit_envs.federation.texts import shown
from fedbandit_envs.federation.wire import Packet

client_app = ClientApp()
server_app = ServerApp()

STATE_FILE = "state.npz"
PROGRESS_FILE = "progress.jsonl"
_RECORD = "fedbandit"
_LONGEST_ERROR = 10_000  # the most characters of an error: enough for the reasons of ten clients
_POLL_SECONDS = 0.5  # how often the server looks for answers


@client_app.query()
def answer(message: Message, context: Context) -> Message:
    """Answer one request of the server. The client is made anew from its state, which Flower keeps."""
    settings = Settings.of(context.run_config)
    agents = _agents(context.node_config)
    source = reward_source(agents, settings.source(), context.node_config)
    client = Client(settings.make_policy(), settings.constants, source, run=settings.run, network=settings.graph)
    state = _state(context)
    if state is not None:
        client.restore(state)
    reply = client.answer(dict(message.content.config_records[_RECORD]))
    _keep(context, client.snapshot())
    return Message(_content(reply), reply_to=message)


def _agents(config: Mapping[str, Any]) -> IntArray:
    """The agents of a SuperNode, given as "0,1,2"."""
    text = str(config.get("agents", ""))
    if not text or not all(part.strip().isdigit() for part in text.split(",")):
        raise ValueError(f"""node-config: expected the agents of this SuperNode as "0,1,2", got {text!r}""")
    return np.array([int(part) for part in text.split(",")], dtype=np.int64)


def _state(context: Context) -> dict[str, Any] | None:
    """The client's state from Flower's context, or else from the SuperNode's own folder, which outlives Flower."""
    if _RECORD in context.state:
        content = context.state.config_records[_RECORD]["state"]
        assert isinstance(content, bytes)
        return storage.from_bytes(content, "Flower's context")
    file = _file(context)
    return storage.load(file) if file is not None and file.exists() else None


def _keep(context: Context, state: dict[str, Any]) -> None:
    context.state[_RECORD] = ConfigRecord({"state": storage.to_bytes(state)})
    file = _file(context)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        storage.save(file, state)


def _file(context: Context) -> Path | None:
    folder = context.node_config.get("folder")
    return Path(str(folder)) / STATE_FILE if folder else None


def _content(packet: Packet) -> RecordDict:
    return RecordDict({_RECORD: ConfigRecord({**packet})})


class GridTransport:
    """Carries packets over Flower's grid; the transport of a `Coordinator`."""

    def __init__(self, grid: Grid):
        self._grid = grid

    def nodes(self) -> dict[int, str]:
        """The numbers of the SuperNodes that are connected, with the fingerprints of their keys.

        A SuperNode signs every call to the SuperLink, which takes no message for a node from any other key.
        """
        return {node.node_id: fingerprint_of_pem(node.public_key) for node in self._grid.get_nodes()}

    def exchange(self, requests: Mapping[int, Packet], timeout: float) -> dict[int, Packet | str]:
        """Send all packets, then collect answers until all are there or `timeout` seconds are over."""
        messages = [
            Message(_content(packet), node, "query", ttl=timeout + 60) for node, packet in sorted(requests.items())
        ]
        sent = list(self._grid.push_messages(messages))
        # Flower returns a message id for each message that it could send, and None for the others.
        waiting = {number: node for number, node in zip(sent, sorted(requests), strict=True) if number}
        answers: dict[int, Packet | str] = {
            node: "could not be reached" for number, node in zip(sent, sorted(requests), strict=True) if not number
        }
        deadline = time.monotonic() + timeout
        while waiting and time.monotonic() < deadline:
            for reply in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    answers[node] = _answer(reply)
            if waiting:
                time.sleep(_POLL_SECONDS)
        return answers


def _answer(reply: Message) -> Packet | str:
    if reply.has_error():
        return f"failed: {reply.error.reason or reply.error.code}"
    records = reply.content.config_records
    if _RECORD not in records:
        return "unreadable: expected a record of this program"
    return {name: value for name, value in records[_RECORD].items() if isinstance(value, (str, bytes))}


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Play to the horizon. The state is saved after each turn if the configuration names a folder."""
    config = context.run_config
    folder = Path(str(config["folder"])) if config.get("folder") else None
    _write_progress(folder, {"process": os.getpid()})
    try:
        _play(grid, config, folder)
    except Exception as error:
        _write_progress(folder, {"error": shown(f"{type(error).__name__}: {error}", _LONGEST_ERROR)})
        raise
    _write_progress(folder, {"done": True})


def _play(grid: Grid, config: Mapping[str, Any], folder: Path | None) -> None:
    settings = Settings.of(config)
    timeout = float(config.get("timeout", 120.0))
    transport, quorum = GridTransport(grid), float(config.get("quorum", 0.5))
    owners = owners_of(config)
    coordinator = Coordinator(
        settings.make_policy(),
        settings.server_view,
        transport,
        run=settings.run,
        owners=owners,
        audit=(lambda refusal: None) if folder is None else partial(write_refusal, folder),
        quorum=quorum,
        timeout=timeout,
        relay=settings.relay(),
    )
    file = None if folder is None else folder / STATE_FILE
    if file is not None and file.exists():
        coordinator.restore(storage.load(file))
    coordinator.wait_for(int(config.get("clients", len(owners))), timeout)
    while not coordinator.done:
        progress = coordinator.advance(saved_in=str(folder or ""))
        if file is not None:
            storage.save(file, coordinator.snapshot())
        _write_progress(folder, _line(progress))


def _line(progress: Progress) -> dict[str, Any]:
    faults = [[fault.agent, fault.round, fault.reason] for fault in progress.faults]
    return {"turn": progress.turn, "step": progress.step, "heard": progress.heard, "faults": faults}


def _write_progress(folder: Path | None, line: dict[str, Any]) -> None:
    """Print a line of JSON for the log, and append it to the progress file that `local` follows."""
    print(json.dumps(line), flush=True)
    if folder is not None:
        with open(folder / PROGRESS_FILE, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
