"""Shards and drivers that are killed: the run goes on, and is the same byte for byte."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest
from histories import assert_same_history

import fedbandit_envs as fb
from fedbandit_envs import storage
from fedbandit_envs.protocol.policy import observe_for
from fedbandit_envs.shards import hosts, keeper, playing, saved
from fedbandit_envs.shards.rounds import ShardedRounds

POLICIES = ["Fed-PECD", "DisLinUCB", "Local-UCB", "coop-UCB2"]


def make(name, horizon=300, agents=9):
    return fb.make("Synthetic", num_agents=agents, max_cycles=horizon, observe=observe_for(fb.make_policy(name)))


LONG = {  # runs of some seconds
    "Fed-PECD": lambda name: make(name, 2**30, 5000),
    "DisLinUCB": lambda name: make(name, 4000),
    "Local-UCB": lambda name: make(name, 2**15, 100),
    "coop-UCB2": lambda name: make(name, 4000),
}


class Mortal(hosts.Here):
    """A shard in this process that dies of itself before some requests, as if its process had been killed."""

    deaths: ClassVar[set[int]] = set()  # the numbers of the requests, of all shards together, after which one dies
    asked = 0

    def send(self, request):
        super().send(request)
        Mortal.asked += 1
        self.dead = Mortal.asked in Mortal.deaths

    def receive(self):
        if self.dead:
            raise hosts.ShardLost("killed")
        return super().receive()


@pytest.fixture
def mortal(monkeypatch):
    monkeypatch.setitem(hosts.HOSTS, "mortal", hosts.HOSTS["serial"]._replace(make=Mortal))
    Mortal.asked, Mortal.deaths = 0, set()
    return Mortal


@pytest.mark.parametrize("saved_every", [3, 1000])
@pytest.mark.parametrize("name", POLICIES)
def test_a_shard_that_dies_before_any_of_its_answers_is_made_anew(name, saved_every, mortal, monkeypatch):
    monkeypatch.setattr(keeper, "_SAVED_EVERY", saved_every)
    env = make(name, 120)
    expected = fb.play(env, fb.make_policy(name), seed=2, network="ring")
    how = {"seed": 2, "network": "ring", "shards": 2, "executor": "mortal"}
    fb.play(env, fb.make_policy(name), **how)
    number, mortal.asked = mortal.asked, 0
    moments = random.Random(0).sample(range(1, number), min(3, number // 2))
    mortal.deaths = {*moments, moments[0] + 1}  # one of them dies again while it catches up
    assert_same_history(expected, fb.play(env, fb.make_policy(name), **how))
    assert mortal.asked > number


def test_a_shard_is_saved_before_its_journal_grows_large(mortal, monkeypatch):
    monkeypatch.setattr(keeper, "_SAVED_AFTER_BYTES", 4000)
    sizes, ask = [], keeper.Keeper.ask

    def watched(self, *request):
        ask(self, *request)
        sizes.append((self._journal.size - self._snapshot, self._snapshot))

    monkeypatch.setattr(keeper.Keeper, "ask", watched)
    expected = fb.play(make("DisLinUCB", 120), fb.make_policy("DisLinUCB"), seed=2)
    mortal.deaths = {150}
    how = {"seed": 2, "shards": 2, "executor": "mortal"}
    assert_same_history(expected, fb.play(make("DisLinUCB", 120), fb.make_policy("DisLinUCB"), **how))
    assert len({snapshot for _, snapshot in sizes}) > 1
    largest = 3000  # bytes of the largest request, which may come after the limit was just not reached
    assert all(since <= max(4000, 2 * snapshot) + largest for since, snapshot in sizes)


def test_an_actor_is_lost_with_its_machine_and_then_ended():
    from types import SimpleNamespace

    names = ("RayActorError", "ObjectLostError", "NodeDiedError", "OutOfMemoryError")
    for name in names:
        errors = SimpleNamespace(**{other: type(other, (Exception,), {}) for other in names})
        killed = []

        def get(answer, errors=errors, name=name):
            raise getattr(errors, name)("gone")

        host = hosts.RayActor.__new__(hosts.RayActor)
        host._ray, host.actor, host._answer = (
            SimpleNamespace(exceptions=errors, get=get, kill=killed.append),
            "it",
            None,
        )
        with pytest.raises(hosts.ShardLost, match="gone"):
            host.receive()
        assert killed == ["it"]


def test_a_shard_uses_one_thread_whoever_started_its_process():
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    class Asked:
        def answer(self, verb):
            return threads()

    with threadpool_limits(2, user_api="blas"):
        if 2 not in threads():
            pytest.skip("needs a BLAS with threads")
        found, error = hosts.unpacked(hosts.answered(Asked(), hosts.packed(("look",))))
    assert (found, error) == ({1}, None)


def test_a_shard_that_always_dies_ends_the_run(mortal):
    mortal.deaths = set(range(30, 10**6))
    with pytest.raises(hosts.ShardLost, match="died 5 times in a row"):
        fb.play(make("DisLinUCB"), fb.make_policy("DisLinUCB"), seed=2, shards=2, executor="mortal")


def killed_run(name, moments, horizon=300):
    """A run over two processes, one of which is killed at each moment, a number of turns; and how many died."""
    env, rng = make(name, horizon), random.Random(0)
    with ShardedRounds(env, fb.make_policy(name), shards=2, network="ring") as rounds:
        rounds.start(seed=2)
        turns = 0
        while not rounds.done:
            if turns in moments:
                host = rng.choice(rounds._part.keepers)._host
                os.kill(host.process.pid, signal.SIGKILL)
            rounds.go_on()
            turns += 1
        return rounds.history(), sum(one.losses for one in rounds._part.keepers)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Fed-PECD", "DisLinUCB"])
def test_processes_that_are_killed_between_turns(name):
    expected = fb.play(make(name), fb.make_policy(name), seed=2)
    history, losses = killed_run(name, {3, 9})
    assert losses == 2
    assert_same_history(expected, history)


@pytest.mark.study
@pytest.mark.parametrize("name", POLICIES)
def test_processes_that_are_killed_at_ten_random_moments(name):
    """A thread kills a shard of each run, at a moment that is uniform over the measured length of a run."""
    env = LONG[name](name)
    expected, rng, killed, length = fb.play(env, fb.make_policy(name), seed=2, network="ring"), random.Random(1), 0, 0.0
    while killed < 10:
        with ShardedRounds(env, fb.make_policy(name), shards=2, network="ring") as rounds:
            rounds.start(seed=2)
            over, moment = threading.Event(), rng.uniform(0.0, length)

            def kill(rounds=rounds, over=over, moment=moment):
                if not over.wait(moment):
                    os.kill(rng.choice(rounds._part.keepers)._host.process.pid, signal.SIGKILL)

            killer, begin = threading.Thread(target=kill), time.monotonic()
            if length:
                killer.start()
            rounds.finish()
            if length:
                over.set()
                killer.join()
            else:  # the first run is only timed
                length = time.monotonic() - begin
            assert_same_history(expected, rounds.history())
            killed += sum(one.losses for one in rounds._part.keepers)
    print(f"{name}: {killed} shards killed within runs of {length:.1f} s")


@pytest.mark.parametrize("shards", [{}, {"shards": 2, "executor": "serial"}])
@pytest.mark.parametrize("name", ["Fed-PECD", "DisLinUCB", "coop-UCB2"])
def test_a_run_with_a_state_goes_on_from_it_and_leaves_nothing(name, shards, tmp_path, monkeypatch):
    env, policy, how = make(name, 60), fb.make_policy(name), {"seed": 2, "network": "ring"}
    expected = fb.play(env, policy, **how)
    with monkeypatch.context() as patch:
        patch.setattr(playing, "_SAVED_EVERY", 0.0)
        save, saves = storage.save, []

        def stop(path, tree):
            save(path, tree)
            saves.append(path)
            if len(saves) == 5:
                raise KeyboardInterrupt

        patch.setattr(saved.storage, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            fb.play(env, policy, **how, **shards, state=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]
    assert_same_history(expected, fb.play(env, policy, **how, **shards, state=tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_state_of_another_run_is_refused(tmp_path):
    env = make("Fed-PECD", 1000)
    with ShardedRounds(env, fb.make_policy("Fed-PECD"), shards=2, executor="serial") as rounds:
        rounds.start(seed=2)
        rounds.advance()
        storage.save(tmp_path / "run.npz", rounds.snapshot())
    how = {"shards": 2, "executor": "serial", "state": tmp_path}
    for other, words in (
        ({"faults": fb.Faults(dropout=0.5)}, "the network and the faults must be the same"),
        ({"seed": 3}, "one of seed 2"),
        ({"seed": 2, "shards": 3}, "expected the blocks"),
        ({"policy": fb.make_policy("Fed-PECD", delta=0.2)}, "one of another run"),
    ):
        with pytest.raises(ValueError, match=words):
            fb.play(env, **({"policy": fb.make_policy("Fed-PECD")} | how | other))


def test_faults_decide_which_run_a_state_belongs_to(tmp_path):
    env, policy = make("Fed-PECD", 1000), fb.make_policy("Fed-PECD")
    settings = [
        {},
        {"dropout": 0.5},
        {"quorum": 0.1},
        {"schedule": {3: [1, 2]}},
        {"schedule": {3: [1, 4]}},
        {"attackers": fb.Attackers("sign-flip")},
        {"attackers": fb.Attackers("sign-flip", start=5)},
    ]
    states = []
    for setting in settings:
        rounds = fb.CommunicationRounds(env, policy, faults=fb.Faults(**setting))
        rounds.start(seed=2)
        states.append(rounds.snapshot())
    assert len({state["run"] for state in states}) == len(settings)
    again = fb.CommunicationRounds(env, policy, faults=fb.Faults(schedule={3: {2, 1}, 5: ()}))
    again.restore(states[3])
    with pytest.raises(ValueError, match="one of another run"):
        again.restore(states[4])
    fb.CommunicationRounds(env, policy).restore(states[0])  # no faults, and none of them


def test_a_folder_is_used_by_one_run_at_a_time_and_what_dead_ones_left_is_removed(tmp_path):
    part, foreign = tmp_path / ".run.npz.0123456789abcdef.part", tmp_path / "notes.txt"
    for file in (part, foreign):
        file.write_bytes(b"half of a")
    env, policy = make("Uniform", 50), fb.make_policy("Uniform")
    with saved.SavedRun(tmp_path) as mine:
        assert not part.exists()
        part.write_bytes(b"half of a")
        with pytest.raises(ValueError, match="that no other run is using"):
            fb.play(env, policy, seed=2, state=tmp_path)
        assert part.exists()  # it may be that of the other run
        mine.save({"steps": 1})
        mine.remove()
    assert list(tmp_path.iterdir()) == [foreign]
    fb.play(env, policy, seed=2, state=tmp_path)
    assert list(tmp_path.iterdir()) == [foreign]


def test_a_file_is_no_folder_for_a_state(tmp_path):
    (tmp_path / "file").write_text("something")
    for path in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(ValueError, match="state: expected a folder, got a file"):
            fb.play(make("Uniform", 50), fb.make_policy("Uniform"), seed=2, state=path)


DRIVER = """
import sys
import numpy as np
import fedbandit_envs as fb
from fedbandit_envs.shards import playing
playing._SAVED_EVERY = 0.0
folder, name, agents, horizon = sys.argv[1:]
env = fb.make("Synthetic", num_agents=int(agents), max_cycles=int(horizon))
history = fb.play(env, fb.make_policy(name), seed=2, network="ring", shards=2, state=folder + "/state")
np.savez(folder + "/history.npz", pulls=history.tables[-1], steps=history.steps, per_round=history.ledger.per_round)
"""


def drive(folder, name, size, moment=None):
    """Start a driver and, if a moment is given, kill it so long after its own first save, if it is not over by then.

    Returns the seconds from its first save to its end.
    """
    state = folder / "state" / "run.npz"

    def written():
        return state.stat().st_mtime_ns if state.exists() else 0

    before = written()
    process = subprocess.Popen([sys.executable, "-c", DRIVER, str(folder), name, *map(str, size)])
    while process.poll() is None and written() in (0, before):  # the file is there from the second driver on
        time.sleep(0.002)
    begin = time.monotonic()
    if moment is not None:
        time.sleep(moment)
        process.kill()
    process.wait()
    return time.monotonic() - begin


def drivers_killed(folder, name, size, kills):
    """Kill so many drivers at work, one after the other, let the last one finish, and compare what they leave."""
    import numpy as np

    agents, horizon = size
    env = fb.make("Synthetic", num_agents=agents, max_cycles=horizon)
    alone = fb.play(env, fb.make_policy(name), seed=2, network="ring")

    def check(where):
        assert not list((where / "state").iterdir())  # also what was half-written at the moment of a kill
        with np.load(where / "history.npz") as found:
            np.testing.assert_array_equal(found["pulls"], alone.tables[-1])
            np.testing.assert_array_equal(found["steps"], alone.steps)
            np.testing.assert_array_equal(found["per_round"], alone.ledger.per_round)
        (where / "history.npz").unlink()

    length, rng, steps = drive(folder, name, size), random.Random(2), [0]
    check(folder)
    while len(steps) <= kills:
        drive(folder, name, size, rng.uniform(0.0, length / 5))  # five to ten of them are spread over a run
        if (folder / "history.npz").exists():  # that one came to its end first
            check(folder)
        else:
            steps.append(int(storage.load(folder / "state" / "run.npz")["steps"]))
    assert len(set(steps)) > len(steps) // 2  # most drivers were killed elsewhere than the one before
    drive(folder, name, size)
    check(folder)
    print(f"{name}: {kills} drivers killed within runs of {length:.1f} s, after {steps[1:]} steps")


@pytest.mark.slow
def test_a_driver_that_is_killed_resumes_and_its_shards_end(tmp_path):
    drivers_killed(tmp_path, "DisLinUCB", (9, 400), kills=1)
    assert not _shards_that_live()


@pytest.mark.study
@pytest.mark.parametrize(
    ("name", "size"), [("Fed-PECD", (3000, 2**30)), ("DisLinUCB", (9, 4000)), ("coop-UCB2", (9, 3000))]
)
def test_drivers_that_are_killed_at_ten_random_moments(name, size, tmp_path):
    """One policy of phases, one that decides step by step, one that talks to peers."""
    drivers_killed(tmp_path, name, size, kills=10)
    assert not _shards_that_live()


def _shards_that_live():
    deadline = time.monotonic() + 5
    while (left := _orphans()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _orphans():
    """The processes of shards that belong to nobody any more: their parent is gone."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes()
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if b"fedbandit_envs.shards.process" in words and parent == "1":
                found.append(folder.name)
    return found
