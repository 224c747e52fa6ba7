"""What each command of `fedbandit` does: options in, tables to stdout, an exit code back."""

import argparse
import sys
from pathlib import Path
from typing import Any

from fedbandit_envs.cli.options import executor_of, experiment_of, step_of, value_of
from fedbandit_envs.envs.ids import environment_ids
from fedbandit_envs.envs.registration import PROBLEMS
from fedbandit_envs.experiments.experiment import ExperimentError
from fedbandit_envs.experiments.results import Columns, Result, table_text, write_table
from fedbandit_envs.protocol.registry import policy_class, policy_names, policy_parameters
from fedbandit_envs.validation import one_of, whole_number

_WORKED = (
    "policy",
    "regret",
    "regret_low",
    "regret_high",
    "worst_agent",
    "time_to_settle",
    "wrong_share",
    "scalars_up",
    "scalars_down",
    "rounds",
)
_SHOWN_FAILURES = 5
_NOT_CLAIMED = """\
not claimed: measured, but theory promises it only if contexts are known or resampled, sigma * width covers the noise
(and what resampling adds to it), and feature norms are at least ell; eliminations and regret only if also no estimate
leaves its width, and regret only with the g-optimal allocation"""


def complain(error: Exception) -> int:
    """Say an error in one line; returns its exit code."""
    from fedbandit_envs.experiments.running import FailedTrials

    text = str(error)
    if isinstance(error, FailedTrials):
        lines = text.splitlines()
        text = "\n".join(lines[: 2 * _SHOWN_FAILURES])
        if len(lines) > 2 * _SHOWN_FAILURES:
            text += f"\nand {len(lines) // 2 - _SHOWN_FAILURES} more trials"
        print(text, file=sys.stderr)
        return 1
    expected = isinstance(error, (ValueError, RuntimeError, OSError, ImportError))
    name = "" if expected else f"{type(error).__name__}, a fault of this program (--debug shows where): "
    print(f"fedbandit: error: {name}{' '.join(text.split())}", file=sys.stderr)
    return 2 if isinstance(error, ValueError) else 1


def list_names(options: argparse.Namespace) -> int:
    """Environments and policies."""
    from fedbandit_envs.envs.parallel import HiddenContextBandit

    if options.what != "policies":
        print("environments")
        for id, problem in zip(environment_ids(), PROBLEMS.values(), strict=True):
            _entry(id, problem, _defaults_of(problem))
        steps = _defaults_of(HiddenContextBandit)["max_cycles"]
        print(f"  each also has\n      max_cycles={steps}, the number of steps T")
    if options.what != "environments":
        print("policies")
        for name in policy_names():
            policy = policy_class(name)
            _entry(f"{name} (is shown the {policy.observes})", policy, policy_parameters(policy))
    return 0


def _entry(name: str, what: Any, parameters: dict[str, Any]) -> None:
    first_line, *_ = (what.__doc__ or "").strip().splitlines() or ["(no description)"]
    print(f"  {name}\n      {first_line}")
    if parameters:
        print("      " + ", ".join(f"{key}={value!r}" for key, value in parameters.items()))


def _defaults_of(problem: Any) -> dict[str, Any]:
    import inspect

    return {name: parameter.default for name, parameter in inspect.signature(problem).parameters.items()}


def run(options: argparse.Namespace) -> int:
    """Run an experiment and show its summary."""
    from fedbandit_envs.experiments.running import run as run_experiment

    experiment = experiment_of(options)
    if options.trial is not None:
        result = run_experiment(experiment, options.out, "serial", only=[options.trial], force=options.force)
    else:
        result = run_experiment(experiment, options.out, executor_of(options), force=options.force)
    _show(result.table())
    if options.out:
        result.write_tables(options.out)
        print(f"\nwritten to {options.out}; next: fedbandit compare {options.out}, fedbandit plot {options.out}")
    return 0


def sweep(options: argparse.Namespace) -> int:
    """Run a sweep, show its table, and draw regret against the parameter."""
    from fedbandit_envs.experiments.sweeps import sweep as run_sweep
    from fedbandit_envs.experiments.sweeps import sweep_table
    from fedbandit_envs.reports import plotting

    parameter, equals, values = options.over.partition("=")
    if not equals or not values:
        raise ExperimentError(f"--over: expected NAME=V1,V2,..., got {options.over!r}")
    swept = [value_of(value) for value in values.split(",")]
    results = run_sweep(
        experiment_of(options), parameter, swept, options.out, executor_of(options), force=options.force
    )
    table = sweep_table(parameter, results)
    _show(table, first=(parameter,))
    if options.out:
        write_table(table, Path(options.out) / "sweep.csv")
        plotting.save(plotting.regret_against(results, parameter), Path(options.out) / "sweep")
        print(f"\nwritten to {options.out}")
    return 0


def plot(options: argparse.Namespace) -> int:
    """Draw figures into the folder."""
    from fedbandit_envs.experiments.folder import EXPERIMENT_FILE
    from fedbandit_envs.experiments.sweeps import load_sweep
    from fedbandit_envs.reports import plotting

    formats = [f".{name}" for name in options.format.split(",")]
    for suffix in formats:
        one_of("--format", suffix, plotting.FORMATS)
    if options.figure is not None:
        one_of("--figure", options.figure, plotting.FIGURES)
    out = Path(options.out or options.folder)
    if (Path(options.folder) / EXPERIMENT_FILE).exists():
        result = Result.load(options.folder)
        names = plotting.FIGURES if options.figure is None else (options.figure,)
        figures = {name: plotting.draw(name, result, options.kind) for name in names}
    else:
        parameter, results = load_sweep(options.folder)
        figures = {"sweep": plotting.regret_against(results, parameter, kind=options.kind)}
    for name, figure in figures.items():
        for path in plotting.save(figure, out / name, formats):
            print(path)
    return 0


def compare(options: argparse.Namespace) -> int:
    """The statistics of a result."""
    from fedbandit_envs.experiments.folder import EXPERIMENT_FILE
    from fedbandit_envs.experiments.sweeps import load_sweep

    if (Path(options.folder) / EXPERIMENT_FILE).exists():
        results = {"": Result.load(options.folder)}
    else:
        parameter, by_value = load_sweep(options.folder)
        results = {f"{parameter}={value}": result for value, result in by_value.items()}
    times = None if options.at is None else [step_of(text) for text in options.at.split(",")]
    for name, result in results.items():
        tables = {"summary": result.table(kind=options.kind)}
        if times is not None:
            tables["curves"] = result.table("curves", options.kind, times)
        tables["comparisons"] = result.table("comparisons", options.kind, times)
        for what, table in tables.items():
            if options.format != "text":
                print(table_text(table, options.format))
            elif table:
                print(f"{name + ': ' if name else ''}{what} ({len(result.records)} trials)")
                _show(table)
                print()
    return 0


def audit(options: argparse.Namespace) -> int:
    """Play one trial with its messages recorded, and audit it."""
    from fedbandit_envs.rounds.claims import audit as check
    from fedbandit_envs.rounds.loop import play

    experiment = experiment_of(options)
    seed, fine = experiment.trial_seed(whole_number("trial", options.trial, at_least=0)), True
    unclaimed = False
    for spec in experiment.policies:
        policy = spec.make()
        env = experiment.environment_for(policy)
        found = check(play(env, policy, seed=seed, record=True, faults=experiment.faults()))
        print(f"{spec.label}\n{found}\n")
        unclaimed = unclaimed or any(not claim.claimed for claim in found.claims)
        fine = fine and found.ok
    if unclaimed:
        print(_NOT_CLAIMED)
    return 0 if fine else 1


def reproduce(options: argparse.Namespace) -> int:
    """The paper's panels."""
    from fedbandit_envs.paper.grid import NOTE, grid
    from fedbandit_envs.paper.panels import reproduce as run_panels
    from fedbandit_envs.paper.panels import verdict_table

    panels = "".join(sorted(set(options.panel or "abcd")))
    keywords: dict[str, Any] = {"seed": options.seed, "force": options.force}
    found = run_panels(options.out, panels, options.trials, executor_of(options), compiled=options.compiled, **keywords)
    table = verdict_table(found.verdicts)
    _show({name: table[name] for name in ("panel", "claim", "measured", "low", "high", "verdict")}, every=True)
    for verdict in found.verdicts:
        if verdict.verdict != "holds":
            print(f"({verdict.panel}) {verdict.claim}: {verdict.verdict}. {verdict.explanation}.")
    if options.grid:
        print()
        _show(grid(options.out, executor=executor_of(options), **keywords), every=True)
        print(f"\n{NOTE}", end="")
    if options.beyond:
        from fedbandit_envs.paper.beyond import beyond

        print()
        _show(beyond(options.out, options.trials, executor_of(options), **keywords).goals, every=True)
        print(f"\nwritten to {Path(options.out) / 'beyond'}: report.md, goals.csv, spread.pdf, communication.pdf")
    print(f"\nwritten to {options.out}: report.md, figure.pdf, numbers.csv, verdicts.csv{', grid.csv' * options.grid}")
    return 0 if found.ok else 1


def federate(options: argparse.Namespace) -> int:
    """A federation of real processes on this machine."""
    from fedbandit_envs.cli.federate import federate as run_federation

    return run_federation(options)


def data(options: argparse.Namespace) -> int:
    """MovieLens: the shipped factors and the ratings behind them."""
    from fedbandit_envs.problems.movielens import factors as movielens
    from fedbandit_envs.problems.movielens.download import download
    from fedbandit_envs.problems.movielens.ratings import read_ratings

    if options.action == "fetch":
        if options.path is None:
            raise ExperimentError("data fetch: expected the folder to put u.data in, got none; add its path")
        download(options.path)
        return 0
    for name in movielens.FACTORS:
        factors = movielens.load_factors(name)
        eligible = len(movielens.eligible_users(factors))
        print(f"{name}: {len(factors.users)} users, {len(factors.theta)} arms, {eligible} eligible users")
    if options.path is not None:
        ratings = read_ratings(options.path)
        print(f"{options.path}: the ratings of MovieLens-100K, {ratings.shape[0]} users, {ratings.shape[1]} films")
    return 0


def _show(columns: Columns, first: tuple[str, ...] = (), every: bool = False) -> None:
    """Print a table in aligned columns; of a summary, those that matter most."""
    summary = "worst_agent_low" in columns and not every
    names = [*first, *_WORKED] if summary else [*columns]
    lines = table_text({name: columns[name] for name in names}, "markdown").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if not line.startswith("| ---")]
    widths = [max(len(row[place]) for row in cells) for place in range(len(names))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


COMMANDS = {
    "list": list_names,
    "run": run,
    "sweep": sweep,
    "plot": plot,
    "compare": compare,
    "audit": audit,
    "reproduce": reproduce,
    "federate": federate,
    "data": data,
}
