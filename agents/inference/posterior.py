"""Beliefs about an agent's K mean rewards: mixtures of Gaussians with common factors, and what rewards teach them.

In component s the mean rewards are r = mean + factors z + sqrt(variance) eps, z (q,) and eps (K,) standard normal: the
factors carry what all arms share (the hidden context), the variance what each arm has of its own. Observing rewards
leads from such a belief to another one, and needs q x q matrices only, never K x K.
"""

from dataclasses import dataclass

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.seeding import RowDraws

_CHUNK = 2**20  # random numbers held at a time
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Belief:
    """A distribution of the K mean rewards for each of n agents: a mixture of S Gaussians."""

    log_weights: FloatArray  # (n, S); the weights of a row sum to 1
    mean: FloatArray  # (n, S, K)
    variance: FloatArray  # (n, S, K) of each arm's own part
    factors: FloatArray  # (n, S, K, q)

    @property
    def weights(self) -> FloatArray:
        """(n, S) probabilities of the components."""
        return np.exp(self.log_weights)

    def expected_rewards(self) -> FloatArray:
        """(n, K) means of the mixture."""
        return np.einsum("ns,nsa->na", self.weights, self.mean)

    def marginal_variances(self) -> FloatArray:
        """(n, S, K) variance of each arm's mean reward within each component."""
        return self.variance + np.einsum("nsaq,nsaq->nsa", self.factors, self.factors)

    def given(self, pulls: IntArray, sums: FloatArray, noise: FloatArray) -> "Belief":
        """The belief after `pulls` (n, K) with these reward `sums`; `noise` (n, K) is the variance of one pull."""
        residual, unexplained, information = self._residuals(pulls, sums, noise)
        weighted = information[..., None] * self.factors
        A = np.einsum("nsaq,nsap->nsqp", weighted, self.factors) + np.eye(self.factors.shape[3])  # precision of z
        root = np.linalg.inv(np.linalg.cholesky(A))  # A^-1 = root^T root
        z = np.einsum("nsqp,nsap,nsa->nsq", root, weighted, residual)  # its mean, in units of its spread
        factors = unexplained[..., None] * np.einsum("nsap,nsqp->nsaq", self.factors, root)
        mean = self.mean + (1 - unexplained) * residual + np.einsum("nsaq,nsq->nsa", factors, z)
        fit = np.einsum("nsq,nsq->ns", z, z) - np.einsum("nsa,nsa,nsa->ns", information, residual, residual)
        log_det = np.log(unexplained).sum(axis=2) + 2 * np.log(np.einsum("nsqq->nsq", root)).sum(axis=2)
        log_weights = _normalised(self.log_weights + 0.5 * (fit + log_det))
        return Belief(log_weights, mean, self.variance * unexplained, factors)

    def factors_given_other_arms(
        self, pulls: IntArray, sums: FloatArray, noise: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean (n, S, K, q) and covariance (n, S, K, q, q) of z given the rewards of all arms but a, for each a."""
        residual, _, information = self._residuals(pulls, sums, noise)
        n, components, num_arms, q = self.factors.shape
        weighted = information[..., None] * self.factors
        squares = (weighted[..., None] * self.factors[..., None, :]).reshape(n, components, num_arms, q * q)
        others = 1 - np.eye(num_arms)  # sums, not differences: the arm left out may outweigh all others by far
        covariance = np.linalg.inv(np.matmul(others, squares).reshape(n, components, num_arms, q, q) + np.eye(q))
        return np.einsum("nsaqp,nsap->nsaq", covariance, others @ (weighted * residual[..., None])), covariance

    def _residuals(
        self, pulls: IntArray, sums: FloatArray, noise: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(n, S, K) each: residuals, the share of the own part that stays uncertain given z, and their precision."""
        precision = (pulls / noise)[:, None]  # of the mean reward that was seen
        residual = (sums / pulls.clip(min=1))[:, None] - self.mean
        unexplained = 1 / (1 + precision * self.variance)
        return residual, unexplained, precision * unexplained  # 1 / (variance + noise / pulls)

    def most_above(self, arm: IntArray, width: float, ignored: float) -> FloatArray:
        """(n, K) upper ends of r_a - r_arm: `width` standard deviations, in every component heavier than `ignored`."""
        mean, variance = self._differences(arm)
        likely = (self.weights > ignored)[..., None]
        return np.where(likely, mean + width * np.sqrt(variance), -np.inf).max(axis=1)

    def against(self, arm: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of r_a - r_arm, for one `arm` (n,) per agent: mean, variance, and mean of the positive part; each (n, K)."""
        weights, (mean, variance) = self.weights, self._differences(arm)
        average = np.einsum("ns,nsa->na", weights, mean)
        spread = np.einsum("ns,nsa->na", weights, variance + (mean - average[:, None]) ** 2)
        return average, spread, np.einsum("ns,nsa->na", weights, _positive_part(mean, np.sqrt(variance)))

    def _differences(self, arm: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (n, S, K) of r_a - r_arm in each component."""
        rows = np.arange(len(arm))
        common = self.factors - self.factors[rows, :, arm][:, :, None]
        variance = self.variance + self.variance[rows, :, arm][:, :, None]
        variance += np.einsum("nsaq,nsaq->nsa", common, common)
        variance[rows, :, arm] = 0
        return self.mean - self.mean[rows, :, arm][:, :, None], variance

    def best_in_samples(self, number: int, draws: RowDraws, num_agents: int, rows: IntArray) -> IntArray:
        """(len(rows), K) how often each arm is best in `number` samples, for some `rows`; `draws` is for all rows.

        Samples come in pairs, mirrored at the mean of their component: half the random numbers, and less variance.
        """
        belief = self.rows(rows)
        n, _, num_arms, q = belief.factors.shape
        size = max(1, _CHUNK // (num_agents * (num_arms + q)))  # of all agents, so the same however they are split
        counts = np.zeros(n * num_arms, dtype=np.int64)
        pairs = -(-number // 2)
        for start in range(0, pairs, size):
            drawn = min(size, pairs - start)
            own, z, uniforms = draws.normals(drawn, num_arms), draws.normals(drawn, q), draws.uniforms(drawn)
            centre, deviation = belief._samples(own[rows], z[rows], uniforms[rows])
            mirrored = min(drawn, number - drawn - 2 * start)  # an odd number leaves one without its mirror image
            best = [(centre + deviation).argmax(axis=2), (centre - deviation)[:, :mirrored].argmax(axis=2)]
            place = np.concatenate(best, axis=1) + num_arms * np.arange(n)[:, None]
            counts += np.bincount(place.ravel(), minlength=n * num_arms)
        return counts.reshape(n, num_arms)

    def rows(self, index: IntArray) -> "Belief":
        """The belief of some of these agents."""
        return Belief(self.log_weights[index], self.mean[index], self.variance[index], self.factors[index])

    def _samples(self, own: FloatArray, z: FloatArray, uniforms: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Centres and deviations (n, k or 1, K) of k samples, from normals (n, k, K), (n, k, q) and uniforms (n, k)."""
        n, components, _, q = self.factors.shape
        if components == 1:
            own *= np.sqrt(self.variance)
            return self.mean, own + z @ self.factors[:, 0].transpose(0, 2, 1) if q else own
        below = uniforms[..., None] >= self.weights.cumsum(axis=1)[:, None, :-1]
        chosen = np.arange(n)[:, None], below.sum(axis=2)  # (n, k) components
        own *= np.sqrt(self.variance)[chosen]
        return self.mean[chosen], own + np.einsum("nkaq,nkq->nka", self.factors[chosen], z) if q else own


def _normalised(log_weights: FloatArray) -> FloatArray:
    shifted = log_weights - log_weights.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _positive_part(mean: FloatArray, std: FloatArray) -> FloatArray:
    """E[max(x, 0)] for normal x."""
    from scipy.special import ndtr

    ratio = mean / np.maximum(std, _TINY)
    with np.errstate(over="ignore"):  # exp(-inf) is 0, as it should be
        density = np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    return std * density + mean * ndtr(ratio)
