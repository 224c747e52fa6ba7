"""The progress bar of a run: on terminals and in notebooks, and nowhere else."""

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

        return tqdm(disable=None, **settings)  # None: shown on a terminal only
    if find_spec("ipywidgets") is None:  # tqdm.auto would warn
        from tqdm import tqdm

        return tqdm(disable=False, file=sys.stdout, **settings)
    from tqdm.notebook import tqdm as widget

    return widget(disable=False, **settings)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")
