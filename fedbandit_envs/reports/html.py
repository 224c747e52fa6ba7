"""Pieces of a web page: text that stays text, tables that a script can sort, and sections that say how to read them."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.text import Columns, cell_formats
from fedbandit_envs.reports.series import looks, series_key

_NUMBER_CLASS = ' class="number"'
_LONG_TEXT = 50  # a text of more letters is written in several lines


def words(name: str) -> str:
    """The name of a column as people write it.

    >>> words("regret_low")
    'regret low'
    """
    return name.replace("_", " ")


def number(value: Any) -> str:
    """A cell as people read it: four significant digits, and a dash for what is not known."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "\N{EN DASH}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def table(columns: Columns, caption: str, colours: Mapping[str, str] | None = None) -> str:
    """A table that a script can sort by each column.

    Args:
        columns: the table; a column "policy" names the policy of each row.
        caption: what the table has in it.
        colours: the colour of each policy, shown before its name.
    """
    heads = "".join(
        f'<th scope="col"{_NUMBER_CLASS * _are_numbers(cells)}>{escape(words(name))}</th>'
        for name, cells in columns.items()
    )
    rows, written = [], cell_formats({name: [_known(cell) for cell in cells] for name, cells in columns.items()})
    for row in zip(*columns.values(), strict=True):
        cells = dict(zip(columns, row, strict=True))
        policy = f' data-policy="{series_key(str(cells["policy"]))}"' if "policy" in cells else ""
        shown = "".join(_cell(name, value, written[name], colours or {}) for name, value in cells.items())
        rows.append(f"<tr{policy}>{shown}</tr>")
    return (
        f'<div class="wide"><table class="sortable"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def folded(title: str, body: str) -> str:
    """A part of the page that a click on its title unfolds."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def _are_numbers(cells: Sequence[Any]) -> bool:
    return all(cell is None or (isinstance(cell, (int, float)) and not isinstance(cell, bool)) for cell in cells)


def _known(cell: Any) -> Any:
    """The cell, or NaN for one that is not known."""
    return math.nan if cell is None else cell


def _cell(name: str, value: Any, written: Callable[[Any], str], colours: Mapping[str, str]) -> str:
    if _are_numbers([value]):
        known = repr(float(value)) if value is not None and math.isfinite(value) else ""
        shown = written(value) if known else number(None)
        return f'<td{_NUMBER_CLASS} data-value="{known}">{shown}</td>'
    swatch = f'<span class="swatch" style="background:{colours[value]}"></span>' if value in colours else ""
    if name == "verdict":
        return f'<td class="verdict {escape(str(value).split()[0])}">{escape(number(value))}</td>'
    long = ' class="long"' * (len(str(value)) > _LONG_TEXT)
    return f"<td{long}>{swatch}{escape(number(value))}</td>"


def section(name: str, title: str, how_to_read: str, *body: str) -> str:
    """A section of the page: its heading, a sentence on how to read it, and what it shows."""
    return (
        f'<section id="{escape(name)}"><h2>{escape(title)}</h2>'
        f'<p class="how">{escape(how_to_read)}</p>{"".join(body)}</section>'
    )


def figure(svg: str, caption: str, **chosen: str) -> str:
    """A plot with its caption. `chosen` says in which positions of the switches it is shown, such as scale="linear"."""
    data = "".join(f' data-{name}="{escape(value)}"' for name, value in chosen.items())
    return f"<figure{data}>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def choice(body: str, **chosen: str) -> str:
    """A part of the page that is shown in one position of a switch only."""
    data = "".join(f' data-{name}="{escape(value)}"' for name, value in chosen.items())
    return f"<div{data}>{body}</div>"


def facts(lines: Sequence[str]) -> str:
    """A list of sentences."""
    return f'<ul class="facts">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>'


def colours_of(result: Result) -> dict[str, str]:
    """The colour of each policy, by label; black is the page's text colour."""
    return {label: look["color"].replace("#000000", "currentColor") for label, look in looks(result).items()}
