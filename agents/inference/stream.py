"""Agents of context inference on streams, where contexts are new at each step: no bias lasts, but mu says how noisy.

A hidden context that is drawn anew at each step leaves nothing to infer about it afterwards. Its law mu_{i,t} still
says how far a reward scatters about <theta_a, psi>: its variance is sigma^2 + tau^2, where tau^2 is the mean of
<theta_a, phi - psi>^2 over the context and over what is not known of theta. The regression weighs each reward by the
inverse of this variance. A context that is revealed after the pull takes the place of psi, and tau is 0.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from fedbandit_agents.inference.expectation_propagation import full, upper_triangles
from fedbandit_agents.inference.scale import own_variance, variance_given_sums
from fedbandit_agents.linear.ridge import Ridge, from_scaled_sums, learn, predictions
from fedbandit_agents.linear.spread import hidden_variances, spanning
from fedbandit_agents.linear.synchronised import SynchronisedAgents
from fedbandit_agents.linear.triggers import dis_lin_ucb_threshold, wants_to_synchronise
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.steps import Outcome
from fedbandit_envs.ties import first_largest, rounding

if TYPE_CHECKING:
    from fedbandit_agents.inference.context_inference import ContextInference

# The least noise scale, in units of theta: it bounds the weights where rewards have no noise.
_LEAST_SIGMA = 1e-4


def is_stream(constants: Constants) -> bool:
    """Whether contexts are new at each step, so that the agents of this module play.

    >>> is_stream(Constants(3, 10, 2, 100, ell=0.5, L=1.0, noise_std=1.0, context="streaming"))
    True
    """
    return constants.context == "streaming"


class StreamAgents(SynchronisedAgents):
    """Agents that share a weighted Bayesian regression and play the arm with the largest upper quantile.

    Sums are kept in units of the noise: a reward has the weight sigma^2 / (sigma^2 + tau^2) for the assumed sigma. With
    V = (v / s^2) I + the sum of weights times x x^T the posterior of theta_a is N(V^-1 b, v V^-1), where s is the scale
    of theta, and v is the variance of a reward of weight 1: sigma^2, corrected by the residuals. So if sigma and the
    spreads that mu says are all wrong by one factor, the posterior is still right.

    In the first steps arms are dealt out by the agents' numbers, to learn s. Then all agents synchronise, and from then
    on when one of them has learnt enough for the steps that are left.
    """

    def __init__(self, policy: "ContextInference", view: View):
        super().__init__(view)
        self.policy = policy
        (n, num_arms, d), constants = view.psi.shape, view.constants
        # B, how many estimates there are: one if all arms are guaranteed to have one theta, else one for each arm.
        self.blocks = 1 if constants.shared_theta else num_arms
        self.steps = 0
        self.first_steps = min(self.blocks, math.ceil(d * self.blocks / self.together()))
        self.threshold = dis_lin_ucb_threshold(constants.horizon, constants.num_agents, self.blocks * d)
        self.told = False  # whether the server has answered
        self.sigma: FloatArray = np.full((n, 1), policy.assumed_sigma(constants))
        self.scale: FloatArray = np.zeros((n, 1))  # s; 0 before the first reward
        # Vectors (S, K, d) whose squares add up to E[theta_a theta_a^T]; in units of s until the server has answered.
        self.vectors: FloatArray = np.repeat(np.eye(d)[:, None], num_arms, axis=1)
        # The weighted sums over all own rewards, of x x^T and of x y, and which have changed since the last report.
        self.own_gram: FloatArray = np.zeros((n, self.blocks, d, d))
        self.own_moments: FloatArray = np.zeros((n, self.blocks, d))
        self.changed: BoolArray = np.zeros((n, self.blocks), dtype=bool)
        # What the server has told of all agents together.
        self.common_gram: FloatArray = np.zeros((self.blocks, d, d))
        self.common_moments: FloatArray = np.zeros((self.blocks, d))
        # The regression on what all had reported at the last synchronisation, and on own rewards since then.
        self.inverse: FloatArray = np.zeros((n, self.blocks, d, d))
        self.moments: FloatArray = np.zeros((n, self.blocks, d))
        self.grown: FloatArray = np.zeros(n)  # by how much ln det V has grown since the last synchronisation
        self.residuals: FloatArray = np.zeros((n, 2))  # weighted squares of residuals; degrees of freedom

    def together(self) -> int:
        """How many agents share what they see."""
        return self.view.constants.num_agents

    def observe(self, view: View) -> None:
        """Keep what is shown from now on."""
        self.view = view

    @property
    def noise(self) -> FloatArray:
        """The variance of a reward of weight 1, (n, 1), bounded from below in units of theta."""
        return np.maximum(self.sigma**2, (_LEAST_SIGMA * self.scale) ** 2)

    def choose(self) -> IntArray:
        """In the first steps the arms in turn; then the arm with the largest upper quantile of <theta_a, psi>.

        At step t it lies sqrt(ln(1 + t)) standard deviations of the posterior above the mean.
        """
        psi = self.view.psi
        if self.steps < self.first_steps:
            return (self.first_steps * self.view.agents + self.steps) % psi.shape[1]
        means, lengths = predictions(self._ridge(), psi)
        bonus = math.sqrt(math.log1p(self.steps)) * np.sqrt(self.noise) * lengths
        return first_largest(means + bonus, rounding(np.abs(means) + bonus))

    def _ridge(self) -> Ridge:
        return Ridge(self.inverse, self.moments, np.zeros(self.moments.shape[:2]))

    def learn(self, outcome: Outcome) -> None:
        """Add the reward, with its weight; at the end of the first steps, and as long as nothing is told, judge s."""
        arm, pulls = outcome.arm, outcome.pulls
        rows, block = np.arange(len(arm)), arm if self.blocks > 1 else np.zeros_like(arm)
        x, tau2 = self._regressor(outcome)
        mean = outcome.rewards / np.maximum(pulls, 1)
        if self.steps < self.first_steps:
            squares = (np.einsum("nd,nd->n", x, x) + tau2)[:, None]
            seen = own_variance(pulls[:, None], outcome.rewards[:, None], squares, self.sigma)
            self.scale = np.maximum(self.scale, np.sqrt(seen))
        if not self.told:
            tau2 = tau2 * self.scale[:, 0] ** 2
        assumed = np.maximum(self.policy.assumed_sigma(self.view.constants), _LEAST_SIGMA * self.scale[:, 0]) ** 2
        weight = assumed / (assumed + tau2)
        if self.steps >= self.first_steps:
            self._compare(block, x, mean, weight, pulls > 0)
        weight = pulls * weight
        if self.steps >= self.first_steps:
            self.grown = self.grown + learn(self._ridge(), block, x, weight, weight * mean)
        self.own_gram[rows, block] += weight[:, None, None] * (x[:, :, None] * x[:, None, :])
        self.own_moments[rows, block] += (weight * mean)[:, None] * x
        self.changed[rows, block] = True
        self.steps += 1
        self.since += 1
        doubled = self.steps > self.first_steps and self.steps & (self.steps - 1) == 0
        if self.steps == self.first_steps or (doubled and not self.told):
            self._judge_alone()

    def _regressor(self, outcome: Outcome) -> tuple[FloatArray, FloatArray]:
        """x (n, d), phi if it is revealed, else psi; and tau^2 (n,), in units of s^2 until the server has answered."""
        rows = np.arange(len(outcome.arm))
        if outcome.features is not None:
            return outcome.features, np.zeros(len(rows))
        return self.view.psi[rows, outcome.arm], self.hidden_variances()[rows, outcome.arm]

    def hidden_variances(self) -> FloatArray:
        """The mean of <theta_a, phi - psi>^2 for all arms, (n, K)."""
        return hidden_variances(self.view, self.vectors)

    def _compare(self, block: IntArray, x: FloatArray, mean: FloatArray, weight: FloatArray, pulled: BoolArray) -> None:
        """Keep the weighted square of how far a reward is from what was expected, and how many degrees of freedom.

        What was not known of theta explains a part of it: the other part counts.
        """
        rows = np.arange(len(x))
        inverse = self.inverse[rows, block]
        theta = np.einsum("nde,ne->nd", inverse, self.moments[rows, block])
        unknown = np.einsum("nd,nd->n", x, np.einsum("nde,ne->nd", inverse, x))
        share = pulled / (1 + weight * unknown)
        squares = share**2 * weight * (mean - np.einsum("nd,nd->n", x, theta)) ** 2
        self.residuals = self.residuals + np.stack([squares, share], axis=1)

    def _judge_alone(self) -> None:
        """Take s and sigma from the own rewards, and begin the regression anew with them."""
        if self.policy.estimate_sigma:
            squares, freedom = np.split(self.residuals, 2, axis=1)
            self.sigma = self.policy.corrected_sigma(self.view.constants, squares, freedom)
        self.scale = np.sqrt(variance_given_sums(self.own_gram, self.own_moments, self.noise))
        self._begin(self.own_gram, self.own_moments)

    def _begin(self, gram: FloatArray, moments: FloatArray) -> None:
        """Go on from sums (n or 1, B, d, d) and (n or 1, B, d)."""
        ratio = (self.noise / self.scale**2)[: len(gram)]
        times = len(self.grown) // len(gram)
        self.inverse = np.repeat(from_scaled_sums(gram, ratio), times, axis=0)
        self.moments = np.repeat(moments, times, axis=0)
        self.grown = np.zeros(len(self.grown))

    def asks(self) -> BoolArray:
        """All after the first steps; later those who have learnt enough, for the time that has passed or is left.

        The test is that of DisLinUCB, in which time also counts if it is left: what comes late is of little use.
        """
        if not self.told:
            return np.full(len(self.grown), self.steps >= self.first_steps)
        left = self.view.constants.horizon - self.steps
        return wants_to_synchronise(self.grown, min(self.since, left), self.threshold)

    def news(self, rows: IntArray) -> Message:
        """The sums over all own rewards, for the estimates that have changed."""
        changed = self.changed[rows]
        arrays = {"gram": upper_triangles(self.own_gram[rows]), "moments": self.own_moments[rows]}
        if self.policy.estimate_sigma:
            arrays["residuals"] = self.residuals[rows]
        self.changed[rows] = False
        return Message("sums", arrays, self.view.agents[rows], {"gram": changed, "moments": changed})

    def take_over(self, down: Message) -> None:
        """Go on from the sums over all agents, from which all get the same scale of theta and the same weights."""
        heard = down.present["gram"]
        gram = full(down["gram"], self.moments.shape[2])
        self.common_gram = np.where(heard[:, None, None], gram, self.common_gram)
        self.common_moments = np.where(heard[:, None], down["moments"], self.common_moments)
        if "sigma" in down.arrays:
            self.sigma = np.full(self.sigma.shape, down["sigma"])
        gram, moments, self.told = self.common_gram[None], self.common_moments[None], True
        self.scale = np.full(self.scale.shape, np.sqrt(variance_given_sums(gram, moments, self.noise[:1])))
        noise = self.noise[:1]
        inverse = from_scaled_sums(gram, noise / self.scale[:1] ** 2)
        theta, V = np.einsum("nbde,nbe->nbd", inverse, moments), noise[..., None, None] * inverse
        self.vectors = spanning(theta[0], V[0], self.view.psi.shape[1])
        self._begin(gram, moments)


class LocalStreamAgents(StreamAgents):
    """The same agents, each alone: they never speak, and judge the scales of theta and of the noise by themselves."""

    def together(self) -> int:
        """Each has only itself."""
        return 1

    def asks(self) -> BoolArray:
        """Nobody."""
        return np.zeros(len(self.grown), dtype=bool)
