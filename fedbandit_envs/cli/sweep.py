"""The command `fedbandit sweep`."""

import argparse
from pathlib import Path

from fedbandit_envs.cli.options import add_experiment, add_running, executor_of, experiment_of, value_of

HELP = "Run an experiment at several values of one argument, and plot against it."
EXAMPLES = (
    "fedbandit sweep --env Synthetic --policy Fed-PECD --over num_agents=50,100,150 --out results/agents",
    "fedbandit sweep --env Synthetic --policy Fed-PECD --over dropout=0,0.1,0.3 --out results/dropout",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit sweep`."""
    add_experiment(parser)
    add_running(parser)
    parser.add_argument("--over", required=True, metavar="NAME=V1,V2,...", help="the argument and its values")


def run(options: argparse.Namespace) -> int:
    """Run the sweep, show its table, and draw regret against the argument."""
    from fedbandit_envs.cli.tables import show_summary
    from fedbandit_envs.experiments.sweeps import sweep, sweep_table
    from fedbandit_envs.experiments.text import write_table
    from fedbandit_envs.reports import plotting

    parameter, equals, values = options.over.partition("=")
    if not equals or not values:
        raise ValueError(f"--over: expected NAME=V1,V2,..., got {options.over!r}")
    swept = [value_of(value) for value in values.split(",")]
    results = sweep(experiment_of(options), parameter, swept, options.out, executor_of(options), force=options.force)
    table = sweep_table(parameter, results)
    show_summary(table, first=(parameter,))
    if options.out:
        write_table(table, Path(options.out) / "sweep.csv")
        plotting.save(plotting.regret_against(results, parameter), Path(options.out) / "sweep")
        print(f"\nwritten to {options.out}")
    return 0
