"""Two ends of every comparison: an oracle that knows the best arm, and uniform play."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide, Policy


@dataclass(frozen=True)
class Oracle(Policy):
    """The best arm of each agent at every step, known from the truth: regret 0.

    Use it as the lower end of every comparison, and to test environments and figures. It is no learner, since it is
    shown the true mean rewards. Nothing is sent.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Oracle"), seed=0)
    >>> round(float(history.mean_regret()[-1]))  # per agent
    0
    """

    observes: ClassVar[str] = "truth"

    def agents(self, view: View) -> "OracleAgents":
        """Agents that know the truth."""
        return OracleAgents(view)


class OracleAgents(AgentSide):
    """Agents that know the true mean rewards, and make one plan to the horizon."""

    def __init__(self, view: View):
        self.view = view

    def observe(self, view: View) -> None:
        """Keep what is shown from now on."""
        self.view = view

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """A plan that plays the best arm until the end."""
        assert self.view.truth is not None
        return Plan.play(self.view.truth.argmax(axis=1), self.view.constants.num_arms, remaining)

    def report(self, feedback: Feedback) -> None:
        """Nothing is reported."""


@dataclass(frozen=True)
class Uniform(Policy):
    """All arms equally often, whatever the rewards: regret grows linearly.

    Use it as the upper end of every comparison: a policy that does worse than this has been misled. Nothing is sent.
    Aggregates over problems divide by its regret, unless they are told another reference.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Uniform"), seed=0)
    >>> round(float(history.mean_regret()[-1]))  # per agent
    58
    """

    def agents(self, view: View) -> "UniformAgents":
        """Agents that learn nothing."""
        return UniformAgents(view)


class UniformAgents(AgentSide):
    """Agents that play all arms equally often, a hundredth of the horizon at a time."""

    def __init__(self, view: View):
        self.view = view
        self.turns = 0  # the plans of one step so far

    def observe(self, view: View) -> None:
        """Keep what is shown from now on."""
        self.view = view

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """A plan of about a hundredth of the horizon with each arm equally often; one step where contexts change."""
        n, num_arms = len(self.view.agents), self.view.constants.num_arms
        each = max(1, self.view.constants.horizon // (100 * num_arms))
        if self.view.valid is None:
            return Plan.explore_each(each, n, num_arms)
        arm = np.full(n, self.turns % num_arms)  # contexts change, which would cut longer plans unevenly
        self.turns += 1
        return Plan.play(arm, num_arms)

    def report(self, feedback: Feedback) -> None:
        """Nothing is reported."""
