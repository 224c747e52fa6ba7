"""The command `fedbandit report`."""

import argparse

HELP = "Write a report on a run, a sweep or a reproduction: one HTML file that needs no network."
EXAMPLES = ("fedbandit report results/mine", "fedbandit report results/agents --out agents.html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit report`."""
    parser.add_argument("folder", help="results of run, sweep or reproduce")
    parser.add_argument("--out", metavar="FILE", help="the file to write; default: report.html in the folder")


def run(options: argparse.Namespace) -> int:
    """Write the report and print its path."""
    from fedbandit_envs.reports.page import report

    print(report(options.folder, options.out))
    return 0
