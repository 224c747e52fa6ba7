"""Robust aggregation: weights computed by hand, outliers with leverage, and what is left to the mean."""

import math

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_agents.phased.aggregation import lasting_bias, report_weights

SEVEN = np.array([-1.0, 0, 1, -1, 0, 1, 100])


def of_one_dimension(values: np.ndarray, pulls: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """G and m of reports about one arm in one dimension: mean rewards of so many pulls."""
    pulls = np.ones(len(values)) if pulls is None else pulls
    return pulls.reshape(-1, 1, 1, 1), (pulls * values).reshape(-1, 1, 1)


def of_plane(angles: np.ndarray, theta: np.ndarray, pulls: float = 100.0) -> tuple[np.ndarray, np.ndarray]:
    """G and m of exact reports about one arm of two dimensions, along directions with these angles."""
    e = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    gram = pulls * e[:, None, :, None] * e[:, None, None, :]
    return gram, pulls * (e @ theta)[:, None, None] * e[:, None, :]


def test_the_mean_believes_every_report() -> None:
    gram, moments = of_one_dimension(SEVEN, np.array([1.0, 2, 0, 1, 1, 1, 1]))
    np.testing.assert_array_equal(report_weights(gram, moments, "mean", 1.0)[:, 0], [1, 1, 0, 1, 1, 1, 1])


def test_hubers_weights_are_those_computed_by_hand() -> None:
    """The scale is 2, since 1.4826 times the median 1 is less. The outlier counts as 2 * 1.345 = 2.69, divided by 6."""
    weights = report_weights(*of_one_dimension(SEVEN), "huber", least_scale=2.0)[:, 0]
    np.testing.assert_allclose(weights[:6], 1)
    assert weights[6] == pytest.approx(2.69 / (100 - 2.69 / 6), rel=1e-6)


def test_tukeys_weights_are_those_computed_by_hand() -> None:
    """The outlier is 50 scales away and gets 0; the rest is symmetric about 0, half a scale of six away."""
    weights = report_weights(*of_one_dimension(SEVEN), "tukey", least_scale=2.0)[:, 0]
    near = (1 - (0.5 / 6) ** 2) ** 2
    np.testing.assert_allclose(weights, [near, 1, near, near, 1, near, 0], rtol=1e-6)


def test_the_scale_is_the_median_where_no_least_scale_is_known() -> None:
    weights = report_weights(*of_one_dimension(SEVEN), "huber", least_scale=0.0)[:, 0]
    bend = 1.345 * 1.4826
    assert weights[6] == pytest.approx(bend / (100 - bend / 6), rel=0.05)


@pytest.mark.parametrize("aggregation", ["huber", "tukey"])
def test_an_outlier_cannot_hide_behind_its_leverage(aggregation: str) -> None:
    """Two thousand pulls make plain least squares follow the lie, so that its residual is the smallest of all."""
    gram, moments = of_one_dimension(np.array([-0.2, 0.1, 0.0, -0.1, 0.2, 50.0]), np.array([1.0, 1, 1, 1, 1, 2000]))
    assert moments.sum() / gram.sum() > 49
    weights = report_weights(gram, moments, aggregation, least_scale=0.1)
    assert abs((weights[..., None] * moments).sum() / (weights[..., None, None] * gram).sum()) < 0.3


@pytest.mark.parametrize("aggregation", ["huber", "tukey"])
def test_a_third_of_flipped_signs_does_not_turn_a_plane(aggregation: str) -> None:
    theta = np.array([0.6, -0.3])
    gram, moments = of_plane(np.linspace(0, np.pi, 12, endpoint=False) + 0.1, theta)
    moments[::3] *= -1
    weights = report_weights(gram, moments, aggregation, least_scale=1.0)
    total = np.einsum("na,nade->ade", weights, gram)[0]
    found = np.linalg.solve(total, np.einsum("na,nad->ad", weights, moments)[0])
    naive = np.linalg.solve(gram.sum(axis=0)[0], moments.sum(axis=0)[0])
    assert np.linalg.norm(found - theta) < 0.15 < np.linalg.norm(naive - theta)


def test_so_few_reports_that_nobody_can_tell_keep_the_mean() -> None:
    gram, moments = of_plane(np.array([0.1, 1.0, 2.0]), np.array([1.0, 0.0]))
    moments[0] *= -100
    np.testing.assert_array_equal(report_weights(gram, moments, "tukey", 1.0), 1)


def test_an_arm_without_reports_has_no_weights_and_disturbs_no_other() -> None:
    gram, moments = of_one_dimension(SEVEN)
    both = np.concatenate([gram, 0 * gram], axis=1), np.concatenate([moments, 0 * moments], axis=1)
    weights = report_weights(*both, "tukey", 2.0)
    np.testing.assert_array_equal(weights[:, 1], 0)
    np.testing.assert_array_equal(weights[:, :1], report_weights(gram, moments, "tukey", 2.0))


def test_a_bias_that_lasts_excuses_reports_of_many_pulls() -> None:
    """10,000 pulls with a bias of 0.1 are 10 deviations of noise off; a bias of that variance makes that 1."""
    values, pulls = np.array([0.1, -0.1, 0, 0, 0, 0, 0]), np.array([1e4, 1e4, 1, 1, 1, 1, 1])
    strict, lenient = (
        report_weights(*of_one_dimension(values, pulls), "tukey", 1.0, bias=bias)[0, 0] for bias in (0.0, 0.01)
    )
    assert strict == 0
    assert lenient > 0.9


def test_only_a_fixed_context_with_a_guarantee_biases_for_ever() -> None:
    def bias(**arguments: object) -> float:
        env = fb.make("fedbandit/Synthetic-v0", num_agents=2, **{"context_std": 0.1, "noise_std": 0.5, **arguments})
        env.reset(seed=0)
        return lasting_bias(env.view().constants)

    assert bias() == pytest.approx(0.01 / 0.25)
    assert bias(context="resampled") == bias(observe="context") == bias(error="classical") == bias(noise_std=0.0) == 0


def test_weights_are_shares_whatever_is_reported() -> None:
    """Exact fits, huge numbers, equal directions, few reports: 600 seeded cases, without a warning."""
    rng = np.random.default_rng(0)
    for case in range(600):
        n, arms, d = rng.integers(1, 25), rng.integers(1, 4), rng.integers(1, 5)
        e = rng.normal(size=(1 if case % 5 == 0 else n, arms, d)) * np.ones((n, 1, 1))
        pulls = rng.integers(0, (2, 5, 10**6)[case % 3], size=(n, arms)).astype(float)
        noise = rng.normal(size=(n, arms)) * (0.0, 1.0, 1e-12)[case % 3] * math.pow(10, rng.integers(-3, 90))
        gram = np.einsum("na,nad,nae->nade", pulls, e, e)
        moments = (pulls * (case % 2 + noise))[..., None] * e
        weights = report_weights(gram, moments, ("huber", "tukey")[case % 2], (0.0, 1.0)[case % 4 // 2])
        assert ((weights >= 0) & (weights <= 1)).all()
