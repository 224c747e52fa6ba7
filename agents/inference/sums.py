"""Sums for context inference: along short axes for many agents, and over all agents for each arm."""

import numpy as np

from fedbandit_envs.arrays import FloatArray, row_groups

# About so many numbers are computed together: what comes in between then takes little memory, and stays in the cache.
TOGETHER = 20_000


def sum_along(values: FloatArray, axis: int) -> FloatArray:
    """The sum along an axis, term by term: no agent's sum depends on the order in memory, or on other agents.

    >>> sum_along(np.array([[1.0, 2.0, 3.0]]), 1)
    array([6.])
    """
    before: tuple[slice | int, ...] = (slice(None),) * axis
    total: FloatArray = values[(*before, 0)].copy(order="K")
    for place in range(1, values.shape[axis]):
        total += values[(*before, place)]
    return total


def sums_of_others(values: FloatArray, axis: int) -> FloatArray:
    """The sum of all other entries along an axis, in the place of each entry.

    The others are summed, not subtracted from the whole: the entry that is left out may outweigh all others by far.

    >>> sums_of_others(np.array([[1e30, 2.0, 3.0]]), 1)
    array([[5.e+00, 1.e+30, 1.e+30]])
    """
    total = np.zeros_like(values)
    entries, sums = np.moveaxis(values, axis, 0), np.moveaxis(total, axis, 0)
    sums[1:] = entries[:-1].cumsum(axis=0)
    sums[:-1] += entries[:0:-1].cumsum(axis=0)[::-1]
    return total


def groups_of(number: int, entries: int, least: int = 1) -> list[slice]:
    """Agents or arms in groups that are computed together.

    Args:
        number: how many there are.
        entries: how many numbers are computed for each of them.
        least: how many a group has at least, since each group takes its own calls.

    >>> groups_of(10, entries=100), groups_of(3, entries=30_000)
    ([slice(0, 10, None)], [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None)])
    """
    return row_groups(number, max(least, TOGETHER // entries))


def weighted_sums(e: FloatArray, weights: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The sums over agents of w e e^T (K, d, d) and of w v e, (K, d).

    Args:
        e: the directions, (K, d, M).
        weights: w, (K, M).
        values: v, (K, M).
    """
    squares, sums = np.empty((len(e), e.shape[1], e.shape[1])), np.empty(e.shape[:2])
    for arms in groups_of(len(e), e.shape[2]):
        weighted = weights[arms, None] * e[arms]
        squares[arms] = np.einsum("adn,aen->ade", weighted, e[arms])
        sums[arms] = np.einsum("adn,an->ad", weighted, values[arms])
    return squares, sums


def differences(e: FloatArray, values: FloatArray, theta: FloatArray) -> FloatArray:
    """How far values (K, M) along e (K, d, M) lie from what theta (K, d) says about them, (K, M)."""
    return np.asarray(values - np.einsum("adn,ad->an", e, theta))
