"""Tables on the screen, in aligned columns."""

from collections.abc import Sequence
from textwrap import fill

from fedbandit_envs.experiments.tables import note
from fedbandit_envs.experiments.text import Columns, selected, table_cells
from fedbandit_envs.experiments.trials import PRIVACY
from fedbandit_envs.validation import visible

_NOTE_WIDTH = 100

SUMMARY_COLUMNS = (
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


def show_summary(columns: Columns, first: Sequence[str] = (), kind: str = "regret") -> None:
    """Print the columns of a summary that matter most, after those named in `first`, and what its numbers are."""
    show_main_columns(columns, first)
    show_note(note("summary", main_columns(columns), max(columns["trials"]), kind))


def main_columns(columns: Columns) -> list[str]:
    """The names of the columns of a summary that matter most."""
    return [*SUMMARY_COLUMNS, *_columns_of_some(columns)]


def _columns_of_some(columns: Columns) -> list[str]:
    """The columns of some policies only: of peers, of agents that wait, of recommended arms, and of privacy."""
    waiting = any(admitted < agents for admitted, agents in zip(columns["admitted"], columns["agents"], strict=True))
    recommended = any(value == value for value in columns["wrong_recommended"])  # NaN: nothing is recommended
    peers = any(columns["scalars_peer"])
    private = [name for name in PRIVACY if name in columns]
    recommending = ["simple_regret", "wrong_recommended"] * recommended
    return ["scalars_peer"] * peers + ["admitted"] * waiting + recommending + private


def show_main_columns(columns: Columns, first: Sequence[str] = ()) -> None:
    """Print the columns of a summary that matter most, after those named in `first`."""
    show(selected(columns, (*first, *main_columns(columns))))


def show_note(text: str) -> None:
    """Print below a table what its columns are, and by which method."""
    if text:
        print(fill(text, _NOTE_WIDTH))


def show(columns: Columns) -> None:
    """Print all columns of a table; a line break inside a cell is shown as \\n."""
    rows = [[visible(cell) for cell in row] for row in table_cells(columns)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(columns))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
