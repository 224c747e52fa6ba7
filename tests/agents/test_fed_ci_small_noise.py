"""With little noise agents know their hidden contexts well, and must not confirm each other's mistakes for ever.

Reports about inferred features confirm each other up to one linear map of all theta. Weights without a floor made V go
to 0 along that map, too: 5 of 30 runs then kept wrong arms, with regret up to 10,000 where others had 8.
"""

from dataclasses import dataclass

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_agents import FedCI


@dataclass(frozen=True)
class LittleNoise:
    """Gaussian contexts that all arms share, whose spread is far above the noise; theta_a ~ N(0, I)."""

    noise_std: float
    num_agents: int = 100
    num_arms: int = 8
    dim: int = 3

    def instance(self, rng, context_rng):
        theta = rng.normal(size=(self.num_arms, self.dim))
        mu = fb.Gaussian(rng.normal(size=(self.num_agents, self.dim)), std=0.2)
        feature_map = fb.Identity(self.num_arms, self.dim)
        return fb.BanditInstance(theta, feature_map, mu, mu.sample(context_rng), noise_std=self.noise_std)


def largest_over_median(problem, horizon, runs):
    env = fb.HiddenContextBandit(problem, max_cycles=horizon)
    found = np.array([fb.play(env, FedCI(), seed=seed).mean_regret()[-1] for seed in range(runs)])
    print(f"median {np.median(found):.1f}, mean {found.mean():.1f}, largest {found.max():.1f}")
    return found.max() / np.median(found)


# The bound, 5, was set before these runs. Of 10 runs of an earlier Fed-CI, which took theta for N(0, I), one or two
# were lost: the largest was 1,300 and 800 times the median with the first two problems, and 400 times with MovieLens.
SETTINGS = {
    "noise .01": (LittleNoise(0.01), 2**20),
    "noise .001": (LittleNoise(0.001), 2**20),
    "movielens": (fb.MovieLens(num_agents=100, context_std=0.1), 2**22),
}


@pytest.mark.slow
@pytest.mark.parametrize("label", SETTINGS)
def test_few_long_runs_with_little_noise_stay_together(label):
    assert largest_over_median(*SETTINGS[label], runs=8) < 5


@pytest.mark.study
@pytest.mark.parametrize("label", SETTINGS)
def test_of_30_long_runs_with_little_noise_none_is_lost(label):
    assert largest_over_median(*SETTINGS[label], runs=30) < 5
