"""What agents and server may know: public constants and an agent's own view; never theta, never a hidden context."""

from dataclasses import dataclass

from fedbandit_envs.arrays import FloatArray, IntArray, immutable
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import FeatureMap
from fedbandit_envs.seeding import Randomness


@dataclass(frozen=True)
class Constants:
    """Public numbers of a problem; they never depend on which agents are looked at."""

    num_agents: int  # M
    num_arms: int  # K
    dim: int  # d
    horizon: int  # T
    ell: float  # lower end of the norms ||psi||
    L: float  # upper end
    noise_std: float  # sub-Gaussian scale of one reward's noise
    context: str  # "fixed" or "resampled"


@dataclass(frozen=True, eq=False)
class View:
    """What a block of n agents knows: its own mu_i and psi, the constants, and a source of random numbers."""

    constants: Constants
    agents: IntArray  # (n,) their numbers among all M; messages take them over without a copy
    distribution: ContextDistribution  # n rows
    feature_map: FeatureMap
    psi: FloatArray  # (n, K, d) expected features
    randomness: Randomness  # the policy's own: `view.randomness.draws(j)` for plan j
    truth: FloatArray | None = None  # (n, K) the true mean rewards, for policies that observe the "truth" only

    @property
    def exact(self) -> bool:
        """Whether the contexts are known."""
        return self.distribution.known is not None

    def rows(self, index: IntArray) -> "View":
        """The view of some of these agents."""
        agents = immutable(self.agents[index])
        return View(
            constants=self.constants,
            agents=agents,
            distribution=self.distribution.rows(index),
            feature_map=self.feature_map,
            psi=self.psi[index],
            randomness=Randomness(self.randomness.seed, self.randomness.stream, self.randomness.num_agents, agents),
            truth=None if self.truth is None else self.truth[index],
        )
