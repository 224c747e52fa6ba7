"""What a hidden context does to the mean rewards: <theta_a, phi(a, c) - psi_a>, the bias that an agent can infer.

An agent knows two things before it sees any reward: the server's estimate, theta_a ~ N(theta, V), and the law mu_i of
its context. Together they are its prior belief about its mean rewards. The agent's own reports are part of the server's
estimate. They are taken out first, or the agent's rewards would count twice.

Any context distribution will do. One with finite support gives a mixture, which is exact. Where features are not
linear in the context a mixture over many points stands for the distribution. For all others the bias is taken for
Gaussian, with the covariance that the distribution says; a second, wider Gaussian of little weight stands for the
possibility that the agent was told a wrong distribution.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedbandit_agents.inference.cloud import cloud, needs_cloud
from fedbandit_agents.inference.posterior import Belief
from fedbandit_agents.inference.sums import sum_along
from fedbandit_agents.phased.estimation import inner_products, predictions, quadratic_forms
from fedbandit_envs.arrays import FloatArray, IntArray, row_groups
from fedbandit_envs.contexts.features import is_linear
from fedbandit_envs.contexts.roots import matrix_root
from fedbandit_envs.protocol.knowledge import View

# However well the other arms' rewards tell the context, a report counts as if this share of the bias's variance were
# left. Reports about inferred features confirm each other up to one linear map of all theta, which only the distance of
# x from psi pins. Without a floor their weights grow as pulls do, and V goes to 0 along that map, too.
_LEAST_LEFT = 0.09

# An agent may be told a wrong mu. With this probability it believes that its context lies further off than mu says,
WRONG = 0.001
# by this factor of all standard deviations, or anywhere within the length of psi. Its rewards decide.
_WRONG_SPREAD = 8.0


class Predicting(Protocol):
    """What is known about theta, for each of n agents."""

    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The mean and the variance (n, S, K) of <theta_a, features>, for features (n, S, K, d)."""


@dataclass(frozen=True, eq=False)
class OthersEstimate:
    """What the other agents know about theta, for each of n agents that has reported <theta_a, x_a>.

    For one agent, theta_a ~ N(theta - shift V x, V + gain V x x^T V). `without_own_share` makes it.
    """

    theta: FloatArray  #: (K, d) the estimate of all agents together
    V: FloatArray  #: (K, d, d) the covariance of that estimate
    x: FloatArray  #: (n, K, d) the features of the agent's own report
    expected: FloatArray  #: (n, K) what the estimate says about <theta_a, x_a>
    spread: FloatArray  #: (n, K) x^T V x, its variance
    gain: FloatArray  #: (n, K) how much the covariance grows along V x
    shift: FloatArray  #: (n, K) how far the estimate moves along V x
    growth: FloatArray  #: (n, K) the factor by which the variance at x grows, the largest of any direction

    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The mean and the variance (n, S, K) of <theta_a, features>, for features (n, S, K, d)."""
        mean, variance = np.empty(features.shape[:3]), np.empty(features.shape[:3])
        for rows in row_groups(len(features)):  # what comes in between is as large as the features
            few = features[rows]
            moved = np.einsum("nsad,ade->nsae", few, self.V)
            along = np.einsum("nsad,nad->nsa", moved, self.x[rows])
            mean[rows] = np.einsum("nsad,ad->nsa", few, self.theta) - along * self.shift[rows, None]
            variance[rows] = np.einsum("nsad,nsad->nsa", moved, few) + along**2 * self.gain[rows, None]
        return mean, variance.clip(min=0)

    def own(self) -> Belief:
        """What agents believe about <theta_a, x_a>, as `predict` has it, with less work."""
        mean, variance = self.expected - self.spread * self.shift, self.spread * self.growth
        return _of_features(mean[:, None], variance[:, None])


def without_own_share(
    theta: FloatArray, V: FloatArray, x: FloatArray, reported: FloatArray, precision: FloatArray
) -> OthersEstimate:
    """The server's estimate without the report of each agent.

    With h = precision x^T V x, the prediction at x then has mean (x^T theta - h reported) / (1 - h) and variance
    x^T V x / (1 - h).

    Args:
        theta: the server's estimate, (K, d).
        V: its covariance, (K, d, d).
        x: the features that each agent's report is for, (n, K, d).
        reported: the reported values of <theta_a, x_a>, (n, K).
        precision: the precision of each report, (n, K); 0 where there is none.

    >>> one = np.ones((1, 1, 1))  # prior precision 1, a report 2 of precision 1: V = 1/2, theta = 1
    >>> others = without_own_share(np.ones((1, 1)), one / 2, one, np.array([[2.0]]), np.array([[1.0]]))
    >>> others.predict(one[None])  # the prior is left: mean 0, variance 1
    (array([[[0.]]]), array([[[1.]]]))
    """
    spread, expected = np.asfortranarray(quadratic_forms(x, V)), np.asfortranarray(predictions(x, theta))
    h = precision * spread
    arrived = h < 1  # if the server has the report, h < 1, because its prior of theta is proper
    growth = 1 / np.where(arrived, 1 - h, 1)
    gain = np.where(arrived, precision, 0) * growth
    return OthersEstimate(theta, V, x, expected, spread, gain, gain * (reported - expected), growth)


@dataclass(frozen=True, eq=False)
class Bias:
    """The mean of <theta_a, phi - psi>^2 over c ~ mu_i and theta_a ~ N(theta, V), in two parts; `bias_of` makes it."""

    of_estimate: FloatArray  #: (n, K) its value if theta_a were the estimate theta
    of_error: FloatArray  #: (n, K) what the error of the estimate adds

    @property
    def variances(self) -> FloatArray:
        """tau^2, (n, K): both parts together."""
        return self.of_estimate + self.of_error


def bias_of(view: View, theta: FloatArray, V: FloatArray) -> Bias:
    """The variances of the bias, for theta (K, d) and its covariance V (K, d, d).

    What the error adds is trace(V_a Cov_{c ~ mu_i}(phi(a, c))): the variances at the columns of a root of V_a, summed.
    """
    distribution, feature_map, root = view.distribution, view.feature_map, matrix_root(V)
    of_error = np.zeros((distribution.num_agents, len(V)), order="F")
    for column in range(V.shape[2]):
        of_error += distribution.reward_variances(feature_map, root[..., column])
    return Bias(distribution.reward_variances(feature_map, theta), of_error)


def learns_spread(view: View) -> bool:
    """Whether agents learn by which factor the spread of mu is wrong: the bias is one Gaussian, and does not pass."""
    exact = view.distribution.finite_support or view.distribution.known is not None
    return not exact and is_linear(view.feature_map) and view.constants.context != "resampled"


def prior_belief(view: View, others: OthersEstimate, average: Belief, bias: Bias, spread: FloatArray) -> Belief:
    """What agents believe about the mean rewards in their one hidden context, before any reward of their own.

    Args:
        view: what the agents know.
        others: what the other agents know about theta.
        average: what they believe about <theta_a, psi_a>, by the same estimate.
        bias: the variances of the bias, by the same estimate.
        spread: the factor on the standard deviations of mu, (n, 1); it counts where `learns_spread` holds.
    """
    distribution, feature_map = view.distribution, view.feature_map
    if distribution.finite_support:  # exact: given the point of the support, only theta is uncertain
        return belief_of_support(view, others)
    if needs_cloud(view):
        points, left = cloud(view)
        mean, variance = others.predict(feature_map(points))
        around = left * bias.variances
        log_weights = np.full(mean.shape[:2], -math.log(mean.shape[1]))
        return Belief(log_weights, mean, variance + around[:, None], np.zeros((*mean.shape, 0)))
    factors, own = distribution.reward_factors(feature_map, others.theta)
    own = own + others.growth * bias.of_error  # the error of theta grows when the own share is taken out
    if distribution.known is not None:
        return Belief(average.log_weights, average.mean, average.variance + own[:, None], factors[:, None])
    if_wrong = spread_if_wrong(view, others.theta, others.V, bias.variances, spread)
    spreads = np.concatenate([spread, if_wrong], axis=1)
    return Belief(
        np.tile(np.log([1 - WRONG, WRONG]), (len(own), 1)),
        average.mean,
        average.variance + own[:, None] * spreads[..., None] ** 2,
        factors[:, None] * spreads[..., None, None],
    )


def spread_if_wrong(view: View, theta: FloatArray, V: FloatArray, bias: FloatArray, spread: FloatArray) -> FloatArray:
    """The factor on the standard deviations of mu if mu is wrong, (n, 1): rewards may be as large as psi is long.

    Args:
        view: what the agents know.
        theta: the server's estimate, (K, d).
        V: its covariance, (K, d, d).
        bias: the mean of <theta_a, phi - psi>^2 as mu says it, (n, K).
        spread: the factor on the standard deviations of mu if it is right, (n, 1).
    """
    squares = np.einsum("ad,ad->a", theta, theta) + np.einsum("add->a", V)
    reach = sum_along(inner_products(view.psi, view.psi) * squares, 1) / view.psi.shape[2]
    total = sum_along(bias, 1)
    within = np.sqrt(reach / np.where(total > 0, total, np.inf))
    return np.maximum(_WRONG_SPREAD * spread, within[:, None])


def belief_of_support(view: View, others: Predicting) -> Belief:
    """The mixture over all contexts that are possible, where these are finitely many."""
    support, weights = view.distribution.nodes()
    mean, variance = others.predict(view.feature_map(support))
    with np.errstate(divide="ignore"):
        return Belief(np.log(weights), mean, variance, np.zeros((*mean.shape, 0)))


def wrong_mu(view: View, belief: Belief) -> FloatArray:
    """The probability that mu is wrong, (n,): that of the component with the larger spread, where there is one."""
    if view.distribution.finite_support or needs_cloud(view):
        return np.zeros(len(belief.log_weights))
    return belief.weights[:, -1]


def average_belief(view: View, others: OthersEstimate) -> Belief:
    """What agents believe about <theta_a, psi_a>.

    Nothing else matters when contexts are known, or drawn anew at each pull.
    """
    return _of_features(*others.predict(view.psi[:, None]))


def _of_features(mean: FloatArray, variance: FloatArray) -> Belief:
    """The belief about <theta_a, features> with this mean and variance, (n, 1, K) each."""
    return Belief(np.zeros((len(mean), 1)), mean, variance, np.zeros((*mean.shape, 0)))


def misfit(
    normals: int,
    expected: FloatArray,
    uncertain: FloatArray,
    tau2: FloatArray,
    spread: FloatArray,
    pulls: IntArray,
    sums: FloatArray,
    noise: FloatArray,
) -> FloatArray:
    """How far mean rewards lie from psi^T theta, in spreads of mu, (n, 2): weighted squares, and their weights.

    A residual r about psi^T theta has variance tau^2 + o, where tau^2 is the bias's and o is what else explains it.
    (r^2 - o) / tau^2 then estimates the square of the factor that is missing on the spread of mu. With the weights
    (tau^2 / (tau^2 + o))^2 the sums lead to the largest likelihood. Arms that share q normals count as q arms.

    Args:
        normals: how many normals the arms of an agent share; 0: each arm has its own.
        expected: the mean of psi^T theta, (n, K).
        uncertain: its variance, (n, K).
        tau2: the variance of the bias by the present `spread`, (n, K).
        spread: the factor on the standard deviations of mu, (n, 1).
        pulls: how often each arm was pulled, (n, K).
        sums: the sums of the rewards, (n, K).
        noise: the variance of one reward about its mean, (n, K).
    """
    unexplained = uncertain + noise / pulls.clip(min=1)
    squares = (sums / pulls.clip(min=1) - expected) ** 2
    total = tau2 + unexplained
    share = np.where((pulls > 0) & (total > 0), tau2 / np.where(total > 0, total, 1), 0)
    independent = min(1.0, normals / pulls.shape[1]) if normals else 1.0
    found = share * (squares - unexplained) / np.where(total > 0, total, 1) * spread**2
    return independent * np.stack([sum_along(found, 1), sum_along(share**2, 1)], axis=1)


def inferred_features(
    view: View,
    prior: Belief,
    spread: FloatArray,
    theta: FloatArray,
    V: FloatArray,
    bias: FloatArray,
    pulls: IntArray,
    sums: FloatArray,
    noise: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """The features x that agents report for each arm: the mean of phi(a, c) given the rewards of all other arms.

    <theta_a, phi(a, c) - x> is smaller than <theta_a, phi(a, c) - psi> and less correlated across arms. Its mean is
    zero, whatever was pulled because of the other arms. x is inferred only where one normal vector moves all arms, as
    the distribution's `common_root` says; elsewhere it is psi. With a finite support agents that mistake
    their context would confirm each other's mistakes: they send sites instead, see `site_agents`.

    Args:
        view: what the agents know.
        prior: their belief before own rewards.
        spread: the factor on the standard deviations of mu, (n, 1).
        theta: the server's estimate, (K, d).
        V: its covariance, (K, d, d).
        bias: the mean of <theta_a, phi - psi>^2, (n, K).
        pulls: how often each arm was pulled, (n, K).
        sums: the sums of the rewards, (n, K).
        noise: the variance of one reward about its mean, (n, K).

    Returns:
        x (n, K, d), and tau^2 (n, K), the mean of <theta_a, phi - x>^2.
    """
    root = view.distribution.common_root(view.feature_map)
    if root is None:
        return view.psi, bias
    root = spread[..., None] * root
    z, covariance = prior.component(0).factors_given_other_arms(pulls, sums, noise)  # the component for a right mu
    x = view.psi + inner_products(root[:, None], z[:, 0, :, None])
    half = inner_products(root[:, None, :, None], covariance[:, 0, :, None])
    left = inner_products(half[:, :, :, None], root[:, None, None])  # (n, K, d, d) the covariance of phi about x
    tau2 = sum_along(sum_along(left * (theta[:, :, None] * theta[:, None] + V), 3), 2)
    return x, np.maximum(tau2, _LEAST_LEFT * bias)
