"""Tables of a result: which rows and columns each has. What they look like is decided in `text`."""

import math
from collections.abc import Callable, Collection, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbandit_envs.experiments.statistics import Band, holm, paired_difference, student_band
from fedbandit_envs.experiments.text import Columns
from fedbandit_envs.experiments.trials import PRIVACY, STATES
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.protocol.registry import policy_class, policy_names
from fedbandit_envs.rounds.ledger import COUNTS

if TYPE_CHECKING:
    from fedbandit_envs.experiments.results import Result

LEDGER = (*COUNTS, "rounds")
WITH_STEPS = ("curves", "paths", "comparisons")  # the tables that can be asked for at chosen times
# What `Policy.observes` shows beyond the distribution.
_SHOWN = {
    "context": "the contexts",
    "delayed": "contexts of past steps",
    "truth": "the true means",
    "theta": "theta",
}
Times = Sequence[int] | None


def summary(result: "Result", kind: str, times: Times) -> Columns:
    """One row per policy: means over trials, with Student's 95 % interval for regret."""
    rows = []
    for label in result.labels:
        row: dict[str, Any] = {"policy": label, "trials": len(result.trials), "agents": result.num_agents(label)}
        for name, curve in (("regret", f"mean_{kind}"), ("worst_agent", f"worst_{kind}")):
            row |= _interval(name, student_band(result.final(label, curve)[:, None]), 0)
        row["time_to_settle"] = float(np.median(result.time_to_settle(label)))  # NaN if one trial has none
        row |= {name: float(result.final(label, name).mean()) for name in (*STATES, *LEDGER)}
        rows.append(row)
    return _columns(rows) | _privacy(result)


def columns_of_some(columns: Columns) -> list[str]:
    """The columns of a summary that few policies need: how many agents take part, and what recommended arms cost.

    >>> columns_of_some({"agents": [9, 9], "admitted": [6.0, 9.0], "wrong_recommended": [0.5, math.nan]})
    ['admitted', 'simple_regret', 'wrong_recommended']
    >>> columns_of_some({"agents": [9], "admitted": [9.0], "wrong_recommended": [math.nan]})
    []
    """
    waiting = any(admitted < agents for admitted, agents in zip(columns["admitted"], columns["agents"], strict=True))
    recommended = any(value == value for value in columns["wrong_recommended"])  # NaN: nothing is recommended
    return ["admitted"] * waiting + ["simple_regret", "wrong_recommended"] * recommended


def _privacy(result: "Result") -> Columns:
    """The budgets of the policies, if any of them is private; NaN for those that promise nothing."""
    budgets = [result.privacy(label) for label in result.labels]
    if not any(budgets):
        return {}
    epsilons, deltas = zip(*(budget or (math.nan, math.nan) for budget in budgets), strict=True)
    return dict(zip(PRIVACY, (list(epsilons), list(deltas)), strict=True))


def trials(result: "Result", kind: str, times: Times) -> Columns:
    """One row per policy and trial."""
    rows = []
    for label in result.labels:
        regret, worst = (result.final(label, f"{of}_{kind}") for of in ("mean", "worst"))
        numbers = {"regret": regret, "worst_agent": worst, "time_to_settle": result.time_to_settle(label)}
        numbers |= {name: result.final(label, name) for name in STATES}
        counts = {name: result.final(label, name) for name in LEDGER}
        rows += [
            {"policy": label, "trial": trial, "seed": seed}
            | {name: float(values[place]) for name, values in numbers.items()}
            | {name: int(values[place]) for name, values in counts.items()}
            for place, (trial, seed) in enumerate(zip(result.trials, result.seeds, strict=True))
        ]
    return _columns(rows)


def agents(result: "Result", kind: str, times: Times) -> Columns:
    """One row per policy, trial and agent."""
    return _columns(
        [
            {"policy": label, "trial": trial, "agent": agent, "regret": float(regret)}
            for label in result.labels
            for trial, row in zip(result.trials, result.agents(label, kind), strict=True)
            for agent, regret in enumerate(row)
        ]
    )


def curves(result: "Result", kind: str, times: Times) -> Columns:
    """One row per policy and checkpoint, or each of `times`: means over trials with Student's 95 % interval."""
    rows = []
    for label in result.labels:
        at = result.steps(label) if times is None else times
        mean, worst = (student_band(result.curve(label, f"{of}_{kind}", at)) for of in ("mean", "worst"))
        other = {name: result.curve(label, name, at).mean(axis=0) for name in (*STATES, "scalars")}
        rows += [
            {"policy": label, "step": int(step)}
            | _interval("regret", mean, place)
            | _interval("worst_agent", worst, place)
            | {name: float(values[place]) for name, values in other.items()}
            for place, step in enumerate(at)
        ]
    return _columns(rows)


def paths(result: "Result", kind: str, times: Times) -> Columns:
    """One row per policy, trial and checkpoint, or each of `times`: the trials themselves."""
    shown = {"regret": f"mean_{kind}", "worst_agent": f"worst_{kind}"} | {name: name for name in (*STATES, "scalars")}
    rows = []
    for label in result.labels:
        by_name = {name: result.paths(label, curve, times) for name, curve in shown.items()}
        for place, trial in enumerate(result.trials):
            steps, _ = by_name["regret"][place]
            values = {name: of_trials[place][1].tolist() for name, of_trials in by_name.items()}
            rows += [
                {"policy": label, "trial": trial, "step": step} | {name: of[c] for name, of in values.items()}
                for c, step in enumerate(steps.tolist())
            ]
    return _columns(rows)


def comparisons(result: "Result", kind: str, times: Times) -> Columns:
    """One row per pair of policies and step: paired differences of regret per agent, with Holm's correction."""
    at = [result.horizon] if times is None else list(times)
    columns: Columns = {
        name: [] for name in ("policy", "against", "step", "difference", "low", "high", "p_value", "p_holm")
    }
    for first, second in combinations(result.labels, 2):
        one, other = (result.curve(label, f"mean_{kind}", at) for label in (first, second))
        for place, step in enumerate(at):
            paired = paired_difference(one[:, place], other[:, place])
            row = (first, second, int(step), paired.mean, paired.low, paired.high, paired.p_value)
            for name, value in zip(columns, row, strict=False):  # p_holm needs all p-values first
                columns[name].append(value)
    columns["p_holm"] = holm(columns["p_value"])
    return columns


#: All tables of a result by name.
TABLES: "dict[str, Callable[[Result, str, Times], Columns]]" = {
    "summary": summary,
    "trials": trials,
    "agents": agents,
    "curves": curves,
    "paths": paths,
    "comparisons": comparisons,
}


def note(what: str, shown: Collection[str], num_trials: int, kind: str = "regret", at_steps: bool = False) -> str:
    """What the shown columns of a table are, and by which method, to be read below it.

    Tables of single trials need no words but on their regret, if it is not the usual one.

    Args:
        what: the name of the table.
        shown: the names of the columns that are shown.
        num_trials: the number of trials.
        kind: which regret.
        at_steps: whether the table is at steps that someone has chosen, and not at checkpoints.
    """
    explained = []
    if kind != "regret" and {"regret", "worst_agent", "difference"} & set(shown):
        explained.append(f"regret: {kind}, {REGRETS[kind].help}")
    if what in ("summary", "curves", "comparisons"):
        explained += _methods(shown, num_trials)
    if at_steps:
        explained.append("between checkpoints: straight lines, and counts as at the checkpoint before")
    return "; ".join(explained)


def _methods(shown: Collection[str], num_trials: int) -> list[str]:
    """By which method the numbers over trials were found."""
    interval = f"mean over {num_trials} trials"
    if num_trials == 1:
        interval = "from one trial, which has no interval"
    elif any(name.endswith("low") for name in shown):
        interval = f"mean with Student's 95 % interval (low, high) over {num_trials} trials"
    means = [name for name in ("regret", "worst_agent") if name in shown]
    explained = [f"{', '.join(means)}: {interval}"] if means else []
    if "difference" in shown:
        explained.append(f"difference: regret of policy minus regret of against, {interval}")
    if "p_value" in shown:
        explained.append("p_value: Student's t-test for pairs")
    if "p_holm" in shown:
        explained.append("p_holm: the p-value with Holm's correction over all rows")
    if "time_to_settle" in shown:
        explained.append(
            "time_to_settle: median step by which all agents had one arm left, empty if in some trial they never had, "
            "or if the policy eliminates no arms"
        )
    if "epsilon" in shown:
        explained.append(
            "epsilon, privacy_delta: the budget of differential privacy that the reports of an agent keep together, "
            "for one observation; empty: none is promised"
        )
    if {*STATES, *LEDGER, "scalars"} & set(shown):
        explained.append("all other numbers: means")
    return explained


def shown_more(result: "Result") -> dict[str, str]:
    """The labels of policies that are shown more than others of the same result, and what they are shown.

    Such a policy solves an easier problem, so it is a yardstick and no rival: the Oracle is one wherever it is, and
    Fed-PE is one beside Fed-PECD, from which contexts are hidden. Policies that are not installed are no yardsticks.

    >>> from fedbandit_envs import Experiment, run
    >>> def small(*names):
    ...     return run(Experiment("fedbandit/Synthetic-v0", names, {"max_cycles": 32}, trials=1), executor="serial")
    >>> shown_more(small("Fed-PECD", "Fed-PE", "Oracle"))
    {'Fed-PE': 'the contexts', 'Oracle': 'the true means'}
    >>> shown_more(small("Fed-PE", "Oracle"))
    {'Oracle': 'the true means'}
    """
    known = set(policy_names())  # a name from elsewhere would import code that someone else has chosen
    observed = {
        spec.label: policy_class(spec.name).observes if spec.name in known else "distribution"
        for spec in result.experiment.policies
    }
    for what in ("distribution", "context"):
        if what in observed.values():
            return {label: _SHOWN[seen] for label, seen in observed.items() if seen not in ("distribution", what)}
    return {}


def _interval(name: str, band: Band, place: int) -> dict[str, float]:
    """One mean and its interval, as three columns of a table."""
    ends = {f"{name}_low": float(band.low[place]), f"{name}_high": float(band.high[place])}
    return {name: float(band.mean[place])} | ends


def _columns(rows: list[dict[str, Any]]) -> Columns:
    return {name: [row[name] for row in rows] for name in rows[0]}
