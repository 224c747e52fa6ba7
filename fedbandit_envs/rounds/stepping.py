"""Pull by pull through the PettingZoo API: for environments with wrappers that must see each step."""

from typing import Any

import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from fedbandit_envs.envs.parallel import Observation
from fedbandit_envs.protocol.plans import Feedback, Plan


def pulls_throughout(env: ParallelEnv[str, Observation, int]) -> bool:
    """Whether every layer of the environment defines the bulk path itself."""
    layer: Any = env
    while isinstance(layer, BaseParallelWrapper):
        if not hasattr(type(layer), "pull"):
            return False
        layer = layer.env
    return True


def stepped(env: ParallelEnv[str, Observation, int], plan: Plan) -> Feedback:
    """The plan pull by pull through the PettingZoo API: exploration in the order of the arms, then `arm`."""
    agents = list(env.agents)
    rows = np.arange(len(agents))
    ends = plan.explore.cumsum(axis=1)
    explored_sums = np.zeros(plan.explore.shape)
    played_sums = np.zeros(len(agents))
    for step in range(plan.length):
        exploring = step < ends[:, -1]
        arms = np.where(exploring, (ends <= step).sum(axis=1).clip(max=ends.shape[1] - 1), plan.arm)
        _, rewards, *_ = env.step(dict(zip(agents, arms.tolist(), strict=True)))
        values = np.array([rewards[agent] for agent in agents])
        explored_sums[rows[exploring], arms[exploring]] += values[exploring]
        played_sums[~exploring] += values[~exploring]
    return Feedback(plan.explore, explored_sums, plan.arm, plan.length - ends[:, -1], played_sums)
