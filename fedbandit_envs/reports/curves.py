"""Figures over time: regret, and the arms that are still considered."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.protocol.registry import policy_class, policy_names
from fedbandit_envs.reports.canvas import LOG_AXES, legend, place
from fedbandit_envs.reports.series import Size, band_note, chosen, drawn_steps, finish, heading, line, looks, with_start
from fedbandit_envs.reports.styles import styles
from fedbandit_envs.rounds.history import History
from fedbandit_envs.validation import one_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def regret(
    result: Result | History,
    axes: "Axes | None" = None,
    kind: str = "regret",
    *,
    log: str = "",
    size: Size | None = None,
    title: str | None = None,
    order: Sequence[str] | None = None,
) -> "Figure":
    """Cumulative regret per agent over time: means over trials with 95 % bands, or the curve of a single run.

    The other figures are called in the same way.

    >>> from fedbandit_envs import Experiment, run
    >>> arguments = {"num_agents": 4, "max_cycles": 32}
    >>> result = run(Experiment("fedbandit/Synthetic-v0", ["Uniform"], arguments, trials=2), executor="serial")
    >>> regret(result, kind="paper_regret", log="xy", title="").axes[0].get_ylabel()
    'regret per agent (Eq. 2)'
    """
    one_of("kind", kind, REGRETS)
    one_of("log", log, LOG_AXES)
    if isinstance(result, History):
        return _regret_of_a_run(result, axes, kind, log, size, title)
    labels = chosen(result, order)
    result.check_kind(kind)
    figure, axes = place(axes, size, len(labels))
    series = {
        label: line(axes, *with_start(result, label, f"mean_{kind}"), label, looks(result)[label]) for label in labels
    }
    finish(axes, "step $t$", REGRETS[kind].axis_label, heading(result) if title is None else title, log)
    legend(axes, series, band_note(len(result.trials)))
    return figure


def _regret_of_a_run(
    history: History, axes: "Axes | None", kind: str, log: str, size: Size | None, title: str | None
) -> "Figure":
    """The curve of one run: the mean over its agents, and around it the range of all agents."""
    figure, axes = place(axes, size, 1)
    name = _name_of(history.policy)
    steps = drawn_steps(history.steps)
    every = _between(steps, history.steps, history.regret(kind))
    look = styles([name])[name]
    (drawn,) = axes.plot(steps, every.mean(axis=1), markevery=max(1, len(steps) // 8), label=name, **look)
    axes.fill_between(steps, every.min(axis=1), every.max(axis=1), color=look["color"], alpha=0.2, linewidth=0)
    if title is None:
        horizon = f"{history.constants.horizon:,}".replace(",", "{,}")
        title = f"one run, $M = {history.constants.num_agents}$, $T = {horizon}$"
    finish(axes, "step $t$", REGRETS[kind].axis_label, title, log)
    legend(axes, {name: drawn}, "line: mean over agents\nband: from the best to the worst agent")
    return figure


def _between(steps: IntArray, checkpoints: IntArray, values: FloatArray) -> FloatArray:
    """(S, M) curves that begin with 0 and have `values` (C, M) at the checkpoints: straight lines between them."""
    known = np.concatenate([[0], checkpoints])
    values = np.concatenate([np.zeros((1, values.shape[1])), values])
    after = np.maximum(1, np.searchsorted(known, steps))
    share = ((steps - known[after - 1]) / (known[after] - known[after - 1]))[:, None]  # (S, 1) of the way to the next
    return (1 - share) * values[after - 1] + share * values[after]


def _name_of(policy: Policy) -> str:
    """The policy's name, or that of its class if it has no other: Fed-PECD is the name of the class FedPECD."""
    own = type(policy).__name__
    names = [name for name in policy_names() if name.replace("-", "") == own]
    return next((name for name in names if policy_class(name) is type(policy)), own)


def active_arms(
    result: Result,
    axes: "Axes | None" = None,
    kind: str = "regret",
    *,
    log: str = "x",
    size: Size | None = None,
    title: str | None = None,
    order: Sequence[str] | None = None,
) -> "Figure":
    """Arms that an agent still considers, over time: means over agents and trials; the same for every `kind`."""
    one_of("log", log, LOG_AXES)
    labels = chosen(result, order)
    figure, axes = place(axes, size, len(labels))
    series = {
        label: line(axes, result.steps(label), result.curve(label, "active_arms"), label, looks(result)[label])
        for label in labels
    }
    finish(axes, "step $t$", "active arms per agent", heading(result) if title is None else title, log)
    if "y" not in log:
        axes.set_ylim(0, 1.05 * axes.dataLim.y1)
    legend(axes, series, band_note(len(result.trials)))
    return figure
