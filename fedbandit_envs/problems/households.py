"""Accounts that several people share: who is behind the screen is hidden."""

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.finite import Discrete

PLACES = 4  # the most members of an account


def households(users: FloatArray, num_agents: int, rng: np.random.Generator) -> Discrete:
    """Accounts of 2 to 4 different users; how often each is behind the screen is uniform on the simplex.

    The weights are a choice: of the forms tried on MovieLens, this one and a few others make mu_i point to a wrong arm
    for about 20 % (completed) and 28 % (masked) of the accounts; equal weights do so for 27 % and 38 %.
    Empty places repeat the first user, with weight 0.

    Args:
        users: (U, n) the contexts of at least 4 users.
        num_agents: the number of accounts.
        rng: draws the members and their weights.
    """
    size = rng.integers(2, PLACES + 1, size=num_agents)
    members = np.stack([rng.choice(len(users), PLACES, replace=False) for _ in range(num_agents)])
    weights = np.where(np.arange(PLACES) < size[:, None], rng.standard_exponential((num_agents, PLACES)), 0)
    weights /= weights.sum(axis=1, keepdims=True)
    members = np.where(weights > 0, members, members[:, :1])
    return Discrete(users[members], weights)
