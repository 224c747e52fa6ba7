"""The server of context inference that is told all mu and mean rewards, and answers with the agents' own posteriors."""

import numpy as np

from fedbandit_agents.inference.context_inference import ContextInference
from fedbandit_agents.inference.expectation_propagation import full
from fedbandit_agents.inference.joint_agents import shared_columns
from fedbandit_agents.inference.joint_posterior import JointPosterior, MeanRewards
from fedbandit_agents.inference.site_server import ROUNDING, SiteServer
from fedbandit_envs.arrays import BoolArray, FloatArray
from fedbandit_envs.contexts.roots import eigen, inverse_root, matrix_root
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import ServerSide

# The most entries of the agents' information that are held in memory at a time.
_MOST_ENTRIES = 2**21
# The least noise scale, in units of the width of the prior of theta.
_LEAST_SIGMA = 1e-4


class JointServer(SiteServer):
    """A server for all kinds of reports; from mean rewards and mu it finds the joint posterior of all theta.

    It refuses reports that can't be, and takes all others at their word.
    """

    def __init__(self, policy: ContextInference, constants: Constants):
        super().__init__(policy, constants)
        M, num_arms, d = constants.num_agents, constants.num_arms, constants.dim
        self.theta: FloatArray = np.zeros((num_arms, d))  # the theta at which the posterior was highest
        # What agents have told; nothing of this is kept until they do.
        self.known: BoolArray = np.zeros(M, dtype=np.bool_)  # whether mu was told
        self.pulls: FloatArray = np.zeros((M, 0))
        self.means: FloatArray = np.zeros((M, 0))
        self.psi: FloatArray = np.zeros((M, 0, d))
        self.covariance: FloatArray = np.zeros((M, 0, 0))

    def answer(self, up: Message) -> Message | None:
        """To each agent that has spoken, what all rewards say about its own mean rewards."""
        if up.kind != "rewards":
            return super().answer(up)
        assert up.agents is not None
        self._keep(up)
        sigma = self.told_sigma(up) if self.policy.estimate_sigma else None
        noise = self.policy.assumed_sigma(self.constants) if sigma is None else sigma.item()
        with np.errstate(divide="ignore"):
            variance = max(noise, _LEAST_SIGMA * self.width) ** 2 / np.where(self.known[:, None], self.pulls, 0)
        rewards = MeanRewards(self.psi, matrix_root(self.covariance), self.means, variance)
        precision = np.eye(self.constants.dim) / self.width**2
        rows = max(1, _MOST_ENTRIES // self.theta.size**2)
        posterior = JointPosterior(rewards, precision, self.centre / self.width**2, rows)
        starts = (self.theta, self._regression(posterior))
        self.theta = posterior.highest(max(starts, key=posterior.height))
        answered = up.agents[self.known[up.agents]]
        if not len(answered):
            return None
        columns = shared_columns(*self.theta.shape)
        mean, own, factors = (each[answered] for each in posterior.of_agents(self.theta, columns))
        arrays = {"mean": mean, "variance": own, "factors": factors}
        if sigma is not None:
            arrays["sigma"] = np.full((len(answered), 1), sigma)
        return Message("own", arrays, answered)

    def refuses(self, up: Message) -> dict[int, str]:
        """Reports with impossible pulls, with features longer than any, or with covariances that are none."""
        if up.kind != "rewards":
            return super().refuses(up)
        found = ServerSide.refuses(self, up)
        assert up.agents is not None
        usable = ~np.isin(up.agents, list(found))
        values, _ = eigen(full(np.where(usable[:, None], up["covariance"], 0), self.constants.dim))
        wrong = values.min(axis=1) < -ROUNDING * values.max(axis=1).clip(min=0)
        wrong |= (up["pulls"] < 0).any(axis=1) | (up["pulls"].sum(axis=1) > self.constants.horizon)
        if self.constants.longest is not None:
            longest = self.constants.longest * (1 + ROUNDING)
            wrong |= (np.einsum("nad,nad->na", up["psi"], up["psi"]) > longest**2).any(axis=1)
        if "residuals" in up.arrays:
            wrong |= up["residuals"][:, 1] < 0
        return dict.fromkeys(up.agents[wrong].tolist(), "sent pulls, features or variances that can't be") | found

    def _keep(self, up: Message) -> None:
        """Keep what a message tells."""
        assert up.agents is not None
        M, (num_arms, d) = len(self.known), self.theta.shape
        if not self.pulls.shape[1]:
            self.pulls, self.means = np.zeros((M, num_arms)), np.zeros((M, num_arms))
            self.psi, self.covariance = np.zeros((M, num_arms, d)), np.zeros((M, d, d))
        rows, arms = np.nonzero(up.present["pulls"])
        self.pulls[up.agents[rows], arms] = up["pulls"][rows, arms]
        self.means[up.agents[rows], arms] = up["means"][rows, arms]
        arrived = up.present["psi"]
        self.psi[up.agents[arrived]] = up["psi"][arrived]
        self.covariance[up.agents[arrived]] = full(up["covariance"][arrived], d)
        self.known[up.agents[arrived]] = True

    def _regression(self, posterior: JointPosterior) -> FloatArray:
        """A first theta (K, d), arm by arm: the regression on psi, in which the bias counts as noise."""
        bias = np.einsum("mdd->m", self.covariance)[:, None] * self.width**2
        weights = 1 / (posterior.rewards.variance + bias)
        precision = np.einsum("mad,mae->ade", weights[..., None] * self.psi, self.psi) + posterior.precision
        shift = np.einsum("ma,mad->ad", weights * self.means, self.psi) + posterior.shift
        root = inverse_root(precision)
        return np.einsum("axd,ax->ad", root, np.einsum("axe,ae->ax", root, shift))
