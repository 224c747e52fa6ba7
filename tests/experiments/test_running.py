"""What running experiments guarantees: the same bytes, a state that can be resumed, and no failure hidden."""

import errno
import hashlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import experiment_policies
import numpy as np
import pytest
from experiment_policies import small

import fedbandit_envs as fb
from fedbandit_envs import storage
from fedbandit_envs.cli.main import main
from fedbandit_envs.experiments import trials
from fedbandit_envs.experiments.executors.local import Serial
from fedbandit_envs.experiments.folder import FolderError
from fedbandit_envs.experiments.reading import read_folder
from fedbandit_envs.experiments.running import Interrupted, run_all


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("runs/*/trial_*.npz"))


def hashes(folder: Path) -> dict[str, str]:
    """The content of every run, without the member that says where it was computed."""
    found = {}
    for file in files(folder):
        with zipfile.ZipFile(file) as members:
            content = [(name, members.read(name)) for name in members.namelist() if name != "provenance.npy"]
        found[str(file.relative_to(folder))] = hashlib.sha256(repr(content).encode()).hexdigest()
    return found


class Backwards:
    """Finishes the tasks it has in the reverse of their order, in threads."""

    workers = 4

    def __enter__(self) -> "Backwards":
        self._pool, self._submitted = ThreadPoolExecutor(8), 0
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def submit(self, fn: Any, /, *args: Any) -> Future[Any]:
        self._submitted += 1
        return self._pool.submit(self._late, 0.1 / self._submitted, fn, *args)

    @staticmethod
    def _late(delay: float, fn: Any, *args: Any) -> Any:
        result = fn(*args)
        time.sleep(delay)
        return result


@pytest.mark.slow
def test_results_have_the_same_bytes_for_any_workers_and_any_order_of_completion(tmp_path: Path) -> None:
    for name in ("serial", "processes:1", "processes:2", "processes:4"):
        fb.run(small(trials=8), tmp_path / name, name)
    fb.run(small(trials=8), tmp_path / "backwards", Backwards())
    first = hashes(tmp_path / "serial")
    assert len(first) == 3 * 8
    for folder in tmp_path.iterdir():
        assert hashes(folder) == first, folder.name


def test_all_policies_of_a_trial_face_the_same_instance() -> None:
    policies = [{"name": "Test-One-Arm", "label": str(n), "parameters": {"pieces": n}} for n in (1, 4)]
    result = fb.run(small(policies=policies), executor="serial")
    np.testing.assert_array_equal(result.agents("1"), result.agents("4"))


def test_trials_differ_and_depend_on_the_seed() -> None:
    first, other = (fb.run(small(seed=seed), executor="serial").final("Test-One-Arm") for seed in (1, 2))
    assert len({*first, *other}) == 10


def test_a_trial_alone_is_the_trial_of_the_whole() -> None:
    whole = fb.run(small(), executor="serial")
    alone = fb.run(small(), executor="serial", only=[3])
    assert alone.trials == [3]
    assert alone.final("Fed-PE")[0] == whole.final("Fed-PE")[3]


@pytest.mark.parametrize("id", sorted(set(fb.environment_ids()) - {"fedbandit/File-v0"}))  # no file is there
def test_a_trial_does_not_depend_on_the_trials_before_it_in_the_same_process(id: str) -> None:
    """Trials share their environments, so this fails if a reset leaves anything of the episode before."""
    policies = ["OrchExplore"] if id == "fedbandit/SharedArms-v0" else ["Uniform", "Oracle"]
    experiment = fb.Experiment(id, policies, {"max_cycles": 40}, trials=2)

    def record_of(result: fb.Result) -> bytes:
        return repr([(name, run["curves"].tolist()) for name, run in result.records[-1]["policies"].items()]).encode()

    assert record_of(fb.run(experiment, executor="serial")) == record_of(
        fb.run(experiment, executor="serial", only=[1])
    )


def test_trials_of_a_process_share_the_environments_of_their_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(id: str, **keywords: Any) -> Any:
        made.append(keywords["observe"])
        return fb.make(id, **keywords)

    monkeypatch.setattr("fedbandit_envs.experiments.trials.make", counted)
    arguments = {"num_agents": 3, "max_cycles": 20}
    experiment = fb.Experiment("fedbandit/Synthetic-v0", ["Fed-PECD", "Fed-PE", "Uniform"], arguments, trials=5)
    fb.run(experiment, executor="serial")
    assert sorted(made) == ["context", "distribution"]
    fb.run(experiment.with_argument("num_agents", 4), executor="serial")  # another experiment has its own
    assert sorted(made) == ["context", "context", "distribution", "distribution"]


def test_a_run_leaves_no_environment_in_memory() -> None:
    fb.run(small(trials=1), executor="serial")
    assert trials._environment.cache_info().currsize == 0


def test_audited_trials_carry_their_claims() -> None:
    result = fb.run(small(trials=3, audited=2), executor="serial")
    claims = result.claims("Fed-PE")
    assert {len(rows) for rows in claims.values()} == {2}
    assert all(row["holds"] for row in claims["scalars sent, both ways"])


# --- folders ------------------------------------------------------------------------------------------------------


def test_finished_trials_are_not_computed_again(tmp_path: Path) -> None:
    fb.run(small(trials=3), tmp_path, "serial")
    before = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    assert len(before) == 9
    result = fb.run(small(trials=6), tmp_path, "serial")
    assert result.trials == [0, 1, 2, 3, 4, 5]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_resolved_experiment_lies_beside_the_results(tmp_path: Path) -> None:
    fb.run(small(), tmp_path, "serial")
    assert fb.Experiment.read(tmp_path / "experiment.toml") == small().resolved()
    experiment, records, *_ = read_folder(tmp_path)
    assert (len(records), experiment.trials) == (5, 5)


READER = """
import sys
import fedbandit_envs as fb
from fedbandit_envs.cli.main import main
folder = sys.argv[1]
assert "Test-One-Arm" not in fb.policy_names()
assert fb.Result.load(folder).labels == ["Test-One-Arm", "Fed-PECD", "Fed-PE"]
assert main(["compare", folder]) == 0
assert main(["plot", folder, "--format", "png"]) == 0
"""


@pytest.mark.slow
def test_results_are_read_where_the_policy_is_not_installed(tmp_path: Path) -> None:
    fb.run(small(), tmp_path, "serial")
    ran = subprocess.run([sys.executable, "-c", READER, tmp_path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "Test-One-Arm" in ran.stdout
    assert (tmp_path / "regret.png").stat().st_size > 1000


@pytest.mark.parametrize("keep", [0, 10, 500, -1])
def test_a_torn_file_is_named_and_refused_and_force_computes_it_again(tmp_path: Path, keep: int) -> None:
    fb.run(small(), tmp_path, "serial")
    undisturbed = hashes(tmp_path)
    (victim,) = tmp_path.glob("runs/Fed-PE-*/trial_000002.npz")
    victim.write_bytes(victim.read_bytes()[:keep])
    with pytest.raises(FolderError, match=r"trial_000002\.npz.*torn.*--force"):
        fb.run(small(), tmp_path, "serial")
    fb.run(small(), tmp_path, "serial", force=True)
    assert hashes(tmp_path) == undisturbed


def test_a_full_disk_is_a_clear_error_and_finished_trials_are_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, room = storage.save, [2]

    def save_until_full(*given: Any) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(*given)

    monkeypatch.setattr(storage, "save", save_until_full)
    with pytest.raises(FolderError, match="expected a folder that can be written, got 'No space left on device'"):
        fb.run(small(), tmp_path, "serial")
    assert len(hashes(tmp_path)) == 2
    assert not list(tmp_path.rglob("*reserved*"))
    room[0] = 99
    fb.run(small(), tmp_path, "serial")
    fb.run(small(), tmp_path / "undisturbed", "serial")
    assert hashes(tmp_path) == hashes(tmp_path / "undisturbed")


def test_a_folder_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match=r"file/out: expected a folder that can be written, got 'Not a directory'"):
        fb.run(small(), tmp_path / "file" / "out", "serial")


def test_nothing_is_written_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fb.run(small(), executor="serial")
    assert list(tmp_path.iterdir()) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seconds", "shown"), [(0.45, True), (0.0, False)])
def test_a_progress_bar_with_the_time_left_is_shown_when_a_run_takes_longer_than_a_second(
    monkeypatch: pytest.MonkeyPatch, seconds: float, shown: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    policies = [{"name": "Test-Sleeps", "parameters": {"seconds": seconds}}]
    fb.run(small(trials=4, policies=policies), executor="serial")
    assert ("3/4 [" in sys.stderr.getvalue()) == shown  # type: ignore[attr-defined]


def test_no_progress_bar_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    fb.run(small(trials=3, policies=["Test-Sleeps"]), executor="serial")
    assert capsys.readouterr().err == ""


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["serial", "processes:2"])
def test_failing_trials_are_reported_and_the_others_finish(tmp_path: Path, executor: str) -> None:
    experiment = small(trials=8, policies=["Uniform", "Test-Fails"])
    with pytest.raises(fb.FailedTrials) as caught:
        fb.run(experiment, tmp_path, executor)
    failed = {failure.trial for failure in caught.value.failures[""]}
    assert 0 < len(failed) < 8
    assert caught.value.results[""].trials == sorted(set(range(8)) - failed)
    for trial in failed:
        what = "TwoArgumentsError: no luck; while Test-Fails played"
        assert f"trial {trial} (seed {experiment.trial_seed(trial)}) failed: {what}" in str(caught.value)
        # The shell does not know a policy that was registered in this process.
        assert f"alone: run(experiment, executor='serial', only=[{trial}])" in str(caught.value)
    first = caught.value.failures[""][0]
    assert first.where.startswith(experiment_policies.__file__)
    assert first.where.endswith(", in agents")
    assert f"{what}, at {first.where}" in str(caught.value)
    assert len(files(tmp_path)) == 8 + 8 - len(failed)  # the other policy has finished all of its trials


def test_failing_trials_are_tried_again_by_the_next_run(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(fb.FailedTrials) as caught:
            fb.run(small(trials=8, policies=["Test-Fails"]), tmp_path, "serial")
    assert len(caught.value.failures[""]) + len(hashes(tmp_path)) == 8


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(tmp_path: Path) -> None:
    class Interrupting(Serial):
        def submit(self, fn: Any, /, *args: Any) -> Future[Any]:
            if args[2] == 3:
                raise KeyboardInterrupt
            return super().submit(fn, *args)

    with pytest.raises(
        Interrupted, match=f"after 3 of 5 trials, which are kept in {tmp_path}; the same command goes on"
    ):
        fb.run(small(), tmp_path, Interrupting())
    assert len(hashes(tmp_path)) == 3 * 3
    assert len(fb.run(small(), tmp_path, "serial").trials) == 5


def test_a_policy_typed_into_a_function_runs_in_processes_too(tmp_path: Path) -> None:
    class Local(experiment_policies.OneArm):
        pass

    fb.register_policy("Test-Local", Local)
    for executor in ("serial", "processes:2"):
        fb.run(small(policies=["Test-Local"]), tmp_path / executor, executor)
    assert hashes(tmp_path / "serial") == hashes(tmp_path / "processes:2")


def test_a_policy_that_can_not_be_sent_to_processes_is_named() -> None:
    lock = threading.Lock()

    class Locked(experiment_policies.OneArm):
        def agents(self, view: fb.View) -> experiment_policies.OneArmAgents:
            with lock:
                return super().agents(view)

    fb.register_policy("Test-Locked", Locked)
    with pytest.raises(ValueError, match="expected one that can be sent to worker processes, got 'Test-Locked'"):
        fb.run(small(policies=["Test-Locked"]), executor="processes:2")
    assert fb.run(small(policies=["Test-Locked"]), executor="serial").trials == [0, 1, 2, 3, 4]


NOTEBOOK = """
import sys
from dataclasses import dataclass
import fedbandit_envs as fb
from fedbandit_baselines.yardsticks import Uniform

ARMS = 3

def helper(view):
    return view.constants.num_arms - ARMS

@dataclass(frozen=True)
class Mine(Uniform):
    def agents(self, view):
        assert helper(view) == 0
        return super().agents(view)

fb.register_policy("Mine", Mine)
experiment = fb.Experiment("fedbandit/Synthetic-v0", ["Mine"], {"num_agents": 3, "num_arms": ARMS, "max_cycles": 16})
print(fb.run(experiment, sys.argv[1], "processes:2").notes)
"""


@pytest.mark.slow
def test_a_policy_typed_into_a_prompt_runs_in_processes_and_other_code_of_it_runs_again(tmp_path: Path) -> None:
    def told(code: str) -> str:
        # Python that reads its program from elsewhere than a file has a __main__ without one, as a notebook has.
        ran = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=100)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert "Mine: 0 trials reused, 10 computed" in told(NOTEBOOK)
    assert "nothing was left to compute" in told(NOTEBOOK)
    assert "nothing was left to compute" in told("# A comment.\n" + NOTEBOOK)
    changed = NOTEBOOK.replace("view.constants.num_arms - ARMS", "ARMS - view.constants.num_arms")
    assert "Mine: 0 trials reused, 10 computed" in told(changed)


SCRIPT = """
import sys
import fedbandit_envs as fb
if __name__ == "__main__":
    fb.run(fb.Experiment.read(sys.argv[1]), sys.argv[2], "processes:2")
"""


def killed_runs(tmp_path: Path, kills: int) -> None:
    """Kill a run again and again; whatever is finished stays, and the end is that of an undisturbed run."""
    experiment = small(trials=12 + 3 * kills, policies=["Uniform"]).with_argument("max_cycles", 2**12)
    experiment.write(tmp_path / "experiment.toml")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, tmp_path / "script.py", tmp_path / "experiment.toml", tmp_path / "out"]
    rng = np.random.default_rng(0)
    finished: dict[Path, int] = {}
    for _ in range(kills):
        run = subprocess.Popen(command, stderr=subprocess.PIPE)
        wanted = len(finished) + int(rng.integers(0, 3))
        while run.poll() is None and len(files(tmp_path / "out")) < wanted:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.02))
        run.send_signal(signal.SIGKILL)
        run.communicate()
        for path, written in finished.items():
            assert path.stat().st_mtime_ns == written, f"{path.name} was computed again"
        finished = {path: path.stat().st_mtime_ns for path in files(tmp_path / "out")}
    subprocess.run(command, check=True, timeout=120)
    for path, written in finished.items():
        assert path.stat().st_mtime_ns == written
    fb.run(experiment, tmp_path / "undisturbed", "serial")
    assert hashes(tmp_path / "out") == hashes(tmp_path / "undisturbed")


@pytest.mark.slow
def test_a_killed_run_is_finished_by_the_next_one(tmp_path: Path) -> None:
    killed_runs(tmp_path, kills=2)


@pytest.mark.slow
def test_a_run_killed_at_ten_random_moments_is_finished_by_the_next_one(tmp_path: Path) -> None:
    killed_runs(tmp_path, kills=10)


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import sys\nfrom fedbandit_envs.experiments.executors.local import Processes\n"
        "from experiment_policies import sleep_and_tell\n"
        "if __name__ == '__main__':\n    with Processes(1) as workers:\n"
        "        workers.submit(sleep_and_tell, sys.argv[1], 60).result()\n"
    )
    (tmp_path / "pids").mkdir()
    here = str(Path(__file__).parents[1] / "helpers")
    environment = os.environ | {"PYTHONPATH": here}
    run = subprocess.Popen([sys.executable, tmp_path / "script.py", tmp_path / "pids"], env=environment)
    while not list((tmp_path / "pids").iterdir()):
        assert run.poll() is None
        time.sleep(0.01)
    (worker,) = (int(path.name) for path in (tmp_path / "pids").iterdir())
    run.kill()
    run.wait()
    for _ in range(500):
        try:
            stat = Path(f"/proc/{worker}/stat").read_text()
        except FileNotFoundError:
            return
        if ") Z " in stat:  # ended; nobody waits for it
            return
        time.sleep(0.01)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker outlived its parent")


def test_several_experiments_share_workers_and_have_folders_of_their_own(tmp_path: Path) -> None:
    results = run_all({"a": small(), "b": small(seed=8)}, tmp_path, "serial")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert results["a"].final("Fed-PE")[0] != results["b"].final("Fed-PE")[0]


@pytest.mark.parametrize("executor", ["serial", "processes:1"])
def test_a_policy_that_ends_the_program_is_a_failed_trial_for_every_executor(executor: str) -> None:
    class Leaves(experiment_policies.OneArm):
        def agents(self, view: fb.View) -> experiment_policies.OneArmAgents:
            sys.exit(3)

    fb.register_policy("Test-Leaves", Leaves)
    with pytest.raises(fb.FailedTrials, match=r"failed: SystemExit: 3; while Test-Leaves played, at .*, in agents"):
        fb.run(small(trials=1, policies=["Test-Leaves"]), executor=executor)


OWN = """
from fedbandit_baselines.yardsticks import Uniform

class Mine(Uniform):
    def agents(self, view):
        return broken(view)

def broken(view):
    return view.constants.no_such_thing
"""


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["serial", "processes:1"])
def test_a_policy_that_nobody_registered_runs_by_its_path_and_its_failures_name_its_line(
    tmp_path: Path, executor: str
) -> None:
    (tmp_path / "own_module.py").write_text(OWN)
    # As the installed command: the current folder is not on Python's path.
    command = [sys.executable, "-P", "-c", "from fedbandit_envs.cli.main import main; raise SystemExit(main())"]
    options = ["--set", "num_agents=2", "--set", "max_cycles=8", "--trials", "1", "--executor", executor]
    environment = os.environ | {"PYTHONPATH": ":".join(path for path in sys.path if path)}

    def told(policy: str, code: int) -> str:
        arguments = ["run", "--env", "Synthetic", "--policy", policy, *options, "--out", "out"]
        ran = subprocess.run([*command, *arguments], capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert ran.returncode == code, ran.stderr
        return ran.stdout + ran.stderr

    failed = told("own_module:Mine", 1)
    assert f"while Mine played, at {tmp_path}/own_module.py:9, in broken" in failed
    alone = "fedbandit run out/experiment.toml --trial 0 --executor serial --debug"
    assert f"alone: {alone}" in failed
    again = subprocess.run(
        [*command, *alone.split()[1:]], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert "in broken" in again.stderr
    assert again.returncode == 1
    (tmp_path / "own_module.py").write_text(OWN.replace("return broken(view)", "return super().agents(view)"))
    assert "Mine: 0 trials reused, 1 computed" in told("own_module:Mine", 0)
    misspelt = told("own_module:Mien", 2)
    assert "own_module:Mien: expected 'module:Class' that can be imported, got none" in misspelt
    assert "did you mean 'Mine'?" in misspelt
    assert "got none (No module named 'nowhere')" in told("nowhere:Mine", 2)


def test_a_run_alone_of_a_failed_trial_shows_the_traceback(tmp_path: Path) -> None:
    with pytest.raises(fb.FailedTrials) as caught:
        fb.run(small(trials=8, policies=["experiment_policies:FailsSometimes"]), tmp_path, "serial")
    command = str(caught.value).splitlines()[1].removeprefix("  alone: fedbandit ").split()
    with pytest.raises(fb.FailedTrials, match="no luck") as again:
        main(command)
    (note,) = again.value.__notes__  # Python shows it below the message
    assert 'raise TwoArgumentsError("no", "luck")' in note
