"""What a block of agents has pulled, now and at the checkpoints of a run."""

from bisect import bisect_right
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray, read_only
from fedbandit_envs.problems.segments import Segment, summed_regrets
from fedbandit_envs.protocol.plans import Feedback
from fedbandit_envs.protocol.policy import AgentSide
from fedbandit_envs.protocol.pull_tables import places
from fedbandit_envs.rounds.count_tables import CountTables
from fedbandit_envs.rounds.history import checkpoint_times


class Marks(NamedTuple):
    """How n agents stand, in whole numbers (n,) each."""

    active: IntArray  #: the number of arms that each agent still considers
    admitted: IntArray  #: 1 for agents that take part, 0 for those that are not admitted yet
    recommended: IntArray  #: the arm that each agent takes for the best, -1 for none


class Checkpoints:
    """Cumulative pulls of n agents; one is taken when a plan ends past the next time of a grid over the horizon."""

    def __init__(self, horizon: int, num_agents: int, num_arms: int):
        kind = np.int32 if horizon < 2**31 else np.int64  # no count is larger than the horizon
        self.pulls: IntArray = np.zeros((num_agents, num_arms), dtype=kind)  # (n, K) so far
        self._times = checkpoint_times(horizon)
        self._next = 0  # the place of the next time in the grid
        self._taken: list[tuple[int, Marks]] = []
        # (kinds, n) so far, if contexts change; until then zeros that take no memory.
        self.regret: FloatArray = np.broadcast_to(0.0, (len(summed_regrets()), num_agents))
        self._regrets: list[FloatArray] = []
        self._changing = False  # whether there is any regret to sum up
        self._tables = CountTables(np.broadcast_to(kind(0), (num_agents, num_arms)))  # zeros that take no memory
        self._mark_kind = np.min_scalar_type(-1 - num_arms)  # no mark is larger than K

    def add(self, feedback: Feedback, segment: Segment | None = None) -> None:
        """Count what was pulled, in `segment` if contexts change."""
        pulls = feedback.pulls()
        self.pulls += pulls
        if segment is not None:
            self._changing = True
            self.regret = self.regret + segment.regret(pulls)

    def add_arms(self, arms: IntArray, costs: FloatArray | None = None) -> None:
        """Count one pull of each of `arms` (steps, n), each with its `costs` (steps, kinds, n) if contexts change."""
        shape = self.pulls.shape
        if costs is not None and len(costs):
            self._changing = True
            # A running sum adds step after step, as turns do; a plain sum may add in another order.
            self.regret = np.cumsum(np.concatenate([self.regret[None], costs]), axis=0)[-1]
        self.pulls += np.bincount(places(arms, shape[1]).ravel(), minlength=self.pulls.size).reshape(shape)

    @property
    def next_time(self) -> int:
        """The next time of the grid: a checkpoint is due once it is reached. It is always ahead of the last one."""
        return self._times[self._next]

    def take(self, step: int, marks: Marks) -> None:
        """Write down the pulls, and how the agents stand."""
        kept: list[Any] = [mark if mark.strides == (0,) else mark.astype(self._mark_kind) for mark in marks]
        self._taken.append((step, Marks(*kept)))
        self._tables.add(self.pulls)
        if self._changing:
            self._regrets.append(self.regret.copy())
        self._next = bisect_right(self._times, step)

    def arrays(self) -> tuple[IntArray, CountTables, Marks]:
        """Steps (C,), pulls (n, K) for each of them, and how the agents stood (C, n); all but the steps are read-only.

        The pulls are most of what a run leaves, and are not copied.
        """
        steps = np.array([step for step, _ in self._taken], dtype=np.int64)
        marks = Marks(*(self._stacked([own[place] for _, own in self._taken]) for place in range(len(Marks._fields))))
        return steps, self._tables.copy(), marks

    def _stacked(self, marks: list[IntArray]) -> IntArray:
        """(C, n) one mark of all checkpoints; it takes no memory where all agents have the same."""
        if all(mark.strides == (0,) for mark in marks) and len({int(mark[0]) for mark in marks}) == 1:
            return np.broadcast_to(marks[0][:1].astype(np.int64), (len(marks), len(self.pulls)))
        return read_only(np.array(marks, dtype=np.int64).reshape(-1, len(self.pulls)))

    def snapshot(self) -> dict[str, Any]:
        """The state as plain arrays."""
        steps, tables, marks = self.arrays()
        state = {"now": self.pulls.copy(), "steps": steps, "pulls": tables.tree(), **marks._asdict()}
        return state | {"regret_now": self.regret.copy(), "regret": self.regrets()}

    def regrets(self) -> FloatArray:
        """(C, kinds, n) the regret at each checkpoint, where contexts change."""
        return np.array(self._regrets).reshape(len(self._regrets), *self.regret.shape)

    def summed(self) -> dict[str, FloatArray]:
        """(C, n) the regret at each checkpoint by kind, where contexts change."""
        regrets = self.regrets()
        return {kind: regrets[:, number] for number, kind in enumerate(summed_regrets())}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state; the other side of `snapshot`."""
        self.pulls[:] = state["now"]
        marks = zip(*(state[name] for name in Marks._fields), strict=True)
        self._taken = [
            (int(step), Marks(*(mark.astype(self._mark_kind) for mark in own)))
            for step, own in zip(state["steps"], marks, strict=True)
        ]
        self._tables = CountTables.from_tree(state["pulls"])
        self.regret, self._regrets = state["regret_now"].copy(), list(state["regret"])
        self._changing = bool(self._regrets)
        if self._taken:
            self._next = bisect_right(self._times, self._taken[-1][0])


def marks_of(side: AgentSide, num_agents: int, num_arms: int) -> Marks:
    """How the agents of a block stand; they consider all K arms unless they eliminate some."""
    return Marks(
        _every(num_arms, num_agents) if side.active is None else np.add.reduce(side.active, axis=1),
        _every(1, num_agents) if side.admitted is None else side.admitted.astype(np.int64),
        _every(-1, num_agents) if side.recommended is None else side.recommended.astype(np.int64),
    )


@cache
def _every(value: int, num_agents: int) -> IntArray:
    """The same mark for all agents: a view (n,) of one number, which nobody can write to."""
    return np.broadcast_to(np.int64(value), (num_agents,))
