"""How Fed-CI-Elimination spreads pulls over arms."""

import numpy as np

from fedbandit_envs.arrays import BoolArray, IntArray
from fedbandit_envs.ties import JUST_WHOLE


def resting_pulls(step: int, num_arms: int) -> int:
    """How often a resting arm has been pulled by this step: t^(2/3) / K times, rounded down.

    >>> resting_pulls(1000, 10), resting_pulls(2**17, 10)
    (10, 258)
    """
    return int(step ** (2 / 3) / num_arms / JUST_WHOLE)


def levelled(pulls: IntArray, among: BoolArray, length: IntArray) -> IntArray:
    """How `length` (n,) pulls are spread over the arms `among` (n, K), so that their `pulls` become as equal as can be.

    >>> levelled(np.array([[5, 1, 3, 0]]), np.array([[True, True, True, False]]), np.array([4]))
    array([[0, 3, 1, 0]])
    """
    num_arms = pulls.shape[1]
    order = np.where(among, pulls, np.iinfo(np.int64).max).argsort(axis=1, kind="stable")
    sorted_pulls = np.take_along_axis(pulls, order, axis=1)
    so_far = sorted_pulls.cumsum(axis=1)
    places = np.arange(num_arms)
    # The first j + 1 arms are raised if there are enough pulls to lift all of them to the level of arm j.
    cost = (places + 1) * sorted_pulls - so_far
    raised = (cost <= length[:, None]) & (places < among.sum(axis=1, keepdims=True))
    count = raised.sum(axis=1)
    level, rest = np.divmod(so_far[np.arange(len(pulls)), count - 1] + length, count)
    rank = order.argsort(axis=1, kind="stable")
    wanted = level[:, None] + (rank < rest[:, None])
    return np.where(rank < count[:, None], wanted - pulls, 0)
