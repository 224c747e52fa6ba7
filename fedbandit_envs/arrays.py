"""Types of arrays, and arrays that nobody can change."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


IntArray = NDArray[np.int64]


BoolArray = NDArray[np.bool_]


def immutable(array: IntArray) -> IntArray:
    """A copy (n,) that bytes own, or itself if it is one: unlike a read-only array it can't be made writable again."""
    if isinstance(array.base, bytes):
        return array
    return np.frombuffer(array.tobytes(), dtype=array.dtype)
