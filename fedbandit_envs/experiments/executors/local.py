"""Who computes the trials: an executor, which has one method, `submit(fn, *args) -> Future`.

Results do not depend on the executor that computed them.
"""

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from fedbandit_envs.experiments.executors.known import Known, know, known_here
from fedbandit_envs.threads import ONE_THREAD_ENVIRONMENT, processors
from fedbandit_envs.validation import one_of, whole_number

_END_WITH_PARENT = 1  # the number of PR_SET_PDEATHSIG
_GRACE = 5.0  # seconds in which a worker without a task, or a pool without workers, must end by itself


class Executor(Protocol):
    """The contract of an executor: a context manager that computes functions.

    To write one, define these four members and enter it in `EXECUTORS`; `Serial` is the shortest example. When a
    worker is lost, the future of its task must raise `BrokenExecutor`. An executor that can end its workers in the
    middle of their tasks has one more method, `end_workers()`; a time limit for trials needs it. One whose workers
    should not live for ever has `renew_workers()`, which is called now and then while no task is under way.
    """

    workers: int  #: how many tasks are computed at the same time

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Start `fn(*args)`. After a broken future, the next call starts new workers."""

    def __enter__(self) -> Self:
        """Start the workers."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers: after their tasks, or at once if there is an error."""


class Serial:
    """Computes in this process, one task after the other. Use it for debugging, and for runs of a few seconds.

    >>> with Serial() as executor:
    ...     executor.submit(pow, 2, 10).result()
    1024
    """

    workers = 1

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Compute `fn(*args)` at once; the future is ready when this returns."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Processes:
    """Computes in worker processes of this machine, with one thread each for linear algebra.

    Workers are fresh interpreters ("spawn"): nothing of this process leaks into results, and no threads are forked. So
    a script that uses them needs `if __name__ == "__main__":`. Workers leave Ctrl-C to this process, and they end when
    this process ends.

    Args:
        workers: the number of processes; None: one for each processor.
    """

    def __init__(self, workers: int | None = None):
        self.workers = processors() if workers is None else whole_number("workers", workers, at_least=1)
        self._pool: Any = None
        self._started: list[Any] = []  # the worker processes of the pool
        self._environment: dict[str, str | None] = {}

    def __enter__(self) -> Self:
        # Workers inherit these variables at their start. This process is not affected: it has loaded numpy before.
        self._environment = {name: os.environ.get(name) for name in ONE_THREAD_ENVIRONMENT}
        os.environ.update(ONE_THREAD_ENVIRONMENT)
        try:
            self._start()
            self.submit(os.getpid).result()
        except BrokenExecutor as error:
            self.__exit__(type(error), error, None)
            raise RuntimeError(
                "executor: expected worker processes to start, got none; in a script, call this under "
                "`if __name__ == '__main__':`, or use executor='serial'"
            ) from error
        return self

    def _start(self) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        self._pool = ProcessPoolExecutor(
            self.workers, get_context("spawn"), initializer=_start_worker, initargs=(known_here(),)
        )
        self._started = []

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Hand `fn(*args)` to a worker; both must be picklable."""
        self._end_broken()
        try:
            future = self._pool.submit(fn, *args)
        except BrokenExecutor:
            self.end_workers()
            self._pool.shutdown()
            self._start()
            future = self._pool.submit(fn, *args)
        self._started = list((self._pool._processes or {}).values()) or self._started
        return future

    def _end_broken(self) -> None:
        """End the workers of a pool that has lost one, also stopped ones.

        Since Python 3.12 such a pool keeps its lock until all of its workers have ended. A stopped one never does.
        """
        if self._pool._broken:
            self.end_workers()

    def end_workers(self) -> None:
        """End all workers at once, also stopped ones; the futures of their tasks raise `BrokenExecutor`."""
        for process in self._started:
            process.kill()  # a stopped process would not hear a gentler signal
        _have_ended(self._started)

    def renew_workers(self) -> None:
        """Go on with new workers, so that what code of others leaks in a long run is given back.

        It must be called while no task is under way. Python's own `max_tasks_per_child` replaces single workers of a
        pool that is at work; in Python 3.11 that can block for ever.
        """
        self._end_pool()
        self._start()

    def _end_pool(self, at_once: bool = False) -> None:
        self._end_broken()
        manager = self._pool._executor_manager_thread
        self._pool.shutdown(wait=False, cancel_futures=True)
        if at_once or not _have_ended(self._started):
            self.end_workers()
        if manager is not None:
            # Python wakes this thread at its exit through a pipe that the thread closes when it ends: a race.
            manager.join(_GRACE)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end_pool(at_once=kind is not None)
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _have_ended(processes: list[Any]) -> bool:
    """Whether processes end within seconds; one that was stopped by a signal does not."""
    from multiprocessing.connection import wait as wait_for_one

    ending = {process.sentinel for process in processes}
    end = time.monotonic() + _GRACE
    while ending and (left := end - time.monotonic()) > 0:
        ending -= set(wait_for_one(list(ending), left))
    if ending:
        return False
    for process in processes:
        process.join()  # it has closed its files; the rest takes a moment
    return True


def _start_worker(known: Known) -> None:
    """Prepare a worker: leave Ctrl-C to the parent, end with the parent even if it is killed, know what it knows."""
    import ctypes
    import signal
    import threading
    from multiprocessing import parent_process

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    if sys.platform == "linux":  # in a long call of compiled code that thread does not run; the system ends it anyway
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
    know(known)


class ExecutorKind(NamedTuple):
    """An entry of `EXECUTORS`: how an executor is made from its name, and how the name is explained."""

    make: Callable[[str], Executor]  #: makes the executor from the text after "NAME:", which is "" if there is none
    help: str  #: how the name is written; what may be left out stands in brackets


def _serial(argument: str) -> Serial:
    if argument:
        raise ValueError(f"executor: expected 'serial' without an argument, got 'serial:{argument}'")
    return Serial()


def _processes(argument: str) -> Processes:
    if argument and not argument.isdecimal():
        raise ValueError(
            f"executor: expected a number of workers, got 'processes:{argument}'; for example 'processes:4'"
        )
    return Processes(int(argument) if argument else None)


def _ray(argument: str) -> Executor:
    from fedbandit_envs.experiments.executors.clusters import RayCluster

    return RayCluster(argument)


def _dask(argument: str) -> Executor:
    from fedbandit_envs.experiments.executors.clusters import DaskCluster

    return DaskCluster(argument)


#: All executors by name. Your own is one more entry: `EXECUTORS["mine"] = ExecutorKind(make_mine, "mine[:QUEUE]")`.
EXECUTORS: dict[str, ExecutorKind] = {
    "serial": ExecutorKind(_serial, "serial"),
    "processes": ExecutorKind(_processes, "processes[:N]"),
    "ray": ExecutorKind(_ray, "ray[:ADDRESS]"),
    "dask": ExecutorKind(_dask, "dask[:ADDRESS]"),
}


def make_executor(name: str) -> Executor:
    """The executor of a name in `EXECUTORS`.

    Args:
        name: the name, and after a colon an argument: the number of processes, or the address of a cluster.

    >>> make_executor("serial").workers
    1
    >>> make_executor("processes:4").workers
    4
    """
    kind, _, argument = name.partition(":")
    return EXECUTORS[one_of("executor", kind, EXECUTORS)].make(argument)


def executor_help() -> str:
    """How each executor is written, in one line for a help text.

    >>> executor_help()
    'serial, processes[:N], ray[:ADDRESS] or dask[:ADDRESS]'
    """
    *first, last = (kind.help for kind in EXECUTORS.values())
    return f"{', '.join(first)} or {last}"
