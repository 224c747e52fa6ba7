"""Arms that several agents can share: how many agents go where."""

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray


def filled(values: FloatArray, capacities: IntArray, num_agents: int) -> IntArray:
    """(K,) how many agents go to each arm if the best arms are filled first.

    Args:
        values: (K,) how good an arm is; among equal ones the first is filled first.
        capacities: (K,) how many agents an arm has room for.
        num_agents: how many agents there are to place. Those for whom there is no room are not placed.

    >>> filled(np.array([0.5, 0.9, 0.7]), np.array([4, 2, 1]), num_agents=5)
    array([2, 2, 1])
    """
    order = np.argsort(-values, kind="stable")
    before = np.concatenate([[0], capacities[order].cumsum()[:-1]])
    loads = np.zeros(len(values), dtype=np.int64)
    loads[order] = np.clip(num_agents - before, 0, capacities[order])
    return loads
