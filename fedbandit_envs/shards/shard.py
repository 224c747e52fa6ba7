"""A shard: the part of a run that belongs to some of the agents; it does what the driver of the run asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedbandit_envs.joint import Joint, Jointly
from fedbandit_envs.problems.generator import InstanceGenerator
from fedbandit_envs.problems.regrets import Regret
from fedbandit_envs.protocol.knowledge import Constants, ServerView
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.network import Network
from fedbandit_envs.protocol.plans import CheckedPlan
from fedbandit_envs.protocol.policy import Policy, agents_of, server_of
from fedbandit_envs.protocol.spread import SpreadServer
from fedbandit_envs.rounds.checkpoints import Marks
from fedbandit_envs.rounds.part import Kept, PartHere
from fedbandit_envs.rounds.turn import Turn
from fedbandit_envs.shards.bandit import ShardBandit
from fedbandit_envs.shards.packing import Border, SlimMessage, narrow, slim, whole
from fedbandit_envs.shards.server_part import HandOver, ServerPart


@dataclass(frozen=True)
class ShardTask:
    """All that a shard must know to play its part of a run from the beginning."""

    problem: InstanceGenerator  #: the problem family of all agents
    max_cycles: int  #: the horizon T
    observe: str  #: what agents are shown
    reveal: str  #: what is revealed after a step
    policy: Policy  #: what plays
    seed: int  #: the seed of the episode
    record: bool  #: whether plans and feedback cross too
    border: Border  #: the first agent of the shard, and the one after its last
    regrets: Mapping[str, Regret]  #: the kinds of regret
    spread: bool  #: whether the shard holds its part of the server, if that is one that can be spread


@dataclass(frozen=True)
class Begun:
    """What a shard says about the agent side that it has made."""

    uncounted: int  #: the steps of the first plan that are not counted
    by_steps: bool  #: whether agents decide step by step
    spread: bool  #: whether the shard holds its part of the server


@dataclass(frozen=True)
class Report:
    """What a shard says about a turn."""

    length: int  #: the steps it took
    message: SlimMessage | None  #: what its agents report
    turn: Turn | None  #: plan and feedback, if the run is recorded


class Shard:
    """The agents' part of a run for the agents of one shard. Its verbs are what a driver can ask for."""

    def __init__(self, task: ShardTask):
        self._task, self._record = task, task.record
        bandit = ShardBandit(task.problem, task.border, task.max_cycles, task.observe, task.reveal)
        bandit.start(task.seed)
        rows = [np.arange(bandit.block_size)]
        self._part = PartHere(
            bandit, bandit, task.policy, rows, lambda view: agents_of(task.policy, view), without_turns=not task.record
        )
        self._planned: CheckedPlan | None = None
        self._server: ServerPart | None = None  # None: the driver is the server
        self._answering: Jointly[HandOver | None] | None = None

    def answer(self, verb: str, *arguments: Any) -> Any:
        """Do what the driver asks for."""
        return getattr(self, verb)(*arguments)

    def constants(self) -> Constants:
        """The public constants of these agents alone."""
        return self._part.constants

    def begin(self, constants: Constants, network: Network | None) -> Begun:
        """Make the agent side, and the part of the server that is here."""
        self._part.begin(constants, network)
        if self._task.spread:
            self._server = self._server_part(constants)
        return Begun(self._part.uncounted, self._part.decides_by_steps, self._server is not None)

    def _server_part(self, constants: Constants) -> ServerPart | None:
        """The part of the server for the agents of this shard; None for a server that can't be spread."""
        first, last = self._task.border
        own = replace(constants, num_agents=last - first)
        server = server_of(self._task.policy, ServerView.of_run(own, self._task.seed))
        if not isinstance(server, SpreadServer) or type(server).answer is not SpreadServer.answer:
            return None  # what another `answer` does, parts would not do
        return ServerPart(server, constants.num_agents, last - first)

    def plan(self, down: SlimMessage | None) -> int:
        """Let the agents plan; returns for how many steps."""
        self._planned = self._part.plan(self._heard(down))
        return self._planned.length

    def pull(self, length: int) -> Report:
        """Pull what was planned, for `length` steps: the longest plan of all shards."""
        assert self._planned is not None
        return self._report(self._part.carry_out(self._planned, length))

    def turn(self, down: SlimMessage | None) -> Report:
        """Plan and pull at once, where the lengths of all plans are known to be the same."""
        return self._report(self._part.turn(self._heard(down)))

    def play_on(self, steps: int) -> int:
        """Play `steps` steps, or those that are left, of agents who never speak; returns the steps taken so far."""
        part = self._part
        last = min(part.taken + steps, part.constants.horizon)
        while part.taken < last:
            alone = min(part.alone(), last - part.taken)
            if alone:
                part.play_on(alone)
            else:
                part.turn(None)
                if part.taken < part.constants.horizon:
                    part.reports()  # step agents learn only when they are asked for a report
        return part.taken

    def consult(self, step: int) -> Joint | HandOver | None:
        """Let the parts of the server answer what the agents report after `step` steps; returns what they must know.

        It is None when the agents of the shard are answered.
        """
        assert self._server is not None
        (up,) = self._part.reports()
        self._answering = self._server.exchange(up, step)
        return self.go_on(None)

    def go_on(self, answer: Any) -> Joint | HandOver | None:
        """Go on with answering, now that what all parts must know is known."""
        assert self._answering is not None
        try:
            joint = self._answering.send(answer)
        except StopIteration as end:
            self._answering, found = None, end.value
            if found is not None:
                self._server = None
            return found
        return joint._replace(parts=list(joint.parts))

    def ledger(self) -> State:
        """What the agents of the shard have sent and received, where their ledger is here."""
        assert self._server is not None
        return self._server.ledger

    def _heard(self, down: SlimMessage | None) -> Message | None:
        """What arrives at the agents; some must know also that something has arrived for others."""
        if self._server is not None:
            message, self._server.down = self._server.down, None
            return message
        message = None if down is None else whole([down])
        others = message is not None and message.agents is not None and not len(message.agents)
        return None if others and not self._part.sides[0].hears_of_others else message

    def _report(self, length: int) -> Report:
        part, turn = self._part, self._part.last if self._record else None
        silent = part.taken >= part.constants.horizon or self._server is not None
        (message,) = [None] if silent else part.reports()
        return Report(length, slim(message), turn)

    def kept(self) -> Kept:
        """What was kept of the run so far; the driver finds the gaps itself."""
        kept = self._part.kept(with_gaps=False)
        return kept._replace(marks=Marks(*map(narrow, kept.marks)))

    def snapshot(self) -> State:
        """The state as a tree of plain arrays."""
        return {**self._part.snapshot(), "server": None if self._server is None else self._server.snapshot()}

    def restore(self, state: State) -> None:
        """Take over a state; the other side of `snapshot`."""
        self._part.restore(state)
        if state["server"] is None:
            self._server = None  # the driver has taken over
        elif self._server is not None:
            self._server.restore(state["server"])
