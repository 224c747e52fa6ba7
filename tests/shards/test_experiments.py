"""Experiments whose runs are spread over shards: the same results, in the same folders."""

from dataclasses import replace

import pytest

from fedbandit_envs import Experiment, run
from fedbandit_envs.cli.main import main
from fedbandit_envs.experiments.identity import run_identities
from fedbandit_envs.experiments.settings import ExperimentError

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
    assert main([*words, "--shards", "3"]) == 0
    assert "shards = 3" in capsys.readouterr().out
    assert main([*words, "--shards", "7"]) != 0
    assert "expected at most 6" in capsys.readouterr().err


def test_a_negative_number_is_refused():
    with pytest.raises((ExperimentError, ValueError), match="shards: expected a whole number of at least 0"):
        Experiment("Synthetic", ["Fed-PECD"], ARGUMENTS, shards=-1)
