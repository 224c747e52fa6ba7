"""Checks at the door: every message says what was expected and what came, and what to do where there is a choice.

The form of a message is "NAME: expected ..., got ...", and "; " before a remedy.
"""

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
    """A finite float array of the given shape: a copy that is read-only.

    Args:
        name: what the value is called in an error.
        value: numbers, in nested lists or in an array.
        shape: the length of each axis. A string stands for an axis of any positive length, and names it in an error.

    >>> real_array("theta", [[1, 2]], ("arms", 2))
    array([[1., 2.]])
    >>> real_array("theta", [[1, 2]], ("arms", 3))
    Traceback (most recent call last):
        ...
    ValueError: theta: expected shape (arms, 3), got (1, 2)
    """
    expected = "(" + ", ".join(str(axis) for axis in shape) + ("," if len(shape) == 1 else "") + ")"
    array = real_numbers(name, value, f"of shape {expected}")
    fits = array.ndim == len(shape) and all(
        size > 0 if isinstance(axis, str) else size == axis for size, axis in zip(array.shape, shape, strict=True)
    )
    if not fits:
        empty = ", no axis of length 0" if 0 in array.shape else ""
        raise ValueError(f"{name}: expected shape {expected}{empty}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite numbers, got {_first_bad(array)}")
    return read_only(array)


def real_numbers(name: str, value: ArrayLike, of_shape: str) -> FloatArray:
    """A new float array of any shape, in C order.

    Args:
        name: what the value is called in an error.
        value: numbers, in nested lists or in an array.
        of_shape: the words by which an error asks for a shape, such as "of shape (n,)".

    >>> real_numbers("std", [1, 2], "of shape (n,)")
    array([1., 2.])
    """

    def refusal(remedy: str = "") -> ValueError:
        return ValueError(f"{name}: expected an array of real numbers {of_shape}, got {_REPR.repr(value)}{remedy}")

    try:
        given = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise refusal("; the lists on one level must have equal lengths") from error
    if given.dtype.kind not in "biuf":
        raise refusal()
    return np.array(given, dtype=np.float64, order="C")


def _first_bad(array: FloatArray) -> str:
    """The first entry that is not finite, and where it stands."""
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
    """The value as a finite float; refuses what is not a number or lies outside the range.

    Args:
        name: what the value is called in an error.
        value: the value. True, False and texts are no numbers.
        above: the number must be larger than this; None: there is no such bound.
        at_least: the number must not be smaller than this; None: there is no such bound.

    >>> real_number("noise_std", 1, at_least=0)
    1.0
    >>> real_number("L", 0, above=0)
    Traceback (most recent call last):
        ...
    ValueError: L: expected a finite number above 0, got 0
    """

    def refusal() -> ValueError:
        bound = f" above {above}" if above is not None else f" of at least {at_least}" if at_least is not None else ""
        return ValueError(f"{name}: expected a finite number{bound}, got {_REPR.repr(value)}")

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
    """The value as a float; refuses what does not lie strictly between 0 and 1.

    >>> probability("delta", 0.1)
    0.1
    """
    number = real_number(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name}: expected a number strictly between 0 and 1, got {value!r}")
    return number


def true_or_false(name: str, value: Any) -> bool:
    """The value as a bool; refuses everything but True and False.

    >>> true_or_false("same_arms", True)
    True
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}: expected True or False, got {_REPR.repr(value)}")
    return bool(value)


def one_of(name: str, value: Any, choices: Collection[str]) -> str:
    """The value; refuses what is none of `choices`, and names the nearest of them.

    >>> one_of("context", "fixed", ("fixed", "resampled"))
    'fixed'
    >>> one_of("context", "resample", ("fixed", "resampled"))
    Traceback (most recent call last):
        ...
    ValueError: context: expected one of 'fixed', 'resampled', got 'resample'; did you mean 'resampled'?
    """
    if not isinstance(value, str) or value not in choices:
        expected = ", ".join(map(repr, choices))
        raise ValueError(f"{name}: expected one of {expected}, got {_REPR.repr(value)}{nearest(value, choices)}")
    return value


def nearest(name: Any, known: Iterable[str]) -> str:
    """The end of an error, which names the known names that are most like `name`; empty if there are none.

    >>> nearest("Fed-PEDC", ["Fed-PECD", "Uniform"])
    "; did you mean 'Fed-PECD'?"
    >>> nearest("xyz", ["Fed-PECD", "Uniform"])
    ''
    """
    by_letters = {choice.lower(): choice for choice in known}
    matches = [by_letters[match] for match in get_close_matches(str(name).lower(), list(by_letters), n=3, cutoff=0.5)]
    return f"; did you mean {' or '.join(map(repr, matches))}?" if matches else ""


def visible(text: str) -> str:
    r"""A text in which escapes, lone surrogates and all else that can't be printed are written out.

    >>> print(visible("\x1b[31mred"))
    \x1b[31mred
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


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
            f"{extra}: expected {package} to be installed, got none; in a clone: pip install -e '.[{extra}]'{other}"
        )


_Value = TypeVar("_Value")
_CHECK = "fedbandit_envs.check"  # a field's check is kept in its metadata under this key


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
    ValueError: delta: expected a number strictly between 0 and 1, got 1.5
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

    Call it in `__post_init__`. A subclass inherits that method and with it the checks of the fields it adds. The class
    in the example of `checked` does so.

    Raises:
        ValueError: the first field whose value its check refuses.
    """
    for parameter in fields(instance):
        check = parameter.metadata.get(_CHECK)
        if check is not None:
            check(parameter.name, getattr(instance, parameter.name))
