"""Generators of instances: a problem family as data, drawn from two independent streams (instance and contexts)."""

from typing import Protocol

import numpy as np

from fedbandit_envs.problems.instance import BanditInstance


class InstanceGenerator(Protocol):
    """A problem family; `num_agents` and the shapes of an instance don't depend on the random numbers.

    A family that reads a file also has a static method `pinned(arguments)`, which adds the hash of the file's content
    to the arguments of an experiment; `fedbandit_envs.problems.file.File` shows how.
    """

    @property
    def num_agents(self) -> int | None:
        """The number of agents, M."""

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """One problem: `rng` draws the problem, `context_rng` what is hidden about the contexts."""
