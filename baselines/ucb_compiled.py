"""The agents of Local-UCB, compiled by numba: the same decisions bit for bit.

Importing this module compiles it, which takes some 2 s once in a process.
"""

import numpy as np
from numba import float64, int64, njit, void

from fedbandit_agents.types_compiled import read_only
from fedbandit_baselines.ucb import LocalUCBAgents
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.steps import Outcome

_TABLE, _ARMS = float64[::1], int64[::1]
_READ, _READ_ARMS = read_only(float64, 1), read_only(int64, 1)


# Bounds are checked, because a table that was restored from a wrong file must not be written beyond its end.
@njit(void(_TABLE, _TABLE, int64, float64, _ARMS), error_model="numpy", boundscheck=True)
def _choose(radii: FloatArray, means: FloatArray, num_arms: int, bonus: float, arm: IntArray) -> None:
    """Fills in the arm with the largest index of each agent."""
    for i in range(len(arm)):
        start, largest = i * num_arms, -np.inf
        arm[i] = 0
        for a in range(num_arms):
            index = radii[start + a] * bonus + means[start + a]
            if not index <= largest:
                arm[i], largest = a, index
                if np.isnan(index):  # numpy takes NaN for the largest number
                    break


@njit(
    void(_READ_ARMS, _READ_ARMS, _READ, int64, _TABLE, _TABLE, _TABLE, _TABLE),
    error_model="numpy",
    boundscheck=True,
)
def _learn(
    arm: IntArray,
    played: IntArray,
    rewards: FloatArray,
    num_arms: int,
    pulls: FloatArray,
    sums: FloatArray,
    means: FloatArray,
    radii: FloatArray,
) -> None:
    """Counts the rewards, and updates the means and radii of the arms that were played."""
    for i in range(len(arm)):
        place = i * num_arms + arm[i]
        t, total = pulls[place] + played[i], sums[place] + rewards[i]
        pulls[place], sums[place] = t, total
        means[place], radii[place] = total / t, 1 / np.sqrt(t)


class CompiledAgents(LocalUCBAgents):
    """Agents that decide as LocalUCBAgents do, in less time."""

    def choose(self) -> IntArray:
        """The arm with the largest index; ties go to the first arm."""
        arm: IntArray = np.empty(len(self.view.agents), dtype=np.int64)
        _choose(self.radii, self.means, self.view.constants.num_arms, self.bonus(), arm)
        return arm

    def learn(self, outcome: Outcome) -> None:
        """Count the rewards, and update the mean and radius of the arm that was played."""
        num_arms = self.view.constants.num_arms
        try:
            _learn(
                outcome.arm,
                outcome.pulls,
                outcome.rewards,
                num_arms,
                self.pulls,
                self.sums,
                self.means,
                self.radii,
            )
        except TypeError:  # a wrapper may give other kinds of arrays than a run does; nothing was done with them
            super().learn(outcome)
        else:
            self.step += 1
