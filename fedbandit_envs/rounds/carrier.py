"""The middle verb of a run: what agents report is carried away, and what comes back is theirs."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.policy import ServerSide
from fedbandit_envs.rounds.channel import Channel
from fedbandit_envs.rounds.faults import (
    Fault,
    Faults,
    QuorumLost,
    faults_from_tree,
    faults_tree,
    heard,
    quorum_shortage,
)
from fedbandit_envs.rounds.ledger import Ledger


class Delivery(NamedTuple):
    """What one exchange brought."""

    up: Message | None = None  #: what arrived of the reports, all blocks as one; None: nothing
    down: Message | None = None  #: what comes back to the agents; None: nothing
    shortage: QuorumLost | None = None  #: the error, if too few agents were heard: the round is then lost for all


class Carrier(Protocol):
    """Carries the reports of all agents to whoever answers them.

    The loop knows nothing else about communication, so another carrier, for example one that hands every agent the
    reports of its neighbours, needs no change of the loop.
    """

    lost: list[Fault]  #: the reports that were lost so far

    @property
    def ledger(self) -> Ledger:
        """What has crossed so far."""

    def exchange(self, reports: Sequence[Message | None], step: int) -> Delivery:
        """Carry the reports of all blocks after `step` steps; there is no round when nobody speaks."""

    def snapshot(self) -> State:
        """The state as a tree of plain arrays."""

    def restore(self, state: State) -> None:
        """Take over a state; the other side of `snapshot`."""


class ViaServer:
    """Carries reports to a server and its answer back, charges the ledger, and loses what the faults say.

    Args:
        server: who answers.
        num_agents: the number of agents of the whole problem, M.
        faults: the reports that are lost on their way; None: none.
        seed: the seed of the episode, from which losses are drawn.
    """

    def __init__(self, server: ServerSide, num_agents: int, faults: Faults | None = None, seed: int = 0):
        self.server, self.lost = server, list[Fault]()
        self._num_agents, self._faults, self._seed = num_agents, faults, seed
        self._channel = Channel(num_agents, Ledger(num_agents))

    @property
    def ledger(self) -> Ledger:
        """What has crossed so far."""
        return self._channel.ledger

    def exchange(self, reports: Sequence[Message | None], step: int) -> Delivery:
        """Carry the reports of all blocks after `step` steps; there is no round when nobody speaks."""
        number = self.ledger.rounds
        lost = [] if self._faults is None else self._faults.of_round(self._seed, number, self._num_agents)
        up = self._channel.up(reports, step, heard(self._num_agents, lost) if lost else None)
        if self.ledger.rounds == number:
            return Delivery()
        self.lost += lost
        if lost and self._faults is not None:
            remedy = "lower the quorum, or go on without this round"
            shortage = quorum_shortage(self._faults.quorum, self._num_agents, lost, remedy)
            if shortage is not None:
                return Delivery(up, None, shortage)
        return Delivery(up, None if up is None else self._channel.down(self.server.answer(up)))

    def snapshot(self) -> State:
        """The state as a tree of plain arrays."""
        return {"server": self.server.snapshot(), "ledger": self.ledger.snapshot(), "faults": faults_tree(self.lost)}

    def restore(self, state: State) -> None:
        """Take over a state; the other side of `snapshot`."""
        self.server.restore(state.get("server", {}))
        self._channel.ledger = Ledger.restored(state["ledger"])
        self.lost = faults_from_tree(state["faults"])
