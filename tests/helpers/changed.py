"""Problems whose instances are changed after they are drawn, for example shown with a wrong mu."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Changed:
    """A problem whose instances `change(instance, context_rng)` changes."""

    problem: Any
    change: Callable[..., Any]

    @property
    def num_agents(self):
        return self.problem.num_agents

    def instance(self, rng, context_rng):
        return self.change(self.problem.instance(rng, context_rng), context_rng)
