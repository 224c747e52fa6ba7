"""A federation in one process: everything but Flower, with clients that are made anew from their bytes at each turn."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedbandit_envs import History, play, storage
from fedbandit_envs.federation.client import Client
from fedbandit_envs.federation.coordinator import Coordinator
from fedbandit_envs.federation.settings import Settings
from fedbandit_envs.federation.sources import SimulatedRewards
from fedbandit_envs.federation.wire import Packet
from fedbandit_envs.rounds.count_tables import CountTables
from fedbandit_envs.rounds.faults import Faults

EACH_ITS_OWN = [[agent] for agent in range(6)]  # the agents of each client: one
SEVERAL = [[4, 5], [2, 0, 1], [3]]  # the agents of each client: some, in any order
Tamper = Callable[[Packet], Packet | str]


def settings(policy: str = "Fed-PECD", *, seed: int = 3, network: Any = "ring", **arguments: Any) -> Settings:
    problem = {"num_agents": 6, "num_arms": 4, "max_cycles": 300, **arguments}
    return Settings.simulated(policy, {}, "fedbandit/Synthetic-v0", problem, seed, network)


class Loop:
    """A transport whose nodes are clients in this process.

    `dead` are (node, turn) in which the client gets nothing; `tampered` changes an answer on its way. Turns are counted
    by exchanges.
    """

    def __init__(self, of: Settings, blocks: Sequence[Sequence[int]]):
        self.settings = Settings.of(of.config())  # through the configuration, as clients get it
        self.blocks = [np.array(block) for block in blocks]
        self.states: dict[int, bytes] = {}
        self.dead: set[tuple[int, int]] = set()
        self.tampered: dict[tuple[int, int], Tamper] = {}
        self.turn = 0
        self.sent: list[tuple[int, Packet]] = []
        self.answered: list[tuple[int, Packet]] = []

    def nodes(self) -> dict[int, str]:
        return {node: f"key {node}" for node in range(len(self.blocks))}

    @property
    def owners(self) -> dict[str, list[int]]:
        return {f"key {node}": block.tolist() for node, block in enumerate(self.blocks)}

    def client(self, node: int) -> Client:
        source = SimulatedRewards(self.blocks[node], self.settings.source())
        of = self.settings
        client = Client(of.make_policy(), of.constants, source, run=of.run, network=of.graph)
        if node in self.states:
            client.restore(storage.from_bytes(self.states[node], "state"))
        return client

    def exchange(self, requests: Mapping[int, Packet], timeout: float) -> dict[int, Packet | str]:
        answers: dict[int, Packet | str] = {}
        for node, packet in requests.items():
            self.sent.append((node, packet))
            if (node, self.turn) in self.dead:
                continue
            client = self.client(node)
            answer = client.answer(packet)
            self.states[node] = storage.to_bytes(client.snapshot())
            self.answered.append((node, answer))
            answers[node] = self.tampered.get((node, self.turn), lambda packet: packet)(answer)
        self.turn += 1
        return answers

    def pulls(self) -> Any:
        """(C, M, K) from the clients' own records."""
        records = [storage.from_bytes(self.states[node], "state") for node in range(len(self.blocks))]
        order = np.argsort(np.concatenate([record["agents"] for record in records]))
        pulls = [list(CountTables.from_tree(record["checkpoints"]["pulls"])) for record in records]
        return np.concatenate(pulls, axis=1)[:, order]


def coordinator_of(loop: Loop, **options: Any) -> Coordinator:
    of = loop.settings
    relay = of.relay()
    return Coordinator(of.make_policy(), of.server_view, loop, run=of.run, owners=loop.owners, relay=relay, **options)


def federated(loop: Loop, **options: Any) -> Coordinator:
    coordinator = coordinator_of(loop, **options)
    while not coordinator.done:
        coordinator.advance()
    return coordinator


def in_process(of: Settings, faults: Faults | None = None) -> History:
    env, policy = of.make_environment(), of.make_policy()
    return play(env, policy, seed=of.seed, record=True, faults=faults, network=of.graph)


def assert_same(loop: Loop, coordinator: Coordinator, history: History) -> None:
    np.testing.assert_array_equal(loop.pulls(), history.pulls)
    np.testing.assert_array_equal(coordinator.ledger.per_agent, history.ledger.per_agent)
    np.testing.assert_array_equal(coordinator.ledger.per_round, history.ledger.per_round)
