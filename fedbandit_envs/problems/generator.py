"""Generators of instances: a problem family as data, drawn from two independent streams (instance and contexts)."""

from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeGuard

import numpy as np
from gymnasium import spaces

from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import FeatureMap
from fedbandit_envs.contexts.finite import PointMass
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.instance_checks import check_observed
from fedbandit_envs.seeding import RowsOfDraws, Stream, generator


class InstanceGenerator(Protocol):
    """A problem family, from which each episode draws an instance.

    `num_agents` and the shapes of an instance must not depend on the random numbers. A generator may also have the
    method `problem_shape` of `ShapedGenerator`, which makes creating an environment faster. A family that reads a file
    has a static method `pinned(arguments)`, which adds the hash of the file's content to the arguments of an
    experiment; `fedbandit_envs.problems.file.File` shows how.

    >>> from fedbandit_envs.problems.synthetic import Synthetic
    >>> problem: InstanceGenerator = Synthetic(num_agents=3)
    >>> draw_instance(problem, seed=0).num_agents
    3
    """

    @property
    def num_agents(self) -> int | None:
        """The number of agents, M."""

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """Draw one problem: `rng` draws the problem, `context_rng` what is hidden about the contexts."""


@dataclass(frozen=True, eq=False)
class ProblemShape:
    """What all instances of a problem have in common: all that an environment must know before its first episode.

    >>> from fedbandit_envs.problems.synthetic import Synthetic
    >>> shape = shape_of(Synthetic(num_agents=10**6, num_arms=4, dim=2))
    >>> shape.num_agents, shape.feature_map.num_arms
    (1000000, 4)
    >>> shape.space("distribution")["mean"].shape
    (8,)
    """

    num_agents: int  #: the number of agents, M
    feature_map: FeatureMap  #: phi, from contexts to features
    distribution: ContextDistribution  #: a distribution of the same kind and lengths as mu, for one agent or more
    context: str  #: "fixed" or "resampled" within a segment; streaming contexts are fixed within each step

    @classmethod
    def of(cls, instance: BanditInstance) -> "ProblemShape":
        """The shape of a problem of which one instance is given."""
        return cls(instance.num_agents, instance.feature_map, instance.distribution, instance.context)

    @property
    def exact(self) -> bool:
        """Whether agents know their contexts exactly."""
        return self.distribution.known is not None

    def space(self, observe: str) -> spaces.Dict:
        """The space of what one agent is shown with this `observe`; refuses a context that can't be observed."""
        check_observed(observe, self.context)
        if observe == "context":
            return PointMass(np.zeros((1, self.feature_map.context_dim))).space()
        return self.distribution.space()

    def check(self, instance: BanditInstance) -> None:
        """Refuse an instance of another shape: the spaces of an environment would be wrong."""
        expected, came = self._facts(), ProblemShape.of(instance)._facts()
        for name in [*expected, *came]:
            if expected.get(name) != came.get(name):
                raise ValueError(
                    f"problem: expected {name} = {expected.get(name)} in every instance, got {came.get(name)}; the "
                    "shapes of a problem must not depend on the random numbers, and problem_shape() must tell them"
                )

    def _facts(self) -> dict[str, Any]:
        """Everything that must be equal in all instances, by name."""
        return {
            "num_agents": self.num_agents,
            "num_arms": self.feature_map.num_arms,
            "dim": self.feature_map.dim,
            "context": self.context,
            "exact": self.exact,
            **{f"shape of mu's {name}": rows.shape[1:] for name, rows in self.distribution.encode().items()},
        }


class ShapedGenerator(InstanceGenerator, Protocol):
    """A generator that tells the shapes of its instances without drawing one.

    >>> from fedbandit_envs.problems.synthetic import Synthetic
    >>> tells_its_shape(Synthetic())
    True
    """

    def problem_shape(self) -> ProblemShape:
        """The shape of all instances."""


def tells_its_shape(problem: InstanceGenerator) -> TypeGuard[ShapedGenerator]:
    """Whether the generator has the method `problem_shape`."""
    return hasattr(type(problem), "problem_shape")


def shape_of(problem: InstanceGenerator) -> ProblemShape:
    """The shape of all instances of a problem; a generator that does not tell it draws an instance, with seed 0.

    >>> from fedbandit_envs.problems.synthetic import Synthetic
    >>> shape_of(Synthetic(num_agents=7)).num_agents
    7
    """
    return problem.problem_shape() if tells_its_shape(problem) else ProblemShape.of(draw_instance(problem, 0))


def draw_instance(problem: InstanceGenerator, seed: int) -> BanditInstance:
    """The instance of the episode with this seed: problem and hidden contexts come from streams of their own."""
    return problem.instance(generator(seed, Stream.INSTANCE), generator(seed, Stream.CONTEXTS))


def draw_rows(
    problem: InstanceGenerator, seed: int, first: int, last: int, whole: BanditInstance | None = None
) -> BanditInstance:
    """The instance of the agents from `first` to before `last` alone: the rows that they have in the whole instance.

    A family whose class says `draws_by_rows = True` is asked for these rows only, so that memory does not grow with the
    agents that others hold. That is allowed if it draws nothing but arrays whose first axis is the agents, and if each
    row of its instance depends on its own numbers alone. Any other family draws the whole, of which the rows are kept.

    Args:
        problem: the problem family.
        seed: the seed of the episode.
        first: the number of the first agent.
        last: the number after that of the last agent.
        whole: the whole instance, if it has been drawn already.

    >>> from fedbandit_envs.problems.synthetic import Synthetic
    >>> problem = Synthetic(num_agents=5)
    >>> bool((draw_rows(problem, 0, 2, 4).means == draw_instance(problem, 0).means[2:4]).all())
    True
    """
    num_agents = problem.num_agents
    if whole is None and getattr(type(problem), "draws_by_rows", False) and num_agents is not None:
        rngs = (generator(seed, stream) for stream in (Stream.INSTANCE, Stream.CONTEXTS))
        own: Any = replace(problem, num_agents=last - first)  # type: ignore[type-var]
        rows: BanditInstance = own.instance(*(RowsOfDraws(rng, num_agents, first, last) for rng in rngs))
        return rows
    whole = draw_instance(problem, seed) if whole is None else whole
    return replace(whole.rows(np.arange(first, last)), population=None)
