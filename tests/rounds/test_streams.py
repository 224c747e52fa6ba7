"""Policies on contexts that change: one run, however it is played, split, stopped or shown."""

from dataclasses import dataclass

import numpy as np
import pytest
from histories import assert_same_run
from refusals import assert_refused

import fedbandit_envs as fb
from fedbandit_baselines import KKUCB, DisLinUCB, KKUCBObserved, LocalUCB, Oracle, Uniform
from fedbandit_envs.envs.wrappers import RecordRegret

KINDS = ("regret", "distribution_regret", "paper_regret")
CHANGES = {
    "streaming": {"context": "streaming"},
    "revealed": {"context": "streaming", "reveal": "after"},
    "exact": {"context": "streaming", "observe": "context"},
    "pieces": {"change_every": 7},
}
POLICIES = {
    "KK-UCB": KKUCB(),
    "KK-UCB-Observed": KKUCBObserved(),
    "DisLinUCB": DisLinUCB(threshold=2.0),
    "Local-UCB": LocalUCB(),
    "Uniform": Uniform(),
    "Oracle": Oracle(),
}
CASES = [(change, name) for change in CHANGES for name in POLICIES if change == "revealed" or name != "KK-UCB-Observed"]


def make(change, steps=300, **more):
    more = {"num_agents": 5, "num_arms": 4, "noise_std": 0.3, **CHANGES[change], **more}
    return fb.make("fedbandit/Synthetic-v0", max_cycles=steps, **more)


@pytest.mark.parametrize(("change", "name"), CASES)
def test_turns_and_blocks_do_not_change_a_run(change, name):
    policy, whole = POLICIES[name], fb.play(make(change), POLICIES[name], seed=3)
    assert_same_run(whole, fb.play(make(change), policy, seed=3, record=True))
    assert_same_run(whole, fb.play(make(change), policy, seed=3, blocks=[[4, 0], [2], [1, 3]]))


@pytest.mark.parametrize(("change", "name"), [case for case in CASES if case[0] != "pieces"])
def test_stepping_through_pettingzoo_gives_the_same_run(change, name):
    assert_same_run(
        fb.play(make(change), POLICIES[name], seed=3), fb.play(make(change), POLICIES[name], seed=3, stepwise=True)
    )


@pytest.mark.parametrize(("change", "name"), CASES)
@pytest.mark.parametrize("steps", [1, 100, 299])
def test_a_run_is_stopped_in_the_middle_and_resumed(change, name, steps):
    rounds = fb.CommunicationRounds(make(change), POLICIES[name])
    rounds.start(3)
    while rounds.bandit.steps < steps:
        rounds.advance()
    again = fb.CommunicationRounds(make(change), POLICIES[name])
    again.restore(rounds.snapshot())
    again.finish()
    assert_same_run(fb.play(make(change), POLICIES[name], seed=3), again.history())


PROBLEMS = {
    "MovieLens": {"context": "streaming"},
    "Household": {"context": "streaming"},
    "Linear": {"context": "streaming"},
    "Forecast": {},
    "Forecast, ensemble": {"members": 4, "dispersion": 0.5},
}


def revealed(problem):
    name = problem.partition(",")[0]
    return fb.make(f"fedbandit/{name}-v0", num_agents=5, max_cycles=60, reveal="after", **PROBLEMS[problem])


@pytest.mark.parametrize("policy", [KKUCBObserved(), DisLinUCB(threshold=2.0)], ids=["observed", "sharing"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_streaming_problem_is_the_same_however_it_is_played(problem, policy):
    whole = fb.play(revealed(problem), policy, seed=3)
    assert_same_run(whole, fb.play(revealed(problem), policy, seed=3, stepwise=True))
    assert_same_run(whole, fb.play(revealed(problem), policy, seed=3, blocks=[[4, 0], [2], [1, 3]]))
    rounds = fb.CommunicationRounds(revealed(problem), policy)
    rounds.start(3)
    while rounds.bandit.steps < 30:
        rounds.advance()
    again = fb.CommunicationRounds(revealed(problem), policy)
    again.restore(rounds.snapshot())
    again.finish()
    assert_same_run(whole, again.history())


def test_a_run_is_resumed_in_a_later_block_of_the_weather():
    def env():
        return fb.make("fedbandit/Forecast-v0", num_agents=2, max_cycles=600)

    rounds = fb.CommunicationRounds(env(), KKUCB())
    rounds.start(3)
    while rounds.bandit.steps < 520:  # blocks have 256 steps
        rounds.advance()
    again = fb.CommunicationRounds(env(), KKUCB())
    again.restore(rounds.snapshot())
    again.finish()
    assert_same_run(fb.play(env(), KKUCB(), seed=3), again.history())


@pytest.mark.parametrize("problem", ["Synthetic", *PROBLEMS])
def test_no_report_of_an_honest_agent_is_refused(problem):
    env = make("streaming") if problem == "Synthetic" else revealed(problem)
    history = fb.play(env, DisLinUCB(threshold=2.0), seed=0)
    assert history.ledger.rounds > 1
    assert not history.faults


@pytest.mark.parametrize("change", CHANGES)
def test_the_regret_of_a_run_is_that_of_its_steps(change):
    history = fb.play(make(change), KKUCB(), seed=3, record=True)
    env = make(change)
    env.reset(seed=3)
    expected = np.zeros(5)
    for exchange in history.exchanges:
        if not exchange.plan.length:
            continue
        instance = env.instance
        means = instance.means if change == "pieces" else instance.distribution_means
        expected += means.max(axis=1) - means[np.arange(5), exchange.plan.arm]
        env.step(dict(zip(env.possible_agents, exchange.plan.arm.tolist(), strict=True)))
    np.testing.assert_allclose(history.regret()[-1], expected, rtol=1e-12)
    recorded = RecordRegret(make(change))
    fb.play(recorded, KKUCB(), seed=3)
    np.testing.assert_allclose(recorded.episode_regret()["regret"], expected, rtol=1e-12)


@pytest.mark.parametrize("change", CHANGES)
def test_the_oracle_has_no_regret_and_beats_uniform_play(change):
    assert fb.play(make(change), Oracle(), seed=0).regret().max() == 0
    assert fb.play(make(change), Uniform(), seed=0).mean_regret()[-1] > 10


@dataclass(frozen=True)
class Watching(fb.Policy):
    """Plays arm 0, and keeps what its agents are shown and told."""

    def agents(self, view):
        Watching.side = WatchingAgents(view)
        return Watching.side


class WatchingAgents(fb.StepAgents):
    def __init__(self, view):
        super().__init__(view)
        self.heard_of, self.told = [view], []

    def observe(self, view):
        self.view = view
        self.heard_of.append(view)

    def choose(self):
        return np.zeros(len(self.view.agents), dtype=np.int64)

    def learn(self, outcome):
        self.told.append(outcome)


@pytest.mark.parametrize("stepwise", [False, True])
@pytest.mark.parametrize(("change", "length"), [("revealed", 1), ("pieces", 7)])
def test_agents_are_shown_each_change_once_and_never_more(change, length, stepwise):
    fb.play(make(change, 100), Watching(), seed=2, stepwise=stepwise)
    views, outcomes = Watching.side.heard_of, Watching.side.told
    assert len(views) == -(-100 // length)
    assert {view.valid for view in views[:-1]} == {length}
    env = make(change, 100)
    for step in range(99):
        env.reset(seed=2) if step == 0 else env.step(dict.fromkeys(env.agents, 0))
        view = views[step // length]
        assert view.psi.tobytes() == env.instance.psi.tobytes()
        if change == "revealed":
            np.testing.assert_array_equal(outcomes[step].features, env.instance.phi[:, 0])
        else:
            assert outcomes[step].features is None


@dataclass(frozen=True)
class Answering(fb.Policy):
    """Agent 1 speaks after every fifth step; the server answers it alone, and then it speaks once more."""

    def agents(self, view):
        return AnsweringAgents(view)

    def server(self, view):
        return Answers()


class AnsweringAgents(fb.StepAgents):
    def __init__(self, view):
        super().__init__(view)
        self.steps, self.answers, self.answered = 0, np.zeros(len(view.agents)), False

    def observe(self, view):
        self.view = view

    def choose(self):
        return ((self.steps + self.answers) % self.view.constants.num_arms).astype(np.int64)

    def learn(self, outcome):
        self.steps += 1
        self.answered = False

    def speak(self):
        mine = self.view.agents[self.view.agents == 1]
        if self.answered or self.steps % 5 or not len(mine):
            return None
        return fb.Message("again" if self.answers[self.view.agents == 1][0] % 2 else "first", {}, mine)

    def hear(self, down):
        self.answers[np.isin(self.view.agents, down.agents)] += 1
        self.answered = down.kind == "enough"


class Answers(fb.ServerSide):
    def answer(self, up):
        return fb.Message("enough" if up.kind == "again" else "go on", {}, up.agents)


@pytest.mark.parametrize("change", ["streaming", "pieces"])
def test_rounds_without_a_step_change_no_context_and_no_block(change):
    whole = fb.play(make(change, 50), Answering(), seed=0)
    assert whole.ledger.rounds == 2 * 9  # two rounds after each fifth step but the last
    assert_same_run(whole, fb.play(make(change, 50), Answering(), seed=0, record=True))
    assert_same_run(whole, fb.play(make(change, 50), Answering(), seed=0, blocks=[[0, 2], [1], [3, 4]]))
    assert whole.pulls[-1].sum() == 5 * 50


def test_steps_without_turns_start_the_count_of_idle_turns_again():
    rounds = fb.CommunicationRounds(make("streaming", 3000), Answering())  # 14 steps from one checkpoint to the next
    rounds.start(seed=0)
    counts = set()
    while not rounds.done:
        taken = rounds.taken
        rounds.go_on()
        counts.add((rounds.taken - taken > 1, rounds.snapshot()["idle"]))
    assert counts == {(False, 0), (False, 1), (False, 2), (True, 0)}


def test_agents_that_never_speak_hear_nothing():
    side = Watching().agents(fb.play(make("streaming", 5), Watching(), seed=0, record=True).view)
    assert_refused(lambda: side.hear(fb.Message("call")), "hear: ", "define hear(down)")


@pytest.mark.parametrize(
    ("name", "change"),
    [("Fed-PECD", "streaming"), ("Fed-PECD", "pieces"), ("Fed-CI", "pieces"), ("Theta-Told", "streaming")],
)
def test_phased_policies_are_refused_with_what_to_take_instead(name, change):
    assert_refused(
        lambda: fb.play(make(change), fb.make_policy(name), seed=0), "policy: ", "contexts which change", "KK-UCB"
    )
    fb.play(make("pieces", 7), fb.make_policy(name), seed=0)  # one segment


@pytest.mark.parametrize("change", ["streaming", "pieces"])
def test_phased_policies_of_known_contexts_are_told_at_once_that_contexts_must_not_change(change):
    said = "observe='context', and with contexts that never change", "KK-UCB"
    assert_refused(lambda: fb.play(make(change), fb.make_policy("Fed-PE"), seed=0), "policy: ", *said)
    shown = make(change, observe="context")
    assert_refused(lambda: fb.play(shown, fb.make_policy("Fed-PE"), seed=0), "contexts which change", "KK-UCB")


def test_a_policy_of_revealed_contexts_needs_them():
    for change in ("streaming", "pieces"):
        assert_refused(lambda change=change: fb.play(make(change), KKUCBObserved(), seed=0), "reveal='after'")


def test_a_plan_can_not_reach_into_the_next_segment():
    env = make("pieces")
    env.reset(seed=0)
    env.pull(fb.Plan.play(np.zeros(5, dtype=np.int64), 4, 5))
    plan = fb.Plan.play(np.zeros(5, dtype=np.int64), 4, 3)
    assert_refused(lambda: env.pull(plan), "plan.length: ", "at most the 2 steps until the contexts change")


def test_a_kind_that_compares_agents_is_not_summed_over_segments():
    kind = fb.Regret(lambda instance: instance.means, "mine", "mine")
    fb.REGRETS["mine"] = kind
    try:
        history = fb.play(make("streaming", 20), Uniform(), seed=0)
        assert_refused(lambda: history.regret("mine"), "kind: ", "where contexts change")
    finally:
        del fb.REGRETS["mine"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "more"),
    [("Synthetic", {"context": "streaming"}), ("Forecast", {"members": 3})],
    ids=["plain", "forecast"],
)
def test_experiments_are_the_same_in_one_process_and_in_several(problem, more):
    arguments = {"num_agents": 4, "max_cycles": 100, **more}
    names = ["KK-UCB", "DisLinUCB", "Async-LinUCB", "Private-FedLinUCB", "Weighted-DisLinUCB"]
    experiment = fb.Experiment(f"fedbandit/{problem}-v0", names, arguments, trials=2)
    one, several = (fb.run(experiment, executor=executor) for executor in ("serial", "processes:2"))
    for name in names:
        assert one.final(name, "mean_regret").tobytes() == several.final(name, "mean_regret").tobytes()


def test_the_report_of_an_experiment_leaves_out_the_kinds_of_regret_that_need_one_best_arm(tmp_path):
    experiment = fb.Experiment("fedbandit/Forecast-v0", ["KK-UCB", "Uniform"], {"max_cycles": 40}, trials=2)
    fb.run(experiment, out=tmp_path, executor="serial")
    page = fb.report(tmp_path).read_text()
    assert all(f'<option value="{kind}">' in page for kind in KINDS)
    assert '<option value="group_regret">' not in page
