"""Weighted-DisLinUCB: DisLinUCB that trusts a reward by how well its context is known."""

from dataclasses import dataclass

import numpy as np

from fedbandit_agents.linear.ridge import from_sums
from fedbandit_agents.linear.spread import hidden_variances, spanning
from fedbandit_baselines.linear.agents import StepData
from fedbandit_baselines.linear.sharing import AddingServer, DeterminantAgents, DeterminantPolicy
from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.protocol.knowledge import ServerView, View
from fedbandit_envs.protocol.steps import Outcome


@dataclass(frozen=True)
class WeightedDisLinUCB(DeterminantPolicy):
    """DisLinUCB with a weighted regression: what an agent is shown says how noisy each of its rewards is.

    Use it where some contexts are known much better than others. A reward whose context is uncertain has a small
    weight, and the scale of the bounds is sigma. Where all contexts are known all weights are 1, and it is DisLinUCB.
    Contexts that are hidden and stay the same bias its bounds as they bias those of DisLinUCB.
    No bound on its regret is proved. The bounds take Gaussian laws for granted, and a theta that is known well enough.
    Reference: none; weighted least squares is common in bandits with unequal noise, for example in Kirschner and
    Krause, Information Directed Sampling and Bandits with Heteroscedastic Noise, COLT 2018.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, context="streaming")
    >>> fb.play(env, fb.make_policy("Weighted-DisLinUCB"), seed=0).ledger.rounds
    4
    """

    def agents(self, view: View) -> "WeightedAgents":
        """Agents that share weighted sums of psi psi^T and psi y."""
        return WeightedAgents(self, view)

    def server(self, view: ServerView) -> AddingServer:
        """A server that adds up the sums of all agents."""
        return AddingServer(view.constants, on_psi=False)


class WeightedAgents(DeterminantAgents):
    """Agents of Weighted-DisLinUCB."""

    def __init__(self, policy: WeightedDisLinUCB, view: View):
        super().__init__(policy, view, policy.settings(view)._replace(scale=policy.sigma))
        self._remember(np.zeros_like(self.inverse[0]), np.zeros_like(self.moments[0]))

    def _remember(self, gram: FloatArray, moments: FloatArray) -> None:
        """Keep theta and what is not known of it, given the sums of all agents."""
        common = from_sums(gram[None], moments[None], self.regularisation)
        covariance = self.scale**2 * common.inverse[0]
        # Vectors (1 + d, K, d) whose squares add up to E[theta_a theta_a^T].
        self.vectors: FloatArray = spanning(common.theta()[0], covariance, self.view.constants.num_arms)

    def start_from(self, gram: FloatArray, moments: FloatArray) -> None:
        """Go on from the sums over all agents, whose theta gives the weights from now on."""
        super().start_from(gram, moments)
        self._remember(gram, moments)

    def observation(self, outcome: Outcome) -> StepData:
        """What a step adds to the regression, with its weight."""
        block, x, pulls, total = super().observation(outcome)
        variance = hidden_variances(self.view, self.vectors)[np.arange(len(x)), outcome.arm]
        weight = self.scale**2 / (self.scale**2 + variance)
        return StepData(block, x, pulls * weight, total * weight)
