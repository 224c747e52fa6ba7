"""The agents of context inference: their beliefs and their reports.

The posterior is not quite Bayes' rule. The server treats arms one by one, though one hidden context moves all arms of
an agent. The errors of different arms are then correlated, while an agent takes them for independent, and its regions
are too wide for arms that it hardly pulls. Reports are therefore made for the features that the other arms' rewards
suggest, and the server corrects the weights of reports by how far they scatter. The error that is left lies within the
tolerances of the calibration tests.
"""

import math
from abc import abstractmethod

import numpy as np

from fedbandit_agents.inference.context_bias import (
    Bias,
    OthersEstimate,
    average_belief,
    bias_of,
    inferred_features,
    learns_spread,
    misfit,
    prior_belief,
    spread_if_wrong,
    without_own_share,
    wrong_mu,
)
from fedbandit_agents.inference.context_inference import ContextInference
from fedbandit_agents.inference.posterior import Belief
from fedbandit_agents.inference.scale import LEAST_SIGMA, own_variance, scale_of
from fedbandit_agents.phased.estimation import inner_products, local_estimate
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide
from fedbandit_envs.ties import JUST_WHOLE

# A report is worth sending when its precision has changed by more than this share.
_NEWS = 0.1
# Inferred features that are shorter than this, in units of ||psi||, would not show a direction.
_LEAST_LENGTH = 1e-6


class InferringAgents(AgentSide):
    """Agents that keep a belief about their own mean rewards.

    A subclass says in `chosen` how the agents play, given the belief.
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
        self.pulls: IntArray = np.zeros((n, num_arms), dtype=np.int64)  # all pulls so far
        self.sums: FloatArray = np.zeros((n, num_arms))  # the sums of their rewards
        # Two columns: the sum of squared differences between parts of plans, and the degrees of freedom.
        self.residuals: FloatArray = np.zeros((n, 2))
        # The last reports: mean rewards, their precision, and the features that they are for.
        self.reported: FloatArray = np.zeros((n, num_arms))
        self.precision: FloatArray = np.zeros((n, num_arms))
        self.features: FloatArray = view.psi
        # Whether reports are for other features than psi.
        root = None if self.resampled else view.distribution.common_root(view.feature_map)
        self.infers_features = root is not None
        self.number = 0  # the number of the plan
        # Where the phase starts and ends and where the plan ends, in steps.
        self.phase_start, self.phase_end, self.plan_end = 0, policy.first_plan(view.constants), 0
        self.form_prior()

    @property
    def resampled(self) -> bool:
        """Whether contexts are drawn anew at each pull: there is then no bias, but more noise."""
        return self.view.constants.context == "resampled"

    def others(self) -> OthersEstimate:
        """What the other agents know about theta."""
        return without_own_share(self.theta, self.V, self.features, self.reported, self.precision)

    def form_prior(self) -> None:
        """Keep the belief before own rewards, the variance tau^2 of the bias, and the variance of one reward."""
        # Before anything is told, V is I and theta is 0: the scale is the agent's own.
        own = np.ones(self.scale.shape) if self.told else self.scale**2
        bias = bias_of(self.view, self.theta, self.V)
        prior, uncertain = self.prior_belief(bias)
        self.uncertain: FloatArray = uncertain * own  # (n, K) the variance that is due to theta
        self.log_weights, self.mean = prior.log_weights, prior.mean
        self.variance, self.factors = prior.variance * own[..., None], prior.factors
        self.tau2: FloatArray = bias.variances * own * self.spread**2  # (n, K)
        sigma2 = np.maximum(self.sigma**2, (LEAST_SIGMA * self.scale) ** 2)
        # The variance of one reward, (n, K); the same number for all arms takes no memory.
        self.noise: FloatArray = sigma2 + self.tau2 if self.resampled else np.broadcast_to(sigma2, self.tau2.shape)

    def prior_belief(self, bias: Bias) -> tuple[Belief, FloatArray]:
        """What mu and the other agents' reports say about the mean rewards, and how much is due to theta, (n, K).

        Args:
            bias: the variances of the bias.

        Returns:
            The belief, and the variance that the mean rewards have because theta is not known, which all agents share.
        """
        others = self.others()
        average = average_belief(self.view, others) if self.infers_features else others.own()
        belief = average if self.resampled else prior_belief(self.view, others, average, bias, self.spread)
        return belief, average.variance[:, 0]

    def prior(self) -> Belief:
        """The belief before own rewards, as it is kept."""
        return Belief(self.log_weights, self.mean, self.variance, self.factors)

    def posterior(self) -> Belief:
        """The belief given all rewards so far."""
        return self.prior().given(self.pulls, self.sums, self.noise)

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """The first plan pulls some arms once; later plans do what the posterior suggests, until the next plan ends.

        When the server tells the prior of theta, agents report their first rewards again, weighted, before they go on.
        """
        elapsed = self.view.constants.horizon - remaining
        if elapsed == 0:
            self.plan_end = self.phase_end
            return self._first_plan()
        if down is not None:
            self._learn(down)
            self.form_prior()
            if down.kind == "prior":
                return Plan.wait(*self.pulls.shape)
        elif not self.told and self.plan_end == self.phase_end:
            self._judge_scale()
            self.form_prior()
        while elapsed >= self.phase_end:
            self.phase_start, self.phase_end = self.phase_end, self.phase_end * self.policy.growth
        self.plan_end = self._next_end(elapsed)
        self.number += 1
        return self.chosen(self.posterior(), min(self.plan_end - elapsed, remaining), remaining)

    def _judge_scale(self) -> None:
        """Take a scale of theta from the own rewards, as long as the server has told none."""
        squares = inner_products(self.view.psi, self.view.psi) + bias_of(self.view, self.theta, self.V).variances
        self.scale = np.sqrt(own_variance(self.pulls, self.sums, squares, self.sigma))

    def _learn(self, down: Message) -> None:
        """Take over what the server tells: the prior of theta, or theta and V for the arms in its message."""
        if down.kind == "prior":
            centre, variance = down["centre"], down["width"] ** 2
            self.told = True
            self.theta = np.tile(centre, (len(self.theta), 1))
            self.V = np.tile(variance * np.eye(len(centre)), (len(self.theta), 1, 1))
            self.scale = np.full(self.scale.shape, scale_of(centre, float(down["width"][0])))
            return
        heard = down.present["theta"]
        rows, columns = np.triu_indices(self.theta.shape[1])
        V = np.empty(self.V.shape)
        V[:, rows, columns] = V[:, columns, rows] = down["V"]
        self.theta = np.where(heard[:, None], down["theta"], self.theta)
        self.V = np.where(heard[:, None, None], V, self.V)
        if "sigma" in down.arrays:
            self.sigma = np.full(self.sigma.shape, down["sigma"])
        if "spread" in down.arrays:
            self.spread = np.full(self.spread.shape, down["spread"])

    def _first_plan(self) -> Plan:
        """Some arms once each, dealt out by the agents' numbers: all agents together see all arms equally often."""
        (n, num_arms), length = self.pulls.shape, self.plan_end
        arms = (length * self.view.agents[:, None] + np.arange(length)) % num_arms
        explore = np.zeros((n, num_arms), dtype=np.int64)
        np.put_along_axis(explore, arms, 1, axis=1)
        return Plan(explore, arms[:, 0], length)

    def _next_end(self, elapsed: int) -> int:
        """The step at which the next plan ends: the plans of a phase grow geometrically, as the phases do."""
        for batch in range(1, self.policy.batches):
            factor = self.policy.growth ** (batch / self.policy.batches)
            end = math.ceil(self.phase_start * factor * JUST_WHOLE)
            if end > elapsed:
                return min(end, self.phase_end)
        return self.phase_end

    @abstractmethod
    def chosen(self, belief: Belief, length: int, remaining: int) -> Plan:
        """The plan for the next `length` steps.

        Args:
            belief: the posterior.
            length: the number of steps of the plan.
            remaining: the number of steps that are left in all.
        """

    def report(self, feedback: Feedback) -> Message | None:
        """At the end of a phase agents report the estimates that have changed; in between they report nothing."""
        self.count(feedback)
        if self.plan_end < self.phase_end:
            return None
        return self.news() if self.told else self.first_values()

    def count(self, feedback: Feedback) -> None:
        """Count the pulls and rewards of a plan, and how far its mean rewards differ from those before."""
        pulls, sums = feedback.pulls(), feedback.sums()
        difference = sums / pulls.clip(min=1) - self.sums / self.pulls.clip(min=1)
        weight = pulls * self.pulls / (pulls + self.pulls).clip(min=1)
        # The difference has variance sigma^2 / weight, or (sigma^2 + tau^2) / weight when contexts are drawn anew.
        squares = weight * difference**2 - (weight > 0) * self.tau2 * self.resampled
        self.residuals = self.residuals + np.stack([squares.sum(axis=1), (weight > 0).sum(axis=1)], axis=1)
        self.pulls = self.pulls + pulls
        self.sums = self.sums + sums

    def first_values(self) -> Message:
        """The estimates from the rewards so far, weighted by pulls alone: the server learns the scale of theta."""
        squares = inner_products(self.view.psi, self.view.psi)
        theta = local_estimate(self.sums / self.pulls.clip(min=1), self.view.psi, squares)
        seen = self.pulls > 0
        arrays = {"theta": theta, "weight": self.pulls * squares}
        return Message.of_own("first", arrays, self.view.agents, {"theta": seen, "weight": seen})

    def news(self) -> Message | None:
        """A message with the estimates that have become better or worse; None if there are none.

        For each such arm it holds theta_{a,i} and a weight, ||x||^2 / variance, where x are the features that the other
        arms' rewards suggest, at first psi.
        """
        pulls, psi, found = self.pulls.clip(min=1), self.view.psi, self._misfit()
        x, tau2 = (psi, np.zeros(pulls.shape)) if self.resampled else self._inferred_features()
        clear = np.einsum("nad,nad->na", x, x) > _LEAST_LENGTH**2 * np.einsum("nad,nad->na", psi, psi)
        precision = np.where((self.pulls > 0) & clear, 1 / (self.noise / pulls + tau2), 0)
        changed = np.abs(precision - self.precision) > _NEWS * self.precision
        self.reported = np.where(changed, self.sums / pulls, self.reported)
        self.precision = np.where(changed, precision, self.precision)
        if x is not self.features:
            self.features = np.where((changed & clear)[..., None], x, self.features)
        spoken = np.flatnonzero(changed.any(axis=1))
        if not len(spoken):
            return None
        squares = inner_products(self.features, self.features)
        arrays = {
            "theta": local_estimate(self.reported, self.features, squares),
            "weight": self.precision * squares,
        }
        if self.policy.estimate_sigma:
            arrays["residuals"] = self.residuals
        if found is not None:
            arrays["misfit"] = found
        message = Message.of_own("estimates", arrays, self.view.agents, {"theta": changed, "weight": changed})
        return message if len(spoken) == len(changed) else message.rows(spoken)

    def _misfit(self) -> FloatArray | None:
        """How far mean rewards lie from what mu says, where the server is told; see `misfit`."""
        if not learns_spread(self.view):
            return None
        # Until a theta_a is estimated its prior stands for it, which is too wide on purpose: nothing is judged by it.
        compared = np.where(self.precision > 0, self.pulls, 0)
        normals, expected = self.factors.shape[3], self.mean[:, 0]
        return misfit(normals, expected, self.uncertain, self.tau2, self.spread, compared, self.sums, self.noise)

    def _inferred_features(self) -> tuple[FloatArray, FloatArray]:
        """The features that the other arms' rewards suggest, and tau^2; see `inferred_features`."""
        believed, seen = (self.theta, self.V, self.tau2), (self.pulls, self.sums, self.noise)
        x, tau2 = inferred_features(self.view, self.prior(), self.spread, *believed, *seen)
        wrong = wrong_mu(self.view, self.posterior())[:, None] > 0.5
        if not wrong.any():
            return x, tau2
        larger = spread_if_wrong(self.view, self.theta, self.V, self.tau2 / self.spread**2, self.spread) / self.spread
        features = x if x is self.view.psi else np.where(wrong[..., None], self.view.psi, x)
        return features, np.where(wrong, larger**2 * self.tau2, tau2)
