"""What a block of agents has pulled, now and at the checkpoints of a run."""

from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray, read_only
from fedbandit_envs.problems.segments import Segment, summed_regrets
from fedbandit_envs.protocol.plans import Feedback
from fedbandit_envs.protocol.policy import AgentSide
from fedbandit_envs.protocol.pull_tables import places
from fedbandit_envs.rounds.history import checkpoint_times


class Marks(NamedTuple):
    """How n agents stand, in whole numbers (n,) each."""

    active: IntArray  #: the number of arms that each agent still considers
    admitted: IntArray  #: 1 for agents that take part, 0 for those that are not admitted yet
    recommended: IntArray  #: the arm that each agent takes for the best, -1 for none


class Checkpoints:
    """Cumulative pulls of n agents; one is taken when a plan ends past the next time of a grid over the horizon."""

    def __init__(self, horizon: int, num_agents: int, num_arms: int):
        self.pulls: IntArray = np.zeros((num_agents, num_arms), dtype=np.int64)  # (n, K) so far
        self._times = checkpoint_times(horizon)
        self._next = 0  # the place of the next time in the grid
        self._taken: list[tuple[int, IntArray, Marks]] = []
        self.regret: FloatArray = np.zeros((len(summed_regrets()), num_agents))  # (kinds, n) so far, if contexts change
        self._regrets: list[FloatArray] = []

    def add(self, feedback: Feedback, segment: Segment | None = None) -> None:
        """Count what was pulled, in `segment` if contexts change."""
        pulls = feedback.pulls()
        self.pulls += pulls
        if segment is not None:
            self.regret += segment.regret(pulls)

    def add_arms(self, arms: IntArray, costs: FloatArray | None = None) -> None:
        """Count one pull of each of `arms` (steps, n), each with its `costs` (steps, kinds, n) if contexts change."""
        shape = self.pulls.shape
        if costs is not None and len(costs):
            # A running sum adds step after step, as turns do; a plain sum may add in another order.
            self.regret = np.cumsum(np.concatenate([self.regret[None], costs]), axis=0)[-1]
        self.pulls += np.bincount(places(arms, shape[1]).ravel(), minlength=self.pulls.size).reshape(shape)

    @property
    def next_time(self) -> int:
        """The next time of the grid: a checkpoint is due once it is reached. It is always ahead of the last one."""
        return self._times[self._next]

    def take(self, step: int, marks: Marks) -> None:
        """Write down the pulls, and how the agents stand."""
        self._taken.append((step, self.pulls.copy(), marks))
        self._regrets.append(self.regret.copy())
        self._next = bisect_right(self._times, step)

    def arrays(self) -> tuple[IntArray, IntArray, Marks]:
        """Steps (C,), pulls (C, n, K) and how the agents stood (C, n); the pulls are read-only.

        The pulls are most of what a run leaves, so they move into one array instead of being there twice.
        """
        pulls = np.empty((len(self._taken), *self.pulls.shape), dtype=np.int64)
        for place, (step, own, marks) in enumerate(self._taken):
            pulls[place] = own
            self._taken[place] = (step, pulls[place], marks)
        taken = np.array([marks for _, _, marks in self._taken], dtype=np.int64)  # (C, 3, n)
        by_name = taken.reshape(-1, len(Marks._fields), len(self.pulls)).transpose(1, 0, 2)
        steps = np.array([step for step, _, _ in self._taken], dtype=np.int64)
        return steps, read_only(pulls), Marks(*(np.ascontiguousarray(mark) for mark in by_name))

    def snapshot(self) -> dict[str, Any]:
        """The state as plain arrays."""
        steps, pulls, marks = self.arrays()
        state = {"now": self.pulls.copy(), "steps": steps, "pulls": pulls, **marks._asdict()}
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
            (int(step), pulls, Marks(*own))
            for step, pulls, own in zip(state["steps"], state["pulls"], marks, strict=True)
        ]
        self.regret, self._regrets = state["regret_now"].copy(), list(state["regret"])
        if self._taken:
            self._next = bisect_right(self._times, self._taken[-1][0])


def marks_of(side: AgentSide, num_agents: int, num_arms: int) -> Marks:
    """How the agents of a block stand; they consider all K arms unless they eliminate some."""

    def every(value: int) -> IntArray:
        return np.full(num_agents, value, dtype=np.int64)

    return Marks(
        every(num_arms) if side.active is None else np.add.reduce(side.active, axis=1),
        every(1) if side.admitted is None else side.admitted.astype(np.int64),
        every(-1) if side.recommended is None else side.recommended.astype(np.int64),
    )
