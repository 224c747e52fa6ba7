"""What a hidden context does to the mean rewards: <theta_a, phi(a, c) - psi_a>, the bias that an agent can infer.

The server's estimate theta_a ~ N(theta, V) and mu_i together are an agent's prior belief about its mean rewards. The
agent's own reports are part of that estimate: they are taken out first, or its rewards would count twice.
"""

from dataclasses import dataclass

import numpy as np

from fedbandit_agents.inference.posterior import Belief
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.distributions import ContextDistribution, Discrete, PointMass
from fedbandit_envs.contexts.features import FeatureMap, Identity, Table
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.protocol.knowledge import View


@dataclass(frozen=True, eq=False)
class OthersEstimate:
    """theta_a ~ N(theta - shift V x, V + gain V x x^T V): what the others of n agents know, that each reported an x."""

    theta: FloatArray  # (K, d) of all agents
    V: FloatArray  # (K, d, d) of all agents
    Vx: FloatArray  # (n, K, d)
    gain: FloatArray  # (n, K)
    shift: FloatArray  # (n, K)
    growth: FloatArray  # (n, K) of the variance at x, the largest in any direction

    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (n, S, K) of <theta_a, features> for features (n, S, K, d)."""
        along = np.einsum("nsad,nad->nsa", features, self.Vx)
        mean = np.einsum("nsad,ad->nsa", features, self.theta) - along * self.shift[:, None]
        variance = np.einsum("nsad,nsad->nsa", np.einsum("nsad,ade->nsae", features, self.V), features)
        return mean, (variance + along**2 * self.gain[:, None]).clip(min=0)


def without_own_share(
    theta: FloatArray, V: FloatArray, x: FloatArray, reported: FloatArray, precision: FloatArray
) -> OthersEstimate:
    """The estimate without a report <theta_a, x_a> = `reported` (n, K) of that `precision`, x (n, K, d); 0: no report.

    With h = precision x^T V x the prediction at x then has mean (x^T theta - h reported) / (1 - h) and variance
    x^T V x / (1 - h).
    """
    Vx = np.einsum("ade,nae->nad", V, x)
    h = precision * np.einsum("nad,nad->na", x, Vx)
    arrived = h < 1  # so it is if the server has the report, because its prior of theta is proper
    growth = 1 / np.where(arrived, 1 - h, 1)
    gain = np.where(arrived, precision, 0) * growth
    return OthersEstimate(theta, V, Vx, gain, gain * (reported - np.einsum("nad,ad->na", x, theta)), growth)


def prior_belief(view: View, others: OthersEstimate) -> Belief:
    """What agents believe of the mean rewards in their one hidden context, before any reward of their own."""
    distribution, feature_map = view.distribution, view.feature_map
    if isinstance(distribution, Discrete):  # exact: given who is behind the screen only theta is uncertain
        mean, variance = others.predict(feature_map(distribution.support))
        with np.errstate(divide="ignore"):
            return Belief(np.log(distribution.weights), mean, variance, np.zeros((*mean.shape, 0)))
    average = average_belief(view, others)
    factors, own = bias_factors(distribution, feature_map, others.theta)
    # E <theta_a, phi - psi>^2 has a part from V, which grows when the own share is taken out.
    own = own + others.growth * _variances_of_spread(distribution, feature_map, others.V)
    return Belief(average.log_weights, average.mean, average.variance + own[:, None], factors[:, None])


def average_belief(view: View, others: OthersEstimate) -> Belief:
    """What agents believe of <theta_a, psi_a>: all that matters when contexts are known, or drawn anew each time."""
    mean, variance = others.predict(view.psi[:, None])
    return Belief(np.zeros((len(mean), 1)), mean, variance, np.zeros((*mean.shape, 0)))


def inferred_features(
    view: View, prior: Belief, theta: FloatArray, V: FloatArray, pulls: IntArray, sums: FloatArray, noise: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """x (n, K, d) and tau^2 (n, K): mean of phi(a, c) given the rewards of all other arms, E <theta_a, phi - x>^2.

    <theta_a, phi(a, c) - x> is smaller than <theta_a, phi(a, c) - psi>, less correlated across arms, and has mean zero
    whatever was pulled because of the other arms. Only for one Gaussian context that all arms share; else x is psi. It
    could be done for a finite support, but there agents that mistake their context confirm each other's mistakes.
    """
    distribution = view.distribution
    if not (isinstance(distribution, Gaussian) and isinstance(view.feature_map, Identity)):
        return view.psi, bias_variances(view, theta, V)
    z, covariance = prior.factors_given_other_arms(pulls, sums, noise)
    root = _context_roots(distribution)
    x = view.psi + np.einsum("nde,nae->nad", root, z[:, 0])
    spread = root[:, None] @ covariance[:, 0] @ root.transpose(0, 2, 1)[:, None]
    return x, np.einsum("nade,ade->na", spread, theta[:, :, None] * theta[:, None] + V)


def bias_variances(view: View, theta: FloatArray, V: FloatArray) -> FloatArray:
    """tau^2 (n, K): the mean of <theta_a, phi - psi>^2 over c ~ mu_i and theta_a ~ N(theta, V)."""
    distribution, feature_map = view.distribution, view.feature_map
    return _variances(distribution, feature_map, theta) + _variances_of_spread(distribution, feature_map, V)


def bias_factors(
    distribution: ContextDistribution, feature_map: FeatureMap, theta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """F (n, K, q) and D (n, K) with Cov_{c ~ mu_i}(<theta_a, phi(a, c)>, <theta_b, phi(b, c)>) = F F^T + diag(D)."""
    n, num_arms = distribution.num_agents, len(theta)
    none = np.zeros((n, num_arms))
    if isinstance(distribution, PointMass):
        return np.zeros((n, num_arms, 0)), none
    if isinstance(distribution, Gaussian):
        if isinstance(feature_map, Identity):
            return np.matmul(theta, _context_roots(distribution)), none
        if isinstance(feature_map, Table) and distribution.std is not None:  # the rows of the table are independent
            scaled = theta * np.broadcast_to(distribution.std, (n, distribution.dim)).reshape(n, *theta.shape)
            return np.zeros((n, num_arms, 0)), np.einsum("nad,nad->na", scaled, scaled)
    values, vectors = np.linalg.eigh(distribution.reward_covariance(feature_map, theta))
    return vectors * np.sqrt(values.clip(min=0))[:, None], none


def _context_roots(distribution: Gaussian) -> FloatArray:
    """A (n, d, d) with c = psi + A z, z standard normal."""
    n, d = distribution.mean.shape
    if distribution.std is not None:
        return np.broadcast_to(distribution.std, (n, d))[:, None] * np.eye(d)
    values, vectors = np.linalg.eigh(np.broadcast_to(distribution.covariance, (n, d, d)))  # type: ignore[arg-type]
    return vectors * np.sqrt(values.clip(min=0))[:, None]


def _variances(distribution: ContextDistribution, feature_map: FeatureMap, theta: FloatArray) -> FloatArray:
    """Var_{c ~ mu_i}(<theta_a, phi(a, c)>), (n, K)."""
    if isinstance(distribution, Discrete):
        rewards = np.einsum("nsad,ad->nsa", feature_map(distribution.support), theta)
        deviation = rewards - np.einsum("ns,nsa->na", distribution.weights, rewards)[:, None]
        return np.einsum("ns,nsa,nsa->na", distribution.weights, deviation, deviation)
    if isinstance(distribution, PointMass) or (isinstance(distribution, Gaussian) and distribution.std is not None):
        factors, own = bias_factors(distribution, feature_map, theta)
        return np.einsum("naq,naq->na", factors, factors) + own
    return np.einsum("naa->na", distribution.reward_covariance(feature_map, theta))


def _variances_of_spread(distribution: ContextDistribution, feature_map: FeatureMap, V: FloatArray) -> FloatArray:
    """trace(V_a Cov_{c ~ mu_i}(phi(a, c))), (n, K): the variances at the columns of a root of V_a, summed."""
    values, vectors = np.linalg.eigh(V)
    root = vectors * np.sqrt(values.clip(min=0))[:, None]
    total = np.zeros((distribution.num_agents, len(V)))
    for column in range(V.shape[2]):
        total += _variances(distribution, feature_map, root[..., column])
    return total
