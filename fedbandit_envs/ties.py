"""Ties: numbers that are equal but for rounding count as equal, so that every CPU makes the same decision.

The last bits of a sum of products depend on the CPU: linear algebra runs in other kernels on another processor. Two
estimates from equal data, for example of Bernoulli rewards, can then differ in their last bits, either way. A decision
must not hang on these bits. A difference counts only if it is larger than `TIE` times the largest magnitude that went
into the numbers, and among equal numbers the first one wins. `TIE` is far above rounding errors, and far below any
difference that means something.

The rule is for numbers that went through linear algebra: estimates, and upper confidence bounds made of them. It is not
needed where equal data go through the same elementwise operations, because the results then have the same bits on every
CPU (Local-UCB, KK-UCB). Nor is it needed where ties have probability 0: samples of a posterior, or a difference
compared with its own width.
"""

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray

TIE = 1e-9
#: The factor on a number that is rounded up: one that is whole but for rounding stays at the whole number.
JUST_WHOLE = 1 - TIE


def rounding(magnitudes: FloatArray) -> FloatArray:
    """How far numbers of such magnitudes (n, K) may differ and still count as equal, for each row (n,).

    >>> rounding(np.array([[0.5, 2.0], [0.0, 0.0]]))
    array([2.e-09, 0.e+00])
    """
    return TIE * np.maximum.reduce(magnitudes, axis=1)


def first_largest(values: FloatArray, tolerance: FloatArray | None = None) -> IntArray:
    """The position of the largest value of each row (n,), and the first one among values that count as equal.

    Args:
        values: numbers (n, K); minus infinity stands for a position that can't be chosen.
        tolerance: how far values may differ and still count as equal, (n,); None takes `rounding` of the values.

    >>> first_largest(np.array([[0.1, 0.3, 0.1 + 0.2]]))  # the last two are 0.3, but for rounding
    array([1])
    """
    starts = np.arange(0, values.size, values.shape[1])
    largest = values.take(values.argmax(axis=1) + starts)  # looking it up is faster than asking for the maximum
    if tolerance is None:
        smallest = values.take(values.argmin(axis=1) + starts)
        tolerance = TIE * np.maximum(np.abs(largest), np.abs(smallest))
        if not np.isfinite(tolerance).all():
            tolerance = rounding(np.where(np.isfinite(values), np.abs(values), 0))
    least = largest - tolerance
    return (values >= least[:, None]).argmax(axis=1)
