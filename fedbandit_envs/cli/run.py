"""The command `fedbandit run`."""

import argparse

from fedbandit_envs.cli.options import add_dry_run, add_experiment, add_running, executor_of, experiment_of, show_plan

HELP = "Run an experiment, or what is missing of it."
EXAMPLES = (
    "fedbandit run --env Synthetic --paper --policy Fed-CI --policy Fed-PECD --policy Fed-PE --out results/paper",
    "fedbandit run --env Synthetic --policy Fed-PECD --policy Fed-PE --set max_cycles=2**17 --out results/mine",
    "fedbandit run --env Synthetic --policy 'Fed-PECD delta=0.05' --policy Fed-PE --dry-run",
    "fedbandit run experiment.toml --trials 20 --out results/mine",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit run`."""
    add_experiment(parser)
    add_running(parser)
    add_dry_run(parser)
    parser.add_argument("--trial", type=int, metavar="K", help="only trial K, in this process")


def run(options: argparse.Namespace) -> int:
    """Run the experiment, show its summary, and write its tables into the folder of its results."""
    from fedbandit_envs.cli.tables import show_summary
    from fedbandit_envs.experiments.advice import advice
    from fedbandit_envs.experiments.running import run as run_experiment

    experiment = experiment_of(options)
    if options.dry_run:
        show_plan(experiment)
        return 0
    if options.trial is not None:
        result = run_experiment(experiment, options.out, "serial", only=[options.trial], force=options.force)
    else:
        result = run_experiment(experiment, options.out, executor_of(options), force=options.force)
    show_summary(result.table())
    for line in advice(result):
        print(line)
    if options.out:
        result.write_tables(options.out)
        print(f"\nwritten to {options.out}; next: fedbandit compare {options.out}, fedbandit plot {options.out}")
    return 0
