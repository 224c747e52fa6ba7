"""The middle verb of a run: what agents report is carried away, and what comes back is theirs."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from fedbandit_envs.protocol.knowledge import Constants
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

    #: what arrived of the reports, all blocks as one, also what the server then refused; None: nothing
    up: Message | None = None
    down: Message | None = None  #: what comes back to the agents; None: nothing
    shortage: QuorumLost | None = None  #: the error, if too few agents were heard: the round is then lost for all


class Carrier(Protocol):
    """Carries the reports of all agents to whoever answers them.

    The loop knows nothing else about communication, so another carrier, for example one that hands every agent the
    reports of its neighbours, needs no change of the loop.
    """

    lost: list[Fault]  #: the reports that were lost or refused so far

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
    """Carries reports to a server and its answer back, and charges the ledger.

    It loses and changes what the faults say. What the server refuses is left out of the reports before the server
    answers them, and becomes a fault; it has crossed, so it is charged.

    Args:
        server: who answers.
        constants: the public constants of the problem.
        faults: the reports that are lost or changed on their way; None: none.
        seed: the seed of the episode, from which losses and attackers are drawn.
    """

    def __init__(self, server: ServerSide, constants: Constants, faults: Faults | None = None, seed: int = 0):
        self.server, self.lost = server, list[Fault]()
        self._constants, self._faults, self._seed = constants, faults or Faults(), seed
        self._channel = Channel(constants.num_agents, Ledger(constants.num_agents))

    @property
    def ledger(self) -> Ledger:
        """What has crossed so far."""
        return self._channel.ledger

    def exchange(self, reports: Sequence[Message | None], step: int) -> Delivery:
        """Carry the reports of all blocks after `step` steps; there is no round when nobody speaks."""
        number, num_agents = self.ledger.rounds, self._constants.num_agents
        lost = self._faults.of_round(self._seed, number, num_agents)
        arriving = self._changed(reports, number)
        up = self._channel.up(arriving, step, heard(num_agents, lost) if lost else None)
        if self.ledger.rounds == number:
            return Delivery()
        usable, refused = (None, []) if up is None else self._usable(up, number)
        lost = sorted([*lost, *refused], key=lambda fault: fault.agent)
        self.lost += lost
        if lost:
            remedy = "lower the quorum, or go on without this round"
            shortage = quorum_shortage(self._faults.quorum, num_agents, lost, remedy)
            if shortage is not None:
                return Delivery(up, None, shortage)
        return Delivery(up, None if usable is None else self._channel.down(self.server.answer(usable)))

    def _changed(self, reports: Sequence[Message | None], number: int) -> Sequence[Message | None]:
        """The reports of round `number` as the attackers, if there are any, change them."""
        attackers = self._faults.attackers
        if attackers is None or number < attackers.start:
            return reports
        liars = attackers.agents(self._seed, self._constants.num_agents)
        num_arms = self._constants.num_arms
        return [None if report is None else attackers.changed(report, liars, num_arms) for report in reports]

    def _usable(self, up: Message, number: int) -> tuple[Message | None, list[Fault]]:
        """The rows that the server does not refuse, None if there are none, and a fault for each of the others."""
        reasons = self.server.refuses(up)
        if not reasons or up.agents is None:
            return up, []
        kept = ~np.isin(up.agents, list(reasons))
        return up.rows(kept) if kept.any() else None, [Fault(agent, number, why) for agent, why in reasons.items()]

    def snapshot(self) -> State:
        """The state as a tree of plain arrays."""
        return {"server": self.server.snapshot(), "ledger": self.ledger.snapshot(), "faults": faults_tree(self.lost)}

    def restore(self, state: State) -> None:
        """Take over a state; the other side of `snapshot`."""
        self.server.restore(state.get("server", {}))
        self._channel.ledger = Ledger.restored(state["ledger"])
        self.lost = faults_from_tree(state["faults"])
