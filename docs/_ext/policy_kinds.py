"""The kinds of policies, in which the site lists them, and the small problem on which each page plays its policy."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import fedbandit_envs as fb
from fedbandit_envs.protocol.policy import observe_for, partner_of

STEPS = 2**13


@dataclass(frozen=True)
class Kind:
    """Policies that belong together."""

    title: str  #: the heading
    told: str  #: one sentence about them
    names: tuple[str, ...]  #: the policies, the most important one first


PHASED = Kind(
    "Phased elimination",
    "The paper's policy and its relatives. A server plans the exploration; arms that are surely worse are dropped. "
    "They refuse contexts that change within an episode, also where these last for long.",
    ("Fed-PECD", "Fed-PE", "Enhanced-Fed-PE", "Collaborative", "Shared-Theta-Fed-PE"),
)
KINDS = (
    PHASED,
    Kind(
        "Inference of the hidden context",
        "Bayesian policies. Fed-CI infers the context from rewards; the others show where its gain comes from.",
        ("Fed-CI", "Fed-CI-Elimination", "Exact-Thompson", "Theta-Told", "Federated-Thompson", "Local-Thompson"),
    ),
    Kind(
        "Linear upper confidence bounds",
        "Most decide at each step, and also play contexts that change within an episode. Residual-LinUCB, which learns "
        "one context, and DELB and Feature-Selection, which plan phases, refuse those.",
        (
            "DisLinUCB",
            "Weighted-DisLinUCB",
            "FedLinUCB",
            "Async-LinUCB",
            "Private-FedLinUCB",
            "FedUCB",
            "Residual-LinUCB",
            "DELB",
            "Feature-Selection",
            "Lin-Hidden",
            "Lin-Delayed",
            "KK-UCB",
            "KK-UCB-Observed",
        ),
    ),
    Kind(
        "Multi-armed, with a server",
        "They use no features. Agents may have means of their own around common ones.",
        ("PF-UCB", "Fed1-UCB", "Fed2-UCB", "Pooled-UCB"),
    ),
    Kind(
        "Finding the best arm in few rounds",
        "They look for one good arm, recommend it, and then play it.",
        ("Multi-Round", "One-Round", "Limited-Interaction"),
    ),
    Kind(
        "Agents that talk to each other",
        "There is no server: messages go along the edges of a network.",
        (
            "coop-UCB2",
            "coop-UCL",
            "DDUCB",
            "Dec-UCB",
            "Gossip-UCB",
            "Private-Gossip-UCB",
            "GosInE",
            "DCB",
        ),
    ),
    Kind(
        "Arms with room for several",
        "Rewards depend on what everybody chooses; the two ends of the scale are of their own here.",
        ("OrchExplore", "Shared-Uniform", "Shared-Oracle"),
    ),
    Kind(
        "Without communication, and yardsticks",
        "What each agent reaches alone, and the two ends of the scale.",
        ("Local-UCB", "UCB1", "Uniform", "Oracle"),
    ),
)
OTHERS = Kind("Others", "They belong to none of these kinds.", ())


def kinds(names: list[str]) -> list[tuple[Kind, list[str]]]:
    """The kinds that have policies, each with those of its policies that are registered."""
    known = {name for kind in KINDS for name in kind.names}
    found = [(kind, [name for name in kind.names if name in names]) for kind in KINDS]
    found.append((OTHERS, [name for name in names if name not in known]))
    return [(kind, members) for kind, members in found if members]


@dataclass(frozen=True)
class Home:
    """A small problem on which a page plays its policy."""

    told: str  #: the problem in words
    environment: str  #: the id of the environment
    arguments: dict[str, Any]  #: its arguments
    kinds: tuple[str, ...] = ()  #: the kinds of policies that try this one first; no other kind tries it
    steps: int = STEPS  #: the horizon

    def env(self, policy: fb.Policy, steps: int | None = None) -> Any:
        """The environment, which shows what the policy must see."""
        return fb.make(self.environment, **self.arguments, max_cycles=steps or self.steps, observe=observe_for(policy))


def same_arms() -> dict[str, Any]:
    """The arguments of a problem in which all agents are shown the same expected features."""
    rng = np.random.default_rng(3)
    features = np.broadcast_to(rng.uniform(0.2, 0.9, (4, 3)), (20, 4, 3)).reshape(20, 12)
    guarantees = {"same_arms": True, "theta_bound": 2.0, "context_proxy": 0.04}
    contexts = fb.Gaussian(features, std=0.1)
    return {"theta": rng.uniform(0, 1, (4, 3)), "contexts": contexts, "feature_map": fb.Table(4, 3), **guarantees}


SYNTHETIC = "fedbandit/Synthetic-v0"
STREAM = {"num_agents": 20, "context": "streaming", "context_std": 0.1}
WITHOUT_FEATURES = "Multi-armed, with a server", "Finding the best arm in few rounds", "Agents that talk to each other"
HOMES = (
    Home(
        "`fedbandit/MultiArmed-v0` with the same means for all agents and noise 0.5",
        "fedbandit/MultiArmed-v0",
        {"num_agents": 20, "num_arms": 6, "noise_std": 0.5},
        WITHOUT_FEATURES,
    ),
    Home(
        "`fedbandit/Synthetic-v0`, where contexts are new at each step",
        SYNTHETIC,
        STREAM,
        ("Linear upper confidence bounds",),
        STEPS // 2,
    ),
    Home(
        "`fedbandit/Synthetic-v0` with classical error in a long run",
        SYNTHETIC,
        {"num_agents": 20, "error": "classical"},
        (PHASED.title,),
        2**17,  # in shorter runs they have hardly begun to eliminate
    ),
    Home("`fedbandit/Synthetic-v0` with classical error", SYNTHETIC, {"num_agents": 20, "error": "classical"}),
    Home(
        "`fedbandit/Synthetic-v0`, where contexts are new at each step and revealed after it",
        SYNTHETIC,
        {**STREAM, "reveal": "after"},
        steps=STEPS // 2,
    ),
    Home("`fedbandit/Linear-v0`, where all agents have the same arms", "fedbandit/Linear-v0", same_arms()),
    Home("`fedbandit/SharedArms-v0`", "fedbandit/SharedArms-v0", {}),
)


def network_of(policy: fb.Policy) -> str | None:
    """The network on which a page plays a policy."""
    return "ring" if partner_of(type(policy)) == "peers" else None


def home(name: str) -> Home:
    """The first problem that a policy can play; those for its own kind are tried before the others."""
    ((kind, _),) = kinds([name])
    policy, reasons = fb.make_policy(name), []
    for one in (one for one in HOMES if not one.kinds or kind.title in one.kinds):
        try:
            reason = fb.why_not(policy, one.env(policy), network=network_of(policy))
        except ValueError as error:  # for example: contexts that change can't be shown
            reason = str(error)
        if reason is None:
            return one
        reasons.append(f"{one.told}: {reason}")
    raise ValueError(f"docs: expected a problem that {name} can play; add one to HOMES:\n" + "\n".join(reasons))
