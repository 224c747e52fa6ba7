"""What a run needs before it can begin: an environment, a policy that can play it, a network, faults."""

from typing import Any

from pettingzoo import ParallelEnv

from fedbandit_envs.envs.playable import PlayableBandit, PlayableBlock
from fedbandit_envs.problems.instance_checks import OBSERVES
from fedbandit_envs.protocol.graphs import GRAPHS
from fedbandit_envs.protocol.network import Network
from fedbandit_envs.protocol.policy import DELIVERIES, AgentSide, Policy, partner_of
from fedbandit_envs.rounds.faults import Faults
from fedbandit_envs.validation import one_of


def checked_environment(env: Any) -> PlayableBandit:
    """The bandit inside an environment that may be wrapped; anything else is refused."""
    bandit: PlayableBandit = getattr(env, "unwrapped", env)
    playable = all(callable(getattr(type(bandit), name, None)) for name in ("view", "resume"))
    if not playable or not isinstance(env, ParallelEnv):
        raise ValueError(
            f"env: expected a HiddenContextBandit or a SharedArmsBandit, wrapped or not, got {type(env).__name__}; use "
            "fb.make(id), or pettingzoo.make('parallel', id)"
        )
    return bandit


def check_plays(policy: object, bandit: PlayableBandit) -> None:
    """Refuse what is no policy, and a policy that needs what this environment does not show or is not installed."""
    if not isinstance(policy, Policy):
        raise ValueError(
            f"policy: expected a Policy, got {policy!r}; use fb.make_policy(name), or an instance of yours"
        )
    one_of(f"{type(policy).__name__}.observes", policy.observes, OBSERVES)
    if policy.shares_arms != bandit.shared_arms:
        known = "for arms that agents share, such as OrchExplore, Shared-Uniform or Shared-Oracle,"
        wanted = known if bandit.shared_arms else "for arms of one agent,"
        other = "of which each agent has its own" if bandit.shared_arms else "that agents share, as in SharedArms-v0"
        raise ValueError(f"policy: expected one {wanted} got {type(policy).__name__}, which plays arms {other}")
    if policy.observes == "context" and not bandit.exact:
        advice = "make the environment with observe='context'"
        if bandit.resampled:  # then there is no context that could be shown
            advice = "make the environment with context='fixed' and observe='context'"
        elif bandit.segment_steps is not None:  # most of them are phased, and plan too far ahead for that
            advice += ", and with contexts that never change, or take one that decides at each step, such as KK-UCB"
        raise ValueError(
            f"policy: expected one that observes the distribution, got {type(policy).__name__}, which needs the "
            f"context, and this environment hides it; {advice}"
        )
    if policy.observes == "delayed" and bandit.reveal != "after":
        raise ValueError(
            f"policy: expected one that does without the contexts of past steps, got {type(policy).__name__}, and this "
            "environment reveals nothing; make it with context='streaming' and reveal='after'"
        )
    policy.check_installed()


def check_changes(policy: Policy, side: AgentSide, bandit: PlayableBlock) -> None:
    """Refuse agents that can't follow contexts that change within the episode."""
    steps = bandit.segment_steps
    if steps is None or steps >= bandit.max_cycles or type(side).observe is not AgentSide.observe:
        return
    often = "at each step" if steps == 1 else f"every {steps} steps"
    raise ValueError(
        f"policy: expected one that follows contexts which change {often}, got {type(policy).__name__}, whose agents "
        "compute with the psi of their first step all along; take one that decides at each step, such as KK-UCB or "
        "DisLinUCB, or a problem whose contexts never change"
    )


def check_counted_steps(policy: Policy, uncounted: int, horizon: int) -> None:
    """Refuse an episode that is over before a policy begins to count its steps."""
    if uncounted >= horizon:
        raise ValueError(
            f"max_cycles: expected more than the {uncounted} steps that {type(policy).__name__} does not count, got "
            f"{horizon}; raise it"
        )


def check_network(policy: Policy, network: object, num_agents: int) -> None:
    """Refuse a network that can't be one of these agents, and a policy that talks to peers without a network."""
    if network is not None:
        Network.of(network, num_agents)
    elif partner_of(type(policy)) == "peers":
        raise ValueError(
            f"network: expected one, because the agents of {type(policy).__name__} talk to their neighbours, got None; "
            "give network='ring' to play, Experiment or --network, or another of "
            f"{', '.join(GRAPHS)}, edges, or a Network"
        )
    for name, way in policy.delivery.items():
        one_of(f"{type(policy).__name__}.delivery[{name!r}]", way, DELIVERIES)


def check_faults(faults: Faults | None, policy: Policy, num_agents: int) -> None:
    """Refuse what is no `Faults`, a schedule of agents that don't exist, and edges that fail where there are none."""
    if faults is None:
        return
    if not isinstance(faults, Faults):
        raise ValueError(f"faults: expected Faults, got {faults!r}; use Faults(dropout=0.1)")
    faults.check(num_agents)
    if faults.edge_dropout and partner_of(type(policy)) != "peers":
        raise ValueError(
            f"edge_dropout: expected 0, because {type(policy).__name__} does not talk to peers, got "
            f"{faults.edge_dropout}; use dropout for reports to a server"
        )
