"""Problems whose contexts are users of MovieLens-100K, one by one or as households that share an account."""

from dataclasses import dataclass, field

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import Identity
from fedbandit_envs.contexts.finite import Discrete
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.problems.context_error import USUAL_STD, around, check_hidden
from fedbandit_envs.problems.generator import ProblemShape
from fedbandit_envs.problems.households import PLACES, households
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.movielens import factors as movielens
from fedbandit_envs.problems.streams import DrawnAnew, segment_length, within_segment
from fedbandit_envs.validation import one_of, real_number, whole_number


@dataclass(frozen=True)
class MovieLens:
    """Users of MovieLens-100K as agents, and clusters of films as arms (K = 30, d = 3), with phi(a, c) = c.

    Factors: "completed" ones come from the matrix of ratings completed by user-based filtering; "masked" ones from the
    observed ratings only, and differ more among users. Users: "eligible" ones are those whose norms and gaps lie in the
    ranges that the paper reports, so these ranges hold by selection; "all" takes everyone. Hidden: "gaussian" adds
    noise of `context_std` to the user's factors; "household" makes each agent an account that 2 to 4 users share, of
    whom one is behind the screen. Theta is learnt from ratings, so nothing is guaranteed about it.

    >>> rng = np.random.default_rng(0)
    >>> MovieLens(num_agents=5).instance(rng, rng).means.shape
    (5, 30)
    """

    num_agents: int = 100  #: the number of agents, M
    factors: str = "completed"  #: "completed" or "masked" ratings, from which the factors are learnt
    users: str = "eligible"  #: "eligible" or "all", among whom the agents are drawn
    hidden: str = "gaussian"  #: "gaussian" or "household", the way in which contexts are hidden
    context_std: float = USUAL_STD  #: standard deviation of each number of a context
    error: str = "berkson"  #: "berkson" (contexts vary around what is shown) or "classical" (the other way round)
    context: str = "fixed"  #: "fixed", "resampled" at each pull, or "streaming": new at each step
    noise_std: float = 1e-3  #: standard deviation of the rewards' noise
    change_every: int | None = None  #: steps until contexts are new; None: never, or 1 if "streaming"

    def __post_init__(self) -> None:
        whole_number("num_agents", self.num_agents, at_least=1)
        one_of("factors", self.factors, ("completed", "masked"))
        one_of("users", self.users, ("eligible", "all"))
        one_of("hidden", self.hidden, ("gaussian", "household"))
        real_number("noise_std", self.noise_std, at_least=0)
        check_hidden(self.context, self.error, self.context_std)
        segment_length(self.context, self.change_every)
        if self.hidden == "household" and (self.error == "classical" or self.context_std != USUAL_STD):
            raise ValueError(
                "hidden: expected no error and no context_std with 'household', got "
                f"error={self.error!r}, context_std={self.context_std!r}; an account's mu is the true mixture of its "
                "members, so leave them out"
            )
        available = len(self._users())
        if self.hidden == "gaussian" and self.num_agents > available:
            raise ValueError(
                f"num_agents: expected at most the {available} users there are with factors={self.factors!r} and "
                f"users={self.users!r}, got {self.num_agents}; use users='all' or fewer agents"
            )

    @property
    def segment_steps(self) -> int | None:
        """The length of a segment; None: contexts never change."""
        return segment_length(self.context, self.change_every)

    def _users(self) -> IntArray:
        """The numbers of the users among whom the agents are drawn."""
        factors = movielens.load_factors(self.factors)
        return movielens.eligible_users(factors) if self.users == "eligible" else np.arange(len(factors.users))

    def problem_shape(self) -> ProblemShape:
        """The shape of all instances, found without drawing one."""
        num_arms, dim = movielens.load_factors(self.factors).theta.shape
        shown: ContextDistribution
        if self.hidden == "gaussian":
            shown = Gaussian(np.zeros((1, dim)), std=self.context_std)
        else:
            shown = Discrete(np.zeros((1, PLACES, dim)), np.full((1, PLACES), 1 / PLACES))
        return ProblemShape(self.num_agents, Identity(num_arms, dim), shown, within_segment(self.context))

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """Draw the users or households, then who or what is behind the screen."""
        factors, pool = movielens.load_factors(self.factors), self._users()
        distribution: ContextDistribution
        if self.hidden == "gaussian":
            base = factors.users[rng.permutation(pool)[: self.num_agents]]
            distribution, contexts = around(
                base, self.context_std, self.error, within_segment(self.context), context_rng
            )
        else:
            distribution = households(factors.users[pool], self.num_agents, rng)
            contexts = distribution.sample(context_rng) if self.context != "resampled" else None
        # The mean of a household's members can be shorter than each of them.
        eligible = self.users == "eligible" and self.hidden == "gaussian"
        ell = L = None
        if self.segment_steps is not None and self.hidden == "gaussian":  # any user may visit
            norms = np.linalg.norm(factors.users[pool], axis=1)
            ell, L = float(norms.min()), float(norms.max())
        return BanditInstance(
            factors.theta,
            Identity(*factors.theta.shape),
            distribution,
            contexts,
            self.noise_std,
            context=within_segment(self.context),
            ell=movielens.ELL if eligible else ell,
            L=movielens.L if eligible else L,
        )

    def context_stream(self, instance: BanditInstance, seed: int, segments: int) -> DrawnAnew:
        """Another user visits in each segment; in a household, another member of the same account sits there."""
        users = movielens.load_factors(self.factors).users[self._users()]

        def visitors(
            segments: int, rng: np.random.Generator, context_rng: np.random.Generator
        ) -> tuple[ContextDistribution, FloatArray | None]:
            base = users[rng.integers(len(users), size=segments * self.num_agents)]
            return around(base, self.context_std, self.error, within_segment(self.context), context_rng)

        def members(
            segments: int, rng: np.random.Generator, context_rng: np.random.Generator
        ) -> tuple[ContextDistribution, FloatArray]:
            accounts = instance.distribution.rows(np.tile(np.arange(self.num_agents), segments))
            return accounts, accounts.sample(context_rng)

        return DrawnAnew(seed, visitors if self.hidden == "gaussian" else members)


@dataclass(frozen=True)
class Household(MovieLens):
    """MovieLens accounts that 2 to 4 people share: mu_i is the mixture of their factors, and c_i is one of them.

    Agents observe the `support` (4, 3), the factors of the members, and the `weights` (4,), how often each member is
    behind the screen.

    >>> rng = np.random.default_rng(0)
    >>> Household(num_agents=5).instance(rng, rng).distribution.support.shape
    (5, 4, 3)
    """

    hidden: str = field(default="household", init=False)
    context_std: float = field(default=USUAL_STD, init=False)
    error: str = field(default="berkson", init=False)
