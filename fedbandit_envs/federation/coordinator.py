"""The server's loop over clients that may fail: it asks them, checks their replies, aggregates, and keeps the state."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedbandit_envs.federation.audit_trail import Refusal
from fedbandit_envs.federation.client import HELLO, PLAY, SAME_SETTINGS
from fedbandit_envs.federation.owners import Owners
from fedbandit_envs.federation.replies import Reply, ReplyError, agreed, agreed_length, form, read_reply
from fedbandit_envs.federation.texts import shown
from fedbandit_envs.federation.wire import Packet, Transport, pack
from fedbandit_envs.protocol.knowledge import ServerView
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.plans import ProtocolError
from fedbandit_envs.protocol.policy import Policy, server_of
from fedbandit_envs.rounds.carrier import Carrier, ViaServer
from fedbandit_envs.rounds.faults import Fault, faults_from_tree, faults_tree, quorum_shortage
from fedbandit_envs.rounds.ledger import Ledger
from fedbandit_envs.rounds.relay import ViaGraph
from fedbandit_envs.rounds.state import check_same_run
from fedbandit_envs.rounds.turn import idle_turns
from fedbandit_envs.threads import one_thread


@dataclass(frozen=True)
class Progress:
    """What happened in one turn of the whole federation."""

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
        run: the hash of the run, `Settings.run`; a state of another run is refused.
        owners: for each key the agents for which its client speaks; other clients are refused.
        audit: a function that is called with each refusal and each reply that could not be used.
        quorum: the least share of the agents that must be heard in a turn.
        timeout: how many seconds clients have for a turn.
        relay: what hands each agent the reports of its neighbours, for a policy that talks to peers. None: the policy's
            server answers.

    >>> from fedbandit_envs.federation.client import Client
    >>> from fedbandit_envs.federation.settings import Settings
    >>> from fedbandit_envs.federation.sources import SimulatedRewards
    >>> arguments = {"num_agents": 3, "max_cycles": 50}
    >>> settings = Settings.simulated("Fed-PECD", {}, "fedbandit/Synthetic-v0", arguments, seed=0)
    >>> policy, source = settings.make_policy(), SimulatedRewards(np.arange(3), settings.source())
    >>> class Here:
    ...     client = Client(policy, settings.constants, source, run=settings.run)
    ...
    ...     def nodes(self):
    ...         return {0: "my key"}
    ...
    ...     def exchange(self, requests, timeout):
    ...         return {node: self.client.answer(packet) for node, packet in requests.items()}
    >>> coordinator = Coordinator(policy, settings.server_view, Here(), run=settings.run, owners={"my key": [0, 1, 2]})
    >>> while not coordinator.done:
    ...     progress = coordinator.advance()
    >>> progress.step, progress.heard
    (50, 3)
    """

    def __init__(
        self,
        policy: Policy,
        view: ServerView,
        transport: Transport,
        *,
        run: str,
        owners: Mapping[str, Sequence[int]],
        audit: Callable[[Refusal], None] = lambda refusal: None,
        quorum: float = 0.5,
        timeout: float = 120.0,
        relay: ViaGraph | None = None,
    ):
        self._policy, self._view, self._transport = policy, view, transport
        self._constants, self._run = view.constants, run
        self._quorum, self._timeout = quorum, timeout
        self._relay, self._server = relay, server_of(policy, view)
        self._carrier: Carrier = relay or ViaServer(self._server, view.constants)
        self._downs: list[Message | None] = [None]  # the server's messages before all turns so far and the next one
        self._owners = Owners(owners, view.constants.num_agents, audit)
        self._acknowledged: dict[str, int] = {}  # for a key the last turn that its client is known to have played
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
        """Wait until `number` clients whose keys are listed are connected, at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while (found := len(self._connected())) < number:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"expected {number} clients within {timeout:g} s, got {found}; look into the logs of those that "
                    "are missing, and compare their keys with the owners in the configuration"
                )
            sleep(1.0)

    def _connected(self) -> dict[str, int]:
        return self._owners.connected(self._transport.nodes(), self.ledger.rounds)

    def advance(self, saved_in: str = "") -> Progress:
        """Play one turn: ask all clients, and let the server answer their reports.

        Args:
            saved_in: where the state is kept; an error names it.

        Raises:
            QuorumLost: too few agents were heard, or most of them do not agree on the length of the turn. Nothing is
                aggregated then, and the turn can be asked for again.
            NeverPulls: the clients have waited for too many turns in a row.
        """
        nodes = self._connected()
        answers = self._exchange(nodes, nodes)
        again = self._introduced(answers)
        if again:
            answers |= self._exchange(nodes, again)
        replies, failed = self._read(nodes, answers)
        number = self.ledger.rounds
        try:
            agreed_length(replies, failed)
            agreed(replies, failed, "form of the message", form, self._accepts)
            down = self._answered(replies, failed, saved_in)
        finally:
            self._owners.record(failed, number)
        # What the server refused belongs to the faults of this turn; the carrier of a federation keeps none of its own.
        refused, self._carrier.lost = self._carrier.lost, []
        faults = sorted([*self._missing(failed, number), *refused], key=lambda fault: fault.agent)
        known = {(fault.agent, fault.round) for fault in self.faults}
        self.faults += [fault for fault in faults if (fault.agent, fault.round) not in known]
        for key, reply in replies.items():
            self._acknowledged[key] = reply.turn
        length = next(iter(replies.values())).length
        self._idle = idle_turns(self._idle, length, self._policy)
        self.step += length
        self._downs.append(down)
        return Progress(self.turn - 1, self.step, self.ledger.rounds, self._constants.num_agents - len(faults), faults)

    def _exchange(self, nodes: Mapping[str, int], keys: Iterable[str]) -> dict[str, Packet | str]:
        """Send the clients with these keys their requests; returns the answer of each, by its key."""
        by_node = {nodes[key]: key for key in keys}
        answers = self._transport.exchange({node: self._request(key) for node, key in by_node.items()}, self._timeout)
        return {by_node[node]: answer for node, answer in answers.items() if node in by_node}

    def _introduced(self, answers: Mapping[str, Packet | str]) -> list[str]:
        """The keys whose clients said how far they have come instead of playing: they are asked again."""
        introduced = []
        for key, answer in answers.items():
            with contextlib.suppress(ReplyError):  # `_read` records what is wrong
                reply = self._reply(key, answer)
                if reply.verb != PLAY:
                    self._acknowledged[key] = reply.turn - 1
                    introduced.append(key)
        return introduced

    def _request(self, key: str) -> Packet:
        """The request to a client: the turns that it has not acknowledged, or the question which turns these are."""
        if self.turn > 0 and key not in self._acknowledged:
            return pack({"verb": HELLO}, [])
        agents = self._owners.agents[key]
        first = self._acknowledged.get(key, -1) + 1
        downs = [None if down is None else down.for_agents(agents) or down.for_nobody() for down in self._downs[first:]]
        return pack({"verb": PLAY, "turn": self.turn}, downs)

    def _read(
        self, nodes: Mapping[str, int], answers: Mapping[str, Packet | str]
    ) -> tuple[dict[str, Reply], dict[str, str]]:
        """The replies that can be used, and for every other key the reason why its reply can't."""
        replies: dict[str, Reply] = {}
        failed: dict[str, str] = {}
        for key in self._owners.agents:
            missing = f"no answer within {self._timeout:g} s" if key in nodes else "not connected"
            try:
                reply = self._reply(key, answers.get(key, missing))
                if reply.verb != PLAY:
                    raise ReplyError(f"verb: expected {PLAY}, got {reply.verb}")
                if reply.turn != self.turn:
                    raise ReplyError(f"turn: expected {self.turn}, got {reply.turn}")
                replies[key] = reply
            except ReplyError as error:
                failed[key] = shown(str(error))
        return replies, failed

    def _reply(self, key: str, answer: Packet | str) -> Reply:
        """The reply of a client to this turn's request, if it speaks for the agents of its key and no others."""
        if isinstance(answer, str):
            raise ReplyError(answer)
        reply = read_reply(answer, self._constants)
        agents, left = self._owners.agents[key], self._constants.horizon - self.step
        if not np.array_equal(reply.agents, agents):
            raise ReplyError(f"agents: expected those of its key, {agents.tolist()}, got {reply.agents.tolist()}")
        if reply.turn > self.turn:
            raise ReplyError(f"turn: expected at most {self.turn}, that of the server, got {reply.turn}")
        if reply.length > left:
            raise ReplyError(f"length: expected at most the {left} steps that are left, got {reply.length}")
        return reply

    def _missing(self, failed: Mapping[str, str], number: int) -> list[Fault]:
        """A fault in round `number` for each agent that was not heard in this turn."""
        agents = self._owners.agents
        lost = {agent: reason for key, reason in failed.items() for agent in agents[key].tolist()}
        return [Fault(agent, number, reason) for agent, reason in sorted(lost.items())]

    def _answered(self, replies: dict[str, Reply], failed: dict[str, str], saved_in: str) -> Message | None:
        """The server's answer to the replies. Clients whose messages the server can't take move to `failed`."""
        num_agents = self._constants.num_agents
        before = self._carrier.snapshot()
        while True:
            faults = self._missing(failed, self.ledger.rounds)
            remedy = "start the missing clients again and go on" + (
                f" from the state in {saved_in}" if saved_in else ""
            )
            shortage = quorum_shortage(max(self._quorum, 1 / num_agents), num_agents, faults, remedy)
            if shortage is not None:
                raise shortage
            step = self.step + next(iter(replies.values())).length
            try:
                with one_thread:
                    reports = [reply.message for reply in replies.values()]
                    if self._relay is not None:  # agents that are missing do not hear their neighbours either
                        return self._relay.exchange(reports, step, faults).down
                    return self._carrier.exchange(reports, step).down
            except Exception as error:
                self._carrier.restore(before)
                culprits = [key for key, reply in replies.items() if not self._accepts(reply.message)]
                if not culprits or len(culprits) == len(replies):
                    who = type(self._relay or self._server).__name__
                    raise ProtocolError(
                        f"{who}: expected to answer the messages of turn {self.turn}, got {type(error).__name__}: "
                        f"{error}; try the policy in one process first"
                    ) from error
                for key in culprits:
                    del replies[key]
                    failed[key] = shown(f"sent what the server can't take ({error})")

    def _accepts(self, message: Message | None) -> bool:
        """Whether a copy of the server believes some of this message and can answer it; a relay takes every message."""
        if message is None or message.agents is None or self._relay is not None:
            return True
        copy = server_of(self._policy, self._view)
        copy.restore(self._server.snapshot())
        try:
            refused = np.isin(message.agents, list(copy.refuses(message)))
            copy.answer(message)
        except Exception:
            return False
        return not refused.all()

    def snapshot(self) -> State:
        """The state between two turns, as a tree of plain arrays and numbers."""
        return {
            "run": self._run,
            "step": self.step,
            "idle": self._idle,
            "downs": {str(n): None if down is None else down.tree() for n, down in enumerate(self._downs)},
            "server": self._server.snapshot(),
            "ledger": self.ledger.snapshot(),
            "faults": faults_tree(self.faults),
        }

    def restore(self, state: State) -> None:
        """Go on from a `snapshot`. In the next turn the clients are asked how far they have come."""
        check_same_run(self._run, state.get("run"), SAME_SETTINGS)
        self.step, self._idle = state["step"], state["idle"]
        downs = [state["downs"][str(number)] for number in range(len(state["downs"]))]
        self._downs = [None if down is None else Message.from_tree(down) for down in downs]
        self._carrier.restore({**state, "faults": faults_tree([])})
        self.faults = faults_from_tree(state["faults"])
        self._acknowledged = {}
