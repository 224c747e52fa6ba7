"""Drawing rewards: one pull at a time, or the sum of many pulls at once, exactly in distribution.

A law knows the rewards of a block of n agents. `sums` draws the sums of the rewards of a whole plan in one go: the cost
grows with the number of arms, not with the number of pulls (the one exception is `SampledRewards`). `single` makes the
rewards of one pull per agent of given random numbers, for stepping.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.features import FeatureMap
from fedbandit_envs.seeding import RowDraws

if TYPE_CHECKING:
    from fedbandit_envs.contexts.distributions import ContextDistribution
    from fedbandit_envs.contexts.finite import Discrete

_CHUNK = 1024  # `SampledRewards` draws this many pulls at a time


class RewardLaw(Protocol):
    """The law of the rewards of n agents."""

    @property
    def normals_per_pull(self) -> int:
        """How many standard normals one pull of one agent uses."""

    @property
    def uniforms_per_pull(self) -> int:
        """How many uniforms one pull of one agent uses: 0 or 1."""

    def sums(self, arm: IntArray, counts: FloatArray, draws: RowDraws) -> FloatArray:
        """Draw the sums (n, K + 1) of the rewards of `counts` (n, K + 1) pulls.

        Column a < K is for pulls of arm a. The last column is for further pulls of the agent's own `arm` (n,). The
        counts are whole numbers, kept as floats.
        """

    def noise(self, normals: FloatArray) -> FloatArray:
        """The part of `single` that does not depend on the arms, for many steps at once.

        It takes normals (steps, n, normals_per_pull) and returns an array (steps, n, ...).
        """

    def single(self, arms: IntArray, noise: FloatArray, uniforms: FloatArray) -> FloatArray:
        """The rewards (n,) of one pull of `arms` (n,), made of the `noise` (n, ...) and uniforms (n,) of its step."""


@dataclass(frozen=True, eq=False)
class GaussianRewards:
    """Normal rewards: Gaussian noise, and resampled Gaussian contexts under a linear map.

    >>> law = GaussianRewards(means=np.array([[1.0, 2.0]]), stds=0.5)
    >>> law.single(np.array([1]), noise=law.noise(np.array([[-2.0]])), uniforms=np.empty(0))
    array([1.])
    """

    means: FloatArray  #: (n, K) the mean reward of one pull
    stds: FloatArray | float  #: (n, K) standard deviations of one pull, context noise included; or one number for all
    normals_per_pull: int = 1  #: one normal is the noise
    uniforms_per_pull: int = 0  #: no uniform is needed

    def sums(self, arm: IntArray, counts: FloatArray, draws: RowDraws) -> FloatArray:
        """The sum of c pulls with mean r and standard deviation s is normal: c r + s sqrt(c) z."""
        stds = self.stds if isinstance(self.stds, float) else _and_of_arm(self.stds, arm)
        return counts * _and_of_arm(self.means, arm) + np.sqrt(counts) * draws.normals(counts.shape[1]) * stds

    @cached_property
    def _row_starts(self) -> IntArray:
        """Where each row starts in the flattened means, (n,): `take` from there is faster than by row and column."""
        return np.arange(0, self.means.size, self.means.shape[1])

    def noise(self, normals: FloatArray) -> FloatArray:
        """The products s z if all have the same standard deviation s, else the normals z."""
        return self.stds * normals[..., 0] if isinstance(self.stds, float) else normals[..., 0]

    def single(self, arms: IntArray, noise: FloatArray, uniforms: FloatArray) -> FloatArray:
        """The mean of the arm plus its noise, r + s z."""
        pulled = self._row_starts + arms
        rewards = self.means.take(pulled)
        rewards += noise if isinstance(self.stds, float) else self.stds.take(pulled) * noise
        return rewards


@dataclass(frozen=True, eq=False)
class BernoulliRewards:
    """Rewards that are 1 with probability equal to the mean, else 0.

    Contexts that are resampled make no other law: the mean is then the one under mu_i.

    >>> law = BernoulliRewards(means=np.array([[0.2, 0.7]]))
    >>> law.single(np.array([1]), noise=np.empty((1, 0)), uniforms=np.array([0.6]))
    array([1.])
    """

    means: FloatArray  #: (n, K) the probabilities of a 1
    normals_per_pull: int = 0  #: no normal is needed
    uniforms_per_pull: int = 1  #: one uniform decides between 0 and 1

    def sums(self, arm: IntArray, counts: FloatArray, draws: RowDraws) -> FloatArray:
        """The numbers of ones are binomial; each is drawn by inversion of one uniform."""
        return _binomial(draws.uniforms(counts.shape[1]), counts, _and_of_arm(self.means, arm))

    def noise(self, normals: FloatArray) -> FloatArray:
        """The normals as they are: Bernoulli rewards use none, so their width is 0."""
        return normals

    def single(self, arms: IntArray, noise: FloatArray, uniforms: FloatArray) -> FloatArray:
        """A 1 where the uniform is below the mean, else a 0."""
        return (uniforms < self.means[np.arange(len(arms)), arms]).astype(np.float64)


@dataclass(frozen=True, eq=False)
class MixtureRewards:
    """Gaussian noise around a mean that is drawn anew from finitely many at each pull (resampled Discrete contexts).

    >>> from fedbandit_envs.contexts.finite import Discrete
    >>> mu = Discrete(support=[[[0.0], [1.0]]], weights=[[0.25, 0.75]])
    >>> law = MixtureRewards(mu, means=np.array([[[5.0, 6.0], [7.0, 8.0]]]), noise_std=1.0)
    >>> law.single(np.array([1]), noise=np.array([0.5]), uniforms=np.array([0.1]))
    array([6.5])
    """

    distribution: "Discrete"  #: mu, whose points are drawn
    means: FloatArray  #: (n, S, K) the mean rewards at each point of the support
    noise_std: float  #: standard deviation of the noise
    normals_per_pull: int = 1  #: one normal is the noise
    uniforms_per_pull: int = 1  #: one uniform chooses the point

    def sums(self, arm: IntArray, counts: FloatArray, draws: RowDraws) -> FloatArray:
        """How often each point occurs is multinomial, drawn point by point as a binomial share of the pulls left."""
        noise = self.noise_std * np.sqrt(counts) * draws.normals(counts.shape[1])
        points = self.means.shape[1]
        uniforms = draws.uniforms(points - 1, counts.shape[1])
        weights = self.distribution.weights
        # What is left of the mass, summed from the end: the last point of positive weight then gets a share of 1.
        tail = weights[:, ::-1].cumsum(axis=1)[:, ::-1]
        shares = np.divide(weights, tail, out=np.ones_like(weights), where=tail > 0)
        total, left = noise, counts
        for point in range(points):
            last = point == points - 1
            share = np.broadcast_to(shares[:, point, None], left.shape)
            here = left if last else _binomial(uniforms[:, point], left, share)
            total = total + here * _and_of_arm(self.means[:, point], arm)
            left = left - here
        return total

    def noise(self, normals: FloatArray) -> FloatArray:
        """The products s z of the standard deviation s and the normals z."""
        return self.noise_std * normals[..., 0]

    def single(self, arms: IntArray, noise: FloatArray, uniforms: FloatArray) -> FloatArray:
        """The mean at the point that the uniform chooses, plus the noise."""
        points = self.distribution.choose(uniforms)
        rewards: FloatArray = self.means[np.arange(len(arms)), points, arms] + noise
        return rewards


@dataclass(frozen=True, eq=False)
class SampledRewards:
    """Rewards of resampled contexts without a closed form: a context is drawn for each pull.

    The cost of a plan grows with its pulls, because `distribution.from_normals` is called for all of them, in chunks.
    """

    distribution: "ContextDistribution"  #: mu, from which each pull draws its context
    feature_map: FeatureMap  #: phi, from contexts to features
    theta: FloatArray  #: (K, d) the parameters of the arms
    noise_std: float  #: standard deviation of the noise
    uniforms_per_pull: int = 0  #: no uniform is needed

    @property
    def normals_per_pull(self) -> int:
        """The normals of one context, and one more for the noise."""
        return self.distribution.normals_per_context + 1

    def sums(self, arm: IntArray, counts: FloatArray, draws: RowDraws) -> FloatArray:
        """Draw all pulls of an agent in the order of the arms, a chunk at a time, and add them up."""
        ends = counts.cumsum(axis=1)
        total = np.zeros(counts.shape)
        for start in range(0, int(ends[:, -1].max()), _CHUNK):
            # The chunk is drawn in full whoever is in the block, so that no row depends on another.
            rewards = self._rewards(draws.normals(_CHUNK, self.normals_per_pull))  # (n, chunk, K)
            position = np.arange(start, start + _CHUNK)
            pulled = (position >= (ends - counts)[:, :, None]) & (position < ends[:, :, None])  # (n, K + 1, chunk)
            total += np.einsum("nsk,nks->nk", _and_of_arm(rewards, arm), pulled)
        return total

    def _rewards(self, normals: FloatArray) -> FloatArray:
        """The rewards (n, S, K) of all arms in S contexts per agent, from normals (n, S, normals_per_pull)."""
        phi = self.feature_map(self.distribution.from_normals(normals[..., :-1]))
        return np.einsum("nsad,ad->nsa", phi, self.theta) + self.noise_std * normals[..., -1:]

    def noise(self, normals: FloatArray) -> FloatArray:
        """The normals as they are: contexts take more memory, so they are made step by step."""
        return normals

    def single(self, arms: IntArray, noise: FloatArray, uniforms: FloatArray) -> FloatArray:
        """The rewards of the arms in one new context per agent."""
        return self._rewards(noise[:, None])[np.arange(len(arms)), 0, arms]


def _and_of_arm(table: FloatArray, arm: IntArray) -> FloatArray:
    """A table (n, ..., K) with one more column, the entries of `arm` (n,): (n, ..., K + 1)."""
    return np.concatenate([table, table[np.arange(len(arm)), ..., arm][..., None]], axis=-1)


def _binomial(uniforms: FloatArray, counts: FloatArray, probability: FloatArray) -> FloatArray:
    """Binomial numbers by inversion: the smallest k with P(X <= k) >= u.

    Each number takes exactly one uniform, so that no row depends on another.
    """
    drawn: FloatArray = np.where(uniforms >= 1 - probability, counts, 0).astype(np.float64)
    many = counts > 1  # decided number by number, never by the largest of the block
    if many.any():
        from scipy.stats import binom

        above_zero = uniforms[many].clip(min=2.0**-54)  # ppf(0) is -1, for any probability
        drawn[many] = binom.ppf(above_zero, counts[many], probability[many])
    return drawn
