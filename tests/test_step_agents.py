"""Agents that decide step by step: asked without a turn for each step, and the same run bit for bit."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from compiling import COMPILED_OR_NOT, NEEDS_NUMBA
from pettingzoo.utils import BaseParallelWrapper

import fedbandit_envs as fb
from fedbandit_agents import from_callable
from fedbandit_envs.testing import check_policy

SMALL = {"num_agents": 3, "num_arms": 4, "dim": 2}
THETA = np.random.default_rng(0).uniform(0, 1, (4, 2))
PEOPLE = fb.Discrete(np.random.default_rng(1).uniform(0.2, 0.6, (3, 3, 2)), np.full((3, 3), 1 / 3))


def make(horizon=20, **keywords):
    return fb.make("fedbandit/Synthetic-v0", max_cycles=horizon, **{**SMALL, **keywords})


def shared_accounts(horizon, **keywords):
    arguments = {"theta": THETA, "contexts": PEOPLE, "feature_map": fb.Identity(4, 2), **keywords}
    return fb.make("fedbandit/Linear-v0", max_cycles=horizon, **arguments)


def curved(contexts):
    return np.stack([contexts, contexts**2, np.sin(contexts), 1 - contexts], axis=-2)


LAWS = {  # of rewards: each is drawn in another way
    "one noise for all": make,
    "resampled Gaussian": lambda horizon: make(horizon, context="resampled", context_std=0.3),
    "resampled discrete": lambda horizon: shared_accounts(horizon, context="resampled"),
    "Bernoulli": lambda horizon: shared_accounts(horizon, rewards="bernoulli"),
    "no closed form": lambda horizon: shared_accounts(
        horizon,
        contexts=fb.Gaussian(PEOPLE.support[:, 0], std=0.1),
        feature_map=fb.FeatureFunction(curved, 4, 2, 2),
        context="resampled",
    ),
}


@dataclass(frozen=True)
class Told(fb.Policy):
    """Agents of a class that a test wrote; the last ones can be looked at afterwards."""

    side: Any

    def agents(self, view):
        Told.last = self.side(view)
        return Told.last


class Wandering(fb.StepAgents):
    """Plays the arm after the one that was paid least so far."""

    def __init__(self, view):
        super().__init__(view)
        self.sums, self.steps = np.zeros(view.psi.shape[:2]), 0

    def choose(self):
        self.steps += 1
        return (self.sums.argmin(axis=1) + 1) % self.sums.shape[1]

    def learn(self, arm, pulls, rewards):
        self.sums[np.arange(len(arm)), arm] += pulls * 0.5 + rewards


def turn_by_turn(env, policy, seed):
    rounds = fb.CommunicationRounds(env, policy)
    rounds.reset(seed=seed)
    while not rounds.done:
        rounds.advance()
    return rounds.history()


def assert_same_run(one, two):
    for name in ("steps", "pulls", "active"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name, strict=True)
    np.testing.assert_array_equal(one.ledger.per_agent, two.ledger.per_agent)


def richest(observations):
    """A model that plays the arm of the largest mean reward; observations end with these, and the time."""
    return observations[:, -5:-1].argmax(axis=1)


STEP_BY_STEP = {
    "Local-UCB": lambda: fb.make_policy("Local-UCB"),
    "compiled": lambda: fb.make_policy("Local-UCB", compiled=True),
    "KK-UCB": lambda: fb.make_policy("KK-UCB"),
    "DisLinUCB": lambda: fb.make_policy("DisLinUCB"),
    "a model": lambda: from_callable(richest),
    "a new one": lambda: Told(Wandering),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=NEEDS_NUMBA if name == "compiled" else []) for name in STEP_BY_STEP]
)
@pytest.mark.parametrize("horizon", [1, 2, 3, 60, 600])  # 256 steps are drawn together
def test_playing_on_alone_is_the_same_run_as_turn_by_turn(name, law, horizon):
    env, policy = LAWS[law](horizon), STEP_BY_STEP[name]()
    alone = fb.play(env, policy, seed=5)
    assert alone.pulls[-1].sum() == 3 * horizon
    assert_same_run(alone, turn_by_turn(env, policy, 5))
    assert_same_run(alone, fb.play(env, policy, seed=5, record=True))
    assert_same_run(alone, fb.play(env, policy, seed=5, blocks=[[2, 0], [1]]))


def test_with_many_agents_few_steps_are_drawn_together_and_the_run_is_the_same():
    env, policy = make(20, num_agents=40_000, num_arms=2), fb.make_policy("Local-UCB")  # three steps at once
    assert_same_run(fb.play(env, policy, seed=2), turn_by_turn(env, policy, 2))


def test_the_state_at_the_end_is_that_of_turns():
    policy, states = Told(Wandering), []
    for play in (fb.play, turn_by_turn):
        play(make(300), policy, seed=1)
        states.append(Told.last.snapshot())
    np.testing.assert_equal(*states)
    assert states[0]["steps"] == 300


def test_a_run_that_was_stopped_can_be_finished():
    env, policy = make(300), fb.make_policy("Local-UCB")
    first = fb.CommunicationRounds(env, policy)
    first.reset(seed=3)
    for _ in range(37):
        first.advance()
    second = fb.CommunicationRounds(make(300), policy)
    second.restore(first.snapshot())
    second.finish()
    assert second.done
    assert_same_run(second.history(), fb.play(env, policy, seed=3))


def test_only_the_last_step_is_a_turn(monkeypatch):
    turns, advance = [], fb.CommunicationRounds.advance
    monkeypatch.setattr(fb.CommunicationRounds, "advance", lambda rounds: (turns.append(1), advance(rounds)))
    fb.play(make(300), Told(Wandering), seed=0)
    assert len(turns) == 1


class Passing(BaseParallelWrapper):
    def pull(self, plan):
        return self.env.pull(plan)


class Doubling(fb.HiddenContextBandit):
    def pull(self, plan):
        feedback = super().pull(plan)
        return fb.Feedback(plan.explore, feedback.explored_sums, plan.arm, feedback.played, 2 * feedback.played_sums)


class Planning(Wandering):
    def plan(self, down, remaining):
        return super().plan(down, remaining)


class Reporting(Wandering):
    def report(self, feedback):
        return super().report(feedback)


@pytest.mark.parametrize(
    ("env", "side", "keywords"),
    [
        (make, Planning, {}),
        (make, Reporting, {}),
        (make, Wandering, {"record": True}),
        (make, Wandering, {"stepwise": True}),
        (make, Wandering, {"blocks": [[2, 1], [0]]}),
        (lambda horizon: Passing(make(horizon)), Wandering, {}),
        (lambda horizon: fb.RecordRegret(make(horizon)), Wandering, {}),
        (lambda horizon: make(horizon, render_mode="ansi"), Wandering, {}),
        (lambda horizon: Doubling(fb.Synthetic(**SMALL), max_cycles=horizon), Wandering, {}),
    ],
    ids=["plan", "report", "record", "stepwise", "blocks", "wrapper", "our wrapper", "pictures", "own pull"],
)
def test_what_somebody_else_must_see_is_played_in_turns(env, side, keywords, monkeypatch):
    def refused(*_):
        raise AssertionError("played on alone")

    monkeypatch.setattr(fb.HiddenContextBandit, "follow", refused)
    assert fb.play(env(30), Told(side), seed=0, **keywords).pulls[-1].sum() == 90
    with pytest.raises(AssertionError, match="played on alone"):
        fb.play(make(30), Told(Wandering), seed=0)


@pytest.mark.parametrize("play", [fb.play, turn_by_turn])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("arms", "message"),
    [
        (np.array([0, 4, 1]), r"arms from 0 to 3, got 0 to 4; arms count from 0"),
        (np.array([0, 3, 4]), r"arms from 0 to 3, got 0 to 4; arms count from 0"),
        (np.array([0, -1, 1]), r"arms from 0 to 3, got -1 to 1; arms count from 0"),
        (np.array([0, 1]), r"an array of shape \(3,\), got ndarray of shape \(2,\)"),
        (np.array([[0], [1], [2]]), r"an array of shape \(3,\), got ndarray of shape \(3, 1\)"),
        (np.array([0.0, 1.0, 2.0]), r"whole numbers, got float64"),
        ([0, 1, 2], r"an array of shape \(3,\), got list"),
        (2, r"an array of shape \(3,\), got int"),
        (None, r"an array of shape \(3,\), got NoneType"),
    ],
)
def test_arms_that_are_none_are_refused_in_the_words_of_a_turn(play, law, arms, message):
    class Wrong(Wandering):
        def choose(self):
            right = super().choose()
            return arms if self.steps == 7 else np.zeros_like(right)

    with pytest.raises(fb.ProtocolError, match="plan.arm: expected " + message):
        play(LAWS[law](40), Told(Wrong), seed=0)


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.uint64])
def test_arms_may_be_whole_numbers_of_any_size(kind):
    class Small(Wandering):
        def choose(self):
            return super().choose().astype(kind)

    assert_same_run(fb.play(make(50), Told(Small), seed=0), fb.play(make(50), Told(Wandering), seed=0))


def test_an_error_of_the_policy_is_its_own():
    class Failing(Wandering):
        def learn(self, arm, pulls, rewards):
            raise IndexError("mine")

    with pytest.raises(IndexError, match="mine"):
        fb.play(make(40), Told(Failing), seed=0)


@pytest.mark.parametrize("play", [fb.play, turn_by_turn])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_agents_are_given_can_only_be_read(play, which):
    class Changing(Wandering):
        def learn(self, *given):
            given[which][0] = 0

    with pytest.raises(ValueError, match="read-only"):
        play(make(40), Told(Changing), seed=0)


def test_agents_may_change_the_array_that_they_returned():
    class Reusing(Wandering):
        def __init__(self, view):
            super().__init__(view)
            self.own = np.zeros(len(view.agents), dtype=np.int64)

        def choose(self):
            self.own[:] = super().choose()
            return self.own

        def learn(self, arm, pulls, rewards):
            self.own[:] = 0
            super().learn(arm, pulls, rewards)

    assert_same_run(fb.play(make(50), Told(Reusing), seed=0), fb.play(make(50), Told(Wandering), seed=0))


def test_checkpoints_see_the_arms_left_at_their_time():
    class Dropping(Wandering):
        """Drops its last arm every 50 steps, until one is left."""

        def choose(self):
            self.steps += 1
            if self.steps % 50 == 0:
                self.active = np.broadcast_to(np.arange(4) < max(1, 4 - self.steps // 50), (3, 4)).copy()
            return np.zeros(3, dtype=np.int64)

    history = fb.play(make(400), Told(Dropping), seed=0)
    assert_same_run(history, turn_by_turn(make(400), Told(Dropping), 0))
    assert sorted(set(history.active.ravel().tolist())) == [1, 2, 3, 4]


def test_check_policy_judges_them():
    assert "no fault" in check_policy(Told(Wandering))

    class Mixing(Wandering):
        def choose(self):
            return np.full(len(self.sums), self.sums.sum(axis=0).argmin())

    with pytest.raises(fb.testing.PolicyFault, match="mixes rows"):
        check_policy(Told(Mixing))


@pytest.mark.parametrize("compiled", COMPILED_OR_NOT)
def test_an_arm_that_could_not_be_pulled_is_tried_again(compiled):
    env = make()
    env.reset(seed=0)
    side = fb.make_policy("Local-UCB", compiled=compiled).agents(env.view())
    np.testing.assert_array_equal(side.choose(), [0, 0, 0])
    side.learn(np.zeros(3, dtype=np.int64), np.array([1, 0, 1]), np.array([1.0, 0.0, 3.0]))
    np.testing.assert_array_equal(side.choose(), [1, 0, 1])  # agent 1 has pulled nothing
    side.learn(np.array([1, 0, 1]), np.ones(3, dtype=np.int64), np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(side.choose(), [2, 1, 2])
