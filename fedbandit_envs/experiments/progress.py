"""The progress bar of a run: on terminals and in notebooks, and nowhere else."""

import os
import sys
from importlib.util import find_spec
from typing import Any


def progress_bar(total: int, unit: str = "trial") -> Any:
    """A tqdm bar, to be used in a `with` statement; it appears when there is something to wait for.

    In a notebook it is a widget if ipywidgets is installed, and text otherwise. Elsewhere it is shown on a terminal
    only, so that logs stay clean.
    """
    settings: dict[str, Any] = {"total": total, "unit": unit, "delay": 1, "leave": False}
    if not in_notebook():
        from tqdm import tqdm

        return tqdm(disable=None, **_usual_size(), **settings)  # None: shown on a terminal only
    if find_spec("ipywidgets") is None:  # tqdm.auto would warn
        from tqdm import tqdm

        return tqdm(disable=False, file=sys.stdout, **settings)
    from tqdm.notebook import tqdm as widget

    return widget(disable=False, **settings)


def _usual_size() -> dict[str, int]:
    """The usual width and height for a terminal that says that its own are 0, as some do.

    tqdm takes 0 rows for too few to show a bar in. What the terminal knows is left to tqdm.
    """
    try:
        columns, rows = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # no terminal, a closed stream, or none at all
        return {}
    return ({} if columns else {"ncols": 80}) | ({} if rows else {"nrows": 24})


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")
