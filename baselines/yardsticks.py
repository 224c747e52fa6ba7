"""Two ends of every comparison: an oracle that knows the best arm, and uniform play."""

from dataclasses import dataclass
from typing import ClassVar

from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide, Policy


@dataclass(frozen=True)
class Oracle(Policy):
    """Plays the truly best arm of each agent: regret 0."""

    observes: ClassVar[str] = "truth"

    def agents(self, view: View) -> "OracleAgents":
        """Agents that know the truth."""
        return OracleAgents(view)


class OracleAgents(AgentSide):
    """One plan to the horizon."""

    def __init__(self, view: View):
        self.view = view

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """The best arm until the end."""
        assert self.view.truth is not None
        return Plan.play(self.view.truth.argmax(axis=1), self.view.constants.num_arms, remaining)

    def report(self, feedback: Feedback) -> None:
        """Nothing to say."""


@dataclass(frozen=True)
class Uniform(Policy):
    """Pulls the arms in turn: regret grows linearly."""

    def agents(self, view: View) -> "UniformAgents":
        """Agents that learn nothing."""
        return UniformAgents(view)


class UniformAgents(AgentSide):
    """All arms equally often, a piece of the horizon at a time."""

    def __init__(self, view: View):
        self.view = view

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """Each arm equally often in a hundredth of the horizon."""
        n, num_arms = len(self.view.agents), self.view.constants.num_arms
        each = max(1, self.view.constants.horizon // (100 * num_arms))
        return Plan.explore_each(each, n, num_arms)

    def report(self, feedback: Feedback) -> None:
        """Nothing to say."""
