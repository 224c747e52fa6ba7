"""Beliefs about an agent's K mean rewards: mixtures of Gaussians with common factors, and what rewards teach them."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedbandit_agents.inference.sums import sum_along, sums_of_others
from fedbandit_agents.phased.estimation import inner_products
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.roots import inverse_root

_TINY = np.finfo(np.float64).tiny


class Against(NamedTuple):
    """What n agents believe about r_a - r_b, how much better arm a is than an arm b; each array is (n, K)."""

    mean: FloatArray  #: the mean
    variance: FloatArray  #: the variance
    hope: FloatArray  #: the mean of the positive part
    chance: FloatArray  #: the probability that it is positive


@dataclass(frozen=True, eq=False)
class Belief:
    """What n agents believe about their K mean rewards: for each agent a mixture of S Gaussians.

    In a component the mean rewards are r = mean + factors z + sqrt(variance) eps, where z (q,) and eps (K,) are
    standard normal. The factors carry what all arms share, which is the hidden context; the variance is what each arm
    has of its own. `given` leads from a belief to the belief after some rewards, and needs matrices of q x q only,
    never of K x K.

    Everything is fastest where the arrays are in Fortran's order: agents, of whom there are many, are then neighbours
    in memory. Sums over arms, components and factors run term by term, so that no number depends on the order in
    memory, or on how many other agents there are.

    >>> belief = Belief(np.zeros((1, 1)), np.zeros((1, 1, 2)), np.ones((1, 1, 2)), np.zeros((1, 1, 2, 0)))
    >>> after = belief.given(np.array([[3, 0]]), np.array([[4.0, 0.0]]), noise=np.ones((1, 2)))
    >>> after.expected_rewards()  # arm 0: precision 1 of the prior and 3 of the rewards, whose sum is 4
    array([[1., 0.]])
    >>> after.variance[0, 0]
    array([0.25, 1.  ])
    """

    log_weights: FloatArray  #: (n, S) logarithms of the components' weights, which sum to 1 for each agent
    mean: FloatArray  #: (n, S, K) the mean of each component; (n, 1, K) if all have the same
    variance: FloatArray  #: (n, S, K) the variance that each arm has of its own
    factors: FloatArray  #: (n, S, K, q) how the common z moves each arm

    @cached_property
    def weights(self) -> FloatArray:
        """The probabilities of the components, (n, S)."""
        return np.exp(self.log_weights)

    def expected_rewards(self) -> FloatArray:
        """The mean of the mixture for each arm, (n, K)."""
        return _averaged(self.mean, self.weights)

    def given(self, pulls: IntArray, sums: FloatArray, noise: FloatArray) -> "Belief":
        """The belief after some rewards.

        Args:
            pulls: how often each arm was pulled, (n, K).
            sums: the sums of its rewards, (n, K).
            noise: the variance of one reward about its mean, (n, K).
        """
        residual, unexplained, information = self._residuals(pulls, sums, noise)
        mean = self.mean + (1 - unexplained) * residual
        # Twice the logarithm of the density of what was seen, but for a constant.
        evidence = sum_along(np.log(unexplained) - information * residual**2, 2)
        factors = self.factors
        if factors.shape[3]:  # arms have something in common
            weighted = information[..., None] * factors
            root = inverse_root(_products(weighted, factors))  # A^-1 = root^T root, A the precision of z
            moments = sum_along(weighted * residual[..., None], 2)
            z = inner_products(root, moments[:, :, None])  # the mean of z, in units of its spread
            factors = unexplained[..., None] * inner_products(factors[:, :, :, None], root[:, :, None])
            mean += inner_products(factors, z[:, :, None])
            evidence += inner_products(z, z) + 2 * sum_along(np.log(np.einsum("nsqq->nsq", root)), 2)
        log_weights = _normalised(self.log_weights + 0.5 * evidence)
        return Belief(log_weights, mean, self.variance * unexplained, factors)

    def factors_given_other_arms(
        self, pulls: IntArray, sums: FloatArray, noise: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The mean (n, S, K, q) and covariance (n, S, K, q, q) of z, for each arm given the rewards of all other arms.

        The arguments are those of `given`.
        """
        residual, _, information = self._residuals(pulls, sums, noise)
        weighted = information[..., None] * self.factors
        seen = sums_of_others(weighted[..., None] * self.factors[..., None, :], 2)
        moments = sums_of_others(weighted * residual[..., None], 2)
        root = inverse_root(seen + np.eye(self.factors.shape[3]))
        covariance = sum_along(root[..., None] * root[..., None, :], 3)
        return inner_products(covariance, moments[..., None, :]), covariance

    def _residuals(
        self, pulls: IntArray, sums: FloatArray, noise: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Residuals, the share of the own part that stays uncertain given z, and the precision of the residuals.

        Each is an array (n, S, K), but residuals are (n, 1, K) if all components have the same mean. The arguments are
        those of `given`.
        """
        precision = np.asfortranarray(pulls / noise)[:, None]  # precision of the mean reward that was seen
        residual = np.asfortranarray(sums / np.maximum(pulls, 1))[:, None] - self.mean
        unexplained = 1 / (1 + precision * self.variance)
        return residual, unexplained, precision * unexplained  # 1 / (variance + noise / pulls)

    def against(self, arm: IntArray) -> Against:
        """What is believed about r_a - r_arm for `arm` (n,)."""
        weights = self.weights
        mean, variance = self._differences(arm)
        average = _averaged(mean, weights)
        spread = _averaged(variance + (mean - average[:, None]) ** 2, weights)
        hope, chance = positive_part(mean, np.sqrt(variance))
        return Against(average, spread, _averaged(hope, weights), _averaged(chance, weights))

    def _differences(self, arm: IntArray) -> tuple[FloatArray, FloatArray]:
        """The mean, (n, S or 1, K), and the variance, (n, S, K), of r_a - r_arm in each component."""
        variance = self.variance + _of_arm(self.variance, arm)
        if self.factors.shape[3]:
            common = self.factors - _of_arm(self.factors, arm)
            variance += inner_products(common, common)
        variance[np.arange(len(arm)), :, arm] = 0
        return self.mean - _of_arm(self.mean, arm), variance

    def component(self, number: int) -> "Belief":
        """The belief of agents who are sure of one component."""
        one = slice(number, number + 1)
        sure = np.zeros((len(self.log_weights), 1))
        mean = self.mean if self.mean.shape[1] == 1 else self.mean[:, one]
        return Belief(sure, mean, self.variance[:, one], self.factors[:, one])

    def rows(self, index: IntArray | slice) -> "Belief":
        """The belief of some of these agents."""
        return Belief(self.log_weights[index], self.mean[index], self.variance[index], self.factors[index])


def _of_arm(values: FloatArray, arm: IntArray) -> FloatArray:
    """The entries (n, S, 1, ...) of `values` (n, S, K, ...) that belong to one arm of each agent, (n,)."""
    return np.asfortranarray(values[np.arange(len(arm)), :, arm])[:, :, None]


def _averaged(values: FloatArray, weights: FloatArray) -> FloatArray:
    """The mean of values over components with these weights (n, S), (n, K); equal values come as (n, 1, K)."""
    if values.shape[1] == 1:
        return values[:, 0]
    total = weights[:, 0, None] * values[:, 0]
    for component in range(1, values.shape[1]):
        total += weights[:, component, None] * values[:, component]
    return total


def _products(weighted: FloatArray, factors: FloatArray) -> FloatArray:
    """I + sum_a of the outer products of weighted and factors, (n, S, K, q) each: (n, S, q, q)."""
    total = np.eye(factors.shape[3]) + weighted[:, :, 0, :, None] * factors[:, :, 0, None]
    for arm in range(1, factors.shape[2]):
        total += weighted[:, :, arm, :, None] * factors[:, :, arm, None]
    return total


def _normalised(log_weights: FloatArray) -> FloatArray:
    """Logarithms of weights, shifted so that the weights of each row sum to 1."""
    shifted = log_weights - log_weights.max(axis=1, keepdims=True)
    return shifted - np.log(sum_along(np.exp(shifted), 1))[:, None]


def positive_part(mean: FloatArray, std: FloatArray) -> tuple[FloatArray, FloatArray]:
    """E[max(x, 0)] and P(x > 0) for normal x with this mean and standard deviation."""
    from scipy.special import ndtr

    with np.errstate(over="ignore"):  # the ratio or its square may overflow; exp(-inf) is then 0, which is right
        ratio = mean / np.maximum(std, _TINY)
        density = np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    chance = ndtr(ratio)
    return std * density + mean * chance, chance
