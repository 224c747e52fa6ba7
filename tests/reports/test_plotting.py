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
from fedbandit_envs.experiments.statistics import paired_difference, student_band
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
    assert axes.get_ylabel() or name == "differences"
    legend = axes.get_legend()
    if name == "differences":  # its rows have their names beside them
        assert {text.get_text() for text in axes.get_yticklabels()} == set(result.labels)
        return
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


def pairs(styles: dict[str, dict[str, Any]], key: str) -> list[tuple[str, str]]:
    return [(look["color"], str(look[key])) for look in styles.values()]


@pytest.mark.parametrize("names", [fb.policy_names(), [f"Mine-{number}" for number in range(30)]])
def test_colours_never_repeat_with_a_marker_or_a_line_up_to_thirty_policies(names: list[str]) -> None:
    styles = plotting.styles(names)
    for key in ("marker", "linestyle"):
        assert len(set(pairs(styles, key))) == len(names)


def test_the_policies_of_the_package_have_their_own_styles_whatever_is_drawn_beside_them() -> None:
    names = [name for name in fb.policy_names() if not name.startswith("Test-")]
    together = plotting.styles([*(f"Mine-{number}" for number in range(15)), *names])
    for name in names:
        assert plotting.styles([name])[name] == together[name]
    assert together["Fed-PE"]["color"] != together["Fed-PECD"]["color"]


@pytest.mark.parametrize(
    "labels",
    [
        ["Fed-CI", "Exact-Thompson"],  # their own entries have the same colour
        [f"Mine-{number}" for number in range(10)],
        *([f"half-{number}", "Fed-PECD", "Fed-PE"] for number in range(20)),
    ],
)
def test_no_two_policies_of_a_figure_share_a_colour_while_there_are_colours(labels: list[str]) -> None:
    styles = plotting.styles(labels)
    assert len({styles[label]["color"] for label in labels}) == len(labels)
    for label in {"Fed-CI", "Fed-PECD", "Fed-PE"} & set(labels):
        assert styles[label] == plotting.styles([label])[label]


def test_a_policy_looks_the_same_under_another_label_and_its_variants_look_different() -> None:
    assert plotting.styles(["exact (Fed-PE)"], ["Fed-PE"])["exact (Fed-PE)"] == plotting.styles(["Fed-PE"])["Fed-PE"]
    two = plotting.styles(["Fed-PE (delta=0.2)", "Fed-PE"], ["Fed-PE", "Fed-PE"])
    assert two["Fed-PE"] == plotting.styles(["Fed-PE"])["Fed-PE"]
    assert two["Fed-PE (delta=0.2)"] != two["Fed-PE"]


def test_the_same_policies_in_another_order_keep_their_looks(result: fb.Result) -> None:
    every, few = plotting.regret(result), plotting.regret(result, order=["Uniform", "Fed-PE"])
    colours = {line.get_label(): line.get_color() for line in every.axes[0].lines}
    assert [line.get_label() for line in few.axes[0].lines] == ["Uniform", "Fed-PE"]
    assert all(line.get_color() == colours[line.get_label()] for line in few.axes[0].lines)
    with pytest.raises(ValueError, match="order: expected a list of policies, got 'Uniform'"):
        plotting.regret(result, order="Uniform")


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
    for label, look in plotting.looks(result).items():
        plotting.line(axes, result.steps(label), result.curve(label, f"worst_{kind}"), label, look)
    axes.set_title(plotting.heading(result))
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
    with pytest.raises(ValueError, match="log: expected a figure that takes it, got 'worst', which takes none"):
        plotting.draw("worst", result, log="x")


@pytest.mark.parametrize(("option", "value"), [("--size", "5x4"), ("--log-axes", "x"), ("--title", "mine")])
def test_all_figures_are_drawn_each_with_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    monkeypatch.setitem(plotting.FIGURES, "worst", worst_agents)
    fb.run(small(trials=1), tmp_path, "serial")
    assert main(["plot", str(tmp_path), option, value, "--format", "svg"]) == 0
    assert {path.stem for path in tmp_path.glob("*.svg")} == set(plotting.FIGURES)
    without = ["differences", "worst"] if option == "--log-axes" else ["worst"]
    notes = [f"note: {name} is drawn without {option}, which it does not take" for name in without]
    assert capsys.readouterr().err.splitlines() == notes


def test_a_figure_of_one_s_own_may_take_all_keywords(result: fb.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def mine(result: fb.Result, *, kind: str, **keywords: Any) -> Any:
        given.update(keywords)
        return plotting.blank()[0]

    monkeypatch.setitem(plotting.FIGURES, "mine", mine)
    plotting.draw("mine", result, size=(5, 4), log="x")
    assert given == {"size": (5, 4), "log": "x"}


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, fedbandit_envs; "
        "heavy = {'scipy', 'matplotlib', 'tqdm', 'tomllib', 'pandas', 'fedbandit_envs.experiments'} "
        "& set(sys.modules); "
        "assert not heavy, heavy; assert callable(fedbandit_envs.run) and fedbandit_envs.plotting.regret"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="module")
def many() -> fb.Result:
    """A result with labels that matplotlib would hide or take for mathematics."""
    labels = ["_hidden", "$\\frac{1}{$", "100 $ and $", "a_b^c", "<script>alert(1)</script>", "plain"]
    policies = [fb.PolicySpec("Test-One-Arm", {"arm": number % 2}, label) for number, label in enumerate(labels)]
    arguments = {"num_agents": 4, "num_arms": 3, "max_cycles": 64}
    return fb.run(fb.Experiment("fedbandit/Synthetic-v0", policies, arguments, trials=2), executor="serial")


@pytest.mark.parametrize("name", plotting.FIGURES)
def test_labels_are_shown_letter_by_letter(many: fb.Result, name: str) -> None:
    figure = plotting.draw(name, many)
    figure.draw_without_rendering()  # mathematics that can't be read fails here
    (axes,) = figure.axes
    legend = axes.get_legend()
    texts = legend.get_texts() if legend else axes.get_yticklabels()
    assert {text.get_text() for text in texts} == set(many.labels)
    assert not any(text.get_parse_math() for text in texts)


def test_a_legend_of_six_stands_beside_the_axes_and_inside_the_figure(many: fb.Result, result: fb.Result) -> None:
    for found, outside in ((many, True), (result, False)):
        figure = plotting.regret(found)
        figure.draw_without_rendering()
        legend = figure.axes[0].get_legend()
        assert legend is not None
        box = legend.get_window_extent()
        assert (box.x0 >= figure.axes[0].bbox.x1) == outside
        assert box.x1 <= figure.bbox.x1
        assert box.y0 >= 0


def test_thirty_policies_fit_into_the_figure() -> None:
    policies = [fb.PolicySpec("Test-One-Arm", label=f"policy {number}") for number in range(30)]
    arguments = {"num_agents": 2, "num_arms": 3, "max_cycles": 16}
    found = fb.run(fb.Experiment("fedbandit/Synthetic-v0", policies, arguments, trials=1), executor="serial")
    figure = plotting.regret(found)
    figure.draw_without_rendering()
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert legend.get_window_extent().y0 >= 0


def test_logarithmic_axes(result: fb.Result) -> None:
    for log in ("x", "y", "xy"):
        (axes,) = plotting.regret(result, log=log).axes
        assert axes.get_xscale() == ("log" if "x" in log else "linear")
        assert axes.get_yscale() == ("log" if "y" in log else "linear")
        assert min(axes.get_xlim()) > 0 or "x" not in log
        assert min(axes.get_ylim()) > 0 or "y" not in log
    with pytest.raises(ValueError, match="log: expected one of"):
        plotting.regret(result, log="z")


@pytest.mark.parametrize("name", ["regret", "communication", "active", "agents"])
def test_an_axis_without_positive_values_stays_linear(name: str) -> None:
    only = fb.run(small(trials=2, policies=["Oracle"]), executor="serial")  # its regret is 0, and it sends nothing
    figure = plotting.draw(name, only, log="xy")
    figure.draw_without_rendering()
    scales = {"regret": ("log", "linear"), "communication": ("linear", "linear"), "active": ("log", "log")}
    assert (figure.axes[0].get_xscale(), figure.axes[0].get_yscale()) == scales.get(name, ("linear", "log"))


def test_bands_and_bars_that_reach_zero_go_on_below_a_logarithmic_axis() -> None:
    """A corner that is not drawn would tear the band, and a bar without its lower end would not be drawn at all."""
    wide = fb.run(small(trials=2, policies=["Local-UCB"], seed=7), executor="serial")
    low = student_band(wide.curve("Local-UCB")).low
    assert low[-1] <= 0
    assert (low > 0).any()
    bars = plotting.regret_against({4: wide}, "num_agents", log="y")
    for figure in (plotting.regret(wide, log="y"), bars):
        (axes,) = figure.axes
        (drawn,) = axes.collections
        heights = np.concatenate([np.asarray(path.vertices)[:, 1] for path in drawn.get_paths()])
        assert 0 < heights.min() < axes.get_ylim()[0]
    on_linear = np.asarray(plotting.regret(wide).axes[0].collections[0].get_paths()[0].vertices)[:, 1]
    sunk = np.asarray(plotting.regret(wide, log="y").axes[0].collections[0].get_paths()[0].vertices)[:, 1]
    np.testing.assert_array_equal(sunk[on_linear > 0], on_linear[on_linear > 0])


def test_a_scale_that_is_changed_after_drawing_keeps_the_curves_in_sight(result: fb.Result) -> None:
    figure = plotting.regret(result)
    (axes,) = figure.axes
    assert axes.get_ylim()[0] == 0
    axes.set_yscale("log")
    figure.draw_without_rendering()
    smallest = min(line.get_ydata()[1] for line in axes.lines if line.get_ydata()[1] > 0)
    low, high = axes.get_ylim()
    assert smallest / 10 < low <= smallest
    assert high < 10 * max(line.get_ydata().max() for line in axes.lines)


def test_regret_below_zero_is_not_cut_off() -> None:
    figure, axes = plotting.blank()
    plotting.line(axes, [0, 1, 2], np.array([[0.0, -3.0, 1.0], [0.0, -3.0, 1.0]]), "Mine", plotting.style(0))
    plotting.finish(axes, "x", "y", "", "")
    assert axes.get_ylim()[0] < -3
    assert figure.axes == [axes]


def test_all_axes_write_numbers_in_one_way() -> None:
    figure, axes = plotting.blank()
    axes.plot([0, 120_000], [1, 3_000_000])
    for log in ("", "y"):
        plotting.finish(axes, "x", "y", "", log)
        figure.draw_without_rendering()
        assert "50,000" in [label.get_text() for label in axes.get_xticklabels()]
        assert "1,000,000" in [label.get_text() for label in axes.get_yticklabels()]


def test_size_and_title_are_what_is_asked_for(result: fb.Result) -> None:
    figure = plotting.agents(result, size=(5, 3), title="Mine")
    assert figure.get_size_inches().tolist() == [5, 3]
    assert figure.axes[0].get_title() == "Mine"
    assert plotting.agents(result, title="").axes[0].get_title() == ""
    assert plotting.agents(result).get_size_inches().tolist() == [7, 4.5]
    with pytest.raises(ValueError, match="size"):
        plotting.agents(result, size=(5, -1))


def test_what_the_user_has_set_in_matplotlib_is_respected(result: fb.Result) -> None:
    import matplotlib

    with matplotlib.rc_context({"figure.figsize": [3, 2]}):
        assert plotting.regret(result).get_size_inches().tolist() == [3, 2]
    with matplotlib.rc_context({"lines.linewidth": 4.0, "axes.titlesize": 20}):
        (axes,) = plotting.regret(result).axes
    assert axes.lines[0].get_linewidth() == 4.0
    assert axes.title.get_fontsize() == 20


def test_the_legend_says_what_the_bands_are(result: fb.Result) -> None:
    legend = plotting.regret(result).axes[0].get_legend()
    assert legend is not None
    assert "95 % interval" in legend.get_title().get_text()
    assert "4 trials" in legend.get_title().get_text()


def test_one_trial_has_no_band() -> None:
    figure = plotting.regret(fb.run(small(trials=1), executor="serial"))
    assert not figure.axes[0].collections
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert legend.get_title().get_text() == "one trial: no bands"


def test_a_single_run_is_drawn_with_the_range_of_its_agents() -> None:
    history = fb.play(fb.make("fedbandit/Synthetic-v0", num_agents=4, max_cycles=64), fb.make_policy("Uniform"), seed=1)
    (axes,) = plotting.regret(history, kind="paper_regret", log="x").axes
    x, y = axes.lines[0].get_data()
    assert (x[0], y[0]) == (0, 0)
    np.testing.assert_allclose(np.asarray(y)[np.isin(x, history.steps)], history.mean_regret("paper_regret"))
    (path,) = axes.collections[0].get_paths()
    assert path.vertices[:, 1].max() == pytest.approx(history.regret("paper_regret").max())
    assert "one run" in axes.get_title()
    assert axes.lines[0].get_label() == "Uniform"


def test_a_single_run_of_few_rounds_is_drawn_as_a_curve_on_logarithmic_axes() -> None:
    """Lines between checkpoints are straight on linear axes, so on a logarithmic one they take points in between."""
    env = fb.make("fedbandit/Synthetic-v0", num_agents=4, max_cycles=2**11)
    history = fb.play(env, fb.make_policy("Fed-PECD"), seed=1)
    assert len(history.steps) < 30
    (axes,) = plotting.regret(history, log="xy").axes
    x, y = axes.lines[0].get_data()
    assert np.diff(np.log(np.asarray(x)[2:])).max() < 0.7  # at T = 1, 2, 4, ... at least
    np.testing.assert_allclose(y, np.interp(x, [0, *history.steps], [0, *history.mean_regret()]), rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(y)[np.isin(x, history.steps)], history.mean_regret())
    lowest = np.interp(x, [0, *history.steps], [0, *history.regret()[:, 0]])
    assert axes.collections[0].get_paths()[0].vertices[:, 1].min() <= lowest.max()


def test_a_single_run_looks_like_its_policy_in_other_figures() -> None:
    arguments = {"num_agents": 4, "num_arms": 3, "max_cycles": 64}
    for name in ("Fed-PECD", "Test-One-Arm"):
        history = fb.play(fb.make("fedbandit/Synthetic-v0", **arguments), fb.make_policy(name), seed=1)
        (axes,) = plotting.regret(history).axes
        shown = axes.lines[0].get_label()
        assert shown == {"Test-One-Arm": "OneArm"}.get(name, name)  # that class has another name than its policy
        assert axes.lines[0].get_color() == plotting.styles([shown])[shown]["color"]


def test_a_notebook_shows_a_figure(result: fb.Result) -> None:
    figure: Any = plotting.regret(result)
    assert figure._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", plotting.FIGURES)
@pytest.mark.parametrize("folder", ["results/mine", Path("results/mine")])
def test_a_figure_of_a_path_says_how_to_read_the_result(name: str, folder: Any) -> None:
    with pytest.raises(ValueError, match=r"result: expected a Result, got .*mine.*; Result.load\(folder\) reads one"):
        plotting.draw(name, folder)


def test_a_figure_of_a_sweep_s_path_says_how_to_read_the_results() -> None:
    folder: Any = "results/mine"
    for draw in (lambda: plotting.regret_against(folder, "dim"), lambda: regret_over_grid(folder, ["dim"])):
        with pytest.raises(ValueError, match=r"expected a dict of .*, got 'results/mine'; parameters, results = load"):
            draw()
    with pytest.raises(ValueError, match=r"results: expected a dict of a Result for each value, got \{\}$"):
        plotting.regret_against({}, "dim")


def test_only_figures_are_saved(tmp_path: Path) -> None:
    nothing: Any = None
    with pytest.raises(ValueError, match="figure: expected a matplotlib Figure, got None"):
        plotting.save(nothing, tmp_path / "a.png")


def test_differences_are_those_of_pairs_to_the_least_regret_of_a_rival(result: fb.Result) -> None:
    (axes,) = plotting.differences(result).axes
    names = [text.get_text() for text in axes.get_yticklabels()]
    means = [result.final(label).mean() for label in names]
    assert means == sorted(means)
    assert names[0] == "Oracle"  # shown, but no reference
    best = next(label for label in names if label not in ("Oracle", "Fed-PE"))
    bars = [path.vertices for collection in axes.collections for path in collection.get_paths()]
    for row, label in enumerate(names):
        found = paired_difference(result.final(label), result.final(best))
        low, mean, high = (0, 0, 0) if label == best else (found.low, found.mean, found.high)
        np.testing.assert_allclose(bars[row], [[low, row], [high, row]])
        assert pytest.approx(mean) in [
            line.get_xdata()[0] for line in axes.lines if list(line.get_ydata()) == [row] and line.get_marker() != "|"
        ]
    with pytest.raises(
        ValueError, match="log: expected a figure that takes it, got 'differences'"
    ):  # some are negative
        plotting.draw("differences", result, log="x")


def test_differences_of_one_trial_have_no_bars() -> None:
    (axes,) = plotting.differences(fb.run(small(trials=1), executor="serial")).axes
    for collection in axes.collections:
        for path in collection.get_paths():
            assert np.ptp(path.vertices[:, 0]) == 0


def test_the_command_line_chooses_axes_size_title_and_policies(tmp_path: Path) -> None:
    fb.run(small(trials=2), tmp_path, "serial")
    look = ["--log-axes", "xy", "--size", "5x3", "--title", "", "--policy", "Fed-PE", "--format", "svg"]
    assert main(["plot", str(tmp_path), "--figure", "regret", *look]) == 0
    drawn = (tmp_path / "regret.svg").read_text()
    assert 'width="360pt" height="216pt"' in drawn
    assert "Fed-PE<" in drawn
    assert "Fed-PECD" not in drawn
    assert main(["plot", str(tmp_path), "--log-axes", "y", "--out", str(tmp_path / "all")]) == 0
    assert main(["plot", str(tmp_path), "--size", "5 by 3"]) == 2


def test_a_figure_of_a_column_has_few_ticks_and_its_legend_below(many: fb.Result) -> None:
    figure = plotting.regret(many, size=(3.3, 2.2))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    renderer: Any = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = [text.get_window_extent(renderer) for text in axes.get_xticklabels() if text.get_text()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    (below,) = figure.legends
    assert [text.get_text() for text in below.get_texts()] == many.labels
    assert below.get_window_extent(renderer).y1 < axes.get_tightbbox(renderer).y0
    assert below.get_window_extent(renderer).x1 <= figure.bbox.x1
    assert axes.get_window_extent(renderer).width > 0.7 * figure.bbox.width
    assert plotting.regret(many).legends == []
