"""Feature-Selection: DELB on averaged tables of features, after Lin and Moothedath."""

from dataclasses import dataclass

from fedbandit_baselines.linear.agents import USUAL_PROXY
from fedbandit_baselines.linear.delb import DELB
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.validation import checked, real_number


@dataclass(frozen=True)
class FeatureSelection(DELB):
    """DELB on psi, for agents that share one set of arms whose features are uncertain.

    Use it where one of several tables of features is true, and agents are shown only how likely each is: mu is a
    `Discrete` over whole tables, with `Table` and `context="resampled"`. It pulls more often than DELB, because what is
    hidden adds to the noise. It does not find out which table is true.
    The publication's abstract promises group regret of the order d sqrt(M T) ln T, where the table is drawn anew at
    each pull. A table that stays the same is not covered: it biases the estimates.
    Reference: after Lin and Moothedath, Feature Selection in Distributed Stochastic Linear Bandits, ACC 2023. The steps
    are inferred from its abstract, which has the rates of DELB; the factor on the pulls is derived.

    >>> import numpy as np
    >>> import fedbandit_envs as fb
    >>> tables = np.random.default_rng(0).uniform(0, 0.7, (1, 2, 6))  # two tables with 3 arms in 2 dimensions
    >>> mu = fb.Discrete(np.tile(tables, (4, 1, 1)), np.full((4, 2), 0.5))
    >>> env = fb.make("fedbandit/Linear-v0", theta=[[0.9, 0.1]] * 3, contexts=mu, feature_map=fb.Table(3, 2),
    ...               context="resampled", same_arms=True, shared_theta=True, context_proxy=0.1, max_cycles=10_000)
    >>> fb.play(env, fb.make_policy("Feature-Selection"), seed=0).ledger.rounds
    4
    """

    sigma: float = checked(1.0, real_number, above=0)  #: noise scale that the number of pulls assumes

    def factor(self, constants: Constants) -> float:
        """C (v + sigma^2) / sigma^2."""
        proxy = USUAL_PROXY if constants.context_proxy is None else constants.context_proxy
        return self.constant * (proxy + self.sigma**2) / self.sigma**2
