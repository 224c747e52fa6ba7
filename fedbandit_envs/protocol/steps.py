"""Agents that decide at each step."""

from abc import abstractmethod
from typing import Any

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan, ProtocolError
from fedbandit_envs.protocol.policy import AgentSide


class StepAgents(AgentSide):
    """Agents that decide at each step and never speak: `choose` and `learn` are all that they need.

    A run then asks them step by step, without a turn of the four verbs for most; it is the same run, in less time. Who
    overrides `plan` or `report` is asked through these. What a wrapper made exploration of is not learnt.
    """

    def __init__(self, view: View):
        self.view = view

    def __getattr__(self, name: str) -> Any:
        """Only asked for what is not there."""
        if name == "view":
            raise AttributeError(
                f"{type(self).__name__}.view: expected the view of its agents, got none; call super().__init__(view) "
                "first in __init__"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @abstractmethod
    def choose(self) -> IntArray:
        """(n,) the arms of the next step, as whole numbers."""

    @abstractmethod
    def learn(self, arm: IntArray, pulls: IntArray, rewards: FloatArray) -> None:
        """Each agent has pulled its `arm` (n,) as often as `pulls` (n,) says, once as a rule, for `rewards` (n,)."""

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """One step."""
        return Plan.play(self.checked(self.choose()), self.view.constants.num_arms)

    def checked(self, chosen: object) -> IntArray:
        """(n,) what `choose` returned, if these are arms."""
        n, num_arms, where = len(self.view.agents), self.view.constants.num_arms, f"{type(self).__name__}.choose"
        if not isinstance(chosen, np.ndarray) or chosen.shape != (n,) or chosen.dtype.kind not in "iu":
            came = f"{chosen.dtype} of shape {chosen.shape}" if isinstance(chosen, np.ndarray) else f"{chosen!r:.80}"
            raise ProtocolError(
                f"{where}: expected an array of {n} whole numbers, the arm of each agent, got {came}; return an argmax "
                "over the arms, for example, or np.array(arms)"
            )
        if not 0 <= chosen.min() <= chosen.max() < num_arms:
            raise ProtocolError(
                f"{where}: expected arms from 0 to {num_arms - 1}, got {chosen.min()} to {chosen.max()}; arms count "
                "from 0"
            )
        return chosen

    def report(self, feedback: Feedback) -> Message | None:
        """Learn from the step; say nothing."""
        self.learn(feedback.arm, feedback.played, feedback.played_sums)
        return None
