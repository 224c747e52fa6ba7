"""What a learner can be shown as plain numbers: expected features and pull statistics, with their spaces.

The PettingZoo wrappers, the Gymnasium views and the policies of trained models all build their observations from these.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from fedbandit_envs.arrays import FloatArray, IntArray

Rows = NDArray[np.float32]  # (n, length) one row an agent


def flat_features(psi: FloatArray) -> Rows:
    """(n, K d) the expected features psi (n, K, d), arm by arm."""
    return psi.reshape(len(psi), -1).astype(np.float32)


def features_space(num_arms: int, dim: int) -> spaces.Box:
    """The space of one row of `flat_features`."""
    return spaces.Box(-np.inf, np.inf, (num_arms * dim,), np.float32)


def pull_statistics(pulls: IntArray, sums: FloatArray, horizon: int) -> Rows:
    """(n, 2 K + 1) what an agent remembers of its episode, its pulls and sums of rewards (n, K), as suits a network.

    For each arm log(1 + pulls) / log(1 + T), in [0, 1]: the first pulls of an arm matter most. Then for each arm the
    mean of its rewards, 0 before the first pull. Then the time t / T, in [0, 1].
    """
    known = np.log1p(pulls) / np.log1p(horizon)
    means = sums / np.maximum(pulls, 1)
    time = pulls.sum(axis=1, keepdims=True) / horizon
    return np.concatenate([known, means, time], axis=1).astype(np.float32)


def statistics_by_name(statistics: Any) -> dict[str, Any]:
    """The parts of `pull_statistics`, or of the bounds of its space, by name; the last axis is divided."""
    num_arms = statistics.shape[-1] // 2
    pulls, rewards, time = np.split(statistics, [num_arms, 2 * num_arms], axis=-1)
    return {"pulls": pulls, "rewards": rewards, "time": time}


def statistics_space(num_arms: int) -> spaces.Box:
    """The space of one row of `pull_statistics`."""
    low = np.repeat([0, -np.inf, 0], [num_arms, num_arms, 1]).astype(np.float32)
    high = np.repeat([1, np.inf, 1], [num_arms, num_arms, 1]).astype(np.float32)
    return spaces.Box(low, high, dtype=np.float32)


def joined(*boxes: spaces.Box) -> spaces.Box:
    """The space of rows of each of these flat Boxes, one after the other."""
    low = np.concatenate([box.low for box in boxes])
    return spaces.Box(low, np.concatenate([box.high for box in boxes]), dtype=low.dtype.type)
