"""Problems that a user might define, in a module that worker processes can import."""

from dataclasses import dataclass

import numpy as np

from fedbandit_envs import BanditInstance, Identity, PointMass


@dataclass(frozen=True)
class TwoArms:
    """Two arms whose means are `high` and 0, for every agent."""

    num_agents: int = 3  #: the number of agents
    high: float = 1.0  #: the mean of the first arm

    def instance(self, rng, context_rng):
        points = np.ones((self.num_agents, 1))
        theta = np.array([[self.high], [0.0]])
        return BanditInstance(theta, Identity(2, 1), PointMass(points), points, noise_std=0.1)
