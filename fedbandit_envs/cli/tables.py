"""Tables on the screen, in aligned columns."""

from collections.abc import Collection, Sequence
from textwrap import fill

from fedbandit_envs.experiments.tables import note
from fedbandit_envs.experiments.text import Columns, selected, table_cells

_NOTE_WIDTH = 100

_SUMMARY_COLUMNS = (
    "policy",
    "regret",
    "regret_low",
    "regret_high",
    "worst_agent",
    "time_to_settle",
    "wrong_share",
    "scalars_up",
    "scalars_down",
    "rounds",
)


def show_summary(columns: Columns, first: Sequence[str] = ()) -> None:
    """Print the columns of a summary that matter most, after those named in `first`, and what its numbers are."""
    shown = [*_SUMMARY_COLUMNS, *_told_columns(columns)]
    show(selected(columns, (*first, *shown)))
    show_note("summary", shown, max(columns["trials"]))


def _told_columns(columns: Columns) -> list[str]:
    """The columns that say something about some policies only: agents that wait, and arms that are recommended."""
    waiting = any(admitted < agents for admitted, agents in zip(columns["admitted"], columns["agents"], strict=True))
    recommended = any(value == value for value in columns["wrong_recommended"])  # NaN: nothing is recommended
    return ["admitted"] * waiting + ["simple_regret", "wrong_recommended"] * recommended


def show_note(what: str, shown: Collection[str], num_trials: int) -> None:
    """Print below a table what its columns are, and by which method."""
    if text := note(what, shown, num_trials):
        print(fill(text, _NOTE_WIDTH))


def show(columns: Columns) -> None:
    """Print all columns of a table; a line break inside a cell is shown as \\n."""
    rows = [[_in_one_line(cell) for cell in row] for row in table_cells(columns)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(columns))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _in_one_line(cell: str) -> str:
    """The cell with line breaks and other unprintable characters as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in cell)
