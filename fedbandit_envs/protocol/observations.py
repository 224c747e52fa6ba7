"""What a learner can be shown as plain numbers: expected features and pull statistics, with their spaces.

The PettingZoo wrappers, the Gymnasium views and the policies of trained models all build their observations from these.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from fedbandit_envs.arrays import FloatArray, IntArray

Rows = NDArray[np.float32]  # (n, length), one row per agent


def flat_features(psi: FloatArray) -> Rows:
    """The expected features psi (n, K, d) as rows (n, K d), arm by arm.

    >>> flat_features(np.array([[[1.0, 2.0], [3.0, 4.0]]]))
    array([[1., 2., 3., 4.]], dtype=float32)
    """
    return psi.reshape(len(psi), -1).astype(np.float32)


def features_space(num_arms: int, dim: int) -> spaces.Box:
    """The space of one row of `flat_features`."""
    return spaces.Box(-np.inf, np.inf, (num_arms * dim,), np.float32)


def pull_statistics(pulls: IntArray, sums: FloatArray, horizon: int) -> Rows:
    """What each agent remembers of its episode, in rows (n, 2 K + 1) that suit a network.

    First comes log(1 + pulls) / log(1 + T) for each arm, which lies in [0, 1]: the first pulls of an arm matter most.
    Then comes the mean of the rewards of each arm, which is 0 before its first pull. The time t / T comes last.

    Args:
        pulls: (n, K) how often each agent has pulled each arm.
        sums: (n, K) the sums of the rewards of these pulls.
        horizon: the number of steps, T.

    >>> pull_statistics(np.array([[3, 0]]), np.array([[6.0, 0.0]]), horizon=3)
    array([[1., 0., 2., 0., 1.]], dtype=float32)
    """
    known = np.log1p(pulls) / np.log1p(horizon)
    means = sums / np.maximum(pulls, 1)
    time = pulls.sum(axis=1, keepdims=True) / horizon
    return np.concatenate([known, means, time], axis=1).astype(np.float32)


def statistics_by_name(statistics: Any) -> dict[str, Any]:
    """The parts of `pull_statistics`, or of the bounds of its space, by name; the last axis is divided.

    >>> statistics_by_name(np.array([1.0, 0.0, 2.0, 0.0, 1.0]))["rewards"]
    array([2., 0.])
    """
    num_arms = statistics.shape[-1] // 2
    pulls, rewards, time = np.split(statistics, [num_arms, 2 * num_arms], axis=-1)
    return {"pulls": pulls, "rewards": rewards, "time": time}


def statistics_space(num_arms: int) -> spaces.Box:
    """The space of one row of `pull_statistics`."""
    low = np.repeat([0, -np.inf, 0], [num_arms, num_arms, 1]).astype(np.float32)
    high = np.repeat([1, np.inf, 1], [num_arms, num_arms, 1]).astype(np.float32)
    return spaces.Box(low, high, dtype=np.float32)


def joined(*boxes: spaces.Box) -> spaces.Box:
    """The flat Box of rows that are rows of each of these flat Boxes, one after the other.

    >>> joined(features_space(2, 3), statistics_space(2)).shape
    (11,)
    """
    low = np.concatenate([box.low for box in boxes])
    return spaces.Box(low, np.concatenate([box.high for box in boxes]), dtype=low.dtype.type)
