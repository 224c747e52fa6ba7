"""Running consensus between neighbours with a prior on the means: coop-UCL (Landgren, Srivastava, Leonard)."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from fedbandit_baselines.coop_ucb import CoopAgents
from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.validation import check_fields, checked, optional, real_number


@dataclass(frozen=True)
class CoopUCL(Policy):
    """coop-UCB2 for agents with a prior: they average with their neighbours, and play a quantile of their posterior.

    Use it where you know about how large rewards are: a prior that is right saves early pulls, a wrong one costs some.
    Each step sends 2 K numbers over each edge in each direction.
    The paper proves logarithmic regret of the group for its own f and Gaussian rewards. That proof does not cover the f
    that is used here, which is that of coop-UCB2, and nothing is promised for a prior that is wrong.
    Reference: Landgren, Srivastava and Leonard, On distributed cooperative decision-making in multiarmed bandits, ECC
    2016. In the paper f is a number of the graph that is not well defined on symmetric networks.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/MultiArmed-v0", num_agents=5, max_cycles=200)
    >>> policy = fb.make_policy("coop-UCL", prior_mean=0.5, prior_std=0.3)
    >>> fb.play(env, policy, seed=0, network="ring").ledger.scalars_peer
    38000
    """

    talks_to: ClassVar[str] = "peers"

    gamma: float = checked(1.01, real_number, above=1)  #: the exponent of the confidence, above 1
    prior_mean: float = checked(0.0, real_number)  #: the mean of the prior
    #: s0, the standard deviation of the prior; None: infinite, which is no prior
    prior_std: float | None = checked(None, optional(real_number), above=0)

    def __post_init__(self) -> None:
        check_fields(self)

    def agents(self, view: View) -> "CoopUCLAgents":
        """Agents that average with their neighbours."""
        return CoopUCLAgents(self, view)


class CoopUCLAgents(CoopAgents):
    """Agents of coop-UCL."""

    def __init__(self, policy: CoopUCL, view: View):
        super().__init__(view)
        self.policy = policy

    def indices(self, counts: FloatArray, sums: FloatArray) -> FloatArray:
        """The quantiles of the posteriors. Everything is multiplied by sigma^2, which may be 0."""
        constants, policy = self.view.constants, self.policy
        tail = self.steps**-policy.gamma
        quantile = -NormalDist().inv_cdf(tail) if tail < 1 else 0.0
        prior = 0.0 if policy.prior_std is None else (constants.noise_std / policy.prior_std) ** 2
        precision = prior + constants.num_agents * counts
        mean = (constants.num_agents * sums + prior * policy.prior_mean) / precision
        share = 1 + math.sqrt(math.log(self.steps)) / counts
        return mean + constants.noise_std * max(quantile, 0.0) * np.sqrt(share / precision)
