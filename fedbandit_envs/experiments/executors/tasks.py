"""Computes tasks with an executor: each comes back with its outcome, also when its worker dies, stops or never ends."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from itertools import chain
from typing import Any, NamedTuple

from fedbandit_envs.experiments.executors.local import Executor

_ATTEMPTS = 3  # how often a task is tried whose worker dies, before the task itself is blamed
_PATIENCE = 600.0  # seconds without an outcome after which a word is said
_UNUSUAL = 10  # no word is said before this many times the length of the longest task so far
_TASKS_OF_A_WORKER = 1000  # a worker is replaced after about this many tasks; a new one takes a second to start

Task = tuple[Any, ...]


class WorkerLost(RuntimeError):
    """The process that computed a task died, every time it was tried."""


class _Running(NamedTuple):
    task: Task
    start: float  # when it was handed to a worker


def outcomes(
    executor: Executor, fn: Callable[..., Any], tasks: Iterable[Task], timeout: float | None = None
) -> Iterator[tuple[Task, Any]]:
    """Compute all tasks, and yield each with its result, or with the exception that it raised, as they finish.

    When a worker dies, it is unknown which of the running tasks killed it. So each of these tasks is tried again alone,
    and only a task that loses its worker every time ends as `WorkerLost`. A task that takes longer than `timeout` ends
    as `TimeoutError`. All workers are ended then, and the other tasks that were running begin again.

    After many tasks the executor is asked for new workers, if it has `renew_workers`. For that the tasks under way are
    waited for first.

    Args:
        executor: who computes; it must have been entered.
        fn: what is computed.
        tasks: the arguments of `fn`, a tuple for each task.
        timeout: the seconds that a task may take, the start of its worker included; None: for ever. Only an executor
            with `end_workers` can have one.

    >>> from fedbandit_envs.experiments.executors.local import Serial
    >>> with Serial() as executor:
    ...     dict(outcomes(executor, pow, [(2, 3), (2, 4)]))
    {(2, 3): 8, (2, 4): 16}
    """
    waiting = iter(tasks)  # a task is taken when there is a worker for it, not before
    # A second task for each worker, so that none waits; with a time limit a task must start when it is submitted.
    most = 2 * executor.workers if executor.workers > 1 and timeout is None else executor.workers
    running: dict[Future[Any], _Running] = {}
    hint, workers = _Hint(), _Workers(executor)
    while True:
        if not running:
            workers.renew_if_worn()
        while len(running) < most and not workers.worn and (task := next(waiting, None)) is not None:
            running[executor.submit(fn, *task)] = _Running(task, time.monotonic())
            workers.tasks += 1
        if not running:
            return
        finished = _next_finished(running, timeout, hint)
        late = set[Future[Any]]()
        if not finished:
            late = {future for future, one in running.items() if _left(one, timeout) <= 0}
            executor.end_workers()  # type: ignore[attr-defined]
        if not finished or any(map(_lost, finished)):
            finished, _ = wait(running)  # when a worker is lost, all running futures end
        suspects, interrupted = list[Task](), list[Task]()
        for future in finished:
            one = running.pop(future)
            hint.hear(one)
            if not _lost(future):
                yield one.task, future.exception() or future.result()
            elif future in late:
                yield one.task, _too_long(timeout)
            else:
                (interrupted if late else suspects).append(one.task)
        waiting = chain(interrupted, waiting)
        for task in suspects:
            yield task, _alone(executor, fn, task, timeout)


def _next_finished(running: dict[Future[Any], _Running], timeout: float | None, hint: "_Hint") -> set[Future[Any]]:
    """The futures that have finished, as soon as there is one; none if the time of a task is over."""
    finished = set[Future[Any]]()
    while not finished:
        left = min(_left(one, timeout) for one in running.values())
        if timeout is not None and left <= 0:
            return {future for future in running if future.done()}
        finished, _ = wait(running, hint.patience if timeout is None else left, FIRST_COMPLETED)
        if not finished and timeout is None:
            hint.say()
    return finished


def _left(one: _Running, timeout: float | None) -> float:
    return one.start + timeout - time.monotonic() if timeout is not None else 0.0


def _too_long(timeout: float | None) -> TimeoutError:
    return TimeoutError(f"expected an end within the time limit of {timeout:g} s, got none; its worker was ended")


class _Workers:
    """Counts the tasks that the workers of an executor were given since they were new."""

    def __init__(self, executor: Executor) -> None:
        self._renew: Callable[[], None] | None = getattr(executor, "renew_workers", None)
        self._most = _TASKS_OF_A_WORKER * executor.workers
        self.tasks = 0

    @property
    def worn(self) -> bool:
        """Whether the workers have had enough tasks to be replaced by new ones."""
        return self._renew is not None and self.tasks >= self._most

    def renew_if_worn(self) -> None:
        """Ask for new workers if it is time; no task may be under way."""
        if self._renew is not None and self.worn:
            self._renew()
            self.tasks = 0


class _Hint:
    """One word on stderr when nothing has finished for long: perhaps something hangs."""

    def __init__(self) -> None:
        self.patience: float | None = _PATIENCE  # seconds; None when the word has been said

    def hear(self, one: _Running) -> None:
        """Take note of how long a task took."""
        if self.patience is not None:
            self.patience = max(self.patience, _UNUSUAL * (time.monotonic() - one.start))

    def say(self) -> None:
        """Say it once."""
        print(
            f"no trial has finished for {self.patience:g} s; if one hangs, Ctrl-C keeps what is finished, and "
            "--timeout SECONDS (timeout=) ends such trials",
            file=sys.stderr,
        )
        self.patience = None


def _lost(future: Future[Any]) -> bool:
    return isinstance(future.exception(), BrokenExecutor)


def _alone(executor: Executor, fn: Callable[..., Any], task: Task, timeout: float | None) -> Any:
    """The outcome of a task while no other task runs."""
    for _ in range(_ATTEMPTS - 1):
        future = executor.submit(fn, *task)
        finished, _ = wait([future], timeout)
        if not finished:
            executor.end_workers()  # type: ignore[attr-defined]
            if _lost(future):
                return _too_long(timeout)
        if not _lost(future):
            return future.exception() or future.result()
    return WorkerLost(
        f"expected a result, got the death of the worker in each of {_ATTEMPTS} attempts; it was killed, ran out of "
        "memory, or crashed"
    )
