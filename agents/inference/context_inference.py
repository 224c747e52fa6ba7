"""Federated context inference: what its policies share, that is beliefs, reports and the server.

When a context is fixed but hidden, <theta_a, phi(a, c_i) - psi_{a,i}> is a bias that never averages out. But agent i
knows its law (mu_i), and its rewards carry it: with the server's estimate of theta it can be inferred. No guarantee is
proved: this is Bayesian, as good as mu_i, the Gaussian noise and its scale are right.

The posterior is not quite Bayes' rule: the server treats arms one by one, though one hidden context moves all arms of
an agent. Errors of different arms are then correlated, an agent takes them for independent, and its regions are too
wide for arms that it hardly pulls. Reports are therefore made for the features that the other arms' rewards suggest,
and the server corrects weights by how far reports scatter; what is left is in the tolerances of the calibration tests.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from fedbandit_agents.inference.context_bias import (
    average_belief,
    bias_variances,
    inferred_features,
    prior_belief,
    without_own_share,
)
from fedbandit_agents.inference.posterior import Belief
from fedbandit_agents.phased.estimation import inner_products, local_estimate, unit_vectors
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide, Policy, ServerSide
from fedbandit_envs.validation import check_fields, checked, optional, real_number, true_or_false, whole_number

_SEEN_PER_COEFFICIENT = 10  # times that all agents together pull an arm before the first round, for each of d unknowns
_NEWS = 0.1  # relative change of a report's precision that makes it worth sending
_WORTH_OF_SIGMA = 5.0  # degrees of freedom that the assumed noise scale counts for, beside those of the residuals
_WORTH_OF_WEIGHTS = 10.0  # the same, for the weights that come with the reports of an arm
_LEAST_LENGTH = 1e-6  # of inferred features, in units of ||psi||: shorter ones would not show a direction
_LEAST_SIGMA = 1e-4  # in units of theta_std: with less noise, an own share can't be told from the whole in 64 bits


@dataclass(frozen=True)
class ContextInference(Policy):
    """Federated context inference: the parameters that Fed-CI, Fed-CI-Elimination and the Thompson baselines share.

    Each round comes `growth` times later than the one before; in between, agents make `batches` plans and learn on
    their own. The noise scale is estimated by default: this costs next to nothing when `sigma` is right, and a wrong
    scale costs much. Subclasses say in `agents` how the posterior is played.
    """

    #: assumed standard deviation of the noise; None takes the problem's public constant
    sigma: float | None = checked(None, optional(real_number), above=0)
    estimate_sigma: bool = checked(True, true_or_false)  #: whether the residuals of the rewards correct `sigma`
    theta_std: float = checked(1.0, real_number, above=0)  #: prior standard deviation of each coordinate of theta_a
    growth: int = checked(4, whole_number, at_least=2)  #: how many times later each round comes than the one before
    batches: int = checked(8, whole_number, at_least=1)  #: number of plans that agents make between two rounds

    def __post_init__(self) -> None:
        check_fields(self)

    def first_plan(self, constants: Constants) -> int:
        """Steps before the first round: each arm is seen often enough by all agents together, at most once by each."""
        wanted = _SEEN_PER_COEFFICIENT * constants.dim * constants.num_arms / constants.num_agents
        return min(constants.num_arms, math.ceil(wanted))

    def assumed_sigma(self, constants: Constants) -> float:
        """The noise scale before any residual is seen."""
        return max(constants.noise_std if self.sigma is None else self.sigma, _LEAST_SIGMA * self.theta_std)

    def corrected_sigma(self, constants: Constants, squares: FloatArray, freedom: FloatArray) -> FloatArray:
        """The noise scale given sums of squared residuals and their degrees of freedom."""
        assumed = self.assumed_sigma(constants) ** 2
        variance = (squares + _WORTH_OF_SIGMA * assumed) / (freedom + _WORTH_OF_SIGMA)
        return np.sqrt(np.maximum(variance, (_LEAST_SIGMA * self.theta_std) ** 2))

    def server(self, view: ServerView) -> ServerSide:
        """Weighted least squares."""
        return WeightedServer(self, view.constants)


class InferringAgents(AgentSide):
    """Agents that keep a belief about their own mean rewards; `chosen` says how they play on it."""

    def __init__(self, policy: ContextInference, view: View):
        self.policy, self.view = policy, view
        n, num_arms, d = view.psi.shape
        self.theta: FloatArray = np.zeros((num_arms, d))  # the server's last word, at first the prior
        self.V: FloatArray = np.tile(policy.theta_std**2 * np.eye(d), (num_arms, 1, 1))
        self.sigma: FloatArray = np.full((n, 1), policy.assumed_sigma(view.constants))
        self.pulls: IntArray = np.zeros((n, num_arms), dtype=np.int64)  # N, and sums Y of all rewards so far
        self.sums: FloatArray = np.zeros((n, num_arms))
        self.residuals: FloatArray = np.zeros((n, 2))  # sum of squares between parts of plans, degrees of freedom
        self.reported: FloatArray = np.zeros((n, num_arms))  # mean rewards in the last reports, and their precision
        self.precision: FloatArray = np.zeros((n, num_arms))
        self.features: FloatArray = view.psi  # and the features that they are for
        self.number = 0  # of the plan
        self.phase_start, self.phase_end, self.plan_end = 0, policy.first_plan(view.constants), 0  # in steps
        self.form_prior()

    @property
    def resampled(self) -> bool:
        """Whether contexts are drawn anew at each pull, so that there is no bias but more noise."""
        return self.view.constants.context == "resampled"

    def form_prior(self) -> None:
        """The belief before own rewards, the variance tau^2 of the bias, and that of one reward about its mean."""
        others = without_own_share(self.theta, self.V, self.features, self.reported, self.precision)
        prior = average_belief(self.view, others) if self.resampled else prior_belief(self.view, others)
        self.log_weights, self.mean = prior.log_weights, prior.mean
        self.variance, self.factors = prior.variance, prior.factors
        self.tau2: FloatArray = bias_variances(self.view, self.theta, self.V)  # (n, K)
        self.noise: FloatArray = self.sigma**2 + self.tau2 * self.resampled  # (n, K)

    def prior(self) -> Belief:
        """The belief before own rewards."""
        return Belief(self.log_weights, self.mean, self.variance, self.factors)

    def posterior(self) -> Belief:
        """The belief given all rewards so far."""
        return self.prior().given(self.pulls, self.sums, self.noise)

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """The first arms, once; then what the posterior suggests, until the next plan or round."""
        if down is not None:
            self._learn(down)
            self.form_prior()
        elapsed = self.view.constants.horizon - remaining
        if elapsed == 0:
            self.plan_end = self.phase_end
            return self._first_plan()
        while elapsed >= self.phase_end:
            self.phase_start, self.phase_end = self.phase_end, self.phase_end * self.policy.growth
        self.plan_end = self._next_end(elapsed)
        self.number += 1
        return self.chosen(self.posterior(), min(self.plan_end - elapsed, remaining), remaining)

    def _learn(self, down: Message) -> None:
        """Take over theta and V of the arms that the server speaks of."""
        heard = down.present["theta"]
        rows, columns = np.triu_indices(self.theta.shape[1])
        V = np.empty(self.V.shape)
        V[:, rows, columns] = V[:, columns, rows] = down["V"]
        self.theta = np.where(heard[:, None], down["theta"], self.theta)
        self.V = np.where(heard[:, None, None], V, self.V)
        if "sigma" in down.arrays:
            self.sigma = np.full(self.sigma.shape, down["sigma"])

    def _first_plan(self) -> Plan:
        """Some arms once each, dealt out by the agents' numbers, so that all arms are seen equally often."""
        (n, num_arms), length = self.pulls.shape, self.plan_end
        arms = (length * self.view.agents[:, None] + np.arange(length)) % num_arms
        explore = np.zeros((n, num_arms), dtype=np.int64)
        np.put_along_axis(explore, arms, 1, axis=1)
        return Plan(explore, arms[:, 0], length)

    def _next_end(self, elapsed: int) -> int:
        """The plans of a phase grow geometrically, as the phases do."""
        for batch in range(1, self.policy.batches):
            end = math.ceil(self.phase_start * self.policy.growth ** (batch / self.policy.batches))
            if end > elapsed:
                return min(end, self.phase_end)
        return self.phase_end

    @abstractmethod
    def chosen(self, belief: Belief, length: int, remaining: int) -> Plan:
        """How the next `length` steps are played, given the posterior, when `remaining` are left in all."""

    def report(self, feedback: Feedback) -> Message | None:
        """At the end of a phase the estimates that have changed; in between nothing."""
        self.count(feedback)
        return self.news() if self.plan_end == self.phase_end else None

    def count(self, feedback: Feedback) -> None:
        """Add what was pulled, and how much its mean rewards differ from those before."""
        explored, played = feedback.explored, feedback.pulls() - feedback.explored
        for pulls, sums in ((explored, feedback.explored_sums), (played, feedback.sums() - feedback.explored_sums)):
            difference = sums / pulls.clip(min=1) - self.sums / self.pulls.clip(min=1)
            weight = pulls * self.pulls / (pulls + self.pulls).clip(min=1)
            # Var(difference) = (sigma^2, or sigma^2 + tau^2 when contexts are drawn anew) / weight.
            squares = weight * difference**2 - (weight > 0) * self.tau2 * self.resampled
            self.residuals = self.residuals + np.stack([squares.sum(axis=1), (weight > 0).sum(axis=1)], axis=1)
            self.pulls = self.pulls + pulls
            self.sums = self.sums + sums

    def news(self) -> Message | None:
        """theta_{a,i} and weights ||x||^2 / variance of the arms whose estimates have become better or worse.

        x are the features that the other arms' rewards suggest, at first psi.
        """
        pulls, psi = self.pulls.clip(min=1), self.view.psi
        x, tau2 = (psi, np.zeros(pulls.shape)) if self.resampled else self._inferred_features()
        clear = np.einsum("nad,nad->na", x, x) > _LEAST_LENGTH**2 * np.einsum("nad,nad->na", psi, psi)
        precision = np.where((self.pulls > 0) & clear, 1 / (self.noise / pulls + tau2), 0)
        changed = np.abs(precision - self.precision) > _NEWS * self.precision
        self.reported = np.where(changed, self.sums / pulls, self.reported)
        self.precision = np.where(changed, precision, self.precision)
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
        message = Message("estimates", arrays, self.view.agents, {"theta": changed, "weight": changed})
        return message if len(spoken) == len(changed) else message.rows(spoken)

    def _inferred_features(self) -> tuple[FloatArray, FloatArray]:
        return inferred_features(self.view, self.prior(), self.theta, self.V, self.pulls, self.sums, self.noise)


class WeightedServer(ServerSide):
    """Weighted least squares arm by arm, on the last report of each agent.

    What is left of the correlation across arms is ignored. Weights say how far reports should scatter; how far they do
    corrects them, arm by arm: the first ones come from the prior of theta, and agents can mistake their context.
    """

    def __init__(self, policy: ContextInference, constants: Constants):
        self.policy, self.constants = policy, constants
        shape = (constants.num_agents, constants.num_arms)
        self.estimates: FloatArray = np.zeros((*shape, constants.dim))
        self.weights: FloatArray = np.zeros(shape)
        self.residuals: FloatArray = np.zeros((constants.num_agents, 2))

    def answer(self, up: Message) -> Message | None:
        """theta_a = V_a sum_i w theta_{a,i} with V_a = (I / theta_std^2 + sum_i w e e^T)^-1, of the arms with news.

        The weights w are those of the reports, divided by the scatter of the arm.
        """
        assert up.agents is not None
        new = up.present["theta"]
        rows, arms = np.nonzero(new)
        self.estimates[up.agents[rows], arms] = up["theta"][rows, arms]
        self.weights[up.agents[rows], arms] = up["weight"][rows, arms]
        e, upper = unit_vectors(self.estimates), np.triu_indices(self.constants.dim)
        theta, V = self._fit(e, self.weights)
        theta, V = self._fit(e, self.weights / self._scatter(e, theta, V))
        heard: BoolArray = np.asarray(new.any(axis=0))
        arrays = {"theta": theta, "V": V[:, *upper]}
        if self.policy.estimate_sigma:
            self.residuals[up.agents] = up["residuals"]
            arrays["sigma"] = self.policy.corrected_sigma(self.constants, *self.residuals.sum(axis=0)[:, None])
        return Message("estimates", arrays, None, {"theta": heard, "V": heard})

    def _fit(self, e: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """theta (K, d) and V (K, d, d) from directions e (M, K, d) and weights (M, K)."""
        V = np.linalg.inv(np.einsum("na,nad,nae->ade", weights, e, e) + np.eye(e.shape[2]) / self.policy.theta_std**2)
        return np.einsum("ade,ae->ad", V, np.einsum("na,nad->ad", weights, self.estimates)), V

    def _scatter(self, e: FloatArray, theta: FloatArray, V: FloatArray) -> FloatArray:
        """(K,) the mean square of residuals over what the weights say it should be, drawn towards 1.

        Agents are not told: they take their own share out as w e^T V e, which must not reach 1.
        """
        residuals = np.einsum("nad,nad->na", self.estimates - theta, e)
        shares = self.weights * np.einsum("nad,nad->na", np.einsum("nad,ade->nae", e, V), e)
        squares = np.einsum("na,na->a", self.weights, residuals**2)
        freedom = ((self.weights > 0) - shares).sum(axis=0)
        scatter = (squares + _WORTH_OF_WEIGHTS) / (freedom + _WORTH_OF_WEIGHTS)
        largest: FloatArray = 0.99 / shares.max(axis=0).clip(min=0.01)
        return np.minimum(scatter, largest.clip(min=1))
