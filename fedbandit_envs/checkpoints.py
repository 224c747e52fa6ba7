"""When a run's pulls are written down: when a plan ends past the next time of a grid over the horizon."""

from typing import Any

import numpy as np

from fedbandit_envs.history import checkpoint_times
from fedbandit_envs.validation import BoolArray, IntArray


class Checkpoints:
    """Cumulative pulls of a block of n agents, now and at each checkpoint."""

    def __init__(self, horizon: int, num_agents: int, num_arms: int):
        self.pulls: IntArray = np.zeros((num_agents, num_arms), dtype=np.int64)
        self._times = checkpoint_times(horizon)
        self._taken: list[tuple[int, IntArray, IntArray]] = []

    def add(self, step: int, length: int, pulls: IntArray, active: BoolArray | None) -> None:
        """Count the pulls (n, K) of a plan of `length` steps that ends at `step`."""
        self.pulls += pulls
        if length and step >= self._times[0]:
            n, num_arms = self.pulls.shape
            arms = np.full(n, num_arms, dtype=np.int64) if active is None else active.sum(axis=1)
            self._taken.append((step, self.pulls.copy(), arms))
            self._times = self._times[self._times > step]

    def arrays(self) -> tuple[IntArray, IntArray, IntArray]:
        """Steps (C,), pulls (C, n, K) and the number of active arms (C, n)."""
        shape = self.pulls.shape
        return (
            np.array([step for step, _, _ in self._taken], dtype=np.int64),
            np.array([pulls for _, pulls, _ in self._taken], dtype=np.int64).reshape(-1, *shape),
            np.array([active for _, _, active in self._taken], dtype=np.int64).reshape(-1, shape[0]),
        )

    def snapshot(self) -> dict[str, Any]:
        """The state as plain arrays."""
        steps, pulls, active = self.arrays()
        return {"now": self.pulls.copy(), "steps": steps, "pulls": pulls, "active": active}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state; the other side of `snapshot`."""
        self.pulls[:] = state["now"]
        self._taken = [
            (int(step), pulls, active)
            for step, pulls, active in zip(state["steps"], state["pulls"], state["active"], strict=True)
        ]
        if self._taken:
            self._times = self._times[self._times > self._taken[-1][0]]
