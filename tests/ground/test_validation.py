"""The checks at the door."""

import dataclasses
import doctest
from decimal import Decimal

import numpy as np
import pytest
from refusals import assert_refused

from fedbandit_envs import validation
from fedbandit_envs.validation import (
    check_fields,
    checked,
    nearest,
    needs,
    one_of,
    optional,
    probability,
    real_array,
    real_number,
    whole_number,
)


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


@dataclasses.dataclass(frozen=True)
class Settings:
    delta: float = checked(0.1, probability)
    sigma: float | None = checked(None, optional(real_number), above=0)
    free: str = "anything"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclasses.dataclass(frozen=True)
class More(Settings):
    rounds: int = checked(1, whole_number, at_least=1)


class TestChecksBesideTheField:
    @pytest.mark.parametrize(
        ("values", "parts"),
        [
            ({"delta": 2}, ("delta: ", "between 0 and 1", "2")),
            ({"sigma": 0}, ("sigma: ", "above 0", "0")),
            ({"rounds": 0}, ("rounds: ", "at least 1", "0")),
        ],
    )
    def test_a_value_is_refused_under_the_name_of_its_field_also_where_it_is_inherited(self, values, parts):
        assert_refused(lambda: More(**values), *parts)
        assert_refused(lambda: dataclasses.replace(More(), **values), *parts)

    def test_what_passes_is_kept_as_it_was_given(self):
        assert More(0.2, 3, "x", 4) == More(delta=0.2, sigma=3, free="x", rounds=4)
        assert type(More(sigma=3).sigma) is int

    def test_none_passes_only_where_it_is_optional(self):
        assert Settings(sigma=None).sigma is None
        assert_refused(lambda: Settings(delta=None), "delta: ", "None")

    def test_the_first_field_that_fails_is_named(self):
        assert_refused(lambda: More(delta=0, sigma=-1, rounds=0), "delta: ")

    def test_defaults_are_those_of_the_fields_and_are_checked_too(self):
        assert {field.name: field.default for field in dataclasses.fields(More)} == {
            "delta": 0.1,
            "sigma": None,
            "free": "anything",
            "rounds": 1,
        }

        @dataclasses.dataclass(frozen=True)
        class Wrong(Settings):
            rounds: int = checked(0, whole_number, at_least=1)

        assert_refused(Wrong, "rounds: ", "at least 1")


def test_a_missing_package_is_refused_with_the_extra_that_brings_it():
    needs("numpy", extra="ray")
    with pytest.raises(ImportError, match=r"^ray: expected no_such_package .*got none; .*pip .*'\.\[ray\]'$"):
        needs("no_such_package", extra="ray")
    with pytest.raises(ImportError, match=r"ray]', or use processes$"):
        needs("no_such_package", extra="ray", instead="use processes")


def test_examples_run_as_they_stand():
    found = doctest.testmod(validation)
    assert found.attempted > 0
    assert found.failed == 0
