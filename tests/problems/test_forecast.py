"""The forecast problem: sites are shown the law of the weather that comes, and are paid by that weather."""

import numpy as np
import pytest
from refusals import assert_refused
from scipy.special import ndtr
from scipy.stats import chisquare, kstest

import fedbandit_envs as fb
from fedbandit_envs.problems.forecast import Forecast
from fedbandit_envs.problems.generator import draw_instance
from fedbandit_envs.problems.segments import Segments

FALSE_ALARM = 1e-4  # an honest forecast fails one of the tests of calibration with this probability
STEPS = 300
# Sites and variables must be independent where uniformity is tested, because the tests assume it.
INDEPENDENT = {"num_agents": 20, "num_arms": 2, "variables": 1, "correlation": 0.0}


def make(**arguments):
    return fb.make("fedbandit/Forecast-v0", **{"num_arms": 3, "max_cycles": STEPS, "reveal": "after", **arguments})


def rollout(env, seed=5):
    """What is shown before each step, by name, and the context that the infos reveal after it; (steps, M, ...) each."""
    shown, revealed = [], []
    observations, _ = env.reset(seed=seed)
    while env.agents:
        shown.append({name: np.stack([row[name] for row in observations.values()]) for name in observations["agent_0"]})
        observations, *_, infos = env.step(dict.fromkeys(env.agents, 0))
        revealed.append(np.stack([info["context"] for info in infos.values()]))
    return {name: np.stack([one[name] for one in shown]) for name in shown[0]}, np.stack(revealed)


def chance_of_the_places(**arguments):
    """The p-value of the probability integral transform of 6,000 independent Gaussian forecasts: is it uniform?"""
    shown, revealed = rollout(make(**INDEPENDENT, **arguments))
    places = ndtr((revealed - shown["mean"])[..., 1] / shown["std"][..., 1])
    return kstest(places.ravel(), "uniform").pvalue


def chance_of_the_ranks(**arguments):
    """The p-value of the ranks of the weather among the 8 members of 6,000 independent ensembles: are they uniform?"""
    shown, revealed = rollout(make(**INDEPENDENT, members=8, **arguments))
    ranks = (shown["support"][..., 1] < revealed[..., None, 1]).sum(axis=2).clip(max=7)
    return chisquare(np.bincount(ranks.ravel(), minlength=8)).pvalue


@pytest.mark.parametrize("chance", [chance_of_the_places, chance_of_the_ranks])
def test_what_is_shown_is_the_law_of_what_is_revealed(chance):
    assert chance() > FALSE_ALARM
    assert chance(persistence=0.3, skill=0.9) > FALSE_ALARM


@pytest.mark.parametrize("chance", [chance_of_the_places, chance_of_the_ranks])
def test_an_overconfident_forecast_is_not(chance):
    assert chance(dispersion=0.5) < 1e-12


@pytest.mark.parametrize("members", [None, 4])
def test_dispersion_changes_what_is_shown_and_not_what_comes(members):
    honest, weather = rollout(make(num_agents=2, members=members))
    narrow, same = rollout(make(num_agents=2, members=members, dispersion=0.5))
    assert weather.tobytes() == same.tobytes()
    if members is None:
        np.testing.assert_allclose(narrow["std"], 0.5 * honest["std"])
        assert narrow["mean"].tobytes() == honest["mean"].tobytes()
    else:
        assert np.ptp(narrow["support"], axis=2).mean() == pytest.approx(np.ptp(honest["support"], axis=2).mean() / 2)


def test_an_action_pays_its_base_and_its_effect_of_the_weather_that_comes():
    env = make(num_agents=4, noise_std=0.0)
    env.reset(seed=1)
    theta = env.instance.theta
    np.testing.assert_allclose(np.linalg.norm(theta, axis=1), 1)
    for arm in (0, 2, 1):
        _, rewards, *_, infos = env.step(dict.fromkeys(env.agents, arm))
        contexts = np.stack([info["context"] for info in infos.values()])
        np.testing.assert_array_equal(contexts[:, 0], 1)
        np.testing.assert_allclose(list(rewards.values()), contexts @ theta[arm])


def test_the_first_feature_is_known_and_the_others_are_as_uncertain_as_the_climate_says():
    shown, revealed = rollout(make(num_agents=2, persistence=0.6, skill=0.75))
    np.testing.assert_array_equal(shown["mean"][..., 0], 1)
    np.testing.assert_array_equal(shown["std"][..., 0], 0)
    np.testing.assert_allclose(shown["std"][..., 1:], 0.4)
    assert shown["mean"].shape == revealed.shape == (STEPS, 2, 4)


def test_tomorrow_is_foreseen_from_today():
    shown, revealed = rollout(make(num_agents=2, persistence=0.9, skill=0.0))
    np.testing.assert_allclose(shown["mean"][1:, :, 1:], 0.9 * revealed[:-1, :, 1:])


def test_with_skill_one_the_weather_is_known():
    shown, revealed = rollout(make(num_agents=2, skill=1.0))
    np.testing.assert_allclose(shown["mean"], revealed)


@pytest.mark.parametrize("arguments", [{}, {"members": 3}, {"members": 3, "dispersion": 2.0}])
def test_public_constants_hold_at_every_step(arguments):
    env = make(num_agents=20, max_cycles=2000, **arguments)
    env.reset(seed=0)
    constants = env.view().constants
    problem = Forecast(num_agents=20, num_arms=3, **arguments)
    drawn = Segments(problem, draw_instance(problem, 0), 0, None, 2000)
    norms = np.linalg.norm(np.stack([drawn.at(step).psi for step in range(2000)]), axis=-1)
    assert constants.ell <= norms.min() < norms.max() <= constants.L
    assert (constants.context, constants.theta_bound) == ("streaming", 1.0)
    assert constants.shortest is constants.longest is None  # the norms of the first step guarantee nothing


def test_a_variance_proxy_is_guaranteed_for_honest_gaussian_forecasts_only():
    def proxy(**arguments):
        env = make(num_agents=2, **arguments)
        env.reset(seed=0)
        return env.view().constants.context_proxy

    assert proxy() == pytest.approx(0.36 * 0.5)
    assert proxy(dispersion=0.9) is proxy(members=5) is None


def test_those_who_use_the_forecast_beat_those_who_do_not_and_those_who_see_the_weather_beat_both():
    """Means over 20 sites after 300 steps with one seed; Oracle plays the best arm of the forecast, by definition 0."""
    regret = {
        name: fb.play(make(num_agents=20), fb.make_policy(name), seed=0).mean_regret()[-1]
        for name in ("KK-UCB-Observed", "KK-UCB", "Uniform", "Oracle")
    }
    assert regret["Oracle"] == 0 < regret["KK-UCB-Observed"] < regret["KK-UCB"] < 0.8 * regret["Uniform"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_agents", 0),
        ("num_arms", 0),
        ("variables", 0),
        ("persistence", 1.0),
        ("correlation", -0.1),
        ("skill", 2.0),
        ("members", 1),
        ("dispersion", 0.0),
        ("noise_std", -1.0),
    ],
)
def test_what_is_no_forecast_is_refused(name, value):
    assert_refused(lambda: fb.make("fedbandit/Forecast-v0", **{name: value}), f"{name}: ", repr(value))
