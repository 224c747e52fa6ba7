"""What all figures share: a policy's series with its band, the heading, and the words beside the axes."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.statistics import Band, student_band
from fedbandit_envs.reports.canvas import defaults, fit_to_width, fitting_label, number_axes, scale_axes, start_at_zero
from fedbandit_envs.reports.styles import styles
from fedbandit_envs.validation import one_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Size = tuple[float, float]

_POINTS_BETWEEN = 100  # at how many steps a curve is drawn, besides its checkpoints


def mean_band(values: FloatArray) -> Band:
    """The mean of `values` (trials, C) and its interval: the one that all figures show and `band_note` names."""
    return student_band(values)


def band_note(trials: int, what: str = "bands") -> str:
    """A note that says what the bands of a figure are."""
    if trials == 1:
        return f"one trial: no {what}"
    return f"{what}: Student's 95 % interval\nof the mean over {trials:,} trials"


def line(axes: "Axes", x: Any, values: FloatArray, label: str, look: Mapping[str, Any]) -> "Artist":
    """Draw the mean of `values` (trials, C) over `x` (C,) with its 95 % band; returns the line.

    Args:
        axes: where to draw.
        x: (C,) the horizontal places.
        values: (trials, C) a curve in each row.
        label: the name of the series.
        look: its colour, line and marker, an entry of `styles(labels)`.
    """
    band = mean_band(values)
    (drawn,) = axes.plot(x, band.mean, label=label, markevery=max(1, len(band.mean) // 8), **look)
    name_parts(axes, label, drawn)
    if len(values) > 1:
        filled = axes.fill_between(x, band.low, band.high, color=look["color"], alpha=0.2, linewidth=0)
        name_parts(axes, label, filled)
    return drawn


def name_parts(axes: "Axes", label: str, *parts: "Artist") -> None:
    """Give the parts of a series names by which they are found in an SVG file; each name is used once in a figure."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    named = sum(artist.get_gid() is not None for one in figure.axes for artist in one.get_children())
    for number, part in enumerate(parts, start=named):
        part.set_gid(f"series-{series_key(label)}-{number}")


def series_key(label: str) -> str:
    """A label as ten letters and digits, the same in every figure."""
    return hashlib.sha256(label.encode()).hexdigest()[:10]


def looks(result: Result) -> dict[str, dict[str, Any]]:
    """The style of each policy of a result, by label; it does not change with what is drawn."""
    return styles(result.labels, [spec.name for spec in result.experiment.policies])


def with_start(result: Result, label: str, name: str) -> tuple[IntArray, FloatArray]:
    """The curve with its beginning at step 0, at its checkpoints, and at steps between them.

    A plan's pulls are taken to be spread evenly over its steps, so that lines between checkpoints are straight. On a
    logarithmic axis a straight line is a curve, which takes some points to draw.
    """
    steps = drawn_steps(result.steps(label))
    return steps, result.curve(label, name, steps)


def drawn_steps(checkpoints: IntArray) -> IntArray:
    """The steps at which a curve is drawn: its beginning, its checkpoints, and steps between them."""
    between = np.geomspace(1, checkpoints[-1], _POINTS_BETWEEN).astype(np.int64)
    return np.unique(np.concatenate([[0], between, checkpoints]))


def chosen(result: Result, order: Sequence[str] | None) -> list[str]:
    """The labels of a result that `order` names, in its order, or all labels; anything but a result is refused."""
    if not isinstance(result, Result):
        remedy = "; Result.load(folder) reads one" if isinstance(result, (str, Path)) else ""
        raise ValueError(f"result: expected a Result, got {result!r}{remedy}")
    labels = result.labels
    if isinstance(order, str):
        raise ValueError(f"order: expected a list of policies, got {order!r}; write [{order!r}]")
    return list(labels) if order is None else [one_of("order", label, labels) for label in dict.fromkeys(order)]


def checked_sweep(results: Mapping[Any, Result]) -> Mapping[Any, Result]:
    """Results by the values of a swept parameter; anything else, such as the path of a folder, is refused."""
    if not isinstance(results, Mapping) or not results:
        remedy = "; parameters, results = load_sweep(folder) reads them" if isinstance(results, (str, Path)) else ""
        raise ValueError(f"results: expected a dict of a Result for each value, got {results!r}{remedy}")
    return results


def literal(text: str) -> str:
    r"""A name from outside for a title or beside an axis: it is not too long, and no "$" in it begins mathematics.

    >>> print(literal("my $data"))
    my \$data
    """
    return fitting_label(text).replace("$", r"\$")


def heading(result: Result, leave_out: str = "") -> str:
    """The problem, its size, and the number of trials."""
    name = literal(result.experiment.environment.partition("/")[2].removesuffix("-v0"))
    steps = f"{int(result.steps(result.labels[0])[-1]):,}".replace(",", "{,}")
    sizes = {"num_agents": f"$M = {result.num_agents(result.labels[0])}$", "max_cycles": f"$T = {steps}$"}
    shown = [text for parameter, text in sizes.items() if parameter != leave_out]
    trials = len(result.trials)
    return ", ".join([name, *shown, f"{trials} trial{'s' * (trials > 1)}"])


def finish(axes: "Axes", x: str, y: str, title: str, log: str) -> None:
    """Name the axes, choose their scales and numbers, and write the title."""
    with defaults():
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.set_title(title)
    start_at_zero(axes)
    scale_axes(axes, log)
    if axes.get_yscale() == "log":
        _sink(axes)
    number_axes(axes)
    fit_to_width(axes)


def _sink(axes: "Axes") -> None:
    """Let bands and bars that reach 0 or less end below a logarithmic axis; otherwise they would have gaps there."""
    from matplotlib.collections import LineCollection, PolyCollection

    floor = axes.get_ylim()[0] * 1e-3
    for drawn in axes.collections:
        if isinstance(drawn, (PolyCollection, LineCollection)):
            for path in drawn.get_paths():
                heights = np.asarray(path.vertices)[:, 1]
                heights[heights <= 0] = floor
