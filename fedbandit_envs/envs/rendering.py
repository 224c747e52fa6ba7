"""Pictures of the state of play: what was pulled, which arms are best, and the regret so far."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.envs.episode import episode_regret
from fedbandit_envs.problems.instance import BanditInstance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WINDOW = "fedbandit"
_MOST_ROWS = 40  # agents in a picture
_MOST_LINES = 10  # agents in a text
_MOST_ARMS = 12  # arms whose pulls are listed in a text


def render(
    mode: str,
    instance: BanditInstance,
    pulls: IntArray,
    steps: int,
    max_cycles: int,
    rows: IntArray | None = None,
) -> str | NDArray[np.uint8] | None:
    """The state of play after `pulls` (n, K): a text, an RGB array (height, width, 3), or a drawing in a window.

    `rows` are the agents' numbers, when they are not all there are.
    """
    agents = np.arange(len(pulls)) if rows is None else rows
    if mode == "ansi":
        return _text(instance, pulls, steps, max_cycles, agents)
    if mode == "rgb_array":
        return _image(instance, pulls, steps, max_cycles, agents)
    _show(instance, pulls, steps, max_cycles, agents)
    return None


def close() -> None:
    """Close the window."""
    from matplotlib import pyplot

    pyplot.close(_WINDOW)


def _headline(regret: FloatArray, steps: int, max_cycles: int, agents: IntArray) -> str:
    worst = int(regret.argmax())
    spread = f", worst {regret[worst]:.4g} (agent {agents[worst]})" if len(regret) > 1 else ""
    return f"step {steps:,} of {max_cycles:,}   regret per agent: mean {regret.mean():.4g}{spread}"


def _text(instance: BanditInstance, pulls: IntArray, steps: int, max_cycles: int, agents: IntArray) -> str:
    regret, best = episode_regret(instance, pulls)["regret"], instance.means.argmax(axis=1)
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
    # A canvas of its own: pyplot and its state stay out of it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure()
    canvas: Any = FigureCanvasAgg(figure)
    _draw(figure, *state)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _show(*state: Any) -> None:
    from matplotlib import pyplot

    figure = pyplot.figure(_WINDOW)
    figure.clear()
    _draw(figure, *state)
    if figure.canvas.required_interactive_framework is None:  # no display
        figure.canvas.draw()
    else:
        pyplot.show(block=False)
        pyplot.pause(0.001)


def _draw(
    figure: "Figure", instance: BanditInstance, pulls: IntArray, steps: int, max_cycles: int, agents: IntArray
) -> None:
    """Left the share of pulls of each arm, right the regret, one line an agent."""
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import MaxNLocator

    shown = _spread(len(pulls), _MOST_ROWS)
    lines = np.arange(len(shown))
    regret, best = episode_regret(instance, pulls)["regret"], instance.means.argmax(axis=1)
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
