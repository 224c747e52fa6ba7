"""The part of a server in a shard: it hears the shard's agents, and answers them together with the other parts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedbandit_envs.joint import Joint, Jointly
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.spread import SpreadServer
from fedbandit_envs.rounds.channel import Channel
from fedbandit_envs.rounds.ledger import Ledger
from fedbandit_envs.shards.packing import SlimMessage, slim


class HandOver(NamedTuple):
    """What a shard gives to the driver, who is the server from now on."""

    up: SlimMessage | None  #: the report that the parts of the server can't answer
    server: State  #: the state of the server's part
    ledger: State  #: what the shard's agents have sent and received


class ServerPart:
    """The server of the agents of one shard, with the ledger of these agents.

    Args:
        server: the server's part.
        num_agents: the number of the agents of the whole problem.
        own: the number of the agents of the shard.
    """

    def __init__(self, server: SpreadServer, num_agents: int, own: int):
        self._server, self._own = server, own
        self._channel = Channel(num_agents, Ledger(own))
        self.down: Message | None = None  #: what the agents of the shard will hear next

    @property
    def ledger(self) -> State:
        """What has crossed so far, as the state of a ledger."""
        return self._channel.ledger.snapshot()

    def exchange(self, up: Message | None, step: int) -> Jointly[HandOver | None]:
        """Answer the report of the shard's agents after `step` steps, or hand it over to the driver."""
        if not (yield Joint(all, iter([self._usual(up)]))):
            return HandOver(slim(up), self._server.snapshot(), self.ledger)
        up = self._channel.up([up], step)
        assert up is not None
        self.down = self._channel.down((yield from self._server.answering(up)))
        return None

    def _usual(self, up: Message | None) -> bool:
        """Whether all agents of the shard speak, nothing is refused, and the server can answer in parts."""
        if up is None or up.agents is None or len(up.agents) < self._own:
            return False
        return self._server.can_spread(up) and not self._server.refuses(up)

    def snapshot(self) -> State:
        """The state as a tree of plain arrays."""
        return {
            "server": self._server.snapshot(),
            "ledger": self.ledger,
            "down": None if self.down is None else self.down.tree(),
        }

    def restore(self, state: State) -> None:
        """Take over a state; the other side of `snapshot`."""
        self._server.restore(state["server"])
        self._channel.ledger = Ledger.restored(state["ledger"])
        self.down = None if state["down"] is None else Message.from_tree(state["down"])


def joined_states(states: Sequence[State]) -> State:
    """The state of one server from those of its parts: arrays have a row for each agent, all else is the same.

    >>> joined_states([{"phase": 2, "known": np.ones((1, 2))}, {"phase": 2, "known": np.zeros((2, 2))}])["known"].shape
    (3, 2)
    """

    def joined(name: str) -> Any:
        values = [state[name] for state in states]
        return np.concatenate(values) if isinstance(values[0], np.ndarray) else values[0]

    return {name: joined(name) for name in states[0]}


def joined_ledgers(states: Sequence[State]) -> State:
    """The state of the ledger of all agents, from those of the agents of each shard."""
    per_round = states[0]["per_round"].copy()
    per_round[:, 1:] = sum(state["per_round"][:, 1:] for state in states)  # the first column is the step
    return {"per_agent": np.concatenate([state["per_agent"] for state in states]), "per_round": per_round}
