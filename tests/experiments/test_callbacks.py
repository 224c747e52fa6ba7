"""Callbacks hear of each run once it is safe on disk; --log writes what they hear."""

import json
from pathlib import Path

import pytest
from experiment_policies import small

import fedbandit_envs as fb
from fedbandit_envs.cli.main import main
from fedbandit_envs.experiments.computing import CallbackError
from fedbandit_envs.experiments.log import JsonLines


@pytest.mark.parametrize("executor", ["serial", "processes:2"])
def test_a_callback_hears_of_each_computed_run_after_it_is_on_disk(tmp_path: Path, executor: str) -> None:
    heard: list[fb.FinishedRun] = []

    def hear(finished: fb.FinishedRun) -> None:
        assert len(list(tmp_path.glob(f"runs/{finished.label}-*/trial_{finished.trial:06d}.npz"))) == 1
        heard.append(finished)

    fb.run(small(trials=2, policies=["Uniform"]), tmp_path, executor)
    result = fb.run(small(trials=3, policies=["Uniform", "Oracle"]), tmp_path, executor, callbacks=[hear])
    assert sorted((one.label, one.trial) for one in heard) == [
        ("Oracle", 0),
        ("Oracle", 1),
        ("Oracle", 2),
        ("Uniform", 2),  # the others were there already
    ]
    for one in heard:
        assert one.seed == result.experiment.trial_seed(one.trial)
        assert one.seconds > 0
        assert one.experiment == ""
        assert one.record["totals"]["rounds"] == result.final(one.label, "rounds")[one.trial]


@pytest.mark.parametrize("executor", ["serial", "processes:2"])
def test_a_callback_that_fails_stops_the_run_and_loses_nothing(tmp_path: Path, executor: str) -> None:
    def fail(finished: fb.FinishedRun) -> None:
        if finished.trial == 1:
            raise ZeroDivisionError("no tracker")

    with pytest.raises(
        CallbackError, match=r"fail: expected no exception, got ZeroDivisionError: no tracker, after tr"
    ):
        fb.run(small(policies=["Uniform"]), tmp_path, executor, callbacks=[fail])
    kept = len(list(tmp_path.glob("runs/*/trial_*.npz")))
    assert (tmp_path / "experiment.toml").exists()
    assert kept >= 1
    assert list(tmp_path.glob("runs/Uniform-*/trial_000001.npz"))
    assert not list(tmp_path.rglob("*reserved*"))
    result = fb.run(small(policies=["Uniform"]), tmp_path, executor)
    # On a busy machine all five can have finished before this process heard of the failure.
    nothing_left = "nothing was left to compute: all trials were there"
    assert result.notes == [f"Uniform: {kept} trials reused, {5 - kept} computed" if kept < 5 else nothing_left]


def test_callbacks_know_the_experiment_of_several() -> None:
    heard = []
    fb.run_all(
        {"a": small(trials=1, policies=["Uniform"]), "b": small(trials=1, policies=["Oracle"])},
        executor="serial",
        callbacks=[lambda finished: heard.append((finished.experiment, finished.label))],
    )
    assert heard == [("a", "Uniform"), ("b", "Oracle")]


@pytest.mark.usefixtures("plain_plots")
def test_the_log_has_a_line_for_each_run(tmp_path: Path) -> None:
    small(trials=2, policies=["Fed-PE", "Oracle"]).write(tmp_path / "e.toml")
    log = tmp_path / "logs" / "runs.jsonl"
    options = ["--executor", "serial", "--out", str(tmp_path / "out"), "--log", str(log)]
    assert main(["run", str(tmp_path / "e.toml"), *options]) == 0
    result = fb.Result.load(tmp_path / "out")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["label"], line["trial"]) for line in lines] == [
        (label, trial) for trial in (0, 1) for label in ("Fed-PE", "Oracle")
    ]
    for line in lines:
        assert line["regret"] == result.final(line["label"])[line["trial"]]
        assert line["scalars"] == result.final(line["label"], "scalars")[line["trial"]]
        assert line["seed"] == str(result.experiment.trial_seed(line["trial"]))
    assert main(["run", str(tmp_path / "e.toml"), *options, "--trials", "3"]) == 0
    assert len(log.read_text().splitlines()) == 4 + 2


def test_a_log_that_can_not_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="expected a folder that can be written"):
        JsonLines(tmp_path)
