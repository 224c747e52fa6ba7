"""Figures of results: matplotlib without its global state, readable in print and by colour-blind readers.

Every function returns a matplotlib `Figure`, which a notebook shows, or draws into the `axes` it is given. `save`
writes it as PDF, SVG or PNG. All functions take these keywords; only `log` is missing where a figure can't have
logarithmic axes:

- `axes`: draw into these axes, not into a figure of its own.
- `kind`: which regret, a name in `REGRETS`.
- `log`: the logarithmic axes, "x", "y" or "xy"; by default what suits the figure.
- `size`: width and height of the figure in inches.
- `title`: the heading; "" leaves it out, and None says problem, sizes and trials.
- `order`: the policies to draw, in this order; by default all.

What users set in `matplotlib.rcParams` is respected.
"""

import inspect
from typing import TYPE_CHECKING, Any, Protocol

from fedbandit_envs.experiments.results import Result
from fedbandit_envs.reports.canvas import FORMATS as FORMATS
from fedbandit_envs.reports.canvas import blank as blank
from fedbandit_envs.reports.canvas import legend as legend
from fedbandit_envs.reports.canvas import number_axes as number_axes
from fedbandit_envs.reports.canvas import save as save
from fedbandit_envs.reports.curves import active_arms as active_arms
from fedbandit_envs.reports.curves import regret as regret
from fedbandit_envs.reports.ends import agents as agents
from fedbandit_envs.reports.ends import communication as communication
from fedbandit_envs.reports.ends import differences as differences
from fedbandit_envs.reports.ends import regret_against as regret_against
from fedbandit_envs.reports.series import band_note as band_note
from fedbandit_envs.reports.series import finish as finish
from fedbandit_envs.reports.series import heading as heading
from fedbandit_envs.reports.series import line as line
from fedbandit_envs.reports.series import looks as looks
from fedbandit_envs.reports.series import with_start as with_start
from fedbandit_envs.reports.styles import style as style
from fedbandit_envs.reports.styles import styles as styles
from fedbandit_envs.validation import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What the reference shows. The other names above are for figures of this package.
__all__ = [
    "FIGURES",
    "FORMATS",
    "DrawsResult",
    "active_arms",
    "agents",
    "communication",
    "differences",
    "draw",
    "regret",
    "regret_against",
    "save",
    "style",
    "styles",
]


#: The keywords of `draw` that say how a figure looks; a figure may do without any of them.
LOOKS = ("log", "size", "title", "order")


class DrawsResult(Protocol):
    """An entry of `FIGURES`: a function that draws a result. It may take any of the keywords in `LOOKS` too."""

    def __call__(self, result: Result, *, kind: str) -> "Figure":
        """Draw the result; where the figure shows regret, it is of this kind."""


#: All figures of a result by name. Your own is one more entry: `FIGURES["mine"] = my_figure`.
FIGURES: dict[str, DrawsResult] = {
    "regret": regret,
    "communication": communication,
    "active": active_arms,
    "agents": agents,
    "differences": differences,
}


def draw(name: str, result: Result, kind: str = "regret", **keywords: Any) -> "Figure":
    """The figure of a name in `FIGURES`.

    Args:
        name: the name of the figure.
        result: what to draw.
        kind: which regret, where the figure shows regret.
        keywords: log, size, title and order, for figures that take them.
    """
    known = takes(name)
    if isinstance(result, Result):
        result.check_kind(kind)
    for keyword in keywords:
        if keyword not in known:
            raise ValueError(
                f"{keyword}: expected a figure that takes it, got {name!r}, which takes {', '.join(known) or 'none'}"
            )
    return FIGURES[name](result, kind=kind, **keywords)


def takes(name: str) -> tuple[str, ...]:
    """The keywords in `LOOKS` that the figure of a name in `FIGURES` takes.

    >>> takes("regret"), takes("differences")
    (('log', 'size', 'title', 'order'), ('size', 'title', 'order'))
    """
    parameters = inspect.signature(FIGURES[one_of("figure", name, FIGURES)]).parameters
    every = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return tuple(keyword for keyword in LOOKS if every or keyword in parameters)
