"""The PettingZoo wrappers: what they show, what they record, and that they leave the bulk path on."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.test import api_test, parallel_api_test
from pettingzoo.utils import BaseParallelWrapper
from pettingzoo.utils.conversions import parallel_to_aec
from refusals import assert_refused

import fedbandit_envs as fb
from fedbandit_envs.envs.ids import COUPLED
from fedbandit_envs.envs.views import AgentsVectorEnv
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.rounds.stepping import pulls_throughout

STACKS = {
    "features": fb.ExpectedFeatures,
    "statistics": fb.PullStatistics,
    "both": lambda env: fb.PullStatistics(fb.ExpectedFeatures(env)),
    "regret": fb.RecordRegret,
    "all": lambda env: fb.RecordRegret(fb.PullStatistics(fb.ExpectedFeatures(env))),
}
stacks = pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)


def linear(**keywords):
    return fb.make("fedbandit/Linear-v0", **{"max_cycles": 8, **keywords})


@stacks
@pytest.mark.parametrize("name", [name for name in fb.environment_ids() if name not in COUPLED])
def test_wrapped_environment_passes_the_checks_of_pettingzoo(stack, name):
    def env():
        return stack(fb.make(name, num_agents=2, max_cycles=20))

    parallel_api_test(env(), num_cycles=50)
    api_test(parallel_to_aec(env()), num_cycles=30)


@stacks
def test_observations_stay_in_their_spaces(stack):
    env = stack(linear())
    observations, _ = env.reset(seed=0)
    while env.agents:
        for agent, observation in observations.items():
            space = env.observation_space(agent)
            assert isinstance(space, spaces.Box | spaces.Dict)
            assert space.contains(observation)
        observations, *_ = env.step(dict.fromkeys(env.agents, 0))
    assert all(env.observation_space(agent).contains(shown) for agent, shown in observations.items())


@pytest.mark.parametrize("observe", ["distribution", "context"])
def test_expected_features_are_psi_of_what_is_observed(observe):
    env = fb.ExpectedFeatures(linear(observe=observe))
    observations, _ = env.reset(seed=0)
    instance = env.bandit.instance
    psi = instance.psi if observe == "distribution" else instance.phi
    for agent, rows in zip(env.agents, psi, strict=True):
        assert np.allclose(observations[agent], rows.reshape(-1))
        assert observations[agent].dtype == np.float32


def test_statistics_are_of_the_agents_own_pulls():
    env = fb.PullStatistics(linear(max_cycles=7))
    observations, _ = env.reset(seed=0)
    assert (observations["agent_1"]["pulls"] == 0).all()
    assert (observations["agent_1"]["rewards"] == 0).all()
    arms = {"agent_0": [0, 0, 0], "agent_1": [2, 2, 0], "agent_2": [1, 1, 1], "agent_3": [0, 1, 2]}
    paid = []
    for step in range(3):
        observations, rewards, *_ = env.step({agent: plan[step] for agent, plan in arms.items()})
        paid.append(rewards["agent_1"])
    own = observations["agent_1"]
    assert np.allclose(own["pulls"], np.log([2, 1, 3]) / np.log(8))
    assert np.allclose(own["rewards"], [paid[2], 0, (paid[0] + paid[1]) / 2])
    assert np.allclose(own["time"], 3 / 7)
    assert {"mean", "std"} < set(own)


def test_stacked_wrappers_show_what_the_views_show_by_keyword():
    env = fb.PullStatistics(fb.ExpectedFeatures(fb.make("fedbandit/Synthetic-v0", num_agents=3, max_cycles=10)))
    view = AgentsVectorEnv("Synthetic", num_envs=3, max_cycles=10, observation="statistics")
    observations, _ = env.reset(seed=1)
    rows, _ = view.reset(seed=1)
    for step in range(10):
        assert np.array_equal(np.stack(list(observations.values())), rows)
        assert env.observation_space("agent_0") == view.single_observation_space
        arms = np.array([step, 0, 1]) % 10
        observations, *_ = env.step(dict(zip(env.agents, arms.tolist(), strict=True)))
        rows, *_ = view.step(arms)


def test_regret_is_in_the_last_info_and_nowhere_else():
    env = fb.RecordRegret(linear(max_cycles=3))
    _, infos = env.reset(seed=0)
    arms = dict(zip(env.agents, (0, 1, 2, 1), strict=True))
    recorded = [infos, *[env.step(arms)[4] for _ in range(3)]]
    assert recorded[:-1] == [{agent: {} for agent in arms}] * 3
    for kind in REGRETS:
        gaps = env.bandit.instance.gaps(kind)
        for row, (agent, arm) in enumerate(arms.items()):
            assert recorded[-1][agent]["episode_regret"][kind] == pytest.approx(3 * gaps[row, arm])


def test_a_new_episode_forgets_the_last_one():
    env = fb.RecordRegret(fb.PullStatistics(linear()))
    env.reset(seed=0)
    env.step(dict.fromkeys(env.agents, 0))
    observations, _ = env.reset()
    assert (observations["agent_0"]["pulls"] == 0).all()
    assert (env.episode_regret()["regret"] == 0).all()


@stacks
def test_bulk_path_stays_on_and_counts(stack):
    env = stack(linear())
    assert pulls_throughout(env)
    env.reset(seed=0)
    plan = fb.Plan(np.array([[1, 0, 2]] * 4), np.array([0, 1, 2, 0]), 5)
    feedback = env.pull(plan)
    bare = linear()
    bare.reset(seed=0)
    assert np.array_equal(feedback.sums(), bare.pull(plan).sums())


def test_statistics_and_regret_are_right_when_steps_and_plans_alternate():
    env = fb.RecordRegret(fb.PullStatistics(linear()))
    env.reset(seed=0)
    feedback = env.pull(fb.Plan(np.array([[1, 0, 2]] * 4), np.array([0, 1, 2, 0]), 5))
    observations, rewards, *_ = env.step(dict.fromkeys(env.agents, 1))
    own, pulls, sums = observations["agent_0"], feedback.pulls()[0], feedback.sums()[0]
    pulls[1] += 1
    sums[1] += rewards["agent_0"]
    assert np.allclose(own["pulls"], np.log1p(pulls) / np.log(9))
    assert np.allclose(own["rewards"], sums / np.maximum(pulls, 1))
    assert np.allclose(own["time"], 6 / 8)
    assert env.episode_regret()["regret"][0] == pytest.approx(pulls @ env.bandit.instance.gaps()[0])


def test_resumed_episode_has_no_tally_rather_than_a_wrong_one():
    env = fb.RecordRegret(linear())
    env.reset(seed=0)
    env.bandit.resume(steps=2, plans=1)
    assert_refused(env.episode_regret, "tally", "resume")


def test_wrapper_on_something_else_is_refused():
    class Other(BaseParallelWrapper):
        unwrapped = "something else"

    for wrapper in (fb.ExpectedFeatures, fb.PullStatistics, fb.RecordRegret):
        assert_refused(lambda wrapper=wrapper: wrapper(Other(linear())), "HiddenContextBandit", "str")


@pytest.mark.parametrize(
    ("wrapper", "keyword"),
    [
        (fb.ExpectedFeatures, 'observation="features"'),
        (fb.PullStatistics, 'observation="statistics"'),
        (fb.RecordRegret, "record_regret=True"),
    ],
)
@pytest.mark.parametrize("name", ["fedbandit/Linear-v0", "fedbandit/Linear-Agent-v0"])
def test_an_environment_of_gymnasium_is_refused_with_the_keyword_that_does_the_same(wrapper, keyword, name):
    assert_refused(lambda: wrapper(gymnasium.make(name)), "HiddenContextBandit", keyword, "gymnasium.make()")


def test_expected_features_go_beneath_what_changes_observations():
    assert_refused(lambda: fb.ExpectedFeatures(fb.PullStatistics(linear())), "mu_i", "beneath")


def test_statistics_of_what_is_neither_dict_nor_flat_are_refused():
    class Square(BaseParallelWrapper):
        def observation_space(self, agent):
            return spaces.Box(0, 1, (2, 2))

    assert_refused(lambda: fb.PullStatistics(Square(linear())), "flat Box", "(2, 2)")
