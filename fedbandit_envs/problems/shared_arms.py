"""Arms that agents share: what an arm pays depends on how many agents pull it."""

from dataclasses import dataclass

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray, short_repr
from fedbandit_envs.protocol.capacities import filled
from fedbandit_envs.validation import real_array, whole_number


@dataclass(frozen=True, eq=False)
class SharedArmsInstance:
    """The truth of a problem with shared arms.

    >>> truth = SharedArmsInstance(np.array([0.9, 0.8, 0.1]), np.array([1, 2, 3]), num_agents=2)
    >>> truth.best_loads, round(float(truth.value(truth.best_loads)), 3)
    (array([1, 1, 0]), 1.7)
    >>> round(float(truth.regret(np.array([2, 0, 0]))), 3)  # both go to the first arm, which has room for one
    0.8
    """

    means: FloatArray  #: (K,) the mean of what an arm pays for each agent that it has room for
    capacities: IntArray  #: (K,) how many agents an arm has room for
    num_agents: int  #: the number of agents, M

    def value(self, loads: IntArray) -> FloatArray:
        """The mean of what all agents are paid in a step, for `loads` (..., K) agents on the arms."""
        return (np.minimum(loads, self.capacities) * self.means).sum(axis=-1)  # a product has other last bits per CPU

    @property
    def best_loads(self) -> IntArray:
        """(K,) the best assignment: the best arms are filled first."""
        return filled(self.means, self.capacities, self.num_agents)

    def regret(self, loads: IntArray) -> FloatArray:
        """What all agents together lose in a step against the best assignment."""
        return self.value(self.best_loads) - self.value(loads)


@dataclass(frozen=True, eq=False)
class SharedArms:
    """Arms with room for several agents: rewards depend on what everybody chooses.

    At each step arm k draws one X_k, which is 1 with probability mu_k and else 0. With a_k agents on it, it pays
    min(a_k, m_k) X_k in all, where m_k is its hidden capacity, and every agent on it gets the same part of that. Each
    is told what its arm has paid and how many agents were there. The best assignment fills the best arms to their
    capacity. Regret is what all agents together lose against it, and each agent carries 1/M of it. It is an
    environment of its own: there are no contexts, a run goes step by step, and only policies for shared arms play it.
    Reference: Wang, Xie and Lui, Multiple-Play Stochastic Bandits with Shareable Finite-Capacity Arms, ICML 2022.

    >>> rng = np.random.default_rng(0)
    >>> SharedArms(means=[0.9, 0.5, 0.1], capacities=[1, 2, 2], num_agents=2).instance(rng, rng).best_loads
    array([1, 1, 0])
    """

    num_agents: int = 7  #: the number of agents, M; at most as many as arms
    num_arms: int | None = None  #: the number of arms, K; None: 9, or as many as there are means or capacities
    means: FloatArray | None = None  #: (K,) the means mu, from 0 to 1; None: drawn from [0, 1]
    capacities: IntArray | None = None  #: (K,) how many agents have room; None: drawn from 1 to the number of agents

    __repr__ = short_repr

    def __post_init__(self) -> None:
        whole_number("num_agents", self.num_agents, at_least=1)
        given = [len(array) for array in (self.means, self.capacities) if array is not None and np.ndim(array) == 1]
        num_arms = (given or [9])[0] if self.num_arms is None else whole_number("num_arms", self.num_arms, at_least=1)
        object.__setattr__(self, "num_arms", num_arms)
        if self.num_agents > num_arms:
            raise ValueError(
                f"num_agents: expected at most {num_arms}, one for each arm, got {self.num_agents}; add arms"
            )
        if self.means is not None:
            means = real_array("means", self.means, (num_arms,))
            if means.min() < 0 or means.max() > 1:
                raise ValueError(f"means: expected numbers from 0 to 1, got {means.min():g} to {means.max():g}")
            object.__setattr__(self, "means", means)
        if self.capacities is not None:
            object.__setattr__(self, "capacities", self._checked_capacities(num_arms))

    def _checked_capacities(self, num_arms: int) -> IntArray:
        room = real_array("capacities", np.asarray(self.capacities), (num_arms,))
        if (room != np.round(room)).any() or room.min() < 1 or room.max() > self.num_agents:
            raise ValueError(
                f"capacities: expected whole numbers from 1 to the number of agents, {self.num_agents}, got "
                f"{self.capacities}"
            )
        return room.astype(np.int64)

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> SharedArmsInstance:
        """A problem with these means and capacities, or with drawn ones."""
        means, room = rng.random(self.num_arms), rng.integers(1, self.num_agents, self.num_arms, endpoint=True)
        return SharedArmsInstance(
            means if self.means is None else self.means,
            room if self.capacities is None else self.capacities,
            self.num_agents,
        )
