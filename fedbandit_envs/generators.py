"""Generators of instances: a problem family as data, drawn from two independent streams (instance and contexts)."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedbandit_envs import movielens
from fedbandit_envs.contexts import ContextDistribution, Discrete, Gaussian, PointMass
from fedbandit_envs.features import FeatureMap, Identity, Table
from fedbandit_envs.instance import BanditInstance, check_kinds
from fedbandit_envs.validation import FloatArray, IntArray, one_of, real_array, real_number, whole_number

_USUAL_STD = 0.05  # of contexts; the paper gives none, and with this one its statements hold


class InstanceGenerator(Protocol):
    """A problem family; `num_agents` and the shapes of an instance don't depend on the random numbers."""

    @property
    def num_agents(self) -> int | None:
        """M."""

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """One problem: `rng` draws the problem, `context_rng` what is hidden about the contexts."""


def _check_hidden(context: str, error: str, context_std: float) -> None:
    one_of("context", context, ("fixed", "resampled"))
    one_of("error", error, ("berkson", "classical"))
    real_number("context_std", context_std, at_least=0)
    if error == "classical" and context == "resampled":
        raise ValueError(
            "error: expected 'berkson' with context='resampled', got 'classical'; a classical error is how what "
            "is shown deviates from one true context, and a resampled context has no such truth"
        )


def _around(
    base: FloatArray, context_std: float, error: str, context: str, rng: np.random.Generator
) -> tuple[Gaussian, FloatArray | None]:
    """mu and the hidden contexts (M, n) for centres `base` (M, n).

    "berkson": mu is centred at `base` and the context is drawn from it. "classical": `base` is the context, and mu is
    centred at a noisy observation of it (the paper's "psi by adding an observation noise").
    """
    if error == "classical":
        return Gaussian(base + context_std * rng.standard_normal(base.shape), std=context_std), base
    distribution = Gaussian(base, std=context_std)
    return distribution, None if context == "resampled" else distribution.sample(rng)


@dataclass(frozen=True)
class Synthetic:
    """The paper's synthetic problems: theta_a = e_1, gaps in `gap`, feature norms in [0.5, 1], any arm can be best."""

    num_agents: int = 100
    num_arms: int = 10
    dim: int = 3
    gap: tuple[float, float] | float = (0.2, 0.4)  # range of the suboptimality gaps, or the one gap
    context_std: float = _USUAL_STD
    error: str = "berkson"
    context: str = "fixed"
    noise_std: float = 1.0

    def __post_init__(self) -> None:
        whole_number("num_agents", self.num_agents, at_least=1)
        whole_number("num_arms", self.num_arms, at_least=1)
        whole_number("dim", self.dim, at_least=2)
        real_number("noise_std", self.noise_std, at_least=0)
        _check_hidden(self.context, self.error, self.context_std)
        self._gap_range()

    def _gap_range(self) -> tuple[float, float]:
        ends = self.gap if isinstance(self.gap, (tuple, list)) else (self.gap, self.gap)
        if len(ends) != 2:
            raise ValueError(f"gap: expected a number or a pair (low, high), got {self.gap!r}; pass one of these")
        low, high = (real_number("gap", end, at_least=0) for end in ends)
        if not low <= high <= 1.5:
            raise ValueError(
                f"gap: expected 0 <= low <= high <= 1.5, got {self.gap!r}; the best mean is 0.8 to 0.9 and means are "
                "above -1"
            )
        return low, high

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """Draw features of the required gaps and norms; no rejection is needed."""
        distribution, contexts = _around(
            self._features(rng).reshape(self.num_agents, -1), self.context_std, self.error, self.context, context_rng
        )
        theta = np.zeros((self.num_arms, self.dim))
        theta[:, 0] = 1
        feature_map = Table(self.num_arms, self.dim)
        return BanditInstance(
            theta, feature_map, distribution, contexts, self.noise_std, context=self.context, ell=0.5, L=1.0
        )

    def _features(self, rng: np.random.Generator) -> FloatArray:
        shape = (self.num_agents, self.num_arms)
        best = rng.integers(self.num_arms, size=self.num_agents)
        gap = rng.uniform(*self._gap_range(), size=shape)
        gap[np.arange(self.num_agents), best] = 0
        first = rng.uniform(0.8, 0.9, size=(self.num_agents, 1)) - gap
        return _with_norms_in_range(first, rng, self.dim)


@dataclass(frozen=True)
class MovieLens:
    """MovieLens-100K users as agents, clusters of films as arms (K = 30, d = 3), phi(a, c) = c.

    `factors`: "completed" (the matrix completed by user-based filtering, then factorised) or "masked" (factorised on
    the observed ratings only: more heterogeneous). `users`: "eligible" are those whose norms and gaps lie in the
    ranges that the paper reports, so these ranges hold by selection; "all" takes everyone. `hidden`: "gaussian" adds
    noise of `context_std` to the user's factors; "household" makes each agent an account shared by 2 to 4 users, of
    whom one is behind the screen.
    """

    num_agents: int = 100
    factors: str = "completed"
    users: str = "eligible"
    hidden: str = "gaussian"
    context_std: float = _USUAL_STD
    error: str = "berkson"
    context: str = "fixed"
    noise_std: float = 1e-3

    def __post_init__(self) -> None:
        whole_number("num_agents", self.num_agents, at_least=1)
        one_of("factors", self.factors, ("completed", "masked"))
        one_of("users", self.users, ("eligible", "all"))
        one_of("hidden", self.hidden, ("gaussian", "household"))
        real_number("noise_std", self.noise_std, at_least=0)
        _check_hidden(self.context, self.error, self.context_std)
        if self.hidden == "household" and (self.error == "classical" or self.context_std != _USUAL_STD):
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

    def _users(self) -> IntArray:
        factors = movielens.load_factors(self.factors)
        return movielens.eligible_users(factors) if self.users == "eligible" else np.arange(len(factors.users))

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """Draw the users (or households), then who or what is behind the screen."""
        factors, pool = movielens.load_factors(self.factors), self._users()
        distribution: ContextDistribution
        if self.hidden == "gaussian":
            base = factors.users[rng.permutation(pool)[: self.num_agents]]
            distribution, contexts = _around(base, self.context_std, self.error, self.context, context_rng)
        else:
            distribution = _households(factors.users[pool], self.num_agents, rng)
            contexts = distribution.sample(context_rng) if self.context == "fixed" else None
        # The mean of a household's members can be shorter than each of them.
        eligible = self.users == "eligible" and self.hidden == "gaussian"
        return BanditInstance(
            factors.theta,
            Identity(*factors.theta.shape),
            distribution,
            contexts,
            self.noise_std,
            context=self.context,
            ell=movielens.ELL if eligible else None,
            L=movielens.L if eligible else None,
        )


def _households(users: FloatArray, num_agents: int, rng: np.random.Generator) -> Discrete:
    """Accounts of 2 to 4 different users; how often each is behind the screen is uniform on the simplex.

    The weights are a choice: of the forms tried, this one and a few others make mu_i point to a wrong arm for about
    20 % (completed) and 28 % (masked) of the accounts; equal weights do so for 27 % and 38 %.
    Empty places repeat the first user, with weight 0.
    """
    size = rng.integers(2, 5, size=num_agents)
    members = np.stack([rng.choice(len(users), 4, replace=False) for _ in range(num_agents)])
    weights = np.where(np.arange(4) < size[:, None], rng.standard_exponential((num_agents, 4)), 0)
    weights /= weights.sum(axis=1, keepdims=True)
    members = np.where(weights > 0, members, members[:, :1])
    return Discrete(users[members], weights)


@dataclass(frozen=True)
class Household(MovieLens):
    """MovieLens accounts shared by 2 to 4 people: mu_i is the mixture of their factors, c_i one of them."""

    hidden: str = field(default="household", init=False)
    context_std: float = field(default=_USUAL_STD, init=False)
    error: str = field(default="berkson", init=False)


@dataclass(frozen=True, eq=False)
class Linear:
    """Your own arrays; without any, a small example.

    Either `features` (M, K, d), known exactly, or `contexts` (a distribution) with a `feature_map`; `true_contexts`
    (M, n) fixes the hidden contexts instead of drawing them from the distribution.
    """

    theta: FloatArray | None = None  # (K, d)
    features: FloatArray | None = None  # (M, K, d)
    contexts: ContextDistribution | None = None
    feature_map: FeatureMap | None = None
    true_contexts: FloatArray | None = None  # (M, n)
    num_agents: int | None = None  # of the example; with arrays, what they must have
    context: str = "fixed"
    noise_std: float = 1.0
    rewards: str = "gaussian"
    ell: float | None = None
    L: float | None = None
    _parts: tuple[FloatArray, FeatureMap, ContextDistribution] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = self._given() if self.theta is not None else self._example()
        num_agents = parts[2].num_agents
        if self.num_agents not in (None, num_agents):
            raise ValueError(
                f"num_agents: expected {num_agents}, the rows of the arrays, got {self.num_agents!r}; leave it out"
            )
        object.__setattr__(self, "_parts", parts)
        object.__setattr__(self, "num_agents", num_agents)
        rng = np.random.default_rng(0)
        self.instance(rng, rng)  # refuses what can't be an instance now, not at the first reset

    def _given(self) -> tuple[FloatArray, FeatureMap, ContextDistribution]:
        """theta, the feature map and the distribution of the user's arrays."""
        theta = real_array("theta", self.theta, ("arms", "dim"))  # type: ignore[arg-type]
        if (self.features is None) == (self.contexts is None):
            raise ValueError(
                "Linear: expected either features (M, K, d) or contexts (a distribution), got "
                f"{'neither' if self.features is None else 'both'}; features means that they are known exactly"
            )
        if self.contexts is None:
            if self.feature_map is not None:
                raise ValueError(
                    "feature_map: expected none with features, got one; features (M, K, d) are what a map would give"
                )
            features = real_array("features", self.features, ("agents", *theta.shape))  # type: ignore[arg-type]
            return theta, Table(*theta.shape), PointMass(features.reshape(len(features), -1))
        if self.feature_map is None:
            raise ValueError(
                "feature_map: expected a feature map with contexts, got None; use Identity(K, d) when a context is the "
                "feature vector, Table(K, d) when it is the table of them, or FeatureFunction(...)"
            )
        check_kinds(self.feature_map, self.contexts)
        return theta, self.feature_map, self.contexts

    def _example(self) -> tuple[FloatArray, FeatureMap, ContextDistribution]:
        """Three arms in the plane, agents spread over a quarter circle."""
        if not (self.features is None and self.contexts is None and self.feature_map is None):
            raise ValueError("theta: expected an array (K, d) with features or contexts, got None; pass theta")
        num_agents = 4 if self.num_agents is None else whole_number("num_agents", self.num_agents, at_least=1)
        angle = np.linspace(0.1, 0.4, num_agents) * np.pi
        centres = 0.8 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]]), Identity(3, 2), Gaussian(centres, std=0.05)

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """The arrays are given: only the hidden contexts are drawn."""
        theta, feature_map, distribution = self._parts
        contexts = self.true_contexts
        if contexts is None and self.context == "fixed":
            contexts = distribution.sample(context_rng)
        return BanditInstance(
            theta,
            feature_map,
            distribution,
            contexts,
            self.noise_std,
            self.rewards,
            self.context,
            self.ell,
            self.L,
        )


def _with_norms_in_range(first: FloatArray, rng: np.random.Generator, dim: int) -> FloatArray:
    """(M, K, d) vectors with the given first coordinates and norms in [0.5, 1], in random directions."""
    squares = first**2
    low, high = np.sqrt(np.maximum(0.25 - squares, 0)), np.sqrt(np.maximum(1 - squares, 0))
    direction = rng.standard_normal((*first.shape, dim - 1))
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    radius = low + (high - low) * rng.random(first.shape)
    return np.concatenate([first[..., None], radius[..., None] * direction], axis=-1)
