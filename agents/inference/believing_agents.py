"""Agents of context inference and what they believe about their own mean rewards."""

import numpy as np

from fedbandit_agents.inference.context_bias import (
    Bias,
    average_belief,
    bias_of,
    prior_belief,
    without_own_share,
)
from fedbandit_agents.inference.context_inference import ContextInference
from fedbandit_agents.inference.posterior import Belief
from fedbandit_agents.inference.scale import LEAST_SIGMA
from fedbandit_agents.inference.sums import groups_of, sum_along
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.plans import Feedback
from fedbandit_envs.protocol.policy import AgentSide

_FEWEST = 256  # the beliefs of so many agents at least are formed together


class BelievingAgents(AgentSide):
    """Agents that keep a belief about their own mean rewards; a subclass says what they do with it.

    Beliefs are formed group by group, and arrays are kept in the order of memory that `Belief` asks for.
    """

    def __init__(self, policy: ContextInference, view: View):
        self.policy, self.view = policy, view
        n, num_arms, d = view.psi.shape
        # The server's last estimate of theta and its covariance. Until the server has told a prior, agents believe
        # theta_a ~ N(0, scale^2 I), each with a scale of its own.
        self.told = False
        self.theta: FloatArray = np.zeros((num_arms, d))
        self.V: FloatArray = np.tile(np.eye(d), (num_arms, 1, 1))
        self.scale: FloatArray = np.ones((n, 1))
        self.sigma: FloatArray = np.full((n, 1), policy.assumed_sigma(view.constants))
        # The factor on the standard deviations of mu, which the server learns from all agents.
        self.spread: FloatArray = np.ones((n, 1))
        self.pulls: IntArray = np.zeros((n, num_arms), dtype=np.int64, order="F")  # all pulls so far
        self.sums: FloatArray = np.zeros((n, num_arms), order="F")  # the sums of their rewards
        # Two columns: the sum of squared differences between parts of plans, and the degrees of freedom.
        self.residuals: FloatArray = np.zeros((n, 2))
        # The last reports: mean rewards, their precision, and the features that they are for.
        self.reported: FloatArray = np.zeros((n, num_arms), order="F")
        self.precision: FloatArray = np.zeros((n, num_arms), order="F")
        # Whether reports are for other features than psi.
        root = None if self.resampled else view.distribution.common_root(view.feature_map)
        self.infers_features = root is not None
        self.features: FloatArray = view.psi.copy() if self.infers_features else view.psi
        # The belief before own rewards, as `Belief` has it.
        self.log_weights: FloatArray = np.zeros((n, 0))
        self.mean: FloatArray = np.zeros((n, 0, 0))
        self.variance: FloatArray = np.zeros((n, 0, 0))
        self.factors: FloatArray = np.zeros((n, 0, 0, 0))
        self.uncertain: FloatArray = np.zeros((n, 0))  # (n, K) the variance that is due to theta, which all share
        self.tau2: FloatArray = np.zeros((n, 0))  # (n, K) the variance of the bias
        self.form_prior()

    @property
    def resampled(self) -> bool:
        """Whether contexts are drawn anew at each pull: there is then no bias, but more noise."""
        return self.view.constants.context == "resampled"

    def groups(self) -> list[slice]:
        """The agents in groups whose beliefs are formed together."""
        # Before the first belief is formed nothing says how many components it has. Two are usual.
        entries = self.variance[0].size or 2 * self.pulls.shape[1]
        return groups_of(len(self.pulls), entries, least=_FEWEST)

    def seen_by(self, rows: slice) -> View:
        """What a group of agents knows."""
        return self.view if rows == slice(0, len(self.pulls)) else self.view.rows(rows)

    def form_prior(self) -> None:
        """Keep the belief before own rewards, the variance tau^2 of the bias, and the variance of one reward."""
        # Before anything is told, V is I and theta is 0: the scale is the agent's own.
        scale2 = np.ones(self.scale.shape) if self.told else self.scale**2
        for rows in self.groups():
            view, own = self.seen_by(rows), scale2[rows]
            bias = bias_of(view, self.theta, self.V)
            prior, uncertain = self.prior_belief(view, rows, bias)
            self._keep("log_weights", rows, prior.log_weights)
            self._keep("mean", rows, prior.mean)
            self._keep("variance", rows, prior.variance * own[..., None])
            self._keep("factors", rows, prior.factors)
            self._keep("uncertain", rows, uncertain * own)
            self._keep("tau2", rows, bias.variances * own * self.spread[rows] ** 2)
        sigma2 = np.maximum(self.sigma**2, (LEAST_SIGMA * self.scale) ** 2)
        # The variance of one reward, (n, K); the same number for all arms takes no memory.
        self.noise: FloatArray = sigma2 + self.tau2 if self.resampled else np.broadcast_to(sigma2, self.tau2.shape)

    def _keep(self, name: str, rows: slice, values: FloatArray) -> None:
        """Write the values of a group of agents into the array with this name, which gets their shape."""
        kept = getattr(self, name)
        if kept.shape[1:] != values.shape[1:] or not kept.flags.f_contiguous:
            kept = np.empty((len(self.pulls), *values.shape[1:]), order="F")
            setattr(self, name, kept)
        kept[rows] = values

    def prior_belief(self, view: View, rows: slice, bias: Bias) -> tuple[Belief, FloatArray]:
        """What mu and the other agents' reports say about the mean rewards, and how much is due to theta, (n, K).

        Args:
            view: what a group of agents knows.
            rows: the places of these agents.
            bias: the variances of their bias.

        Returns:
            The belief, and the variance that the mean rewards have because theta is not known, which all agents share.
        """
        x, reported, precision = self.features[rows], self.reported[rows], self.precision[rows]
        others = without_own_share(self.theta, self.V, x, reported, precision)
        average = average_belief(view, others) if self.infers_features else others.own()
        belief = average if self.resampled else prior_belief(view, others, average, bias, self.spread[rows])
        return belief, average.variance[:, 0]

    def prior(self, rows: slice) -> Belief:
        """The belief of a group of agents before own rewards, as it is kept."""
        return Belief(self.log_weights[rows], self.mean[rows], self.variance[rows], self.factors[rows])

    def posterior(self, rows: slice = slice(None)) -> Belief:
        """The belief of a group of agents, or of all, given all rewards so far."""
        return self.prior(rows).given(self.pulls[rows], self.sums[rows], self.noise[rows])

    def count(self, feedback: Feedback) -> None:
        """Count the pulls and rewards of a plan, and how far its mean rewards differ from those before."""
        groups = self.groups()
        for rows in groups:
            self._count(rows, feedback if len(groups) == 1 else feedback.rows(rows))

    def _count(self, rows: slice, feedback: Feedback) -> None:
        """Count what a group of agents has seen."""
        pulls, sums = np.asfortranarray(feedback.pulls()), np.asfortranarray(feedback.sums())
        before, sums_before = self.pulls[rows].astype(np.float64), self.sums[rows]
        product, together = before * pulls, before + pulls
        # (s / n - s' / n')^2 over its variance, (n + n') / (n n') in units of sigma^2, without a division by n = 0.
        squares = (before * sums - pulls * sums_before) ** 2 / np.maximum(product * together, 1)
        freedom = np.minimum(product, 1)
        if self.resampled:  # the variance is then sigma^2 + tau^2
            squares -= freedom * self.tau2[rows]
        self.residuals[rows, 0] += sum_along(squares, 1)
        self.residuals[rows, 1] += sum_along(freedom, 1)
        self.pulls[rows] += pulls
        self.sums[rows] += sums
