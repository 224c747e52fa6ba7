"""Two ends of a comparison on arms that agents share: the best assignment, and turns that learn nothing."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide, Policy


@dataclass(frozen=True)
class SharedOracle(Policy):
    """The best assignment of all agents to arms that they share, at every step, known from the truth: regret 0.

    Use it as the lower end of comparisons on `SharedArms-v0`, the only environment that it plays; `Oracle` is the one
    for other problems. It is no learner, since means and capacities are shown to it. Nothing is sent.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/SharedArms-v0", num_agents=3, num_arms=4, max_cycles=200)
    >>> float(fb.play(env, fb.make_policy("Shared-Oracle"), seed=0).total_regret()[-1])
    0.0
    """

    observes: ClassVar[str] = "truth"
    shares_arms: ClassVar[bool] = True

    def agents(self, view: View) -> "SharedOracleAgents":
        """Agents that know their places."""
        return SharedOracleAgents(view)


class SharedOracleAgents(AgentSide):
    """Agents that stay on the arm which the best assignment has for them."""

    def __init__(self, view: View):
        self.view = view

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """A step on the arm of the best assignment."""
        assert self.view.truth is not None
        return Plan.play(self.view.truth.argmax(axis=1), self.view.constants.num_arms)

    def report(self, feedback: Feedback) -> None:
        """Nothing is reported."""


@dataclass(frozen=True)
class SharedUniform(Policy):
    """All arms in turn, with one agent on an arm, whatever they pay: regret grows linearly.

    Use it as the upper end of comparisons on `SharedArms-v0`, the only environment that it plays; `Uniform` is the one
    for other problems. At step t agent m is on arm (m + t) mod K, so no arm is ever overfull, and none is shared.
    Nothing is sent.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/SharedArms-v0", num_agents=3, num_arms=4, max_cycles=200)
    >>> fb.play(env, fb.make_policy("Shared-Uniform"), seed=0).pulls[-1]
    array([[50, 50, 50, 50],
           [50, 50, 50, 50],
           [50, 50, 50, 50]])
    """

    shares_arms: ClassVar[bool] = True

    def agents(self, view: View) -> "SharedUniformAgents":
        """Agents that go from arm to arm."""
        return SharedUniformAgents(view)


class SharedUniformAgents(AgentSide):
    """Agents that go from arm to arm."""

    def __init__(self, view: View):
        self.view = view
        self.turns = 0  # the steps so far

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """A step on the next arm."""
        num_arms = self.view.constants.num_arms
        arm = (self.view.agents + self.turns) % num_arms
        self.turns += 1
        return Plan.play(np.asarray(arm, dtype=np.int64), num_arms)

    def report(self, feedback: Feedback) -> None:
        """Nothing is reported."""
