"""Residual-LinUCB: a common linear model, and what each agent's own arms pay beyond it."""

import math
from dataclasses import dataclass

import numpy as np

from fedbandit_agents.linear.residual import residuals, without_residuals
from fedbandit_agents.linear.ridge import from_sums, predictions
from fedbandit_baselines.linear.agents import StepData
from fedbandit_baselines.linear.sharing import AddingServer, DeterminantAgents, DeterminantPolicy
from fedbandit_envs.arrays import FloatArray, IntArray, row_groups
from fedbandit_envs.protocol.knowledge import ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import AgentSide
from fedbandit_envs.protocol.steps import Outcome
from fedbandit_envs.ties import first_largest, rounding

# A residual is not this many times as large as the agent's largest mean reward and the noise together.
_MOST_MEANS = 1e3


@dataclass(frozen=True)
class ResidualLinUCB(DeterminantPolicy):
    """DisLinUCB in which each agent also learns, for each arm, by how much its hidden context changes the reward.

    Use it where contexts are hidden and never change within an episode; it refuses others. An arm then pays <theta_a,
    psi> + r, and no common model can learn the residual r of one agent and one arm, which DisLinUCB ignores. Where
    contexts are known all residuals are 0, and it decides as DisLinUCB does.
    No bound on its regret is proved.
    Reference: after the idea of Agarwal, Langford and Wei, Federated Residual Learning, 2020, arXiv:2003.12880: a
    common model plus one of each client's own. Every formula here is derived; it is not the published algorithm.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> fb.play(env, fb.make_policy("Residual-LinUCB"), seed=0).ledger.rounds
    6
    """

    def agents(self, view: View) -> "ResidualAgents":
        """Agents that share sums of psi psi^T and psi y, without their residuals."""
        return ResidualAgents(self, view)

    def server(self, view: ServerView) -> AddingServer:
        """A server that adds up the sums of all agents."""
        return AddingServer(view.constants, on_psi=False)


class ResidualAgents(DeterminantAgents):
    """Agents of Residual-LinUCB."""

    observe = AgentSide.observe  # it refuses contexts that change: a residual belongs to one context

    def __init__(self, policy: ResidualLinUCB, view: View):
        super().__init__(policy, view, policy.settings(view))
        n, num_arms, _ = view.psi.shape
        self.sigma = policy.sigma
        self.own_width = math.sqrt(2 * math.log(num_arms / policy.delta))  # a Gaussian exceeds it with delta / K
        self.pulls: FloatArray = np.zeros((n, num_arms))
        self.sums: FloatArray = np.zeros((n, num_arms))  # the sums of all own rewards
        self.sent: FloatArray = np.zeros_like(self.moments)  # (n, B, d) what was sent of the sums of psi y
        self.theta: FloatArray = np.zeros((1, self.blocks, view.constants.dim))  # the last common estimate
        self.variance: FloatArray = np.zeros((n, num_arms))  # the prior variances of the residuals

    def residuals(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The estimated residuals and their standard deviations, (n, K) each, given theta (n or 1, B, d)."""
        features = self.pulls[..., None] * self.view.psi
        own, deviation = residuals(self.pulls, self.sums, features, theta, self.variance, self.sigma)
        # A false theta would otherwise come back in what this agent sends, and spread.
        means = np.abs(self.sums / np.maximum(self.pulls, 1)).max(axis=1, keepdims=True)
        most = _MOST_MEANS * (means + self.sigma)
        return np.clip(own, -most, most), deviation

    def choose(self) -> IntArray:
        """The arm with the largest bound of the common model and the residual together."""
        means, lengths = predictions(self.ridge, self.view.psi)
        own, deviation = self.residuals(self.theta)
        means = means + own
        bonus = self.width() * lengths + self.own_width * deviation
        return first_largest(means + bonus, rounding(np.abs(means) + bonus))

    def observation(self, outcome: Outcome) -> StepData:
        """What a step adds to the common model: the rewards without the residual, as it is known by now."""
        block, x, pulls, total = super().observation(outcome)
        rows = np.arange(len(x))
        self.pulls[rows, outcome.arm] += outcome.pulls
        self.sums[rows, outcome.arm] += outcome.rewards
        own, _ = self.residuals(self.theta)
        return StepData(block, x, pulls, total - pulls * own[rows, outcome.arm])

    def news(self, rows: IntArray) -> Message:
        """The sums that were not sent yet, by the residuals as they are known now, also of what was sent before."""
        own, _ = self.residuals(self.theta)
        moments = np.empty_like(self.sent)
        for group in row_groups(len(own)):
            psi = self.view.psi[group]
            features = self.pulls[group, :, None] * psi
            found = without_residuals(self.sums[group, :, None] * psi, features, own[group])
            moments[group] = found.sum(axis=1, keepdims=True) if self.blocks == 1 else found
        new = moments - self.sent
        self.sent[rows] = moments[rows]
        return Message("new", {"gram": self.new_gram[rows], "moments": new[rows]}, self.view.agents[rows])

    def start_from(self, gram: FloatArray, moments: FloatArray) -> None:
        """Go on from the sums over all agents, whose theta gives the prior of the residuals."""
        super().start_from(gram, moments)
        self.theta = from_sums(gram[None], moments[None], self.regularisation).theta()
        if not self.view.exact:
            view, shape = self.view, (self.view.constants.num_arms, self.view.constants.dim)
            theta = np.broadcast_to(self.theta[0], shape)
            self.variance = view.distribution.reward_variances(view.feature_map, theta) + np.zeros_like(self.pulls)
