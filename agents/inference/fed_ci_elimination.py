"""Fed-CI-Elimination: phased elimination as in Fed-PECD, with the widths of the inferred posterior."""

import math
from dataclasses import dataclass

import numpy as np

from fedbandit_agents.inference.context_inference import ContextInference, InferringAgents
from fedbandit_agents.inference.posterior import Belief
from fedbandit_agents.phased.estimation import number_of_phases
from fedbandit_envs.arrays import BoolArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.plans import Plan
from fedbandit_envs.ties import first_largest
from fedbandit_envs.validation import checked, probability


@dataclass(frozen=True)
class FedCIElimination(ContextInference):
    """Federated context inference, cautious: an arm is eliminated only when another one is surely better.

    Use it in place of Fed-CI where a wrong elimination costs more than exploration. It bounds the difference of each
    arm to the arm that looks best, which is known better than either mean reward, because the hidden context moves
    both. If mu_i, the noise and its scale are right, all bounds of a run hold with probability 1 - delta over contexts
    drawn from mu_i; nothing is proved for one given context. Agents send what those of Fed-CI send.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Fed-CI-Elimination"), seed=0)
    >>> history.ledger.rounds
    4
    """

    delta: float = checked(0.1, probability)  #: allowed probability that some bound of a run fails

    def number_of_plans(self, constants: Constants) -> int:
        """An upper bound on the number of plans after the first one."""
        first_plans = -(-constants.horizon // self.first_plan(constants))  # so many would fill the horizon
        return self.batches * number_of_phases(first_plans, self.growth)

    def agents(self, view: View) -> "EliminatingAgents":
        """Agents that infer their context and eliminate arms."""
        return EliminatingAgents(self, view)


class EliminatingAgents(InferringAgents):
    """Agents of Fed-CI-Elimination.

    Each plan drops the arms that are surely worse than the arm that looks best, and pulls the others equally often.
    """

    policy: FedCIElimination

    def __init__(self, policy: FedCIElimination, view: View):
        super().__init__(policy, view)
        constants, (n, components, num_arms) = view.constants, self.mean.shape
        # One half of delta is for the bounds within components, since P(z > alpha) <= exp(-alpha^2 / 2) / 2. The other
        # half is for the components that are ignored.
        events = constants.num_agents * policy.number_of_plans(constants)
        self.alpha = math.sqrt(2 * math.log(num_arms * events / policy.delta))
        self.ignored = policy.delta / (2 * components * events)
        self.active: BoolArray = np.ones((n, num_arms), dtype=bool)

    def chosen(self, belief: Belief, length: int, remaining: int) -> Plan:
        """A plan that pulls all arms that are still active equally often, the least pulled first."""
        best = self.looks_best(belief)
        self.active = self.active & (belief.most_above(best, self.alpha, self.ignored) >= 0)
        each, rest = np.divmod(length, self.active.sum(axis=1, keepdims=True))
        order = np.where(self.active, self.pulls, np.iinfo(np.int64).max).argsort(axis=1, kind="stable")
        rank = order.argsort(axis=1, kind="stable")
        return Plan(np.where(self.active, each + (rank < rest), 0), best, length)

    def looks_best(self, belief: Belief) -> IntArray:
        """The active arm with the largest expected reward, (n,)."""
        return first_largest(np.where(self.active, belief.expected_rewards(), -np.inf))
