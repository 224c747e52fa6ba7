"""Agents that decide step by step: asked without a turn for each step, and the same run bit for bit."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from compiling import COMPILED_OR_NOT, NEEDS_NUMBA
from histories import assert_same_history
from pettingzoo.utils import BaseParallelWrapper

import fedbandit_envs as fb
from fedbandit_agents import from_callable
from fedbandit_envs.rounds.stepping import play_on
from fedbandit_envs.testing.check import check_policy

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


LAWS = {  # the laws of rewards: each is drawn in another way
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
class PolicyOf(fb.Policy):
    """Agents of a class that a test wrote; the last ones can be looked at afterwards."""

    side: Any

    def agents(self, view):
        PolicyOf.last = self.side(view)
        return PolicyOf.last


class Wandering(fb.StepAgents):
    """Plays the arm after the one that was paid least so far."""

    def __init__(self, view):
        super().__init__(view)
        self.sums, self.steps = np.zeros(view.psi.shape[:2]), 0

    def choose(self):
        self.steps += 1
        return (self.sums.argmin(axis=1) + 1) % self.sums.shape[1]

    def learn(self, outcome):
        self.sums[np.arange(len(outcome.arm)), outcome.arm] += outcome.pulls * 0.5 + outcome.rewards


def turn_by_turn(env, policy, seed):
    rounds = fb.CommunicationRounds(env, policy)
    rounds.reset(seed=seed)
    while not rounds.done:
        rounds.advance()
    return rounds.history()


def richest(observations):
    """A model that plays the arm of the largest mean reward; observations end with these, and the time."""
    return observations[:, -5:-1].argmax(axis=1)


STEP_BY_STEP = {
    "Local-UCB": lambda: fb.make_policy("Local-UCB"),
    "compiled": lambda: fb.make_policy("Local-UCB", compiled=True),
    "KK-UCB": lambda: fb.make_policy("KK-UCB"),
    "DisLinUCB": lambda: fb.make_policy("DisLinUCB"),
    "a model": lambda: from_callable(richest),
    "a new one": lambda: PolicyOf(Wandering),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=NEEDS_NUMBA if name == "compiled" else []) for name in STEP_BY_STEP]
)
@pytest.mark.parametrize("horizon", [1, 2, 3, 60, 600])  # checkpoints are 6 steps apart at the most
def test_playing_on_alone_is_the_same_run_as_turn_by_turn(name, law, horizon):
    env, policy = LAWS[law](horizon), STEP_BY_STEP[name]()
    alone = fb.play(env, policy, seed=5)
    assert alone.pulls[-1].sum() == 3 * horizon
    assert_same_history(alone, turn_by_turn(env, policy, 5))
    assert_same_history(alone, fb.play(env, policy, seed=5, record=True))
    assert_same_history(alone, fb.play(env, policy, seed=5, blocks=[[2, 0], [1]]))


@pytest.mark.parametrize("ahead", [1, 7, 256])
@pytest.mark.parametrize("name", ["Local-UCB", "a new one"])
def test_playing_on_for_long_is_the_same_run_however_many_steps_are_drawn_together(name, ahead, monkeypatch):
    monkeypatch.setattr("fedbandit_envs.envs.step_noise._STEPS_PER_DRAW", ahead)
    env, policy, stretches = make(5000), STEP_BY_STEP[name](), []
    upcoming = fb.HiddenContextBandit.upcoming
    monkeypatch.setattr(
        fb.HiddenContextBandit, "upcoming", lambda env, most: (stretches.append(most), upcoming(env, most))[1]
    )
    alone = fb.play(env, policy, seed=2)
    assert max(stretches) > 40
    assert_same_history(alone, turn_by_turn(env, policy, 2))


def test_the_state_at_the_end_is_that_of_turns():
    policy, states = PolicyOf(Wandering), []
    for play in (fb.play, turn_by_turn):
        play(make(300), policy, seed=1)
        states.append(PolicyOf.last.snapshot())
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
    assert_same_history(second.history(), fb.play(env, policy, seed=3))


def test_only_steps_that_end_at_a_checkpoint_are_turns(monkeypatch):
    turns, advance = [], fb.CommunicationRounds.advance
    monkeypatch.setattr(fb.CommunicationRounds, "advance", lambda rounds: (turns.append(1), advance(rounds)))
    history = fb.play(make(5000), PolicyOf(Wandering), seed=0)
    assert len(turns) == len(history.steps) < 200


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

    monkeypatch.setattr(fb.HiddenContextBandit, "upcoming", refused)
    assert fb.play(env(300), PolicyOf(side), seed=0, **keywords).pulls[-1].sum() == 900
    with pytest.raises(AssertionError, match="played on alone"):
        fb.play(make(300), PolicyOf(Wandering), seed=0)


def test_rounds_that_override_the_turn_are_played_in_turns():
    seen = []

    class Counted(fb.CommunicationRounds):
        def advance(self):
            seen.append(1)
            super().advance()

    rounds = Counted(make(300), PolicyOf(Wandering))
    rounds.reset(seed=0)
    seen.clear()
    rounds.finish()
    assert len(seen) == 300


def _with_own(init, verb, noting):
    def changed(side, view):
        init(side, view)
        setattr(side, verb, noting(getattr(side, verb)))

    return changed


@pytest.mark.parametrize("play", [fb.play, turn_by_turn])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("arms", "message"),
    [
        (np.array([1, 4, 1]), r"arms from 0 to 3, got 1 to 4; arms count from 0"),
        (np.array([2, 3, 4]), r"arms from 0 to 3, got 2 to 4; arms count from 0"),
        (np.array([1, -1, 1]), r"arms from 0 to 3, got -1 to 1; arms count from 0"),
        (np.array([0, 1]), r"an array of 3 whole numbers, the arm of each agent, got int64 of shape \(2,\)"),
        (np.array([[0], [1], [2]]), r"an array of 3 whole numbers, the arm of each agent, got int64 of shape \(3, 1\)"),
        (np.array([0.0, 1.0, 2.0]), r"an array of 3 whole numbers, the arm of each agent, got float64"),
        ([0, 1, 2], r"an array of 3 whole numbers, the arm of each agent, got \[0, 1, 2\]; return an argmax"),
        (2, r"an array of 3 whole numbers, the arm of each agent, got 2; return an argmax"),
        (None, r"an array of 3 whole numbers, the arm of each agent, got None; return an argmax"),
    ],
)
def test_arms_that_are_none_are_refused_alone_and_in_turns(play, law, arms, message):
    class Wrong(Wandering):
        def choose(self):
            right = super().choose()
            return arms if self.steps == 305 else np.zeros_like(right)  # in the middle of a stretch

    with pytest.raises(fb.ProtocolError, match="Wrong.choose: expected " + message):
        play(LAWS[law](600), PolicyOf(Wrong), seed=0)


def test_a_run_that_wrong_arms_have_spoilt_does_not_go_on():
    class Wrong(Wandering):
        def choose(self):
            right = super().choose()
            return right + 4 * (self.steps == 303)

    rounds = fb.CommunicationRounds(make(600), PolicyOf(Wrong))
    rounds.reset(seed=0)
    with pytest.raises(fb.ProtocolError):
        rounds.finish()
    for go_on in (rounds.finish, rounds.advance, rounds.snapshot, rounds.history):
        with pytest.raises(ValueError, match="whose agents failed; call reset"):
            go_on()


@pytest.mark.parametrize("where", ["choose", "learn"])
@pytest.mark.parametrize("kind", [ConnectionError, KeyboardInterrupt])
def test_a_run_goes_on_where_its_agents_failed(where, kind):
    class Failing(Wandering):
        failures = 1

        def fail(self, now):
            if now == where and self.steps == 3000 and Failing.failures:
                Failing.failures = 0
                raise kind

        def choose(self):
            self.fail("choose")
            return super().choose()

        def learn(self, *given):
            super().learn(*given)
            self.fail("learn")

    whole = fb.play(make(5000), PolicyOf(Wandering), seed=0)
    rounds = fb.CommunicationRounds(make(5000), PolicyOf(Failing))
    rounds.reset(seed=0)
    with pytest.raises(kind):
        rounds.finish()
    rounds.finish()
    assert_same_history(rounds.history(), whole)


def test_playing_on_takes_a_number_of_steps():
    env = make(30)
    env.reset(seed=0)
    for most in (0, -1, 2.5):
        with pytest.raises(ValueError, match="most: expected a whole number of at least 1"):
            play_on(env, Wandering(env.view()), most, lambda arms, costs: None)
    played = []
    play_on(env, Wandering(env.view()), 100, lambda arms, costs: played.append(arms))
    assert played[0].shape == (30, 3)
    assert not env.agents


def test_a_forgotten_init_is_named():
    class Forgetful(Wandering):
        def __init__(self, view):
            self.sums, self.steps = np.zeros(view.psi.shape[:2]), 0

    with pytest.raises(AttributeError, match=r"Forgetful.view: .*call super\(\).__init__\(view\) first in __init__"):
        fb.play(make(40), PolicyOf(Forgetful), seed=0)
    with pytest.raises(AttributeError, match="'Wandering' object has no attribute 'other'"):
        Wandering(make_view()).other  # noqa: B018


def make_view():
    env = make()
    env.reset(seed=0)
    return env.view()


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.uint64])
def test_arms_may_be_whole_numbers_of_any_size(kind):
    class Small(Wandering):
        def choose(self):
            return super().choose().astype(kind)

    assert_same_history(fb.play(make(500), PolicyOf(Small), seed=0), fb.play(make(500), PolicyOf(Wandering), seed=0))


def test_an_error_of_the_policy_is_its_own():
    class Failing(Wandering):
        def learn(self, outcome):
            if self.steps == 305:
                raise IndexError("mine")

    with pytest.raises(IndexError, match="mine"):
        fb.play(make(600), PolicyOf(Failing), seed=0)


@pytest.mark.parametrize("play", [fb.play, turn_by_turn])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_agents_are_given_can_only_be_read(play, which):
    class Changing(Wandering):
        def learn(self, *given):
            if self.steps == 305:
                given[0][which][0] = 0

    with pytest.raises(ValueError, match="read-only"):
        play(make(600), PolicyOf(Changing), seed=0)


def test_agents_may_change_the_array_that_they_returned():
    class Reusing(Wandering):
        def __init__(self, view):
            super().__init__(view)
            self.own = np.zeros(len(view.agents), dtype=np.int64)

        def choose(self):
            self.own[:] = super().choose()
            return self.own

        def learn(self, outcome):
            self.own[:] = 0
            super().learn(outcome)

    assert_same_history(fb.play(make(500), PolicyOf(Reusing), seed=0), fb.play(make(500), PolicyOf(Wandering), seed=0))


@pytest.mark.parametrize("where", ["choose", "learn"])
def test_checkpoints_see_the_arms_left_at_their_time(where):
    class Dropping(Wandering):
        """Drops its last arm after 1, 2 and 305 steps."""

        def drop(self, now):
            if now == where:
                left = 4 - sum(self.steps >= step for step in (1, 2, 305))
                self.active = np.broadcast_to(np.arange(4) < left, (3, 4)).copy()

        def choose(self):
            arms = super().choose()
            self.drop("choose")
            return arms

        def learn(self, *given):
            super().learn(*given)
            self.drop("learn")

    history = fb.play(make(600), PolicyOf(Dropping), seed=0)
    assert_same_history(history, turn_by_turn(make(600), PolicyOf(Dropping), 0))
    assert_same_history(history, fb.play(make(600), PolicyOf(Dropping), seed=0, record=True))
    assert history.active[-1, 0] == 1


def test_check_policy_judges_them():
    assert "no fault" in check_policy(PolicyOf(Wandering))

    class Mixing(Wandering):
        def choose(self):
            return np.full(len(self.sums), self.sums.sum(axis=0).argmin())

    with pytest.raises(fb.testing.PolicyFault, match="mixes rows"):
        check_policy(PolicyOf(Mixing))


@pytest.mark.parametrize("compiled", COMPILED_OR_NOT)
def test_an_arm_that_could_not_be_pulled_is_tried_again(compiled):
    env = make()
    env.reset(seed=0)
    side = fb.make_policy("Local-UCB", compiled=compiled).agents(env.view())
    np.testing.assert_array_equal(side.choose(), [0, 0, 0])
    side.learn(fb.Outcome(np.zeros(3, dtype=np.int64), np.array([1, 0, 1]), np.array([1.0, 0.0, 3.0])))
    np.testing.assert_array_equal(side.choose(), [1, 0, 1])  # agent 1 has pulled nothing
    side.learn(fb.Outcome(np.array([1, 0, 1]), np.ones(3, dtype=np.int64), np.array([1.0, 2.0, 3.0])))
    np.testing.assert_array_equal(side.choose(), [2, 1, 2])
