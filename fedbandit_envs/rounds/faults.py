"""Reports that never arrive, or can't be used: the same model for simulations and for real federations.

An agent that fails in a round loses that round's report and nothing else: its rows are left out of the aggregation. It
plays on with what it knows, and what the server tells all of them reaches it (in a federation when it comes back).

Between peers a failure cuts both ways: an agent that fails in a round neither sends nor receives, and an edge that
fails carries nothing in either direction. So two agents that average always agree on whether they did.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fedbandit_envs.arrays import BoolArray
from fedbandit_envs.rounds.attacks import Attackers
from fedbandit_envs.seeding import Stream, generator
from fedbandit_envs.validation import real_number, whole_number

DROPPED, SCHEDULED, EDGE_FAILED = "dropped out", "scheduled", "the edge failed"


@dataclass(frozen=True)
class Fault:
    """One report that was lost on its way or refused, or one edge that failed, as `history.faults` lists them."""

    agent: int  #: the agent whose report was lost, or one end of the edge
    round: int  #: the round, counted from 0 as the ledger counts them
    reason: str  #: why it was lost
    peer: int | None = None  #: the other end of an edge that failed; None: it was no edge


class QuorumLost(RuntimeError):
    """Fewer agents were heard in a round than `Faults.quorum` asks for; the round is lost for all.

    `play` ends with it. Who plays round by round with `CommunicationRounds` may call `advance` again: agents then go on
    with what they know, as after any round without an answer.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=4, max_cycles=100)
    >>> faults = fb.Faults(schedule={0: [0], 1: [0]}, quorum=0.75)
    >>> fb.play(env, fb.make_policy("Fed-PECD"), seed=0, faults=faults)
    Traceback (most recent call last):
        ...
    fedbandit_envs.rounds.faults.QuorumLost: round 0: expected to hear from at least 75% of 4 agents, got 2 ...
    """


@dataclass(frozen=True)
class Faults:
    """Which reports are lost in a simulation, and whose reports are false.

    Give it to `play(..., faults=...)` to see how a policy gets on with agents that fail. An agent that fails in a round
    loses that report and nothing else. What is lost is drawn from the seed of the run, so it is the same for all
    policies that are compared.

    >>> import fedbandit_envs as fb
    >>> faults = fb.Faults(dropout=0.1, schedule={3: range(0, 4)})  # agent 3 also fails in the first four rounds
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0, faults=faults)
    >>> history.faults[0]
    Fault(agent=3, round=0, reason='scheduled', peer=None)
    """

    dropout: float = 0.0  #: the probability that a report is lost, drawn for each agent and round by itself
    schedule: Mapping[int, Iterable[int]] = field(default_factory=dict)  #: for an agent, the rounds in which it fails
    quorum: float = 0.0  #: the least share of all agents that must be heard in a round
    attackers: Attackers | None = None  #: agents whose reports are changed on their way; None: all are honest
    edge_dropout: float = 0.0  #: the probability that an edge between peers fails, drawn for each edge and round

    def __post_init__(self) -> None:
        for name in ("dropout", "quorum", "edge_dropout"):
            object.__setattr__(self, name, real_number(name, getattr(self, name), at_least=0))
            if getattr(self, name) > 1:
                raise ValueError(f"{name}: expected a share from 0 to 1, got {getattr(self, name)!r}; 0.1 is 10 %")
        schedule = {
            whole_number("schedule, agent", agent, at_least=0): frozenset(
                whole_number("schedule, round", number, at_least=0) for number in rounds
            )
            for agent, rounds in self.schedule.items()
        }
        object.__setattr__(self, "schedule", schedule)
        if self.attackers is not None and not isinstance(self.attackers, Attackers):
            raise ValueError(
                f"attackers: expected Attackers or None, got {self.attackers!r}; use Attackers('sign-flip')"
            )

    def check(self, num_agents: int) -> None:
        """Refuse a schedule of agents that don't exist."""
        for agent in self.schedule:
            if agent >= num_agents:
                raise ValueError(
                    f"schedule: expected agents from 0 to {num_agents - 1}, got {agent}; agents count from 0"
                )

    def plain(self) -> dict[str, Any]:
        """All settings as plain numbers and texts, the same for equal faults.

        >>> Faults(schedule={3: {2, 1}}).plain()["schedule"]
        [[3, [1, 2]]]
        """
        schedule = sorted([agent, sorted(rounds)] for agent, rounds in self.schedule.items() if rounds)
        attackers = None if self.attackers is None else asdict(self.attackers)
        rates = {name: getattr(self, name) for name in ("dropout", "quorum", "edge_dropout")}
        return {**rates, "schedule": schedule, "attackers": attackers}

    def of_round(self, seed: int, number: int, num_agents: int) -> list[Fault]:
        """The faults of round `number` of the episode of that seed, by agent."""
        if not self.dropout and not self.schedule:
            return []
        dropped = np.zeros(num_agents, dtype=bool)
        if self.dropout:
            dropped = generator(seed, Stream.FAULTS, number).random(num_agents) < self.dropout
        scheduled = {agent for agent, rounds in self.schedule.items() if number in rounds}
        return [
            Fault(agent, number, SCHEDULED if agent in scheduled else DROPPED)
            for agent in sorted(scheduled.union(np.flatnonzero(dropped).tolist()))
        ]

    def of_edges(self, seed: int, number: int, num_edges: int) -> BoolArray:
        """(E,) the edges of a network that fail in round `number` of the episode of that seed."""
        if not self.edge_dropout:
            return np.zeros(num_edges, dtype=bool)
        # The key is longer than that of the agents' faults, so the numbers are others.
        return generator(seed, Stream.FAULTS, number, 1).random(num_edges) < self.edge_dropout


def heard(num_agents: int, faults: Iterable[Fault]) -> BoolArray:
    """(M,) the agents without a fault."""
    mask = np.ones(num_agents, dtype=bool)
    mask[[fault.agent for fault in faults]] = False
    return mask


def quorum_shortage(quorum: float, num_agents: int, faults: Sequence[Fault], remedy: str) -> QuorumLost | None:
    """The error if fewer than this share of the agents were heard in the round of `faults`; else None."""
    number = int(heard(num_agents, faults).sum())
    if number >= quorum * num_agents:
        return None
    reasons = "; ".join(f"agent {fault.agent}: {fault.reason}" for fault in faults[:10])
    more = f"; and {len(faults) - 10} more" if len(faults) > 10 else ""
    return QuorumLost(
        f"round {faults[0].round}: expected to hear from at least {quorum:.0%} of {num_agents} agents, got {number} "
        f"({reasons}{more}); {remedy}"
    )


def faults_tree(faults: Sequence[Fault]) -> dict[str, Any]:
    """Faults as plain arrays, for storage."""
    return {
        "agents": np.array([fault.agent for fault in faults], dtype=np.int64),
        "rounds": np.array([fault.round for fault in faults], dtype=np.int64),
        "reasons": np.array([fault.reason for fault in faults], dtype=np.str_),
        "peers": np.array([-1 if fault.peer is None else fault.peer for fault in faults], dtype=np.int64),
    }


def faults_from_tree(tree: Mapping[str, Any]) -> list[Fault]:
    """The faults of a `faults_tree`."""
    rows = zip(tree["agents"], tree["rounds"], tree["reasons"], tree["peers"].tolist(), strict=True)
    return [
        Fault(int(agent), int(number), str(reason), None if peer < 0 else peer) for agent, number, reason, peer in rows
    ]
