"""Runs that are saved, and drivers that are killed: the same call goes on, and the run is the same byte for byte."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from histories import assert_same_history

import fedbandit_envs as fb
from fedbandit_envs import storage
from fedbandit_envs.protocol.policy import observe_for
from fedbandit_envs.shards import playing, saved
from fedbandit_envs.shards.rounds import ShardedRounds


def make(name, horizon=300, agents=9):
    return fb.make("Synthetic", num_agents=agents, max_cycles=horizon, observe=observe_for(fb.make_policy(name)))


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


@pytest.mark.parametrize("aggregation", ["mean", "huber"])  # spread over the shards, and taken over by the driver
def test_a_run_with_a_spread_server_goes_on_from_each_of_its_states(aggregation, small_groups):
    env, policy = make("Fed-PECD", 200), fb.make_policy("Fed-PECD", aggregation=aggregation)
    expected, states = fb.play(env, policy, seed=2), []
    with ShardedRounds(env, policy, shards=2, executor="serial") as rounds:
        rounds.start(seed=2)
        while not rounds.done:
            states.append(rounds.snapshot())
            rounds.go_on()
        for state in states:
            rounds.restore(state)
            rounds.finish()
            assert_same_history(expected, rounds.history())
    assert [state["carrier"]["spread"] for state in states] == [
        aggregation == "mean" or not at for at in range(len(states))
    ]


def test_a_recorded_run_goes_on_unrecorded_over_shards(small_groups):
    env, policy = make("Fed-PECD", 200), fb.make_policy("Fed-PECD")
    how = {"shards": 2, "executor": "serial"}
    with ShardedRounds(env, policy, record=True, **how) as one, ShardedRounds(env, policy, **how) as two:
        one.start(seed=2)
        for _ in range(5):
            one.go_on()
        two.restore(one.snapshot())
        two.finish()
        assert_same_history(fb.play(env, policy, seed=2), two.history())


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

    Returns the seconds from its first save to its end, and the processes of its shards just before it was killed.
    """
    state = folder / "state" / "run.npz"

    def written():
        return state.stat().st_mtime_ns if state.exists() else 0

    before = written()
    process = subprocess.Popen([sys.executable, "-c", DRIVER, str(folder), name, *map(str, size)])
    while process.poll() is None and written() in (0, before):  # the file is there from the second driver on
        time.sleep(0.002)
    begin, shards = time.monotonic(), []
    if moment is not None:
        time.sleep(moment)
        shards = shards_of(process.pid)
        process.kill()
    process.wait()
    return time.monotonic() - begin, shards


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

    (length, _), rng, steps, orphans = drive(folder, name, size), random.Random(2), [0], []
    check(folder)
    while len(steps) <= kills:
        _, shards = drive(folder, name, size, rng.uniform(0.0, length / 5))  # five to ten of them are spread over a run
        orphans += shards
        if (folder / "history.npz").exists():  # that one came to its end first
            check(folder)
        else:
            steps.append(int(storage.load(folder / "state" / "run.npz")["steps"]))
    assert len(set(steps)) > len(steps) // 2  # most drivers were killed elsewhere than the one before
    assert orphans  # or the next line says nothing
    assert not that_live(orphans)
    drive(folder, name, size)
    check(folder)
    print(f"{name}: {kills} drivers killed within runs of {length:.1f} s, after {steps[1:]} steps")


@pytest.mark.slow
def test_a_driver_that_is_killed_resumes_and_its_shards_end(tmp_path):
    drivers_killed(tmp_path, "DisLinUCB", (9, 400), kills=1)


@pytest.mark.study
@pytest.mark.parametrize(
    ("name", "size"), [("Fed-PECD", (3000, 2**30)), ("DisLinUCB", (9, 4000)), ("coop-UCB2", (9, 3000))]
)
def test_drivers_that_are_killed_at_ten_random_moments(name, size, tmp_path):
    """One policy of phases, one that decides step by step, one that talks to peers."""
    drivers_killed(tmp_path, name, size, kills=10)


def shards_of(driver):
    """The processes of the shards of a driver."""
    return [number for number, parent in shard_processes().items() if parent == driver]


def that_live(processes):
    """Those of these processes of shards that live on for five seconds."""
    deadline = time.monotonic() + 5
    while (left := shard_processes().keys() & set(processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def shard_processes():
    """All processes that hold shards, with their parents."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes()  # empty once it has ended
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if b"fedbandit_envs.shards.process" in words:
                found[int(folder.name)] = int(parent)
    return found
