"""One question, "can this policy play this problem, and why not", answered as `play` would answer it."""

import re
from dataclasses import dataclass

import pytest

import fedbandit_envs as fb
from fedbandit_envs.protocol.knowledge import Constants


@dataclass(frozen=True)
class Picky(fb.Policy):
    """Plays problems with two arms only."""

    def check_problem(self, constants: Constants) -> None:
        if constants.num_arms != 2:
            raise ValueError(f"policy: expected a problem with 2 arms, got {constants.num_arms}")

    def agents(self, view):
        return fb.make_policy("Uniform").agents(view)


def make(**arguments):
    return fb.make("fedbandit/Synthetic-v0", num_agents=3, max_cycles=40, **arguments)


@pytest.mark.parametrize(
    ("policy", "arguments", "network"),
    [
        (Picky(), {}, None),
        (fb.make_policy("Fed-PE"), {}, None),
        (fb.make_policy("coop-UCB2"), {}, None),
        (fb.make_policy("coop-UCB2"), {}, [(0, 1), (1, 2), (2, 3)]),
        (fb.make_policy("Fed-PECD"), {"context": "streaming"}, None),
        (fb.make_policy("KK-UCB-Observed"), {"context": "streaming"}, None),
    ],
)
def test_the_reason_is_the_error_of_play(policy, arguments, network):
    env = make(**arguments)
    reason = fb.why_not(policy, env, network=network)
    assert reason is not None
    with pytest.raises(ValueError, match=re.escape(reason)):
        fb.play(env, policy, seed=0, network=network)


@pytest.mark.parametrize("policy", [Picky(), fb.make_policy("Fed-PECD")])
def test_nothing_speaks_against_what_can_be_played(policy):
    env = make(num_arms=2)
    assert fb.why_not(policy, env) is None
    assert fb.play(env, policy, seed=0).steps[-1] == 40


def test_an_episode_that_runs_is_not_disturbed():
    env, untouched = make(), make()
    for one in (env, untouched):
        one.reset(seed=5)
        one.step(dict.fromkeys(one.agents, 1))
    assert fb.why_not(fb.make_policy("Fed-PECD"), env) is None
    actions = dict.fromkeys(env.agents, 2)
    assert env.steps == 1
    assert env.step(actions)[1] == untouched.step(actions)[1]


@pytest.mark.parametrize(
    ("policy", "context", "said"),
    [
        ("KK-UCB-Observed", "fixed", "this environment reveals nothing"),
        ("Test-Picky", "fixed", "with 2 arms, got 10"),
        ("Fed-PECD", "streaming", "contexts which change at each step, got FedPECD"),
    ],
)
@pytest.mark.parametrize("shards", [0, 2])
def test_an_experiment_is_refused_before_its_first_trial(policy, context, said, shards, tmp_path):
    if "Test-Picky" not in fb.policy_names():
        fb.register_policy("Test-Picky", Picky)
    problem = {"num_agents": 3, "context": context}
    experiment = fb.Experiment("fedbandit/Synthetic-v0", [policy], problem, shards=shards)
    with pytest.raises(ValueError, match=said):
        fb.run(experiment, tmp_path / "out", executor="serial")
    assert not (tmp_path / "out").exists()


def test_a_policy_for_special_problems_is_checked_on_those_it_plays():
    with pytest.raises(ValueError, match="expected a problem with 2 arms"):
        fb.testing.check_policy(Picky(), problems={"three": fb.Synthetic(num_agents=2, num_arms=3)})
    said = fb.testing.check_policy(fb.make_policy("KK-UCB-Observed"))
    assert said == "KKUCBObserved: no fault found on revealed contexts, one agent, one arm"
