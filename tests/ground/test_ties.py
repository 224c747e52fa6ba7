"""The rule for numbers that are equal but for rounding."""

import numpy as np
import pytest

from fedbandit_envs.ties import TIE, first_largest


@pytest.mark.parametrize(
    ("values", "first"),
    [
        ([1.0, 1.0 + 1e-15, 0.5], 0),
        ([0.5, 1.0, 1.0 + 1e-15], 1),
        ([1.0, 1.0 + 1e-6, 0.5], 1),  # a difference that means something
        ([1e-30, 2e-30, 0.0], 1),  # the tolerance is relative
        ([-100.0, 1e-9, 2e-9], 1),  # a tie is relative to the largest magnitude
        ([-np.inf, 2.0, 2.0 + 1e-15], 1),
        ([-np.inf, 2e-9, 4e-9], 2),  # what can't be chosen has no magnitude
        ([0.0, 0.0, 0.0], 0),
        ([-np.inf, -np.inf, -np.inf], 0),
        ([1.0, np.inf, 2.0], 1),
    ],
)
def test_the_first_of_the_largest_wins(values, first):
    assert first_largest(np.array([values, [3.0, 1.0, 2.0]])).tolist() == [first, 0]


def test_a_tolerance_of_ones_own_replaces_the_magnitude():
    values = np.array([[1.0, 1.5, 1.6], [1.0, 1.5, 1.6]])
    assert first_largest(values, np.array([0.2, 0.0])).tolist() == [1, 2]


def test_noise_in_the_last_bits_never_decides():
    rng = np.random.default_rng(0)
    values = rng.integers(-3, 4, size=(2000, 6)) / 7
    noisy = values * (1 + 1e-14 * rng.normal(size=values.shape))
    np.testing.assert_array_equal(first_largest(noisy), values.argmax(axis=1))
    assert (noisy.argmax(axis=1) != values.argmax(axis=1)).mean() > 0.1
    assert TIE > 1e-14
