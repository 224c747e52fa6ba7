"""What agents and server may know: public constants and an agent's own view; never theta, never a hidden context."""

from dataclasses import dataclass

from fedbandit_envs.arrays import FloatArray, IntArray, immutable, short_repr
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import FeatureMap
from fedbandit_envs.protocol.neighbourhood import Neighbourhood
from fedbandit_envs.seeding import Randomness, ServerRandomness, Stream, derived_seed

LONGEST_HORIZON = 2**53  #: numbers of steps up to this one are exact in floating point, as counts of pulls must be


@dataclass(frozen=True)
class Constants:
    """Public numbers of a problem, the same for all agents and for the server.

    The last four are what the problem guarantees. They are never computed from theta, which is hidden: a policy that
    needs one and finds None (or False) refuses the problem, or takes a parameter of its own.

    >>> constants = Constants(3, 10, 2, 5000, ell=0.5, L=1.0, noise_std=1.0, context="fixed")
    >>> constants.num_arms, constants.theta_bound
    (10, None)
    """

    num_agents: int  #: the number of agents, M
    num_arms: int  #: the number of arms, K
    dim: int  #: the length of a feature vector, d
    horizon: int  #: the number of steps, T
    ell: float  #: lower end of the norms of psi
    L: float  #: upper end of the norms of psi
    noise_std: float  #: sub-Gaussian scale of one reward's noise
    context: str  #: "fixed", "resampled", or "streaming": new at each step
    shared_theta: bool = False  #: whether all arms have one theta
    same_arms: bool = False  #: whether all agents are shown the same psi
    theta_bound: float | None = None  #: no theta_a is longer; None: nothing is guaranteed
    context_proxy: float | None = None  #: variance proxy of <theta_a, phi(a, c) - psi_a>; None: nothing is guaranteed
    shortest: float | None = None  #: no psi is shorter, while noise can bring some below ell; None: not guaranteed
    longest: float | None = None  #: no psi is longer, while noise can bring some above L; None: not guaranteed


@dataclass(frozen=True, eq=False)
class ServerView:
    """What a server knows before anybody speaks: the public constants, and random numbers of its own.

    A server that draws numbers keeps count of its answers, and draws from `view.randomness.generator(count)`: then its
    snapshot is a number, and a run that is resumed draws the same.

    >>> constants = Constants(3, 10, 2, 5000, ell=0.5, L=1.0, noise_std=1.0, context="fixed")
    >>> view = ServerView.of_run(constants, seed=7)
    >>> first, again = (view.randomness.generator(0).integers(100) for _ in range(2))
    >>> bool(first == again)
    True
    """

    constants: Constants  #: the public constants
    randomness: ServerRandomness  #: the server's own: `view.randomness.generator(j)` for answer j

    @classmethod
    def of_run(cls, constants: Constants, seed: int) -> "ServerView":
        """The view in a run with this seed, which the server can't find out."""
        return cls(constants, ServerRandomness(derived_seed(seed, Stream.SERVER)))


@dataclass(frozen=True, eq=False)
class View:
    """What a block of n agents knows: its own mu_i and psi, the constants, and a source of random numbers.

    A policy is given one for its agents; `rows` splits it further. It is all that agents may know of the problem: what
    is hidden is not in it, except for policies that say so in `observes`. Its arrays are read-only.

    >>> from fedbandit_envs.contexts.finite import PointMass
    >>> from fedbandit_envs.contexts.features import Identity
    >>> from fedbandit_envs.seeding import Stream
    >>> import numpy as np
    >>> mu, phi = PointMass(np.eye(3)), Identity(2, 3)
    >>> constants = Constants(3, 2, 3, 100, ell=1.0, L=1.0, noise_std=1.0, context="fixed")
    >>> randomness = Randomness(0, Stream.POLICY, 3)
    >>> view = View(constants, np.arange(3), mu, phi, mu.expected_features(phi), randomness)
    >>> view.exact, view.rows(np.array([2])).agents
    (True, array([2]))
    """

    constants: Constants  #: the public constants
    agents: IntArray  #: (n,) their numbers among all M; messages take them over without a copy
    distribution: ContextDistribution  #: mu, n rows
    feature_map: FeatureMap  #: phi, from contexts to features
    psi: FloatArray  #: (n, K, d) expected features
    randomness: Randomness  #: the policy's own: `view.randomness.draws(j)` for plan j
    #: (n, K) the true mean rewards, for policies that observe the "truth" only; where agents share arms, a 1 for the
    #: arm of each agent in the best assignment
    truth: FloatArray | None = None
    theta: FloatArray | None = None  #: (K, d) the arm parameters, for policies that observe "theta" only
    valid: int | None = None  #: for how many steps mu and psi hold, from the first on; None: to the horizon
    network: Neighbourhood | None = None  #: the agents' neighbours, in a run with a network; None: there is none

    __repr__ = short_repr

    @property
    def exact(self) -> bool:
        """Whether the contexts are known."""
        return self.distribution.known is not None

    def rows(self, index: IntArray | slice) -> "View":
        """The view of some of these agents."""
        agents = immutable(self.agents[index])
        return View(
            constants=self.constants,
            agents=agents,
            distribution=self.distribution.rows(index),
            feature_map=self.feature_map,
            psi=self.psi[index],
            randomness=Randomness(self.randomness.seed, self.randomness.stream, self.randomness.num_agents, agents),
            truth=None if self.truth is None else self.truth[index],
            theta=self.theta,
            valid=self.valid,
            network=None if self.network is None else self.network.rows(index),
        )
