"""The Gymnasium views show and pay what the PettingZoo environment does, in other shapes."""

import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RecordEpisodeStatistics

import fedbandit_envs as fb
from fedbandit_envs.envs.ids import COUPLED, short_name
from fedbandit_envs.envs.views import AgentsVectorEnv, JointView, OneAgentView
from fedbandit_envs.problems.regrets import REGRETS

NAMES = [short_name(id) for id in fb.environment_ids() if id not in COUPLED]
ALWAYS_STREAMING = ("Forecast",)  # problems whose kind of contexts is not a choice
AGENTS, STEPS = 4, 300  # more steps than core draws random numbers for at a time


def arms(num_arms, steps=STEPS, agents=AGENTS):
    return np.random.default_rng(9).integers(num_arms, size=(steps, agents))


def small(name, **keywords):
    return fb.make(f"fedbandit/{name}-v0", num_agents=AGENTS, **keywords)


def played(env, plan, seed=11):
    """Rewards (steps, M) of the PettingZoo environment."""
    env.reset(seed=seed)
    return np.array([list(env.step(dict(zip(env.agents, map(int, row), strict=True)))[1].values()) for row in plan])


KINDS = {"fixed": {}, "observed": {"observe": "context"}, "resampled": {"context": "resampled"}}


@pytest.mark.parametrize(
    ("name", "keywords"),
    [
        pytest.param(name, keywords, id=f"{name}-{kind}")
        for name in NAMES
        for kind, keywords in KINDS.items()
        if "context" not in keywords or name not in ALWAYS_STREAMING
    ],
)
def test_all_views_pay_the_rewards_of_the_whole(name, keywords):
    plan = arms(small(name).num_arms)
    expected = played(small(name, **keywords), plan)

    joint = JointView(name, num_agents=AGENTS, **keywords)
    joint.reset(seed=11)
    assert np.allclose([joint.step(row)[1] for row in plan], expected.sum(axis=1), rtol=0, atol=1e-12)

    vector = AgentsVectorEnv(name, num_envs=AGENTS, **keywords)
    vector.reset(seed=11)
    assert np.array_equal([vector.step(row)[1] for row in plan], expected)

    for agent in (0, 3):
        one = OneAgentView(name, agent=agent, num_agents=AGENTS, **keywords)
        one.reset(seed=11)
        assert np.array_equal([one.step(int(row[agent]))[1] for row in plan], expected[:, agent])


@pytest.mark.parametrize("observe", ["distribution", "context"])
@pytest.mark.parametrize("name", NAMES)
def test_all_views_show_the_same(name, observe):
    whole = small(name, observe=observe)
    shown, _ = whole.reset(seed=2)
    stacked = {key: np.stack([row[key] for row in shown.values()]) for key in shown["agent_0"]}
    psi = whole.view().psi.reshape(AGENTS, -1).astype(np.float32)

    def observed(view, **keywords):
        return view(name, num_agents=AGENTS, observe=observe, **keywords).reset(seed=2)[0]

    assert np.array_equal(observed(AgentsVectorEnv), psi)
    assert np.array_equal(observed(JointView), psi.reshape(-1))
    assert np.array_equal(observed(OneAgentView, agent=3), psi[3])
    for view in (AgentsVectorEnv, JointView):
        distribution = observed(view, observation="distribution")
        assert distribution.keys() == stacked.keys()
        assert all(np.array_equal(distribution[key], stacked[key]) for key in stacked)
    row = observed(OneAgentView, agent=3, observation="distribution")
    assert all(np.array_equal(row[key], stacked[key][3]) for key in stacked)


def test_statistics_are_psi_and_what_the_agent_remembers():
    view = OneAgentView("Linear", agent=1, observation="statistics", max_cycles=7)
    observation, _ = view.reset(seed=0)
    psi = view.instance.psi[0].reshape(-1)
    assert np.allclose(observation, [*psi, 0, 0, 0, 0, 0, 0, 0])
    first = view.step(2)[1]
    second = view.step(2)[1]
    observation, third, *_ = view.step(0)
    pulls = np.log([2, 1, 3]) / np.log(8)
    assert np.allclose(observation, [*psi, *pulls, third, 0, (first + second) / 2, 3 / 7])
    assert view.observation_space.contains(observation)


@pytest.mark.parametrize("name", NAMES)
def test_observations_stay_in_their_spaces_to_the_end(name):
    for view in (JointView, OneAgentView, AgentsVectorEnv):
        for observation in ("features", "distribution", "statistics"):
            env = view(name, num_agents=2, max_cycles=5, observation=observation)
            shown, _ = env.reset(seed=0)
            env.action_space.seed(0)
            for _ in range(5):
                assert env.observation_space.contains(shown)
                shown, _, _, truncated, _ = env.step(env.action_space.sample())
            assert env.observation_space.contains(shown)
            assert np.all(truncated)


def test_regret_of_the_episode_is_in_the_last_info_of_every_view():
    plan = arms(3, steps=5)
    keywords = {"num_agents": AGENTS, "max_cycles": 5, "record_regret": True}
    joint, vector = JointView("Linear", **keywords), AgentsVectorEnv("Linear", **keywords)
    alone = OneAgentView("Linear", agent=2, **keywords)
    for env in (joint, vector, alone):
        env.reset(seed=4)
    infos = [(joint.step(row)[4], vector.step(row)[4], alone.step(row[2])[4]) for row in plan]
    assert infos[:-1] == [({}, {}, {})] * 4
    of_joint, of_vector, of_one = infos[-1]
    for kind in REGRETS:
        gaps = joint.instance.gaps(kind)
        by_hand = [sum(gaps[agent, arm] for arm in plan[:, agent]) for agent in range(AGENTS)]
        assert np.allclose(of_joint["episode_regret"][kind], by_hand)
        assert np.allclose(of_vector["episode_regret"][kind], by_hand)
        assert of_one["episode_regret"][kind] == pytest.approx(by_hand[2])
    assert of_vector["_episode_regret"].tolist() == [True] * AGENTS


def test_views_work_under_the_wrappers_of_gymnasium():
    env = RecordEpisodeStatistics(gymnasium.make("fedbandit/Linear-Agent-v0", max_cycles=3, record_regret=True))
    env.reset(seed=0)
    *_, info = [env.step(0) for _ in range(3)][-1]
    assert info["episode"]["l"] == 3
    assert set(info["episode_regret"]) == set(REGRETS)
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(
        gymnasium.make_vec("fedbandit/Linear-Agent-v0", num_envs=2, max_cycles=3)
    )
    envs.reset(seed=0)
    lengths = [envs.step(np.zeros(2, int))[4].get("episode", {}).get("l") for _ in range(7)]
    assert [None if length is None else length.tolist() for length in lengths] == [
        None,
        None,
        [3, 3],
        *[None] * 3,
        [3, 3],
    ]


def test_vector_environment_starts_again_the_step_after_the_end():
    envs = AgentsVectorEnv("Synthetic", num_envs=2, max_cycles=2)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    first, _ = envs.reset(seed=6)
    envs.step([0, 0])
    last, _, _, truncated, _ = envs.step([0, 0])
    assert truncated.all()
    assert np.array_equal(first, last)
    second, rewards, _, truncated, _ = envs.step([0, 0])
    assert not truncated.any()
    assert (rewards == 0).all()
    assert not np.array_equal(first, second)
    again = AgentsVectorEnv("Synthetic", num_envs=2, max_cycles=2)
    again.reset(seed=6)
    assert np.array_equal(again.reset()[0], second)


def test_a_list_of_seeds_stands_for_its_first():
    envs = AgentsVectorEnv("Synthetic", num_envs=3)
    expected, _ = envs.reset(seed=5)
    assert np.array_equal(envs.reset(seed=[5, 6, 7])[0], expected)
    assert np.array_equal(envs.reset(seed=np.array([5, 6, 7]))[0], expected)
    following, _ = envs.reset(seed=[None] * 3)
    assert not np.array_equal(following, expected)
    assert np.array_equal(envs.reset(seed=5, options={"reset_mask": np.ones(3, bool)})[0], expected)


def test_number_of_rows_is_the_number_of_agents():
    arrays = {"theta": np.eye(2), "features": np.ones((5, 2, 2))}
    make = gymnasium.make_vec
    assert make("fedbandit/Linear-Agent-v0", **arrays).num_envs == 5
    assert make("fedbandit/Linear-Agent-v0", num_envs=5, **arrays).num_envs == 5
    assert make("fedbandit/Linear-Agent-v0", num_envs=6).num_envs == 6
    assert make("fedbandit/Synthetic-Agent-v0").num_envs == 1
    assert make("fedbandit/Synthetic-Agent-v0", num_agents=4).num_envs == 4


@pytest.mark.parametrize("view", [JointView, OneAgentView, AgentsVectorEnv])
def test_a_view_can_be_copied_in_the_middle_of_an_episode(view):
    env = view("Synthetic", num_agents=2, observation="statistics")
    env.reset(seed=0)
    env.action_space.seed(1)
    actions = [env.action_space.sample() for _ in range(4)]
    env.step(actions[0])
    copy = pickle.loads(pickle.dumps(env))
    for action in actions[1:]:
        for mine, its in zip(env.step(action), copy.step(action), strict=True):
            assert np.array_equal(mine, its)
