"""Types of arrays, arrays that nobody can change, and how objects full of arrays are shown."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def immutable(array: IntArray) -> IntArray:
    """A copy whose memory belongs to `bytes`, so that it can never be made writable again; a flag can be cleared.

    An array that is such a copy already is returned as it is.
    """
    if isinstance(array.base, bytes):
        return array
    return np.frombuffer(array.tobytes(), dtype=array.dtype)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself, which can't be written to from now on."""
    array.setflags(write=False)
    return array


_LONG = 80  # characters; the repr of a part that is longer is left out


def short_repr(instance: Any) -> str:
    """The repr of a dataclass in a line or two: arrays by their type and shape, and no field that has its default.

    Write `__repr__ = short_repr` into a dataclass that holds arrays.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Measured:
    ...     values: FloatArray
    ...     unit: str = "m"
    ...     __repr__ = short_repr
    >>> Measured(np.zeros((100, 3))), Measured(np.zeros(2), "km")
    (Measured(values=float64[100, 3]), Measured(values=float64[2], unit='km'))
    """
    shown = [
        f"{part.name}={short(value)}"
        for part in fields(instance)
        if part.repr and (isinstance(value := getattr(instance, part.name), np.ndarray) or value != part.default)
    ]
    return f"{type(instance).__name__}({', '.join(shown)})"


def short(value: Any) -> str:
    """A value in a few words: a long one by its type alone.

    >>> short({"theta": np.eye(2), "numbers": list(range(1000))})
    '{theta: float64[2, 2], numbers: list of 1000}'
    """
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {short(item)}" for name, item in list(value.items())[:20]) + "}"
    if not isinstance(value, (list, tuple, str)):
        text = repr(value)
        return text if len(text) <= _LONG else f"{type(value).__name__}(...)"
    return f"{type(value).__name__} of {len(value)}" if len(value) > _LONG or len(repr(value)) > _LONG else repr(value)
