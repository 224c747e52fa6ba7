"""Who computes the trials. One seam: `submit(fn, *args) -> Future`; what comes back does not depend on who computed."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from fedbandit_envs.protocol.registry import policy_names, register_policy, registered_policies
from fedbandit_envs.validation import one_of, whole_number

_ATTEMPTS = 3  # of a task whose worker dies, before the task itself is blamed
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class WorkerLost(RuntimeError):
    """The process that computed a task died, every time it was tried."""


class Executor(Protocol):
    """A context manager that computes functions; a lost worker shows as `BrokenExecutor` in the future."""

    workers: int

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Start `fn(*args)`; after a broken future, the next call starts new workers."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers: after their tasks, or at once when there is an error."""


class Serial:
    """Computes in this process, one after the other."""

    workers = 1

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Compute now."""
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

    Workers are fresh interpreters ("spawn"): nothing of this process leaks into results, and there is no forking of
    threads. They ignore Ctrl-C, which is for this process to handle, and end when this process does.
    """

    def __init__(self, workers: int | None = None):
        self.workers = processors() if workers is None else whole_number("workers", workers, at_least=1)
        self._pool: Any = None
        self._environment: dict[str, str | None] = {}

    def __enter__(self) -> Self:
        # Workers inherit these at their start; this process read them when it imported numpy.
        self._environment = {name: os.environ.get(name) for name in ONE_THREAD}
        os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
        try:
            self._start()
            self._pool.submit(os.getpid).result()
        except BrokenExecutor as error:
            self.__exit__(type(error), error, None)
            raise RuntimeError(
                "worker processes could not start; in a script, call this under `if __name__ == '__main__':`, or use "
                "executor='serial'"
            ) from error
        return self

    def _start(self) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        self._pool = ProcessPoolExecutor(
            self.workers, get_context("spawn"), initializer=_start_worker, initargs=(packed_policies(),)
        )

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Hand it to a worker."""
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


def _start_worker(policies: Mapping[str, str | bytes]) -> None:
    """In a worker: leave Ctrl-C to the parent, end with the parent even if it is killed, know its policies."""
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
    know_policies(policies)


def packed_policies() -> dict[str, str | bytes]:
    """The policies of this process for its workers: a path, or the code of a class to which no path leads.

    What can't be packed is left out; `check_packable` says so where it is needed.
    """
    packed: dict[str, str | bytes] = {}
    for name, policy in registered_policies().items():
        with contextlib.suppress(Exception):  # anything can go wrong in the reduction of a user's objects
            packed[name] = policy if isinstance(policy, str) else _packed(policy)
    return packed


def check_packable(names: Iterable[str]) -> None:
    """Refuse policies that worker processes can neither import nor be sent."""
    known = registered_policies()
    for name in names:
        policy = known.get(name, "")
        if isinstance(policy, str):
            continue
        try:
            _packed(policy)
        except Exception as error:
            raise ValueError(
                f"policy: expected one that can be sent to worker processes, got {name!r} ({error}); put it at the top "
                "of a module, or use executor='serial'"
            ) from error


def _packed(policy: type) -> bytes:
    """The class with its code. It is for our own processes only, and never written to a file."""
    import cloudpickle

    return bytes(cloudpickle.dumps(policy))


def know_policies(policies: Mapping[str, str | bytes]) -> None:
    """In a worker: register the policies that the process which started the run has registered."""
    import pickle

    for name, policy in policies.items():
        if name not in policy_names():  # a script that is imported again registers its own
            register_policy(name, pickle.loads(policy) if isinstance(policy, bytes) else policy)


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ExecutorKind(NamedTuple):
    """An entry of `EXECUTORS`."""

    make: Callable[[str], Executor]  #: makes one from the text after "NAME:", which is "" if there is none
    help: str  #: how it is written, and in brackets what may be left out


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
    """The executor of a name in `EXECUTORS`, which an argument can follow.

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
    """Each task (the arguments of `fn`) with its result, or with the exception it raised, as they finish.

    When a worker dies, nobody knows which of the tasks under way killed it: each of them is then tried alone, so that
    the others are not blamed, and one that loses its worker again and again ends as `WorkerLost`.
    """
    waiting = iter(tasks)  # a task is taken when there is a worker for it, not before
    more = True
    most = 2 * executor.workers if executor.workers > 1 else 1  # a second task each, so that no worker waits for us
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
            finished, _ = wait(running)  # all of them end: their workers are gone
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
    """The outcome of a task that runs with nothing else under way."""
    for _ in range(_ATTEMPTS - 1):
        future = executor.submit(fn, *task)
        if not _lost(future):
            return future.exception() or future.result()
    return WorkerLost(f"the worker process died in each of {_ATTEMPTS} attempts (killed, out of memory, or crashed)")
