import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedbandit_envs.experiments.statistics import holm, paired_difference, proportion, student_band


def test_band_of_one_trial_is_empty() -> None:
    band = student_band(np.array([[3.0, 4.0]]))
    assert band.mean.tolist() == [3.0, 4.0]
    assert np.isnan([band.low, band.high]).all()


def test_band_of_equal_trials_has_no_width() -> None:
    for value in (0.1, 0.3, 1e9 / 7):
        band = student_band(np.full((7, 2), value))
        assert band.low.tolist() == band.high.tolist() == band.mean.tolist()


def test_band_by_hand() -> None:
    band = student_band(np.array([[1.0, 10.0], [2.0, 10.0], [3.0, 16.0]]))  # standard errors 1 / sqrt(3) and 2
    assert band.mean.tolist() == [2, 12]
    assert band.high - band.mean == pytest.approx([4.3027 / np.sqrt(3), 4.3027 * 2], abs=1e-3)  # t_{0.975, 2} = 4.3027
    assert band.mean - band.low == pytest.approx(band.high - band.mean)


@pytest.mark.parametrize("trials", [2, 3, 10, 100])
def test_band_agrees_with_scipy(trials: int) -> None:
    values = np.random.default_rng(0).normal(size=(trials, 3))
    band = student_band(values)
    low, high = stats.t.interval(0.95, trials - 1, values.mean(axis=0), stats.sem(values))
    np.testing.assert_allclose([band.low, band.high], [low, high], rtol=1e-10)


def coverage(trials: int, experiments: int, shape: float | None, seed: int) -> float:
    """How often the interval holds the true mean, if trials are normal or gamma of that shape."""
    rng, size = np.random.default_rng(seed), (trials, experiments)
    values = rng.normal(size=size) if shape is None else rng.gamma(shape, size=size) - shape
    band = student_band(values)
    return float(((band.low <= 0) & (band.high >= 0)).mean())


@pytest.mark.parametrize("trials", [3, 4, 5, 10, 20, 40, 100])
def test_band_covers_the_mean_as_often_as_it_says(trials: int) -> None:
    """With 20,000 experiments a coverage is known to 0.0016 (normal) or 0.002 (gamma).

    The true coverages are 0.95 and at least 0.914, so each bound is more than six standard deviations away: a false
    alarm has a chance below 1e-9 over other seeds. Percentile bootstraps cover 0.81 at 4 trials and 0.90 at 10.
    """
    assert abs(coverage(trials, 20_000, None, seed=trials) - 0.95) < 0.01
    assert coverage(trials, 20_000, 2.0, seed=trials) > 0.90


@pytest.mark.study
@pytest.mark.parametrize("trials", range(3, 101))
def test_band_covers_the_mean_for_every_number_of_trials(trials: int) -> None:
    """With 100,000 experiments a coverage is known to 0.0007 (normal) or 0.0009 (gamma).

    The bounds are about five standard deviations from the truth: a false alarm in any of the 98 numbers of trials has
    a chance below 1e-3 over other seeds.
    """
    assert abs(coverage(trials, 100_000, None, seed=trials) - 0.95) < 0.0035
    assert coverage(trials, 100_000, 2.0, seed=trials) > 0.91


def test_band_refuses_nan() -> None:
    with pytest.raises(ValueError, match="expected finite numbers, got nan at index"):
        student_band(np.array([[1.0], [np.nan]]))


def test_paired_difference_agrees_with_scipy() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=30), rng.normal(0.3, size=30)
    found, known = paired_difference(first, second), stats.ttest_rel(first, second)
    interval = known.confidence_interval(0.95)
    assert found.p_value == pytest.approx(known.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_paired_difference_by_hand() -> None:
    found = paired_difference(np.array([3.0, 5.0, 4.0]), np.array([1.0, 2.0, 3.0]))  # differences 2, 3, 1
    assert found.mean == 2
    assert found.high - found.mean == pytest.approx(4.3027 / np.sqrt(3), abs=1e-3)  # t_{0.975, 2} = 4.3027
    assert found.verdict == "undecided"


def test_verdict_follows_the_interval() -> None:
    ones, noise = np.ones(20), np.random.default_rng(4).normal(0, 0.1, 20)
    assert paired_difference(ones + noise, 0 * ones).verdict == "holds"
    assert paired_difference(0 * ones, ones + noise).verdict == "fails"
    assert paired_difference(noise, 0 * ones).verdict == "undecided"


def test_equal_trials_do_not_differ_and_constant_differences_are_certain() -> None:
    same = paired_difference(np.ones(5), np.ones(5))
    assert (same.mean, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    apart = paired_difference(np.full(5, 3.0), np.ones(5))
    assert (apart.low, apart.high, apart.p_value) == (2, 2, 0)


def test_one_trial_decides_nothing() -> None:
    found = paired_difference(np.array([2.0]), np.array([1.0]))
    assert np.isnan([found.low, found.high, found.p_value]).all()
    assert (found.mean, found.verdict) == (1, "undecided")


def test_paired_difference_refuses_unequal_trials() -> None:
    with pytest.raises(ValueError, match=r"second: expected shape \(3,\), got \(2,\)"):
        paired_difference(np.ones(3), np.ones(2))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_does_not_count_tests_that_could_not_be_made() -> None:
    first, missing, second = holm([0.01, np.nan, 0.03])
    assert (first, second) == (0.02, 0.03)
    assert np.isnan(missing)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_and_keeps_the_order(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert all(p <= c <= 1 for p, c in zip(p_values, corrected, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.array(corrected)[order]) >= 0).all()


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (10, 10), (40, 40)])
def test_proportion_agrees_with_scipy(successes: int, trials: int) -> None:
    found = proportion(successes, trials)
    known = stats.binomtest(successes, trials).proportion_ci(0.95, "exact")
    assert (found.low, found.high) == pytest.approx((known.low, known.high))


def test_proportion_refuses_more_successes_than_trials() -> None:
    with pytest.raises(ValueError, match="successes: expected 0 to 3, the trials, got 4"):
        proportion(4, 3)
