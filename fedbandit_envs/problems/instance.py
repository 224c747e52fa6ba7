"""One bandit problem with its truth: theta, features, contexts, noise, and the gaps every regret is computed from."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray, immutable, read_only, short_repr
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import FeatureMap
from fedbandit_envs.contexts.finite import PointMass, unchecked
from fedbandit_envs.contexts.rewards import BernoulliRewards, GaussianRewards, RewardLaw
from fedbandit_envs.problems.instance_checks import check_kinds, check_norms, check_observed
from fedbandit_envs.problems.regrets import kind_of_regret
from fedbandit_envs.protocol.knowledge import LONGEST_HORIZON, Constants, View
from fedbandit_envs.seeding import Randomness
from fedbandit_envs.validation import one_of, real_array, real_number, true_or_false, whole_number

_ROUNDING = 1e-9  # guarantees may be missed by this much; a Bernoulli mean this close to [0, 1] is drawn as 0 or 1


@dataclass(frozen=True, eq=False)
class BanditInstance:
    """M linear bandits that share the arm parameters theta: the problem of one episode, with its truth.

    With `context="fixed"` agent i plays in its context c_i for the whole episode; with "resampled" each pull draws a
    new one from mu_i. The last four fields are guarantees; they are public, unlike theta. Environments draw instances
    from a problem such as `Synthetic`; make one yourself to compute with means, gaps and regrets.

    >>> from fedbandit_envs.contexts.features import Identity
    >>> points = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> instance = BanditInstance(np.eye(2), Identity(2, 2), PointMass(points), points)
    >>> instance.means
    array([[1., 0.],
           [0., 2.]])
    >>> instance.gaps("regret")
    array([[0., 1.],
           [2., 0.]])
    """

    theta: FloatArray  #: (K, d) the parameters of the arms
    feature_map: FeatureMap  #: phi, from contexts to features
    distribution: ContextDistribution  #: mu, M rows
    contexts: FloatArray | None  #: (M, n) the hidden truth; None when resampled
    noise_std: float = 1.0  #: standard deviation of the noise of Gaussian rewards
    rewards: str = "gaussian"  #: "gaussian", or "bernoulli": 1 with probability equal to the mean
    context: str = "fixed"  #: "fixed", or "resampled" at each pull
    ell: float | None = None  #: public lower end of the feature norms; None: the smallest norm of all agents
    L: float | None = None  #: public upper end of the feature norms; None: the largest norm of all agents
    population: "BanditInstance | None" = None  #: the whole of which this is a shard
    shared_theta: bool = False  #: whether all arms are guaranteed to have one theta
    same_arms: bool = False  #: whether all agents are guaranteed to have the same psi
    theta_bound: float | None = None  #: a guaranteed bound of the norms of theta
    context_proxy: float | None = None  #: a guaranteed variance proxy of <theta_a, phi(a, c) - psi_a>

    __repr__ = short_repr

    def __post_init__(self) -> None:
        check_kinds(self.feature_map, self.distribution)
        shape = (self.feature_map.num_arms, self.feature_map.dim)
        object.__setattr__(self, "theta", real_array("theta", self.theta, shape))
        one_of("context", self.context, ("fixed", "resampled"))
        one_of("rewards", self.rewards, ("gaussian", "bernoulli"))
        object.__setattr__(self, "noise_std", real_number("noise_std", self.noise_std, at_least=0))
        self._check_contexts()
        self._check_range_of_norms()
        check_norms("phi, the true features", self.phi, self.theta)
        self._check_guarantees()
        if self.rewards == "bernoulli":
            self._check_bernoulli()
        elif self.context == "resampled":  # one agent is enough to find out whether there is a law
            self.distribution.rows(np.arange(1)).reward_law(self.feature_map, self.theta, self.noise_std)

    def _check_contexts(self) -> None:
        """Refuse contexts that don't fit to the distribution."""
        if (self.contexts is None) != (self.context == "resampled"):
            raise ValueError(
                f"contexts: expected {'none' if self.context == 'resampled' else 'one per agent'} with "
                f"context={self.context!r}, got {'none' if self.contexts is None else 'some'}; resampled contexts are "
                "drawn from the distribution at each pull"
            )
        check_norms("psi, the expected features", self.psi, self.theta)
        if self.contexts is None:
            return
        expected = (self.num_agents, self.feature_map.context_dim)
        object.__setattr__(self, "contexts", real_array("contexts", self.contexts, expected))
        known = self.distribution.known
        if known is not None and not np.array_equal(known, self.contexts):
            raise ValueError(
                "contexts: expected those that the distribution knows exactly, got others; contexts that are not known "
                "exactly need a Gaussian or a Discrete distribution"
            )

    def _check_range_of_norms(self) -> None:
        """Refuse ends of the feature norms that are no range."""
        for name in ("ell", "L"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, real_number(name, getattr(self, name), above=0))
        if self.ell is not None and self.L is not None and self.ell > self.L:
            raise ValueError(
                f"ell: expected at most L = {self.L}, got {self.ell}; they are the ends of the range of feature norms"
            )

    def _check_guarantees(self) -> None:
        """Refuse stated guarantees that don't hold; a guarantee that is not stated is never derived from the truth."""
        for name in ("shared_theta", "same_arms"):
            object.__setattr__(self, name, true_or_false(name, getattr(self, name)))
        for name in ("theta_bound", "context_proxy"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, real_number(name, getattr(self, name), at_least=0))
        if self.shared_theta and np.ptp(self.theta, axis=0).max() > _ROUNDING:
            raise ValueError("shared_theta: expected one theta for all arms, got rows that differ")
        if self.same_arms and np.ptp(self.psi, axis=0).max() > _ROUNDING:
            raise ValueError("same_arms: expected one psi for all agents, got agents that differ")
        if self.theta_bound is not None:
            largest = np.linalg.norm(self.theta, axis=1).max()
            if largest > self.theta_bound + _ROUNDING:
                raise ValueError(
                    f"theta_bound: expected at least the largest norm of theta, {largest:g}, got {self.theta_bound:g}"
                )

    def _check_bernoulli(self) -> None:
        """Refuse means that are no probabilities."""
        if self.context == "resampled" and not self.distribution.finite_support:
            raise ValueError(
                f"rewards: expected 'gaussian' with resampled contexts of a {type(self.distribution).__name__}, got "
                "'bernoulli'; only with finite_support is it certain that all means lie in [0, 1], so use "
                "context='fixed' or a Discrete distribution"
            )
        means = self.means
        if self.context == "resampled":
            points, weights = self.distribution.nodes()
            means = np.einsum("msad,ad->msa", self.feature_map(points), self.theta)[weights > 0]
        if means.min() < -_ROUNDING or means.max() > 1 + _ROUNDING:
            raise ValueError(
                f"rewards: expected mean rewards in [0, 1] for 'bernoulli', got {means.min():g} to {means.max():g}; "
                "rescale theta or the features"
            )

    @property
    def num_agents(self) -> int:
        """The number of agents: M, or those of the shard."""
        return self.distribution.num_agents

    @property
    def num_arms(self) -> int:
        """The number of arms, K."""
        return self.feature_map.num_arms

    @property
    def dim(self) -> int:
        """The length of a feature vector, d."""
        return self.feature_map.dim

    @cached_property
    def psi(self) -> FloatArray:
        """The expected features under mu_i, (M, K, d)."""
        return read_only(self.distribution.expected_features(self.feature_map))

    @cached_property
    def phi(self) -> FloatArray:
        """The features of the true contexts, (M, K, d); psi if contexts are resampled."""
        return self.psi if self.contexts is None else read_only(self.feature_map(self.contexts))

    @cached_property
    def means(self) -> FloatArray:
        """The mean rewards of a pull, (M, K)."""
        return read_only(np.einsum("ad,mad->ma", self.theta, self.phi))

    @cached_property
    def distribution_means(self) -> FloatArray:
        """The mean rewards under mu_i, (M, K)."""
        return read_only(np.einsum("ad,mad->ma", self.theta, self.psi))

    def reward_law(self) -> RewardLaw:
        """The law of the rewards, from which an episode draws."""
        if self.rewards == "bernoulli" or self.context == "fixed":
            return self.law_of(self.means)
        return self.distribution.reward_law(self.feature_map, self.theta, self.noise_std)

    def law_of(self, means: FloatArray) -> RewardLaw:
        """The law of rewards with these mean rewards (n, K)."""
        if self.rewards == "bernoulli":
            return BernoulliRewards(means.clip(0, 1))  # the check of the means allows for rounding
        return GaussianRewards(means, self.noise_std)

    def gaps(self, kind: str = "regret") -> FloatArray:
        """What one pull of each arm adds to the regret, (M, K).

        Args:
            kind: a kind of `fedbandit_envs.problems.regrets.REGRETS`, which says with what each of them compares.
        """
        gaps = kind_of_regret(kind).gaps(self)
        if np.shape(gaps) != self.means.shape:
            raise ValueError(
                f"{kind}: expected gaps of shape {self.means.shape} = (agents, arms), got {np.shape(gaps)}; a shard is "
                "asked for the gaps of its own agents"
            )
        return gaps

    def observed(self, observe: str) -> tuple[ContextDistribution, FloatArray]:
        """The distribution that agents are shown, and its expected features (M, K, d).

        Args:
            observe: "distribution", "context" (a point mass at the true context), "truth" or "theta" (as
                "distribution"; a view adds the means, or theta).
        """
        check_observed(observe, self.context)
        if observe != "context" or self.contexts is None:
            return self.distribution, self.psi
        return unchecked(PointMass, points=self.contexts), self.phi

    def constants(self, horizon: int, observe: str = "distribution") -> Constants:
        """The public constants of the whole problem.

        Args:
            horizon: the number of steps, T.
            observe: what agents are shown, as `observed` takes it.
        """
        whole = self.population or self
        psi = whole.observed(observe)[1]
        known = whole.distribution.known is not None
        norms = np.linalg.norm(psi, axis=-1)
        shortest, longest = float(norms.min()), float(norms.max())
        ell = shortest if self.ell is None else self.ell
        L = longest if self.L is None else self.L
        return Constants(
            num_agents=whole.num_agents,
            num_arms=self.num_arms,
            dim=self.dim,
            horizon=whole_number("horizon", horizon, at_least=1, at_most=LONGEST_HORIZON),
            ell=ell,
            L=L,
            noise_std=self.noise_std if self.rewards == "gaussian" else 0.5,
            context=self.context,
            shared_theta=self.shared_theta,
            same_arms=self.same_arms and (observe != "context" or known),
            theta_bound=self.theta_bound,
            context_proxy=0.0 if observe == "context" or known else self.context_proxy,
            shortest=shortest,
            longest=longest,
        )

    def view(self, horizon: int, randomness: Randomness, observe: str = "distribution") -> View:
        """What the agents know.

        Args:
            horizon: the number of steps, T.
            randomness: the source from which their policy draws.
            observe: what agents are shown, as `observed` takes it.
        """
        distribution, psi = self.observed(observe)
        return View(
            constants=self.constants(horizon, observe),
            agents=immutable(np.arange(self.num_agents) if randomness.rows is None else randomness.rows),
            distribution=distribution,
            feature_map=self.feature_map,
            psi=psi,
            randomness=randomness,
            truth=self.means if observe == "truth" else None,
            theta=self.theta if observe == "theta" else None,
        )

    def rows(self, index: IntArray) -> "BanditInstance":
        """The shard of the agents with these positions; its public constants are those of the whole."""
        contexts = None if self.contexts is None else self.contexts[index]
        return replace(
            self, distribution=self.distribution.rows(index), contexts=contexts, population=self.population or self
        )
