"""A whole run in one call, in one process or over shards, and going on with one that was stopped."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

from pettingzoo import ParallelEnv

from fedbandit_envs.envs.parallel import Observation
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.rounds.faults import Faults
from fedbandit_envs.rounds.history import History
from fedbandit_envs.rounds.loop import CommunicationRounds
from fedbandit_envs.shards.rounds import ShardedRounds
from fedbandit_envs.shards.saved import SavedRun
from fedbandit_envs.threads import one_thread

_SAVED_EVERY = 30.0  # seconds after which a run with a `state` is saved


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
    shards: int | None = None,
    executor: str = "processes",
    state: str | Path | None = None,
) -> History:
    """Run a policy to the horizon (`max_cycles`) of a new episode.

    Args:
        env: a HiddenContextBandit or a SharedArmsBandit, wrapped or not.
        policy: what plays.
        seed: the seed of the episode; the same seed gives the same run. None: the next episode of the environment.
        stepwise: step pull by pull through the PettingZoo API instead of drawing whole plans.
        record: keep every message, plan and feedback, and the truth, for `audit`.
        blocks: how the agents are split, as lists of agent numbers; the run is the same however they are split.
        faults: reports that are lost, or changed, on their way; None: none.
        network: who can talk to whom, for policies that talk to peers: a name such as "ring" or "grid:4x5", edges, or
            what else `Network.of` takes. Other policies make no use of it.
        shards: over how many processes the agents are spread; the run is the same however many. None: all in this one.
        executor: where the shards live: "processes", "ray", "ray:ADDRESS" for a cluster, or "serial" for this process.
        state: a folder in which the run is saved every half minute. If it holds a run that was stopped, this one goes
            on from there, with the same settings and as many shards; when the run is over, what was saved is removed.
            None: nothing is saved.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> fb.play(env, fb.make_policy("Uniform"), seed=0).pulls[-1].sum(axis=1)
    array([200, 200, 200, 200, 200])
    """
    making = _rounds(env, policy, stepwise, record, blocks, faults, network, shards, executor)
    with nullcontext() if state is None else SavedRun(state) as saved:
        with making as rounds, one_thread:
            if saved is not None and saved.exists:
                _restore(rounds, saved, seed)
            else:
                rounds.start(seed)
            _finish(rounds, saved)
            history: History = rounds.history()
        if saved is not None:
            saved.remove()
    return history


def _rounds(
    env: ParallelEnv[str, Observation, int],
    policy: Policy,
    stepwise: bool,
    record: bool,
    blocks: Sequence[Sequence[int]] | None,
    faults: Faults | None,
    network: Any,
    shards: int | None,
    executor: str,
) -> Any:
    """A context manager that gives the rounds of a run."""
    common: dict[str, Any] = {"record": record, "faults": faults, "network": network}
    if shards is None:
        if executor != "processes":
            raise ValueError(
                f"executor: expected shards=N with it, got {executor!r} alone; the executor says where shards live, "
                "and a run without shards is in this process"
            )
        return nullcontext(CommunicationRounds(env, policy, blocks=blocks, stepwise=stepwise, **common))
    if blocks is not None or stepwise:
        which = "blocks" if blocks is not None else "stepwise=True"
        raise ValueError(f"shards: expected none with {which}, got {shards}; leave one of the two out")
    return ShardedRounds(env, policy, shards=shards, executor=executor, **common)


def _restore(rounds: CommunicationRounds, saved: SavedRun, seed: int | None) -> None:
    """Go on from a saved state; one of another seed is refused, as one of another policy or problem is."""
    state = saved.load()
    if seed is not None and int(state["seed"]) != seed:
        raise ValueError(
            f"state: expected a run of seed {seed} in {saved.file}, got one of seed {state['seed']}; take another "
            "folder, or go on with that seed"
        )
    rounds.restore(state)


def _finish(rounds: CommunicationRounds, saved: SavedRun | None) -> None:
    """Play to the horizon, and save the run now and then."""
    if saved is None:
        rounds.finish()
        return
    last = monotonic()
    while not rounds.done:
        rounds.go_on()
        if not rounds.done and monotonic() - last >= _SAVED_EVERY:
            saved.save(rounds.snapshot())
            last = monotonic()
