"""Beliefs about an agent's K mean rewards: mixtures of Gaussians with few common factors, and what rewards teach them.

In component s the means are r = mean + factors z + sqrt(variance) eps, with z (q,) and eps (K,) standard normal: `factors`
carries what all arms share (the hidden context), `variance` what each arm has of its own. The family is closed under
observing rewards, and everything costs q x q matrices only, never K x K.

All functions keep the agent axis first and treat each row alone.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from fedbandit_envs.seeding import RowDraws
from fedbandit_envs.validation import FloatArray, IntArray

_CHUNK = 2**20  # random numbers held at a time


@dataclass(frozen=True, eq=False)
class Belief:
    """One distribution of the K mean rewards per agent, as a mixture of S Gaussians."""

    log_weights: FloatArray  # (n, S), each row's weights sum to 1
    mean: FloatArray  # (n, S, K)
    variance: FloatArray  # (n, S, K) of each arm's own part
    factors: FloatArray  # (n, S, K, q)

    @property
    def weights(self) -> FloatArray:
        """(n, S) probability of each component."""
        return np.exp(self.log_weights)

    def expected_rewards(self) -> FloatArray:
        """(n, K) mean of the mixture."""
        return np.einsum("ns,nsa->na", self.weights, self.mean)

    def marginal_variances(self) -> FloatArray:
        """(n, S, K) variance of each arm's mean reward within each component."""
        return self.variance + np.einsum("nsaq,nsaq->nsa", self.factors, self.factors)

    def covariance(self) -> FloatArray:
        """(n, K, K) of the mixture."""
        deviation = self.mean - self.expected_rewards()[:, None]
        within = np.einsum("nsaq,nsbq->nsab", self.factors, self.factors)
        arms = np.arange(self.mean.shape[2])
        within[..., arms, arms] += self.variance
        between = np.einsum("nsa,nsb->nsab", deviation, deviation)
        return np.einsum("ns,nsab->nab", self.weights, within + between)

    def given(self, pulls: IntArray, sums: FloatArray, noise: FloatArray) -> "Belief":
        """The belief after `pulls` (n, K) of each arm with these reward `sums`; `noise` (n, K) is one pull's variance."""
        precision = (pulls / noise)[:, None]  # of the mean reward seen
        residual = (sums / pulls.clip(min=1))[:, None] - self.mean
        information = precision / (1 + precision * self.variance)  # 1 / (variance + noise / pulls), 0 without pulls
        kept = 1 / (1 + precision * self.variance)  # the share of the own part that rewards leave unexplained
        weighted = information[..., None] * self.factors
        A = np.einsum("nsaq,nsap->nsqp", weighted, self.factors) + np.eye(self.factors.shape[-1])
        b = np.einsum("nsaq,nsa->nsq", weighted, residual)
        root = np.linalg.inv(np.linalg.cholesky(A))  # A^-1 = root^T root
        scaled = np.einsum("nsqp,nsp->nsq", root, b)
        factors = kept[..., None] * np.einsum("nsap,nsqp->nsaq", self.factors, root)
        mean = self.mean + (1 - kept) * residual + np.einsum("nsaq,nsq->nsa", factors, scaled)
        explained = np.einsum("nsq,nsq->ns", scaled, scaled) - np.einsum("nsa,nsa->ns", information * residual, residual)
        spread = np.log(kept).sum(axis=2) + 2 * np.log(np.einsum("nsqq->nsq", root)).sum(axis=2)
        return Belief(
            _normalised(self.log_weights + 0.5 * (explained + spread)), mean, self.variance * kept, factors
        )

    def against(self, arm: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of r_a - r_arm, each (n, K): mean, variance, and expected positive part."""
        rows = np.arange(len(arm))
        mean = self.mean - np.take_along_axis(self.mean, arm[:, None, None], 2)
        common = self.factors - self.factors[rows, :, arm][:, :, None]
        own = self.variance + self.variance[rows, :, arm][:, :, None]
        spread = own + np.einsum("nsaq,nsaq->nsa", common, common)
        std = np.sqrt(spread)
        ratio = mean / np.maximum(std, 1e-300)
        gain = std * np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi) + mean * ndtr(ratio)
        w = self.weights
        m = np.einsum("ns,nsa->na", w, mean)
        v = np.einsum("ns,nsa->na", w, spread + mean**2) - m**2
        return m, v, np.einsum("ns,nsa->na", w, gain)

    def bounds(self, width: float, ignored: float) -> tuple[FloatArray, FloatArray]:
        """(n, K) lower and upper ends: `width` standard deviations around each component of more weight than `ignored`."""
        half = width * np.sqrt(self.marginal_variances())
        likely = (self.weights > ignored)[..., None]
        return (
            np.where(likely, self.mean - half, np.inf).min(axis=1),
            np.where(likely, self.mean + half, -np.inf).max(axis=1),
        )

    def sampled_best(self, number: int, draws: RowDraws, num_agents: int) -> IntArray:
        """(n, K) how often each arm is the best of `number` samples; `num_agents` are all that `draws` draws for."""
        n, components, num_arms, q = self.factors.shape
        size = max(1, _CHUNK // (num_agents * (num_arms + q + 1)))
        counts = np.zeros((n, num_arms), dtype=np.int64)
        rows = np.arange(n)[:, None]
        for start in range(0, number, size):
            best = self._samples(min(size, number - start), draws).argmax(axis=2)
            np.add.at(counts, (np.broadcast_to(rows, best.shape), best), 1)
        return counts

    def _samples(self, number: int, draws: RowDraws) -> FloatArray:
        """(n, number, K) draws of the mean rewards."""
        n, components, num_arms, q = self.factors.shape
        noise = draws.normals(number, num_arms)
        common = draws.normals(number, q)
        if components == 1:
            noise *= np.sqrt(self.variance)
            if q:
                noise += common @ self.factors[:, 0].transpose(0, 2, 1)
            noise += self.mean
            return noise
        cumulative = self.weights.cumsum(axis=1)[:, None, :-1]
        chosen = (draws.uniforms(number)[..., None] >= cumulative).sum(axis=2)  # (n, number)
        rows = np.arange(n)[:, None]
        noise *= np.sqrt(self.variance)[rows, chosen]
        if q:
            noise += np.einsum("nkaq,nkq->nka", self.factors[rows, chosen], common)
        noise += self.mean[rows, chosen]
        return noise


def _normalised(log_weights: FloatArray) -> FloatArray:
    shifted = log_weights - log_weights.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
