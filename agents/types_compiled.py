"""The types of arrays in the signatures of code that numba compiles."""

from typing import Any

from numba import types


def read_only(kind: Any, axes: int) -> Any:
    """The type of a contiguous array that compiled code only reads: numba then accepts read-only arrays, too.

    Args:
        kind: numba's type of an entry, such as `float64`.
        axes: the number of axes.
    """
    return types.Array(kind, axes, "C", readonly=True)
