"""Types of arrays, arrays that can't be written to, and how objects full of arrays are shown."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_Scalar = TypeVar("_Scalar", bound=np.generic)


#: Sums over many agents are added up by groups of this many rows. A group fits into the cache, and intermediate
#: results take little memory.
ROWS = 4096


def row_groups(number: int, most: int | None = None) -> list[slice]:
    """Slices that divide `number` rows into groups of `most`, `ROWS` if None; the last group may be smaller.

    >>> row_groups(3), row_groups(5000)
    ([slice(0, 3, None)], [slice(0, 4096, None), slice(4096, 5000, None)])
    """
    most = ROWS if most is None else most
    return [slice(first, min(first + most, number)) for first in range(0, max(number, 1), most)]


def immutable(array: IntArray) -> IntArray:
    """A copy that can never be made writable again, because its memory belongs to `bytes`.

    The flag that `read_only` sets can be cleared. An array that is already such a copy is returned as it is.

    >>> agents = immutable(np.arange(3))
    >>> immutable(agents) is agents
    True
    >>> agents.setflags(write=True)
    Traceback (most recent call last):
        ...
    ValueError: cannot set WRITEABLE flag to True of this array
    """
    if isinstance(array.base, bytes):
        return array
    return np.frombuffer(array.tobytes(), dtype=array.dtype)


def read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """The array itself, which can't be written to from now on.

    Arrays that are shared are made so: a policy that wrote to its view would change the truth of everybody.

    >>> means = read_only(np.zeros(2))
    >>> means[0] = 1.0
    Traceback (most recent call last):
        ...
    ValueError: assignment destination is read-only
    """
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
