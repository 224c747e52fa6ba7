"""Lin-Hidden: DisLinUCB where contexts are hidden, after Lin and Moothedath."""

from dataclasses import dataclass

from fedbandit_baselines.linear.agents import USUAL_PROXY
from fedbandit_baselines.linear.sharing import AddingServer, DeterminantAgents, DeterminantPolicy
from fedbandit_envs.protocol.knowledge import ServerView, View


@dataclass(frozen=True)
class LinHidden(DeterminantPolicy):
    """A linear bandit on psi whose agents share what they have seen, for contexts that are hidden and drawn anew.

    Use it to see what a hidden context costs where its spread is not known: it is DisLinUCB with the regression and the
    noise scale of KK-UCB, sqrt(4 + sigma^2). DisLinUCB of this package takes the variance proxy that a problem
    guarantees in place of 4.
    The publication's abstract promises group regret of the order d sqrt(M T), up to logarithms, for one theta and
    contexts that are new at each step. Contexts that stay the same are not covered.
    Reference: after Lin and Moothedath, Distributed Stochastic Bandit Learning with Context Distributions, 2022,
    arXiv:2207.14391. The steps are inferred from its abstract.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, context="streaming")
    >>> fb.play(env, fb.make_policy("Lin-Hidden"), seed=0).ledger.rounds
    4
    """

    def agents(self, view: View) -> DeterminantAgents:
        """Agents that share sums of psi psi^T and psi y."""
        return DeterminantAgents(self, view, self.settings(view, proxy=USUAL_PROXY))

    def server(self, view: ServerView) -> AddingServer:
        """A server that adds up the sums of all agents."""
        return AddingServer(view.constants)
