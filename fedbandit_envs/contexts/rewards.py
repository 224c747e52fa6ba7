"""Drawing rewards: one pull at a time, or the sum of many pulls at once, exactly in distribution.

A law knows the rewards of a block of agents. `sums` draws the sums of the rewards of a whole plan in one go: the
cost grows with the number of arms, not of pulls (the one exception is `SampledRewards`). `single` draws one pull per
agent from given random numbers, for stepping.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.features import FeatureMap
from fedbandit_envs.seeding import RowDraws

if TYPE_CHECKING:
    from fedbandit_envs.contexts.distributions import ContextDistribution, Discrete

_CHUNK = 1024  # pulls drawn at a time where they must be drawn one by one


class RewardLaw(Protocol):
    """The law of the rewards of n agents."""

    @property
    def normals_per_pull(self) -> int:
        """How many standard normals one pull of one agent uses."""

    @property
    def uniforms_per_pull(self) -> int:
        """How many uniforms one pull of one agent uses: 0 or 1."""

    def sums(self, arm: IntArray, counts: FloatArray, draws: RowDraws) -> FloatArray:
        """(n, K + 1) sums of the rewards of `counts` (n, K + 1) whole pulls: of each arm, and then of `arm` (n,)."""

    def noise(self, normals: FloatArray) -> FloatArray:
        """(steps, n, ...) what `single` makes of the normals (steps, n, normals_per_pull) of many steps, at once."""

    def single(self, arms: IntArray, noise: FloatArray, uniforms: FloatArray) -> FloatArray:
        """(n,) rewards of one pull of `arms` (n,), from the `noise` (n, ...) and uniforms (n,) of its step."""


@dataclass(frozen=True, eq=False)
class GaussianRewards:
    """Normal rewards: Gaussian noise, and resampled Gaussian contexts under a linear map."""

    means: FloatArray  # (n, K)
    stds: FloatArray | float  # (n, K) of one pull, context noise included; or one for all
    normals_per_pull: int = 1
    uniforms_per_pull: int = 0

    def sums(self, arm: IntArray, counts: FloatArray, draws: RowDraws) -> FloatArray:
        """The sum of c pulls with mean r and standard deviation s is normal: c r + s sqrt(c) z."""
        stds = self.stds if isinstance(self.stds, float) else _and_of_arm(self.stds, arm)
        return counts * _and_of_arm(self.means, arm) + np.sqrt(counts) * draws.normals(counts.shape[1]) * stds

    @cached_property
    def _row_starts(self) -> IntArray:
        """(n,) where each row starts in the flattened means: `take` from there is faster than by row and column."""
        return np.arange(0, self.means.size, self.means.shape[1])

    def noise(self, normals: FloatArray) -> FloatArray:
        """s z where s is the same for all, else z."""
        return self.stds * normals[..., 0] if isinstance(self.stds, float) else normals[..., 0]

    def single(self, arms: IntArray, noise: FloatArray, uniforms: FloatArray) -> FloatArray:
        """r + s z."""
        pulled = self._row_starts + arms
        rewards = self.means.take(pulled)
        rewards += noise if isinstance(self.stds, float) else self.stds.take(pulled) * noise
        return rewards


@dataclass(frozen=True, eq=False)
class BernoulliRewards:
    """1 with probability equal to the mean, else 0; a resampled context only changes what the mean is."""

    means: FloatArray  # (n, K)
    normals_per_pull: int = 0
    uniforms_per_pull: int = 1

    def sums(self, arm: IntArray, counts: FloatArray, draws: RowDraws) -> FloatArray:
        """Binomial, by inversion of one uniform each."""
        return _binomial(draws.uniforms(counts.shape[1]), counts, _and_of_arm(self.means, arm))

    def noise(self, normals: FloatArray) -> FloatArray:
        """Bernoulli rewards use no normals: these are returned as they are, of width 0."""
        return normals

    def single(self, arms: IntArray, noise: FloatArray, uniforms: FloatArray) -> FloatArray:
        """One trial."""
        return (uniforms < self.means[np.arange(len(arms)), arms]).astype(np.float64)


@dataclass(frozen=True, eq=False)
class MixtureRewards:
    """Gaussian noise around a mean that is drawn anew from finitely many at each pull (resampled Discrete contexts)."""

    distribution: "Discrete"
    means: FloatArray  # (n, S, K) mean rewards at each point of the support
    noise_std: float
    normals_per_pull: int = 1
    uniforms_per_pull: int = 1

    def sums(self, arm: IntArray, counts: FloatArray, draws: RowDraws) -> FloatArray:
        """How often each point occurs is multinomial: binomials of what is left, point by point."""
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
        """s z."""
        return self.noise_std * normals[..., 0]

    def single(self, arms: IntArray, noise: FloatArray, uniforms: FloatArray) -> FloatArray:
        """Draw the point, then add the noise."""
        points = self.distribution.choose(uniforms)
        rewards: FloatArray = self.means[np.arange(len(arms)), points, arms] + noise
        return rewards


@dataclass(frozen=True, eq=False)
class SampledRewards:
    """Resampled contexts without a closed form: drawn pull by pull, in chunks, by `distribution.from_normals`."""

    distribution: "ContextDistribution"
    feature_map: FeatureMap
    theta: FloatArray  # (K, d)
    noise_std: float
    uniforms_per_pull: int = 0

    @property
    def normals_per_pull(self) -> int:
        """The context's and the noise's."""
        return self.distribution.normals_per_context + 1

    def sums(self, arm: IntArray, counts: FloatArray, draws: RowDraws) -> FloatArray:
        """All pulls of an agent in the order of the arms, a chunk at a time."""
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
        phi = self.feature_map(self.distribution.from_normals(normals[..., :-1]))
        return np.einsum("nsad,ad->nsa", phi, self.theta) + self.noise_std * normals[..., -1:]

    def noise(self, normals: FloatArray) -> FloatArray:
        """The normals themselves: contexts are made of them step by step, because they need more memory."""
        return normals

    def single(self, arms: IntArray, noise: FloatArray, uniforms: FloatArray) -> FloatArray:
        """One context and one noise."""
        return self._rewards(noise[:, None])[np.arange(len(arms)), 0, arms]


def _and_of_arm(table: FloatArray, arm: IntArray) -> FloatArray:
    """A table (n, ..., K) with one more column, the entries of `arm` (n,): (n, ..., K + 1)."""
    return np.concatenate([table, table[np.arange(len(arm)), ..., arm][..., None]], axis=-1)


def _binomial(uniforms: FloatArray, counts: FloatArray, probability: FloatArray) -> FloatArray:
    """The smallest k with P(X <= k) >= u: one uniform a number, so that rows don't depend on each other."""
    drawn: FloatArray = np.where(uniforms >= 1 - probability, counts, 0).astype(np.float64)
    many = counts > 1  # decided number by number, never by the largest of the block
    if many.any():
        from scipy.stats import binom

        above_zero = uniforms[many].clip(min=2.0**-54)  # ppf(0) is -1, for any probability
        drawn[many] = binom.ppf(above_zero, counts[many], probability[many])
    return drawn
