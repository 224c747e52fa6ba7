"""Types of arrays, and arrays that can't be written to."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_Scalar = TypeVar("_Scalar", bound=np.generic)


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
