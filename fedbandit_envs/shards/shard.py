"""A shard: the part of a run that belongs to some of the agents; it does what the driver of the run asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbandit_envs.problems.generator import InstanceGenerator
from fedbandit_envs.problems.regrets import Regret
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.network import Network
from fedbandit_envs.protocol.plans import CheckedPlan
from fedbandit_envs.protocol.policy import Policy, agents_of
from fedbandit_envs.rounds.part import Kept, PartHere
from fedbandit_envs.rounds.turn import Turn
from fedbandit_envs.shards.bandit import ShardBandit
from fedbandit_envs.shards.packing import Border, SlimMessage, slim, whole


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


@dataclass(frozen=True)
class Report:
    """What a shard says about a turn."""

    length: int  #: the steps it took
    message: SlimMessage | None  #: what its agents report
    turn: Turn | None  #: plan and feedback, if the run is recorded


class Shard:
    """The agents' part of a run for the agents of one shard. Its verbs are what a driver can ask for."""

    def __init__(self, task: ShardTask):
        self._record = task.record
        bandit = ShardBandit(task.problem, task.border, task.max_cycles, task.observe, task.reveal)
        bandit.start(task.seed)
        rows = [np.arange(bandit.block_size)]
        self._part = PartHere(
            bandit, bandit, task.policy, rows, lambda view: agents_of(task.policy, view), without_turns=not task.record
        )
        self._planned: CheckedPlan | None = None

    def answer(self, verb: str, *arguments: Any) -> Any:
        """Do what the driver asks for."""
        return getattr(self, verb)(*arguments)

    def constants(self) -> Constants:
        """The public constants of these agents alone."""
        return self._part.constants

    def begin(self, constants: Constants, network: Network | None) -> tuple[int, bool]:
        """Make the agent side; returns the steps that are not counted, and whether agents decide step by step."""
        self._part.begin(constants, network)
        return self._part.uncounted, self._part.decides_by_steps

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

    def _heard(self, down: SlimMessage | None) -> Message | None:
        """What arrives at the agents; some must know also that something has arrived for others."""
        message = None if down is None else whole([down])
        others = message is not None and message.agents is not None and not len(message.agents)
        return None if others and not self._part.sides[0].hears_of_others else message

    def _report(self, length: int) -> Report:
        part = self._part
        over = part.taken >= part.constants.horizon
        (message,) = [None] if over else part.reports()
        return Report(length, slim(message), part.last if self._record else None)

    def kept(self) -> Kept:
        """What was kept of the run so far; the driver finds the gaps itself."""
        return self._part.kept(with_gaps=False)

    def snapshot(self) -> State:
        """The state as a tree of plain arrays."""
        return self._part.snapshot()

    def restore(self, state: State) -> None:
        """Take over a state; the other side of `snapshot`."""
        self._part.restore(state)
