"""Feature-Selection: DELB on averaged tables of features, after Lin and Moothedath."""

from dataclasses import dataclass

from fedbandit_baselines.linear.agents import USUAL_PROXY
from fedbandit_baselines.linear.delb import DELB
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.validation import checked, real_number


@dataclass(frozen=True)
class FeatureSelection(DELB):
    """DELB on psi, for agents that share one set of arms whose features are uncertain.

    There are several tables of features; agents are shown how likely each is, and one is drawn, and hidden. Give them
    as a `Discrete` distribution over whole tables, the same for all agents, with `Table` and `context="resampled"`.
    DELB then plays on psi, the average of the tables, and pulls (v + sigma^2) / sigma^2 times as often, because what is
    hidden adds to the noise: v is the variance proxy that the problem guarantees, or 4 if it guarantees none. With a
    single table it is DELB, if the problem guarantees that nothing is hidden (known features, or `context_proxy=0`).
    It does not find out which table is true. Where the hidden table stays the same, it biases
    the estimates. As in DELB, all agents must have the same arms, and the upload of psi is charged.
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
