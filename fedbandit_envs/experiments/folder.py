"""The folder of an experiment's results: its resolved TOML and one file per finished trial, whole or not there."""

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from fedbandit_envs import storage
from fedbandit_envs.experiments.experiment import PACKAGE, Experiment, ExperimentError, read_table
from fedbandit_envs.experiments.trials import Record, missing_names

EXPERIMENT_FILE = "experiment.toml"
_MOST_TOLD = 3  # settings that a refusal names


class FolderError(RuntimeError):
    """The folder can't be written, or holds something that is not this experiment's."""


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


class TrialFolder:
    """Finished trials of one experiment on disk."""

    def __init__(self, path: Path, experiment: Experiment, force: bool = False):
        """Open or create; what is torn or of another experiment is refused, or with `force` removed."""
        self.path = path
        self._fingerprint = experiment.fingerprint()
        make_folder(path)
        self._check_experiment(experiment, force)
        self.finished: dict[int, Record] = {}
        for file in sorted(path.glob("trial_*.npz")):
            self._take(file, force)
        write_whole(path / EXPERIMENT_FILE, _experiment_text(experiment))

    def _check_experiment(self, experiment: Experiment, force: bool) -> None:
        file = self.path / EXPERIMENT_FILE
        if force or not file.exists():
            return
        try:
            there, version_there = _read_experiment(file)
        except ValueError as error:
            raise self._refusal(file, f"one that can't be used ({error})") from error
        if there.fingerprint_as_written(version_there) != self._fingerprint:
            before, now = _settings(there, version_there), _settings(experiment.resolved(), version(PACKAGE))
            raise self._refusal(file, f"another experiment{_differences(before, now)}")

    def _take(self, file: Path, force: bool) -> None:
        try:
            record = storage.load(file)
            if record.get("fingerprint") != self._fingerprint or file != self.file(record.get("trial", -1)):
                raise self._refusal(file, "one of another experiment")
            missing = {name for run in record["policies"].values() for name in missing_names(run)}
            if missing:
                raise self._refusal(file, f"one of another version, without {', '.join(sorted(missing))}")
            self.finished[record["trial"]] = record
        except (storage.StoredFileError, FolderError) as error:
            if not force:
                raise error if isinstance(error, FolderError) else self._refusal(file, "one that is torn") from error
            file.unlink()

    @staticmethod
    def _refusal(file: Path, got: str) -> FolderError:
        return FolderError(
            f"{file}: expected a file of this experiment, got {got}; choose another folder, move the file away, or use "
            "--force (force=True), which removes such files and computes their trials again"
        )

    def file(self, trial: int) -> Path:
        """Where a trial is kept."""
        return self.path / f"trial_{trial:06d}.npz"

    def save(self, record: Record) -> None:
        """Keep a finished trial."""
        record = record | {"fingerprint": self._fingerprint}
        try:
            storage.save(self.file(record["trial"]), record)
        except OSError as error:
            raise unwritable(self.path, error) from error
        self.finished[record["trial"]] = record


def _experiment_text(experiment: Experiment) -> bytes:
    """The TOML of a folder of results: the experiment with every default, and the version that ran it."""
    import tomli_w

    return tomli_w.dumps({"version": version(PACKAGE), **experiment.resolved().table()}).encode()


def _read_experiment(file: Path) -> tuple[Experiment, str]:
    """The experiment of a folder of results, and the version of the package that ran it."""
    table = read_table(file)
    if not isinstance(table.get("version"), str):
        raise ExperimentError(f"{file}: expected the key 'version', got {', '.join(table) or 'nothing'}")
    return Experiment.from_table(table, str(file)), table["version"]


def _settings(experiment: Experiment, package_version: str) -> list[str]:
    """All that the fingerprint covers, one setting in each line."""
    table = experiment.table()
    settings = {"version": package_version}
    settings |= {name: table[name] for name in table if name not in ("policies", "trials", "arguments")} | table[
        "arguments"
    ]
    lines = [f"{name} = {value!r}" for name, value in settings.items()]
    for number, spec in enumerate(experiment.policies, start=1):
        lines.append(f"policy {number} = {spec.name!r}")
        lines += [f"{name} of {spec.name} = {value!r}" for name, value in spec.parameters.items()]
    return lines


def _differences(before: Sequence[str], now: Sequence[str]) -> str:
    """The settings in which two experiments differ, in words."""
    gone = [line for line in before if line not in now]
    new = [line for line in now if line not in before]
    told = [f"{name} {', '.join(lines[:_MOST_TOLD])}" for name, lines in (("with", gone), ("without", new)) if lines]
    return f" ({'; '.join(told)})" if told else ""


def read_folder(path: str | Path) -> tuple[Experiment, list[Record]]:
    """The experiment of a folder and its finished trials, for reading only; the policies need not be installed."""
    path = Path(path)
    if not (path / EXPERIMENT_FILE).is_file():
        raise FolderError(f"{path}: expected a folder of results with {EXPERIMENT_FILE}, got none; run it first")
    try:
        experiment, package_version = _read_experiment(path / EXPERIMENT_FILE)
        records = [storage.load(file) for file in sorted(path.glob("trial_*.npz"))]
    except (ExperimentError, storage.StoredFileError) as error:
        raise FolderError(str(error)) from error
    fingerprint = experiment.fingerprint_as_written(package_version)
    for record in records:
        if record.get("fingerprint") != fingerprint:
            raise FolderError(
                f"{path}: expected trials of {EXPERIMENT_FILE}, got trial {record.get('trial')} of another experiment; "
                "run it again with --force"
            )
    return experiment, [record for record in records if record["trial"] < experiment.trials]
