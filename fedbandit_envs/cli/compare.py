"""The command `fedbandit compare`."""

import argparse
from pathlib import Path

from fedbandit_envs.cli.options import add_kind, step_of

HELP = "Compare policies: means with 95 % intervals, paired differences with Holm's correction."
EXAMPLES = (
    "fedbandit compare results/mine --at 1000,100000",
    "fedbandit compare results/mine --kind paper_regret --format csv",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit compare`."""
    parser.add_argument("folder", help="results of run or sweep")
    parser.add_argument("--at", metavar="T1,T2", help="compare at these steps too; default: at the end")
    add_kind(parser)
    parser.add_argument("--format", choices=("text", "csv", "json", "markdown"), default="text")


def run(options: argparse.Namespace) -> int:
    """Show the tables of a run, or of each value of a sweep."""
    from fedbandit_envs.cli.tables import show, show_summary
    from fedbandit_envs.experiments.description import EXPERIMENT_FILE
    from fedbandit_envs.experiments.results import Result, table_text
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
                if what == "summary":
                    show_summary(table)
                else:
                    show(table)
                print()
    return 0
