"""The file `experiment.toml` of a folder of results: its problem, and the policies, trials and seeds it has got."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbandit_envs.arrays import short
from fedbandit_envs.experiments.experiment import Experiment, PolicySpec
from fedbandit_envs.experiments.identity import RESULT_FORMAT, digest_of, is_run_folder
from fedbandit_envs.experiments.settings_files import ExperimentError, read_table

EXPERIMENT_FILE = "experiment.toml"
RUNS = "runs"  # the folder with a folder for each run
_MOST_NAMED = 3  # settings that a refusal names
_CHECKSUM = "checksum"  # the key of the hash of all else in the file


@dataclass(frozen=True)
class Description:
    """What a folder of results holds."""

    experiment: Experiment  #: with every default written out, every policy that ran, and the seed of the last run
    runs: Mapping[str, Mapping[str, str]]  #: by seed and label: the name of the folder that holds the run's trials

    @classmethod
    def read(cls, file: Path) -> "Description":
        """The description in a file; `ExperimentError` if it is none."""
        table = dict(read_table(file))
        if table.get("format") != RESULT_FORMAT:
            got = f"format {table['format']!r}" if "format" in table else "no format"
            raise ExperimentError(f"{file}: expected results of format {RESULT_FORMAT}, got {got}")
        runs = table.get("runs", {})
        if not _names_folders(runs):
            raise ExperimentError(f"{file}: expected the folders of runs by seed and label, got {short(runs)}")
        if table.pop(_CHECKSUM, None) != checksum(table):
            raise ExperimentError(
                f"{file}: expected the checksum of its content, got another one: the file was edited or is damaged; "
                "change settings in a file of your own and run that one"
            )
        return cls(Experiment.from_table(table, str(file)), runs)

    def text(self) -> str:
        """The text of the file."""
        import tomli_w

        runs = {seed: dict(names) for seed, names in self.runs.items()}
        table = {"format": RESULT_FORMAT, **self.experiment.table(), RUNS: runs}
        return tomli_w.dumps({_CHECKSUM: checksum(table), **table})

    def shown(self) -> Experiment:
        """The experiment with the policies that ran with its seed."""
        names = self.runs.get(str(self.experiment.seed), {})
        return replace(self.experiment, policies=[s for s in self.experiment.policies if s.label in names])

    def grown(self, resolved: Experiment, folders: Sequence[str]) -> "Description":
        """The description after another run of the same problem, whose policies have these folders."""
        new = {spec.label: spec for spec in resolved.policies}
        seed = str(resolved.seed)
        runs = {key: _kept(names, self.experiment.policies, new) for key, names in self.runs.items()}
        # Labels are no identity: a run that is called otherwise now is not shown twice.
        there = {label: folder for label, folder in runs.get(seed, {}).items() if folder not in folders}
        runs[seed] = there | dict(zip(new, folders, strict=True))
        named = {label for names in runs.values() for label in names}
        old = [new.pop(spec.label, spec) for spec in self.experiment.policies if spec.label in named]
        same_seed = self.experiment.seed == resolved.seed
        trials = max(self.experiment.trials, resolved.trials) if same_seed else resolved.trials
        audited = max(self.experiment.audited, resolved.audited) if same_seed else resolved.audited
        grown = replace(resolved, policies=[*old, *new.values()], trials=trials, audited=audited)
        return Description(grown, {seed: names for seed, names in sorted(runs.items()) if names})


def _names_folders(runs: Any) -> bool:
    """Whether runs have names that `run` gives to folders: others could lead out of the folder of the results."""
    if not isinstance(runs, dict) or not all(isinstance(names, dict) for names in runs.values()):
        return False
    folders = [name for names in runs.values() for name in names.values()]
    return all(isinstance(name, str) and is_run_folder(name) for name in folders)


def _kept(names: Mapping[str, str], old: Sequence[PolicySpec], new: Mapping[str, PolicySpec]) -> dict[str, str]:
    """The folders whose labels still mean the same policy with the same parameters."""
    changed = {spec.label for spec in old if spec.label in new and spec != new[spec.label]}
    return {label: folder for label, folder in names.items() if label not in changed}


def checksum(table: Mapping[str, Any]) -> str:
    """The hash of the content of the file, however it is laid out."""
    return digest_of(json.dumps(table, sort_keys=True, default=str))


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The settings in which two problems differ, in words."""
    there, here = _lines(before), _lines(now)
    parts = [
        f"{word} {', '.join(lines[:_MOST_NAMED])}"
        for word, lines in (
            ("with", [line for line in there if line not in here]),
            ("without", [line for line in here if line not in there]),
        )
        if lines
    ]
    return "; ".join(parts)


def _lines(problem: Mapping[str, Any]) -> list[str]:
    settings = {name: value for name, value in problem.items() if name != "arguments"} | problem["arguments"]
    return [f"{name} = {value!r}" for name, value in settings.items()]
