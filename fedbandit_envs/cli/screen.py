"""Tables on the screen, in aligned columns."""

from collections.abc import Sequence
from textwrap import fill

from fedbandit_envs.experiments.tables import columns_of_some, note
from fedbandit_envs.experiments.text import Columns, aligned, selected
from fedbandit_envs.experiments.trials import PRIVACY

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
    """The names of the columns of a summary that matter most, also those of some policies only."""
    private = [name for name in PRIVACY if name in columns]
    return [*SUMMARY_COLUMNS, *["scalars_peer"] * any(columns["scalars_peer"]), *columns_of_some(columns), *private]


def show_main_columns(columns: Columns, first: Sequence[str] = ()) -> None:
    """Print the columns of a summary that matter most, after those named in `first`."""
    show(selected(columns, (*first, *main_columns(columns))))


def show_note(text: str) -> None:
    """Print below a table what its columns are, and by which method."""
    if text:
        print(fill(text, _NOTE_WIDTH))


def show(columns: Columns) -> None:
    """Print all columns of a table."""
    print(aligned(columns))
