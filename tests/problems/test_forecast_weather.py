"""The weather of the forecast problem: honest forecasts, the stated covariances, the same bytes however it is drawn."""

import numpy as np
import pytest
from refusals import assert_refused
from scipy.special import ndtr
from scipy.stats import chisquare, kstest

from fedbandit_envs.contexts.finite import Discrete
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.problems.forecast_weather import Climate, WeatherStream
from fedbandit_envs.seeding import Randomness, Stream

FALSE_ALARM = 1e-4  # an honest forecast fails one of the tests of calibration with this probability


def stream(climate, num_agents=4, seed=0, rows=None):
    return WeatherStream(climate, Randomness(seed, Stream.CONTEXTS, num_agents, rows), steps=256)


def drawn(climate, steps, **arguments):
    """The weather (steps, n, V), and the mean and members of its forecasts, of at least so many steps."""
    source = stream(climate, **arguments)
    blocks = [source.block(number) for number in range(-(-steps // source.steps))]
    members = None if climate.members is None else np.concatenate([block.members for block in blocks])
    return np.concatenate([b.weather for b in blocks]), np.concatenate([b.mean for b in blocks]), members


def chance_of_the_places(climate):
    """The p-value of the probability integral transform of 10,240 independent forecasts: is it uniform?"""
    weather, mean, _ = drawn(climate, 1024, num_agents=10)
    places = ndtr((weather - mean) / (climate.dispersion * climate.spread))
    return kstest(places.ravel(), "uniform").pvalue


def chance_of_the_ranks(climate):
    """The p-value of the ranks of the weather among the members, for 10,240 independent forecasts: are they uniform?

    The weather is one of S members if the forecast is honest, so it has S ranks.
    """
    weather, _, members = drawn(climate, 1024, num_agents=10)
    ranks = (members < weather[:, :, None]).sum(axis=2).clip(max=climate.members - 1)
    return chisquare(np.bincount(ranks.ravel(), minlength=climate.members)).pvalue


# Sites and variables must be independent here, because the tests of uniformity assume it.
INDEPENDENT = {"correlation": 0.0, "variables": 1}


@pytest.mark.parametrize(("persistence", "skill"), [(0.0, 0.0), (0.8, 0.5), (0.99, 0.9)])
def test_the_place_of_the_weather_in_an_honest_gaussian_forecast_is_uniform(persistence, skill):
    assert chance_of_the_places(Climate(persistence=persistence, skill=skill, **INDEPENDENT)) > FALSE_ALARM


@pytest.mark.parametrize("members", [2, 10, 51])
def test_the_rank_of_the_weather_in_an_honest_ensemble_is_uniform(members):
    assert chance_of_the_ranks(Climate(correlation=0.0, variables=1, members=members)) > FALSE_ALARM


def test_an_overconfident_forecast_fails_the_tests_of_calibration():
    assert chance_of_the_places(Climate(dispersion=0.5, **INDEPENDENT)) < 1e-12
    assert chance_of_the_ranks(Climate(dispersion=0.5, members=10, **INDEPENDENT)) < 1e-12


def test_a_forecast_that_is_too_wide_fails_them_too():
    assert chance_of_the_places(Climate(dispersion=2.0, **INDEPENDENT)) < 1e-12
    assert chance_of_the_ranks(Climate(dispersion=2.0, members=10, **INDEPENDENT)) < 1e-12


def test_the_forecast_of_one_among_correlated_sites_is_honest_too():
    weather, mean, _ = drawn(Climate(correlation=0.9, variables=1), 10_240, num_agents=3)
    places = ndtr((weather - mean)[:, 1, 0] / Climate().spread)
    assert kstest(places, "uniform").pvalue > FALSE_ALARM


def test_the_error_of_a_forecast_is_independent_of_everything_that_was_known():
    # Correlations of 20,000 pairs have the standard error 0.007; beyond 5 of them: fewer than 1e-5 of runs.
    weather, mean, _ = drawn(Climate(correlation=0.5, variables=1, skill=0.3), 20_000, num_agents=2)
    error = (weather - mean)[..., 0]
    known = [mean[:, 0, 0], mean[:, 1, 0], np.roll(error[:, 0], 1), np.roll(weather[:, 0, 0], 1)]
    for number in known:
        assert abs(np.corrcoef(number, error[:, 0])[0, 1]) < 5 / np.sqrt(20_000)


def test_with_an_honest_ensemble_the_weather_is_one_of_the_members_the_same_at_all_sites():
    weather, _, members = drawn(Climate(members=5), 200, num_agents=3)
    is_it = (members == weather[:, :, None]).all(axis=3)  # (steps, n, S)
    np.testing.assert_array_equal(is_it.sum(axis=2), 1)
    np.testing.assert_array_equal(is_it, is_it[:, :1].repeat(3, axis=1))


def test_each_member_comes_true_equally_often_whatever_its_place():
    weather, _, members = drawn(Climate(members=5), 2048, num_agents=1)
    place = (members == weather[:, :, None]).all(axis=3)[:, 0].argmax(axis=1)
    assert chisquare(np.bincount(place, minlength=5)).pvalue > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("members", [None, 4])
def test_the_weather_is_stationary_with_the_stated_covariances(members):
    """Means over 4,000 independent runs of 2 sites; the standard errors are below 0.023, and 5 of them are allowed."""
    climate = Climate(variables=1, persistence=0.7, correlation=0.4, skill=0.5, members=members)
    runs = np.stack([drawn(climate, 20, num_agents=2, seed=seed)[0][[0, 10, 11, 13], :, 0] for seed in range(4000)])
    first, later, next_day, three_on = np.moveaxis(runs, 1, 0)  # (runs, 2) each
    for at, other, expected in [
        (first[:, 0], first[:, 0], 1.0),
        (later[:, 1], later[:, 1], 1.0),
        (first[:, 0], first[:, 1], 0.4),
        (later[:, 0], later[:, 1], 0.4),
        (later[:, 0], next_day[:, 0], 0.7),
        (later[:, 0], three_on[:, 0], 0.7**3),
        (later[:, 1], three_on[:, 0], 0.4 * 0.7**3),
    ]:
        assert (at * other).mean() == pytest.approx(expected, abs=5 * 0.023)
    assert abs(runs.mean(axis=0)).max() < 5 / np.sqrt(4000)


def test_skill_and_persistence_say_how_far_forecasts_miss():
    # The variance of 20,480 independent errors has a relative standard error of 1 %; 5 % are allowed.
    for persistence, skill, expected in [(0.6, 0.75, 0.16), (0.6, 0.0, 0.64), (0.0, 0.5, 0.5), (0.9, 1.0, 0.0)]:
        climate = Climate(persistence=persistence, skill=skill, **INDEPENDENT)
        weather, mean, _ = drawn(climate, 2048, num_agents=10)
        assert (weather - mean).var() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.parametrize("rows", [[0], [4, 2], [3, 4, 0, 1, 2]])
def test_a_block_of_sites_has_the_bytes_of_its_rows(members, rows):
    climate, rows = Climate(members=members), np.array(rows)
    whole, own = stream(climate, 5), stream(climate, 5, rows=rows)
    for number in range(2):
        every, some = whole.block(number), own.block(number)
        np.testing.assert_array_equal(some.weather, every.weather[:, rows])
        np.testing.assert_array_equal(some.mean, every.mean[:, rows])
        if members:
            np.testing.assert_array_equal(some.members, every.members[:, rows])


def test_sites_of_several_groups_of_random_numbers_have_the_bytes_of_their_rows_too():
    climate, rows = Climate(variables=1), np.array([5000, 3])
    whole, own = stream(climate, 5001).block(1), stream(climate, 5001, rows=rows).block(1)
    np.testing.assert_array_equal(own.weather, whole.weather[:, rows])


def test_blocks_have_the_same_bytes_in_whatever_order_they_are_read():
    in_order, anyhow = stream(Climate()), stream(Climate())
    blocks = [in_order.block(number) for number in range(4)]
    for number in (2, 0, 3, 3, 1):
        np.testing.assert_array_equal(anyhow.block(number).weather, blocks[number].weather)


def test_the_weather_goes_on_from_block_to_block():
    climate = Climate(persistence=0.999, skill=0.0, variables=1)
    source = stream(climate)
    before, after = source.block(0), source.block(1)
    np.testing.assert_array_equal(after.mean[0], 0.999 * before.weather[-1])


def test_a_reader_who_writes_into_a_block_does_not_change_the_next_one():
    source, untouched = stream(Climate()), stream(Climate())
    source.block(0).weather[:] = 0
    untouched.block(0)
    np.testing.assert_array_equal(source.block(1).weather, untouched.block(1).weather)


def test_a_forecast_is_shown_as_a_distribution_of_all_sites():
    gaussian, ensemble = stream(Climate(dispersion=0.5)).block(0), stream(Climate(members=6)).block(0)
    shown = gaussian.forecast(3)
    assert isinstance(shown, Gaussian)
    np.testing.assert_array_equal(shown.mean, gaussian.mean[3])
    assert np.unique(shown.std) == pytest.approx(0.5 * np.sqrt(0.36 * 0.5))
    shown = ensemble.forecast(3)
    assert isinstance(shown, Discrete)
    np.testing.assert_array_equal(shown.support, ensemble.members[3])
    assert np.unique(shown.weights) == pytest.approx(1 / 6)


def test_psi_is_the_expected_weather_under_what_is_shown():
    from fedbandit_envs.contexts.features import Identity

    for climate in (Climate(), Climate(members=6, dispersion=0.7)):
        block = stream(climate).block(0)
        expected = block.forecast(5).expected_features(Identity(num_arms=1, dim=3))[:, 0]
        np.testing.assert_allclose(block.psi[5], expected, atol=1e-14)


@pytest.mark.parametrize(
    "climate", [Climate(), Climate(members=2, dispersion=2.0), Climate(persistence=0.0, skill=1.0)]
)
def test_no_expected_weather_is_longer_than_the_climate_says(climate):
    source = stream(climate, num_agents=20)
    norms = np.concatenate([np.linalg.norm(source.block(number).psi, axis=2).ravel() for number in range(10)])
    bound = climate.longest(norms.size)
    assert 0.5 * bound < norms.max() < bound
    # At x = 0 the square is the mean of the squared norms. 2,560 days that are correlated tell it to a few per cent.
    assert (norms**2).mean() == pytest.approx(climate.longest(1, chance=1.0) ** 2, rel=0.2)


def test_seeds_make_different_weather():
    assert not np.array_equal(stream(Climate(), seed=0).block(0).weather, stream(Climate(), seed=1).block(0).weather)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("variables", 0),
        ("persistence", 1.0),
        ("persistence", -0.1),
        ("correlation", 1.1),
        ("skill", 1.5),
        ("skill", float("nan")),
        ("members", 1),
        ("members", 2.0),
        ("dispersion", 0.0),
    ],
)
def test_what_is_no_climate_is_refused(name, value):
    assert_refused(lambda: Climate(**{name: value}), f"{name}: ", repr(value))
