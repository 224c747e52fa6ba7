import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedbandit_envs.experiments.statistics import bootstrap_band, holm, paired_difference, proportion


def test_band_of_one_trial_has_no_width() -> None:
    band = bootstrap_band(np.array([[3.0, 4.0]]))
    assert band.low.tolist() == band.mean.tolist() == band.high.tolist() == [3.0, 4.0]


def test_band_of_equal_trials_has_no_width() -> None:
    band = bootstrap_band(np.full((7, 2), 0.1))
    assert band.low.tolist() == band.high.tolist() == [0.1, 0.1]


def test_band_is_the_same_every_time() -> None:
    values = np.random.default_rng(0).normal(size=(20, 3))
    first, second = bootstrap_band(values), bootstrap_band(values)
    assert first.low.tobytes() == second.low.tobytes()
    assert first.high.tobytes() == second.high.tobytes()


def test_band_is_as_wide_as_the_normal_interval_for_many_trials() -> None:
    values = np.random.default_rng(1).normal(size=(400, 1))
    band = bootstrap_band(values, draws=20_000)
    half = 1.96 * values.std() / 20
    assert (band.high - band.low)[0] == pytest.approx(2 * half, rel=0.05)


def test_band_covers_the_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(40, 1000))  # 1000 experiments of 40 trials, mean 0
    band = bootstrap_band(values)
    covered = ((band.low <= 0) & (band.high >= 0)).mean()
    assert 0.92 < covered < 0.97  # false alarm below 1e-3 at a true coverage of 0.945


def test_band_refuses_nan() -> None:
    with pytest.raises(ValueError, match="expected finite numbers, got nan at index"):
        bootstrap_band(np.array([[1.0], [np.nan]]))


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
    assert (found.low, found.high, found.p_value, found.verdict) == (-np.inf, np.inf, 1, "undecided")


def test_paired_difference_refuses_unequal_trials() -> None:
    with pytest.raises(ValueError, match=r"second: expected shape \(3,\), got \(2,\)"):
        paired_difference(np.ones(3), np.ones(2))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


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
