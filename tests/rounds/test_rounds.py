"""The loop through which every policy meets an environment: turns, blocks, the horizon, stopping and resuming."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pettingzoo
import pytest
from pettingzoo.utils import BaseParallelWrapper
from refusals import assert_refused
from scripted import ScriptedBandit, table

import fedbandit_envs as fb
from fedbandit_envs import storage
from fedbandit_envs.protocol.plans import Feedback

SMALL = {"num_agents": 3, "num_arms": 2, "dim": 2}


def make(horizon=20, **keywords):
    return fb.make("fedbandit/Synthetic-v0", max_cycles=horizon, **{**SMALL, **keywords})


@dataclass(frozen=True)
class Scripted(fb.Policy):
    """Does and says what its functions return; remembers what it got."""

    plan: Any
    report: Any = None
    answer: Any = None

    def agents(self, view):
        return ScriptedAgents(self, view)

    def server(self, view):
        return ScriptedServer(self)


class ScriptedAgents(fb.AgentSide):
    def __init__(self, policy, view):
        self.policy, self.view, self.turn = policy, view, -1

    def plan(self, down, remaining):
        self.turn += 1
        return self.policy.plan(self, down, remaining)

    def report(self, feedback):
        return self.policy.report(self, feedback) if self.policy.report else None


class ScriptedServer(fb.ServerSide):
    def __init__(self, policy):
        self.policy = policy

    def answer(self, up):
        return self.policy.answer(up) if self.policy.answer else None


def play_first(side, down, remaining):
    return fb.Plan.play(np.zeros(len(side.view.agents), dtype=np.int64), side.view.constants.num_arms)


def hello(side, feedback):
    return fb.Message("hello", {"number": side.view.agents * 10.0}, side.view.agents)


def test_the_first_plan_gets_nothing_and_later_ones_the_answer_to_the_last_report():
    got = []

    def plan(side, down, remaining):
        got.append((None if down is None else (down.kind, down["sum"].item()), remaining))
        return play_first(side, down, remaining)

    def answer(up):
        return fb.Message("sum", {"sum": up["number"].sum()})

    fb.play(make(horizon=3), Scripted(plan, hello, answer))
    assert got == [(None, 3), (("sum", 30.0), 2), (("sum", 30.0), 1)]


def test_when_nobody_speaks_the_server_is_not_asked_and_no_round_is_counted():
    def speak_at_even_turns(side, feedback):
        return hello(side, feedback) if side.turn % 2 == 0 else None

    asked = []
    policy = Scripted(play_first, speak_at_even_turns, lambda up: asked.append(up.agents.tolist()))
    history = fb.play(make(horizon=6), policy)
    assert asked == [[0, 1, 2]] * 3
    assert history.ledger.rounds == 3
    assert history.ledger.per_round[:, 0].tolist() == [1, 3, 5]


def test_an_answer_reaches_those_it_is_for_and_the_others_get_nothing():
    got = {}

    def plan(side, down, remaining):
        for agent in side.view.agents.tolist():
            got.setdefault(agent, []).append(None if down is None else down["row"].tolist())
        return play_first(side, down, remaining)

    answers = [[2, 0], [1], []]  # agents answered, not in order

    def answer(up):
        agents = np.array(answers.pop(0), dtype=np.int64)
        return fb.Message("row", {"row": agents * 100}, agents)

    fb.play(make(horizon=4), Scripted(plan, hello, answer), blocks=[[1], [2], [0]])
    assert got == {0: [None, [0], None, None], 1: [None, None, [100], None], 2: [None, [200], None, None]}


def test_rows_of_an_answer_come_in_the_order_of_the_block():
    got = []

    def plan(side, down, remaining):
        got.append(None if down is None else (down.agents.tolist(), down["row"].tolist()))
        return play_first(side, down, remaining)

    def answer(up):
        return fb.Message("row", {"row": np.array([20, 10])}, np.array([2, 1]))

    fb.play(make(horizon=2), Scripted(plan, hello, answer), blocks=[[2, 0, 1]])
    assert got == [None, ([2, 1], [20, 10])]


def test_a_round_lasts_the_longest_plan_and_the_others_go_on_with_their_arm():
    def plan(side, down, remaining):
        (agent,) = side.view.agents.tolist()
        return fb.Plan(np.array([[1, 0]]), np.array([1]), [1, 4, 2][agent])

    history = fb.play(make(horizon=4), Scripted(plan), blocks=[[0], [1], [2]], record=True)
    (only,) = history.exchanges
    assert only.plan.length == 4
    assert only.feedback.explored.tolist() == [[1, 0]] * 3
    assert only.feedback.played.tolist() == [3, 3, 3]
    assert history.pulls[-1].tolist() == [[1, 3]] * 3


def test_the_last_plan_is_cut_at_the_horizon_and_nothing_is_said_after_it():
    def plan(side, down, remaining):
        n = len(side.view.agents)
        return fb.Plan(np.full((n, 2), 3), np.zeros(n, dtype=np.int64), 8)

    history = fb.play(make(horizon=12), Scripted(plan, hello), record=True)
    first, last = history.exchanges
    assert first.feedback.pulls().tolist() == [[5, 3]] * 3
    assert last.feedback.pulls().tolist() == [[3, 1]] * 3
    assert first.up is not None
    assert last.up is None
    assert history.ledger.messages_up == 3


def test_idle_rounds_are_legal_and_bounded():
    def patience(rounds):
        def plan(side, down, remaining):
            return play_first(side, down, remaining) if side.turn % rounds == rounds - 1 else fb.Plan.wait(3, 2)

        return Scripted(plan)

    history = fb.play(make(horizon=3), patience(50))
    assert history.steps[-1] == 3
    assert history.steps.tolist() == [1, 2, 3]  # no checkpoint for a round without pulls
    assert_refused(lambda: fb.play(make(), patience(10**9)), "Scripted", "a pull within 1000 rounds, got none")
    # The limit is on rounds in a row: each pull here follows 700 rounds without one, 1400 together.
    assert fb.play(make(horizon=2), patience(701)).steps[-1] == 2
    # 1000 rounds without a pull are allowed, and one more is not.
    assert fb.play(make(horizon=1), patience(1001)).steps[-1] == 1
    assert_refused(lambda: fb.play(make(horizon=1), patience(1002)), "a pull within 1000 rounds, got none")


@pytest.mark.parametrize("stepwise", [False, True])
def test_plans_of_other_types_of_whole_numbers_are_the_same_plans(stepwise, tmp_path):
    def plan(side, down, remaining):
        n = len(side.view.agents)
        return fb.Plan(np.ones((n, 2), dtype=np.uint8), np.ones(n, dtype=np.int32), np.int64(200))

    rounds = fb.CommunicationRounds(make(horizon=500), Scripted(plan), stepwise=stepwise, record=True)
    rounds.reset(seed=0)
    rounds.advance()
    storage.save(tmp_path / "state", rounds.snapshot())
    assert type(rounds.snapshot()["steps"]) is int
    assert rounds.history().exchanges[0].feedback.pulls().tolist() == [[1, 199]] * 3


@pytest.mark.parametrize("length", [0, 1, 4])
@pytest.mark.parametrize("stepwise", [False, True])
@pytest.mark.parametrize("blocks", [None, [[0, 2], [1]]])
def test_feedback_can_only_be_read(length, stepwise, blocks):
    def plan(side, down, remaining):
        explore = np.full((len(side.view.agents), 2), 1 if length > 1 else 0)
        first, side.begun = not hasattr(side, "begun"), True
        return fb.Plan(explore, np.zeros(len(explore), dtype=np.int64), length if first else remaining)

    def report(side, feedback):
        for array in (feedback.explored, feedback.explored_sums, feedback.arm, feedback.played, feedback.played_sums):
            with pytest.raises(ValueError, match="read-only"):
                array[:] = 99

    fb.play(make(horizon=8), Scripted(plan, report), stepwise=stepwise, blocks=blocks)


def test_what_agents_do_to_their_arrays_later_does_not_change_the_record():
    def plan(side, down, remaining):
        side.explore, side.arm = np.ones((3, 2), dtype=np.int64), np.zeros(3, dtype=np.int64)
        return fb.Plan(side.explore, side.arm, 4)

    def report(side, feedback):
        side.explore[:], side.arm[:] = 77, 1

    history = fb.play(make(horizon=8), Scripted(plan, report), record=True)
    for exchange in history.exchanges:
        assert exchange.plan.explore.tolist() == exchange.feedback.explored.tolist() == [[1, 1]] * 3
        assert exchange.plan.arm.tolist() == exchange.feedback.arm.tolist() == [0, 0, 0]
        assert abs(exchange.feedback.explored_sums).max() < 50
        assert exchange.feedback.pulls().tolist() == [[3, 1]] * 3


def test_the_history_of_a_running_run_does_not_change_later():
    rounds = fb.CommunicationRounds(make(horizon=3), Scripted(play_first, hello))
    rounds.reset(seed=0)
    rounds.advance()
    early = rounds.history()
    rounds.advance()
    assert early.ledger.rounds == 1
    assert rounds.history().ledger.rounds == 2


class TestStart:
    def test_whoever_overrides_reset_is_told_of_every_run(self):
        seen = []

        class Remembering(fb.CommunicationRounds):
            def reset(self, seed=None, options=None):
                seen.append(seed)
                return super().reset(seed=seed, options=options)

        rounds = Remembering(make(horizon=3), Scripted(play_first))
        rounds.reset(seed=5)
        rounds.restore(rounds.snapshot())
        assert seen == [5, 5]

    def test_an_environment_with_a_reset_of_its_own_is_reset(self):
        seen = []

        class Noting(fb.HiddenContextBandit):
            def reset(self, seed=None, options=None):
                seen.append(seed)
                return super().reset(seed=seed, options=options)

        fb.play(Noting(make(horizon=3).problem, max_cycles=3), Scripted(play_first), seed=7)
        assert seen == [7]


class TestWrappers:
    class Meddling(BaseParallelWrapper):
        """A wrapper that has a say in whole plans."""

        def __init__(self, env, change):
            super().__init__(env)
            self.change = change

        def pull(self, plan):
            return self.change(self.env, plan)

    def test_a_plan_that_was_checked_can_not_be_written_to(self):
        def change(env, plan):
            plan.explore[0] = 0
            return env.pull(plan)

        def explore(side, down, remaining):
            return fb.Plan.explore_each(1, 3, 2)

        with pytest.raises(ValueError, match="read-only"):
            fb.play(self.Meddling(make(horizon=4), change), Scripted(explore))

    @pytest.mark.parametrize(
        ("wrong", "part"),
        [
            ({"arm": np.array([2, 0, 0])}, "feedback.arm: expected numbers from 0 to 1, got 0 to 2"),
            ({"arm": np.array([-1, 0, 0])}, "feedback.arm: expected numbers from 0 to 1, got -1 to 0"),
            ({"arm": np.zeros(3)}, "feedback.arm: expected whole numbers of shape (3,)"),
            ({"arm": np.zeros(4, dtype=int)}, "feedback.arm: expected whole numbers of shape (3,)"),
            ({"explored": np.full((3, 2), -1)}, "feedback.explored: expected numbers from 0"),
            ({"explored": [[0, 0]] * 3}, "feedback.explored: expected whole numbers of shape (3, 2), got [[0, 0]"),
            ({"played": np.full(3, 10**6)}, "feedback: expected 1 pulls of each agent, as planned, got 1000000"),
            ({"explored": np.full((3, 2), 2**63 - 1), "played": np.full(3, 3)}, "feedback: expected 1 pulls"),
            ({"played_sums": np.array([1.0, np.nan, 0.0])}, "feedback.played_sums: expected finite numbers, got nan"),
            ({"played_sums": np.zeros((3, 1))}, "feedback.played_sums: expected floating-point numbers of shape (3,)"),
            ({"explored_sums": np.full((3, 2), np.inf)}, "feedback.explored_sums: expected finite numbers, got inf"),
            ({"explored_sums": None}, "feedback.explored_sums: expected floating-point numbers of shape (3, 2)"),
            ({"features": np.zeros((2, 2))}, "feedback.features: expected floating-point numbers of shape (3, 2)"),
        ],
    )
    def test_feedback_that_can_not_be_is_refused(self, wrong, part):
        env = self.Meddling(make(horizon=4), lambda env, plan: replace(env.pull(plan), **wrong))
        assert_refused(lambda: fb.play(env, Scripted(play_first)), part)

    def test_rewards_that_can_not_be_are_refused_for_the_plan_itself(self):
        def change(env, plan):
            return Feedback.of(plan, np.zeros((3, 2)), np.array([0.0, np.nan, 0.0]))

        env = self.Meddling(make(horizon=4), change)
        assert_refused(lambda: fb.play(env, Scripted(play_first)), "feedback.played_sums: expected finite numbers")

    @pytest.mark.parametrize("answer", [None, [1.0, 2.0, 3.0]])
    def test_what_is_no_feedback_is_refused(self, answer):
        env = self.Meddling(make(horizon=4), lambda env, plan: answer)
        assert_refused(lambda: fb.play(env, Scripted(play_first)), "pull: expected a Feedback, got", "Feedback.of")

    def test_what_was_pulled_in_place_of_the_plan_counts(self):
        def change(env, plan):
            return replace(env.pull(plan), arm=np.array([1, 0, 0]))

        history = fb.play(self.Meddling(make(horizon=4), change), Scripted(play_first))
        assert history.pulls[-1].tolist() == [[0, 4], [4, 0], [4, 0]]

    def test_feedback_in_other_types_of_whole_numbers_is_the_same(self):
        def change(env, plan):
            return replace(env.pull(plan), arm=plan.arm.astype(np.uint64))

        history = fb.play(self.Meddling(make(horizon=4), change), Scripted(play_first), seed=0)
        np.testing.assert_array_equal(history.pulls, fb.play(make(horizon=4), Scripted(play_first), seed=0).pulls)

    class Counting(BaseParallelWrapper):
        def __init__(self, env):
            super().__init__(env)
            self.seen = 0

        def step(self, actions):
            self.seen += 1
            return super().step(actions)

    class Pulling(Counting):
        def pull(self, plan):
            return self.env.pull(plan)

    def test_a_wrapper_without_pull_sees_every_step(self):
        env = self.Counting(make(horizon=30))
        history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
        assert env.seen == 30
        assert history.pulls[-1].sum(axis=1).tolist() == [30, 30, 30]

    def test_a_wrapper_under_one_with_pull_sees_every_step_too(self):
        env = self.Counting(make(horizon=30))
        fb.play(self.Pulling(env), fb.make_policy("Fed-PECD"), seed=0)
        assert env.seen == 30

    def test_a_wrapper_with_pull_keeps_the_fast_path(self):
        env = self.Pulling(make(horizon=30))
        fast = fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
        assert env.seen == 0
        np.testing.assert_array_equal(fast.pulls, fb.play(make(horizon=30), fb.make_policy("Fed-PECD"), seed=0).pulls)

    def test_what_a_wrapper_does_to_rewards_reaches_the_policy(self):
        class Doubling(BaseParallelWrapper):
            def step(self, actions):
                observations, rewards, *rest = super().step(actions)
                return observations, {agent: 2 * reward for agent, reward in rewards.items()}, *rest

        script = table(3, 2, 20)
        scripted = ScriptedBandit(fb.Synthetic(**SMALL), script, max_cycles=20)
        plain = fb.play(scripted, fb.make_policy("Uniform"), record=True, stepwise=True)
        doubled = fb.play(Doubling(scripted), fb.make_policy("Uniform"), record=True)
        for one, two in zip(plain.exchanges, doubled.exchanges, strict=True):
            np.testing.assert_array_equal(2 * one.feedback.sums(), two.feedback.sums())

    def test_rounds_stack_on_wrappers_and_reach_the_bandit(self):
        rounds = fb.CommunicationRounds(self.Counting(make()), fb.make_policy("Uniform"))
        observations, infos = rounds.reset(seed=3)
        assert set(observations) == set(infos) == {"agent_0", "agent_1", "agent_2"}
        assert rounds.unwrapped is rounds.bandit


class TestRefusals:
    @pytest.mark.parametrize("blocks", [[[0, 1]], [[0, 1, 2], []], [[0, 1], [1, 2]], [[0, 1, 2, 3]], [[-1, 0, 1]], []])
    def test_blocks_that_do_not_hold_each_agent_once(self, blocks):
        assert_refused(
            lambda: fb.CommunicationRounds(make(), Scripted(play_first), blocks=blocks), "each agent from 0 to 2 once"
        )

    def test_what_is_not_a_policy_or_not_an_environment_of_ours(self):
        assert_refused(lambda: fb.play(make(), "Fed-PECD"), "expected a Policy, got 'Fed-PECD'", "make_policy")
        assert_refused(
            lambda: fb.play("fedbandit/Synthetic-v0", Scripted(play_first)), "HiddenContextBandit", "got str"
        )

    def test_a_policy_that_observes_something_unheard_of(self):
        class Nosy(Scripted):
            observes = "everything"

        assert_refused(lambda: fb.play(make(), Nosy(play_first)), "Nosy.observes", "'distribution'", "got 'everything'")

    @pytest.mark.parametrize(
        ("plan", "part"),
        [
            (lambda side, down, remaining: None, "ScriptedAgents.plan: expected a Plan, got NoneType"),
            (lambda side, down, remaining: fb.Plan.wait(2, 2), "shape (3, 2)"),
            (lambda side, down, remaining: fb.Plan(np.ones((3, 2), int), np.zeros(3, int), 1), "at most length = 1"),
        ],
    )
    def test_plans_that_break_the_contract(self, plan, part):
        with pytest.raises(fb.ProtocolError) as caught:
            fb.play(make(), Scripted(plan))
        assert part in str(caught.value)

    def test_an_arm_that_is_only_played_because_others_plan_longer(self):
        def plan(side, down, remaining):
            waits = 0 in side.view.agents
            return fb.Plan(np.zeros((1, 2), int), np.array([-1 if waits else 0]), 0 if waits else 3)

        with pytest.raises(fb.ProtocolError, match=r"plan\.arm: expected arms from 0 to 1, got -1"):
            fb.play(make(), Scripted(plan), blocks=[[0], [1], [2]])

    def test_a_plan_that_its_agents_change_while_they_keep_it(self):
        kept = fb.Plan(np.ones((3, 2), int), np.zeros(3, int), 4)

        def plan(side, down, remaining):
            kept.explore[:] += side.turn
            return kept

        with pytest.raises(fb.ProtocolError, match=r"at most length = 4 pulls, got 8"):
            fb.play(make(), Scripted(plan))

    def test_a_plan_that_a_wrapper_has_spoilt(self):
        class Shifting(BaseParallelWrapper):
            def pull(self, plan):
                return self.env.pull(replace(plan, arm=plan.arm - 1))

        with pytest.raises(fb.ProtocolError, match=r"plan\.arm: expected arms from 0 to 1, got -1"):
            fb.play(Shifting(make()), Scripted(play_first))

    def test_reports_and_answers_that_are_no_messages(self):
        with pytest.raises(fb.ProtocolError, match=r"agents\.report: expected a Message or None, got dict"):
            fb.play(make(), Scripted(play_first, lambda side, feedback: {}))
        with pytest.raises(fb.ProtocolError, match=r"server\.answer: expected a Message or None, got int"):
            fb.play(make(), Scripted(play_first, hello, lambda up: 1))

    def test_calls_in_the_wrong_order(self):
        rounds = fb.CommunicationRounds(make(horizon=1), Scripted(play_first))
        for call in (rounds.advance, rounds.history, rounds.snapshot):
            assert_refused(call, "expected reset()")
        rounds.reset(seed=0)
        rounds.advance()
        assert rounds.done
        assert_refused(rounds.advance, "a run before its horizon")

    def test_resuming_with_other_blocks_or_without_the_record(self):
        def rounds(**keywords):
            return fb.CommunicationRounds(make(), fb.make_policy("Fed-PECD"), **keywords)

        started = rounds(blocks=[[0, 1], [2]])
        started.reset(seed=0)
        started.advance()
        state = started.snapshot()
        assert_refused(lambda: rounds().restore(state), "expected the blocks [[0, 1, 2]], got [[0, 1], [2]]")
        assert_refused(lambda: rounds(blocks=[[2], [0, 1]]).restore(state), "use the same blocks")
        assert_refused(lambda: rounds(blocks=[[0, 1], [2]], record=True).restore(state), "record=True")
        rounds(blocks=[[0, 1], [2]]).restore(state)

    def test_resuming_with_another_policy_other_parameters_or_another_horizon(self):
        started = fb.CommunicationRounds(make(), fb.make_policy("Fed-PECD"))
        started.reset(seed=0)
        started.advance()
        state = started.snapshot()
        for env, policy in (
            (make(), fb.make_policy("Fed-PE")),
            (make(), fb.make_policy("Fed-PECD", delta=0.2)),
            (make(horizon=77), fb.make_policy("Fed-PECD")),
        ):
            if policy.observes == "context":
                env = fb.make("fedbandit/Synthetic-v0", num_agents=3, max_cycles=60, observe="context")
            other = fb.CommunicationRounds(env, policy)
            assert_refused(lambda other=other: other.restore(state), "got one of another run")
        fb.CommunicationRounds(make(), fb.make_policy("Fed-PECD", delta=0.1)).restore(state)  # its default


def test_a_policy_may_choose_not_to_count_its_start():
    env = make(horizon=40, observe="context")
    counted = fb.play(env, fb.make_policy("Fed-PE"), seed=1)
    not_counted = fb.play(env, fb.make_policy("Fed-PE", count_init=False), seed=1)
    np.testing.assert_array_equal(not_counted.steps, counted.steps[1:] - 2)
    np.testing.assert_array_equal(not_counted.pulls, counted.pulls[1:] - 1)


@pytest.mark.parametrize("blocks", [3, [0, 1, 2], [[0.5, 1], [2]], [[0, 1]], [[0, 1, 2], []], [[0, 1, 1, 2]]])
def test_blocks_that_are_no_partition_are_refused(blocks):
    env = fb.make("fedbandit/Synthetic-v0", num_agents=3, max_cycles=20)
    with pytest.raises(ValueError, match=r"blocks: expected lists that hold each agent from 0 to 2 once.*got"):
        fb.play(env, fb.make_policy("Uniform"), blocks=blocks)


def test_a_policy_that_observes_the_context_plays_where_it_is_known():
    rng = np.random.default_rng(0)
    env = fb.make("fedbandit/Linear-v0", theta=rng.normal(size=(3, 2)), features=rng.normal(size=(4, 3, 2)))
    assert fb.play(env, fb.make_policy("Fed-PE"), seed=0).steps[-1] == env.max_cycles


def test_things_that_are_no_environment_or_faults_are_refused():
    with pytest.raises(ValueError, match=r"pettingzoo.make\('parallel', id\)"):
        fb.play(pettingzoo.make("aec", "fedbandit/Linear-v0"), fb.make_policy("Uniform"))
    with pytest.raises(ValueError, match=r"expected Faults, got 0.1; use Faults\(dropout=0.1\)"):
        fb.play(fb.make("fedbandit/Linear-v0"), fb.make_policy("Uniform"), faults=0.1)


def test_a_horizon_within_what_is_not_counted_is_refused():
    env = fb.make("fedbandit/Synthetic-v0", num_agents=2, num_arms=5, max_cycles=5)
    with pytest.raises(ValueError, match="expected more than the 5 steps that FedPECD does not count, got 5"):
        fb.play(env, fb.make_policy("Fed-PECD", count_init=False))
    env = fb.make("fedbandit/Synthetic-v0", num_agents=2, num_arms=5, max_cycles=50)
    history = fb.play(env, fb.make_policy("Fed-PECD", count_init=False), seed=0)
    counted = fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
    np.testing.assert_array_equal(history.pulls[-1], counted.pulls[-1] - 1)
    assert history.steps[-1] == 45
