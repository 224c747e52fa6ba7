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
from fedbandit_envs.protocol.policy import observe_for
from fedbandit_envs.shards import hosts, keeper, playing
from fedbandit_envs.shards.rounds import ShardedRounds

POLICIES = ["Fed-PECD", "DisLinUCB", "Local-UCB", "coop-UCB2"]


def make(name, horizon=300):
    return fb.make("Synthetic", num_agents=9, max_cycles=horizon, observe=observe_for(fb.make_policy(name)))


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
    """A thread kills a shard ten times, whatever the driver is doing."""
    env = make(name, 2**15 if name in ("Fed-PECD", "Local-UCB") else 3000)
    expected = fb.play(env, fb.make_policy(name), seed=2, network="ring")
    rng, killed = random.Random(1), 0
    while killed < 10:
        with ShardedRounds(env, fb.make_policy(name), shards=2, network="ring") as rounds:
            rounds.start(seed=2)
            over = threading.Event()

            def kill(rounds=rounds, over=over):
                while not over.wait(rng.uniform(0.0, 0.5)):
                    host = rng.choice(rounds._part.keepers)._host
                    if host is not None and host.process.poll() is None:
                        os.kill(host.process.pid, signal.SIGKILL)
                        return

            killer = threading.Thread(target=kill)
            killer.start()
            rounds.finish()
            over.set()
            killer.join()
            assert_same_history(expected, rounds.history())
            killed += sum(one.losses for one in rounds._part.keepers)


@pytest.mark.parametrize("shards", [{}, {"shards": 2, "executor": "serial"}])
@pytest.mark.parametrize("name", ["Fed-PECD", "DisLinUCB", "coop-UCB2"])
def test_a_run_with_a_state_goes_on_from_it_and_leaves_nothing(name, shards, tmp_path, monkeypatch):
    env, policy, how = make(name, 60), fb.make_policy(name), {"seed": 2, "network": "ring"}
    expected = fb.play(env, policy, **how)
    with monkeypatch.context() as patch:
        patch.setattr(playing, "_SAVED_EVERY", 0.0)
        save, saves = playing.storage.save, []

        def stop(path, tree):
            save(path, tree)
            saves.append(path)
            if len(saves) == 5:
                raise KeyboardInterrupt

        patch.setattr(playing.storage, "save", stop)
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
        playing.storage.save(tmp_path / "run.npz", rounds.snapshot())
    how = {"shards": 2, "executor": "serial", "state": tmp_path}
    for other, words in (
        ({"seed": 3}, "one of seed 2"),
        ({"seed": 2, "shards": 3}, "expected the blocks"),
        ({"policy": fb.make_policy("Fed-PECD", delta=0.2)}, "one of another run"),
    ):
        with pytest.raises(ValueError, match=words):
            fb.play(env, **({"policy": fb.make_policy("Fed-PECD")} | how | other))


DRIVER = """
import sys
import numpy as np
import fedbandit_envs as fb
from fedbandit_envs.shards import playing
playing._SAVED_EVERY = 0.0
folder, horizon = sys.argv[1:]
env = fb.make("Synthetic", num_agents=9, max_cycles=int(horizon))
history = fb.play(env, fb.make_policy("DisLinUCB"), seed=2, shards=2, state=folder)
np.savez(folder + "/history.npz", pulls=history.pulls, per_round=history.ledger.per_round)
"""


def drive(folder, horizon, moment=None):
    """Start a driver in a process of its own and, if a moment is given, kill it so long after its first save."""
    process = subprocess.Popen([sys.executable, "-c", DRIVER, str(folder), str(horizon)])
    if moment is not None:
        while not (folder / "run.npz").exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(moment)
        process.kill()
    process.wait()


def drivers_killed(folder, kills, horizon):
    """Kill drivers one after the other, let the last one finish, and compare; returns how many were killed."""
    import numpy as np

    rng, killed = random.Random(2), 0
    for _ in range(kills):
        drive(folder, horizon, rng.uniform(0.0, 0.4))
        killed += not (folder / "history.npz").exists()
    drive(folder, horizon)
    expected = fb.play(make("DisLinUCB", horizon), fb.make_policy("DisLinUCB"), seed=2)
    with np.load(folder / "history.npz") as found:
        np.testing.assert_array_equal(found["pulls"], expected.pulls)
        np.testing.assert_array_equal(found["per_round"], expected.ledger.per_round)
    return killed


@pytest.mark.slow
def test_a_driver_that_is_killed_resumes_and_its_shards_end(tmp_path):
    assert drivers_killed(tmp_path, 1, horizon=600) == 1
    assert not _shards_that_live()


@pytest.mark.study
def test_drivers_that_are_killed_at_ten_random_moments(tmp_path):
    assert drivers_killed(tmp_path, 10, horizon=8000) == 10


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
