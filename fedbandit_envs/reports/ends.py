"""Figures of what a run ends with: regret against a parameter or communication, its spread, and paired differences."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.tables import shown_more
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.reports.canvas import LOG_AXES, Numbers, fitting_label, legend, number_text, place
from fedbandit_envs.reports.series import (
    Size,
    band_note,
    checked_sweep,
    chosen,
    finish,
    heading,
    literal,
    looks,
    mean_band,
    name_parts,
)
from fedbandit_envs.validation import one_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MOST_STEPS = 400  # a step function with more steps is thinned out
_PAIR_COLUMNS = ("policy", "against", "difference", "low", "high")  # the drawn columns of the table of comparisons


def regret_against(
    results: Mapping[Any, Result],
    parameter: str,
    axes: "Axes | None" = None,
    kind: str = "regret",
    *,
    log: str | None = None,
    size: Size | None = None,
    title: str | None = None,
    order: Sequence[str] | None = None,
) -> "Figure":
    """Final regret against the values of a swept parameter, numbers or names."""
    values = list(checked_sweep(results))
    first = results[values[0]]
    labels = chosen(first, order)
    figure, axes = place(axes, size, len(labels))
    series: dict[str, Artist] = {}
    numeric = all(isinstance(value, (int, float)) for value in values)
    places = values if numeric else range(len(values))
    for label in labels:
        bands = [mean_band(result.final(label, f"mean_{kind}")[:, None]) for result in results.values()]
        mean = np.array([band.mean[0] for band in bands])
        spread = [mean - [band.low[0] for band in bands], [band.high[0] for band in bands] - mean]
        drawn = axes.errorbar(places, mean, yerr=spread, label=label, capsize=3, **looks(first)[label])
        name_parts(axes, label, *drawn.get_children())
        series[label] = drawn.lines[0]
    wide = numeric and min(values) > 0 and max(values) / min(values) >= 30
    name = PARAMETER_NAMES.get(parameter, literal(parameter))
    if title is None:
        title = heading(first, leave_out=parameter)
    log = ("x" if wide else "") if log is None else one_of("log", log, LOG_AXES)
    finish(axes, name, f"final {REGRETS[kind].axis_label}", title, log)
    if numeric:
        axes.set_xticks(values, [number_text(value) for value in values])
        axes.set_xticks([], minor=True)
    else:
        axes.set_xticks(places, [fitting_label(str(value)) for value in values], parse_math=False, usetex=False)
    legend(axes, series, band_note(min(len(result.trials) for result in results.values()), "bars"))
    return figure


#: What an axis of a swept parameter is called; other parameters keep their own names.
PARAMETER_NAMES = {
    "num_agents": "agents $M$",
    "num_arms": "arms $K$",
    "dim": "dimension $d$",
    "gap": "gap",
    "context_std": "standard deviation of the context error",
    "noise_std": "standard deviation of the noise",
    "max_cycles": "horizon $T$",
    "dropout": "probability that a report is lost",
    "edge_dropout": "probability that an edge fails",
    "attackers": "share of agents that report falsely",
}


def communication(
    result: Result,
    axes: "Axes | None" = None,
    kind: str = "regret",
    *,
    log: str | None = None,
    size: Size | None = None,
    title: str | None = None,
    order: Sequence[str] | None = None,
) -> "Figure":
    """Final regret against what was communicated: one point per trial, and the mean."""
    labels = chosen(result, order)
    figure, axes = place(axes, size, max(len(labels), 6))
    series: dict[str, Artist] = {}
    for label in labels:
        scalars, regrets = result.final(label, "scalars"), result.final(label, f"mean_{kind}")
        look = {key: value for key, value in looks(result)[label].items() if key != "linestyle"}
        (points,) = axes.plot(scalars, regrets, linestyle="", markersize=3, alpha=0.35, markeredgewidth=0, **look)
        (mean,) = axes.plot(scalars.mean(), regrets.mean(), linestyle="", markersize=8, label=label, **look)
        mean.set_clip_on(False)
        name_parts(axes, label, points, mean)
        series[label] = mean
    sent = [float(scalars) for label in labels for scalars in result.final(label, "scalars")]
    wide = min(sent) > 0 and max(sent) > 10 * min(sent)  # within a factor of ten a logarithmic scale has few labels
    log = ("x" if wide else "") if log is None else one_of("log", log, LOG_AXES)
    heading_ = heading(result) if title is None else title
    finish(axes, "scalars sent, both ways, all agents", f"final {REGRETS[kind].axis_label}", heading_, log)
    if min(sent) == 0 < max(sent):
        _leave_room_for_zero(axes, sent)
    else:
        axes.margins(x=0.1)
    legend(
        axes, series, "large: mean over trials,\nsmall: each trial", outside=True
    )  # inside the axes it could hide points
    return figure


def _leave_room_for_zero(axes: "Axes", sent: Sequence[float]) -> None:
    """A logarithmic horizontal axis that has a place for policies that send nothing."""
    low = math.floor(math.log10(min(scalars for scalars in sent if scalars)))
    high = math.ceil(math.log10(max(sent)))
    axes.set_xscale("symlog", linthresh=10.0**low, linscale=0.5)
    axes.set_xlim(-(10.0**low) / 2, 1.5 * max(sent))
    every = 1 + (high - low) // 6
    axes.set_xticks([0, *(10.0**power for power in range(low, high + 1, every) if 10.0**power <= 1.5 * max(sent))])
    axes.xaxis.set_major_formatter(Numbers())


def agents(
    result: Result,
    axes: "Axes | None" = None,
    kind: str = "regret",
    *,
    log: str = "",
    size: Size | None = None,
    title: str | None = None,
    order: Sequence[str] | None = None,
) -> "Figure":
    """How regret is spread over agents: the share of agents, of all trials, with at most that much at the end."""
    one_of("log", log, LOG_AXES)
    labels = chosen(result, order)
    figure, axes = place(axes, size, len(labels))
    series: dict[str, Artist] = {}
    for label in labels:
        ordered = np.sort(result.agents(label, kind).ravel())
        share = np.arange(1, len(ordered) + 1) / len(ordered)
        if len(ordered) > _MOST_STEPS:  # nobody could see more steps, and they would make large files
            shown = np.linspace(0, len(ordered) - 1, _MOST_STEPS).round().astype(np.int64)
            ordered, share = ordered[shown], share[shown]
        every = max(1, len(ordered) // 8)
        (drawn,) = axes.step(ordered, share, where="post", label=label, markevery=every, **looks(result)[label])
        name_parts(axes, label, drawn)
        series[label] = drawn
    of_an_agent = REGRETS[kind].axis_label.replace("per agent", "of an agent at the end")
    finish(axes, of_an_agent, "share of agents", heading(result) if title is None else title, log)
    legend(axes, series)
    return figure


def differences(
    result: Result,
    axes: "Axes | None" = None,
    kind: str = "regret",
    *,
    size: Size | None = None,
    title: str | None = None,
    order: Sequence[str] | None = None,
) -> "Figure":
    """A forest plot of the paired differences of final regret to the best policy: right of 0 is worse.

    The policy at 0 has the least regret of those that are shown the least; the Oracle, for example, is shown more, so
    it is compared with that policy too. Differences can be negative, so there are no logarithmic axes. Each interval is
    Student's for one pair. `Result.table("comparisons")` has p-values, corrected by Holm for all pairs.
    """
    labels = chosen(result, order)
    means = {label: float(result.final(label, f"mean_{kind}").mean()) for label in labels}
    yardsticks = shown_more(result)
    rivals = [label for label in labels if label not in yardsticks] or labels
    best = min(rivals, key=means.__getitem__)
    rows = labels if order else sorted(labels, key=means.__getitem__)
    by_label = _differences_to(best, result, kind)
    figure, axes = place(axes, size or (7.0, 1.6 + 0.3 * len(rows)), 1)
    for row, label in enumerate(rows):
        mean, low, high = by_label[label]
        reach = [[value] if np.isfinite(value) else [0.0] for value in (mean - low, high - mean)]
        look = looks(result)[label]
        drawn = axes.errorbar([mean], [row], xerr=reach, fmt=look["marker"], color=look["color"], capsize=3)
        name_parts(axes, label, *drawn.get_children())
    axes.axvline(0, color="0.5", linewidth=1, zorder=0)
    note = band_note(len(result.trials), "bars").replace("mean", "mean paired difference").replace("\n", " ")
    what = f"final {REGRETS[kind].axis_label}, minus that of the policy at 0\n{note}"
    finish(axes, what, "", heading(result) if title is None else title, "")
    axes.set_yticks(range(len(rows)), [fitting_label(label) for label in rows], parse_math=False, usetex=False)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    return figure


def _differences_to(best: str, result: Result, kind: str) -> dict[str, tuple[float, float, float]]:
    """The mean paired difference of each policy to `best` with the ends of its interval; one trial has no interval."""
    pairs = result.table("comparisons", kind)
    found = {best: (0.0, 0.0, 0.0)}
    for first, second, *numbers in zip(*(pairs.get(name, []) for name in _PAIR_COLUMNS), strict=True):
        mean, low, high = numbers
        if second == best:
            found[first] = (mean, low, high)
        elif first == best:
            found[second] = (-mean, -high, -low)
    return found
