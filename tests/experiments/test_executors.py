"""Executors: every task comes back, whoever computes it, and lost workers are replaced."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, process
from pathlib import Path
from typing import Any

import pytest
from experiment_policies import die, double, process_of, sleep_and_tell, small, threads_of_linear_algebra

from fedbandit_envs import run
from fedbandit_envs.experiments.executors import local as executors
from fedbandit_envs.experiments.executors import tasks as task_module
from fedbandit_envs.experiments.executors.local import Processes, Serial, make_executor
from fedbandit_envs.experiments.executors.tasks import WorkerLost, outcomes


def collected(executor: executors.Executor, fn: Any, tasks: list[tuple[Any, ...]]) -> dict[int, Any]:
    with executor:
        return {task[0]: outcome for task, outcome in outcomes(executor, fn, tasks)}


@pytest.mark.parametrize("name", ["serial", "processes:1", "processes:2"])
def test_every_task_comes_back_with_its_result(name: str) -> None:
    assert collected(make_executor(name), double, [(n,) for n in range(9)]) == {n: 2 * n for n in range(9)}


def test_an_exception_is_the_outcome_of_its_task_alone() -> None:
    found = collected(Serial(), lambda n: 1 // n, [(0,), (1,)])
    assert isinstance(found[0], ZeroDivisionError)
    assert found[1] == 1


def test_a_task_whose_worker_dies_is_tried_again(tmp_path: Path) -> None:
    tasks = [(n, 1 if n == 2 else 0, str(tmp_path)) for n in range(6)]
    assert collected(Processes(2), die, tasks) == {n: 2 * n for n in range(6)}
    assert len(list(tmp_path.iterdir())) == 1


def test_a_task_that_always_kills_its_worker_is_blamed_and_no_other(tmp_path: Path) -> None:
    tasks = [(n, 99 if n == 1 else 0, str(tmp_path)) for n in range(6)]
    found = collected(Processes(2), die, tasks)
    assert isinstance(found.pop(1), WorkerLost)
    assert found == {n: 2 * n for n in (0, 2, 3, 4, 5)}


def test_workers_use_one_thread_for_linear_algebra_and_the_environment_is_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with Processes(1) as workers:
        assert workers.submit(threads_of_linear_algebra).result() == "1"
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


def test_an_error_ends_the_workers_at_once(tmp_path: Path) -> None:
    def fail_while_a_worker_sleeps() -> None:
        with Processes(1) as workers:
            workers.submit(sleep_and_tell, str(tmp_path), 60)
            while not list(tmp_path.iterdir()):
                time.sleep(0.01)
            raise RuntimeError("stop")

    start = time.monotonic()
    with pytest.raises(RuntimeError, match="stop"):
        fail_while_a_worker_sleeps()
    assert time.monotonic() - start < 30
    (pid,) = (int(path.name) for path in tmp_path.iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_thread_of_a_pool_outlives_it_also_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close = process._ThreadWakeup.close

    def close_late(wakeup: Any) -> None:
        time.sleep(0.5)
        close(wakeup)

    executor = Processes(1)

    def interrupt() -> None:
        with executor:
            executor.submit(sleep_and_tell, str(tmp_path), 30)
            raise KeyboardInterrupt

    monkeypatch.setattr(process._ThreadWakeup, "close", close_late)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert not {thread for thread in threading.enumerate() if "ExecutorManager" in type(thread).__name__} - before


def test_a_script_without_a_main_guard_is_told_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from fedbandit_envs.experiments.executors.local import Processes\nwith Processes(1) as workers:\n    pass\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert "call this under `if __name__ == '__main__':`" in ran.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("process", "did you mean 'processes'"),
        ("processes:two", "expected a number of workers, got 'processes:two'; for example 'processes:4'"),
        ("processes:0", "expected a whole number of at least 1, got 0"),
        ("serial:2", "expected 'serial' without an argument"),
        ("", "expected one of"),
    ],
)
def test_unknown_executors_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_executor(name)


class Remembering(Serial):
    """Computes here, and remembers for whom."""

    def __init__(self, queue: str):
        self.queue = queue


def test_an_executor_of_one_s_own_is_an_entry_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(executors.EXECUTORS, "mine", executors.ExecutorKind(Remembering, "mine[:QUEUE]"))
    made = make_executor("mine:night")
    assert isinstance(made, Remembering)
    assert made.queue == "night"
    assert executors.executor_help().endswith("dask[:ADDRESS] or mine[:QUEUE]")
    assert run(small(trials=2), executor="mine").trials == [0, 1]


def test_no_more_tasks_are_under_way_than_the_workers_need() -> None:
    class Counting(Serial):
        workers = 3
        under_way: list[Future[Any]]

        def __init__(self) -> None:
            self.under_way, self.most = [], 0

        def submit(self, fn: Any, /, *args: Any) -> Future[Any]:
            future: Future[Any] = Future()
            self.under_way.append(future)
            self.most = max(self.most, len(self.under_way))
            if len(self.under_way) == 6 or args[0] == 19:
                for waiting in self.under_way:
                    waiting.set_result(None)
                self.under_way.clear()
            return future

    counting = Counting()
    assert len(collected(counting, double, [(n,) for n in range(20)])) == 20
    assert counting.most == 6


@pytest.mark.slow
def test_workers_are_replaced_after_many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "_TASKS_OF_A_WORKER", 3)
    with Processes(1) as workers:
        found = [pid for _, pid in outcomes(workers, process_of, [(n,) for n in range(8)])]
        assert [found.count(pid) for pid in dict.fromkeys(found)] == [3, 3, 2]
        for pid in dict.fromkeys(found[:6]):
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


@pytest.mark.slow
def test_new_workers_change_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(small(trials=4), tmp_path / "serial", "serial")
    monkeypatch.setattr(task_module, "_TASKS_OF_A_WORKER", 1)
    run(small(trials=4), tmp_path / "renewed", "processes:2", timeout=60.0)
    serial, renewed = (sorted((tmp_path / folder).glob("runs/*/*.npz")) for folder in ("serial", "renewed"))
    assert [file.read_bytes() for file in serial] == [file.read_bytes() for file in renewed]


@pytest.mark.slow
def test_a_worker_that_is_stopped_when_it_should_be_replaced_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_GRACE", 0.5)
    with Processes(1) as workers:
        pid = workers.submit(os.getpid).result()
        os.kill(pid, signal.SIGSTOP)
        workers.renew_workers()
        assert workers.submit(double, 4).result(30) == 8
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
