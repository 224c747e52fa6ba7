"""Experiments whose runs are spread over shards: the same results, in the same folders."""

from dataclasses import replace

import pytest

from fedbandit_envs import Experiment, run
from fedbandit_envs.cli.main import main
from fedbandit_envs.experiments.identity import run_identities
from fedbandit_envs.experiments.settings_files import ExperimentError

ARGUMENTS = {"num_agents": 6, "max_cycles": 300}


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.npz")}


def without_provenance(folder):
    from fedbandit_envs.storage import load, to_bytes

    return {path: to_bytes(load(folder / path)) for path in files(folder)}


def test_shards_are_no_part_of_what_identifies_a_run():
    one = Experiment("Synthetic", ["Fed-PECD"], ARGUMENTS)
    two = replace(one, shards=2)
    assert run_identities(one) == run_identities(two)
    assert one.problem() == two.problem()
    assert "shards" not in one.text()
    assert run_identities(replace(two, shards_on="ray")) == run_identities(one)
    assert Experiment.from_table(replace(two, shards_on="ray:10.0.0.1:6379").table()).shards_on == "ray:10.0.0.1:6379"
    assert Experiment.from_table(two.table()) == two


@pytest.mark.slow
def test_results_are_the_same_and_a_folder_takes_both(tmp_path):
    one = Experiment("Synthetic", ["Fed-PECD", "DisLinUCB"], ARGUMENTS, trials=2, audited=1)
    run(one, tmp_path / "one", executor="serial")
    run(replace(one, shards=2), tmp_path / "two", executor="serial")
    assert without_provenance(tmp_path / "one") == without_provenance(tmp_path / "two")
    again = run(replace(one, shards=3), tmp_path / "one", executor="serial")
    assert any("nothing was left to compute" in note for note in again.notes)


def test_the_command_line_takes_shards(capsys):
    words = ["run", "--env", "Synthetic", "--policy", "Fed-PECD", "--set", "num_agents=6", "--dry-run"]
    assert main([*words, "--shards", "3", "--shards-on", "serial"]) == 0
    assert 'shards = 3\nshards_on = "serial"' in capsys.readouterr().out
    assert main([*words, "--shards", "7"]) != 0
    assert "expected at most 6" in capsys.readouterr().err


def test_shards_live_where_the_experiment_says(monkeypatch):
    from fedbandit_envs.experiments import trials

    asked, play = [], trials.play

    def watched(*arguments, **how):
        asked.append((how.get("shards"), how.get("executor")))
        return play(*arguments, **how)

    monkeypatch.setattr(trials, "play", watched)
    for settings in ({}, {"shards": 2, "shards_on": "serial"}):
        run(Experiment("Synthetic", ["Fed-PECD"], ARGUMENTS, trials=1, **settings), executor="serial")
    assert asked == [(None, None), (2, "serial")]


@pytest.mark.parametrize(
    ("executor", "shards", "where", "workers"),
    [
        ("processes", 0, "processes", "processes"),
        ("processes", 3, "processes", "processes:2"),
        ("processes", 30, "processes", "processes:1"),
        ("processes", 3, "serial", "processes"),
        ("processes:5", 3, "processes", "processes:5"),
        ("serial", 3, "processes", "serial"),
    ],
)
def test_workers_leave_processors_for_the_shards_of_their_runs(executor, shards, where, workers, monkeypatch):
    from fedbandit_envs.experiments import running

    monkeypatch.setattr(running, "processors", lambda: 7)
    arguments = {"num_agents": 50}
    experiments = {"a": Experiment("Synthetic", ["Fed-PECD"], arguments, shards=shards, shards_on=where)}
    assert running._without_shards(executor, experiments) == workers


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"shards": 2, "shards_on": "threads"}, "shards_on: expected"),
        ({"shards_on": "ray"}, "shards_on: expected a number of shards with it"),
    ],
)
def test_places_where_shards_cannot_live_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Experiment("Synthetic", ["Fed-PECD"], ARGUMENTS, **settings)


def test_a_negative_number_is_refused():
    with pytest.raises((ExperimentError, ValueError), match="shards: expected a whole number of at least 0"):
        Experiment("Synthetic", ["Fed-PECD"], ARGUMENTS, shards=-1)
