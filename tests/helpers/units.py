"""Problems whose rewards are given in other units."""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class InUnits:
    """The same problem with rewards, noise and what is guaranteed of theta times `factor`."""

    problem: Any
    factor: float

    @property
    def num_agents(self):
        return self.problem.num_agents

    def instance(self, rng, context_rng):
        whole, c = self.problem.instance(rng, context_rng), self.factor
        bound, proxy = whole.theta_bound, whole.context_proxy
        return replace(
            whole,
            theta=c * whole.theta,
            noise_std=c * whole.noise_std,
            theta_bound=None if bound is None else c * bound,
            context_proxy=None if proxy is None else c**2 * proxy,
        )


@dataclass(frozen=True)
class ChangingInUnits(InUnits):
    """The same for a problem whose contexts change."""

    @property
    def segment_steps(self):
        return self.problem.segment_steps

    def context_stream(self, instance, seed, segments):
        return self.problem.context_stream(instance, seed, segments)


def in_units(problem, factor):
    """The problem in other units."""
    return (ChangingInUnits if hasattr(problem, "context_stream") else InUnits)(problem, factor)
