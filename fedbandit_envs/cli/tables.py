"""Tables on the screen, in aligned columns."""

from collections.abc import Sequence

from fedbandit_envs.experiments.text import Columns, table_cells

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
    """Print the columns of a summary that matter most, after those named in `first`."""
    show({name: columns[name] for name in (*first, *_SUMMARY_COLUMNS)})


def show(columns: Columns) -> None:
    """Print all columns of a table; a line break inside a cell is shown as \\n."""
    rows = [[_in_one_line(cell) for cell in row] for row in table_cells(columns)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(columns))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _in_one_line(cell: str) -> str:
    """The cell with line breaks and other unprintable characters as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in cell)
