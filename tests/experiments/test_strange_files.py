"""Files that are no results: they are refused with words, before time or memory is spent on them."""

import os
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from experiment_policies import small

import fedbandit_envs as fb
from fedbandit_envs.experiments.folder import FolderError
from fedbandit_envs.experiments.settings import ExperimentError


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


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_endless_lists_in_lists_are_refused(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"own{suffix}"
    file.write_text(("a = " if suffix == ".toml" else "") + "[" * 100_000)
    with pytest.raises(ExperimentError, match="got lists or tables in too many others"):
        fb.Experiment.read(file)
