"""The command `fedbandit run`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedbandit_envs.cli.options import (
    add_dry_run,
    add_experiment,
    add_running,
    add_timeout,
    executor_of,
    experiment_of,
    show_plan,
)

if TYPE_CHECKING:
    from fedbandit_envs.experiments.results import Result

HELP = "Run an experiment, or what is missing of it."
EXAMPLES = (
    "fedbandit run --env Synthetic --paper --policy Fed-CI --policy Fed-PECD --policy Fed-PE --out results/paper",
    "fedbandit run --env Synthetic --policy Fed-PECD --policy Fed-PE --set max_cycles=2**17 --out results/mine",
    "fedbandit run --env Synthetic --policy 'Fed-PECD delta=0.05' --policy Fed-PE --dry-run",
    "fedbandit run experiment.toml --trials 20 --out results/mine",
    "fedbandit run --env Synthetic --policy 'my_module:MyPolicy delta=0.1' --out results/mine",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit run`."""
    add_experiment(parser)
    add_running(parser)
    add_dry_run(parser)
    add_timeout(parser)
    parser.add_argument("--trial", type=int, metavar="K", help="only trial K, in this process")
    parser.add_argument("--log", metavar="FILE", help="add a line of JSON to FILE for each run that is computed")


def run(options: argparse.Namespace) -> int:
    """Run the experiment, show its summary, and write the tables of the whole folder into it."""
    from fedbandit_envs.cli.screen import show_summary
    from fedbandit_envs.experiments.folder import finished_runs, locked
    from fedbandit_envs.experiments.log import JsonLines
    from fedbandit_envs.experiments.reservations import Reservations
    from fedbandit_envs.experiments.running import run as run_experiment
    from fedbandit_envs.validation import visible

    experiment = experiment_of(options)
    if options.dry_run:
        experiment.check()
        show_plan(experiment, finished=finished_runs(Path(options.out), experiment) if options.out else 0)
        return 0
    executor, only = executor_of(options), None
    if options.trial is not None:
        executor, only = "serial", [options.trial]
    callbacks = [JsonLines(options.log)] if options.log else []
    result = run_experiment(
        experiment,
        options.out,
        executor,
        only=only,
        force=options.force,
        callbacks=callbacks,
        timeout=options.timeout,
    )
    lines = list(result.notes)
    # All is written before the first line is printed, because the reader of the output may leave, as `head` does.
    if options.out:
        # Another process that finishes now could overwrite these tables with older ones.
        with Reservations() as reservations, locked(Path(options.out), reservations):
            whole, said = _write_tables(options.out, result)
        lines += said
        if whole is not None and _same_runs(whole, result):
            result = whole  # its tables are made already
    else:
        lines.append("nothing was kept; --out FOLDER keeps the results")
    show_summary(result.table())
    print("", *map(visible, lines), sep="\n")
    return 0


def _write_tables(out: str, result: "Result") -> tuple["Result | None", list[str]]:
    """Write the tables of all that the folder holds, which can be more than was asked for now.

    Returns:
        All that the folder holds, None if no trial is finished; and what was done, in a line each.
    """
    from fedbandit_envs.experiments.reading import read_folder
    from fedbandit_envs.experiments.results import Result
    from fedbandit_envs.reports.page import REPORT_FILE, report

    content = read_folder(out)
    lines = [note for note in content.notes if note not in result.notes]
    if not content.records:
        return None, [
            *lines,
            f"{out} holds no trial that all its policies have finished, so its tables are not written",
        ]
    whole = Result(*content)
    if not _same_runs(whole, result):
        lines.append(f"{out} holds {len(whole.trials)} of {whole.planned} trials of {', '.join(whole.labels)}")
    whole.write_tables(out)
    page = report(whole, Path(out) / REPORT_FILE)
    return whole, [*lines, f"written to {out}; next: fedbandit compare {out}, fedbandit plot {out}", f"report: {page}"]


def _same_runs(one: "Result", other: "Result") -> bool:
    return (one.labels, one.trials) == (other.labels, other.trials)
