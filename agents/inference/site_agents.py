"""Agents whose context is one of finitely many: they send what their rewards say about theta, whichever it is.

Such an agent is not sure which context it has, and its rewards speak of theta in a way that depends on it. What it
sends for an arm is a site of expectation propagation: a precision of d x d and a shift of d. mu stays with the agent.
The server answers each agent with what all others say, so that its own rewards never count twice.
"""

import numpy as np

from fedbandit_agents.inference.context_bias import WRONG, Bias, belief_of_support, bias_of
from fedbandit_agents.inference.context_inference import ContextInference
from fedbandit_agents.inference.expectation_propagation import Information, full, site, upper_triangles
from fedbandit_agents.inference.inferring_agents import InferringAgents
from fedbandit_agents.inference.posterior import Belief
from fedbandit_agents.phased.estimation import predictions
from fedbandit_envs.arrays import BoolArray, FloatArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message

# A site is worth sending when it has changed by more than this share.
_NEWS = 0.1
# No mean reward counts as more certain than this, in units of theta: differences of precisions show no more in 64 bits.
_LEAST_ERROR = 1e-6


def sends_sites(view: View) -> bool:
    """Whether the contexts are hidden, fixed, and one of finitely many for each agent."""
    return view.distribution.finite_support and not view.exact and view.constants.context == "fixed"


class SiteAgents(InferringAgents):
    """Agents that report sites, and hear their cavities; a subclass says in `chosen` how they play."""

    def __init__(self, policy: ContextInference, view: View):
        n, num_arms, d = view.psi.shape
        # What the others say about theta; before the prior is told, theta_a ~ N(0, I) in units of the agent's scale.
        self.cavity_precision: FloatArray = np.tile(np.eye(d), (n, num_arms, 1, 1))
        self.cavity_shift: FloatArray = np.zeros((n, num_arms, d))
        # The last sites that were sent.
        self.site_precision: FloatArray = np.zeros((n, num_arms, d, d))
        self.site_shift: FloatArray = np.zeros((n, num_arms, d))
        super().__init__(policy, view)

    def prior_belief(self, view: View, rows: slice, bias: Bias) -> tuple[Belief, FloatArray]:
        """A mixture over the contexts that are possible, given what the others say about theta, and over none of them.

        What an agent believes in the last case is what the prior of theta says. How much is due to theta is the mean of
        it over the possible contexts.
        """
        possible = belief_of_support(view, Information(self.cavity_precision[rows], self.cavity_shift[rows]))
        mean, variance = self._without_mu(view, bias)
        uncertain = np.einsum("ns,nsa->na", possible.weights, possible.variance)
        belief = Belief(
            np.append(possible.log_weights + np.log1p(-WRONG), np.full((len(mean), 1), np.log(WRONG)), axis=1),
            np.append(possible.mean, mean[:, None], axis=1),
            np.append(possible.variance, variance[:, None], axis=1),
            np.zeros((len(mean), possible.mean.shape[1] + 1, mean.shape[1], 0)),
        )
        return belief, uncertain

    def _without_mu(self, view: View, bias: Bias) -> tuple[FloatArray, FloatArray]:
        """The mean and the variance of the mean rewards, (n, K) each, by the prior of theta alone."""
        spread = np.einsum("nad,nad->na", np.einsum("nad,ade->nae", view.psi, self.V), view.psi)
        return predictions(view.psi, self.theta), spread + bias.variances

    def _learn(self, down: Message) -> None:
        """Take over the prior of theta, or what the others say about the arms in the message."""
        if down.kind == "prior":
            super()._learn(down)
            self.cavity_precision = np.tile(np.eye(self.theta.shape[1]) / down["width"] ** 2, (*self.pulls.shape, 1, 1))
            self.cavity_shift = np.tile(down["centre"] / down["width"] ** 2, (*self.pulls.shape, 1))
            return
        heard = down.present["precision"]
        precision = full(down["precision"], self.theta.shape[1])
        self.cavity_precision = np.where(heard[..., None, None], precision, self.cavity_precision)
        self.cavity_shift = np.where(heard[..., None], down["shift"], self.cavity_shift)
        if "sigma" in down.arrays:
            self.sigma = down["sigma"]

    def news(self) -> Message | None:
        """A message with the sites that have changed; None if there are none."""
        found = self._sites()
        precision, shift = found.precision, found.shift
        changed = (self.pulls > 0) & (_moved(precision, self.site_precision) | _moved(shift, self.site_shift))
        self.site_precision = np.where(changed[..., None, None], precision, self.site_precision)
        self.site_shift = np.where(changed[..., None], shift, self.site_shift)
        spoken = np.flatnonzero(changed.any(axis=1))
        if not len(spoken):
            return None
        arrays = {"precision": upper_triangles(self.site_precision), "shift": self.site_shift}
        if self.policy.estimate_sigma:
            arrays["residuals"] = self.residuals
        message = Message("sites", arrays, self.view.agents, {"precision": changed, "shift": changed})
        return message if len(spoken) == len(changed) else message.rows(spoken)

    def _sites(self) -> Information:
        """What the own rewards say about theta, given what the others say."""
        support, weights = self.view.distribution.nodes()
        pulls = self.pulls.clip(min=1)
        error = np.maximum(self.noise / pulls, (_LEAST_ERROR * self.scale) ** 2)
        with np.errstate(divide="ignore"):
            log_weights = np.log(weights)
        cavity = Information(self.cavity_precision, self.cavity_shift)
        features = self.view.feature_map(support)
        means, precision = self.sums / pulls, (self.pulls > 0) / error
        mean, variance = self._without_mu(self.view, bias_of(self.view, self.theta, self.V))
        growth = 1 + precision * variance
        doubt = np.log(WRONG) - 0.5 * (precision / growth * (means - mean) ** 2 + np.log(growth)).sum(axis=1)
        return site(cavity, features, log_weights + np.log1p(-WRONG), means, precision, doubt)


def _moved(new: FloatArray, old: FloatArray) -> BoolArray:
    """Whether arrays (n, K, ...) differ by more than the share that is worth sending, (n, K)."""
    flat = (*new.shape[:2], -1)
    difference, size = (new - old).reshape(flat), new.reshape(flat)
    moved: BoolArray = np.einsum("nax,nax->na", difference, difference) > _NEWS**2 * np.einsum(
        "nax,nax->na", size, size
    )
    return moved
