"""A trial that never ends: with a time limit it has failed, and everything else goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from experiment_policies import double, sleep_and_tell, small

import fedbandit_envs as fb
from fedbandit_envs.cli.main import main
from fedbandit_envs.experiments.executors import tasks
from fedbandit_envs.experiments.executors.local import Processes, Serial
from fedbandit_envs.experiments.executors.tasks import outcomes

LIMIT = 8.0  # seconds; a worker starts in about one


def hanging(how: str, folder: Path, share: float = 0.3) -> fb.Experiment:
    folder.mkdir(exist_ok=True)
    policy = {"name": "Test-Hangs", "parameters": {"how": how, "folder": str(folder), "share": share}, "label": "mine"}
    return small(trials=5, policies=[policy])


def is_running(pid: int) -> bool:
    """Whether a process is there and more than the remains of one that has ended."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("how", ["sleeps", "is stopped", "computes"])
def test_a_trial_that_never_ends_has_failed_and_the_others_are_kept(tmp_path: Path, how: str) -> None:
    pids = tmp_path / "pids"
    start = time.monotonic()
    with pytest.raises(fb.FailedTrials) as raised:
        fb.run(hanging(how, pids), tmp_path / "out", "processes:2", timeout=LIMIT)
    assert time.monotonic() - start < 60
    failed = [failure.trial for failure in raised.value.failures[""]]
    assert 1 <= len(failed) <= 3
    for trial in failed:
        assert f"trial {trial} (seed" in str(raised.value)
    assert "TimeoutError: expected an end within the time limit of 8 s, got none" in str(raised.value)
    kept = [trial for trial in range(5) if trial not in failed]
    assert raised.value.results[""].trials == kept == fb.Result.load(tmp_path / "out").trials
    assert not any(is_running(int(path.name)) for path in pids.iterdir())
    assert not list((tmp_path / "out").rglob("*.reserved-*"))


@pytest.mark.slow
def test_a_time_limit_that_is_kept_changes_nothing(tmp_path: Path) -> None:
    for folder, timeout in (("limited", 60.0), ("free", None)):
        fb.run(small(), tmp_path / folder, "processes:2", timeout=timeout)
    limited, free = (sorted((tmp_path / folder).glob("runs/*/*.npz")) for folder in ("limited", "free"))
    assert [file.read_bytes() for file in limited] == [file.read_bytes() for file in free]


@pytest.mark.parametrize("executor", ["serial", Serial()], ids=["by name", "an object"])
def test_a_time_limit_needs_workers_that_can_be_ended(executor: str | Serial) -> None:
    with pytest.raises(ValueError, match="timeout: expected an executor that can end its workers, got Serial"):
        fb.run(small(), executor=executor, timeout=1.0)


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), "3"])
def test_a_time_limit_is_a_positive_number(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout: expected"):
        fb.run(small(), executor="processes:1", timeout=timeout)


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_the_command_line_has_the_time_limit(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [command, "--env", "Synthetic", "--policy", "Uniform", "--executor", "serial", "--timeout", "3"]
    assert main([*words, *(["--over", "num_agents=2,3"] if command == "sweep" else [])]) != 0
    assert "timeout: expected an executor that can end its workers" in capsys.readouterr().err


@pytest.mark.slow
def test_one_word_is_said_when_nothing_finishes_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tasks, "_PATIENCE", 0.2)
    with Processes(1) as workers:
        list(outcomes(workers, sleep_and_tell, [(str(tmp_path), 2.0), (str(tmp_path), 2.0)]))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("no trial has finished for 0.2 s; if one hangs")
    assert "--timeout SECONDS" in line


@pytest.mark.slow
@pytest.mark.parametrize("error", [False, True], ids=["after the last task", "after an error"])
def test_a_stopped_worker_does_not_keep_the_end_waiting(error: bool) -> None:
    start = time.monotonic()
    workers = Processes(1)
    with workers:
        pid = workers.submit(os.getpid).result()
        os.kill(pid, signal.SIGSTOP)
        if error:
            workers.__exit__(KeyboardInterrupt)
    assert time.monotonic() - start < 30
    assert not is_running(pid)


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "ends"])
def test_a_stopped_worker_beside_a_dead_one_does_not_hang_the_run(goes_on: bool) -> None:
    with Processes(2) as workers:
        pids = {workers.submit(os.getpid).result()}
        # Python's pool watches a new worker from the next task on, so there is one more.
        futures = [workers.submit(time.sleep, 60) for _ in range(3)]
        pids = {process.pid for process in workers._started}
        stopped, dead = sorted(pids)
        os.kill(stopped, signal.SIGSTOP)
        os.kill(dead, signal.SIGKILL)
        assert all(future.exception(30) is not None for future in futures)
        if goes_on:
            assert workers.submit(double, 4).result(30) == 8
    assert not any(map(is_running, pids))


@pytest.mark.skipif(sys.platform != "linux", reason="only there the system ends a worker with its parent")
def test_a_worker_in_a_long_call_of_compiled_code_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import sys\nfrom experiment_policies import compute_and_tell\n"
        "from fedbandit_envs.experiments.executors.local import Processes\n"
        "if __name__ == '__main__':\n    with Processes(1) as workers:\n"
        "        workers.submit(compute_and_tell, sys.argv[1]).result()\n"
    )
    (tmp_path / "pids").mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.Popen([sys.executable, tmp_path / "script.py", tmp_path / "pids"], env=environment)
    while not list((tmp_path / "pids").iterdir()):
        assert run.poll() is None
        time.sleep(0.01)
    (worker,) = (int(path.name) for path in (tmp_path / "pids").iterdir())
    time.sleep(0.2)
    run.kill()
    run.wait()
    end = time.monotonic() + 2
    while is_running(worker) and time.monotonic() < end:
        time.sleep(0.01)
    outlived = is_running(worker)
    if outlived:
        os.kill(worker, signal.SIGKILL)
    assert not outlived
