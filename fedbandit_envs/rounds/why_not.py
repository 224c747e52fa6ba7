"""The question whether a policy can play an environment."""

import copy
from typing import Any

from pettingzoo import ParallelEnv

from fedbandit_envs.envs.parallel import Observation
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.rounds.loop import CommunicationRounds


def why_not(policy: Policy, env: ParallelEnv[str, Observation, int], *, network: Any = None) -> str | None:
    """The reason why a policy can't play an environment, in words; None if it can.

    It asks by beginning a run on a copy of the environment, so the answer is the error that `play` would raise, and
    the environment stays as it was.

    Args:
        policy: who would play.
        env: the environment, made with the `observe` that the policy needs.
        network: who could talk to whom, as for `play`.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> print(fb.why_not(fb.make_policy("Fed-PECD"), env))
    None
    >>> fb.why_not(fb.make_policy("coop-UCB2"), env)[:60]
    'network: expected one, because the agents of CoopUCB2 talk t'
    >>> print(fb.why_not(fb.make_policy("coop-UCB2"), env, network="ring"))
    None
    """
    try:
        CommunicationRounds(copy.deepcopy(env), policy, network=network).start(seed=0)
    except (ValueError, ImportError) as error:  # a ProtocolError is a ValueError too
        return str(error)
    return None
