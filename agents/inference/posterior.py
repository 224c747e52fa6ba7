"""Beliefs about an agent's K mean rewards: mixtures of Gaussians with common factors, and what rewards teach them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

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

    >>> belief = Belief(np.zeros((1, 1)), np.zeros((1, 1, 2)), np.ones((1, 1, 2)), np.zeros((1, 1, 2, 0)))
    >>> after = belief.given(np.array([[3, 0]]), np.array([[4.0, 0.0]]), noise=np.ones((1, 2)))
    >>> after.expected_rewards()  # arm 0: precision 1 of the prior and 3 of the rewards, whose sum is 4
    array([[1., 0.]])
    >>> after.variance[0, 0]
    array([0.25, 1.  ])
    """

    log_weights: FloatArray  #: (n, S) logarithms of the components' weights, which sum to 1 for each agent
    mean: FloatArray  #: (n, S, K) the mean of each component
    variance: FloatArray  #: (n, S, K) the variance that each arm has of its own
    factors: FloatArray  #: (n, S, K, q) how the common z moves each arm

    @property
    def weights(self) -> FloatArray:
        """The probabilities of the components, (n, S)."""
        return np.exp(self.log_weights)

    def expected_rewards(self) -> FloatArray:
        """The mean of the mixture for each arm, (n, K)."""
        return self._averaged(self.mean)

    def given(self, pulls: IntArray, sums: FloatArray, noise: FloatArray) -> "Belief":
        """The belief after some rewards.

        Args:
            pulls: how often each arm was pulled, (n, K).
            sums: the sums of its rewards, (n, K).
            noise: the variance of one reward about its mean, (n, K).
        """
        residual, unexplained, information = self._residuals(pulls, sums, noise)
        mean = self.mean + (1 - unexplained) * residual
        fit = -np.add.reduce(information * residual**2, axis=2)
        log_det = np.add.reduce(np.log(unexplained), axis=2)
        if not self.factors.shape[3]:  # arms have nothing in common
            log_weights = _normalised(self.log_weights + 0.5 * (fit + log_det))
            return Belief(log_weights, mean, self.variance * unexplained, self.factors)
        weighted = information[..., None] * self.factors
        A = np.einsum("nsaq,nsap->nsqp", weighted, self.factors) + np.eye(self.factors.shape[3])  # precision of z
        root = inverse_root(A)  # A^-1 = root^T root
        # The mean of z, in units of its spread.
        z = np.einsum("nsqp,nsp->nsq", root, np.einsum("nsap,nsa->nsp", weighted, residual))
        factors = unexplained[..., None] * np.einsum("nsap,nsqp->nsaq", self.factors, root)
        mean += np.einsum("nsaq,nsq->nsa", factors, z)
        fit += np.einsum("nsq,nsq->ns", z, z)
        log_det += 2 * np.log(np.einsum("nsqq->nsq", root)).sum(axis=2)
        log_weights = _normalised(self.log_weights + 0.5 * (fit + log_det))
        return Belief(log_weights, mean, self.variance * unexplained, factors)

    def factors_given_other_arms(
        self, pulls: IntArray, sums: FloatArray, noise: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The mean (n, S, K, q) and covariance (n, S, K, q, q) of z, for each arm given the rewards of all other arms.

        The arguments are those of `given`.
        """
        residual, _, information = self._residuals(pulls, sums, noise)
        n, components, num_arms, q = self.factors.shape
        weighted = information[..., None] * self.factors
        squares = (weighted[..., None] * self.factors[..., None, :]).reshape(n, components, num_arms, q * q)
        # The others are summed, not subtracted from the whole: the arm left out may outweigh all others by far.
        others = 1 - np.eye(num_arms)
        seen = np.einsum("ab,nsbx->nsax", others, squares).reshape(n, components, num_arms, q, q)
        root = inverse_root(seen + np.eye(q))
        covariance = np.einsum("nsaxq,nsaxp->nsaqp", root, root)
        moments = np.einsum("ab,nsbq->nsaq", others, weighted * residual[..., None])
        return np.einsum("nsaqp,nsap->nsaq", covariance, moments), covariance

    def _residuals(
        self, pulls: IntArray, sums: FloatArray, noise: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Residuals, the share of the own part that stays uncertain given z, and the precision of the residuals.

        Each is an array (n, S, K). The arguments are those of `given`.
        """
        precision = (pulls / noise)[:, None]  # precision of the mean reward that was seen
        # In this order of memory however the mean is kept: sums over its axes have last bits that depend on the order.
        residual = np.subtract((sums / pulls.clip(min=1))[:, None], self.mean, order="C")
        unexplained = 1 / (1 + precision * self.variance)
        return residual, unexplained, precision * unexplained  # 1 / (variance + noise / pulls)

    def against(self, arm: IntArray) -> Against:
        """What is believed about r_a - r_arm for `arm` (n,)."""
        mean, variance = self._differences(arm)
        average = self._averaged(mean)
        spread = self._averaged(variance + (mean - average[:, None]) ** 2)
        hope, chance = positive_part(mean, np.sqrt(variance))
        return Against(average, spread, self._averaged(hope), self._averaged(chance))

    def _averaged(self, values: FloatArray) -> FloatArray:
        """The mean of values (n, S, K) over the components, (n, K)."""
        return np.einsum("ns,nsa->na", self.weights, values)

    def _differences(self, arm: IntArray) -> tuple[FloatArray, FloatArray]:
        """The mean and variance of r_a - r_arm in each component, (n, S, K)."""
        rows = np.arange(len(arm))
        variance = self.variance + self.variance[rows, :, arm][:, :, None]
        if self.factors.shape[3]:
            common = self.factors - self.factors[rows, :, arm][:, :, None]
            variance += np.einsum("nsaq,nsaq->nsa", common, common)
        variance[rows, :, arm] = 0
        return self.mean - self.mean[rows, :, arm][:, :, None], variance

    def rows(self, index: IntArray | slice) -> "Belief":
        """The belief of some of these agents."""
        return Belief(self.log_weights[index], self.mean[index], self.variance[index], self.factors[index])


def _normalised(log_weights: FloatArray) -> FloatArray:
    """Logarithms of weights, shifted so that the weights of each row sum to 1."""
    shifted = log_weights - log_weights.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def positive_part(mean: FloatArray, std: FloatArray) -> tuple[FloatArray, FloatArray]:
    """E[max(x, 0)] and P(x > 0) for normal x with this mean and standard deviation."""
    from scipy.special import ndtr

    with np.errstate(over="ignore"):  # the ratio or its square may overflow; exp(-inf) is then 0, which is right
        ratio = mean / np.maximum(std, _TINY)
        density = np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    chance = ndtr(ratio)
    return std * density + mean * chance, chance
