"""The checks at the door."""

from decimal import Decimal

import numpy as np
import pytest
from refusals import assert_refused

from fedbandit_envs.validation import nearest, one_of, probability, real_array, real_number, whole_number


def test_a_checked_array_is_a_read_only_float_copy_in_c_order():
    given = np.asfortranarray(np.arange(6).reshape(2, 3))
    array = real_array("theta", given, ("arms", 3))
    assert array.dtype == np.float64
    assert array.flags.c_contiguous
    assert not array.flags.writeable
    given[0, 0] = 99
    assert array[0, 0] == 0


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ([[1.0, np.nan]], ("finite", "nan at index (0, 1)")),
        ([[np.inf, 0.0]], ("finite", "inf at index (0, 0)")),
        ([1.0, 2.0], ("(arms, 2)", "(2,)")),
        ([[1.0, 2.0, 3.0]], ("(arms, 2)", "(1, 3)")),
        (np.zeros((0, 2)), ("(arms, 2)", "no axis of length 0", "(0, 2)")),
        ("text", ("real numbers", "'text'")),
        ([["1", "2"]], ("real numbers",)),
        ([[1.0], [1.0, 2.0]], ("real numbers", "[[1.0], [1.0, 2.0]]")),
        ([[1j, 2.0]], ("real numbers",)),
        ([[Decimal(1), None]], ("real numbers", "None")),
        (None, ("real numbers", "None")),
    ],
)
def test_what_is_no_finite_array_of_the_shape_is_refused_by_name(value, parts):
    assert_refused(lambda: real_array("theta", value, ("arms", 2)), "theta: ", *parts)


def test_a_refused_value_is_not_printed_in_full():
    message = assert_refused(lambda: real_array("theta", ["x" * 10_000], ("arms",)))
    assert len(message) < 400


@pytest.mark.parametrize("value", [0, -1, 1.5, 2.0, "3", None, True, np.True_, np.float64(2), [2]])
def test_what_is_no_whole_number_of_at_least_one_is_refused(value):
    assert_refused(lambda: whole_number("num_agents", value, at_least=1), "num_agents: ", "at least 1", repr(value))


@pytest.mark.parametrize("value", [1, np.int32(1), np.uint8(1)])
def test_whole_numbers_of_any_integer_type_become_ints(value):
    assert type(whole_number("n", value, at_least=1)) is int


@pytest.mark.parametrize(
    "value", [np.nan, np.inf, -0.1, "1", b"1", None, True, np.True_, [1.0], np.array([1.0]), 10**400, 1j]
)
def test_what_is_no_finite_number_in_range_is_refused(value):
    assert_refused(lambda: real_number("noise_std", value, at_least=0), "noise_std: ", "at least 0")


def test_bounds_of_a_number_are_open_or_closed_as_stated():
    assert real_number("x", 0, at_least=0) == 0
    assert_refused(lambda: real_number("x", 0, above=0), "above 0")
    assert_refused(lambda: real_number("x", "low"), "expected a finite number, ")


@pytest.mark.parametrize("value", [0, 1, -0.5, 2, np.nan])
def test_probabilities_lie_strictly_between_zero_and_one(value):
    assert_refused(lambda: probability("delta", value), "delta: ", str(value))


@pytest.mark.parametrize("value", ["fixt", "", None, 3, ["fixed"], np.array(["fixed", "resampled"]), np.zeros(2)])
def test_an_unknown_choice_is_refused_with_all_choices(value):
    assert_refused(lambda: one_of("context", value, ("fixed", "resampled")), "context: ", "'fixed', 'resampled'")


def test_the_nearest_names_are_suggested():
    assert nearest("Synthetik", ["Synthetic", "MovieLens"]) == "; did you mean 'Synthetic'?"
    assert nearest("zzz", ["Synthetic", "MovieLens"]) == ""
