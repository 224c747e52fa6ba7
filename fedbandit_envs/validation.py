"""Checks at the door: every message says what was expected, what came, and what to do."""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import field, fields
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from reprlib import Repr
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fedbandit_envs.arrays import FloatArray, read_only

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_REPR = Repr()


def real_array(name: str, value: ArrayLike, shape: tuple[int | str, ...]) -> FloatArray:
    """A finite float array of the given shape, read-only and nobody else's.

    A string in `shape` names an axis of any positive length.
    """
    expected = "(" + ", ".join(str(axis) for axis in shape) + ("," if len(shape) == 1 else "") + ")"
    array = real_numbers(name, value, f"of shape {expected}")
    fits = array.ndim == len(shape) and all(
        size > 0 if isinstance(axis, str) else size == axis for size, axis in zip(array.shape, shape, strict=True)
    )
    if not fits:
        empty = ", no axis of length 0" if 0 in array.shape else ""
        raise ValueError(
            f"{name}: expected shape {expected}{empty}, got {array.shape}; reshape it or check the other arguments"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite numbers, got {_first_bad(array)}; remove NaN and infinity first")
    return read_only(array)


def real_numbers(name: str, value: ArrayLike, of_shape: str) -> FloatArray:
    """A new float array of any shape, in C order; `of_shape` is what the message asks for."""

    def refusal() -> ValueError:
        return ValueError(
            f"{name}: expected an array of real numbers {of_shape}, got {_REPR.repr(value)}; pass numbers, in lists of "
            "equal lengths or as an array"
        )

    try:
        given = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise refusal() from error
    if given.dtype.kind not in "biuf":
        raise refusal()
    return np.array(given, dtype=np.float64, order="C")


def _first_bad(array: FloatArray) -> str:
    where = tuple(int(axis) for axis in np.argwhere(~np.isfinite(array))[0])
    return f"{array[where]} at index {where}"


def whole_number(name: str, value: Any, at_least: int, at_most: int | None = None) -> int:
    """The value as an int; refuses what is not a whole number or lies outside the range.

    Args:
        name: what the value is called in an error.
        value: the value. True and False are no numbers, and neither is 3.0.
        at_least: the smallest number that is allowed.
        at_most: the largest number that is allowed; None: there is none.

    >>> whole_number("trials", 5, at_least=1)
    5
    >>> whole_number("trials", 0, at_least=1)
    Traceback (most recent call last):
        ...
    ValueError: trials: expected a whole number of at least 1, got 0
    """
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
    if not whole or value < at_least or (at_most is not None and value > at_most):
        limits = f"of at least {at_least}" if at_most is None else f"of at least {at_least} and at most {at_most}"
        raise ValueError(f"{name}: expected a whole number {limits}, got {_REPR.repr(value)}")
    return int(value)


def real_number(name: str, value: Any, *, above: float | None = None, at_least: float | None = None) -> float:
    """`value` as a finite float, refused at or below `above`, or below `at_least`."""

    def refusal() -> ValueError:
        bound = f" above {above}" if above is not None else f" of at least {at_least}" if at_least is not None else ""
        return ValueError(
            f"{name}: expected a finite number{bound}, got {_REPR.repr(value)}; pass a number in that range"
        )

    if isinstance(value, (bool, np.bool_, str, bytes)) or (isinstance(value, np.ndarray) and value.ndim):
        raise refusal()
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise refusal() from error
    if (
        not math.isfinite(number)
        or (above is not None and number <= above)
        or (at_least is not None and number < at_least)
    ):
        raise refusal()
    return number


def probability(name: str, value: Any) -> float:
    """`value` as a float strictly between 0 and 1."""
    number = real_number(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name}: expected a number strictly between 0 and 1, got {value!r}; 0.1 is usual")
    return number


def true_or_false(name: str, value: Any) -> bool:
    """`value` if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}: expected True or False, got {value!r}; pass one of them")
    return bool(value)


def one_of(name: str, value: Any, choices: Collection[str]) -> str:
    """`value` if it is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        hint = nearest(value, choices) or "; choose one of these"
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {_REPR.repr(value)}{hint}")
    return value


def nearest(name: Any, known: Iterable[str]) -> str:
    """A hint with the known names most like `name`, or nothing."""
    by_letters = {choice.lower(): choice for choice in known}
    matches = [by_letters[match] for match in get_close_matches(str(name).lower(), list(by_letters), n=3, cutoff=0.5)]
    return f"; did you mean {' or '.join(map(repr, matches))}?" if matches else ""


def needs(package: str, extra: str, instead: str = "") -> None:
    """Refuse to go on without a package that an extra of this library brings.

    Only whether the package can be found is asked: it is not imported, which may take seconds.

    Args:
        package: the name under which it is imported, without dots.
        extra: the extra that brings it.
        instead: what a user can do who does not want to install it.

    Raises:
        ImportError: the package is not there. The message names the extra and how to install it.

    >>> needs("numpy", extra="compiled")
    """
    if find_spec(package) is None:
        other = f", or {instead}" if instead else ""
        raise ImportError(
            f"{extra}: expected {package} to be installed, got none; pip install 'fedbandit-envs[{extra}]'{other}"
        )


_Value = TypeVar("_Value")
_CHECK = "fedbandit_envs.check"  # the key of a field's check in its metadata, which other libraries may use too


def checked(default: _Value, check: Callable[..., object], **arguments: Any) -> _Value:
    """A dataclass field with a default and the check that every value of it must pass.

    The check stands beside the field and is called by `check_fields` with the field's name, so that no name is written
    twice. It works in frozen classes, is inherited with its field, and is made anew by `dataclasses.replace`. To a type
    checker the field has the type of its default, as with `dataclasses.field`.

    Args:
        default: the field's default.
        check: a function of name and value that raises, such as `probability`; wrap it in `optional` to allow None.
        arguments: keyword arguments of the check.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     delta: float = checked(0.1, probability)
    ...     sigma: float | None = checked(None, optional(real_number), above=0)
    ...
    ...     def __post_init__(self) -> None:
    ...         check_fields(self)
    >>> Settings(delta=0.05)
    Settings(delta=0.05, sigma=None)
    >>> Settings(delta=1.5)
    Traceback (most recent call last):
        ...
    ValueError: delta: expected a number strictly between 0 and 1, got 1.5; 0.1 is usual
    """
    made: _Value = field(default=default, metadata={_CHECK: partial(check, **arguments)})
    return made


def optional(check: Callable[..., object]) -> Callable[..., object]:
    """The same check, but None passes: it stands for a value that is found later.

    >>> optional(probability)("delta", None)
    >>> optional(probability)("delta", 0.5)
    0.5
    """

    def check_unless_none(name: str, value: Any, **arguments: Any) -> object:
        return None if value is None else check(name, value, **arguments)

    return check_unless_none


def check_fields(instance: "DataclassInstance") -> None:
    """Run the check of every field of a dataclass that was declared with `checked`, in the order of the fields.

    Call it in `__post_init__`. A subclass inherits that method and with it the checks of the fields it adds.
    """
    for parameter in fields(instance):
        check = parameter.metadata.get(_CHECK)
        if check is not None:
            check(parameter.name, getattr(instance, parameter.name))
