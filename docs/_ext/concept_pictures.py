"""The pictures of the concept pages."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import fedbandit_envs as fb

BLUE, ORANGE, GREEN, GREY = "#1f6fb4", "#d9730d", "#3a8f5c", "#777777"


def draw_all(folder: Path) -> None:
    """Draw all of them."""
    for name, draw in PICTURES.items():
        figure = draw()
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def empty(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure without axes, whose unit is the inch."""
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.axis("off")
    return figure, axes


def box(axes: Axes, x: float, y: float, text: str, ink: str = GREY) -> None:
    """A box with words in it."""
    style = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": ink, "linewidth": 1.5}
    axes.text(x, y, text, ha="center", va="center", bbox=style, fontsize=10)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], ink: str = GREY) -> None:
    """An arrow from one place to another."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": ink, "linewidth": 1.5})


def model() -> Figure:
    """Who knows what: the server, the agents, and what is hidden from both."""
    figure, axes = empty(8, 3.6)
    box(axes, 4, 3.1, "server: pools what agents report about $\\theta_1, ..., \\theta_K$", BLUE)
    for x, name in ((1.4, "1"), (4, "2"), (6.6, "M")):
        box(axes, x, 1.75, f"agent {name}\nsees $\\mu_{{{name}}}$, so it knows $\\psi_{{{name}}}(a)$", GREEN)
        box(axes, x, 0.5, f"hidden: context $c_{{{name}}} \\sim \\mu_{{{name}}}$\npaid "
            f"$\\langle\\theta_a, \\phi(a, c_{{{name}}})\\rangle$ + noise", ORANGE)  # fmt: skip
        arrow(axes, (x - 0.15, 2.1), (4 + (x - 4) * 0.75 - 0.15, 2.85), GREEN)
        arrow(axes, (4 + (x - 4) * 0.75 + 0.15, 2.85), (x + 0.15, 2.1), BLUE)
        arrow(axes, (x, 0.85), (x, 1.42), ORANGE)
    axes.text(5.3, 1.75, "...", fontsize=14, ha="center")
    return figure


def hidden() -> Figure:
    """A context over time in the fixed and the resampled form, and in streams."""
    rng = np.random.default_rng(3)
    figure = Figure(figsize=(8, 2.6), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    steps = np.arange(40)
    centre = np.zeros(40), np.zeros(40), np.cumsum(rng.normal(0, 0.45, 40))
    drawn = np.full(40, 0.8), rng.normal(0, 1, 40), centre[2] + rng.normal(0, 1, 40)
    titles = "fixed: drawn once", "resampled: new at each pull", "streaming: $\\mu$ changes too"
    for axes, title, middle, context in zip(panels, titles, centre, drawn, strict=True):
        axes.fill_between(steps, middle - 2, middle + 2, color=BLUE, alpha=0.15, linewidth=0, label="$\\mu_i$, shown")
        axes.plot(steps, context, ".", color=ORANGE, label="$c_i$, hidden")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("context")
    panels[0].legend(frameon=False, fontsize=8, loc="lower left")
    return figure


def errors() -> Figure:
    """Berkson's and the classical error: which of the two is drawn around the other."""
    figure, axes = empty(8, 1.7)
    box(axes, 1.3, 1.2, "centre of $\\mu_i$, shown", BLUE)
    box(axes, 3.1, 0.45, "context $c_i$, hidden", ORANGE)
    arrow(axes, (1.5, 0.93), (2.2, 0.62), ORANGE)
    axes.text(0.3, 0.45, "berkson:\nthe context varies\naround what is shown", fontsize=9, va="center")
    box(axes, 5.3, 1.2, "context $c_i$, hidden", ORANGE)
    box(axes, 7, 0.45, "centre of $\\mu_i$, shown", BLUE)
    arrow(axes, (5.5, 0.93), (6.2, 0.68), BLUE)
    axes.text(4.3, 0.45, "classical:\nwhat is shown varies\naround the context", fontsize=9, va="center")
    return figure


def rounds() -> Figure:
    """The four verbs of a round, and where the ledger counts."""
    figure, axes = empty(8, 2.4)
    places = {"server.answer": (1.2, 1.2, BLUE), "agents.plan": (3.5, 2.0, GREEN), "env.pull": (6.3, 1.2, ORANGE),
              "agents.report": (3.5, 0.4, GREEN)}  # fmt: skip
    for name, (x, y, ink) in places.items():
        box(axes, x, y, name, ink)
    for start, end, told, place in (
        ((1.6, 1.5), (2.75, 1.95), "down: counted", (1.45, 1.85)),
        ((4.15, 1.95), (5.75, 1.45), "plan", (5.0, 1.85)),
        ((5.75, 0.95), (4.25, 0.5), "feedback", (5.0, 0.5)),
        ((2.65, 0.5), (1.6, 0.9), "up: counted", (1.5, 0.5)),
    ):
        arrow(axes, start, end)
        axes.text(*place, told, fontsize=9, ha="center")
    return figure


def regrets() -> Figure:
    """The kinds of regret of one run."""
    env = fb.make("fedbandit/Synthetic-v0", num_agents=50, context_std=0.2, max_cycles=2**12)
    history = fb.play(env, fb.make_policy("Lin-Hidden"), seed=0)
    figure = Figure(figsize=(7.5, 2.8), layout="constrained")
    axes = figure.subplots()
    for kind, ink in zip(fb.REGRETS, (BLUE, ORANGE, GREEN, GREY, "#8855aa", "#aa5588"), strict=False):
        if kind in history.gaps:
            axes.plot(history.steps, history.mean_regret(kind), color=ink, label=kind)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_xlabel("step")
    axes.set_ylabel("per agent")
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def networks() -> Figure:
    """A star with a server, a ring of neighbours, and agents that never talk."""
    figure, axes = empty(8, 2.2)
    forms = "a server: every message passes it", "neighbours: here on a ring", "nobody: each agent alone"
    for number, told in enumerate(forms):
        middle = 1.4 + 2.6 * number
        angles = np.arange(6) * np.pi / 3
        x, y = middle + 0.95 * np.cos(angles), 1.25 + 0.75 * np.sin(angles)
        if number == 0:
            for one in zip(x, y, strict=True):
                axes.plot([middle, one[0]], [1.25, one[1]], color=GREY, linewidth=1)
            axes.plot(middle, 1.25, "s", color=BLUE, markersize=15)
        elif number == 1:
            axes.plot([*x, x[0]], [*y, y[0]], color=GREY, linewidth=1)
        axes.plot(x, y, "o", color=GREEN, markersize=12)
        axes.text(middle, 0.1, told, ha="center", fontsize=9)
    return figure


PICTURES = {
    "model": model,
    "hidden": hidden,
    "errors": errors,
    "rounds": rounds,
    "regrets": regrets,
    "networks": networks,
}
