"""Ray and Dask behind the seam: the same results as in one process, also when workers are killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from experiment_policies import die, double, process_id, threads_of_linear_algebra

from fedbandit_envs import Experiment, run
from fedbandit_envs.executors import WorkerLost, make_executor, outcomes

CLUSTERS = [pytest.param("ray", marks=pytest.mark.ray), pytest.param("dask", marks=pytest.mark.dask)]
pytestmark = pytest.mark.filterwarnings("default")  # theirs are not ours


@pytest.fixture(params=CLUSTERS)
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip({"dask": "distributed"}.get(request.param, request.param))
    # Workers find the helpers of these tests as any user's modules: on the path.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    before = children()
    yield request.param
    gone_within(20, before)


def children() -> set[int]:
    """All processes below this one."""
    found, todo = set(), [os.getpid()]
    table = [line.split() for line in subprocess.check_output(["ps", "-eo", "pid=,ppid=,stat="], text=True).splitlines()]
    while todo:
        parent = todo.pop()
        below = [int(pid) for pid, ppid, stat in table if int(ppid) == parent and not stat.startswith("Z")]
        found.update(below)
        todo += below
    return found


def gone_within(seconds: float, before: set[int]) -> None:
    deadline = time.monotonic() + seconds
    while (left := {pid for pid in children() - before if alive(pid)}) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not left, subprocess.check_output(["ps", "-o", "pid,args", *map(str, left)], text=True)


def alive(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    # Python's own helper for shared memory lives as long as the process that first needed it.
    return bool(command) and b"resource_tracker" not in command and not command.startswith(b"ps\0")


def test_tasks_come_back_and_a_dead_worker_is_replaced(cluster: str, tmp_path: Path) -> None:
    tasks: list[tuple[Any, ...]] = [(n, 1 if n == 2 else 0, str(tmp_path)) for n in range(6)]
    with make_executor(cluster) as executor:
        assert dict((task[0], out) for task, out in outcomes(executor, die, tasks)) == {n: 2 * n for n in range(6)}
        assert executor.submit(threads_of_linear_algebra).result() == "1"
        with pytest.raises(ZeroDivisionError):
            raise next(outcome for _, outcome in outcomes(executor, divmod, [(1, 0)]))


def test_results_are_those_of_one_process_byte_for_byte_also_when_a_worker_is_killed(
    cluster: str, tmp_path: Path
) -> None:
    experiment = Experiment(
        "fedbandit/Synthetic-v0", ["Fed-PECD", "Fed-PE"], {"num_agents": 8, "max_cycles": 2**12}, trials=6
    )
    run(experiment, tmp_path / "serial", executor="serial")
    with make_executor(cluster) as executor:
        victim = executor.submit(process_id).result()
        os.kill(victim, signal.SIGKILL)  # one of the two that the trials are about to need
        run(experiment, tmp_path / "killed", executor=executor)
    run(experiment, tmp_path / "killed", executor="serial")  # nothing is missing, so nothing is computed
    names = sorted(file.name for file in (tmp_path / "serial").iterdir())
    assert len(names) == 7
    for name in names:
        assert (tmp_path / "serial" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes(), name
