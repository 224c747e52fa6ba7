"""What a folder says to those who share it, and how the same settings, written in two ways, stay one run."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_policies import small

import fedbandit_envs as fb
from fedbandit_envs.cli.main import main
from fedbandit_envs.experiments import computing, reservations
from fedbandit_envs.experiments.folder import FolderError, RunFolder, locked
from fedbandit_envs.experiments.identity import run_identities
from fedbandit_envs.experiments.provenance import mixture
from fedbandit_envs.experiments.reservations import Reservations
from fedbandit_envs.experiments.sweeps import load_sweep, sweep


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"arguments": {"noise_std": 1}}, {"arguments": {"noise_std": 1.0}}),
        ({"arguments": {"max_cycles": 1000}}, {"arguments": {"max_cycles": 1e3}}),
        (
            {"policies": [fb.PolicySpec("Fed-PECD", {"width": 1}, "x")]},
            {"policies": [fb.PolicySpec("Fed-PECD", {"width": 1.0}, "x")]},
        ),
    ],
    ids=["1 and 1.0", "1000 and 1e3", "a parameter"],
)
def test_one_number_written_in_two_ways_is_one_run(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = (fb.Experiment("Synthetic", **{"policies": ["Uniform"], **each}) for each in (one, other))
    assert run_identities(first) == run_identities(second)


def test_a_problem_in_a_file_is_the_same_however_its_path_is_written(tmp_path: Path) -> None:
    fb.save_problem(tmp_path / "own.npz", theta=np.eye(2), features=np.ones((3, 2, 2)))
    other = Path(os.path.relpath(tmp_path / "own.npz"))
    for trials, path in ((1, tmp_path / "own.npz"), (2, other)):
        experiment = fb.Experiment("File", ["Uniform"], {"path": str(path), "max_cycles": 8}, trials=trials)
        result = fb.run(experiment, tmp_path / "out", "serial")
    assert result.notes == ["Uniform: 1 trial reused, 1 computed"]
    fb.save_problem(tmp_path / "own.npz", theta=np.eye(2), features=np.ones((4, 2, 2)))
    with pytest.raises(FolderError, match="another experiment"):
        fb.run(experiment, tmp_path / "out", "serial")


def test_one_policy_under_two_labels_is_not_said_to_be_computed_by_others(tmp_path: Path) -> None:
    twice = small(policies=["Uniform", {"name": "Uniform", "label": "again"}], trials=2)
    notes = fb.run(twice, tmp_path, "serial").notes
    assert notes == ["Uniform: 0 trials reused, 2 computed", "again: 2 trials reused, 0 computed"]


def test_changed_files_are_named_in_a_mixture_of_commits() -> None:
    told = mixture([{"commit": "0123456789ab" + "c" * 28}, {"commit": "0123456789ab" + "c" * 28 + "-dirty"}])
    assert told.endswith("commit 0123456789ab and 0123456789ab-dirty")


def test_points_of_a_sweep_without_finished_trials_are_left_out_with_a_note(tmp_path: Path) -> None:
    sweep(small(policies=["Uniform"], trials=1), {"num_agents": [2, 3]}, tmp_path, "serial")
    for file in (tmp_path / "num_agents=2").glob("runs/*/trial_*"):
        file.unlink()
    _, results = load_sweep(tmp_path)
    assert list(results) == [(3,)]
    assert results[(3,)].notes == ["left out, because no trial has finished there: num_agents=2"]
    for file in (tmp_path / "num_agents=3").glob("runs/*/trial_*"):
        file.unlink()
    with pytest.raises(FolderError, match="expected a finished trial, got none in any of its folders"):
        load_sweep(tmp_path)


def test_a_sweep_has_one_thread_that_renews_all_reservations(tmp_path: Path) -> None:
    renewing: list[int] = []

    def count(_: fb.FinishedRun) -> None:
        renewing.append(sum(thread.name == reservations.THREAD for thread in threading.enumerate()))

    experiments = {str(number): small(policies=["Uniform"], trials=1, seed=number) for number in range(4)}
    fb.run_all(experiments, tmp_path, "serial", callbacks=[count])
    assert renewing == [1, 1, 1, 1]


def test_a_dry_run_says_what_is_there_already(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "--env", "Synthetic", "--policy", "Uniform", "--set", "max_cycles=8", "--executor", "serial"]
    command += ["--out", str(tmp_path / "5")]
    assert main([*command, "--trials", "2"]) == 0
    assert main([*command, "--trials", "3", "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith(
        "# would compute 3 trials of 1 policy, of whose 3 runs 2 are there already; nothing was run\n"
    )


def test_a_process_that_waits_for_another_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(computing, "_SILENT", 0.0)
    experiment = small(policies=["Uniform"], trials=2)
    with Reservations() as others:
        store = RunFolder(tmp_path, experiment, False, others)
        assert store.reserve(0, 1)
        timer = threading.Timer(1, store.give_back, (0, 1))
        timer.start()
        assert fb.run(experiment, tmp_path, "serial").trials == [0, 1]
    assert capsys.readouterr().err == "waiting for 1 trials that other processes compute\n"


@pytest.mark.slow
def test_tables_are_not_written_while_another_process_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reservations, "_SILENT", 0.0)
    command = ["run", "--env", "Synthetic", "--policy", "Uniform", "--set", "max_cycles=8", "--executor", "serial"]
    with Reservations() as others, locked(tmp_path, others):
        thread = threading.Thread(target=main, args=([*command, "--trials", "1", "--out", str(tmp_path)],))
        thread.start()
        time.sleep(0.5)
        assert not (tmp_path / "summary.csv").exists()
    thread.join()
    assert (tmp_path / "summary.csv").exists()
    assert "waiting for another process that uses" in capsys.readouterr().err
