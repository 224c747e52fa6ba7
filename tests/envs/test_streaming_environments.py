"""All shells show mu_{i,t} at each step, and reveal the context of a step afterwards where they are asked to."""

import itertools

import gymnasium
import numpy as np
import pettingzoo
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

import fedbandit_envs as fb
from fedbandit_envs.envs.wrappers import ExpectedFeatures, PullStatistics, RecordRegret

IDS = [f"fedbandit/{name}-v0" for name in ("Synthetic", "MovieLens", "Household", "Linear")]
STREAM = {"num_agents": 3, "max_cycles": 40, "context": "streaming"}
FORMS = {
    "streaming": STREAM,
    "revealed": {**STREAM, "reveal": "after"},
    "exact": {**STREAM, "observe": "context"},
    "pieces": {"num_agents": 3, "max_cycles": 40, "change_every": 6},
}
FORECAST = {"num_agents": 3, "num_arms": 10, "max_cycles": 40, "reveal": "after"}  # its contexts always change
ROLLOUTS = {form: (IDS[0], arguments) for form, arguments in FORMS.items()} | {
    "forecast": ("fedbandit/Forecast-v0", FORECAST),
    "ensemble": ("fedbandit/Forecast-v0", {**FORECAST, "members": 4}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", IDS)
def test_environments_pass_the_checks_of_pettingzoo(name, form):
    parallel_api_test(pettingzoo.make("parallel", name, **FORMS[form]), num_cycles=100)
    parallel_seed_test(lambda: fb.make(name, **FORMS[form]), num_cycles=50)
    api_test(pettingzoo.make("aec", name, **FORMS[form]), num_cycles=100)
    seed_test(lambda: pettingzoo.make("aec", name, **FORMS[form]), num_cycles=50)


@pytest.mark.parametrize("observation", ["features", "distribution", "statistics"])
@pytest.mark.parametrize("name", IDS)
def test_views_pass_the_checks_of_gymnasium(name, observation):
    more = {**FORMS["revealed"], "observation": observation}
    check_env(gymnasium.make(name, **more).unwrapped, skip_render_check=True)
    check_env(gymnasium.make(name.replace("-v0", "-Agent-v0"), **more).unwrapped, skip_render_check=True)


def rollout(form, steps=40):
    """What the parallel environment shows, pays and reveals: lists over steps, the observations from the reset on."""
    name, arguments = ROLLOUTS[form]
    env = fb.make(name, **arguments)
    shown, paid, infos = [env.reset(seed=4)[0]], [], []
    for step in range(steps):
        observations, rewards, _, _, info = env.step({agent: (step + i) % 10 for i, agent in enumerate(env.agents)})
        shown.append(observations)
        paid.append(rewards)
        infos.append(info)
    return shown, paid, infos


@pytest.mark.parametrize("form", ROLLOUTS)
def test_all_shells_show_and_pay_the_same(form):
    shown, paid, infos = rollout(form)
    name, arguments = ROLLOUTS[form]
    more = {**arguments, "observation": "distribution"}
    joint = gymnasium.make(name, **more).unwrapped
    vector = gymnasium.make_vec(name.replace("-v0", "-Agent-v0"), num_envs=3, **more).unwrapped
    alone = gymnasium.make(name.replace("-v0", "-Agent-v0"), agent=2, **more).unwrapped
    aec = pettingzoo.make("aec", name, **arguments)
    aec.reset(seed=4)
    seen = [env.reset(seed=4)[0] for env in (joint, vector, alone)]
    for step in range(40):
        for part, row in shown[step]["agent_2"].items():
            assert row.tobytes() == seen[0][part][2].tobytes() == seen[1][part][2].tobytes() == seen[2][part].tobytes()
            assert row.tobytes() == aec.observe("agent_2")[part].tobytes()
        arms = np.array([(step + i) % 10 for i in range(3)])
        for arm in arms:
            aec.step(int(arm))
        results = [joint.step(arms), vector.step(arms), alone.step(arms[2])]
        seen = [result[0] for result in results]
        own = paid[step]["agent_2"]
        assert results[1][1][2] == results[2][1] == own == aec.rewards["agent_2"]
        assert results[0][1] == pytest.approx(sum(paid[step].values()))
        if arguments.get("reveal") == "after":
            context = infos[step]["agent_2"]["context"]
            assert context.tobytes() == results[0][4]["context"][2].tobytes() == results[1][4]["context"][2].tobytes()
            assert context.tobytes() == results[2][4]["context"].tobytes() == aec.infos["agent_2"]["context"].tobytes()
            assert results[1][4]["_context"].all()
        else:
            assert not any(infos[step].values())


@pytest.mark.parametrize(("form", "length"), [("streaming", 1), ("pieces", 6)])
def test_what_is_shown_changes_when_it_should(form, length):
    shown, _, _ = rollout(form)
    means = [observations["agent_1"]["mean"].tobytes() for observations in shown[:40]]
    assert [one != other for one, other in itertools.pairwise(means)] == [step % length == 0 for step in range(1, 40)]


def test_the_revealed_context_is_that_of_the_step_before():
    env = fb.make(IDS[0], **FORMS["revealed"])
    _, infos = env.reset(seed=0)
    assert not any(infos.values())
    for _ in range(3):
        hidden = env.instance.contexts.copy()
        *_, infos = env.step(dict.fromkeys(env.agents, 0))
        np.testing.assert_array_equal([info["context"] for info in infos.values()], hidden)


def test_the_exact_setting_shows_the_context_of_the_next_step():
    env = fb.make(IDS[0], **{**FORMS["exact"], "noise_std": 0.0})
    observations, _ = env.reset(seed=0)
    for _ in range(5):
        expected = {agent: shown["context"][0] for agent, shown in observations.items()}  # theta = e_1, arm 0
        observations, rewards, *_ = env.step(dict.fromkeys(env.agents, 0))
        assert rewards == pytest.approx(expected)


def test_wrappers_follow():
    env = RecordRegret(PullStatistics(ExpectedFeatures(fb.make(IDS[0], **STREAM))))
    parallel_api_test(env, num_cycles=60)
    observations, _ = env.reset(seed=0)
    expected, infos = np.zeros(3), {}
    while env.agents:
        bandit = env.unwrapped
        psi = bandit.instance.psi.reshape(3, -1).astype(np.float32)
        np.testing.assert_array_equal([row[: psi.shape[1]] for row in observations.values()], psi)
        means = bandit.instance.distribution_means
        expected += means.max(axis=1) - means[:, 3]
        observations, *_, infos = env.step(dict.fromkeys(env.agents, 3))
    regret = [info["episode_regret"]["regret"] for info in infos.values()]
    np.testing.assert_allclose(regret, expected, rtol=1e-12)


def test_pictures_follow():
    env = fb.make(IDS[0], render_mode="ansi", **STREAM)
    env.reset(seed=0)
    best = env.instance.distribution_means.argmax(axis=1)
    env.step(dict(zip(env.agents, best.tolist(), strict=True)))
    assert env.render().startswith("step 1 of 40   regret per agent: mean 0")
    picture = fb.make(IDS[0], render_mode="rgb_array", **STREAM)
    picture.reset(seed=0)
    picture.step(dict.fromkeys(picture.agents, 0))
    assert picture.render().ndim == 3
