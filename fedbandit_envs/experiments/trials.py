"""One trial of an experiment: every policy on the same instance, each boiled down to a record of plain arrays."""

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from threading import get_ident
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.envs.registration import make, problem_class
from fedbandit_envs.experiments.experiment import Experiment
from fedbandit_envs.experiments.failures import Failure
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.protocol.policy import observe_for
from fedbandit_envs.rounds.history import History, checkpoint_times
from fedbandit_envs.rounds.ledger import COUNTS
from fedbandit_envs.shards.playing import play

# Curves that say how the agents stand, and start anywhere.
STATES = ("active_arms", "settled_share", "wrong_share", "admitted", "simple_regret", "wrong_recommended")
PRIVACY = ("epsilon", "privacy_delta")  # the budget of a policy whose agents' reports are private
Record = dict[str, Any]  # a tree of plain arrays and numbers: what `storage.save` takes


def curve_names() -> tuple[str, ...]:
    """The curves that are kept of a run, in their order; a kind of regret that is added to `REGRETS` adds two."""
    regrets = [f"{of}_{kind}" for of in ("mean", "worst") for kind in REGRETS]
    return (*regrets, *STATES, *COUNTS)


class Played(NamedTuple):
    """A run that came to its end: one policy in one trial."""

    record: Record  #: what is kept of it
    seconds: float  #: how long it took


def play_trial(experiment: Experiment, trial: int, places: Sequence[int]) -> dict[int, Played | Failure]:
    """Play the policies at `places` of the experiment on the instance of a trial.

    The first `experiment.audited` trials are also checked against theory. A policy that fails does not stop the others.
    """
    seed = experiment.trial_seed(trial)
    outcomes: dict[int, Played | Failure] = {}
    for place in places:
        start = perf_counter()
        try:
            record = _play(experiment, place, seed, trial < experiment.audited)
            outcomes[place] = Played(record, perf_counter() - start)
        except (Exception, SystemExit) as error:  # whoever computes, a policy can't end the run
            outcomes[place] = Failure.of(trial, seed, experiment.labels[place], error)
    return outcomes


def _play(experiment: Experiment, place: int, seed: int, audit: bool) -> Record:
    policy = experiment.policies[place].make()
    arguments = json.dumps(dict(experiment.arguments), sort_keys=True)
    problem = problem_class(experiment.environment)
    environment = _environment(experiment.environment, arguments, observe_for(policy), problem, get_ident())
    network = experiment.network or None
    how: dict[str, Any] = {"faults": experiment.faults(policy), "network": network}
    if experiment.shards:
        how |= {"shards": experiment.shards, "executor": experiment.shards_on}
    history = play(environment, policy, seed=seed, record=audit, **how)
    return summary(history) | ({"audit": audited(history)} if audit else {})


@lru_cache(maxsize=2)  # what policies observe has two forms; more would hold the arrays of experiments that are over
def _environment(name: str, arguments: str, observe: str, problem: type, thread: int) -> HiddenContextBandit:
    """The environment of this thread for an experiment; each run resets it, so runs do not depend on those before.

    Args:
        name: the id of the environment.
        arguments: its arguments as JSON, because a key must not change.
        observe: what agents are shown.
        problem: the class that now has this id.
        thread: whose environment it is: two threads can't play one at the same time.
    """
    return make(name, **json.loads(arguments), observe=observe)


def forget_environments() -> None:
    """Drop the environments of this process that runs have left, to free their memory."""
    _environment.cache_clear()


def summary(history: History) -> Record:
    """What is kept of a run; few arrays, because each has its price in a file."""
    # (C, M) each; where contexts change, the kinds that need one table of gaps for the whole run are NaN
    unknown = np.full(history.active.shape, np.nan)
    regrets = [unknown if history.summed and kind not in history.summed else history.regret(kind) for kind in REGRETS]
    curves = np.concatenate(
        [
            [regret.mean(axis=1) for regret in regrets],
            [regret.max(axis=1) for regret in regrets],
            states(history),
            cumulative_counts(history).T,
        ]
    )
    totals = {name: int(history.ledger.per_agent[:, column].sum()) for column, name in enumerate(COUNTS)}
    return {
        "steps": history.steps,  # (C,)
        "curves": curves,  # (len(curve_names()), C)
        "curve_rows": rows_of(curve_names()),
        "agents": np.stack([regret[-1] for regret in regrets]),  # (len(REGRETS), M), at the end
        "agent_rows": rows_of(REGRETS),
        "totals": totals | {"rounds": history.ledger.rounds},
        **(
            {} if history.privacy is None else {"privacy": dict(zip(PRIVACY, map(float, history.privacy), strict=True))}
        ),
    }


def states(history: History) -> list[FloatArray]:
    """The curves (C,) of `STATES`."""
    simple = history.simple_regret()
    mistaken = np.where(np.isnan(simple), np.nan, simple > 0)
    return [
        history.active.mean(axis=1),
        (history.active == 1).mean(axis=1),
        wrong_share(history),
        history.admitted.sum(axis=1).astype(np.float64),
        simple.mean(axis=1),
        mistaken.mean(axis=1),
    ]


def rows_of(names: Iterable[str]) -> dict[str, int]:
    """The row of each name in an array that has a row for each of `names`.

    A record keeps these rows beside its arrays. Readers look a curve up by its name, so a file stays readable when a
    later version stores more curves, or stores them in another order.
    """
    return {name: row for row, name in enumerate(names)}


def missing_names(run: Record) -> list[str]:
    """The curves and regrets that this version stores and the record of a run does not have."""
    curve_rows, agent_rows = run.get("curve_rows", {}), run.get("agent_rows", {})
    curves = [name for name in curve_names() if name not in curve_rows]
    return curves + [kind for kind in REGRETS if kind not in agent_rows]


def wrong_share(history: History) -> FloatArray:
    """(C,) share of the agents that, since the last checkpoint, mostly pulled an arm that is not their best.

    It is NaN where contexts change.
    """
    if history.summed:  # contexts change, so no arm stays the best
        return np.full(len(history.steps), np.nan)
    gaps, before, shares = history.gaps["regret"], np.zeros(1, dtype=np.int64), []
    for pulls in history.tables:
        lately, before = pulls - before, pulls
        shares.append((np.take_along_axis(gaps, lately.argmax(axis=1)[:, None], axis=1) > 0).mean())
    return np.array(shares)


def settling_step(steps: IntArray, shares: FloatArray) -> float:
    """The step by which all agents have one arm left; NaN if that never happens.

    A checkpoint says how agents stood when the plan began that ends there. Such a plan can be as long as the rest of
    the run, but it began before the first time of the grid after the checkpoint before.

    Args:
        steps: (C,) the checkpoints of a run, of which the last is its horizon.
        shares: (C,) the share of agents with one arm left.

    >>> settling_step(np.array([10, 1000]), np.array([0.0, 1.0]))
    11.0
    """
    there = np.flatnonzero(shares >= 1)
    if not len(there):
        return np.nan
    grid, before = checkpoint_times(int(steps[-1])), steps[there[0] - 1] if there[0] else 0
    return float(grid[bisect_right(grid, before)])


def cumulative_counts(history: History) -> FloatArray:
    """(C, len(COUNTS)) what had crossed by each checkpoint, the report of its plan included."""
    rounds = history.ledger.per_round
    sums = np.concatenate([np.zeros((1, len(COUNTS)), np.int64), rounds[:, 1:].cumsum(axis=0)])
    return sums[np.searchsorted(rounds[:, 0], history.steps, side="right")].astype(np.float64)


def audited(history: History) -> Record:
    """The claims of `audit` about a recorded run, by their number."""
    from fedbandit_envs.rounds.auditing import audit

    return {
        str(number): {
            "claim": claim.claim,
            "bound": float(claim.bound),
            "measured": float(claim.measured),
            "claimed": claim.claimed,
            "unless": claim.unless,
            "holds": claim.holds,
        }
        for number, claim in enumerate(audit(history).claims)
    }
