"""Reads the folder of an experiment's results; no policy needs to be installed for that."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedbandit_envs.experiments.description import EXPERIMENT_FILE, RUNS, Description
from fedbandit_envs.experiments.experiment import Experiment, PolicySpec
from fedbandit_envs.experiments.folder import FolderError, read_run, refusal, refuse_old_layout, strangers
from fedbandit_envs.experiments.identity import digest_of, known_without_code
from fedbandit_envs.experiments.provenance import mixture
from fedbandit_envs.experiments.trials import Record


class Content(NamedTuple):
    """What a folder of results holds."""

    experiment: Experiment  #: the experiment that is shown
    records: list[Record]  #: the trials that all its policies have finished
    notes: list[str]  #: what a reader should know, in a line each
    provenance: list[dict[str, str]]  #: the software and origins that computed the runs, each once


def read_folder(path: str | Path) -> Content:
    """The experiment of a folder, the trials that all its policies have finished, and what a reader should know.

    Policies are compared on the same instances, so a trial counts when every policy has finished it. The notes say in
    a line each what is left out: trials of some policies only, other seeds, runs of other code.
    """
    path = Path(path)
    refuse_old_layout(path)
    if not (path / EXPERIMENT_FILE).is_file():
        raise FolderError(f"{path}: expected a folder of results with {EXPERIMENT_FILE}, got none; run it first")
    try:
        description = Description.read(path / EXPERIMENT_FILE)
    except ValueError as error:
        raise FolderError(str(error)) from error
    names = description.runs.get(str(description.experiment.seed), {})
    if not set(names) & set(description.experiment.labels):
        raise FolderError(
            f"{path / EXPERIMENT_FILE}: expected runs of seed {description.experiment.seed}, got those of "
            f"{', '.join(description.runs) or 'none'}; run the experiment with that seed"
        )
    experiment = description.shown()
    runs = {spec.label: _read_runs(path / RUNS / names[spec.label], experiment, spec) for spec in experiment.policies}
    notes = _notes(path, description, runs)
    begun = [spec for spec in experiment.policies if runs[spec.label]]
    if not begun:
        return Content(experiment, [], notes, [])
    trials = sorted(set.intersection(*(set(runs[spec.label]) for spec in begun)))
    last = max(trial for found in runs.values() for trial in found)
    experiment = replace(experiment, policies=begun, trials=max(experiment.trials, last + 1))
    records = [_record(experiment, trial, runs) for trial in trials]
    origins = [tree["provenance"] for found in runs.values() for tree in found.values()]
    return Content(experiment, records, notes, [one for place, one in enumerate(origins) if one not in origins[:place]])


def _record(experiment: Experiment, trial: int, runs: dict[str, dict[int, dict[str, Any]]]) -> Record:
    policies = {str(place): runs[label][trial]["record"] for place, label in enumerate(experiment.labels)}
    return {"trial": trial, "seed": str(experiment.trial_seed(trial)), "policies": policies}


def _read_runs(folder: Path, experiment: Experiment, spec: PolicySpec) -> dict[int, dict[str, Any]]:
    """The files of a run by trial; each must be what the description says."""
    for file in strangers(folder):
        raise refusal(file, "one whose name is no trial's")
    found = {}
    expected = known_without_code(experiment, spec.parameters)
    for file in sorted(folder.glob("trial_*.npz")):
        tree = read_run(file, experiment.arguments)
        try:
            identity = json.loads(tree["identity"])
            same = {name: identity[name] for name in expected} == expected and digest_of(tree["identity"]) == tree[
                "run"
            ]
        except (KeyError, TypeError, ValueError, RecursionError):
            same = False
        if not same or tree.get("seed") != str(experiment.trial_seed(tree["trial"])):
            raise refusal(file, f"one that is not as {EXPERIMENT_FILE} says")
        found[tree["trial"]] = tree
    return found


def _notes(path: Path, description: Description, runs: dict[str, dict[int, dict[str, Any]]]) -> list[str]:
    notes = []
    if len({frozenset(found) for found in runs.values()}) > 1:
        counts = ", ".join(f"{label} {len(found)}" for label, found in runs.items())
        notes.append(f"trials that only some policies have finished are left out; finished: {counts}")
    if mixed := mixture([tree["provenance"] for found in runs.values() for tree in found.values()]):
        notes.append(mixed)
    seed = str(description.experiment.seed)
    if others := [other for other in description.runs if other != seed]:
        notes.append(
            f"shown is seed {seed}; the folder also holds seed {', '.join(others)}: run it with --seed to show it"
        )
    named = {name for names in description.runs.values() for name in names.values()}
    there = sorted({file.parent.name for file in (path / RUNS).glob("*/trial_*.npz")})
    if old := [name for name in there if name not in named]:
        notes.append(f"not shown, because their code or settings have changed: {', '.join(old)} in {path / RUNS}")
    return notes
