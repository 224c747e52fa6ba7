"""Runs experiments: trials that are missing are computed, by any executor, and kept as they finish."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedbandit_envs.experiments.computing import Callback, Memory, Store, Work, compute
from fedbandit_envs.experiments.description import EXPERIMENT_FILE
from fedbandit_envs.experiments.executors.known import check_packable
from fedbandit_envs.experiments.executors.local import Executor, Serial, make_executor
from fedbandit_envs.experiments.experiment import Experiment
from fedbandit_envs.experiments.failures import FailedTrials, report
from fedbandit_envs.experiments.folder import RunFolder
from fedbandit_envs.experiments.places import check_place
from fedbandit_envs.experiments.reservations import Reservations
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.threads import processors
from fedbandit_envs.validation import real_number, whole_number


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with what is left behind."""


def run(
    experiment: Experiment,
    out: str | Path | None = None,
    executor: str | Executor = "processes",
    *,
    only: Sequence[int] | None = None,
    force: bool = False,
    callbacks: Sequence[Callback] = (),
    timeout: float | None = None,
) -> Result:
    """Compute an experiment, or what is missing of it.

    Args:
        experiment: what to run.
        out: the folder of its results. What is there already is not computed again, so a folder can get more
            policies, trials and seeds, and several processes or machines can work on one folder. None: memory only.
        executor: a name in `EXECUTORS` such as "serial", "processes" (one for each processor, or fewer where each run
            is spread over shards) or "processes:4", or an object with `submit`; the results are the same.
        only: these trials alone.
        force: remove files in `out` that are torn or of another experiment, instead of refusing them.
        callbacks: functions that get a `FinishedRun` in this process each time a policy has finished a trial, after
            the file is safe on disk. They are not called for what was there already. An exception in one of them
            stops the run with a `CallbackError`.
        timeout: the seconds that a trial may take, with all its policies and the start of its worker. A trial that
            takes longer has failed, and its worker is ended. Only worker processes can be ended, so this needs the
            executor "processes". None: for ever.

    Raises:
        FailedTrials: when trials failed; the others have finished and are kept.
        FolderError: `out` holds another experiment, or a sweep; nothing has been computed then.

    >>> from fedbandit_envs import Experiment
    >>> experiment = Experiment("fedbandit/Synthetic-v0", ["Uniform", "Oracle"], {"max_cycles": 32}, trials=3)
    >>> result = run(experiment, executor="serial")
    >>> result.trials
    [0, 1, 2]
    >>> bool(result.final("Oracle").mean() < result.final("Uniform").mean())
    True
    """
    if out is not None:
        check_place(out)
    return run_all({"": experiment}, out, executor, only=only, force=force, callbacks=callbacks, timeout=timeout)[""]


def run_all(
    experiments: Mapping[str, Experiment],
    out: str | Path | None = None,
    executor: str | Executor = "processes",
    *,
    only: Sequence[int] | None = None,
    force: bool = False,
    callbacks: Sequence[Callback] = (),
    timeout: float | None = None,
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
    workers = make_executor(_without_shards(executor, experiments)) if isinstance(executor, str) else executor
    _check_timeout(timeout, workers)
    if not isinstance(workers, Serial):
        everything = experiments.values()
        policies = [spec.name for experiment in everything for spec in experiment.policies]
        check_packable(policies, [experiment.environment for experiment in everything])
    with Reservations() as reservations:
        works = {
            name: Work(name, experiment, wanted[name], _store(out, name, experiment, force, reservations))
            for name, experiment in experiments.items()
        }
        try:
            compute(works, workers, callbacks, timeout)
        except KeyboardInterrupt:
            raise Interrupted(_how_to_go_on(works, out)) from None
    results = {
        name: Result(work.experiment, records, work.notes() if out is not None else ())
        for name, work in works.items()
        if (records := work.records())
    }
    failures = {name: work.failures for name, work in works.items() if work.failures}
    if failures:
        error = FailedTrials(report(failures, out, EXPERIMENT_FILE), failures, results)
        first = next(iter(failures.values()))[0]
        error.add_note(f"The traceback of trial {first.trial}:\n{first.trace}")
        raise error
    return results


def _without_shards(executor: str, experiments: Mapping[str, Experiment]) -> str:
    """The executor, with as many workers as leave a processor for each shard of their runs, unless it says how many."""
    shards = max((one.shards for one in experiments.values() if one.shards_on == "processes"), default=0)
    if executor != "processes" or shards < 2:
        return executor
    return f"processes:{max(1, processors() // shards)}"


def _check_timeout(timeout: float | None, workers: Executor) -> None:
    if timeout is None:
        return
    real_number("timeout", timeout, above=0)
    if not hasattr(workers, "end_workers"):
        raise ValueError(
            f"timeout: expected an executor that can end its workers, got {type(workers).__name__}; use 'processes'"
        )


def _store(out: str | Path | None, name: str, experiment: Experiment, force: bool, shared: Reservations) -> Store:
    return Memory() if out is None else RunFolder(Path(out) / name, experiment, force, shared)


def _how_to_go_on(works: Mapping[str, Work], out: str | Path | None) -> str:
    wanted = sum(len(work.trials) for work in works.values())
    done = sum(len(work.records()) for work in works.values())
    if out is None:
        return f"interrupted after {done} of {wanted} trials; nothing was kept, give a folder (out) to be able to go on"
    return f"interrupted after {done} of {wanted} trials, which are kept in {out}; the same command goes on from there"
