"""The folder of an experiment's results: its description, and one file for each policy and trial.

    FOLDER/experiment.toml                            what the folder holds
    FOLDER/runs/Fed-PECD-1a2b3c4d5e6f/trial_000003.npz

The digits are the hash of all that produced the run, so a file is never taken for the result of other code or settings.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedbandit_envs import storage
from fedbandit_envs.experiments.description import EXPERIMENT_FILE, RUNS, Description, differences
from fedbandit_envs.experiments.experiment import Experiment
from fedbandit_envs.experiments.form import check_form, check_provenance
from fedbandit_envs.experiments.identity import run_identities
from fedbandit_envs.experiments.provenance import mixture
from fedbandit_envs.experiments.reservations import Reservations, clock_of, reserved, wait_for
from fedbandit_envs.experiments.trials import Record, missing_names

_MOST_BYTES = 10**9  # of a trial's file; that of 10^7 agents, the most in one environment, has half of it
_FORGOTTEN = 3600.0  # seconds after which a file that was never finished is nobody's any more


class FolderError(RuntimeError):
    """The folder can't be written, or holds something that is not this experiment's.

    A folder of something else is refused before anything is computed. A disk that is full stops the run; what has
    finished is kept. Choose another folder, or pass `force=True` to `run` where a file is torn.

    >>> import fedbandit_envs as fb
    >>> fb.Result.load("no-such-folder")
    Traceback (most recent call last):
        ...
    fedbandit_envs.experiments.folder.FolderError: no-such-folder: expected a folder of results with experiment.toml...
    """


def write_whole(path: Path, content: bytes) -> None:
    """Write a file of results that appears complete or not at all."""
    try:
        storage.write_whole(path, content)
    except OSError as error:
        raise unwritable(path.parent, error) from error


def make_folder(path: Path) -> None:
    """Create a folder and those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(folder: Path, error: OSError) -> FolderError:
    """The one way to say that nothing can be written."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return FolderError(
        f"{folder}: expected a folder that can be written, got {reason!r}; make room or choose another folder, "
        "then run again: finished trials are kept"
    )


def refusal(file: Path, got: str) -> FolderError:
    """The one way to say that a file is not what its place says."""
    return FolderError(
        f"{file}: expected a file of this experiment, got {got}; choose another folder, move the file away, or use "
        "--force (force=True), which removes such files and computes their trials again"
    )


@contextlib.contextmanager
def locked(folder: Path, reservations: Reservations) -> Iterator[None]:
    """The time in which no other process describes the folder or writes its tables; others are waited for."""
    wait_for(reservations, folder / EXPERIMENT_FILE)
    try:
        yield
    finally:
        reservations.give_back(folder / EXPERIMENT_FILE)


def finished_runs(folder: Path, experiment: Experiment) -> int:
    """How many runs of an experiment, each a policy and a trial, have a file in a folder."""
    runs = [folder / RUNS / identity.folder for identity in run_identities(experiment)]
    return sum((run / trial_name(trial)).is_file() for run in runs for trial in range(experiment.trials))


class RunFolder:
    """Where `run` keeps the runs of an experiment; several processes and machines can use one folder together."""

    def __init__(self, path: Path, experiment: Experiment, force: bool, reservations: Reservations):
        """Open or create the folder; what is torn or of another problem is refused, or with `force` removed."""
        self.path, self._force, self._reservations = path, force, reservations
        self._identities = run_identities(experiment)
        self._runs = [path / RUNS / identity.folder for identity in self._identities]
        self._seeds = experiment.trial_seed
        self._audited = experiment.audited
        self._settings = experiment.resolved().arguments
        self._provenances: list[dict[str, str]] = []  # what computed each run that was loaded or saved
        make_folder(path)
        refuse_old_layout(path)
        try:
            with locked(path, reservations):
                self._describe(experiment.resolved())
        except OSError as error:
            raise unwritable(path, error) from error
        _remove_leftovers(path)
        for run in self._runs:
            make_folder(run)
            self._tidy(run)

    def load(self, place: int, trial: int) -> Record | None:
        """The record of the policy at a place of the experiment, if its trial is finished."""
        file, identity = self._file(place, trial), self._identities[place]
        if not file.exists():
            return None
        try:
            tree = read_run(file, self._settings)
            if tree["run"] != identity.digest or tree["seed"] != str(self._seeds(trial)):
                raise refusal(file, "one of another run")
            if names := missing_names(tree["record"]):
                raise refusal(file, f"one of another version, without {', '.join(sorted(names))}")
        except FolderError:
            if not self._force:
                raise
            _remove(file)
            return None
        record: Record = tree["record"]
        self._provenances.append(tree["provenance"])
        return None if trial < self._audited and "audit" not in record else record

    def reserve(self, place: int, trial: int) -> bool:
        """Say that this process computes a trial; False if another one does."""
        try:
            return self._reservations.take(self._file(place, trial))
        except OSError as error:
            raise unwritable(self.path, error) from error

    def give_back(self, place: int, trial: int) -> None:
        """Say that this process is done with a trial."""
        self._reservations.give_back(self._file(place, trial))

    def save(self, place: int, trial: int, record: Record, provenance: dict[str, str]) -> None:
        """Keep a finished run."""
        identity = self._identities[place]
        tree = {"run": identity.digest, "identity": identity.text, "trial": trial, "seed": str(self._seeds(trial))}
        try:
            storage.save(self._file(place, trial), tree | {"record": record}, provenance)
        except OSError as error:
            raise unwritable(self.path, error) from error
        self._provenances.append(provenance)

    def notes(self) -> list[str]:
        """What a reader of the results should know, in a line each."""
        mixed = mixture(self._provenances)
        return [mixed] if mixed else []

    def _file(self, place: int, trial: int) -> Path:
        return self._runs[place] / trial_name(trial)

    def _describe(self, resolved: Experiment) -> None:
        """Write into the description what this run adds to it; another problem is refused."""
        file = self.path / EXPERIMENT_FILE
        there = self._described(file, resolved)
        folders = [run.name for run in self._runs]
        grown = (there or Description(resolved, {})).grown(resolved, folders)
        if there is None or grown.text() != there.text():
            write_whole(file, grown.text().encode())

    def _described(self, file: Path, resolved: Experiment) -> Description | None:
        if not file.exists():
            return None
        try:
            there = Description.read(file)
        except ValueError as error:
            if self._force:
                return None
            raise refusal(file, f"one that can't be used ({error})") from error
        if there.experiment.problem() == resolved.problem():
            return there
        if not self._force:
            changed = differences(there.experiment.problem(), resolved.problem())
            raise refusal(file, f"another experiment ({changed})")
        for run in (self.path / RUNS / name for names in there.runs.values() for name in names.values()):
            for trial in run.glob("trial_*.npz"):
                trial.unlink()
        return None

    def _tidy(self, run: Path) -> None:
        """Refuse files that only look like trials, and remove what dead processes left behind."""
        for file in strangers(run):
            if not self._force:
                raise refusal(file, "one whose name is no trial's")
            _remove(file)
        _remove_leftovers(run)
        for target in reserved(run):
            if target.exists() and self._reservations.take(target):  # its process died right after the end of the trial
                self._reservations.give_back(target)


def _remove(file: Path) -> None:
    """Remove what is no trial's file; a folder is left to its owner."""
    if file.is_dir() and not file.is_symlink():
        raise FolderError(f"{file}: expected a file, got a folder, which --force does not remove; move it away")
    file.unlink()


def _remove_leftovers(folder: Path) -> None:
    """Remove files that dead processes left half-written."""
    parts = list(folder.glob(".*.part"))
    now = clock_of(folder) if parts else 0.0
    for file in parts:
        with contextlib.suppress(FileNotFoundError):  # another process tidies up too, or has just finished it
            if now - file.stat().st_mtime > _FORGOTTEN:
                file.unlink()


def trial_name(trial: int) -> str:
    """The name of a trial's file."""
    return f"trial_{trial:06d}.npz"


def strangers(run: Path) -> list[Path]:
    """The files in the folder of a run that look like results, but are under no trial's name."""
    return [file for file in sorted(run.glob("*.npz")) if not re.fullmatch(r"trial_\d{6,}\.npz", file.name)]


def read_run(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a trial's file, with its "provenance"; refused unless it is the trial that its place says.

    Args:
        file: the file.
        settings: the arguments of the experiment's environment, which say the horizon and the number of agents.
    """
    try:
        tree, provenance = storage.load_with_provenance(file, _MOST_BYTES)
        run, trial = tree["run"], tree["trial"]
    except FileNotFoundError as error:
        raise refusal(file, "a link to nothing, or a file that somebody has just removed") from error
    except (storage.StoredFileError, KeyError, TypeError) as error:
        raise refusal(file, "one that is torn") from error
    if type(trial) is not int or file.name != trial_name(trial):
        raise refusal(file, f"trial {trial} under another name")
    if not isinstance(run, str) or not file.parent.name.endswith(run[:12]):
        raise refusal(file, "one of another run")
    try:
        check_form(tree, settings)
        check_provenance(provenance)
    except ValueError as error:
        raise refusal(file, f"one that this program did not write ({error})") from error
    return tree | {"provenance": provenance}


def refuse_old_layout(path: Path) -> None:
    """Refuse a folder with the files of an earlier version, which held all policies of a trial."""
    if old := sorted(path.glob("trial_*.npz")):
        raise FolderError(
            f"{path}: expected results in {RUNS}/, got {old[0].name} of an earlier version; choose another folder"
        )
