"""Fed-CI-Elimination: phased elimination as in Fed-PECD, with the widths of the inferred posterior."""

import math
from dataclasses import dataclass

import numpy as np

from fedbandit_agents.context_inference import ContextInference, InferringAgents
from fedbandit_agents.posterior import Belief
from fedbandit_envs.knowledge import Constants, View
from fedbandit_envs.protocol import Plan
from fedbandit_envs.validation import BoolArray, probability


@dataclass(frozen=True)
class FedCIElimination(ContextInference):
    """Federated context inference, cautious: arms are eliminated only by intervals that hold for the hidden context.

    All intervals of a run hold with probability 1 - delta if mu_i, the noise and its scale are right: a Bayesian
    statement, over contexts drawn from mu_i; nothing is proved for a given context.
    """

    delta: float = 0.1  # allowed probability that some interval fails

    def __post_init__(self) -> None:
        super().__post_init__()
        probability("delta", self.delta)

    def number_of_plans(self, constants: Constants) -> int:
        """At most so many plans follow the first one."""
        phases = math.log(max(constants.horizon / self.first_plan(constants), 1), self.growth)
        return self.batches * max(1, math.ceil(phases))

    def agents(self, view: View) -> "EliminatingAgents":
        """Infer, eliminate, explore, report."""
        return EliminatingAgents(self, view)


class EliminatingAgents(InferringAgents):
    """Each plan drops arms whose upper end is below another one's lower end, and pulls the others equally often."""

    policy: FedCIElimination

    def __init__(self, policy: FedCIElimination, view: View):
        super().__init__(policy, view)
        constants, (n, components, num_arms) = view.constants, self.mean.shape
        # Half of delta is for the intervals of the components, half for the components that are left out.
        events = constants.num_agents * policy.number_of_plans(constants)
        self.alpha = math.sqrt(2 * math.log(2 * num_arms * events / policy.delta))
        self.ignored = policy.delta / (2 * components * events)
        self.active: BoolArray = np.ones((n, num_arms), dtype=bool)

    def chosen(self, belief: Belief, length: int, remaining: int) -> Plan:
        """Eliminate; then pull all active arms, those first that were pulled least."""
        lower, upper = belief.bounds(self.alpha, self.ignored)
        best_lower = np.where(self.active, lower, -np.inf).max(axis=1, keepdims=True)
        self.active = self.active & (upper >= best_lower)
        each, rest = np.divmod(length, self.active.sum(axis=1, keepdims=True))
        order = np.where(self.active, self.pulls, np.iinfo(np.int64).max).argsort(axis=1, kind="stable")
        rank = order.argsort(axis=1, kind="stable")
        best = np.where(self.active, belief.expected_rewards(), -np.inf).argmax(axis=1)
        return Plan(np.where(self.active, each + (rank < rest), 0), best, length)
