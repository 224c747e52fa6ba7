"""The figure of a sweep: regret against one parameter, in a panel for each value of the others."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.sweeps import Point, point_name
from fedbandit_envs.reports.plotting import blank, regret_against
from fedbandit_envs.reports.series import checked_sweep, literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS_IN_A_ROW = 3


def regret_over_grid(
    results: Mapping[Point, Result], parameters: Sequence[str], kind: str = "regret", **look: Any
) -> "Figure":
    """Final regret over the grid of a sweep: the first parameter is the axis, all panels have the same scale.

    Args:
        results: the results by the values of the parameters, as `sweep` and `load_sweep` return them.
        parameters: the names of the parameters.
        kind: which regret.
        look: other keywords of `regret_against`, the same for each panel.

    >>> from fedbandit_envs import Experiment
    >>> from fedbandit_envs.experiments.sweeps import sweep
    >>> over = {"num_agents": [2, 4], "dropout": [0.0, 0.1]}
    >>> small = Experiment("fedbandit/Synthetic-v0", ["Uniform"], {"max_cycles": 32}, trials=2)
    >>> figure = regret_over_grid(sweep(small, over, executor="serial"), list(over))
    >>> [axes.get_title() for axes in figure.axes]
    ['dropout=0.0', 'dropout=0.1']
    """
    panels: dict[Point, dict[Any, Result]] = {}
    for point, result in checked_sweep(results).items():
        result.check_kind(kind)
        panels.setdefault(point[1:], {})[point[0]] = result
    if len(parameters) == 1:
        return regret_against(panels[()], parameters[0], kind=kind, **look)
    last = len({others[-1] for others in panels})  # a row for each value of the parameter before it, if that fits
    columns = last if len(parameters) > 2 and last <= _PANELS_IN_A_ROW else min(_PANELS_IN_A_ROW, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure, grid = blank(4.5 * columns, 3.2 * rows, rows, columns)
    places = list(getattr(grid, "flat", [grid]))
    for number, (others, panel) in enumerate(panels.items()):
        axes = places[number]
        regret_against(panel, parameters[0], axes, kind, **look)
        point = point_name([literal(one) for one in parameters[1:]], [literal(str(value)) for value in others])
        axes.set_title(point.replace(",", ", "), fontsize="medium")
        if number > 0 and axes.get_legend() is not None:
            axes.get_legend().remove()  # it is the same in all panels
    for repeated in figure.legends[1:]:
        repeated.remove()
    for axes in places[len(panels) :]:
        axes.remove()
    limits = [axes.get_ylim() for axes in figure.axes]
    for axes in figure.axes:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    return figure
