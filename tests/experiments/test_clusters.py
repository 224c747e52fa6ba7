"""Ray and Dask behind the seam: the same results as in one process, also when workers are killed."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import experiment_policies
import pytest
from cluster_tasks import DiesOnce
from experiment_policies import die, double, threads_of_linear_algebra
from proc import children_of, listening

from fedbandit_envs import Experiment, PolicySpec, policy_names, register_policy, run
from fedbandit_envs.experiments.executors.local import make_executor
from fedbandit_envs.experiments.executors.tasks import outcomes
from fedbandit_envs.experiments.failures import FailedTrials

CLUSTERS = [pytest.param("ray", marks=pytest.mark.ray), pytest.param("dask", marks=pytest.mark.dask)]
pytestmark = pytest.mark.filterwarnings("default")  # theirs are not ours


@pytest.fixture(params=CLUSTERS)
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    module = {"dask": "distributed"}.get(request.param, request.param)
    if find_spec(module) is None:  # not importorskip: Ray must not be imported before it is told to stay on loopback
        pytest.skip(f"needs {module}")
    # Workers find the helpers of these tests as any user's modules: on the path.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "helpers"))
    before = children()
    yield request.param
    gone_within(20, before)


def children() -> set[int]:
    return children_of(os.getpid())


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
    return bool(command) and b"resource_tracker" not in command


def test_tasks_come_back_and_a_dead_worker_is_replaced(cluster: str, tmp_path: Path) -> None:
    tasks: list[tuple[Any, ...]] = [(n, 1 if n == 2 else 0, str(tmp_path)) for n in range(6)]
    with make_executor(cluster) as executor:
        assert {task[0]: out for task, out in outcomes(executor, die, tasks)} == {n: 2 * n for n in range(6)}
        assert executor.submit(threads_of_linear_algebra).result() == "1"
        with pytest.raises(ZeroDivisionError):
            raise next(outcome for _, outcome in outcomes(executor, divmod, [(1, 0)]))


def test_results_are_those_of_one_process_byte_for_byte_also_when_a_worker_is_killed_in_a_trial(
    cluster: str, tmp_path: Path
) -> None:
    if "Test-Dies-Once" not in policy_names():
        register_policy("Test-Dies-Once", DiesOnce)
    policies = ["Fed-PECD", PolicySpec("Test-Dies-Once", {"folder": str(tmp_path)})]
    arguments = {"num_agents": 8, "max_cycles": 2**12}
    experiment = Experiment("fedbandit/Synthetic-v0", policies, arguments, trials=6)
    run(experiment, tmp_path / "cluster", executor=cluster)
    assert (tmp_path / "died").exists()
    run(experiment, tmp_path / "serial", executor="serial")
    names = sorted(str(file.relative_to(tmp_path / "serial")) for file in (tmp_path / "serial").rglob("*.*"))
    names = [name for name in names if (tmp_path / "serial" / name).is_file()]
    assert len(names) == 1 + 2 * 6
    for name in names:
        assert (tmp_path / "serial" / name).read_bytes() == (tmp_path / "cluster" / name).read_bytes(), name


def test_a_failing_trial_is_reported_and_the_others_are_kept(cluster: str, tmp_path: Path) -> None:
    experiment_policies.register()
    experiment = Experiment("fedbandit/Synthetic-v0", ["Test-Fails"], {"num_agents": 2, "max_cycles": 8}, trials=6)
    with pytest.raises(FailedTrials, match="no luck") as failed:
        run(experiment, tmp_path / "cluster", executor=cluster)
    trials = {failure.trial for failure in failed.value.failures[""]}
    kept = {int(file.stem.removeprefix("trial_")) for file in (tmp_path / "cluster").glob("runs/*/trial_*.npz")}
    assert trials | kept == set(range(6))
    assert trials
    assert kept


def test_a_local_cluster_listens_on_the_loopback_interface_alone(cluster: str) -> None:
    before = children()
    with make_executor(cluster) as executor:
        executor.submit(double, 1).result()
        processes = (children() - before) | {os.getpid()}
        addresses = listening(processes)
    assert addresses
    assert all(address.startswith(("127.", "[::1]", "[::ffff:127.")) for address in addresses), addresses


@pytest.mark.parametrize(("name", "module", "extra"), [("ray", "ray", "ray"), ("dask", "distributed", "dask")])
def test_a_missing_extra_is_named(name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"expected {module} to be installed.*'\.\[{extra}\]"):
        make_executor(name)


STARTERS = {
    "ray": """
import os, sys
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")
import ray
started = ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
print(started.address_info["gcs_address"], flush=True)
sys.stdin.read()
""",
    "dask": """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
    cluster.close()
""",
}


USER = """
import sys
from experiment_policies import double
from fedbandit_envs.experiments.executors.local import make_executor
if __name__ == "__main__":
    with make_executor(sys.argv[1]) as executor:
        print(executor.workers, executor.submit(double, 4).result())
"""


def test_a_cluster_that_was_there_is_used_and_left_running(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ray asks those who connect for the token of the cluster: this one has one of its own.
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    starter, user = tmp_path / "start.py", tmp_path / "use.py"
    starter.write_text(STARTERS[cluster])
    user.write_text(USER)
    with subprocess.Popen(
        [sys.executable, starter], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        for _ in range(2):  # the second finds it as the first did
            command = [sys.executable, user, f"{cluster}:{address}"]
            told = subprocess.run(command, capture_output=True, text=True, timeout=100)
            assert told.stdout.split() == ["1", "8"], told.stderr
        assert process.poll() is None
        process.communicate()  # closes its input, which ends it
