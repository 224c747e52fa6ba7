"""The server's loop over clients that may fail: ask them, check their replies, aggregate, and keep the state."""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.federation.client import HELLO, PLAY
from fedbandit_envs.federation.replies import Reply, ReplyError, agreed, form, read_reply
from fedbandit_envs.federation.wire import Packet, pack
from fedbandit_envs.protocol.knowledge import ServerView
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.plans import ProtocolError
from fedbandit_envs.protocol.policy import Policy, ServerSide
from fedbandit_envs.rounds.carrier import ViaServer
from fedbandit_envs.rounds.faults import Fault, faults_from_tree, faults_tree, quorum_shortage
from fedbandit_envs.rounds.ledger import Ledger
from fedbandit_envs.rounds.turn import idle_turns
from fedbandit_envs.threads import one_thread


class Transport(Protocol):
    """How packets reach the clients. Each client is a node with a number, which may change when it comes back."""

    def nodes(self) -> list[int]:
        """The numbers of the nodes that are connected now."""

    def exchange(self, requests: Mapping[int, Packet], timeout: float) -> dict[int, Packet | str]:
        """Send each node its packet, and collect the answers of `timeout` seconds.

        Returns:
            For each node that answered its packet, or a text that says what failed.
        """


@dataclass
class _Node:
    agents: IntArray  # the agents for which the node speaks
    acknowledged: int = -1  # the last turn that the node is known to have played


@dataclass(frozen=True)
class Progress:
    """What one turn of the whole federation brought."""

    turn: int  #: the number of the turn, from 0
    step: int  #: the steps that every agent has taken so far
    rounds: int  #: the rounds of communication so far
    heard: int  #: the number of agents that were heard in this turn
    faults: list[Fault] = field(default_factory=list)  #: the reports that were lost in this turn


class Coordinator:
    """Plays the server side of a policy with clients that may fail, turn by turn.

    A client that does not answer, or answers nonsense, loses its report of that turn: the fault is recorded with its
    reason, and the others go on. The transport decides how packets travel; here the one client lives in this process.

    Args:
        policy: what plays.
        view: what the server knows, above all the public numbers of the problem.
        transport: how packets reach the clients.
        quorum: the least share of the agents that must be heard in a turn.
        timeout: how many seconds clients have for a turn.

    >>> from fedbandit_envs.federation.client import Client
    >>> from fedbandit_envs.federation.settings import Settings
    >>> from fedbandit_envs.federation.sources import SimulatedRewards
    >>> arguments = {"num_agents": 3, "max_cycles": 50}
    >>> settings = Settings.simulated("Fed-PECD", {}, "fedbandit/Synthetic-v0", arguments, seed=0)
    >>> policy, source = settings.make_policy(), SimulatedRewards(np.arange(3), settings.source())
    >>> class Here:
    ...     client = Client(policy, settings.constants, source)
    ...
    ...     def nodes(self):
    ...         return [0]
    ...
    ...     def exchange(self, requests, timeout):
    ...         return {node: self.client.answer(packet) for node, packet in requests.items()}
    >>> coordinator = Coordinator(policy, settings.server_view, Here())
    >>> while not coordinator.done:
    ...     progress = coordinator.advance()
    >>> progress.step, progress.heard
    (50, 3)
    """

    def __init__(
        self, policy: Policy, view: ServerView, transport: Transport, *, quorum: float = 0.5, timeout: float = 120.0
    ):
        self._policy, self._view, self._transport = policy, view, transport
        self._constants = view.constants
        self._quorum, self._timeout = quorum, timeout
        self._carrier = ViaServer(policy.server(view), view.constants)
        self._downs: list[Message | None] = [None]  # the server's message before each turn, the next included
        self._nodes: dict[int, _Node] = {}
        self.step = self._idle = 0
        self.faults: list[Fault] = []

    @property
    def turn(self) -> int:
        """The turn that is played next."""
        return len(self._downs) - 1

    @property
    def ledger(self) -> Ledger:
        """What communication has cost so far."""
        return self._carrier.ledger

    @property
    def done(self) -> bool:
        """Whether the horizon is reached."""
        return self.step >= self._constants.horizon

    def wait_for(self, number: int, timeout: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait until `number` clients are connected, at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while len(self._transport.nodes()) < number:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"expected {number} clients within {timeout:g} s, got {len(self._transport.nodes())}; look into "
                    "the logs of those that are missing"
                )
            sleep(1.0)

    def advance(self, saved_in: str = "") -> Progress:
        """Play one turn: ask all clients, and let the server answer their reports.

        Args:
            saved_in: where the state is kept; an error names it.

        Raises:
            QuorumLost: too few agents were heard. Nothing is aggregated then, and the turn can be asked for again.
            NeverPulls: the clients have waited for too many turns in a row.
        """
        nodes = self._transport.nodes()
        answers = self._transport.exchange({node: self._request(node) for node in nodes}, self._timeout)
        again = self._introduced(nodes, answers)
        if again:
            answers |= self._transport.exchange({node: self._request(node) for node in again}, self._timeout)
        replies, failed = self._read(nodes, answers)
        agreed(replies, failed, "form of the message", form, self._accepts)
        number = self.ledger.rounds
        down = self._answered(replies, failed, saved_in)
        # What the server refused belongs to the faults of this turn; the carrier of a federation keeps none of its own.
        refused, self._carrier.lost = self._carrier.lost, []
        faults = sorted([*self._missing(replies, failed, number), *refused], key=lambda fault: fault.agent)
        known = {(fault.agent, fault.round) for fault in self.faults}
        self.faults += [fault for fault in faults if (fault.agent, fault.round) not in known]
        for node, reply in replies.items():
            self._nodes[node].acknowledged = reply.turn
        length = next(iter(replies.values())).length
        self._idle = idle_turns(self._idle, length, self._policy)
        self.step += length
        self._downs.append(down)
        return Progress(self.turn - 1, self.step, self.ledger.rounds, self._constants.num_agents - len(faults), faults)

    def _introduced(self, nodes: list[int], answers: Mapping[int, Packet | str]) -> list[int]:
        """The nodes that said who they are and how far they have come instead of playing: they are asked again."""
        introduced = []
        for node in nodes:
            answer = answers.get(node)
            with contextlib.suppress(ReplyError):  # `_read` records what is wrong
                if answer is not None and not isinstance(answer, str):
                    reply = read_reply(answer, self._constants)
                    if reply.verb != PLAY:
                        self._claim(node, reply.agents, nodes)
                        self._nodes[node].acknowledged = reply.turn - 1
                        introduced.append(node)
        return introduced

    def _request(self, node: int) -> Packet:
        """The request to a node: the turns that it has not acknowledged, or, if it is unknown, who it is."""
        if self.turn > 0 and node not in self._nodes:
            return pack({"verb": HELLO}, [])
        known = self._nodes.get(node)
        first = 0 if known is None else known.acknowledged + 1
        downs = [
            None if known is None or down is None else down.for_agents(known.agents) for down in self._downs[first:]
        ]
        return pack({"verb": PLAY, "turn": self.turn}, downs)

    def _read(self, nodes: list[int], answers: Mapping[int, Packet | str]) -> tuple[dict[int, Reply], dict[int, str]]:
        """The replies that can be used, and for every other node the reason why its reply can't."""
        replies: dict[int, Reply] = {}
        failed = {node: "not connected" for node in self._nodes if node not in nodes}
        for node in nodes:
            answer = answers.get(node, f"no answer within {self._timeout:g} s")
            try:
                if isinstance(answer, str):
                    raise ReplyError(answer)
                reply = read_reply(answer, self._constants)
                self._claim(node, reply.agents, nodes)
                if reply.verb != PLAY:
                    raise ReplyError("did not play")
                if reply.turn != self.turn:
                    raise ReplyError(f"answered turn {reply.turn} in turn {self.turn}")
                replies[node] = reply
            except ReplyError as error:
                failed[node] = str(error)
        agreed(replies, failed, "length of the plan", lambda reply: reply.length)
        return replies, failed

    def _claim(self, node: int, agents: IntArray, nodes: list[int]) -> None:
        """Note that a node speaks for these agents, unless another one does."""
        if node in self._nodes and not np.array_equal(self._nodes[node].agents, agents):
            raise ReplyError(f"spoke for agents {agents.tolist()}, is {self._nodes[node].agents.tolist()}")
        for other, its in list(self._nodes.items()):
            if other != node and np.isin(its.agents, agents).any():
                if other in nodes:
                    raise ReplyError(f"spoke for agents {agents.tolist()}, of which another client has some")
                del self._nodes[other]  # the client came back under another number
        self._nodes.setdefault(node, _Node(agents))

    def _missing(self, replies: Mapping[int, Reply], failed: Mapping[int, str], number: int) -> list[Fault]:
        """A fault in round `number` for each agent that was not heard in this turn."""
        reasons = dict.fromkeys(range(self._constants.num_agents), "its client is unknown")
        for node, reason in failed.items():
            if node in self._nodes:
                reasons.update(dict.fromkeys(self._nodes[node].agents.tolist(), reason))
        for reply in replies.values():
            for agent in reply.agents.tolist():
                del reasons[agent]
        return [Fault(agent, number, reason) for agent, reason in sorted(reasons.items())]

    def _answered(self, replies: dict[int, Reply], failed: dict[int, str], saved_in: str) -> Message | None:
        """The server's answer to the replies. Clients whose messages the server can't take move to `failed`."""
        num_agents = self._constants.num_agents
        before = self._carrier.snapshot()
        while True:
            faults = self._missing(replies, failed, self.ledger.rounds)
            where = f" from the state in {saved_in}" if saved_in else ""
            remedy = f"start the missing clients again and go on{where}"
            shortage = quorum_shortage(max(self._quorum, 1 / num_agents), num_agents, faults, remedy)
            if shortage is not None:
                raise shortage
            step = self.step + next(iter(replies.values())).length
            try:
                with one_thread:
                    return self._carrier.exchange([reply.message for reply in replies.values()], step).down
            except Exception as error:
                self._carrier.restore(before)
                culprits = [node for node, reply in replies.items() if not self._accepts(reply.message)]
                if not culprits or len(culprits) == len(replies):
                    raise ProtocolError(
                        f"{type(self._carrier.server).__name__}: expected to answer the messages of turn {self.turn}, "
                        f"got {type(error).__name__}: {error}; try the policy in one process first"
                    ) from error
                for node in culprits:
                    del replies[node]
                    failed[node] = f"sent what the server can't take ({error})"

    def _accepts(self, message: Message | None) -> bool:
        """Whether the server can answer this message alone, which a copy of the server tries."""
        if message is None:
            return True
        copy: ServerSide = self._policy.server(self._view)
        copy.restore(self._carrier.server.snapshot())
        try:
            copy.answer(message)
        except Exception:
            return False
        return True

    def snapshot(self) -> State:
        """The state between two turns, as a tree of plain arrays and numbers."""
        return {
            "step": self.step,
            "idle": self._idle,
            "downs": {str(n): None if down is None else down.tree() for n, down in enumerate(self._downs)},
            "server": self._carrier.server.snapshot(),
            "ledger": self.ledger.snapshot(),
            "faults": faults_tree(self.faults),
        }

    def restore(self, state: State) -> None:
        """Go on from a `snapshot`. In the next turn the clients are asked who they are."""
        self.step, self._idle = state["step"], state["idle"]
        downs = [state["downs"][str(number)] for number in range(len(state["downs"]))]
        self._downs = [None if down is None else Message.from_tree(down) for down in downs]
        self._carrier.restore({**state, "faults": faults_tree([])})
        self.faults = faults_from_tree(state["faults"])
        self._nodes = {}
