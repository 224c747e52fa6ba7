"""The agents' part of a run: who plans, pulls, counts and reports. All else of a run is communication."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from pettingzoo import ParallelEnv

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.envs.parallel import Observation
from fedbandit_envs.envs.planned import PlannedBandit
from fedbandit_envs.envs.playable import PlayableBlock
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.regrets import GapsWhenAsked
from fedbandit_envs.problems.segments import Segment
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.network import Network
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback
from fedbandit_envs.protocol.policy import AgentSide, Policy, hidden_for
from fedbandit_envs.protocol.steps import StepAgents
from fedbandit_envs.rounds.blocks import AgentBlocks
from fedbandit_envs.rounds.checkpoints import Checkpoints, Marks
from fedbandit_envs.rounds.checks import check_changes, check_counted_steps
from fedbandit_envs.rounds.count_tables import CountTables, StackedTables
from fedbandit_envs.rounds.stepping import decides_by_steps, play_on, stepped
from fedbandit_envs.rounds.turn import Turn, carry_out, play_turn


class Kept(NamedTuple):
    """What the agents' part has kept of a run."""

    steps: IntArray  #: (C,) the steps taken at each checkpoint
    tables: CountTables | StackedTables  #: (n, K) for each checkpoint: the pulls of each arm up to it
    marks: Marks  #: how the agents stood, (C, n) each
    #: (n, K) what one pull of each arm costs, by the kind of regret; empty where contexts change
    gaps: Mapping[str, FloatArray]
    summed: Mapping[str, FloatArray]  #: (C, n) the regret at each checkpoint by kind, where contexts change, else empty


class AgentsPart(Protocol):
    """What the communication rounds need of the agents, wherever these are: in this process, or in shards of it."""

    constants: Constants  #: the public constants of the problem
    sides: list[AgentSide]  #: the agent sides that are in this process
    taken: int  #: the steps taken so far
    uncounted: int  #: the steps of the first plan that the history leaves out
    last: Turn | None  #: the plan and the feedback of a turn that the agents have not reported yet

    def begin(self, constants: Constants, network: Network | None) -> None:
        """Make the agent sides of a new run."""

    def turn(self, down: Message | None) -> int:
        """Let the agents plan, now that `down` has arrived, and pull what they planned; returns the steps it took."""

    def reports(self) -> Sequence[Message | None]:
        """What the agents say about the last turn, block by block."""

    def alone(self) -> int:
        """How many steps the agents can play without turns, if nothing has arrived for them."""

    def play_on(self, most: int) -> Sequence[Message | None]:
        """Play up to `most` steps without turns, until agents speak; returns what they say."""

    def kept(self) -> Kept:
        """What was kept of the run so far."""

    def truth(self) -> tuple[BanditInstance | None, View]:
        """The problem with its truth, if it is one with contexts, and what the agents were shown."""

    def snapshot(self) -> State:
        """The state as a tree of plain arrays."""

    def restore(self, state: State) -> None:
        """Take over a state; the other side of `snapshot`. The steps taken so far are those of the state."""


class PartHere:
    """The agents of a run, or of one shard of it, in this process.

    Args:
        env: what is pulled, perhaps through wrappers.
        bandit: the environment inside `env`; its episode has begun.
        policy: what plays.
        rows: the positions of the agents of each block.
        make_side: makes the agent side of a block from its view.
        stepwise: step pull by pull through the PettingZoo API.
        without_turns: whether steps may be played without turns, where the agents decide step by step.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Observation, int] | PlannedBandit,
        bandit: PlayableBlock,
        policy: Policy,
        rows: Sequence[IntArray],
        make_side: Callable[[View], AgentSide],
        *,
        stepwise: bool = False,
        without_turns: bool = True,
    ):
        self._env, self._bandit, self._policy, self._rows = env, bandit, policy, list(rows)
        self._make_side, self._stepwise, self._without_turns = make_side, stepwise, without_turns
        self.view = bandit.view(hidden_for(policy))
        self.constants = self.view.constants
        self.taken = 0
        self.last: Turn | None = None

    def begin(self, constants: Constants, network: Network | None) -> None:
        """Make the agent sides of a new run, which know these constants and their neighbours in the network."""
        around = None if network is None else network.around(self.view.agents)
        if constants is not self.constants or around is not None:
            self.view = replace(self.view, constants=constants, network=around)
        self.constants, view = constants, self.view
        one_block = np.array_equal(self._rows[0], np.arange(len(view.agents)))
        views = [view] if one_block else [view.rows(rows) for rows in self._rows]
        self._agents = AgentBlocks([self._make_side(own) for own in views], self._rows, constants.num_arms)
        del self._make_side  # mostly a method of the rounds, which hold this part: a circle would outlive the run
        self.sides = self._agents.sides
        self.uncounted = self.sides[0].uncounted
        check_counted_steps(self._policy, self.uncounted, constants.horizon)
        self._checkpoints = Checkpoints(constants.horizon, len(view.agents), constants.num_arms)
        self._playing_on = self._step_agents()
        self._segments = self._bandit.episode.segments
        self._summing = self._bandit.episode.segment is not None  # whether regret is summed up step by step
        self._shown = 0  # the number of the segment that the agents have been shown
        check_changes(self._policy, self.sides[0], self._bandit)

    def _step_agents(self) -> StepAgents | None:
        """The agents, if their steps can be played without turns: one block of StepAgents, and nobody else looks on."""
        side = self.sides[0]
        if not self._without_turns or not self._agents.together:
            return None
        return side if isinstance(side, StepAgents) and decides_by_steps(side, self._bandit) else None

    @property
    def decides_by_steps(self) -> bool:
        """Whether the agents decide step by step, so that the length of each plan is known before it is made."""
        return self._playing_on is not None

    def turn(self, down: Message | None) -> int:
        """Let the agents plan, now that `down` has arrived, and pull what they planned; returns the steps it took."""
        self._show()
        return self._took(play_turn(self._agents, self._checkpoints, down, *self._now()))

    def plan(self, down: Message | None) -> CheckedPlan:
        """What the agents of a shard plan, now that `down` has arrived; `carry_out` pulls it."""
        self._show()
        return self._agents.plan(down, self.constants.horizon - self.taken)

    def carry_out(self, plan: CheckedPlan, length: int) -> int:
        """Pull a plan for `length` steps, or until the contexts change or the horizon is reached."""
        if plan.length != length:  # agents of other shards plan for longer
            plan = CheckedPlan(plan.explore, plan.arm, length)
        return self._took(carry_out(plan, self._agents, self._checkpoints, *self._now()))

    def _now(self) -> tuple[int, int, Callable[[CheckedPlan], Feedback], Segment | None, int | None]:
        """The steps taken, the horizon, how to pull, and the segment of contexts with the steps that it holds yet."""
        episode = self._bandit.episode
        return self.taken, self.constants.horizon, self._pull, episode.segment, episode.valid

    def _took(self, turn: Turn) -> int:
        """Keep a turn as the last one; returns the steps it took."""
        self.last = turn
        self.taken += turn.plan.length
        return turn.plan.length

    def reports(self) -> list[Message | None]:
        """What the agents say about the last turn, block by block."""
        assert self.last is not None
        turn, self.last = self.last, None  # while the server answers nobody needs it
        return self._agents.report(turn.feedback)

    def alone(self) -> int:
        """How many steps the agents can play without turns, if nothing has arrived for them."""
        # A checkpoint records `active` before the agents learn, so the step that reaches it is played as a turn.
        return 0 if self._playing_on is None else self._checkpoints.next_time - 1 - self.taken

    def play_on(self, most: int) -> list[Message | None]:
        """Play up to `most` steps without turns, until the agents speak; returns what they say."""
        self._show()
        assert self._playing_on is not None
        assert isinstance(self._bandit, PlannedBandit)  # others have no such steps
        return [play_on(self._bandit, self._playing_on, most, self._count_steps)]

    def _show(self) -> None:
        """Show the agents what holds now, if they have not seen it yet."""
        if self._segments is not None and self._shown != self._segments.place(self.taken):
            self._shown = self._segments.place(self.taken)
            self._agents.observe(self._bandit.view_at(self.taken, self.view))

    def _count_steps(self, arms: IntArray, costs: FloatArray | None) -> None:
        self._checkpoints.add_arms(arms, costs)
        self.taken += len(arms)
        if self._segments is not None and len(arms):
            self._shown = self._segments.place(self.taken - 1)

    def _pull(self, plan: CheckedPlan) -> Feedback:
        env: Any = self._env
        revealed = self.view.feature_map if self._bandit.reveal == "after" else None
        feedback: Feedback = stepped(env, plan, revealed) if self._stepwise else env.pull(plan)
        return feedback

    def kept(self, with_gaps: bool = True) -> Kept:
        """What was kept of the run so far, with the tables of gaps or without them."""
        arrays = self._checkpoints.arrays()
        if self._summing:
            return Kept(*arrays, {}, self._checkpoints.summed())
        return Kept(*arrays, GapsWhenAsked(self._bandit.instance) if with_gaps else {}, {})

    def truth(self) -> tuple[BanditInstance | None, View]:
        """The problem with its truth, if it is one with contexts, and what the agents were shown."""
        return self._bandit.instance, self.view

    def snapshot(self) -> State:
        """The state as a tree of plain arrays."""
        return {
            "steps": self.taken,
            "plans": self._bandit.episode.plans,
            "checkpoints": self._checkpoints.snapshot(),
            "agents": self._agents.snapshot(),
        }

    def restore(self, state: State) -> None:
        """Take over a state; the other side of `snapshot`."""
        self._bandit.resume(steps=state["steps"], plans=state["plans"])
        self.taken = state["steps"]
        self._checkpoints.restore(state["checkpoints"])
        self._agents.restore(state["agents"])
        if self._segments is not None and self.taken < self.constants.horizon:
            self._shown = self._segments.place(self.taken)
            self._agents.observe(self._bandit.view_at(self.taken, self.view))
