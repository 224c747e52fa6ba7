"""The command `fedbandit sweep`."""

import argparse
import math
import re
from pathlib import Path
from typing import Any

from fedbandit_envs.cli.options import (
    add_dry_run,
    add_experiment,
    add_running,
    add_timeout,
    executor_of,
    experiment_of,
    show_plan,
    value_of,
)

HELP = "Run an experiment at every combination of values of some parameters, and plot regret against them."
EXAMPLES = (
    "fedbandit sweep --env Synthetic --paper --policy Fed-PECD --over num_agents=50:150:50 --out results/agents",
    "fedbandit sweep --env Synthetic --policy Fed-PECD --over dropout=0,0.1,0.3 --over Fed-PECD.delta=0.05,0.1 --out "
    "results/grid",
)
_NUMBER = r"-?[0-9.]+(?:e[+-]?\d+|(?:\*\*|\^)\d+)?"
_RANGE = f"({_NUMBER}):({_NUMBER}):({_NUMBER})"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit sweep`."""
    add_experiment(parser)
    add_running(parser)
    add_dry_run(parser)
    add_timeout(parser)
    parser.add_argument(
        "--over",
        action="append",
        required=True,
        metavar="NAME=V1,V2,...",
        help="a parameter and its values, or FIRST:LAST:STEP; the name is an argument of the environment, dropout, "
        "network, or POLICY.PARAMETER; can be repeated: all combinations are run, the first is the figure's axis, the "
        "others its panels",
    )


_MOST_ADVICE = 2  # lines of advice that are shown: in the other settings they are much the same


def run(options: argparse.Namespace) -> int:
    """Run the sweep, show its table, and draw regret against the parameters."""
    from fedbandit_envs.cli.screen import show_summary
    from fedbandit_envs.experiments.advice import advice
    from fedbandit_envs.experiments.folder import finished_runs
    from fedbandit_envs.experiments.sweeps import grid, point_name, sweep, sweep_table
    from fedbandit_envs.experiments.text import write_table
    from fedbandit_envs.reports import plotting
    from fedbandit_envs.reports.sweep_figure import regret_over_grid

    over, experiment = over_of(options.over), experiment_of(options)
    if options.dry_run:
        experiments = grid(experiment, over)
        for one in experiments.values():
            one.check()
        finished = 0
        if options.out:
            folders = {Path(options.out) / point_name(tuple(over), point): one for point, one in experiments.items()}
            finished = sum(finished_runs(folder, one) for folder, one in folders.items())
        show_plan(experiment, settings=len(experiments), finished=finished)
        return 0
    results = sweep(experiment, over, options.out, executor_of(options), force=options.force, timeout=options.timeout)
    table = sweep_table(list(over), results)
    said = [f"{point_name(tuple(over), point)}: {line}" for point, one in results.items() for line in advice(one)]
    lines = ["", *said[:_MOST_ADVICE]]
    if len(said) > _MOST_ADVICE:
        lines.append(f"and {len(said) - _MOST_ADVICE} more such lines")
    if options.out is None:
        show_summary(table, first=tuple(over))
        print(*lines, sep="\n")
        print("nothing was kept; --out FOLDER keeps the results and draws a figure")
        return 0
    out = Path(options.out)  # all is written before the first line is printed: the reader of the output may leave
    written = [write_table(table, out / "sweep.csv")]
    written += plotting.save(regret_over_grid(results, list(over)), out / "sweep")
    names = ", ".join(path.name for path in written)
    show_summary(table, first=tuple(over))
    print(*lines, sep="\n")
    print(f"written to {out}: {names}, and a folder of results for each of {len(results)} settings")
    print(f"next: fedbandit compare {out}, fedbandit plot {out} --kind paper_regret")
    return 0


def over_of(texts: list[str]) -> dict[str, list[Any]]:
    """The grid that all of --over describe, by parameter."""
    over: dict[str, list[Any]] = {}
    for text in texts:
        parameter, equals, values = text.partition("=")
        if not equals or not parameter or not values:
            raise ValueError(f"--over: expected NAME=V1,V2,... or NAME=FIRST:LAST:STEP, got {text!r}")
        if parameter in over:
            raise ValueError(f"--over: expected each parameter once, got {parameter!r} again; list all of its values")
        over[parameter] = [value for part in values.split(",") for value in values_of(part)]
    return over


def values_of(text: str) -> list[Any]:
    """One value, or those of FIRST:LAST:STEP, of which LAST is one if the steps meet it."""
    from decimal import Decimal

    from fedbandit_envs.experiments.sweeps import MOST_POINTS

    match = re.fullmatch(_RANGE, text)
    if not match:
        if re.fullmatch(rf"{_NUMBER}:{_NUMBER}", text):
            raise ValueError(f"--over: expected FIRST:LAST:STEP, got {text!r} without a step")
        return [value_of(text)]
    # Decimal numbers, because 0.1 + 0.1 + 0.1 is not 0.3 in binary ones.
    first, last, step = (Decimal(str(value_of(part))) for part in match.groups())
    if step == 0 or (last - first) / step < 0:
        raise ValueError(f"--over: expected FIRST:LAST:STEP with a step that leads from first to last, got {text!r}")
    count = math.floor((last - first) / step) + 1
    if count > MOST_POINTS:
        raise ValueError(f"--over: expected at most {MOST_POINTS:,} values, got {count:,} in {text!r}")
    return [value_of(str(first + step * number)) for number in range(count)]
