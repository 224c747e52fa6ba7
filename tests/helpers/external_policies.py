"""A policy of one function that worker processes can import."""

from dataclasses import dataclass
from typing import Any

from fedbandit_agents import ExternalPolicy


@dataclass(frozen=True)
class Greedy(ExternalPolicy):
    """The arm of the largest mean reward so far, of which those never pulled are taken to have `unseen`."""

    observation: str = "distribution+statistics"
    unseen: float = 10.0

    def act(self, observations: Any) -> Any:
        return (observations["rewards"] + self.unseen * (observations["pulls"] == 0)).argmax(axis=1)
