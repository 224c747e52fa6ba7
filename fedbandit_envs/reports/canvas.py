"""The figure that all plots are drawn on: its defaults, its numbers, its legend, and how it is written to files."""

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter, LogFormatter, LogLocator, MaxNLocator

from fedbandit_envs.experiments.folder import make_folder, write_whole
from fedbandit_envs.validation import one_of, real_number

FORMATS = (".pdf", ".svg", ".png")
LOG_AXES = ("", "x", "y", "xy")
OUTSIDE = 6  # a legend with this many entries or more stands beside the axes, where it hides no curve
_LONGEST_LABEL = 60  # the most characters of a label in a figure
_LEGEND_WIDTH = 2.2  # how many inches wider a figure becomes for a legend beside the axes
_ENTRY_HEIGHT = 0.185  # the height of a legend's entry, in inches
_NARROW = 5.0  # a figure of less width, in inches, has smaller letters, and its legend below the axes in columns
_SMALL, _TINY = 7.0, 6.0  # the size of letters in a narrow figure, in points: beside the axes, and in the legend
# What differs from matplotlib's defaults. A value that the user has changed in `matplotlib.rcParams` wins.
_DEFAULTS: dict[Any, Any] = {  # matplotlib types its names as literals
    "figure.figsize": [7.0, 4.5],
    "figure.constrained_layout.use": True,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "legend.frameon": False,
    "legend.fontsize": "small",
    "legend.handlelength": 2.8,  # long enough to tell the line styles apart
    "legend.title_fontsize": "small",
    "lines.markersize": 4.0,
}


class ShownFigure(Figure):
    """A matplotlib figure that a notebook shows when it is the value of a cell, without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


@contextmanager
def defaults() -> Iterator[None]:
    """A context in which the package's defaults replace those of matplotlib; what the user has set stays."""
    untouched = {
        name: value
        for name, value in _DEFAULTS.items()
        if matplotlib.rcParams[name] == matplotlib.rcParamsDefault[name]
    }
    with matplotlib.rc_context(untouched):
        yield


@contextmanager
def plain_settings() -> Iterator[None]:
    """A context in which matplotlib has its own defaults: a page must not depend on the settings of who writes it."""
    usual: dict[Any, Any] = dict(matplotlib.rcParamsDefault.items())
    with matplotlib.rc_context({name: value for name, value in usual.items() if not name.startswith("backend")}):
        yield


def blank(
    width: float | None = None, height: float | None = None, rows: int = 1, columns: int = 1
) -> tuple[Figure, Any]:
    """A figure with its axes: one, or an array of them.

    Args:
        width: in inches; by default that of `matplotlib.rcParams["figure.figsize"]`, or 7 if nobody has set it.
        height: in inches; the default is found in the same way, 4.5 inches.
        rows: the number of rows of axes.
        columns: the number of columns of axes.
    """
    with defaults():
        usual = matplotlib.rcParams["figure.figsize"]
        figure = ShownFigure(figsize=(width or usual[0], height or usual[1]))
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, squeeze=False)
    return figure, grid[0, 0] if rows == columns == 1 else grid


def place(axes: Axes | None, size: tuple[float, float] | None, entries: int) -> tuple[Figure, Axes]:
    """The given axes and their figure, or a new figure with room for a legend of `entries` entries."""
    if axes is not None:
        figure = axes.get_figure(root=True)
        assert figure is not None
        return figure, axes
    if size is None:
        figure, axes = blank()
        if entries >= OUTSIDE:
            height = max(figure.get_figheight(), _ENTRY_HEIGHT * (entries + 3))
            figure.set_size_inches(figure.get_figwidth() + _LEGEND_WIDTH, height)
    else:
        if len(size) != 2:
            raise ValueError(f"size: expected width and height in inches, got {size!r}; for example (7, 4.5)")
        width, height = (real_number("size", side, above=0) for side in size)
        figure, axes = blank(width, height)
    assert axes is not None
    return figure, axes


def number_text(value: float) -> str:
    """A number as all axes show it.

    >>> number_text(50000.0), number_text(0.25), number_text(-1)
    ('50,000', '0.25', '-1')
    """
    return f"{value:,.12g}"


class Numbers(Formatter):
    """Tick labels with a comma between thousands."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of the tick at x."""
        return self.fix_minus(number_text(x))


class LogNumbers(LogFormatter):
    """The same labels for logarithmic axes, at those ticks that matplotlib labels."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of the tick at x, or "" where there is none."""
        return self.fix_minus(number_text(x)) if super().__call__(x, pos) else ""


def number_axes(axes: Axes) -> None:
    """Few, readable numbers on both axes, whatever their scales; axes with names keep them."""
    width, height = _inches(axes)
    number_axis(axes.xaxis, min(6, max(4, int(width / 0.7))))
    number_axis(axes.yaxis, min(8, max(4, int(height / 0.35))))


def _inches(axes: Axes) -> tuple[float, float]:
    """Width and height of the axes, before a layout makes room for words."""
    figure, place = axes.get_figure(root=True), axes.get_position()
    assert figure is not None
    return place.width * figure.get_figwidth(), place.height * figure.get_figheight()


def is_narrow(axes: Axes) -> bool:
    """Whether the figure is as narrow as a column of a paper, unless its layout is the user's own."""
    figure = axes.get_figure(root=True)
    return figure is not None and figure.get_figwidth() < _NARROW and figure.get_layout_engine() is not None


def fit_to_width(axes: Axes) -> None:
    """Smaller letters and markers in a narrow figure, and labels of several lines, unless the user has set a size."""
    if not is_narrow(axes) or matplotlib.rcParams["font.size"] != matplotlib.rcParamsDefault["font.size"]:
        return
    axes.tick_params(labelsize=_TINY)
    for line in axes.lines:
        line.set_markersize(0.6 * line.get_markersize())
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_fontsize(_SMALL)
    letters = int(72 * _inches(axes)[0] / (0.56 * _SMALL))
    axes.set_xlabel("\n".join(part for text in axes.get_xlabel().splitlines() for part in wrap(text, letters)))


def number_axis(axis: Axis, most: int) -> None:
    """Label at most `most` ticks of an axis."""
    scale = axis.get_scale()
    if scale == "log":
        axis.set_major_locator(LogLocator(numticks=most))
        axis.set_major_formatter(LogNumbers(labelOnlyBase=False))
        axis.set_minor_formatter(LogNumbers(minor_thresholds=(0.9, 0.4)))
    elif not axis.have_units():
        axis.set_major_locator(MaxNLocator(most - 1, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(Numbers())


def scale_axes(axes: Axes, log: str) -> None:
    """Make the axes logarithmic that `log` names: "", "x", "y" or "xy".

    Values that are not positive are left out. An axis that has no other values stays linear.
    """
    one_of("log", log, LOG_AXES)
    if "x" in log and np.isfinite(axes.dataLim.minposx):
        axes.set_xscale("log", nonpositive="mask")
    if "y" in log and np.isfinite(axes.dataLim.minposy):
        axes.set_yscale("log", nonpositive="mask")


def fitting_label(label: str) -> str:
    """A label as figures show it: the end of a long one is left out, because it would leave no room for the curves.

    >>> fitting_label("Fed-PECD")
    'Fed-PECD'
    >>> len(fitting_label("x" * 100))
    60
    """
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 3]}..."


def legend(axes: Axes, series: Mapping[str, Artist], note: str = "", outside: bool = False) -> None:
    """A legend of the series by their labels, which are shown letter by letter, with a note on how to read them.

    Args:
        axes: where it stands; beside them if it has six entries or more, and below them in a narrow figure.
        series: what each label stands for.
        note: the legend's title.
        outside: beside the axes in any case.
    """
    narrow = is_narrow(axes)
    places: dict[str, Any] = {}
    if narrow:
        places, note = _below(axes, series), " ".join(note.split())
    elif outside or len(series) >= OUTSIDE:
        places = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    owner = axes.get_figure(root=True) if narrow else axes
    assert owner is not None
    with defaults():
        # matplotlib leaves out labels that begin with "_", and takes "$" for mathematics: they are set afterwards.
        made = owner.legend(list(series.values()), [str(number) for number in range(len(series))], **places)
        if note:
            made.set_title(note)
            if narrow:
                made.get_title().set_fontsize(_TINY)
    made.set_alignment("left")
    for label, text, handle in zip(series, made.get_texts(), made.legend_handles, strict=True):
        text.set_parse_math(False)
        text.set_usetex(False)
        text.set_text(fitting_label(label))
        for part, name in ((text, "text"), (handle, "handle")):
            if part is not None and series[label].get_gid():
                part.set_gid(f"{series[label].get_gid()}-{name}")


def _below(axes: Axes, series: Collection[str]) -> dict[str, Any]:
    """The place of a legend below a narrow figure, with as many columns as fit."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    widths = [0.42 + 0.6 * _TINY / 72 * len(fitting_label(label)) for label in series]  # inches of each entry

    def needed(columns: int) -> float:
        return float(sum(part.max() for part in np.array_split(widths, columns)))

    fitting = [columns for columns in range(2, len(widths) + 1) if needed(columns) <= figure.get_figwidth()]
    return {"loc": "outside lower center", "ncols": max(fitting, default=1), "fontsize": _TINY, "columnspacing": 1.0}


def start_at_zero(axes: Axes) -> None:
    """Let the vertical axis begin at 0 if nothing is below, also when the scale is changed later."""
    for line in axes.lines:
        if not (np.asarray(line.get_ydata(), dtype=float) < 0).any():
            line.sticky_edges.y.append(0.0)
    axes.autoscale_view()


def save(figure: Figure, path: str | Path, formats: Sequence[str] = (".pdf", ".png")) -> list[Path]:
    """Write a figure to files; equal figures give equal files.

    Args:
        figure: the figure.
        path: the file. If it ends in .pdf, .svg or .png, that is the format; else a file of each format is written.
        formats: these formats.

    Returns:
        The files.
    """
    if not isinstance(figure, Figure):
        raise ValueError(f"figure: expected a matplotlib Figure, got {figure!r}; draw one first, with plotting.regret")
    path = Path(path)
    suffixes = [path.suffix] if path.suffix in FORMATS else [one_of("format", each, FORMATS) for each in formats]
    make_folder(path.parent)
    written = []
    for suffix in suffixes:
        target = path.with_suffix(suffix) if path.suffix in FORMATS else path.with_name(path.name + suffix)
        write_whole(target, content(figure, suffix))
        written.append(target)
    return written


def content(figure: Figure, suffix: str) -> bytes:
    """The bytes of a file of that format: without dates, and with names of SVG elements that don't depend on chance."""
    buffer = io.BytesIO()
    nothing = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}[suffix]
    dpi = 200 if matplotlib.rcParams["savefig.dpi"] == "figure" else matplotlib.rcParams["savefig.dpi"]
    with matplotlib.rc_context({"svg.hashsalt": "fedbandit", "svg.fonttype": "none", "pdf.fonttype": 42}):
        figure.savefig(buffer, format=suffix[1:], dpi=dpi, metadata=nothing)
    return buffer.getvalue()
