"""Tables (n, K) of pulls as flat arrays: shared zeros, the places of entries, both bounds checked at once."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import IntArray, read_only


@lru_cache(maxsize=8)
def no_pulls(num_agents: int, num_arms: int) -> IntArray:
    """A shared array of zeros (n, K), the `explore` of plans that do not explore.

    It can never be made writable: all entries are views of one number, whose memory belongs to `bytes`.

    >>> no_pulls(2, 3) is no_pulls(2, 3)
    True
    """
    return np.broadcast_to(np.frombuffer(bytes(8), dtype=np.int64), (num_agents, num_arms))


@lru_cache(maxsize=8)
def _row_starts(num_agents: int, num_arms: int) -> IntArray:
    """Where each row of a flattened table (n, K) starts, (n,)."""
    return read_only(np.arange(0, num_agents * num_arms, num_arms))


def places(arm: IntArray, num_arms: int) -> IntArray:
    """The places (..., n) of the entries of `arm` (..., n) in a flattened table (n, K).

    Reading and writing a flattened table is faster than by row and column.

    >>> places(np.array([2, 0]), num_arms=3)
    array([2, 3])
    """
    return _row_starts(arm.shape[-1], num_arms) + arm


def as_unsigned(numbers: IntArray) -> NDArray[np.uint64]:
    """Whole numbers of which the negative ones become huge, so that one maximum checks both bounds.

    >>> as_unsigned(np.array([3, -1])).max() > 2**62
    np.True_
    """
    return numbers.view(np.uint64) if numbers.dtype == np.int64 else numbers.astype(np.uint64, copy=False)
