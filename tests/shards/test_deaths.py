"""Shards that are killed: the run goes on, and is the same byte for byte."""

import os
import random
import signal
import threading
import time
from typing import ClassVar

import pytest
from histories import assert_same_history

import fedbandit_envs as fb
from fedbandit_envs.protocol.policy import observe_for
from fedbandit_envs.shards import hosts, keeper
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


@pytest.mark.parametrize("saved_every", [3, 1000])
def test_a_shard_that_dies_with_its_part_of_the_server_is_made_anew(saved_every, mortal, monkeypatch, small_groups):
    monkeypatch.setattr(keeper, "_SAVED_EVERY", saved_every)
    env, policy = make("Fed-PECD", 400), fb.make_policy("Fed-PECD")
    expected, how = fb.play(env, policy, seed=2), {"seed": 2, "shards": 2, "executor": "mortal"}
    fb.play(env, policy, **how)
    number, mortal.asked = mortal.asked, 0
    for moment in range(1, number, 7):
        mortal.asked, mortal.deaths = 0, {moment, moment + 1}
        assert_same_history(expected, fb.play(env, policy, **how))
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


def killed_run(name, moments, agents=9):
    """A run over two processes, one of which is killed at each moment, a number of turns; and how many died."""
    env, rng = make(name, agents=agents), random.Random(0)
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
@pytest.mark.parametrize(("name", "agents"), [("Fed-PECD", 9), ("Fed-PECD", 5000), ("DisLinUCB", 9)])
def test_processes_that_are_killed_between_turns(name, agents):
    """With 5000 agents the server of Fed-PECD is spread over the shards."""
    expected = fb.play(make(name, agents=agents), fb.make_policy(name), seed=2)
    history, losses = killed_run(name, {3, 9}, agents)
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
