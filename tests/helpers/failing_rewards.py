"""A reward source that a client of the tests names: the simulation, but its first pull fails."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbandit_envs import Feedback, Plan
from fedbandit_envs.arrays import IntArray
from fedbandit_envs.federation.sources import SimulatedRewards


class FailsOnce(SimulatedRewards):
    def __init__(self, agents: IntArray, settings: Mapping[str, Any]):
        super().__init__(agents, settings)
        self._mark = Path(str(settings["folder"])) / "failed"

    def pull(self, plan: Plan, number: int) -> Feedback:
        if not self._mark.exists():
            self._mark.parent.mkdir(parents=True, exist_ok=True)
            self._mark.touch()
            raise RuntimeError("the till is closed")
        return super().pull(plan, number)
