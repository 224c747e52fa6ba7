"""Runs experiments: trials that are missing are computed, by any executor, and kept as they finish."""

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbandit_envs.envs.registration import problem_class, registered_environments
from fedbandit_envs.experiments.executors.local import Executor, Serial, make_executor, outcomes
from fedbandit_envs.experiments.experiment import Experiment
from fedbandit_envs.experiments.folder import EXPERIMENT_FILE, TrialFolder
from fedbandit_envs.experiments.progress import progress_bar
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.trials import Record, play_trial
from fedbandit_envs.protocol.registry import policy_class, registered_policies
from fedbandit_envs.validation import whole_number


@dataclass(frozen=True)
class Failure:
    """A trial that raised an exception."""

    trial: int
    seed: int
    error: str  # type and message
    trace: str


class FailedTrials(RuntimeError):
    """Some trials failed, after all others have finished; `results` holds those."""

    def __init__(self, message: str, failures: Mapping[str, Sequence[Failure]], results: Mapping[str, Result]):
        super().__init__(message)
        self.failures, self.results = failures, results


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with what is left behind."""


def run(
    experiment: Experiment,
    out: str | Path | None = None,
    executor: str | Executor = "processes",
    *,
    only: Sequence[int] | None = None,
    force: bool = False,
) -> Result:
    """Compute an experiment, or what is missing of it.

    Args:
        experiment: what to run.
        out: the folder of its results; trials that are there already are not computed again. None: memory only.
        executor: a name in `EXECUTORS` such as "serial", "processes" (one for each processor) or "processes:4", or an
            object with `submit`; the results are the same.
        only: these trials alone.
        force: remove files in `out` that are torn or of another experiment, instead of refusing them.

    Raises:
        FailedTrials: when trials failed; the others have finished and are kept.

    >>> from fedbandit_envs import Experiment
    >>> experiment = Experiment("fedbandit/Synthetic-v0", ["Uniform", "Oracle"], {"max_cycles": 32}, trials=3)
    >>> result = run(experiment, executor="serial")
    >>> result.trials
    [0, 1, 2]
    >>> bool(result.final("Oracle").mean() < result.final("Uniform").mean())
    True
    """
    return run_all({"": experiment}, out, executor, only=only, force=force)[""]


def run_all(
    experiments: Mapping[str, Experiment],
    out: str | Path | None = None,
    executor: str | Executor = "processes",
    *,
    only: Sequence[int] | None = None,
    force: bool = False,
) -> dict[str, Result]:
    """Run several experiments with the same workers, each in the subfolder of its name.

    The other arguments are those of `run`. Experiments of which no trial has finished are left out of the answer.

    >>> from fedbandit_envs import Experiment
    >>> few = Experiment("fedbandit/Synthetic-v0", ["Uniform"], {"num_agents": 2, "max_cycles": 32}, trials=1)
    >>> results = run_all({"few": few, "more": few.with_argument("num_agents", 8)}, executor="serial")
    >>> {name: result.num_agents("Uniform") for name, result in results.items()}
    {'few': 2, 'more': 8}
    """
    for experiment in experiments.values():
        if not isinstance(experiment, Experiment):
            raise ValueError(
                f"experiment: expected an Experiment, got {experiment!r}; use Experiment(...) or Experiment.read(path)"
            )
        experiment.check()
    experiments = {name: experiment.pinned() for name, experiment in experiments.items()}
    if not isinstance(executor, str) and not hasattr(executor, "submit"):
        raise ValueError(f"executor: expected a name or an object with submit, got {executor!r}; use 'processes:2'")
    wanted = {
        name: range(experiment.trials) if only is None else [whole_number("trial", trial, at_least=0) for trial in only]
        for name, experiment in experiments.items()
    }
    workers = make_executor(executor) if isinstance(executor, str) else executor
    if not isinstance(workers, Serial):
        _check_importable(experiments)
    folders = _open_folders(experiments, out, force)
    kept: dict[str, dict[int, Record]] = {
        name: folders[name].finished if name in folders else {} for name in experiments
    }
    tasks = [
        (name, experiment, trial)
        for name, experiment in experiments.items()
        for trial in wanted[name]
        if trial not in kept[name]
    ]
    failures: dict[str, list[Failure]] = {}
    try:
        _compute(workers, tasks, folders, kept, failures)
    except KeyboardInterrupt:
        raise Interrupted(_how_to_go_on(experiments, kept, out)) from None
    finished = {name: sorted(set(wanted[name]) & kept[name].keys()) for name in experiments}
    results = {
        name: Result(experiment, [kept[name][trial] for trial in finished[name]])
        for name, experiment in experiments.items()
        if finished[name]
    }
    if failures:
        raise FailedTrials(_report(failures, out), failures, results)
    return results


def _open_folders(experiments: Mapping[str, Experiment], out: str | Path | None, force: bool) -> dict[str, TrialFolder]:
    if out is None:
        return {}
    return {name: TrialFolder(Path(out) / name, experiment, force) for name, experiment in experiments.items()}


def _compute(
    workers: Executor,
    tasks: Sequence[tuple[str, Experiment, int]],
    folders: Mapping[str, TrialFolder],
    kept: Mapping[str, dict[int, Record]],
    failures: dict[str, list[Failure]],
) -> None:
    if not tasks:
        return
    with workers, progress_bar(len(tasks)) as progress:
        for (name, experiment, trial), outcome in outcomes(workers, attempt, tasks):
            if isinstance(outcome, BaseException):
                outcome = _failure(experiment, trial, outcome)
            if isinstance(outcome, Failure):
                failures.setdefault(name, []).append(outcome)
            elif name in folders:
                folders[name].save(outcome)
            else:
                kept[name][trial] = outcome
            progress.update()


def attempt(name: str, experiment: Experiment, trial: int) -> Record | Failure:
    """The record of a trial, or its failure in words: not every exception survives the way between processes."""
    try:
        return play_trial(experiment, trial)
    except Exception as error:
        return _failure(experiment, trial, error)


def _failure(experiment: Experiment, trial: int, error: BaseException) -> Failure:
    trace = "".join(traceback.format_exception(error))
    what = "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
    return Failure(trial, experiment.trial_seed(trial), what, trace)


def _check_importable(experiments: Mapping[str, Experiment]) -> None:
    environments, policies = registered_environments(), registered_policies()
    for experiment in experiments.values():
        id = experiment.environment
        _check_reachable("environment", id, problem_class(id), environments)
        for spec in experiment.policies:
            _check_reachable("policy", spec.name, policy_class(spec.name), policies)


def _check_reachable(kind: str, name: str, found: Any, reachable: Mapping[str, str]) -> None:
    typed_in = "<locals>" in found.__qualname__ or found.__module__ == "__main__"
    if typed_in and name not in reachable:
        raise ValueError(
            f"{kind}: expected one that worker processes can import, got {name!r}, defined in a prompt or in "
            "a function; put it at the top of a module, or use executor='serial'"
        )


def _report(failures: Mapping[str, Sequence[Failure]], out: str | Path | None) -> str:
    lines = []
    for name, failed in failures.items():
        for failure in sorted(failed, key=lambda failure: failure.trial):
            where = f"{name}, " if name else ""
            alone = (
                f"run(experiment, executor='serial', only=[{failure.trial}])"
                if out is None
                else f"fedbandit run {Path(out) / name / EXPERIMENT_FILE} --trial {failure.trial} --debug"
            )
            lines.append(
                f"{where}trial {failure.trial} (seed {failure.seed}) failed: {failure.error}\n  alone: {alone}"
            )
    return "\n".join(lines)


def _how_to_go_on(
    experiments: Mapping[str, Experiment], kept: Mapping[str, Mapping[int, Record]], out: str | Path | None
) -> str:
    wanted = sum(experiment.trials for experiment in experiments.values())
    done = sum(trial < experiments[name].trials for name in kept for trial in kept[name])
    if out is None:
        return f"interrupted after {done} of {wanted} trials; nothing was kept, give a folder (out) to be able to go on"
    return f"interrupted after {done} of {wanted} trials, which are kept in {out}; the same command goes on from there"
