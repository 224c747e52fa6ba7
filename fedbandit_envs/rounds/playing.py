"""A whole run in one call, and the question whether there can be one."""

import copy
from collections.abc import Sequence
from typing import Any

from pettingzoo import ParallelEnv

from fedbandit_envs.envs.parallel import Observation
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.rounds.faults import Faults
from fedbandit_envs.rounds.history import History
from fedbandit_envs.rounds.loop import CommunicationRounds
from fedbandit_envs.threads import one_thread


def play(
    env: ParallelEnv[str, Observation, int],
    policy: Policy,
    *,
    seed: int | None = None,
    stepwise: bool = False,
    record: bool = False,
    blocks: Sequence[Sequence[int]] | None = None,
    faults: Faults | None = None,
    network: Any = None,
) -> History:
    """Run a policy to the horizon (`max_cycles`) of a new episode.

    Args:
        env: a HiddenContextBandit or a SharedArmsBandit, wrapped or not.
        policy: what plays.
        seed: the seed of the episode; the same seed gives the same run. None: the next episode of the environment.
        stepwise: step pull by pull through the PettingZoo API instead of drawing whole plans.
        record: keep every message, plan and feedback, and the truth, for `audit`.
        blocks: how the agents are split, as lists of agent numbers; the run is the same however they are.
        faults: reports that are lost, or changed, on their way; None: none.
        network: who can talk to whom, for policies that talk to peers: a name such as "ring" or "grid:4x5", edges, or
            what else `Network.of` takes. Other policies do without it.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> fb.play(env, fb.make_policy("Uniform"), seed=0).pulls[-1].sum(axis=1)
    array([200, 200, 200, 200, 200])
    """
    rounds = CommunicationRounds(
        env, policy, blocks=blocks, stepwise=stepwise, record=record, faults=faults, network=network
    )
    with one_thread:
        rounds.start(seed)
        rounds.finish()
        return rounds.history()


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
