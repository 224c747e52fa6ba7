"""Computes the runs that are missing, and shares the work with other processes that use the same folder."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from fedbandit_envs.experiments.executors.local import Executor
from fedbandit_envs.experiments.executors.tasks import outcomes
from fedbandit_envs.experiments.experiment import Experiment
from fedbandit_envs.experiments.failures import Failure
from fedbandit_envs.experiments.identity import Codes, check_codes, codes_of
from fedbandit_envs.experiments.progress import progress_bar
from fedbandit_envs.experiments.provenance import provenance
from fedbandit_envs.experiments.trials import Played, Record, forget_environments, play_trial

_WRITERS = 8  # threads that write files
_SILENT = 2.0  # seconds that are waited for others before a word is said
_PAUSE = 0.5  # seconds before looking again for what other processes compute


class FinishedRun(NamedTuple):
    """What a callback of `run` is given: one policy has finished one trial, and the result is safe on disk.

    Runs come in the order in which they finish, which depends on the workers; their numbers do not. Trials that were
    there before the run are not told.

    >>> from fedbandit_envs import Experiment, run
    >>> experiment = Experiment("fedbandit/Synthetic-v0", ["Uniform"], {"num_agents": 2, "max_cycles": 8}, trials=2)
    >>> result = run(experiment, executor="serial", callbacks=[lambda finished: print(finished.label, finished.trial)])
    Uniform 0
    Uniform 1
    """

    experiment: str  #: the name of the experiment in `run_all`, "" in `run`
    label: str  #: the policy
    trial: int  #: the number of the trial
    seed: int  #: the seed of the trial
    seconds: float  #: how long the run took
    record: Record  #: what is kept of it, as `Result.records` has it

    def __repr__(self) -> str:
        return f"FinishedRun({self.label!r}, trial={self.trial}, seed={self.seed}, seconds={self.seconds:.3g})"


Callback = Callable[[FinishedRun], Any]


class CallbackError(RuntimeError):
    """A callback raised an exception, which stopped the run.

    It names the run after which this happened, and the callback's own exception is its cause. Trials that have finished
    are safe in the folder, so the same call goes on after them.

    >>> import fedbandit_envs as fb
    >>> experiment = fb.Experiment("fedbandit/Synthetic-v0", ["Uniform"], {"num_agents": 2, "max_cycles": 8}, trials=1)
    >>> def broken(finished):
    ...     raise OSError("no route to the tracker")
    >>> fb.run(experiment, executor="serial", callbacks=[broken])
    Traceback (most recent call last):
        ...
    fedbandit_envs.experiments.computing.CallbackError: ...
    """


class Store(Protocol):
    """Where runs are kept, each by the place of its policy in the experiment and its trial."""

    def load(self, place: int, trial: int) -> Record | None:
        """The record of a finished run."""

    def reserve(self, place: int, trial: int) -> bool:
        """Say that this process computes a run; False if another one does."""

    def give_back(self, place: int, trial: int) -> None:
        """Say that this process is done with a run."""

    def save(self, place: int, trial: int, record: Record, provenance: dict[str, str]) -> None:
        """Keep a finished run."""

    def notes(self) -> list[str]:
        """What a reader of the results should know, in a line each."""


class Memory:
    """A store that keeps nothing but what `Work` holds anyway."""

    def load(self, place: int, trial: int) -> None:
        """Nothing was kept."""

    def reserve(self, place: int, trial: int) -> bool:
        """Nobody else is there."""
        return True

    def give_back(self, place: int, trial: int) -> None:
        """Nobody else waits."""

    def save(self, place: int, trial: int, record: Record, provenance: dict[str, str]) -> None:
        """`Work` has it."""

    def notes(self) -> list[str]:
        """Nothing is worth a line."""
        return []


class Work:
    """The trials of one experiment that are wanted, and what is there of them."""

    def __init__(self, name: str, experiment: Experiment, trials: Sequence[int], store: Store):
        self.name, self.experiment, self.trials, self.store = name, experiment, sorted(set(trials)), store
        self.codes = codes_of(experiment)
        self.failures: list[Failure] = []
        self.reused, self.computed, self.by_others = Counter[str](), Counter[str](), Counter[str]()
        specs = [(spec.name, spec.parameters) for spec in experiment.resolved().policies]
        # By place: the place of the same policy under another label, which is computed first, or -1.
        self._twins = [-1 if (first := specs.index(spec)) == place else first for place, spec in enumerate(specs)]
        self._failed: set[tuple[int, int]] = set()  # trials and places
        self._found: dict[int, dict[int, Record]] = {trial: {} for trial in self.trials}
        for trial in self.trials:
            self._look(trial, self.reused)

    def _look(self, trial: int, counter: Counter[str]) -> None:
        """Take what the store has of a trial."""
        for place in self.missing(trial):
            record = self.store.load(place, trial)
            if record is not None:
                self._found[trial][place] = record
                of = self.reused if self._twins[place] in self._found[trial] else counter
                of[self.experiment.labels[place]] += 1

    def missing(self, trial: int) -> list[int]:
        """The places of the policies that have neither finished nor failed."""
        found = self._found[trial]
        return [p for p in range(len(self.experiment.policies)) if p not in found and (trial, p) not in self._failed]

    def reserve(self, trial: int) -> list[int]:
        """The places of the policies that this process is to compute now."""
        mine = [place for place in self.missing(trial) if self.store.reserve(place, trial)]
        self._look(trial, self.by_others)  # after the reservation: the one before may have finished meanwhile
        for place in set(mine) & self._found[trial].keys():
            self.store.give_back(place, trial)
        return [place for place in mine if place not in self._found[trial]]

    def keep(self, trial: int, place: int, played: Played) -> FinishedRun:
        """Take a finished run that the store has."""
        self.store.give_back(place, trial)
        self._found[trial][place] = played.record
        label = self.experiment.labels[place]
        self.computed[label] += 1
        return FinishedRun(
            self.name, label, trial, self.experiment.trial_seed(trial), played.seconds, dict(played.record)
        )

    def fail(self, trial: int, places: Sequence[int], failure: Failure) -> None:
        """Remember that runs failed; whoever shares the folder may try them."""
        self.failures.append(failure)
        for place in places:
            self._failed.add((trial, place))
            self.store.give_back(place, trial)

    def records(self) -> list[Record]:
        """The trials that every policy has finished, as `Result` takes them."""
        return [
            {
                "trial": trial,
                "seed": str(self.experiment.trial_seed(trial)),
                "policies": {str(place): found[place] for place in sorted(found)},
            }
            for trial, found in self._found.items()
            if len(found) == len(self.experiment.policies)
        ]

    def notes(self) -> list[str]:
        """What was reused and what was computed, a line for each policy."""
        if not self.computed and not self.by_others and not self.failures:
            return ["nothing was left to compute: all trials were there", *self.store.notes()]
        notes = self.store.notes()
        for label in self.experiment.labels:
            others = f", {self.by_others[label]} computed by others" if self.by_others[label] else ""
            reused = f"{self.reused[label]} trial{'s' * (self.reused[label] != 1)} reused"
            notes.append(f"{label}: {reused}, {self.computed[label]} computed{others}")
        return notes


def attempt(
    name: str, experiment: Experiment, trial: int, places: Sequence[int], codes: Codes
) -> tuple[dict[int, Played | Failure], dict[str, str]]:
    """In a worker: the runs of a trial, and where they were computed."""
    check_codes(experiment, places, codes)
    return play_trial(experiment, trial, places), provenance()


def compute(works: Mapping[str, Work], workers: Executor, callbacks: Sequence[Callback], timeout: float | None) -> None:
    """Compute what is missing, each trial within `timeout`; what others compute at the same time is waited for."""
    jobs = [(work, trial) for work in works.values() for trial in work.trials if work.missing(trial)]
    if not jobs:
        return
    # Several files become safe on disk in the time of one, hence the threads that write.
    with (
        workers,
        ThreadPoolExecutor(_WRITERS) as writers,
        progress_bar(len(jobs)) as progress,
    ):
        start, announced = time.monotonic(), False
        while jobs:
            before = sum(len(work.missing(trial)) for work, trial in jobs)
            for work, trial in _computed(works, workers, writers, jobs, callbacks, timeout):
                progress.update(not work.missing(trial))
            jobs = [(work, trial) for work, trial in jobs if work.missing(trial)]
            if sum(len(work.missing(trial)) for work, trial in jobs) == before:
                if not announced and time.monotonic() - start > _SILENT:
                    print(f"waiting for {len(jobs)} trials that other processes compute", file=sys.stderr)
                    announced = True
                time.sleep(_PAUSE)


def _computed(
    works: Mapping[str, Work],
    workers: Executor,
    writers: ThreadPoolExecutor,
    jobs: Sequence[tuple[Work, int]],
    callbacks: Sequence[Callback],
    timeout: float | None,
) -> Iterator[tuple[Work, int]]:
    """Compute what nobody else does, trial by trial; the files of one are written while the next is computed."""
    unfinished: list[_Writing] = []
    try:
        for (name, _, trial, places, _), outcome in outcomes(workers, attempt, _tasks(jobs), timeout):
            while unfinished:
                yield _finish(unfinished.pop(), callbacks)
            unfinished.append(_begin(works[name], trial, places, outcome, writers))
        while unfinished:
            yield _finish(unfinished.pop(), callbacks)
    finally:  # also when something stops the run: what was computed is kept
        while unfinished:
            _finish(unfinished.pop(), ())
        forget_environments()  # those of a serial run would stay in memory


def _tasks(jobs: Sequence[tuple[Work, int]]) -> Iterator[tuple[str, Experiment, int, list[int], Codes]]:
    """The trials with the policies that nobody else computes; each is reserved when a worker is there for it."""
    for work, trial in jobs:
        if places := work.reserve(trial):
            yield work.name, work.experiment, trial, places, work.codes


class _Writing(NamedTuple):
    """The runs of a trial whose files are being written."""

    work: Work
    trial: int
    played: dict[int, Played]  # the finished runs by the place of their policy
    saved: list[Future[None]]


def _begin(work: Work, trial: int, places: Sequence[int], outcome: Any, writers: ThreadPoolExecutor) -> _Writing:
    """Note the failures of a trial, and begin to write the other runs."""
    if isinstance(outcome, BaseException):  # the worker itself was lost
        work.fail(trial, places, Failure.of(trial, work.experiment.trial_seed(trial), "", outcome))
        return _Writing(work, trial, {}, [])
    found, made = outcome
    played = {place: run for place, run in found.items() if isinstance(run, Played)}
    for place, run in found.items():
        if isinstance(run, Failure):
            work.fail(trial, [place], run)
    saved = [writers.submit(work.store.save, place, trial, run.record, made) for place, run in played.items()]
    return _Writing(work, trial, played, saved)


def _finish(writing: _Writing, callbacks: Sequence[Callback]) -> tuple[Work, int]:
    """Wait until the files are safe on disk, then tell the callbacks."""
    work, trial, played, saved = writing
    for future in saved:
        future.result()
    for finished in [work.keep(trial, place, run) for place, run in played.items()]:
        for callback in callbacks:
            _call(callback, finished)
    return work, trial


def _call(callback: Callback, finished: FinishedRun) -> None:
    try:
        callback(finished)
    except Exception as error:
        name = getattr(callback, "__qualname__", type(callback).__name__)
        raise CallbackError(
            f"callback {name}: expected no exception, got {type(error).__name__}: {error}, after trial "
            f"{finished.trial} of {finished.label}; what is finished is kept if the run has a folder"
        ) from error
