"""Figures of results: matplotlib without its global state, readable in print and by colour-blind readers.

Every function returns a matplotlib `Figure`, or draws into the `axes` it is given; `save` writes it as PDF, SVG or PNG.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.envs.ids import short_name
from fedbandit_envs.experiments.folder import make_folder, write_whole
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.statistics import student_band
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.validation import one_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette without its yellow, which is too light for lines on white; grey prints are told apart by
# line style and marker.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FORMATS = (".pdf", ".svg", ".png")


def style(number: int) -> dict[str, Any]:
    """Colour, line and marker of the series of that number."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": LINES[number % len(LINES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 3.5,
        "linewidth": 1.5,
    }


def blank(width: float = 4.5, height: float = 3.2, rows: int = 1, columns: int = 1) -> "tuple[Figure, Any]":
    """A figure with its axes (one, or an array of them), in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, grid[0, 0] if rows == columns == 1 else grid


def _axes(axes: "Axes | None", width: float = 4.5) -> "tuple[Figure, Axes]":
    if axes is None:
        return blank(width)
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure, axes


def line(axes: "Axes", x: Any, values: FloatArray, label: str, number: int) -> None:
    """The mean of `values` (trials, C) over `x` (C,), with Student's 95 % band."""
    band = student_band(values)
    axes.plot(x, band.mean, label=label, markevery=max(1, len(band.mean) // 8), **style(number))
    axes.fill_between(x, band.low, band.high, color=COLOURS[number % len(COLOURS)], alpha=0.2, linewidth=0)


def with_start(result: Result, label: str, name: str) -> tuple[FloatArray, FloatArray]:
    """The curve with its beginning at step 0."""
    steps = [0, *result.steps(label).tolist()]
    return np.array(steps), result.curve(label, name, steps)


def regret(result: Result, axes: "Axes | None" = None, kind: str = "regret") -> "Figure":
    """Cumulative regret per agent over time: means over trials with Student's 95 % bands.

    The other figures are called in the same way.

    >>> from fedbandit_envs import Experiment, run
    >>> arguments = {"num_agents": 4, "max_cycles": 32}
    >>> result = run(Experiment("fedbandit/Synthetic-v0", ["Uniform"], arguments, trials=2), executor="serial")
    >>> regret(result, kind="paper_regret").axes[0].get_ylabel()
    'regret per agent (Eq. 2)'
    """
    figure, axes = _axes(axes)
    for number, label in enumerate(result.labels):
        line(axes, *with_start(result, label, f"mean_{kind}"), label, number)
    time_axis(axes)
    _finish(axes, "step $t$", REGRETS[kind].axis_label, title(result))
    return figure


def regret_against(
    results: Mapping[Any, Result], parameter: str, axes: "Axes | None" = None, kind: str = "regret"
) -> "Figure":
    """Final regret against the values of a swept parameter, numbers or names."""
    figure, axes = _axes(axes)
    values = list(results)
    for number, label in enumerate(results[values[0]].labels):
        bands = [student_band(result.final(label, f"mean_{kind}")[:, None]) for result in results.values()]
        mean = np.array([band.mean[0] for band in bands])
        spread = [mean - [band.low[0] for band in bands], [band.high[0] for band in bands] - mean]
        axes.errorbar(values, mean, yerr=spread, label=label, capsize=3, **style(number))
    if all(isinstance(value, (int, float)) for value in values):
        if min(values) > 0 and max(values) / min(values) >= 30:
            axes.set_xscale("log")
        axes.set_xticks(values, [f"{value:,}" for value in values])
        axes.set_xticks([], minor=True)
    name = PARAMETER_NAMES.get(parameter, parameter)
    _finish(axes, name, f"final {REGRETS[kind].axis_label}", title(results[values[0]], leave_out=parameter))
    return figure


PARAMETER_NAMES = {
    "num_agents": "agents $M$",
    "num_arms": "arms $K$",
    "dim": "dimension $d$",
    "gap": "gap",
    "context_std": "standard deviation of the context error",
    "noise_std": "standard deviation of the noise",
    "max_cycles": "horizon $T$",
    "dropout": "probability that a report is lost",
    "attackers": "share of agents that report falsely",
}


def communication(result: Result, axes: "Axes | None" = None, kind: str = "regret") -> "Figure":
    """Final regret against what was communicated: one point per trial, and the mean."""
    figure, axes = _axes(axes, width=6.2)
    for number, label in enumerate(result.labels):
        scalars, found = result.final(label, "scalars"), result.final(label, f"mean_{kind}")
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        axes.plot(scalars, found, marker, color=colour, markersize=3, alpha=0.35, markeredgewidth=0)
        axes.plot(scalars.mean(), found.mean(), marker, color=colour, markersize=8, label=label, clip_on=False)
    sent = [float(scalars) for label in result.labels for scalars in result.final(label, "scalars")]
    if min(sent) == 0:
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(left=-0.5)
    elif max(sent) > 10 * min(sent):  # within a factor of ten the labels of a logarithmic scale run into each other
        axes.set_xscale("log")
    else:
        axes.ticklabel_format(axis="x", scilimits=(0, 5))
        axes.locator_params(axis="x", nbins=6)
    axes.margins(x=0.1)
    _finish(axes, "scalars sent, both ways, all agents", f"final {REGRETS[kind].axis_label}", title(result))
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.02, 1))  # points lie anywhere
    return figure


def active_arms(result: Result, axes: "Axes | None" = None, kind: str = "regret") -> "Figure":
    """Arms that an agent still considers, over time: means over agents and trials; the same for every `kind`."""
    figure, axes = _axes(axes)
    for number, label in enumerate(result.labels):
        line(axes, result.steps(label), result.curve(label, "active_arms"), label, number)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.05 * axes.dataLim.y1)
    _finish(axes, "step $t$", "active arms per agent", title(result))
    return figure


def agents(result: Result, axes: "Axes | None" = None, kind: str = "regret") -> "Figure":
    """How regret is spread over agents: the share of agents, of all trials, with at most that much at the end."""
    figure, axes = _axes(axes)
    for number, label in enumerate(result.labels):
        ordered = np.sort(result.agents(label, kind).ravel())
        share = np.arange(1, len(ordered) + 1) / len(ordered)
        axes.step(ordered, share, where="post", label=label, markevery=max(1, len(ordered) // 8), **style(number))
    _finish(
        axes, REGRETS[kind].axis_label.replace("per agent", "of an agent at the end"), "share of agents", title(result)
    )
    return figure


class DrawsResult(Protocol):
    """An entry of `FIGURES`: a function that draws a result."""

    def __call__(self, result: Result, *, kind: str) -> "Figure":
        """Draw the result; where the figure shows regret, it is of this kind."""


#: All figures of a result by name. Your own is one more entry: `FIGURES["mine"] = my_figure`.
FIGURES: dict[str, DrawsResult] = {
    "regret": regret,
    "communication": communication,
    "active": active_arms,
    "agents": agents,
}


def draw(name: str, result: Result, kind: str = "regret") -> "Figure":
    """The figure of a name in `FIGURES`."""
    return FIGURES[one_of("figure", name, FIGURES)](result, kind=kind)


def time_axis(axes: "Axes") -> None:
    """Steps as few, readable numbers."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.set_xlabel("step $t$")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def title(result: Result, leave_out: str = "") -> str:
    """The problem, its size, and the number of trials."""
    name = short_name(result.experiment.environment)
    sizes = {"num_agents": f"$M = {result.num_agents(result.labels[0])}$"}
    sizes["max_cycles"] = f"$T = {result.steps(result.labels[0])[-1]:,}$".replace(",", "{,}")
    shown = [text for parameter, text in sizes.items() if parameter != leave_out]
    return ", ".join([name, *shown, f"{len(result.trials)} trial{'s' * (len(result.trials) > 1)}"])


def _finish(axes: "Axes", x: str, y: str, heading: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(heading, fontsize="medium")
    drawn = np.concatenate([[0.0], *(np.asarray(line.get_ydata(), dtype=float) for line in axes.lines)])
    if axes.get_ylim()[0] < 0 and np.nanmin(drawn) == 0:  # the ends of an interval of one trial are NaN
        axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize="small")


def save(figure: "Figure", path: str | Path, formats: Sequence[str] = (".pdf", ".png")) -> list[Path]:
    """Write `path` in each format (its own suffix first, if it has one); equal figures give equal files."""
    import io

    import matplotlib

    path = Path(path)
    suffixes = [path.suffix] if path.suffix in FORMATS else list(formats)
    make_folder(path.parent)
    written = []
    # Without dates, and with names of SVG elements that don't depend on chance.
    with matplotlib.rc_context({"svg.hashsalt": "fedbandit", "svg.fonttype": "none", "pdf.fonttype": 42}):
        for suffix in suffixes:
            nothing = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}[suffix]
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix[1:], dpi=200, metadata=nothing)
            target = path.with_suffix(suffix) if path.suffix in FORMATS else path.with_name(path.name + suffix)
            write_whole(target, buffer.getvalue())
            written.append(target)
    return written
