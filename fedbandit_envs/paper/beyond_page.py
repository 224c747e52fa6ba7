"""The page on what Fed-CI reaches beyond the paper: its goals, figures and tables, in Markdown."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.text import Columns, table_text
from fedbandit_envs.paper.goals import (
    CONTEXTS_TOLD,
    KEPT_WRONG,
    LEAST_GAIN,
    MOST_ALONE,
    MOST_TOLD,
    OURS,
    THETA_TOLD,
    TUNED_WIDTH,
)
from fedbandit_envs.paper.panels import setting_table
from fedbandit_envs.paper.robustness import TRIALS as ROBUSTNESS_TRIALS

if TYPE_CHECKING:
    from fedbandit_envs.paper.beyond import Beyond

REPORT = """# Beyond the paper

M = {agents}, fixed hidden contexts, seed {seed}. Regret per agent, measured against the best arm for the true context.
{ours} is Bayesian: no guarantee is proved. {contexts_told} and Fed-PE are shown the true context ("contexts told"),
{theta_told} is shown theta, all others mu_i. Policies with a width of {width} are tuned: they guarantee nothing.

## Goals (T = {long:,}, {trials} trials)

The regret of {ours} should be at most 1/{gain} of Fed-PECD's where Fed-PECD ends on a wrong arm for more than
{wrong:.0%} of the agents, and elsewhere at most Fed-PECD's. It should be at most {alone:g} times the regret without a
server. Except on Linear, it should be at most {told:g} times the sum of the regrets with theta told and with contexts
told. Verdicts are by Student's 95 % intervals of paired differences; the intervals of means (low, high) below are
Student's too.

{goals}
![regret against the spread of the context](spread.png)

![regret against communication](communication.png)

## Wrong assumptions (T = {wrong_horizon:,}, at most {wrong_trials} trials)

{robustness}
## All policies that play whole plans (T = {long:,}, {trials} trials)

{table_long}
## All policies (T = {short:,}, {few} trials)

{table_short}"""
_REPORTED = ("setting", "policy", "regret", "regret_low", "regret_high", "largest_run", "worst_agent", "wrong_share")


def report(found: "Beyond") -> str:
    """The goals, figures and tables on one page of Markdown."""
    first, few = next(iter(found.long.values())), next(iter(found.short.values()))
    tables = [
        {name: table[name] for name in (*_REPORTED, "rounds", "scalars_up", "scalars_down")}
        for table in (with_largest_run(found.long), with_largest_run(found.short))
    ]
    return REPORT.format(
        agents=found.scale.agents,
        seed=first.experiment.seed,
        ours=OURS,
        contexts_told=CONTEXTS_TOLD,
        theta_told=THETA_TOLD,
        width=TUNED_WIDTH,
        gain=LEAST_GAIN,
        wrong=KEPT_WRONG,
        alone=MOST_ALONE,
        told=MOST_TOLD,
        long=found.scale.long,
        short=found.scale.short,
        trials=len(first.trials),
        few=len(few.trials),
        goals=table_text(found.goals, "markdown"),
        wrong_horizon=found.scale.wrong,
        wrong_trials=ROBUSTNESS_TRIALS,
        robustness=table_text(found.robustness, "markdown"),
        table_long=table_text(tables[0], "markdown"),
        table_short=table_text(tables[1], "markdown"),
    )


def with_largest_run(results: Mapping[str, Result]) -> Columns:
    """The summaries of all settings, with the regret of the worst run, because a mean can hide a single bad run."""
    table = setting_table(results)
    pairs = zip(table["setting"], table["policy"], strict=True)
    return table | {"largest_run": [float(results[name].final(policy).max()) for name, policy in pairs]}
