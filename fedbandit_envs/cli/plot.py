"""The command `fedbandit plot`."""

import argparse
from pathlib import Path

from fedbandit_envs.cli.options import add_kind

HELP = "Draw the figures of a run or a sweep."
EXAMPLES = ("fedbandit plot results/mine", "fedbandit plot results/mine --figure regret --format svg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit plot`."""
    parser.add_argument("folder", help="results of run or sweep")
    parser.add_argument("--figure", metavar="NAME", help="regret, communication, active or agents; default: all")
    add_kind(parser)
    parser.add_argument("--format", default="pdf,png", metavar="F1,F2", help="pdf, svg, png (default: %(default)s)")
    parser.add_argument("--out", metavar="FOLDER", help="where to write; default: the same folder")


def run(options: argparse.Namespace) -> int:
    """Draw the figures into a folder and print their paths."""
    from fedbandit_envs.experiments.description import EXPERIMENT_FILE
    from fedbandit_envs.experiments.results import Result
    from fedbandit_envs.experiments.sweeps import load_sweep
    from fedbandit_envs.reports import plotting
    from fedbandit_envs.validation import one_of

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
