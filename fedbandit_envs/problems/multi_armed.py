"""Multi-armed bandits: arms without features, and agents whose means may differ."""

import math
from dataclasses import dataclass, field

import numpy as np

from fedbandit_envs.arrays import FloatArray, short_repr
from fedbandit_envs.contexts.features import Table
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.problems.generator import ProblemShape
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.validation import one_of, real_array, real_number, whole_number

_USUAL_AGENTS, _USUAL_ARMS = 20, 10


@dataclass(frozen=True, eq=False)
class MultiArmed:
    """Multi-armed bandits: arm a pays agent i mu_a plus a hidden deviation of its own.

    A federated multi-armed bandit is a bandit with hidden contexts: theta_a = (mu_a, 1), and the features of arm a are
    (1, c_a), where the context c are the agent's deviations from the common means mu. Agents know that the deviations
    are normal with standard deviation `local_std`. With `local_std=0` all agents play the same bandit. The expected
    features are (1, 0) for every agent and arm, so policies that use features learn mu.

    Rewards that are 0 or 1 need means within [0, 1], which normal deviations would leave: give `local_means` then.

    >>> rng = np.random.default_rng(0)
    >>> MultiArmed(means=[0.2, 0.6], num_agents=3).instance(rng, rng).means
    array([[0.2, 0.6],
           [0.2, 0.6],
           [0.2, 0.6]])
    >>> MultiArmed(local_means=[[0.0, 1.0], [0.5, 0.25]], local_std=0.5).instance(rng, rng).gaps("group_regret")
    array([[0.375, 0.   ],
           [0.375, 0.   ]])
    """

    num_agents: int | None = None  #: the number of agents, M; None: 20, or the rows of `local_means`
    num_arms: int | None = None  #: the number of arms, K; None: 10, or as many as there are means
    means: FloatArray | None = None  #: (K,) the common means mu; None: drawn from [0, 1], or averages of `local_means`
    local_std: float = 0.0  #: standard deviation of the hidden deviations from the means, which agents know
    local_means: FloatArray | None = None  #: (M, K) the mean of each arm for each agent; None: drawn
    rewards: str = "gaussian"  #: "gaussian", or "bernoulli": 1 with probability equal to the mean
    noise_std: float = 1.0  #: standard deviation of the noise of Gaussian rewards
    context: str = "fixed"  #: "fixed", or "resampled": new deviations at each pull
    _size: tuple[int, int] = field(init=False, repr=False)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        one_of("context", self.context, ("fixed", "resampled"))
        one_of("rewards", self.rewards, ("gaussian", "bernoulli"))
        real_number("local_std", self.local_std, at_least=0)
        real_number("noise_std", self.noise_std, at_least=0)
        if self.local_means is not None:
            local = real_array("local_means", self.local_means, ("agents", "arms"))
            object.__setattr__(self, "local_means", local)
            if self.means is None:
                object.__setattr__(self, "means", local.mean(axis=0))
        if self.means is not None:
            object.__setattr__(self, "means", real_array("means", self.means, ("arms",)))
        num_agents = self._given_size("num_agents", self.local_means, _USUAL_AGENTS)
        num_arms = self._given_size("num_arms", self.means, _USUAL_ARMS)
        object.__setattr__(self, "num_agents", num_agents)
        object.__setattr__(self, "num_arms", num_arms)
        object.__setattr__(self, "_size", (num_agents, num_arms))
        self._check_deviations()
        rng = np.random.default_rng(0)
        self.instance(rng, rng)  # refuses what can't be an instance now, not at the first reset

    def _given_size(self, name: str, array: FloatArray | None, usual: int) -> int:
        """A size that was given, that of the array, or the usual one; refuses one that the array does not have."""
        given = getattr(self, name)
        if given is not None:
            whole_number(name, given, at_least=1)
        if array is None:
            return usual if given is None else int(given)
        if given not in (None, len(array)):
            raise ValueError(f"{name}: expected {len(array)}, the size of the given means, got {given!r}; leave it out")
        return len(array)

    def _check_deviations(self) -> None:
        """Refuse deviations that agents would be told wrong things about."""
        if self.local_means is None:
            if self.rewards == "bernoulli" and self.local_std > 0:
                raise ValueError(
                    f"local_std: expected 0 for 'bernoulli' without local_means, got {self.local_std}; normal "
                    "deviations leave [0, 1], so give local_means (agents, arms)"
                )
            return
        real_array("local_means", self.local_means, self._size)
        if self.context == "resampled":
            raise ValueError("local_means: expected none with context='resampled', got some; a pull draws new ones")
        assert self.means is not None  # they are given, or the averages
        deviations = self.local_means - self.means
        if self.local_std == 0 and deviations.any():
            raise ValueError(
                "local_std: expected more than 0 with local_means that differ from the means, got 0; it is what agents "
                f"know about the differences, whose standard deviation is {deviations.std():.3g}"
            )

    def problem_shape(self) -> ProblemShape:
        """The shape of all instances, told without drawing one."""
        num_agents, num_arms = self._size
        return ProblemShape(num_agents, Table(num_arms, 2), self._distribution(1), self.context)

    def _distribution(self, num_agents: int) -> Gaussian:
        """What agents know: the first number of a feature is 1, the second is normal about 0."""
        num_arms = self._size[1]
        return Gaussian(
            np.tile([1.0, 0.0], (num_agents, num_arms)), std=np.tile([0.0, float(self.local_std)], num_arms)
        )

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """Draw what is not given: means evenly from [0, 1], and the deviations of each agent."""
        num_agents, num_arms = self._size
        means = rng.uniform(size=num_arms) if self.means is None else self.means
        distribution = self._distribution(num_agents)
        contexts = None
        if self.local_means is not None:
            deviations = self.local_means - means
            contexts = np.stack([np.ones_like(deviations), deviations], axis=-1).reshape(num_agents, -1)
        elif self.context == "fixed":
            contexts = distribution.sample(context_rng)
        return BanditInstance(
            np.stack([means, np.ones(num_arms)], axis=1),
            Table(num_arms, 2),
            distribution,
            contexts,
            self.noise_std,
            self.rewards,
            self.context,
            same_arms=True,
            theta_bound=math.sqrt(2) if self.means is None else None,
            context_proxy=float(self.local_std) ** 2,
        )
