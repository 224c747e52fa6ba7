"""The command `fedbandit compare`."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit_envs.cli.options import add_kind, value_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from fedbandit_envs.experiments.results import Result
    from fedbandit_envs.experiments.text import Columns

    Point = tuple[Any, ...]  # a value for each swept parameter

HELP = "Compare policies: means with Student's 95 % intervals, paired differences with Holm's correction."
EXAMPLES = (
    "fedbandit compare results/mine --at 1000,10000",
    "fedbandit compare results/mine --kind paper_regret --table comparisons --format csv",
    "fedbandit compare results/mine --format latex --columns policy,regret,scalars_up",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit compare`."""
    from fedbandit_envs.experiments.tables import TABLES

    parser.add_argument("folder", help="results of run or sweep")
    parser.add_argument("--at", metavar="T1,T2", help="compare at these steps too, not at the end alone")
    add_kind(parser)
    parser.add_argument(
        "--table",
        metavar="NAME",
        help=f"show one table: {', '.join(TABLES)}. curves has means by step, paths every trial by step (default: "
        "summary; as text also comparisons, and curves with --at)",
    )
    parser.add_argument(
        "--columns",
        metavar="C1,C2",
        help="show these columns of the table (default: all; of a summary as text or LaTeX those that matter most)",
    )
    parser.add_argument("--format", choices=("text", "csv", "json", "markdown", "latex"), default="text")


def run(options: argparse.Namespace) -> int:
    """Show the tables of a run, or of all values of a sweep."""
    from fedbandit_envs.experiments.tables import TABLES, WITH_STEPS
    from fedbandit_envs.validation import one_of, visible

    parameters, results = _load(options.folder)
    for point, result in results.items():
        for note in result.notes:
            print(visible(f"{_title(parameters, point)}: {note}" if parameters else note), file=sys.stderr)
    if options.format == "text" and options.table is None and options.columns is None:
        _show_all(parameters, results, options)
        return 0
    what = one_of("--table", options.table or "summary", TABLES)
    if options.at is not None and what not in WITH_STEPS:
        raise ValueError(f"--at: expected --table {' or '.join(WITH_STEPS)}, got {what}, which has no steps")
    tables = {point: _table(result, what, options) for point, result in results.items()}
    if options.format == "latex":
        print(_latex(parameters, results, what, tables, options))
    else:
        _show_one(parameters, results, what, tables, options)
    return 0


def _load(folder: str) -> "tuple[Sequence[str], dict[Point, Result]]":
    """The swept parameters and the results by their values; a single run has neither parameters nor values."""
    from fedbandit_envs.experiments.description import EXPERIMENT_FILE
    from fedbandit_envs.experiments.results import Result
    from fedbandit_envs.experiments.sweeps import load_sweep

    if (Path(folder) / EXPERIMENT_FILE).exists():
        return (), {(): Result.load(folder)}
    return load_sweep(folder)


def _title(parameters: "Sequence[str]", point: "Point") -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(parameters, point, strict=True))


def _table(result: "Result", what: str, options: argparse.Namespace) -> "Columns":
    """A table of a result; with --at it has the given steps and the last one."""
    if options.at is None:
        return result.table(what, options.kind)
    times = {_step(text, result.horizon) for text in options.at.split(",")} | {result.horizon}
    return result.table(what, options.kind, sorted(times))


def _step(text: str, horizon: int) -> int:
    """One of the steps of --at."""
    value = value_of(text)
    if not isinstance(value, int):
        raise ValueError(f"--at: expected steps as whole numbers, got {text!r}")
    if not 1 <= value <= horizon:
        raise ValueError(f"--at: expected steps from 1 to {horizon}, the horizon of these runs, got {text}")
    return value


def _note(what: str, shown: "Collection[str]", results: "Collection[Result]", options: argparse.Namespace) -> str:
    """What the numbers of a table are."""
    from fedbandit_envs.experiments.tables import WITH_STEPS, note

    trials = max(len(result.trials) for result in results)
    return note(what, shown, trials, options.kind, options.at is not None and what in WITH_STEPS)


def _show_all(parameters: "Sequence[str]", results: "dict[Point, Result]", options: argparse.Namespace) -> None:
    """All tables that compare, each with its title and a note on its numbers; the notes of a sweep stand at its end."""
    from fedbandit_envs.cli.screen import main_columns, show, show_main_columns, show_note

    by_steps = ("curves", "comparisons") if options.at is not None else ("comparisons",)
    tables = {  # all of them before the first is shown: one may be refused
        point: {"summary": result.table(kind=options.kind)} | {what: _table(result, what, options) for what in by_steps}
        for point, result in results.items()
    }
    for point, result in results.items():
        title = f"{_title(parameters, point)}: " if parameters else ""
        for what, table in tables[point].items():
            if not table["policy"]:  # one policy has nothing to be compared with
                continue
            print(f"{title}{what} ({_trials(result)})")
            if what == "summary":
                show_main_columns(table)
            else:
                show(table)
            if not parameters:
                show_note(_note(what, main_columns(table) if what == "summary" else table, [result], options))
            print()
    if parameters:
        for what, table in next(iter(tables.values())).items():
            if table["policy"]:
                shown = main_columns(table) if what == "summary" else table
                show_note(f"{what}: {_note(what, shown, results.values(), options)}")


def _trials(result: "Result") -> str:
    """How many trials there are, and how many there shall be if that is more."""
    done, wanted = len(result.trials), result.planned
    return f"{done} of {wanted} trials" if done < wanted else f"{done} trial{'s' * (done != 1)}"


def _show_one(
    parameters: "Sequence[str]",
    results: "dict[Point, Result]",
    what: str,
    tables: "dict[Point, Columns]",
    options: argparse.Namespace,
) -> None:
    """One table as one text; a sweep has the values of its parameters in the first columns."""
    from fedbandit_envs.cli.screen import show, show_note, show_summary
    from fedbandit_envs.experiments.text import selected, stacked, table_text

    table = stacked(parameters, tables)
    if options.columns is None and what == "summary" and options.format == "text":
        show_summary(table, first=parameters, kind=options.kind)
        return
    if options.columns is not None:
        names = options.columns.split(",")
        table = selected(table, [*(name for name in parameters if name not in names), *names])
    if options.format == "text":
        show(table)
    else:
        print(table_text(table, options.format), end="")
    if options.format == "markdown":
        print()
    if options.format in ("text", "markdown"):
        show_note(_note(what, table, results.values(), options))


def _latex(
    parameters: "Sequence[str]",
    results: "dict[Point, Result]",
    what: str,
    tables: "dict[Point, Columns]",
    options: argparse.Namespace,
) -> str:
    """One table as LaTeX; a sweep has its rows under titles with the values of its parameters."""
    from fedbandit_envs.experiments.tables import shown_more
    from fedbandit_envs.experiments.trials import PRIVACY
    from fedbandit_envs.problems.regrets import REGRETS
    from fedbandit_envs.reports import latex

    names = options.columns.split(",") if options.columns else None
    titled = {_title(parameters, point): table for point, table in tables.items()}
    if what != "summary":
        known = list(next(iter(tables.values())))
        explained = _note(what, names or known, results.values(), options)
        return latex.booktabs(titled, names or known, latex.escaped(explained))
    compared = [result.table("comparisons", options.kind) for result in results.values()]
    groups = {title: (table, found) for (title, table), found in zip(titled.items(), compared, strict=True)}
    references = shown_more(next(iter(results.values())))
    regret = REGRETS[options.kind].axis_label
    private = (name for name in PRIVACY if all(name in table for table in tables.values()))
    shown = names or [*latex.SUMMARY_COLUMNS, *private]
    return latex.summary_table(groups, shown, regret=regret, references=references)
