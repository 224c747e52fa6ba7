"""Lin-Hidden: DisLinUCB where contexts are hidden, after Lin and Moothedath."""

from dataclasses import dataclass

from fedbandit_baselines.linear.agents import USUAL_PROXY
from fedbandit_baselines.linear.sharing import AddingServer, DeterminantAgents, DeterminantPolicy
from fedbandit_envs.protocol.knowledge import ServerView, View


@dataclass(frozen=True)
class LinHidden(DeterminantPolicy):
    """A linear bandit on psi whose agents share what they have seen, for contexts that are hidden and drawn anew.

    It is DisLinUCB with the regression and the noise scale of KK-UCB, sqrt(4 + sigma^2). Where all arms are guaranteed
    to have one theta, as in the reference, they share one estimate; else each arm has its own. DisLinUCB of this
    package takes the variance proxy that a problem guarantees in place of 4. Where a problem guarantees none, the two
    are the same if contexts change or each arm has a theta of its own; with fixed contexts and one theta DisLinUCB and
    KK-UCB still keep an estimate for each arm. With the same estimates, one agent that never synchronises is KK-UCB.
    Each synchronisation sends the new sums of all agents up and all sums down.
    Reference: after Lin and Moothedath, Distributed Stochastic Bandit Learning with Context Distributions, 2022,
    arXiv:2207.14391. The steps are inferred from its abstract, which has the rates of DisLinUCB: the constant 4, delta
    and the threshold are those of KK-UCB and DisLinUCB.

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
