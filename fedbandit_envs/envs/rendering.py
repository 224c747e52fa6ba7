"""Pictures of the state of play: what was pulled, which arms are best, and the regret so far.

Where contexts change, the best arms are those of the next step.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.problems.instance import BanditInstance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WINDOW = "fedbandit"
_MOST_ROWS = 40  # a picture shows at most this many agents
_MOST_LINES = 10  # a text shows at most this many agents
_MOST_ARMS = 12  # a text lists the pulls of at most this many arms


def render(
    mode: str,
    instance: BanditInstance,
    pulls: IntArray,
    regret: FloatArray,
    steps: int,
    max_cycles: int,
    rows: IntArray | None = None,
) -> str | NDArray[np.uint8] | None:
    """The state of play: a text, an RGB array (height, width, 3), or None after drawing it in a window.

    Args:
        mode: "ansi", "rgb_array" or "human".
        instance: the problem of the agents that are shown.
        pulls: (n, K) how often each agent has pulled each arm.
        regret: (n,) the regret of each agent so far.
        steps: the number of steps taken.
        max_cycles: the horizon, T.
        rows: (n,) the numbers of the agents; None: all, in order.

    >>> from fedbandit_envs.problems.synthetic import Synthetic
    >>> rng = np.random.default_rng(0)
    >>> instance = Synthetic(num_agents=1, num_arms=2).instance(rng, rng)
    >>> print(render("ansi", instance, np.zeros((1, 2), dtype=np.int64), np.zeros(1), 0, 100))
    step 0 of 100   regret per agent: mean 0
    agent 0: best arm 1, pulled 0 times; regret 0; pulls 0 0
    """
    agents = np.arange(len(pulls)) if rows is None else rows
    if mode == "ansi":
        return _text(instance, pulls, regret, steps, max_cycles, agents)
    if mode == "rgb_array":
        return _image(instance, pulls, regret, steps, max_cycles, agents)
    _show(instance, pulls, regret, steps, max_cycles, agents)
    return None


def close() -> None:
    """Close the window."""
    from matplotlib import pyplot

    pyplot.close(_WINDOW)


def _headline(regret: FloatArray, steps: int, max_cycles: int, agents: IntArray) -> str:
    """The line above a text or a picture."""
    worst = int(regret.argmax())
    spread = f", worst {regret[worst]:.4g} (agent {agents[worst]})" if len(regret) > 1 else ""
    return f"step {steps:,} of {max_cycles:,}   regret per agent: mean {regret.mean():.4g}{spread}"


def _text(
    instance: BanditInstance, pulls: IntArray, regret: FloatArray, steps: int, max_cycles: int, agents: IntArray
) -> str:
    """The state of play in words, one line per agent."""
    best = instance.means.argmax(axis=1)
    lines = [_headline(regret, steps, max_cycles, agents)]
    for place in _spread(len(pulls), _MOST_LINES):
        counts = " ".join(map(str, pulls[place, :_MOST_ARMS])) + (" ..." if pulls.shape[1] > _MOST_ARMS else "")
        lines.append(
            f"agent {agents[place]}: best arm {best[place]}, pulled {pulls[place, best[place]]} times; "
            f"regret {regret[place]:.4g}; pulls {counts}"
        )
    if len(pulls) > _MOST_LINES:
        lines.append(f"({_MOST_LINES} of {len(pulls)} agents)")
    return "\n".join(lines)


def _spread(number: int, most: int) -> IntArray:
    """All of `number` places, or `most` of them at equal distances, the first and the last among them."""
    return np.linspace(0, number - 1, min(number, most)).round().astype(np.int64)


def _image(*state: Any) -> NDArray[np.uint8]:
    """The picture as an RGB array; a canvas of its own leaves pyplot and its state alone."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure()
    canvas: Any = FigureCanvasAgg(figure)
    _draw(figure, *state)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _show(*state: Any) -> None:
    """Draw the picture in the window."""
    from matplotlib import pyplot

    figure = pyplot.figure(_WINDOW)
    figure.clear()
    _draw(figure, *state)
    if figure.canvas.required_interactive_framework is None:  # there is no display
        figure.canvas.draw()
    else:
        pyplot.show(block=False)
        pyplot.pause(0.001)


def _draw(
    figure: "Figure",
    instance: BanditInstance,
    pulls: IntArray,
    regret: FloatArray,
    steps: int,
    max_cycles: int,
    agents: IntArray,
) -> None:
    """Draw the shares of pulls of each arm on the left and the regret on the right, one line per agent."""
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import MaxNLocator

    shown = _spread(len(pulls), _MOST_ROWS)
    lines = np.arange(len(shown))
    best = instance.means.argmax(axis=1)
    figure.set_layout_engine("constrained")
    figure.set_size_inches(9, 2.4 + 0.12 * len(shown))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))

    shares = pulls[shown] / max(steps, 1)
    picture = left.imshow(shares, aspect="auto", cmap="Blues", norm=PowerNorm(0.5, 0, 1))  # shows small shares too
    figure.colorbar(picture, ax=left, ticks=[0, 0.1, 0.25, 0.5, 1])
    left.plot(best[shown], lines, "o", color="tab:red", markersize=4, markerfacecolor="none", label="best arm")
    left.set(title="share of the agent's pulls", xlabel="arm", ylabel="agent")
    left.xaxis.set_major_locator(MaxNLocator(nbins=15, integer=True))
    every = -(-len(shown) // 15)
    left.set_yticks(lines[::every], [str(agents[place]) for place in shown[::every]])

    right.barh(lines, regret[shown], color="tab:gray")
    right.axvline(regret.mean(), color="tab:orange", label="mean of all agents")
    right.set(title="regret so far", xlabel="regret", xlim=(0, 1.05 * float(regret.max()) or 1))

    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    some = "" if len(shown) == len(pulls) else f"   ({len(shown)} of {len(pulls)} agents shown)"
    figure.suptitle(_headline(regret, steps, max_cycles, agents) + some, fontsize="medium")
