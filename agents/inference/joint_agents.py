"""Agents that tell the server their law of contexts and their mean rewards, and hear their own posterior."""

import numpy as np

from fedbandit_agents.inference.context_bias import Bias
from fedbandit_agents.inference.context_inference import ContextInference
from fedbandit_agents.inference.expectation_propagation import upper_triangles
from fedbandit_agents.inference.inferring_agents import InferringAgents
from fedbandit_agents.inference.posterior import Belief
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message

# The mean reward of an arm is worth sending again when the arm has this share of pulls more.
_NEWS = 0.1


def shares_context(view: View) -> bool:
    """Whether contexts are hidden and fixed, and one normal vector moves all arms of an agent."""
    return view.constants.context == "fixed" and view.distribution.common_root(view.feature_map) is not None


def shared_columns(num_arms: int, d: int) -> int:
    """The number of factors by which the server tells an agent the covariance of its mean rewards."""
    return min(num_arms, 2 * d)


class JointAgents(InferringAgents):
    """Agents that report mean rewards, and mu until they are answered; a subclass says in `chosen` how they play.

    An answer is a belief about the own mean rewards that holds all that was reported. Rewards since then are added.
    """

    def __init__(self, policy: ContextInference, view: View):
        n, num_arms, d = view.psi.shape
        self.answered: BoolArray = np.zeros(n, dtype=np.bool_)
        # The last answer: the mean, the variance that each arm has of its own, and the factors that arms share.
        self.given_mean: FloatArray = np.zeros((n, num_arms))
        self.given_variance: FloatArray = np.zeros((n, num_arms))
        self.given_factors: FloatArray = np.zeros((n, num_arms, shared_columns(num_arms, d)))
        # The pulls and rewards that were reported, and those among them that the last answer holds.
        self.sent_pulls: IntArray = np.zeros((n, num_arms), dtype=np.int64)
        self.sent_sums: FloatArray = np.zeros((n, num_arms))
        self.held_pulls: IntArray = np.zeros((n, num_arms), dtype=np.int64)
        self.held_sums: FloatArray = np.zeros((n, num_arms))
        super().__init__(policy, view)

    def prior_belief(self, view: View, rows: slice, bias: Bias) -> tuple[Belief, FloatArray]:
        """What mu and the prior of theta say; an answer does not tell how much of its variance is due to theta."""
        belief, uncertain = super().prior_belief(view, rows, bias)
        return belief, np.where(self.answered[rows, None], 0, uncertain)

    def prior(self, rows: slice) -> Belief:
        """The last answer; agents that have none believe what mu and the prior of theta say."""
        alone, answered = super().prior(rows), self.answered[rows, None, None]
        width = self.given_factors.shape[2]
        factors = np.zeros((*alone.variance.shape, max(width, alone.factors.shape[3])))
        factors[..., : alone.factors.shape[3]] = alone.factors
        given = np.zeros(factors[:, :1].shape)
        given[:, 0, :, :width] = self.given_factors[rows]
        certain = np.full(alone.log_weights.shape[1], -np.inf)
        certain[0] = 0
        return Belief(
            np.where(answered[..., 0], certain, alone.log_weights),
            np.where(answered, self.given_mean[rows, None], alone.mean),
            np.where(answered, self.given_variance[rows, None], alone.variance),
            np.where(answered[..., None], given, factors),
        )

    def posterior(self, rows: slice = slice(None)) -> Belief:
        """The belief given all rewards so far: those that the last answer does not hold are added to it."""
        pulls, sums = self.pulls[rows] - self.held_pulls[rows], self.sums[rows] - self.held_sums[rows]
        return self.prior(rows).given(pulls, sums, self.noise[rows])

    def _learn(self, down: Message) -> None:
        """Take over the prior of theta, or the answers to these agents."""
        if down.kind == "prior":
            super()._learn(down)
            return
        assert down.agents is not None
        mine = np.isin(self.view.agents, down.agents)
        self.answered = self.answered | mine
        self.given_mean, self.given_variance = self.given_mean.copy(), self.given_variance.copy()
        self.given_factors = self.given_factors.copy()
        self.given_mean[mine], self.given_variance[mine] = down["mean"], down["variance"]
        self.given_factors[mine] = down["factors"]
        self.held_pulls = np.where(mine[:, None], self.sent_pulls, self.held_pulls)
        self.held_sums = np.where(mine[:, None], self.sent_sums, self.held_sums)
        if "sigma" in down.arrays:
            self.sigma = self.sigma.copy()
            self.sigma[mine] = down["sigma"]

    def news(self) -> Message | None:
        """The pulls and mean rewards of arms with many new pulls, and mu until the server has answered."""
        changed = self.pulls > (1 + _NEWS) * self.sent_pulls
        self.sent_pulls = np.where(changed, self.pulls, self.sent_pulls)
        self.sent_sums = np.where(changed, self.sums, self.sent_sums)
        spoken = np.flatnonzero(changed.any(axis=1))
        if not len(spoken):
            return None
        root = self.view.distribution.common_root(self.view.feature_map)
        assert root is not None
        covariance = np.broadcast_to(np.einsum("ndq,neq->nde", root, root), (len(changed), *root.shape[1:2] * 2))
        arrays = {
            "pulls": self.sent_pulls,
            "means": self.sent_sums / self.sent_pulls.clip(min=1),
            "psi": self.view.psi,
            "covariance": upper_triangles(covariance),
        }
        first = ~self.answered
        present = {"pulls": changed, "means": changed, "psi": first, "covariance": first}
        if self.policy.estimate_sigma:
            arrays["residuals"] = self.residuals
        message = Message("rewards", arrays, self.view.agents, present)
        return message if len(spoken) == len(changed) else message.rows(spoken)
