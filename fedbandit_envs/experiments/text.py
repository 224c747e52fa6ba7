"""Tables as text and as files: CSV, JSON, markdown, parquet, and the cells that people read."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_envs.experiments.folder import write_whole
from fedbandit_envs.validation import needs, one_of, visible

Columns = dict[str, list[Any]]  # a table: each column by its name, all of the same length
FORMS = {".csv": "csv", ".json": "json", ".md": "markdown"}
_PAIRED = ("difference", "low", "high")  # the columns of a paired difference and of its interval
_DIGITS = 7  # the most that a rounded number shows, unless all of them stand before the point
_NOISE = 1e-12  # what is smaller than this share of a column's largest number counts as 0 for its format


def selected(columns: Columns, names: Sequence[str]) -> Columns:
    """The named columns, in that order; a wrong name is answered with the nearest ones."""
    return {name: columns[one_of("column", name, tuple(columns))] for name in names}


def stacked(parameters: Sequence[str], tables: Mapping[tuple[Any, ...], Columns]) -> Columns:
    """Tables with the same columns, one below the other; the first columns, `parameters`, have their keys.

    >>> stacked(["M"], {(2,): {"regret": [1.5]}, (4,): {"regret": [0.5]}})
    {'M': [2, 4], 'regret': [1.5, 0.5]}
    """
    columns: Columns = {}
    for key, table in tables.items():
        rows = len(next(iter(table.values())))
        keys = {name: [value] * rows for name, value in zip(parameters, key, strict=True)}
        for name, cells in (keys | table).items():
            columns.setdefault(name, []).extend(cells)
    return columns


def table_text(columns: Columns, form: str) -> str:
    """A table as "csv", "json" (a list of rows) or "markdown".

    Numbers are exact in CSV and JSON, and rounded in markdown. A missing number (NaN or None) is an empty cell, or null
    in JSON.

    >>> print(table_text({"policy": ["Uniform"], "regret": [2.5], "regret_low": [float("nan")]}, "csv"), end="")
    policy,regret,regret_low
    Uniform,2.5,
    """
    one_of("form", form, tuple(FORMS.values()))
    if form == "markdown":
        names, *cells = [[_markdown(cell) for cell in row] for row in table_cells(columns)]
        lines = [names, ["---"] * len(columns), *cells]
        return "".join("| " + " | ".join(line) + " |\n" for line in lines)
    rows = [[_finite_or_none(value) for value in row] for row in zip(*columns.values(), strict=True)]
    if form == "json":
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        return json.dumps(named, indent=1, allow_nan=False) + "\n"
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return buffer.getvalue()


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table_cells(columns: Columns) -> list[list[str]]:
    """A table as people read it: the row of its names, then its rows; numbers are rounded, a column in one format."""
    written = cell_formats(columns)
    cells = [[written[name](value) for value in values] for name, values in columns.items()]
    return [list(columns), *(list(row) for row in zip(*cells, strict=True))]


def aligned(columns: Columns) -> str:
    """A table as lines of aligned columns; a line break inside a cell is shown as \\n."""
    rows = [[visible(cell) for cell in row] for row in table_cells(columns)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(columns))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def html_table(columns: Columns, caption: str) -> str:
    """A table as HTML."""
    names, *rows = table_cells(columns)
    lines = ["".join(f"<th>{escape(name)}</th>" for name in names)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return f"<table><caption>{escape(caption)}</caption>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def cell_formats(columns: Columns) -> dict[str, Callable[[Any], str]]:
    """How the cells of each column are written; a mean and the ends of its interval are written alike.

    >>> written = cell_formats({"policy": ["Uniform"], "regret": [254.123], "regret_low": [209.0]})
    >>> written["policy"]("Uniform"), written["regret"](254.123), written["regret_low"](209.0)
    ('Uniform', '254', '209')
    """
    formats: dict[str, Callable[[Any], str]] = {}
    for name, values in columns.items():
        if not _are_numbers(values):
            formats[name] = lambda value: "" if value is None else str(value)
            continue
        mean = name.removesuffix("_low").removesuffix("_high")
        group = _PAIRED if name in _PAIRED else (mean, f"{mean}_low", f"{mean}_high")
        alike = [columns[one] for one in group if one in columns]
        formats[name] = number_format([value for one in alike if _are_numbers(one) for value in one])
    return formats


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def number_format(values: Iterable[float]) -> Callable[[float], str]:
    """The one way to write all numbers of a column: as whole numbers, with the same decimals, or as powers of ten.

    There are as many decimals as show three digits of the smallest number, if the largest then has at most seven.
    A missing number is an empty text.

    >>> written = number_format([2077.1234, 39.52, 0.0])
    >>> [written(value) for value in (2077.1234, 39.52, 0.0, float("nan"))]
    ['2,077.1', '39.5', '0.0', '']
    """
    sizes = [abs(value) for value in values if math.isfinite(value) and value]
    sizes = [size for size in sizes if size > _NOISE * max(sizes)]
    form = "z,.0f"
    if not all(size == round(size) for size in sizes):
        first, last = (math.floor(math.log10(end)) for end in (max(sizes), min(sizes)))
        decimals = max(0, min(2 - last, _DIGITS - 1 - max(first, 0)))
        form = f"z,.{decimals}f" if last >= -decimals or not decimals else ".2e"
    return lambda value: "" if math.isnan(value) else format(value, form)


def _markdown(cell: str) -> str:
    """A cell in which neither a bar nor a line break ends the cell or the row."""
    return "<br>".join(cell.replace("\\", "\\\\").replace("|", "\\|").splitlines())


def write_table(columns: Columns, path: Path) -> Path:
    """Write a table to a .csv, .json, .md or .parquet file; the last needs pyarrow."""
    content = _parquet(columns) if path.suffix == ".parquet" else table_text(columns, FORMS[path.suffix]).encode()
    write_whole(path, content)
    return path


def _parquet(columns: Columns) -> bytes:
    needs("pyarrow", extra="frames", instead="write CSV")
    import pyarrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(typed(columns)), buffer)
    return buffer.getvalue()


def typed(columns: Columns) -> dict[str, Any]:
    """The columns with the types of a data frame: whole numbers as int64, other numbers as float64, texts as lists."""
    return {name: _typed(name, values) for name, values in columns.items()}


def _typed(name: str, values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    if not kinds:  # only comparisons of a single policy have no rows
        return np.array([], dtype={"policy": np.str_, "against": np.str_, "step": np.int64}.get(name, np.float64))
    if kinds == {int}:
        return np.array(values, dtype=np.int64)
    return np.array(values, dtype=np.float64) if kinds <= {int, float} else values
