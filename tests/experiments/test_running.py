"""What running experiments guarantees: the same bytes, a state that can be resumed, and no failure hidden."""

import errno
import hashlib
import io
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import experiment_policies
import numpy as np
import pytest
from experiment_policies import small

import fedbandit_envs as fb
from fedbandit_envs import storage
from fedbandit_envs.experiments.executors.local import Serial
from fedbandit_envs.experiments.folder import FolderError, read_folder
from fedbandit_envs.experiments.running import FailedTrials, Interrupted, run_all


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("trial_*.npz"))}


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


def test_results_have_the_same_bytes_for_any_workers_and_any_order_of_completion(tmp_path: Path) -> None:
    for name in ("serial", "processes:1", "processes:2", "processes:4"):
        fb.run(small(trials=8), tmp_path / name, name)
    fb.run(small(trials=8), tmp_path / "backwards", Backwards())
    first = hashes(tmp_path / "serial")
    assert len(first) == 8
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


def test_audited_trials_carry_their_claims() -> None:
    result = fb.run(small(trials=3, audited=2), executor="serial")
    claims = result.claims("Fed-PE")
    assert {len(rows) for rows in claims.values()} == {2}
    assert all(row["holds"] for row in claims["scalars sent, both ways"])


# --- folders ------------------------------------------------------------------------------------------------------


def test_finished_trials_are_not_computed_again(tmp_path: Path) -> None:
    fb.run(small(trials=3), tmp_path, "serial")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("trial_*")}
    result = fb.run(small(trials=6), tmp_path, "serial")
    assert result.trials == [0, 1, 2, 3, 4, 5]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_resolved_experiment_lies_beside_the_results(tmp_path: Path) -> None:
    fb.run(small(), tmp_path, "serial")
    assert fb.Experiment.read(tmp_path / "experiment.toml") == small().resolved()
    experiment, records = read_folder(tmp_path)
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


def test_results_are_read_where_the_policy_is_not_installed(tmp_path: Path) -> None:
    fb.run(small(), tmp_path, "serial")
    ran = subprocess.run([sys.executable, "-c", READER, tmp_path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "Test-One-Arm" in ran.stdout
    assert (tmp_path / "regret.png").stat().st_size > 1000


def test_results_of_another_version_are_read_but_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("experiment", "folder"):
        monkeypatch.setattr(f"fedbandit_envs.experiments.{module}.version", lambda _: "0.0.7")
    fb.run(small(), tmp_path, "serial")
    monkeypatch.undo()
    assert fb.Result.load(tmp_path).trials == [0, 1, 2, 3, 4]
    with pytest.raises(FolderError, match=r"another experiment \(with version = '0.0.7'; without version = "):
        fb.run(small(), tmp_path, "serial")


def test_an_experiment_that_was_changed_by_hand_is_refused_by_readers(tmp_path: Path) -> None:
    fb.run(small(), tmp_path, "serial")
    file = tmp_path / "experiment.toml"
    written = file.read_text()
    file.write_text(written.replace("seed = 3", "seed = 4"))
    with pytest.raises(FolderError, match="got trial 0 of another experiment"):
        fb.Result.load(tmp_path)
    file.write_text("".join(line for line in written.splitlines(keepends=True) if not line.startswith("version")))
    with pytest.raises(FolderError, match=r"experiment\.toml: expected the key 'version', got environment"):
        fb.Result.load(tmp_path)


@pytest.mark.parametrize("keep", [0, 10, 500, -1])
def test_a_torn_file_is_named_and_refused_and_force_computes_it_again(tmp_path: Path, keep: int) -> None:
    fb.run(small(), tmp_path, "serial")
    undisturbed = hashes(tmp_path)
    victim = tmp_path / "trial_000002.npz"
    victim.write_bytes(victim.read_bytes()[:keep])
    with pytest.raises(FolderError, match=r"trial_000002\.npz.*torn.*--force"):
        fb.run(small(), tmp_path, "serial")
    fb.run(small(), tmp_path, "serial", force=True)
    assert hashes(tmp_path) == undisturbed


def test_a_file_of_another_experiment_is_named_and_refused(tmp_path: Path) -> None:
    fb.run(small(), tmp_path / "mine", "serial")
    fb.run(small(seed=9), tmp_path / "other", "serial")
    (tmp_path / "other" / "trial_000001.npz").replace(tmp_path / "mine" / "trial_000001.npz")
    with pytest.raises(FolderError, match=r"trial_000001\.npz.*another experiment.*--force"):
        fb.run(small(), tmp_path / "mine", "serial")


def test_a_folder_of_another_experiment_is_refused_with_what_differs(tmp_path: Path) -> None:
    fb.run(small(), tmp_path, "serial")
    with pytest.raises(FolderError, match=r"another experiment \(with seed = 3; without seed = 9\); choose another"):
        fb.run(small(seed=9), tmp_path, "serial")


def test_a_trial_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    fb.run(small(), tmp_path, "serial")
    (tmp_path / "trial_000001.npz").replace(tmp_path / "trial_000004.npz")
    with pytest.raises(FolderError, match=r"trial_000004\.npz"):
        fb.run(small(), tmp_path, "serial")


def test_the_folder_of_another_experiment_is_refused(tmp_path: Path) -> None:
    fb.run(small(), tmp_path, "serial")
    with pytest.raises(FolderError, match=r"experiment\.toml: expected a file of this experiment, got another"):
        fb.run(small(seed=9), tmp_path, "serial")
    assert fb.run(small(seed=9), tmp_path, "serial", force=True).experiment.seed == 9


def test_a_full_disk_is_a_clear_error_and_finished_trials_are_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, room = storage.save, [2]

    def save_until_full(path: Path, tree: Any) -> None:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= 1
        save(path, tree)

    monkeypatch.setattr(storage, "save", save_until_full)
    with pytest.raises(FolderError, match="expected a folder that can be written, got 'No space left on device'"):
        fb.run(small(), tmp_path, "serial")
    assert len(hashes(tmp_path)) == 2
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
    with pytest.raises(FailedTrials) as caught:
        fb.run(experiment, tmp_path, executor)
    failed = {failure.trial for failure in caught.value.failures[""]}
    assert 0 < len(failed) < 8
    assert caught.value.results[""].trials == sorted(set(range(8)) - failed)
    for trial in failed:
        what = "TwoArgumentsError: no luck; while Test-Fails played"
        assert f"trial {trial} (seed {experiment.trial_seed(trial)}) failed: {what}" in str(caught.value)
        assert f"fedbandit run {tmp_path}/experiment.toml --trial {trial} --debug" in str(caught.value)
    assert "in agents" in caught.value.failures[""][0].trace


def test_failing_trials_are_tried_again_by_the_next_run(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(FailedTrials) as caught:
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
    assert len(hashes(tmp_path)) == 3
    assert len(fb.run(small(), tmp_path, "serial").trials) == 5


def test_a_policy_typed_into_a_function_is_refused_by_processes() -> None:
    from fedbandit_envs.protocol.registry import policy_names, register_policy

    class Local(experiment_policies.OneArm):
        pass

    if "Test-Local" not in policy_names():
        register_policy("Test-Local", Local)
    with pytest.raises(ValueError, match="expected one that worker processes can import, got 'Test-Local'"):
        fb.run(small(policies=["Test-Local"]), executor="processes:2")
    assert fb.run(small(policies=["Test-Local"]), executor="serial").trials == [0, 1, 2, 3, 4]


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
        while run.poll() is None and len(list((tmp_path / "out").glob("trial_*"))) < wanted:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.02))
        run.send_signal(signal.SIGKILL)
        run.communicate()
        for path, written in finished.items():
            assert path.stat().st_mtime_ns == written, f"{path.name} was computed again"
        finished = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("trial_*")}
    subprocess.run(command, check=True, timeout=120)
    for path, written in finished.items():
        assert path.stat().st_mtime_ns == written
    fb.run(experiment, tmp_path / "undisturbed", "serial")
    assert hashes(tmp_path / "out") == hashes(tmp_path / "undisturbed")


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
