"""For each policy a small environment that it can play: most play the first, some need what few problems have."""

from functools import cache
from typing import Any

import numpy as np

import fedbandit_envs as fb
from fedbandit_envs.problems.generator import InstanceGenerator
from fedbandit_envs.protocol.policy import observe_for

M, K, D = 5, 4, 3


def same_arms(num_agents: int = M) -> fb.Linear:
    """A problem in which all agents are shown the same psi, and each has a hidden context of its own."""
    rng = np.random.default_rng(3)
    features = np.broadcast_to(rng.uniform(0.2, 0.9, (K, D)), (num_agents, K, D))
    mu = fb.Gaussian(features.reshape(num_agents, K * D), std=0.1)
    theta = rng.uniform(0.0, 1.0, (K, D))
    guarantees = {"same_arms": True, "theta_bound": 2.0, "context_proxy": 0.04}
    return fb.Linear(theta, contexts=mu, feature_map=fb.Table(K, D), **guarantees)


@cache
def problems(num_agents: int = M) -> dict[str, tuple[InstanceGenerator, dict[str, Any]]]:
    """The small problems, from the usual one to the special ones, each with arguments of its environment."""
    settings = {"num_agents": num_agents, "num_arms": K, "dim": D, "context_std": 0.1}
    return {
        "hidden contexts": (fb.Synthetic(**settings), {}),
        "the same arms": (same_arms(num_agents), {}),
        "revealed contexts": (fb.Synthetic(**settings, context="streaming"), {"reveal": "after"}),
    }


@cache
def home(name: str, num_agents: int = M) -> tuple[str, InstanceGenerator, dict[str, Any]]:
    """The first of `problems` that a policy can play: its name, the problem, and the arguments of its environment."""
    policy = fb.make_policy(name)
    reasons = []
    for label, (problem, arguments) in problems(num_agents).items():
        shown = {**arguments, "observe": observe_for(policy)}
        reason = fb.why_not(policy, fb.HiddenContextBandit(problem, max_cycles=50, **shown), network="ring")
        if reason is None:
            return label, problem, shown
        reasons.append(f"{label}: {reason}")
    raise AssertionError(f"{name} can play none of the small problems:\n" + "\n".join(reasons))
