"""Fed-PECD, the policy of the paper: federated phased elimination with context distributions."""

from dataclasses import dataclass

from fedbandit_agents.phased.elimination import PhasedElimination


@dataclass(frozen=True)
class FedPECD(PhasedElimination):
    """Federated phased elimination on psi, the expected features under the context distribution.

    This is the paper's policy for agents that know the law mu_i of their context but not the context itself. Agents
    send their active arms and one estimate of theta_a per explored arm in each phase; rewards and features stay with
    them. It is refused on streams, where mu_i changes within an episode. Parameters are those of `PhasedElimination`.
    Use it when contexts are drawn anew at each pull: the paper's theorem then holds for wide enough widths, and
    `fedbandit audit` checks runs against it. Where contexts are fixed, an agent's bias never averages out, and no
    guarantee is claimed.
    Reference: Lin and Moothedath, Federated Learning for Heterogeneous Bandits with Unobserved Contexts.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
    >>> history.ledger.rounds
    14
    """
