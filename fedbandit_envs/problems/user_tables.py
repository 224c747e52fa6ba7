"""Tables of a user's own, from which problems are learnt: a csv file, a mapping of columns, or any data frame."""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from fedbandit_envs.arrays import FloatArray, short_repr
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import Identity
from fedbandit_envs.problems.file import save_problem
from fedbandit_envs.storage import read_whole
from fedbandit_envs.validation import nearest

Report = TypeVar("Report", covariant=True)
_DELIMITERS = ",;\t|"
_MOST_NAMED = 5  # faults of a table that an error names


@dataclass(frozen=True, eq=False)
class FittedProblem(Generic[Report]):
    """A problem that was learnt from a table, with a report that says how well its model fits.

    Play it by `fb.make("fedbandit/Linear-v0", **problem.arguments)`, or save it and name the file in experiments.
    `print(problem)` shows the report and the noise.

    >>> from fedbandit_envs.contexts.finite import PointMass
    >>> points = PointMass([[1.0, 0.0], [0.0, 1.0]])
    >>> FittedProblem(np.eye(2), points, 0.1, (("a",), ("b",)), report="a perfect fit").arguments["noise_std"]
    0.1
    """

    theta: FloatArray  #: (K, d) the parameters of the arms
    contexts: ContextDistribution  #: mu, what is known about the agents' contexts; phi(a, c) = c
    noise_std: float  #: standard deviation of the rewards' noise
    arms: tuple[tuple[str, ...], ...]  #: what each arm stands for: the items of a cluster, or a label
    report: Report  #: how well the model fits
    true_contexts: FloatArray | None = None  #: (M, d) the hidden contexts; None: drawn from `contexts`

    @property
    def feature_map(self) -> Identity:
        """phi(a, c) = c."""
        return Identity(*self.theta.shape)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `fedbandit/Linear-v0` and of `save_problem`."""
        names = ("theta", "contexts", "feature_map", "true_contexts", "noise_std")
        return {name: getattr(self, name) for name in names}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the problem to a file that `fedbandit/File-v0` plays; the report is not part of it."""
        save_problem(path, **self.arguments)

    __repr__ = short_repr

    def __str__(self) -> str:
        return f"{self.report}\nnoise_std of the rewards: {self.noise_std:.3g}"


def read_columns(table: Any, delimiter: str | None = None) -> Mapping[str, Any]:
    """The columns of a table by name.

    Args:
        table: The path of a csv file with a header, a mapping from names to columns, or a data frame of pandas, polars
            or any other library, if it has `columns` and gives a column by `frame[name]`.
        delimiter: What separates the fields of a csv file; None: found out from its header.
    """
    if isinstance(table, (str, os.PathLike)):
        return _read_csv(Path(table), delimiter)
    if isinstance(table, Mapping):
        return {str(name): values for name, values in table.items()}
    if hasattr(table, "columns") and hasattr(table, "__getitem__"):
        return {str(name): table[name] for name in table.columns}
    raise ValueError(
        f"table: expected the path of a csv file, a mapping of columns or a data frame, got a {type(table).__name__}"
    )


class CsvColumns(dict[str, list[str]]):
    """The columns of a csv file, which also knows the line of the file in which each row ends."""

    def __init__(self, names: Iterable[str]):
        super().__init__((name, []) for name in names)
        self.lines: list[int] = []


def refuse(columns: Mapping[str, Any], where: str, faults: Sequence[tuple[int, str]], remedy: str = "") -> None:
    """Raise a ValueError that names the first faults of a table, if there are any.

    Args:
        columns: the table. Faults of a csv file are named by line, those of other tables by row.
        where: what they are found in, such as "column 'age'".
        faults: for each fault its row, counted from 1, and what was expected and what came.
        remedy: what to do about all of them, said once at the end.
    """
    if not faults:
        return
    parts = [f"{place_of(columns, row)}: {what}" for row, what in faults[:_MOST_NAMED]]
    if len(faults) > _MOST_NAMED:
        parts.append(f"and {len(faults) - _MOST_NAMED} more")
    raise ValueError(f"{where}, {'; '.join(parts + [remedy] * bool(remedy))}")


def place_of(columns: Mapping[str, Any], row: int) -> str:
    """Where a row of a table, counted from 1, is found: by its line in a csv file."""
    return f"line {columns.lines[row - 1]}" if isinstance(columns, CsvColumns) else f"row {row}"


def _read_csv(path: Path, delimiter: str | None) -> CsvColumns:
    try:
        text = read_whole(path).decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"table: expected a csv file, got {str(path)!r} ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected text in UTF-8, got other bytes ({error}); convert it") from error
    lines = text.splitlines(keepends=True)
    if delimiter is None:
        delimiter = max(_DELIMITERS, key=(lines[0] if lines else "").count)
    elif len(delimiter) != 1:
        raise ValueError(f"delimiter: expected one character, got {delimiter!r}")
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        if not header or len(set(header)) != len(header) or "" in header:
            raise ValueError(f"{path}: expected a header of different names, got {', '.join(header) or 'nothing'}")
        columns, faults = CsvColumns(header), []
        for number, row in enumerate(filter(None, rows), start=1):
            columns.lines.append(rows.line_num)
            if len(row) != len(header):
                faults.append((number, f"expected {len(header)} fields as in the header, got {len(row)}"))
                continue
            for name, field in zip(header, row, strict=True):
                columns[name].append(field.strip())
    except csv.Error as error:
        raise ValueError(f"{path}, line {rows.line_num}: expected csv, got {error}") from error
    refuse(columns, str(path), faults)
    return columns


def column(columns: Mapping[str, Any], name: str, meaning: str) -> list[Any]:
    """The values of a column, none of which is missing; `meaning` is the argument that named it."""
    if name not in columns:
        known = [str(one) for one in columns]
        raise ValueError(f"{meaning}: expected a column among {', '.join(known)}, got {name!r}{nearest(name, known)}")
    values = np.asarray(columns[name])
    if values.ndim != 1:
        raise ValueError(f"column {name!r}: expected one value for each row, got an array of shape {values.shape}")
    listed: list[Any] = values.tolist()
    missing = [(row, "expected a value, got none") for row, value in enumerate(listed, start=1) if _is_missing(value)]
    refuse(columns, f"column {name!r}", missing, remedy="drop such rows or fill them")
    return listed


def numbers(columns: Mapping[str, Any], name: str, meaning: str) -> FloatArray:
    """The values of a column as finite numbers; `meaning` is the argument that named it."""
    found, faults = [], []
    for row, value in enumerate(column(columns, name, meaning), start=1):
        try:
            number = float(value)
        except (TypeError, ValueError):
            faults.append((row, f"expected a number, got {value!r}"))
            continue
        if not np.isfinite(number):
            faults.append((row, f"expected a finite number, got {value!r}"))
        found.append(number)
    refuse(columns, f"column {name!r}", faults)
    return np.array(found, dtype=np.float64)


def names_of(values: Iterable[Any]) -> list[str]:
    """The different values of a column as texts, in an order in which 2 comes before 10."""
    return sorted({str(value) for value in values}, key=lambda text: (len(text), text))


def _is_missing(value: Any) -> bool:
    # The missing value of pandas is equal to nothing, not even to a text, and it has no truth value.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value == "" or value != value


def check_lengths(columns: Mapping[str, Sized]) -> None:
    """Refuse columns of different lengths."""
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{length} of {name!r}" for name, length in lengths.items())
        raise ValueError(f"table: expected columns of one length, got {got}")
