"""The command `fedbandit plot`."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit_envs.cli.options import add_kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedbandit_envs.experiments.results import Result

HELP = "Draw the figures of a run or a sweep."
EXAMPLES = (
    "fedbandit plot results/mine",
    "fedbandit plot results/mine --figure regret --log-axes xy --size 7x4.5 --format svg",
)
# The option of each keyword of a figure.
_OPTIONS = {"log": "--log-axes", "size": "--size", "title": "--title", "order": "--policy"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit plot`."""
    parser.add_argument("folder", help="results of run or sweep")
    from fedbandit_envs.reports.plotting import FIGURES

    parser.add_argument("--figure", metavar="NAME", help=f"one of {', '.join(FIGURES)}; default: all")
    add_kind(parser)
    parser.add_argument(
        "--log-axes", choices=("x", "y", "xy"), help="logarithmic axes; default: what suits each figure"
    )
    parser.add_argument("--size", metavar="WxH", help="width and height in inches, for example 7x4.5")
    parser.add_argument("--title", metavar="TEXT", help="the heading; an empty text leaves it out")
    parser.add_argument(
        "--policy", action="append", metavar="LABEL", help="draw this policy only, in this order; can be repeated"
    )
    parser.add_argument("--format", default="pdf,png", metavar="F1,F2", help="pdf, svg, png (default: %(default)s)")
    parser.add_argument("--out", metavar="FOLDER", help="where to write; default: the same folder")


def run(options: argparse.Namespace) -> int:
    """Draw the figures into a folder and print their paths."""
    from fedbandit_envs.experiments.description import EXPERIMENT_FILE
    from fedbandit_envs.experiments.results import Result
    from fedbandit_envs.experiments.sweeps import load_sweep
    from fedbandit_envs.reports import plotting
    from fedbandit_envs.reports.sweep_figure import regret_over_grid
    from fedbandit_envs.validation import one_of

    formats = [f".{name}" for name in options.format.split(",")]
    for suffix in formats:
        one_of("--format", suffix, plotting.FORMATS)
    if options.figure is not None:
        one_of("--figure", options.figure, plotting.FIGURES)
    out = Path(options.out or options.folder)
    look = look_of(options)
    if (Path(options.folder) / EXPERIMENT_FILE).exists():
        result = Result.load(options.folder)
        if options.figure is not None:
            figures = {options.figure: plotting.draw(options.figure, result, options.kind, **look)}
        else:
            figures = {name: _draw(name, result, options.kind, look) for name in plotting.FIGURES}
    else:
        parameters, results = load_sweep(options.folder)
        figures = {"sweep": regret_over_grid(results, parameters, options.kind, **look)}
    of_kind = "" if options.kind == "regret" else f"_{options.kind}"  # other kinds keep files of their own
    for name, figure in figures.items():
        for path in plotting.save(figure, out / f"{name}{of_kind}", formats):
            print(path)
    return 0


def _draw(name: str, result: "Result", kind: str, look: Mapping[str, Any]) -> "Figure":
    """One of all figures, with what it takes of `look`; a note names what it does not take."""
    from fedbandit_envs.reports import plotting

    known = plotting.takes(name)
    if ignored := [_OPTIONS[keyword] for keyword in look if keyword not in known]:
        print(f"note: {name} is drawn without {', '.join(ignored)}, which it does not take", file=sys.stderr)
    return plotting.draw(name, result, kind, **{keyword: value for keyword, value in look.items() if keyword in known})


def look_of(options: argparse.Namespace) -> dict[str, Any]:
    """The keywords of a figure that the options ask for; what is not given is left to the figure."""
    given = {"log": options.log_axes, "size": options.size, "title": options.title, "order": options.policy}
    look = {name: value for name, value in given.items() if value is not None}
    if options.size is not None:
        try:
            width, height = options.size.lower().split("x")
            look["size"] = float(width), float(height)
        except ValueError as error:
            raise ValueError(f"--size: expected WxH in inches, for example 7x4.5, got {options.size!r}") from error
    return look
