"""What a run leaves behind: pulls at checkpoints, the ledger, and on request every message."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray, short_repr
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.rounds.faults import Fault
from fedbandit_envs.rounds.ledger import Ledger
from fedbandit_envs.validation import one_of


@dataclass(frozen=True, eq=False)
class Exchange:
    """One turn of the four verbs, as it happened; `plan` is what was asked for, `feedback` what was pulled."""

    step: int  # steps taken before the plan
    down: Message | None
    plan: Plan
    feedback: Feedback
    up: Message | None

    __repr__ = short_repr

    def tree(self) -> State:
        """The turn as plain arrays, for storage."""
        down, up = (None if message is None else message.tree() for message in (self.down, self.up))
        plan, feedback = (
            {part.name: getattr(value, part.name) for part in fields(value) if part.init}
            for value in (self.plan, self.feedback)
        )
        return {"step": self.step, "down": down, "plan": plan, "feedback": feedback, "up": up}

    @classmethod
    def from_tree(cls, tree: State) -> "Exchange":
        """The turn of a `tree`."""
        down, up = (None if tree[name] is None else Message.from_tree(tree[name]) for name in ("down", "up"))
        return cls(tree["step"], down, Plan(**tree["plan"]), Feedback(**tree["feedback"]), up)


@dataclass(frozen=True, eq=False)
class History:
    """A run in numbers. A checkpoint is taken when a plan ends past the next time of a grid over the horizon."""

    policy: Policy
    constants: Constants
    steps: IntArray  # (C,) steps taken at each checkpoint
    pulls: IntArray  # (C, M, K) cumulative
    active: IntArray  # (C, M) arms that the agent still considers; K for policies without active sets
    gaps: Mapping[str, FloatArray]  # (M, K) for each kind of regret
    ledger: Ledger
    faults: tuple[Fault, ...] = ()  # the reports that were lost
    exchanges: tuple[Exchange, ...] | None = None  # with record=True
    instance: BanditInstance | None = None  # with record=True: the truth
    view: View | None = None  # with record=True: what the agents were shown

    def __repr__(self) -> str:
        size = f"{self.constants.num_agents} agents, {self.steps[-1]} steps"
        sent = f"{self.ledger.rounds} rounds, {self.ledger.scalars} scalars"
        return f"History({type(self.policy).__name__}, {size}, regret per agent {self.mean_regret()[-1]:.4g}, {sent})"

    def regret(self, kind: str = "regret") -> FloatArray:
        """(C, M) cumulative pseudo-regret of each agent: "regret", "distribution_regret" or "paper_regret"."""
        one_of("kind", kind, REGRETS)
        return np.einsum("cmk,mk->cm", self.pulls, self.gaps[kind])

    def mean_regret(self, kind: str = "regret") -> FloatArray:
        """(C,) regret per agent, averaged over the agents."""
        return self.regret(kind).mean(axis=1)

    def total_regret(self, kind: str = "regret") -> FloatArray:
        """(C,) regret of the whole group."""
        return self.regret(kind).sum(axis=1)

    def worst_regret(self, kind: str = "regret") -> FloatArray:
        """(C,) regret of the agent that has most of it at that time."""
        return self.regret(kind).max(axis=1)


@lru_cache(maxsize=64)
def checkpoint_times(horizon: int, number: int = 200) -> tuple[int, ...]:
    """The grid: half of its times evenly spread, half geometrically, so that early phases are seen too."""
    even = np.linspace(0, horizon, number // 2 + 1)[1:]
    geometric = np.geomspace(1, horizon, number - number // 2)
    times = np.unique(np.ceil(np.concatenate([even, geometric]) - 1e-9).astype(np.int64)).clip(1, horizon)
    return tuple(times.tolist())
