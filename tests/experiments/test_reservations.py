"""Processes that share a folder compute each trial once, and take over what dead ones have left."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from experiment_policies import small

import fedbandit_envs as fb
from fedbandit_envs.experiments import reservations
from fedbandit_envs.experiments.reservations import Reservations

SHARER = """
import sys
import fedbandit_envs as fb
from experiment_policies import small
out, marks, seconds, trials, executor = sys.argv[1:]
policies = [
    {"name": "Test-Marks", "label": str(arm), "parameters": {"arm": arm, "folder": marks, "seconds": float(seconds)}}
    for arm in (0, 1)
]
if __name__ == "__main__":
    print(*fb.run(small(trials=int(trials), policies=policies), out, executor).notes, sep="\\n")
"""


class Shared:
    """A folder in which several processes run one experiment of two policies."""

    def __init__(self, path: Path):
        self.out, self.marks = path / "out", path / "marks"
        self.marks.mkdir()
        (path / "sharer.py").write_text(SHARER)
        self.script = path / "sharer.py"

    def start(self, seconds: float, trials: int, executor: str = "serial", before: Any = ()) -> subprocess.Popen[str]:
        command = [*before, sys.executable, self.script, self.out, self.marks, str(seconds), str(trials), executor]
        path = os.environ | {"PYTHONPATH": ":".join(sys.path)}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=path)

    def marked(self, what: str) -> list[str]:
        return [path.name.split()[1] for path in self.marks.glob(f"{what} *")]


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    told = []
    for process in processes:
        out, errors = process.communicate(timeout=100)
        assert process.returncode == 0, errors
        told.append(out)
    return told


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


@pytest.mark.slow
def test_eight_processes_that_share_a_folder_compute_each_trial_once(shared: Shared) -> None:
    executors = ["serial"] * 7 + ["processes:2"]
    told = finish([shared.start(0.02, 20, executor) for executor in executors])
    begun = shared.marked("begun")
    assert len(set(begun)) == 20
    assert len(begun) == 2 * 20
    computed = [int(line.split(", ")[1].split()[0]) for out in told for line in out.splitlines() if "computed" in line]
    assert sum(computed) == 2 * 20
    assert fb.Result.load(shared.out).trials == list(range(20))
    assert not list(shared.out.rglob("*reserved*"))
    assert not list(shared.out.rglob("*.part"))


def in_namespaces() -> list[str]:
    """The beginning of a command that runs in a space of process ids of its own, where ids begin with 1 again."""
    for command in (["unshare"], ["unshare", "--user", "--map-root-user"]):
        command = [*command, "--pid", "--fork", "--mount-proc"]
        if shutil.which("unshare") and not subprocess.run([*command, "true"], capture_output=True).returncode:
            return command
    pytest.skip("this system lets nobody make a space of process ids")


@pytest.mark.slow
def test_containers_with_equal_process_ids_that_share_a_folder_compute_each_trial_once(shared: Shared) -> None:
    finish([shared.start(0.02, 12, before=in_namespaces()) for _ in range(6)])
    assert len(shared.marked("begun")) == 2 * 12
    assert fb.Result.load(shared.out).trials == list(range(12))


@pytest.mark.slow
def test_the_trial_of_a_killed_process_is_taken_over(shared: Shared) -> None:
    victim = shared.start(30, 1)
    while not shared.marked("begun"):
        assert victim.poll() is None
        time.sleep(0.01)
    assert list(shared.out.rglob("*reserved-0"))
    helper = shared.start(0.0, 1)  # another experiment to it: other seconds
    finish([helper])
    waiting = shared.start(30, 1)  # waits for the victim, which is alive
    time.sleep(2)
    assert waiting.poll() is None
    assert len(shared.marked("begun")) == 1 + 2
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    for _ in range(500):
        if len(shared.marked("begun")) > 3:
            break
        time.sleep(0.01)
    assert len(shared.marked("begun")) == 4
    taken = list(shared.out.rglob("*reserved-1"))  # the reservations of both policies
    assert [json.loads(file.read_text())["pid"] for file in taken] == [waiting.pid] * 2
    waiting.kill()
    waiting.communicate()


@pytest.mark.slow
def test_what_a_killed_process_left_is_finished_and_tidied_by_the_next_one(shared: Shared) -> None:
    killed = shared.start(0.05, 6, "processes:2")
    while len(shared.marked("done")) < 3:
        assert killed.poll() is None
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    finished = len(list(shared.out.glob("runs/*/trial_*.npz")))
    (told,) = finish([shared.start(0.05, 6)])
    assert fb.Result.load(shared.out).trials == list(range(6))
    computed = [int(line.split(", ")[1].split()[0]) for line in told.splitlines()]
    assert sum(computed) == 12 - finished
    assert not list(shared.out.rglob("*reserved*"))


# --- who is alive -------------------------------------------------------------------------------------------------


def written(target: Path, **changes: Any) -> Path:
    """A reservation by this process, with changes."""
    file = target.with_name(f"{target.name}.reserved-0")
    file.write_text(json.dumps(reservations._this_process() | changes))
    return file


def test_a_living_process_keeps_its_reservation_and_a_dead_one_does_not(tmp_path: Path) -> None:
    target = tmp_path / "trial"
    dead = subprocess.Popen(["true"])
    dead.wait()
    with Reservations() as mine:
        written(target)
        assert not mine.take(target)
        written(target, started="1")  # the id of this process belonged to another one before
        assert mine.take(target)
        assert len(list(tmp_path.iterdir())) == 2
        mine.give_back(target)
        written(target, pid=dead.pid)
        assert mine.take(target)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, ""], ids=["another machine", "not written to its end"])
def test_a_process_that_can_not_be_looked_up_is_dead_after_minutes_of_silence(
    tmp_path: Path, content: str | None
) -> None:
    target = tmp_path / "trial"
    file = written(target, machine="elsewhere", pid=1)
    if content is not None:
        file.write_text(content)
    with Reservations() as mine:
        assert not mine.take(target)
        silent = time.time() - reservations.SILENCE
        os.utime(file, (silent + 60, silent + 60))
        assert not mine.take(target)
        os.utime(file, (silent - 1, silent - 1))
        assert mine.take(target)


def test_a_reservation_never_appears_without_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed at any moment leaves none that says nothing, for which others would wait minutes."""
    seen = []
    link = os.link

    def watched(own: Path, file: Path) -> None:
        assert not file.exists()
        link(own, file)
        seen.append(json.loads(file.read_text())["pid"])

    monkeypatch.setattr(os, "link", watched)
    with Reservations() as mine:
        assert mine.take(tmp_path / "trial")
        assert [path.name for path in tmp_path.iterdir()] == ["trial.reserved-0"]
    assert seen == [os.getpid()]


def test_a_file_system_without_links_has_reservations_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    with Reservations() as mine, Reservations() as others:
        assert mine.take(tmp_path / "trial")
        assert not others.take(tmp_path / "trial")


def test_reservations_are_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "HEARTBEAT", 0.01)
    with Reservations() as mine:
        assert mine.take(tmp_path / "trial")
        (file,) = tmp_path.iterdir()
        os.utime(file, (0, 0))
        for _ in range(500):
            if file.stat().st_mtime > 0:
                break
            time.sleep(0.01)
        assert time.time() - file.stat().st_mtime < 60


class Busy:
    """Reservations of a target that other processes have: at each look `change` says who."""

    def __init__(self, change: bool, looks: int):
        self.change, self.looks, self.seen = change, looks, 0

    def take(self, target: Path) -> bool:
        written(target, host=str(self.seen * self.change))
        self.seen += 1
        return self.seen > self.looks


def test_many_who_use_a_folder_one_after_another_are_waited_for_and_one_who_hangs_is_not(tmp_path: Path) -> None:
    row: Any = Busy(change=True, looks=5)
    reservations.wait_for(row, tmp_path / "folder", seconds=0.05)  # pauses of 0.02, 0.04, ... s: 0.6 s in all
    assert row.seen == 6
    hanging: Any = Busy(change=False, looks=5)
    with pytest.raises(TimeoutError, match=r"expected others to be done with it within 0\.05 s"):
        reservations.wait_for(hanging, tmp_path / "folder", seconds=0.05)


def test_who_waits_long_looks_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(reservations.time, "sleep", pauses.append)
    busy: Any = Busy(change=True, looks=9)
    reservations.wait_for(busy, tmp_path / "folder")
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]


def test_only_one_of_many_takes_over(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    everybody = [Reservations() for _ in range(16)]
    for attempt in range(20):
        target = tmp_path / str(attempt)
        written(target, started="1")
        with ThreadPoolExecutor(16) as pool:
            taken = list(pool.map(lambda one, target=target: one.take(target), everybody))
        assert taken.count(True) == 1


def test_half_written_files_of_long_ago_are_removed(tmp_path: Path) -> None:
    fb.run(small(), tmp_path, "serial")
    (folder,) = tmp_path.glob("runs/Fed-PE-*")
    old, new = (folder / f".trial_000000.npz.{name}.part" for name in ("old", "new"))
    for file in (old, new, tmp_path / ".experiment.toml.old.part"):
        file.touch()
        if file is not new:
            os.utime(file, (0, 0))
    fb.run(small(), tmp_path, "serial")
    assert not old.exists()
    assert new.exists()  # perhaps somebody writes it at this moment
    assert not (tmp_path / ".experiment.toml.old.part").exists()


def test_temporary_files_of_equal_process_ids_do_not_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from fedbandit_envs import storage

    monkeypatch.setattr(os, "getpid", lambda: 7)
    contents = [bytes([number]) * 200_000 for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda content: storage.write_whole(tmp_path / "file", content), contents))
    assert (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_reservation_that_was_given_back_and_taken_anew_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sees a dead process; before it acts, another takes over, gives back, and a third reserves the target anew."""
    target = tmp_path / "trial"
    written(target, started="1")
    slow, quick, third = Reservations(), Reservations(), Reservations()
    is_alive = reservations._is_alive

    def meanwhile(file: Path) -> bool:
        alive = is_alive(file)
        monkeypatch.setattr(reservations, "_is_alive", is_alive)
        assert not alive
        assert quick.take(target)
        quick.give_back(target)
        assert third.take(target)
        return alive

    monkeypatch.setattr(reservations, "_is_alive", meanwhile)
    assert not slow.take(target)
    assert [file.name for file in tmp_path.iterdir()] == ["trial.reserved-0"]
    assert not quick.take(target)
    third.give_back(target)
    assert slow.take(target)


def test_nobody_takes_over_while_another_gives_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "trial"
    written(target, started="1")
    first, others = Reservations(), [Reservations(), Reservations()]
    assert first.take(target)
    unlink, taken = Path.unlink, []

    def watched(file: Path, missing_ok: bool = False) -> None:
        unlink(file, missing_ok)
        if "reserved" in file.name and not file.name.endswith(".part"):
            monkeypatch.setattr(Path, "unlink", unlink)
            taken.extend(one.take(target) for one in others)
            monkeypatch.setattr(Path, "unlink", watched)

    monkeypatch.setattr(Path, "unlink", watched)
    first.give_back(target)
    assert taken.count(True) == 1
    monkeypatch.setattr(Path, "unlink", unlink)
    assert [one.take(target) for one in others] == [False, False]
