"""Lin-Delayed: DisLinUCB where contexts are revealed after each pull, after Lin and Moothedath."""

from dataclasses import dataclass
from typing import ClassVar

from fedbandit_baselines.linear.sharing import AddingServer, DeterminantAgents, DeterminantPolicy
from fedbandit_envs.protocol.knowledge import ServerView, View


@dataclass(frozen=True)
class LinDelayed(DeterminantPolicy):
    """A linear bandit whose agents choose by psi, learn from the context that is revealed after the pull, and share it.

    Use it where contexts are new at each step and seen afterwards (`context="streaming"`, `reveal="after"`): it is
    Lin-Hidden with sums of phi phi^T and phi y, whose rewards have no more noise than their own. With one agent that
    never synchronises it is KK-UCB-Observed. Where all arms are guaranteed to have one theta they share one estimate.
    The publication's abstract promises group regret of the order d sqrt(M T), up to logarithms, for one theta.
    Reference: after Lin and Moothedath, Distributed Stochastic Bandit Learning with Context Distributions, 2022,
    arXiv:2207.14391. The steps are inferred from its abstract, which has the rates of DisLinUCB; delta and the
    threshold are those of DisLinUCB.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, context="streaming", reveal="after")
    >>> fb.play(env, fb.make_policy("Lin-Delayed"), seed=0).ledger.rounds
    4
    """

    observes: ClassVar[str] = "delayed"

    def agents(self, view: View) -> DeterminantAgents:
        """Agents that share sums of phi phi^T and phi y."""
        return DeterminantAgents(self, view, self.settings_of_revealed(view))

    def server(self, view: ServerView) -> AddingServer:
        """A server that adds up the sums of all agents."""
        return AddingServer(view.constants, on_psi=False)
