"""Figures: what they show, that nothing overlaps, and that equal results give equal files."""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_policies import small

import fedbandit_envs as fb
from fedbandit_envs.cli.main import main
from fedbandit_envs.experiments.sweeps import sweep
from fedbandit_envs.reports import plotting
from fedbandit_envs.reports.sweep_figure import regret_over_grid


@pytest.fixture(scope="module")
def result() -> fb.Result:
    arguments = {"num_agents": 8, "num_arms": 4, "max_cycles": 2**10}
    policies = ["Fed-PECD", "Fed-PE", "Uniform", "Oracle", "Test-One-Arm"]
    return fb.run(fb.Experiment("fedbandit/Synthetic-v0", policies, arguments, trials=4), executor="serial")


@pytest.mark.parametrize("name", plotting.FIGURES)
def test_every_figure_has_title_labels_and_a_legend_with_all_policies(result: fb.Result, name: str) -> None:
    (axes,) = plotting.draw(name, result).axes
    assert axes.get_title()
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == result.labels


@pytest.fixture(scope="module")
def alike() -> fb.Result:
    """Of policies that send nearly the same."""
    arguments = {"num_agents": 20, "error": "classical", "max_cycles": 2**13}
    return fb.run(
        fb.Experiment("fedbandit/Synthetic-v0", ["Fed-PECD", "Fed-PE"], arguments, trials=3), executor="serial"
    )


@pytest.mark.parametrize("name", plotting.FIGURES)
@pytest.mark.parametrize("which", ["result", "alike"])
def test_tick_labels_do_not_overlap(which: str, name: str, request: pytest.FixtureRequest) -> None:
    figure = plotting.draw(name, request.getfixturevalue(which))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    for labels, low, high in (
        (axes.get_xticklabels(which="both"), "x0", "x1"),
        (axes.get_yticklabels(which="both"), "y0", "y1"),
    ):
        boxes = [label.get_window_extent() for label in labels if label.get_text() and label.get_visible()]
        boxes = [box for box in boxes if box.width]
        ends = sorted((getattr(box, low), getattr(box, high)) for box in boxes)
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))


def test_series_differ_in_colour_line_and_marker() -> None:
    styles = [plotting.style(number) for number in range(5)]
    for key in ("color", "linestyle", "marker"):
        assert len({str(style[key]) for style in styles}) == 5


def test_the_regret_curve_starts_at_zero_and_ends_at_the_final_regret(result: fb.Result) -> None:
    (axes,) = plotting.regret(result).axes
    x, y = axes.lines[0].get_data()
    assert (x[0], y[0]) == (0, 0)
    assert (x[-1], y[-1]) == (2**10, pytest.approx(result.final("Fed-PECD").mean()))


def test_the_band_encloses_the_mean(result: fb.Result) -> None:
    (axes,) = plotting.regret(result).axes
    (path,) = axes.collections[0].get_paths()
    x, mean = axes.lines[0].get_data()
    for step, value in zip(x, mean, strict=True):
        edges = path.vertices[path.vertices[:, 0] == step, 1]
        assert edges.min() <= value <= edges.max()


def test_figures_draw_into_given_axes(result: fb.Result) -> None:
    figure, grid = plotting.blank(rows=1, columns=2)
    assert plotting.regret(result, grid[0, 0]) is figure
    assert plotting.active_arms(result, grid[0, 1]) is figure


def test_a_sweep_is_drawn_against_its_values() -> None:
    experiment = fb.Experiment("fedbandit/Synthetic-v0", ["Uniform"], {"max_cycles": 20}, trials=2)
    results = sweep(experiment, {"num_agents": [2, 10, 100]}, executor="serial")
    (axes,) = regret_over_grid(results, ["num_agents"]).axes
    assert axes.get_xlabel() == "agents $M$"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["2", "10", "100"]
    named = sweep(experiment, {"error": ["berkson", "classical"]}, executor="serial")
    (axes,) = regret_over_grid(named, ["error"]).axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["berkson", "classical"]


def test_equal_figures_give_equal_files(result: fb.Result, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        plotting.save(plotting.regret(result), tmp_path / folder / "regret", plotting.FORMATS)
    for suffix in plotting.FORMATS:
        first, second = ((tmp_path / folder / f"regret{suffix}").read_bytes() for folder in ("one", "two"))
        assert first == second
        assert len(first) > 1000


def test_a_suffix_decides_the_format(result: fb.Result, tmp_path: Path) -> None:
    assert plotting.save(plotting.regret(result), tmp_path / "a.svg") == [tmp_path / "a.svg"]
    assert [path.name for path in plotting.save(plotting.regret(result), tmp_path / "b")] == ["b.pdf", "b.png"]


def test_drawing_leaves_matplotlib_as_it_was(result: fb.Result, tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    plotting.save(plotting.regret(result), tmp_path / "regret")
    assert dict(matplotlib.rcParams) == before
    code = (
        "import sys, fedbandit_envs as fb; from fedbandit_envs import plotting; plotting.blank();"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_figures_are_refused(result: fb.Result) -> None:
    with pytest.raises(ValueError, match=re.escape("did you mean 'regret'")):
        plotting.draw("regert", result)


def worst_agents(result: fb.Result, *, kind: str) -> Any:
    """A user's own figure: the regret of the worst agent over time."""
    figure, axes = plotting.blank()
    for number, label in enumerate(result.labels):
        plotting.line(axes, result.steps(label), result.curve(label, f"worst_{kind}"), label, number)
    axes.set_title(plotting.title(result))
    return figure


def test_a_figure_of_one_s_own_is_an_entry_of_the_table(
    result: fb.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(plotting.FIGURES, "worst", worst_agents)
    (axes,) = plotting.draw("worst", result, "paper_regret").axes
    drawn = axes.lines[1].get_ydata()
    np.testing.assert_allclose(drawn, result.curve("Fed-PE", "worst_paper_regret").mean(axis=0))
    fb.run(small(trials=1), tmp_path, "serial")
    assert main(["plot", str(tmp_path), "--figure", "worst", "--format", "png"]) == 0
    assert (tmp_path / "worst.png").exists()


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, fedbandit_envs; "
        "heavy = {'scipy', 'matplotlib', 'tqdm', 'tomllib', 'pandas', 'fedbandit_envs.experiments'} "
        "& set(sys.modules); "
        "assert not heavy, heavy; assert callable(fedbandit_envs.run) and fedbandit_envs.plotting.regret"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
