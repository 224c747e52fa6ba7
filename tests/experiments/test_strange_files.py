"""Files that are no results: they are refused with words, before time or memory is spent on them."""

import json
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from experiment_policies import small

import fedbandit_envs as fb
from fedbandit_envs.experiments import reservations
from fedbandit_envs.experiments.folder import FolderError
from fedbandit_envs.experiments.settings_files import ExperimentError
from fedbandit_envs.problems.movielens.ratings_file import read_ratings


def compressed(file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tree.npy", bytes(10**8))


def hollow(file: Path) -> None:
    with open(file, "wb") as opened:
        opened.truncate(10**9)


def hollow_in_front(file: Path) -> None:
    """An archive may begin with anything."""
    hollow(file)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("tree.npy", b"")


STRANGE: dict[str, Callable[[Path], None]] = {
    "a device": lambda file: file.symlink_to("/dev/zero"),
    "a pipe": os.mkfifo,
    "a link to nothing": lambda file: file.symlink_to("nowhere"),
    "compressed": compressed,
    "a hole": hollow,
    "a hole before an archive": hollow_in_front,
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_file_that_is_no_result_costs_nothing_and_force_replaces_it(tmp_path: Path, what: str) -> None:
    experiment = small(trials=2, policies=["Uniform"])
    fb.run(experiment, tmp_path, "serial")
    file = next(tmp_path.glob("runs/*/trial_000000.npz"))
    content = file.read_bytes()
    file.unlink()
    STRANGE[what](file)
    tracemalloc.start()
    with pytest.raises(FolderError, match="expected a file of this experiment"):
        fb.Result.load(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    fb.run(experiment, tmp_path, "serial", force=True)
    assert file.read_bytes() == content


def test_a_folder_in_the_place_of_a_trial_is_not_removed(tmp_path: Path) -> None:
    experiment = small(trials=2, policies=["Uniform"])
    fb.run(experiment, tmp_path, "serial")
    file = next(tmp_path.glob("runs/*/trial_000000.npz"))
    file.unlink()
    file.mkdir()
    with pytest.raises(FolderError, match="got a folder, which --force does not remove"):
        fb.run(experiment, tmp_path, "serial", force=True)


@pytest.mark.parametrize("what", ["a device", "a pipe", "a hole"])
def test_an_experiment_is_read_from_a_small_file_alone(tmp_path: Path, what: str) -> None:
    STRANGE[what](tmp_path / "own.toml")
    with pytest.raises(ExperimentError, match=r"own\.toml: expected"):
        fb.Experiment.read(tmp_path / "own.toml")


NO_HOLDER = {
    "a list": "[]",
    "no names": "{}",
    "this machine alone": json.dumps({"machine": reservations._machine()}),
    "a process without a number": json.dumps(reservations._this_process() | {"pid": "1"}),
    "lists in lists": "[" * 9_000,
    "too long": "1" * 10**6,
    "no text": "\udc80",
}


@pytest.mark.parametrize("what", [*NO_HOLDER, "a pipe", "a device", "a hole", "a link to nothing", "a folder"])
def test_a_reservation_that_names_nobody_is_that_of_an_unknown_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Nothing hangs: it is dead after minutes of silence, and the run goes on."""
    target = tmp_path / "trial_000001.npz"
    file = tmp_path / "trial_000001.npz.reserved-0"
    if what in NO_HOLDER:
        file.write_bytes(NO_HOLDER[what].encode(errors="surrogateescape"))
    elif what == "a folder":
        file.mkdir()
    else:
        STRANGE[what](file)
    with reservations.Reservations() as mine:
        assert not mine.take(target)
        monkeypatch.setattr(reservations, "SILENCE", -1.0)
        assert mine.take(target)


@pytest.mark.parametrize("what", ["a device", "a pipe", "a hole"])
@pytest.mark.parametrize("sha256", ["0", None])
def test_ratings_are_read_from_a_file_of_a_sane_size_alone(tmp_path: Path, what: str, sha256: str | None) -> None:
    STRANGE[what](tmp_path / "u.data")
    with pytest.raises(ValueError, match=r"u\.data: expected (a file|at most 100,000,000 bytes)"):
        read_ratings(tmp_path / "u.data", sha256)


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_endless_lists_in_lists_are_refused(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"own{suffix}"
    file.write_text(("a = " if suffix == ".toml" else "") + "[" * 100_000)
    with pytest.raises(ExperimentError, match="got lists or tables in too many others"):
        fb.Experiment.read(file)
