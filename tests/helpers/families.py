"""Families of problems on which Fed-CI is compared with what it must not be worse than.

The families of `DEVELOPED` were looked at while Fed-CI got its learnt scale, its robust server and its cloud. Those of
`WRITTEN_AFTER` were written when these were finished, and no constant was chosen by them. Eight families whose contexts
are new at each step are in `linear_comparison`; Fed-CI's quantile on streams was chosen by some of their trials.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from bumps import CENTRES, bumps

import fedbandit_envs as fb


@dataclass(frozen=True)
class Family:
    """Problems that are drawn alike: `draw(rng, M)` gives theta, the feature map and mu."""

    draw: Callable[[np.random.Generator, int], tuple[Any, Any, Any]]
    num_agents: int = 60
    noise_std: float = 0.3
    horizon: int = 2**14
    rewards: str = "gaussian"
    context: str = "fixed"

    def instance(self, rng, context_rng):
        theta, feature_map, mu = self.draw(rng, self.num_agents)
        contexts = mu.sample(context_rng) if self.context == "fixed" else None
        noise, kind = self.noise_std, self.rewards
        return fb.BanditInstance(theta, feature_map, mu, contexts, noise, rewards=kind, context=self.context)


def shared(K, d, spread, scale=1.0, centre=0.0):
    """One vector of features for all arms, with independent coordinates."""

    def draw(rng, M):
        theta = scale * (rng.normal(size=(K, d)) + centre * rng.normal(size=d)) / np.sqrt(d)
        return theta, fb.Identity(K, d), fb.Gaussian(rng.normal(size=(M, d)), std=spread)

    return draw


def skewed(K, d, spread):
    """The same, where each agent has a covariance of its own, with eigenvalues that differ a hundredfold."""

    def draw(rng, M):
        roots = spread * rng.normal(size=(M, d, d)) * np.geomspace(1, 0.1, d)
        mu = fb.Gaussian(rng.normal(size=(M, d)), covariance=np.einsum("mij,mkj->mik", roots, roots))
        return rng.normal(size=(K, d)) / np.sqrt(d), fb.Identity(K, d), mu

    return draw


def tables(K, d, spread, scale=1.0, unusual=1.0):
    """A vector of features for each arm; the theta of arm 0 is `unusual` times as long."""

    def draw(rng, M):
        theta = scale * rng.normal(size=(K, d)) / np.sqrt(d)
        theta[0] *= unusual
        return theta, fb.Table(K, d), fb.Gaussian(rng.normal(size=(M, K * d)), std=spread)

    return draw


def mixtures(K, d, points, types=None):
    """One of some points: points of the agent's own, or of a few types that all agents share."""

    def draw(rng, M):
        own = rng.normal(size=(M, points, d))
        support = own if types is None else np.tile(rng.normal(size=(types, d)), (M, 1, 1))
        weights = rng.dirichlet(np.full(support.shape[1], 2.0), size=M)
        return rng.normal(size=(K, d)) / np.sqrt(d), fb.Identity(K, d), fb.Discrete(support, weights)

    return draw


def bumpy(spread):
    """Bumps in a context on a line: skewed biases."""

    def draw(rng, M):
        mu = fb.Gaussian(rng.uniform(-1.5, 1.5, size=(M, 1)), std=spread)
        return rng.normal(size=(8, len(CENTRES))), fb.FeatureFunction(bumps, 8, len(CENTRES), 1), mu

    return draw


def waves(contexts):
    """sin and cos of two contexts, with other frequencies for each of 5 arms."""
    turns = np.arange(1, 6) * 0.6
    parts = [np.sin(contexts[:, :1] * turns), np.cos(contexts[:, 1:] * turns), np.ones((len(contexts), 5))]
    return np.stack(parts, axis=2)


def wavy(rng, M):
    mu = fb.Gaussian(rng.normal(size=(M, 2)), std=0.4)
    return rng.normal(size=(5, 3)), fb.FeatureFunction(waves, 5, 3, 2), mu


def chances(rng, M):
    """Means within [0, 1] for rewards of 0 or 1."""
    mu = fb.Discrete(rng.uniform(0.1, 0.55, size=(M, 3, 3)), np.full((M, 3), 1 / 3))
    return rng.uniform(0, 0.6, size=(6, 3)), fb.Identity(6, 3), mu


DEVELOPED = {
    "shared": Family(shared(8, 3, 0.2), noise_std=0.3),
    "shared, little noise": Family(shared(8, 3, 0.2), noise_std=0.01, horizon=2**18),
    "shared, centre far off": Family(shared(8, 3, 0.1, scale=0.2, centre=5.0), noise_std=1.0),
    "tables": Family(tables(8, 3, 0.2), noise_std=1.0),
    "tables, long theta": Family(tables(8, 3, 0.2, scale=20.0), noise_std=1.0),
    "own three points": Family(mixtures(10, 3, 3)),
    "four types": Family(mixtures(10, 3, 4, types=4)),
    "bumps": Family(bumpy(0.5), noise_std=1.0, horizon=2**13),
}
WRITTEN_AFTER = {
    "five agents": Family(shared(6, 3, 0.2), num_agents=5),
    "300 agents": Family(shared(10, 4, 0.3), num_agents=300, noise_std=1.0),
    "40 arms": Family(shared(40, 3, 0.2)),
    "two arms": Family(shared(2, 5, 0.5), noise_std=1.0),
    "ten dimensions": Family(shared(8, 10, 0.2)),
    "skewed covariances": Family(skewed(8, 3, 0.4)),
    "tiny rewards": Family(tables(6, 3, 0.3, scale=1e-4), noise_std=1e-4),
    "one long theta of ten": Family(tables(10, 3, 0.2, unusual=10.0)),
    "spread above the gaps": Family(shared(8, 3, 1.0), noise_std=1.0),
    "two points": Family(mixtures(6, 3, 2), noise_std=1.0),
    "waves": Family(wavy, horizon=2**13),
    "rewards of 0 or 1": Family(chances, rewards="bernoulli", noise_std=0.5),
}
RESAMPLED = {"resampled": Family(tables(8, 3, 0.3), context="resampled")}
FAMILIES = DEVELOPED | WRITTEN_AFTER | RESAMPLED
