"""Sweeps: grids over the problem, the settings and the policies' parameters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.experiments.folder import FolderError
from fedbandit_envs.experiments.sweeps import load_sweep, sweep, sweep_table
from fedbandit_envs.reports.sweep_figure import regret_over_grid

SMALL = fb.Experiment(
    "fedbandit/Synthetic-v0", ["Fed-PECD", "Uniform"], {"num_agents": 3, "num_arms": 3, "max_cycles": 20}, trials=2
)


def test_a_sweep_runs_every_combination_and_is_read_back(tmp_path: Path) -> None:
    over = {"num_agents": [10, 2], "Fed-PECD.delta": [0.05, 0.1], "dropout": [0.0, 0.5]}
    results = sweep(SMALL, over, tmp_path, "serial")
    assert list(results) == [(m, delta, lost) for m in (10, 2) for delta in (0.05, 0.1) for lost in (0.0, 0.5)]
    for (num_agents, delta, lost), result in results.items():
        assert result.num_agents("Uniform") == num_agents
        assert result.experiment.policies[0].parameters == {"delta": delta}
        assert result.experiment.policies[1].parameters == {}
        assert result.experiment.dropout == lost
        assert result.labels == ["Fed-PECD", "Uniform"]  # the same at every point, so that figures connect them
    parameters, loaded = load_sweep(tmp_path)
    assert parameters == tuple(over)
    assert list(loaded) == sorted(results)
    for point, result in loaded.items():
        np.testing.assert_equal(result.table("trials"), results[point].table("trials"))


def test_the_table_of_a_sweep_has_a_column_for_each_parameter() -> None:
    over = {"num_agents": [2, 4], "dropout": [0.0, 0.5]}
    table = sweep_table(list(over), sweep(SMALL, over, executor="serial"))
    assert list(table)[:3] == ["num_agents", "dropout", "policy"]
    rows = list(zip(table["num_agents"], table["dropout"], table["policy"], strict=True))
    assert rows == [(m, lost, name) for m in (2, 4) for lost in (0.0, 0.5) for name in ("Fed-PECD", "Uniform")]


def test_a_policy_is_named_by_its_label_or_all_of_its_name_are_meant() -> None:
    twice = [fb.PolicySpec("Fed-PECD", label="one"), fb.PolicySpec("Fed-PECD", {"width": 2.0}, label="two")]
    experiment = fb.Experiment(SMALL.environment, twice, SMALL.arguments, trials=1)

    def deltas(parameter: str) -> list[Any]:
        ((_, result),) = sweep(experiment, {parameter: [0.2]}, executor="serial").items()
        return [spec.parameters.get("delta") for spec in result.experiment.policies]

    assert deltas("two.delta") == [None, 0.2]
    assert deltas("Fed-PECD.delta") == [0.2, 0.2]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"num_agnts": [2, 4]}, "did you mean 'num_agents'"),
        ({"Fed-PECD.delt": [0.1]}, "did you mean 'delta'"),
        ({"Fed-PEDC.delta": [0.1]}, "did you mean 'Fed-PECD'"),
        ({"Fed-PECD.delta": [0.1, 2.0]}, "delta: expected a number strictly between 0 and 1"),
        ({"seed": [1, 2]}, "expected a parameter that changes the problem, got 'seed'"),
        ({"trials": [1, 2]}, "expected a parameter that changes the problem, got 'trials'"),
        ({"num_agents": []}, "expected one or more different values of num_agents"),
        ({"num_agents": [2, 2]}, "expected one or more different values of num_agents"),
        ({"num_agents": 2}, "expected a list of values for num_agents, got 2"),
        ({"error": "berkson"}, "expected a list of values for error, got 'berkson'"),
        ({"gap": [[0.1, 0.2]]}, "expected numbers or names for gap"),
        ({"error": ["a/b"]}, "expected parameters and values without any of"),
        ({}, "got 0"),
        ("num_agents", "expected the values of each parameter, got 'num_agents'"),
        ({"num_agents": range(1, 1001), "dim": range(2, 1002)}, "got 1,000,000"),
    ],
)
def test_what_can_not_be_swept_is_refused_before_anything_is_computed(
    over: dict[str, Sequence[Any]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        sweep(SMALL, over, tmp_path / "out", "serial")
    assert not (tmp_path / "out").exists()


def test_another_sweep_or_a_run_in_the_folder_of_a_sweep_is_refused(tmp_path: Path) -> None:
    sweep(SMALL, {"num_agents": [2], "dropout": [0.0]}, tmp_path, "serial")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FolderError, match="for a sweep over dim, got one that holds a sweep over num_agents, dropout"):
        sweep(SMALL, {"dim": [2]}, tmp_path, "serial")
    with pytest.raises(FolderError, match="expected a folder for a run, got one that holds a sweep over num_agents, d"):
        fb.run(SMALL, tmp_path, "serial")
    assert sorted(tmp_path.rglob("*")) == before
    sweep(SMALL, {"num_agents": [4], "dropout": [0.0]}, tmp_path, "serial")
    assert list(load_sweep(tmp_path)[1]) == [(2, 0.0), (4, 0.0)]


def test_a_sweep_in_the_folder_of_a_run_is_refused(tmp_path: Path) -> None:
    fb.run(SMALL, tmp_path, "serial")
    with pytest.raises(FolderError, match="expected a folder for a sweep over dim, got one that holds a run; choose"):
        sweep(SMALL, {"dim": [2]}, tmp_path, "serial")
    assert not (tmp_path / "dim=2").exists()


def test_two_sweeps_that_were_copied_into_one_folder_are_told_apart(tmp_path: Path) -> None:
    sweep(SMALL, {"num_agents": [2], "dropout": [0.0]}, tmp_path / "one", "serial")
    sweep(SMALL, {"dim": [2]}, tmp_path / "other", "serial")
    (tmp_path / "other" / "dim=2").rename(tmp_path / "one" / "dim=2")
    with pytest.raises(FolderError, match="expected the results of a run or of one sweep, got sweeps over dim; num_ag"):
        load_sweep(tmp_path / "one")


def test_the_figure_has_a_panel_for_each_value_of_the_other_parameters() -> None:
    over = {"num_agents": [2, 4], "dropout": [0.0, 0.5], "dim": [2, 3]}
    results = sweep(SMALL, over, executor="serial")
    figure = regret_over_grid(results, list(over))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["dropout=0.0, dim=2", "dropout=0.0, dim=3", "dropout=0.5, dim=2", "dropout=0.5, dim=3"]
    assert [axes.get_legend() is not None for axes in figure.axes] == [True, False, False, False]
    assert {axes.get_xlabel() for axes in figure.axes} == {"agents $M$"}
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    drawn = figure.axes[3].lines[0].get_ydata()
    assert list(drawn) == [results[m, 0.5, 3].final("Fed-PECD").mean() for m in (2, 4)]
