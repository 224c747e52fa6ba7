"""How tasks are timed: in CPU seconds of one process, and by turns, so that all of them meet the same load."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np


class Row(NamedTuple):
    """One line of a benchmark's table; `ok` is None where there is no goal."""

    what: str
    goal: str
    measured: str
    ok: bool | None


def interleaved(tasks: Mapping[str, Callable[[int], Any]], calls: int, repeats: int) -> dict[str, list[float]]:
    """CPU seconds per call of each task in each repeat; the tasks take turns, so that all meet the same load."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for repeat in range(repeats + 1):
        for name, task in tasks.items():
            start = time.process_time()
            for call in range(calls):
                task(call)
            if repeat:  # the first repeat only warms up
                seconds[name].append((time.process_time() - start) / calls)
    return seconds


def ratio(tasks: Mapping[str, Callable[[int], Any]], calls: int, repeats: int) -> tuple[float, float, float]:
    """The median over repeats of the first task's time over the second's, and the median seconds of each."""
    first, second = (np.array(values) for values in interleaved(tasks, calls, repeats).values())
    return float(np.median(first / second)), float(np.median(first)), float(np.median(second))


def in_new_process(code: str, *arguments: str) -> str:
    """What a Python program prints, run in a process of its own."""
    # Installed packages have compiled bytecode. Our own must have it too, or else its compilation would be timed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def compiler() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


NOT_COMPILED = "not measured: needs the extra compiled"


def show(rows: list[Row]) -> None:
    """Prints the table."""
    verdicts = {True: "ok", False: "MISSED", None: ""}
    table = [("what", "goal", "measured", ""), *[(*row[:3], verdicts[row.ok]) for row in rows]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
