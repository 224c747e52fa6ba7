"""Runs without a server: a carrier that hands every agent the reports of its neighbours."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import BoolArray, IntArray, immutable
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.network import Network
from fedbandit_envs.protocol.overflow import overflowing
from fedbandit_envs.rounds.carrier import Delivery
from fedbandit_envs.rounds.channel import Channel
from fedbandit_envs.rounds.deliveries import drawn
from fedbandit_envs.rounds.faults import (
    EDGE_FAILED,
    Fault,
    Faults,
    faults_from_tree,
    faults_tree,
    heard,
    quorum_shortage,
)
from fedbandit_envs.rounds.ledger import Ledger


class ViaGraph:
    """Carries the report of every agent to its neighbours, and charges the ledger for each edge and direction.

    What arrives is one message, whose agents are all agents: an array (n, ...) of the reports becomes one of shape
    (n, D, ...), or (n, 1, ...) if its delivery reaches one neighbour at most, and its mask in `present` says what
    arrived. An agent that fails, or whose report the policy refuses,
    is cut off in that round: it neither sends nor receives.

    Args:
        network: who can talk to whom.
        delivery: how arrays travel, by name; the others go to all neighbours.
        constants: the public constants of the problem.
        faults: agents and edges that fail, and reports that are changed; None: none.
        seed: the seed of the episode, from which failures and random edges are drawn.
        refuses: the agents whose reports can't be, with the reason; see `Policy.refuses`.
    """

    def __init__(
        self,
        network: Network,
        delivery: Mapping[str, str],
        constants: Constants,
        faults: Faults | None = None,
        seed: int = 0,
        refuses: Callable[[Message], Mapping[int, str]] = overflowing,
    ):
        self._refuses = refuses
        self.lost = list[Fault]()
        self._network, self._delivery, self._constants = network, delivery, constants
        self._faults, self._seed = faults or Faults(), seed
        self._channel = Channel(constants.num_agents, Ledger(constants.num_agents))
        self._agents: IntArray = immutable(np.arange(constants.num_agents))

    @property
    def ledger(self) -> Ledger:
        """What has crossed so far."""
        return self._channel.ledger

    def exchange(self, reports: Sequence[Message | None], step: int, missing: Sequence[Fault] = ()) -> Delivery:
        """Carry the reports of all blocks after `step` steps; there is no round when nobody speaks.

        Agents that are known to be `missing`, in a federation for example, are cut off in this round. Unlike other
        failures they are not kept in `lost`.
        """
        number, num_agents = self.ledger.rounds, self._constants.num_agents
        sent = self._channel.collected(reports)
        if sent is None:
            return Delivery()
        self.ledger.open_round(step)
        sent = self._changed(sent, number)
        refused = [Fault(agent, number, why) for agent, why in self._refuses(sent).items()]
        lost = sorted([*self._faults.of_round(self._seed, number, num_agents), *refused], key=lambda one: one.agent)
        failed = self._faults.of_edges(self._seed, number, len(self._network.edges))
        self.lost += [*lost, *self._edge_faults(failed, number)]
        if lost:
            remedy = "lower the quorum, or go on without this round"
            shortage = quorum_shortage(self._faults.quorum, num_agents, lost, remedy)
            if shortage is not None:
                return Delivery(shortage=shortage)
        return Delivery(down=self._delivered(sent, self._links(sent, [*lost, *missing], failed), number))

    def _changed(self, sent: Message, number: int) -> Message:
        """The reports of round `number` as the attackers, if there are any, change them."""
        attackers = self._faults.attackers
        if attackers is None or number < attackers.start:
            return sent
        liars = attackers.agents(self._seed, self._constants.num_agents)
        return attackers.changed(sent, liars, self._constants.num_arms)

    def _edge_faults(self, failed: BoolArray, number: int) -> list[Fault]:
        ends = self._network.edges[failed].tolist()
        return [Fault(one, number, EDGE_FAILED, other) for one, other in ends]

    def _links(self, sent: Message, lost: Sequence[Fault], failed: BoolArray) -> BoolArray:
        """(M, D) over which slots something arrives."""
        network, speakers = self._network, sent.agents
        assert speakers is not None
        links = network.present
        if len(speakers) < network.num_agents:
            speaks = np.zeros(network.num_agents, dtype=bool)
            speaks[speakers] = True
            links = links & speaks[network.neighbours]
        if lost:
            up = heard(network.num_agents, lost)
            links = links & up[network.neighbours] & up[:, None]
        if failed.any():
            links = links.copy()
            links[network.edges[failed], network.slots[failed]] = False
        return links

    def _delivered(self, sent: Message, links: BoolArray, number: int) -> Message:
        """What arrives at all agents; it is charged."""
        assert sent.agents is not None
        rows, everybody = self._network.neighbours, len(sent.agents) == self._network.num_agents
        if not everybody:
            rows = np.searchsorted(sent.agents, rows).clip(max=len(sent.agents) - 1)
        over = dict[str, tuple[IntArray, BoolArray, BoolArray]]()  # from where, whether, over which slots
        arrays: dict[str, NDArray[Any]] = {}
        present: dict[str, BoolArray] = {}
        for name, array in sent.arrays.items():
            way = self._delivery.get(name, "neighbours")
            if way not in over:
                over[way] = self._way(way, rows, links, number)
            source, arrives, _ = over[way]
            arrays[name], present[name] = array.take(source, axis=0), arrives
            if name in sent.present:  # masks combine with the senders' own
                own = sent.present[name].take(source, axis=0)
                present[name] = own & arrives.reshape(arrives.shape + (1,) * (own.ndim - 2))
        down = Message.of_own(sent.kind, arrays, self._agents, present)
        used = reduce(np.bitwise_or, [slots for *_, slots in over.values()]) if over else links
        whole = used is self._network.present
        self.ledger.charge_peers(down, self._network.degrees if whole else used.sum(axis=1, dtype=np.int64))
        return down

    def _way(self, way: str, rows: IntArray, links: BoolArray, number: int) -> tuple[IntArray, BoolArray, BoolArray]:
        """For a delivery: the rows that arrive, whether they do, and over which slots (M, D).

        The first two have a column for each slot, or one column if the delivery reaches one neighbour at most.
        """
        if way == "neighbours":
            return rows, links, links
        slots = drawn(way, self._network, links, self._seed, number)
        if not slots.shape[1]:  # one agent alone
            return np.zeros((len(rows), 1), dtype=np.int64), np.zeros((len(rows), 1), dtype=bool), slots
        place = slots.argmax(axis=1)[:, None]
        return np.take_along_axis(rows, place, axis=1), np.take_along_axis(slots, place, axis=1), slots

    def snapshot(self) -> State:
        """The state as a tree of plain arrays."""
        return {"ledger": self.ledger.snapshot(), "faults": faults_tree(self.lost)}

    def restore(self, state: State) -> None:
        """Take over a state; the other side of `snapshot`."""
        self._channel.ledger = Ledger.restored(state["ledger"])
        self.lost = faults_from_tree(state["faults"])
