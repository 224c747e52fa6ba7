"""What a run leaves behind: pulls at checkpoints, the ledger, and on request every message."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray, read_only, short_repr
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.regrets import mixed_gaps, mixed_share
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.rounds.count_tables import CountTables, StackedTables
from fedbandit_envs.rounds.faults import Fault
from fedbandit_envs.rounds.ledger import Ledger


@dataclass(frozen=True, eq=False)
class Exchange:
    """One turn of a recorded run, as it happened: `play(..., record=True).exchanges` has them all."""

    step: int  #: the steps that were taken before the turn
    down: Message | None  #: what the server or neighbours had said before it; None: nothing
    plan: Plan  #: what the agents asked for
    feedback: Feedback  #: what was pulled, and the sums of its rewards
    up: Message | None  #: what arrived at the server; None: nothing

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
    """What a run leaves behind: pulls at checkpoints, what was sent, and on request every message.

    `play` returns one. A checkpoint is taken when a plan ends past the next time of a grid of about 200 times over the
    horizon, so policies with long plans have fewer. Regret is derived from the pulls and the gaps.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
    >>> history.steps[-1], history.regret().shape == (len(history.steps), 5)
    (np.int64(200), True)
    """

    policy: Policy  #: what played
    constants: Constants  #: the public constants of the problem
    steps: IntArray  #: (C,) the steps taken at each checkpoint
    #: (M, K) for each checkpoint: the pulls of each arm up to it. Reading them one after the other takes little memory.
    tables: CountTables | StackedTables
    active: IntArray  #: (C, M) the number of arms that each agent still considers; K for policies that eliminate none
    admitted: IntArray  #: (C, M) 1 for agents that take part, 0 for those that the policy has not admitted yet
    recommended: IntArray  #: (C, M) the arm that each agent takes for the best; -1 for none
    #: (M, K) what one pull of each arm costs, for each kind of regret; empty where contexts change or agents share arms
    gaps: Mapping[str, FloatArray]
    ledger: Ledger  #: rounds, messages, scalars and bytes
    faults: tuple[Fault, ...] = ()  #: the reports that were lost
    exchanges: tuple[Exchange, ...] | None = None  #: every turn; None without record=True
    instance: BanditInstance | None = None  #: the truth; None without record=True
    view: View | None = None  #: what the agents were shown; None without record=True
    #: (C, M) the regret at each checkpoint by kind, where contexts change or agents share arms; else empty
    summed: Mapping[str, FloatArray] = field(default_factory=dict)

    def __repr__(self) -> str:
        size = f"{self.constants.num_agents} agents, {self.steps[-1]} steps"
        sent = f"{self.ledger.rounds} rounds, {self.ledger.scalars} scalars"
        private = "" if self.privacy is None else ", {:g}, {:g}-private".format(*self.privacy)
        regret = f"regret per agent {self.mean_regret()[-1]:.4g}"
        return f"History({type(self.policy).__name__}, {size}, {regret}, {sent}{private})"

    @property
    def privacy(self) -> tuple[float, float] | None:
        """The budget (epsilon, delta) of differential privacy that each agent's reports kept; None: none."""
        return self.policy.privacy

    @cached_property
    def pulls(self) -> IntArray:
        """(C, M, K) the pulls of each arm up to each checkpoint; with very many agents `tables` take less memory."""
        shape = (len(self.steps), self.constants.num_agents, self.constants.num_arms)
        found = np.empty(shape, dtype=np.int64)
        for place, table in enumerate(self.tables):
            found[place] = table
        return read_only(found)

    def regret(self, kind: str = "regret") -> FloatArray:
        """(C, M) the cumulative pseudo-regret of each agent at each checkpoint.

        Args:
            kind: a name in `fedbandit_envs.REGRETS`, for example "regret" or "distribution_regret", or
                "mixed_regret:SHARE" with any share from 0 to 1.
        """
        if self.summed:
            if kind not in self.summed:
                raise ValueError(
                    f"kind: expected one of {', '.join(self.summed)}, which are recorded where contexts change or arms "
                    f"are shared, got {kind!r}"
                )
            return self.summed[kind]
        gaps = self._gaps_of(kind)
        return np.array([np.einsum("mk,mk->m", pulls, gaps) for pulls in self.tables]).reshape(self.active.shape)

    def _gaps_of(self, kind: str) -> FloatArray:
        """(M, K) what one pull of each arm costs."""
        if kind in self.gaps:
            return self.gaps[kind]
        return mixed_gaps(self.gaps["regret"], self.gaps["group_regret"], mixed_share(kind))

    def simple_regret(self, kind: str = "regret") -> FloatArray:
        """(C, M) what one pull of the recommended arm costs each agent; NaN where nothing is recommended.

        Where contexts change or agents share arms, no agent has a best arm of the whole run, and it is NaN too.

        Args:
            kind: which regret, as `regret` takes it.
        """
        if self.summed:
            return np.full(self.recommended.shape, np.nan)
        rows = np.arange(self.recommended.shape[1])
        return np.where(self.recommended < 0, np.nan, self._gaps_of(kind)[rows, self.recommended])

    def mean_regret(self, kind: str = "regret") -> FloatArray:
        """(C,) the regret at each checkpoint, averaged over the agents."""
        return self.regret(kind).mean(axis=1)

    def total_regret(self, kind: str = "regret") -> FloatArray:
        """(C,) the regret at each checkpoint, summed over the agents."""
        return self.regret(kind).sum(axis=1)

    def worst_regret(self, kind: str = "regret") -> FloatArray:
        """(C,) the regret of the agent that has most of it at each checkpoint."""
        return self.regret(kind).max(axis=1)

    def counted_from(self, step: int) -> "History":
        """The history as if the run began after `step` steps, at which it must have a checkpoint.

        The authors' program does not count the steps of the initialisation. The ledger and the messages stay whole.
        """
        if step == 0:
            return self
        places = np.flatnonzero(self.steps == step)
        if not len(places):
            near = self.steps[np.argsort(np.abs(self.steps - step), kind="stable")[:2]]
            raise ValueError(f"step: expected a checkpoint, got {step}; the nearest are {np.sort(near).tolist()}")
        begin = int(places[0])
        return replace(
            self,
            steps=self.steps[begin + 1 :] - step,
            tables=self.tables.since(begin),
            active=self.active[begin + 1 :],
            admitted=self.admitted[begin + 1 :],
            recommended=self.recommended[begin + 1 :],
            summed={kind: regret[begin + 1 :] - regret[begin] for kind, regret in self.summed.items()},
        )


@lru_cache(maxsize=64)
def checkpoint_times(horizon: int, number: int = 200) -> tuple[int, ...]:
    """The grid: half of its times evenly spread, half geometrically, so that early phases are seen too."""
    even = np.linspace(0, horizon, number // 2 + 1)[1:]
    geometric = np.geomspace(1, horizon, number - number // 2)
    times = np.unique(np.ceil(np.concatenate([even, geometric]) - 1e-9).astype(np.int64)).clip(1, horizon)
    return tuple(times.tolist())
