"""The communication-round wrapper: the one loop through which every policy meets an environment."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from fedbandit_envs.arrays import BoolArray, IntArray
from fedbandit_envs.envs.parallel import HiddenContextBandit, Observation
from fedbandit_envs.problems.instance import OBSERVES, REGRETS
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.plans import Feedback, Plan, ProtocolError
from fedbandit_envs.protocol.policy import AgentSide, Policy
from fedbandit_envs.protocol.steps import StepAgents
from fedbandit_envs.rounds.carrier import Channel
from fedbandit_envs.rounds.checkpoints import Checkpoints, arms_left
from fedbandit_envs.rounds.faults import (
    Fault,
    Faults,
    QuorumLost,
    faults_from_tree,
    faults_tree,
    heard,
    quorum_shortage,
)
from fedbandit_envs.rounds.history import Exchange, History
from fedbandit_envs.rounds.ledger import Ledger
from fedbandit_envs.rounds.stepping import pulls_throughout, stepped
from fedbandit_envs.threads import one_thread
from fedbandit_envs.validation import one_of

_MOST_IDLE_ROUNDS = 1000  # rounds without a pull before a policy is taken to be stuck


class CommunicationRounds(BaseParallelWrapper[str, Observation, int]):
    """Plays a policy on an environment, round by round; a PettingZoo wrapper, so it stacks with others.

    Args:
        env: a HiddenContextBandit, wrapped or not.
        policy: what plays.
        blocks: how the agents are split, as lists of agent numbers; the run is the same bit for bit however they are.
        stepwise: step pull by pull through the PettingZoo API instead of drawing whole plans. It is also done when
            `env` has a wrapper that does not define `pull` itself, because that wrapper must see each step.
        record: keep every message, plan and feedback, and the truth.
        faults: reports that are lost on their way to the server; None: none.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Observation, int],
        policy: Policy,
        *,
        blocks: Sequence[Sequence[int]] | None = None,
        stepwise: bool = False,
        record: bool = False,
        faults: Faults | None = None,
    ):
        bandit = getattr(env, "unwrapped", env)
        if not isinstance(bandit, HiddenContextBandit) or not isinstance(env, ParallelEnv):
            raise ValueError(
                f"env: expected a HiddenContextBandit, wrapped or not, got {type(env).__name__}; use fb.make(id), or "
                "pettingzoo.make('parallel', id)"
            )
        super().__init__(env)
        if not isinstance(policy, Policy):
            raise ValueError(
                f"policy: expected a Policy, got {policy!r}; use fb.make_policy(name), or an instance of yours"
            )
        one_of(f"{type(policy).__name__}.observes", policy.observes, OBSERVES)
        if policy.observes == "context" and not bandit.exact:
            advice = "make the environment with observe='context'"
            if bandit.resampled:  # then there is no context that could be shown
                advice = "make the environment with context='fixed' and observe='context'"
            raise ValueError(
                f"policy: expected one that observes the distribution, got {type(policy).__name__}, which needs the "
                f"context, and this environment hides it; {advice}"
            )
        policy.check_installed()
        self.bandit, self.policy = bandit, policy
        self._blocks = _checked_blocks(blocks, len(bandit.possible_agents))
        self._together = np.array_equal(self._blocks[0], np.arange(len(bandit.possible_agents)))  # one block, in order
        self._stepwise = stepwise or not pulls_throughout(env)
        self._record = record
        if faults is not None:
            if not isinstance(faults, Faults):
                raise ValueError(f"faults: expected Faults, got {faults!r}; use Faults(dropout=0.1)")
            faults.check(len(bandit.possible_agents))
        self._faults = faults
        self._started = False

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """A new run."""
        first = self.env.reset(seed=seed, options=options)
        self._begin()
        return first

    def start(self, seed: int | None = None) -> None:
        """A new run, as `reset`, without the observations, which no policy looks at."""
        resets = type(self).reset, getattr(self.env.reset, "__func__", None)
        if resets == (CommunicationRounds.reset, HiddenContextBandit.reset):  # nobody else must know of it
            self.bandit.start(seed)
            self._begin()
        else:
            self.reset(seed=seed)

    def _begin(self) -> None:
        observes = self.policy.observes
        view = self.bandit.view("truth" if observes == "truth" else None)
        self._view = view
        self.constants = view.constants
        if self.policy.uncounted_steps(self.constants) >= self.constants.horizon:
            raise ValueError(
                f"max_cycles: expected more than the {self.policy.uncounted_steps(self.constants)} steps that "
                f"{type(self.policy).__name__} does not count, got {self.constants.horizon}; raise it"
            )
        self._sides: list[AgentSide] = [
            self.policy.agents(view if self._together else view.rows(rows)) for rows in self._blocks
        ]
        self._server = self.policy.server(self.constants)
        self._channel = Channel(view.constants.num_agents, Ledger(view.constants.num_agents))
        self._pending: Message | None = None
        self._taken = 0
        self._idle = 0
        self._checkpoints = Checkpoints(self.constants.horizon, self.constants.num_agents, self.constants.num_arms)
        self._exchanges: list[Exchange] = []
        self._lost: list[Fault] = []
        self._followed = self._step_agents()
        self._started = True

    def _step_agents(self) -> StepAgents | None:
        """The agents, if they can play on alone: nobody else wants to see their plans and what comes of these."""
        side, seen = self._sides[0], self._record or self._stepwise or self.env is not self.bandit
        if seen or not self._together or not self.bandit.follows or not isinstance(side, StepAgents):
            return None
        verbs = (getattr(verb, "__func__", None) for verb in (side.plan, side.report, self.advance))
        return side if tuple(verbs) == (StepAgents.plan, StepAgents.report, CommunicationRounds.advance) else None

    @property
    def done(self) -> bool:
        """Whether the horizon is reached."""
        self._check_started()
        return self._taken >= self.constants.horizon

    def _check_started(self) -> None:
        if not self._started:
            raise ValueError(
                "expected reset() before this call, got rounds that were never reset, or whose agents failed; call "
                "reset()"
            )

    def advance(self) -> None:
        """One turn: the agents plan and pull, report, and the server answers.

        Raises:
            QuorumLost: when too few agents were heard: the round is lost for all, and another call goes on after it.
        """
        self._check_started()
        step, down = self._taken, self._pending
        remaining = self.constants.horizon - step
        if remaining <= 0:
            raise ValueError("advance: expected a run before its horizon, got one that is over; call reset()")
        plan = self._planned(down, remaining).cut(remaining)
        feedback = self._pulled(plan)
        self._count(plan, feedback)
        up, shortage = None, None
        if plan.length < remaining:  # after the last step nothing is reported or charged: nobody would use it
            up, shortage = self._reported(feedback)
            answer = None if up is None or shortage is not None else self._server.answer(up)
            self._pending = None if answer is None else self._channel.down(answer)
        if self._record:
            self._exchanges.append(Exchange(step, down, plan, feedback, up))
        if shortage is not None:
            raise shortage

    def finish(self) -> None:
        """Play to the horizon: `advance`, in fewer turns where agents decide step by step."""
        self._check_started()
        while self._taken < self.constants.horizon:
            # Steps that end at a checkpoint, as the last one does, are turns: one looks at agents before they learn.
            alone = self._checkpoints.next_time - 1 - self._taken
            if self._followed is None or not alone:
                self.advance()
            else:
                self._follow(self._followed, alone)

    def _follow(self, agents: StepAgents, most: int) -> None:
        """Let the agents play on alone, for `most` steps or fewer."""
        try:
            self.bandit.follow(agents, most, self._passed_alone)
        except ProtocolError:
            self._started = False  # they may have learnt from arms that there are not
            raise

    def _passed_alone(self, arms: IntArray) -> None:
        self._checkpoints.add_arms(arms)
        self._taken += len(arms)

    def _reported(self, feedback: Feedback) -> tuple[Message | None, QuorumLost | None]:
        """What the server hears from all blocks, and the error when that is too little."""
        if self._together:
            reports = [self._sides[0].report(feedback)]
        else:
            pairs = zip(self._blocks, self._sides, strict=True)
            reports = [side.report(feedback.rows(rows)) for rows, side in pairs]
        if self._faults is None:
            return self._channel.up(reports, self._taken), None
        known = len(self._lost)  # of earlier rounds: there need not be one in this turn
        up = self._channel.up(reports, self._taken, self._arriving)
        return up, self._shortage(self._faults, self._lost[known:])

    def _count(self, plan: Plan, feedback: Feedback) -> None:
        """Count the steps and pulls of a plan, or one more round without any."""
        self._idle = 0 if plan.length else self._idle + 1
        if self._idle > _MOST_IDLE_ROUNDS:
            raise ProtocolError(
                f"{type(self.policy).__name__}: expected a pull within {_MOST_IDLE_ROUNDS} rounds, got none; return "
                "plans of positive length"
            )
        if plan.length:
            self._taken += plan.length
            self._checkpoints.add(feedback)
            if self._taken >= self._checkpoints.next_time:
                self._checkpoints.take(self._taken, self._arms_left())

    def _arriving(self, number: int) -> BoolArray:
        """(M,) the agents whose reports are not lost in this round; those that are, are written down."""
        assert self._faults is not None
        num_agents = self.constants.num_agents
        faults = self._faults.of_round(self.bandit.episode_seed, number, num_agents)
        self._lost += faults
        return heard(num_agents, faults)

    def _shortage(self, faults: Faults, lost: list[Fault]) -> QuorumLost | None:
        """The error when a round has `lost` too many reports."""
        remedy = "lower the quorum, or go on without this round"
        return quorum_shortage(faults.quorum, self.constants.num_agents, lost, remedy) if lost else None

    def _planned(self, down: Message | None, remaining: int) -> Plan:
        """The plans of all blocks as one: it lasts as long as the longest; the others go on with their arm."""
        if self._together:
            return self._checked_plan(self._sides[0], down, remaining, self.constants.num_agents)
        num_agents, num_arms = self.constants.num_agents, self.constants.num_arms
        explore = np.empty((num_agents, num_arms), dtype=np.int64)
        arm = np.empty(num_agents, dtype=np.int64)
        length = 0
        for rows, side in zip(self._blocks, self._sides, strict=True):
            theirs = None if down is None else down.for_agents(rows)
            plan = self._checked_plan(side, theirs, remaining, len(rows))
            explore[rows], arm[rows] = plan.explore, plan.arm
            length = max(length, plan.length)
        return Plan.joint(explore, arm, length)

    def _checked_plan(self, side: AgentSide, down: Message | None, remaining: int, num_agents: int) -> Plan:
        plan = side.plan(down, remaining)
        if not isinstance(plan, Plan):
            raise ProtocolError(
                f"{type(side).__name__}.plan: expected a Plan, got {type(plan).__name__}; return Plan(explore, "
                "arm, length), Plan.play(arm, num_arms) or Plan.wait(num_agents, num_arms)"
            )
        return plan.checked(num_agents, self.constants.num_arms)

    def _pulled(self, plan: Plan) -> Feedback:
        if plan.length == 0:
            return Feedback.of_no_pulls(plan)
        feedback: Feedback = stepped(self.env, plan) if self._stepwise else self.env.pull(plan)
        return feedback.checked(plan)  # a wrapper may have made it

    def _arms_left(self) -> IntArray:
        """(M,) arms that each agent still considers."""
        if self._together:
            return arms_left(self._sides[0], self.constants.num_agents, self.constants.num_arms)
        active = np.empty(self.constants.num_agents, dtype=np.int64)
        for rows, side in zip(self._blocks, self._sides, strict=True):
            active[rows] = arms_left(side, len(rows), self.constants.num_arms)
        return active

    def history(self) -> History:
        """What the run has left so far."""
        self._check_started()
        steps, pulls, active = self._checkpoints.arrays()
        uncounted = self.policy.uncounted_steps(self.constants)
        if uncounted and len(steps):
            steps, pulls, active = steps[1:] - steps[0], pulls[1:] - pulls[0], active[1:]
        return History(
            policy=self.policy,
            constants=self.constants,
            steps=steps,
            pulls=pulls,
            active=active,
            gaps={kind: self.bandit.instance.gaps(kind) for kind in REGRETS},
            ledger=self._channel.ledger.copy(),
            faults=tuple(self._lost),
            exchanges=tuple(self._exchanges) if self._record else None,
            instance=self.bandit.instance if self._record else None,
            view=self._view if self._record else None,
        )

    def snapshot(self) -> State:
        """The state of the run as a tree of plain arrays and numbers, for `storage.save` and `restore`."""
        self._check_started()
        return {
            "seed": str(self.bandit.episode_seed),
            "steps": self._taken,
            "plans": self.bandit.episode.plans,
            "idle": self._idle,
            "checkpoints": self._checkpoints.snapshot(),
            "faults": faults_tree(self._lost),
            "ledger": self._channel.ledger.snapshot(),
            "pending": None if self._pending is None else self._pending.tree(),
            "server": self._server.snapshot(),
            "blocks": {str(number): rows for number, rows in enumerate(self._blocks)},
            "agents": {str(number): side.snapshot() for number, side in enumerate(self._sides)},
            "exchanges": {str(turn): exchange.tree() for turn, exchange in enumerate(self._exchanges)},
            "recorded": self._record,
        }

    def restore(self, state: State) -> None:
        """Go on from a `snapshot` of a run of the same policy, environment and blocks."""
        blocks = [rows.tolist() for _, rows in sorted(state["blocks"].items(), key=lambda item: int(item[0]))]
        mine = [rows.tolist() for rows in self._blocks]
        if blocks != mine:
            raise ValueError(f"state: expected the blocks {mine}, got {blocks}; use the same blocks")
        if self._record and not state["recorded"]:
            raise ValueError("state: expected one of a run with record=True, got one without its messages; record both")
        self.start(seed=int(state["seed"]))
        self.bandit.resume(steps=state["steps"], plans=state["plans"])
        self._taken, self._idle = state["steps"], state["idle"]
        self._checkpoints.restore(state["checkpoints"])
        self._lost = faults_from_tree(state["faults"])
        self._channel.ledger = Ledger.restored(state["ledger"])
        self._pending = None if state["pending"] is None else Message.from_tree(state["pending"])
        self._server.restore(state["server"])
        for number, side in enumerate(self._sides):
            side.restore(state["agents"][str(number)])
        if self._record:
            turns = state["exchanges"]
            self._exchanges = [Exchange.from_tree(turns[str(turn)]) for turn in range(len(turns))]


def play(
    env: ParallelEnv[str, Observation, int],
    policy: Policy,
    *,
    seed: int | None = None,
    stepwise: bool = False,
    record: bool = False,
    blocks: Sequence[Sequence[int]] | None = None,
    faults: Faults | None = None,
) -> History:
    """Run a policy to the horizon (`max_cycles`) of a new episode.

    Example: `play(fb.make("fedbandit/Synthetic-v0"), fb.make_policy("Fed-PECD"), seed=0).mean_regret()[-1]`.
    """
    rounds = CommunicationRounds(env, policy, blocks=blocks, stepwise=stepwise, record=record, faults=faults)
    with one_thread:
        rounds.start(seed)
        rounds.finish()
        return rounds.history()


def _checked_blocks(blocks: Sequence[Sequence[int]] | None, num_agents: int) -> list[IntArray]:
    if blocks is None:
        return [np.arange(num_agents)]
    try:
        rows = [np.array(block) for block in blocks]
        whole = bool(rows) and all(block.ndim == 1 and block.dtype.kind in "iu" and len(block) for block in rows)
    except (TypeError, ValueError):
        whole = False
    if not whole or sorted(np.concatenate(rows).tolist()) != list(range(num_agents)):
        raise ValueError(
            f"blocks: expected lists that hold each agent from 0 to {num_agents - 1} once, none empty, got {blocks!r}; "
            "leave blocks out to keep all agents together"
        )
    return rows
