"""Agents who are told a wrong mu find out by their own rewards, and do no harm to the others."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_agents import FedCI
from fedbandit_agents.inference.context_bias import prior_belief, without_own_share, wrong_mu
from fedbandit_baselines import LocalThompson
from fedbandit_envs.seeding import Randomness, Stream


def view_of(mu, K):
    n, feature_map = mu.num_agents, fb.Identity(K, mu.dim)
    constants = fb.Constants(n, K, mu.dim, 100, ell=1.0, L=1.0, noise_std=1.0, context="fixed")
    randomness = Randomness(0, Stream.POLICY, n)
    return fb.View(constants, np.arange(n), mu, feature_map, mu.expected_features(feature_map), randomness)


@pytest.mark.parametrize(("off", "lowest", "highest"), [(0.0, 0.0, 0.01), (1.0, 0.0, 0.05), (10.0, 0.99, 1.0)])
def test_rewards_tell_whether_mu_is_wrong(off, lowest, highest):
    # Five arms that have been pulled often, and a context that is off by so many spreads in each of 3 dimensions.
    rng, spread = np.random.default_rng(0), 0.1
    mu = fb.Gaussian(rng.normal(size=(30, 3)), std=spread)
    view, theta = view_of(mu, 5), rng.normal(size=(5, 3))
    context = mu.mean + off * spread * rng.choice([-1.0, 1.0], size=mu.mean.shape)
    pulls = np.full((30, 5), 400)
    sums = pulls * np.einsum("nd,ad->na", context, theta) + 0.1 * np.sqrt(pulls) * rng.normal(size=(30, 5))
    others = without_own_share(theta, np.zeros((5, 3, 3)), view.psi, np.zeros((30, 5)), np.zeros((30, 5)))
    belief = prior_belief(view, others).given(pulls, sums, np.full((30, 5), 0.01))
    assert lowest <= np.median(wrong_mu(view, belief)) <= highest


@dataclass(frozen=True)
class SomeMisjudged:
    """A problem in which a share of the agents is shown a Gaussian mu whose centre is `offset` spreads off."""

    problem: Any
    offset: float
    share: float

    @property
    def num_agents(self):
        return self.problem.num_agents

    def instance(self, rng, context_rng):
        whole = self.problem.instance(rng, context_rng)
        mean, std = whole.distribution.mean, whole.distribution.std[0]
        wrong = (context_rng.random(len(mean)) < self.share)[:, None]
        off = self.offset * std * wrong * context_rng.standard_normal(mean.shape)
        return replace(whole, distribution=fb.Gaussian(mean + off, std=std))


MASKED = fb.MovieLens(num_agents=60, context_std=0.1, noise_std=0.1, factors="masked")


@pytest.mark.parametrize(("offset", "share"), [(20.0, 0.05), (3.0, 1.0)])
def test_with_a_wrong_mu_a_server_costs_no_regret(offset, share):
    # The first edition had 7 and 1.3 times the regret without a server here (M = 100, T = 2^15).
    env = fb.HiddenContextBandit(SomeMisjudged(MASKED, offset, share), max_cycles=2**14)
    ours, alone = (
        np.mean([fb.play(env, policy, seed=seed).mean_regret()[-1] for seed in range(3)])
        for policy in (FedCI(), LocalThompson())
    )
    assert ours < 1.1 * alone
