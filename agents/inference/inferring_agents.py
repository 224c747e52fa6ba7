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

from fedbandit_agents.inference.believing_agents import BelievingAgents
from fedbandit_agents.inference.context_bias import (
    bias_of,
    inferred_features,
    learns_spread,
    misfit,
    spread_if_wrong,
    wrong_mu,
)
from fedbandit_agents.inference.context_inference import ContextInference
from fedbandit_agents.inference.scale import own_variance, scale_of
from fedbandit_agents.inference.sums import groups_of
from fedbandit_agents.phased.estimation import inner_products, local_estimate
from fedbandit_envs.arrays import BoolArray, FloatArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.ties import JUST_WHOLE

# A report is worth sending when its precision has changed by more than this share.
_NEWS = 0.1
# Inferred features that are shorter than this, in units of ||psi||, would not show a direction.
_LEAST_LENGTH = 1e-6


class InferringAgents(BelievingAgents):
    """Agents that report what they have learnt about theta; a subclass says in `chosen` how they play."""

    def __init__(self, policy: ContextInference, view: View):
        super().__init__(policy, view)
        self.number = 0  # the number of the plan
        # Where the phase starts and ends and where the plan ends, in steps.
        self.phase_start, self.phase_end, self.plan_end = 0, policy.first_plan(view.constants), 0

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
        return self.chosen(min(self.plan_end - elapsed, remaining), remaining)

    def _judge_scale(self) -> None:
        """Take a scale of theta from the own rewards, as long as the server has told none."""
        for rows in self.groups():
            view = self.seen_by(rows)
            squares = inner_products(view.psi, view.psi) + bias_of(view, self.theta, self.V).variances
            self.scale[rows] = np.sqrt(own_variance(self.pulls[rows], self.sums[rows], squares, self.sigma[rows]))

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
    def chosen(self, length: int, remaining: int) -> Plan:
        """The plan for the next `length` steps, by the `posterior`.

        Args:
            length: the number of steps of the plan.
            remaining: the number of steps that are left in all.
        """

    def report(self, feedback: Feedback) -> Message | None:
        """At the end of a phase agents report the estimates that have changed; in between they report nothing."""
        self.count(feedback)
        if self.plan_end < self.phase_end:
            return None
        return self.news() if self.told else self.first_values()

    def first_values(self) -> Message:
        """The estimates from the rewards so far, weighted by pulls alone: the server learns the scale of theta."""
        theta, weight = np.empty(self.view.psi.shape), np.empty(self.pulls.shape)
        for rows in self.groups():
            pulls, psi = self.pulls[rows], self.view.psi[rows]
            squares = inner_products(psi, psi)
            theta[rows] = local_estimate(self.sums[rows] / np.maximum(pulls, 1), psi, squares)
            weight[rows] = pulls * squares
        seen = self.pulls > 0
        arrays = {"theta": theta, "weight": weight}
        return Message.of_own("first", arrays, self.view.agents, {"theta": seen, "weight": seen})

    def news(self) -> Message | None:
        """A message with the estimates that have become better or worse; None if there are none.

        For each such arm it holds theta_{a,i} and a weight, ||x||^2 / variance, where x are the features that the other
        arms' rewards suggest, at first psi. Where the spread of mu is learnt, it also says how far mean rewards
        lie from what mu says.
        """
        changed, found = np.empty(self.pulls.shape, dtype=np.bool_), np.empty(self.residuals.shape)
        learns = learns_spread(self.view)
        for rows in self.groups():
            if learns:
                found[rows] = self._misfit(rows)
            changed[rows] = self._renewed(rows)
        spoken = np.flatnonzero(changed.any(axis=1))
        if not len(spoken):
            return None
        _, num_arms, d = self.features.shape
        theta, weight = np.empty((len(spoken), num_arms, d)), np.empty((len(spoken), num_arms))
        for some in groups_of(len(spoken), 2 * self.features[0].size):
            own = spoken[some]
            x = self.features[own]
            squares = inner_products(x, x)
            theta[some] = local_estimate(self.reported[own], x, squares)
            weight[some] = self.precision[own] * squares
        arrays = {"theta": theta, "weight": weight}
        if self.policy.estimate_sigma:
            arrays["residuals"] = self.residuals[spoken]
        if learns:
            arrays["misfit"] = found[spoken]
        present = changed[spoken]
        # The channel and the ledger recognise the array of all agents, and check its order only once.
        agents = self.view.agents if len(spoken) == len(changed) else self.view.agents[spoken]
        return Message.of_own("estimates", arrays, agents, {"theta": present, "weight": present})

    def _renewed(self, rows: slice) -> BoolArray:
        """Renew the reports of a group of agents where their precision has changed, and say where, (n, K)."""
        view, seen, pulls = self.seen_by(rows), self.pulls[rows] > 0, np.maximum(self.pulls[rows], 1)
        x, tau2 = (view.psi, np.zeros(pulls.shape)) if self.resampled else self._inferred_features(view, rows)
        if x is not view.psi:
            seen &= inner_products(x, x) > _LEAST_LENGTH**2 * inner_products(view.psi, view.psi)
        precision, before = np.where(seen, 1 / (self.noise[rows] / pulls + tau2), 0), self.precision[rows]
        changed = np.abs(precision - before) > _NEWS * before
        self.reported[rows] = np.where(changed, self.sums[rows] / pulls, self.reported[rows])
        self.precision[rows] = np.where(changed, precision, before)
        if x is not view.psi:
            self.features[rows] = np.where((changed & seen)[..., None], x, self.features[rows])
        return np.asarray(changed)

    def _misfit(self, rows: slice) -> FloatArray:
        """How far the mean rewards of a group of agents lie from what mu says, (n, 2); see `misfit`."""
        # Until a theta_a is estimated its prior stands for it, which is too wide on purpose: nothing is judged by it.
        compared = np.where(self.precision[rows] > 0, self.pulls[rows], 0)
        normals, expected = self.factors.shape[3], self.mean[rows, 0]
        believed = self.uncertain[rows], self.tau2[rows], self.spread[rows]
        return misfit(normals, expected, *believed, compared, self.sums[rows], self.noise[rows])

    def _inferred_features(self, view: View, rows: slice) -> tuple[FloatArray, FloatArray]:
        """The features that the other arms' rewards suggest, and tau^2; see `inferred_features`."""
        spread, tau2 = self.spread[rows], self.tau2[rows]
        seen = self.pulls[rows], self.sums[rows], self.noise[rows]
        x, left = inferred_features(view, self.prior(rows), spread, self.theta, self.V, tau2, *seen)
        wrong = wrong_mu(view, self.posterior(rows))[:, None] > 0.5
        if not wrong.any():
            return x, left
        larger = spread_if_wrong(view, self.theta, self.V, tau2 / spread**2, spread) / spread
        features = x if x is view.psi else np.where(wrong[..., None], view.psi, x)
        return features, np.where(wrong, larger**2 * tau2, left)
