"""Pictures and texts of the state of play."""

import matplotlib as mpl
import numpy as np
import pytest
from refusals import assert_refused

import fedbandit_envs as fb
from fedbandit_envs.envs import rendering
from fedbandit_envs.envs.views import AgentsVectorEnv, JointView, OneAgentView

mpl.use("Agg")


def linear(mode, **keywords):
    env = fb.make("fedbandit/Linear-v0", render_mode=mode, max_cycles=5, **keywords)
    env.reset(seed=0)
    return env


def test_text_tells_the_pulls_best_arms_and_regret():
    env = linear("ansi")
    env.step(dict(zip(env.agents, (0, 1, 2, 1), strict=True)))
    text = env.render()
    headline, *lines = text.splitlines()
    regret = env.instance.gaps()[np.arange(4), [0, 1, 2, 1]]
    assert headline.startswith("step 1 of 5")
    assert f"mean {regret.mean():.4g}, worst {regret.max():.4g} (agent {regret.argmax()})" in headline
    best = env.instance.means.argmax(axis=1)
    assert lines[1] == (
        f"agent 1: best arm {best[1]}, pulled {int(best[1] == 1)} times; regret {regret[1]:.4g}; pulls 0 1 0"
    )
    assert len(lines) == 4


def test_text_of_many_agents_stays_short():
    env = fb.make("fedbandit/MovieLens-v0", num_agents=50, render_mode="ansi")
    env.reset(seed=0)
    *lines, last = env.render().splitlines()
    assert len(lines) == 11
    assert lines[1].startswith("agent 0:")
    assert lines[-1].startswith("agent 49:")
    assert last == "(10 of 50 agents)"


@pytest.mark.parametrize("agents", [1, 4, 150])
def test_picture_is_an_rgb_array_that_changes_with_play(agents):
    env = fb.make("fedbandit/Synthetic-v0", num_agents=agents, render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    env.step(dict.fromkeys(env.agents, 3))
    after = env.render()
    assert before.dtype == np.uint8
    assert before.ndim == 3
    assert before.shape[2] == 3
    assert before.shape == after.shape
    assert (before != after).any()
    assert before.shape[0] < 1000


def test_picture_leaves_pyplot_alone():
    from matplotlib import pyplot

    pyplot.close("all")
    linear("rgb_array").render()
    assert pyplot.get_fignums() == []


def test_window_is_drawn_at_each_step_and_closed_without_a_display_too():
    from matplotlib import pyplot

    env = linear("human")
    env.step(dict.fromkeys(env.agents, 0))
    env.step(dict.fromkeys(env.agents, 1))
    assert env.render() is None
    assert pyplot.get_figlabels() == ["fedbandit"]
    (titles,) = [figure._suptitle.get_text() for figure in map(pyplot.figure, pyplot.get_fignums())]
    assert titles.startswith("step 2 of 5")
    env.close()
    env.close()
    assert pyplot.get_fignums() == []


def test_plans_are_in_the_picture_too():
    env = linear("ansi")
    env.pull(fb.Plan(np.array([[1, 0, 2]] * 4), np.array([1, 1, 1, 1]), 5))
    assert "pulls 1 2 2" in env.render()


def test_views_and_wrapped_environments_render():
    one = OneAgentView("Linear", agent=2, render_mode="ansi")
    one.reset(seed=0)
    one.step(1)
    assert one.render().splitlines()[1].startswith("agent 2:")
    joint = JointView("Linear", render_mode="ansi")
    joint.reset(seed=0)
    assert len(joint.render().splitlines()) == 5
    assert fb.RecordRegret(linear("ansi")).env.render() == linear("ansi").render()


def test_vector_environment_has_one_picture_for_each_row():
    envs = AgentsVectorEnv("Linear", num_envs=3, render_mode="rgb_array")
    envs.reset(seed=0)
    frames = envs.render()
    assert len(frames) == 3
    assert frames[0].shape[2] == 3
    shown = AgentsVectorEnv("Linear", num_envs=3, render_mode="human")
    shown.reset(seed=0)
    shown.step([0, 1, 2])
    assert shown.render() is None
    shown.close()
    shown.close()


def test_rendering_without_a_mode_or_before_reset_is_refused():
    env = fb.make("fedbandit/Linear-v0")
    assert_refused(env.render, "render_mode", "None")
    assert_refused(fb.make("fedbandit/Linear-v0", render_mode="ansi").render, "reset()")


@pytest.mark.parametrize(("number", "most", "expected"), [(3, 5, [0, 1, 2]), (9, 3, [0, 4, 8]), (1, 5, [0])])
def test_agents_shown_are_spread_over_all(number, most, expected):
    assert rendering._spread(number, most).tolist() == expected
