"""Who computes the trials: an executor, which has one method, `submit(fn, *args) -> Future`.

Results do not depend on the executor that computed them.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from fedbandit_envs.experiments.executors.known import Known, know, known_here
from fedbandit_envs.threads import ONE_THREAD_ENVIRONMENT
from fedbandit_envs.validation import one_of, whole_number

_ATTEMPTS = 3  # how often a task is tried whose worker dies, before the task itself is blamed


class WorkerLost(RuntimeError):
    """The process that computed a task died, every time it was tried."""


class Executor(Protocol):
    """The contract of an executor: a context manager that computes functions.

    To write one, define these four members and enter it in `EXECUTORS`; `Serial` is the shortest example. When a
    worker is lost, the future of its task must raise `BrokenExecutor`.
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
        self._environment: dict[str, str | None] = {}

    def __enter__(self) -> Self:
        # Workers inherit these variables at their start. This process is not affected: it has loaded numpy before.
        self._environment = {name: os.environ.get(name) for name in ONE_THREAD_ENVIRONMENT}
        os.environ.update(ONE_THREAD_ENVIRONMENT)
        try:
            self._start()
            self._pool.submit(os.getpid).result()
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

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Hand `fn(*args)` to a worker; both must be picklable."""
        try:
            return self._pool.submit(fn, *args)
        except BrokenExecutor:
            self._pool.shutdown(wait=False)
            self._start()
            return self._pool.submit(fn, *args)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=kind is None, cancel_futures=True)
        if kind is not None:
            for process in processes:
                process.terminate()
            for process in processes:
                process.join()
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start_worker(known: Known) -> None:
    """Prepare a worker: leave Ctrl-C to the parent, end with the parent even if it is killed, know what it knows."""
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
    know(known)


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def outcomes(
    executor: Executor, fn: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Compute all tasks, and yield each with its result, or with the exception that it raised, as they finish.

    When a worker dies, it is unknown which of the running tasks killed it. So each of these tasks is tried again alone,
    and only a task that loses its worker every time ends as `WorkerLost`.

    Args:
        executor: who computes; it must have been entered.
        fn: what is computed.
        tasks: the arguments of `fn`, a tuple for each task.

    >>> with Serial() as executor:
    ...     dict(outcomes(executor, pow, [(2, 3), (2, 4)]))
    {(2, 3): 8, (2, 4): 16}
    """
    waiting = iter(tasks)  # a task is taken when there is a worker for it, not before
    more = True
    most = 2 * executor.workers if executor.workers > 1 else 1  # a second task for each worker, so that none waits
    running: dict[Future[Any], tuple[Any, ...]] = {}
    while more or running:
        while more and len(running) < most:
            task = next(waiting, None)
            if task is None:
                more = False
            else:
                running[executor.submit(fn, *task)] = task
        if not running:
            break
        finished, _ = wait(running, return_when=FIRST_COMPLETED)
        if any(map(_lost, finished)):
            finished, _ = wait(running)  # when a worker is lost, all running futures end
        suspects = []
        for future in finished:
            task = running.pop(future)
            if _lost(future):
                suspects.append(task)
            else:
                yield task, future.exception() or future.result()
        for task in suspects:
            yield task, _alone(executor, fn, task)


def _lost(future: Future[Any]) -> bool:
    return isinstance(future.exception(), BrokenExecutor)


def _alone(executor: Executor, fn: Callable[..., Any], task: tuple[Any, ...]) -> Any:
    """The outcome of a task while no other task runs."""
    for _ in range(_ATTEMPTS - 1):
        future = executor.submit(fn, *task)
        if not _lost(future):
            return future.exception() or future.result()
    return WorkerLost(
        f"expected a result, got the death of the worker in each of {_ATTEMPTS} attempts; it was killed, ran out of "
        "memory, or crashed"
    )
