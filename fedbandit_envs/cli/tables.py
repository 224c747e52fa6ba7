"""Tables on the screen, in aligned columns."""

from collections.abc import Sequence

from fedbandit_envs.experiments.results import Columns, table_text

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
    """Print all columns of a table."""
    lines = table_text(columns, "markdown").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if not line.startswith("| ---")]
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
