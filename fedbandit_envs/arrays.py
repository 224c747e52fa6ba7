"""Types of arrays, and arrays that nobody can change."""

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
