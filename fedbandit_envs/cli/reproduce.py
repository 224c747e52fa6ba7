"""The command `fedbandit reproduce`."""

import argparse
from pathlib import Path
from typing import Any

from fedbandit_envs.cli.options import add_running, executor_of

HELP = "The paper's four panels, their numbers, and a verdict on each claim; exit code 1 if a claim fails."
EXAMPLES = (
    "fedbandit reproduce --out results/reproduce",
    "fedbandit reproduce --panel a --trials 20 --out results/panel-a",
)
_SHOWN_OF_VERDICTS = ("panel", "claim", "measured", "low", "high", "verdict")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit reproduce`."""
    parser.add_argument("--panel", action="append", choices=tuple("abcd"), help="only this panel; can be repeated")
    parser.add_argument("--trials", type=int, default=100, metavar="N", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="default: %(default)s")
    parser.add_argument(
        "--compiled",
        action="store_true",
        help="the panels' policies with compiled=true, which needs the extra compiled",
    )
    parser.add_argument("--grid", action="store_true", help="also the verdicts over what the paper leaves open")
    parser.add_argument("--beyond", action="store_true", help="also all policies, with Fed-CI, on all problems")
    add_running(parser, out="results/reproduce")


def run(options: argparse.Namespace) -> int:
    """Compute the panels, show the verdicts, and explain those that do not hold."""
    from fedbandit_envs.cli.screen import show
    from fedbandit_envs.paper.grid import NOTE, grid
    from fedbandit_envs.paper.panels import reproduce, verdict_table
    from fedbandit_envs.reports.page import report

    panels = "".join(sorted(set(options.panel or "abcd")))
    keywords: dict[str, Any] = {"seed": options.seed, "force": options.force}
    reproduction = reproduce(
        options.out, panels, options.trials, executor_of(options), compiled=options.compiled, **keywords
    )
    table = verdict_table(reproduction.verdicts)
    show({name: table[name] for name in _SHOWN_OF_VERDICTS})
    for verdict in reproduction.verdicts:
        if verdict.verdict != "holds":
            print(f"({verdict.panel}) {verdict.claim}: {verdict.verdict}. {verdict.explanation}.")
    if options.grid:
        print()
        show(grid(options.out, executor=executor_of(options), **keywords))
        print(f"\n{NOTE}", end="")
    if options.beyond:
        from fedbandit_envs.paper.beyond import beyond

        print()
        show(beyond(options.out, options.trials, executor_of(options), **keywords).goals)
        print(f"\nwritten to {Path(options.out) / 'beyond'}: report.md, goals.csv, spread.pdf, communication.pdf")
    print(f"\nwritten to {options.out}: report.md, figure.pdf, numbers.csv, verdicts.csv{', grid.csv' * options.grid}")
    print(f"report: {report(options.out)}")
    return 0 if reproduction.ok else 1
