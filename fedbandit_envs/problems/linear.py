"""Problems from arrays of the user's own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray, short_repr
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import FeatureMap, Identity, Table
from fedbandit_envs.contexts.finite import PointMass
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.problems.generator import ProblemShape
from fedbandit_envs.problems.given_streams import GivenContexts, GivenStream, checked_contexts
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.instance_checks import check_kinds
from fedbandit_envs.problems.streams import ContextStream, DrawnAnew, segment_length, within_segment
from fedbandit_envs.validation import real_array, whole_number


@dataclass(frozen=True, eq=False)
class Linear:
    """Your own arrays; without any, a small example.

    Give either `features`, which are then known exactly, or `contexts` (a distribution) with a `feature_map`. The last
    four fields are guarantees that you state; they are told to all agents, and refused where they don't hold.

    Where contexts change (`context="streaming"`: at each step, or `change_every`), `features` has a leading axis of
    segments, or is a function of the segment's number, from 0. `contexts` is a list of distributions, one per segment,
    or such a function. `true_contexts` has a leading axis of segments. A function needs `ell` and `L`.

    >>> rng = np.random.default_rng(0)
    >>> Linear(theta=np.eye(2), features=np.ones((3, 2, 2)), theta_bound=1.0).instance(rng, rng).means
    array([[1., 1.],
           [1., 1.],
           [1., 1.]])
    """

    theta: FloatArray | None = None  #: (K, d) the parameters of the arms
    features: FloatArray | Callable[[int], FloatArray] | None = None  #: (M, K, d) features that are known exactly
    #: mu, the distribution of the hidden contexts
    contexts: ContextDistribution | Sequence[ContextDistribution] | Callable[[int], ContextDistribution] | None = None
    feature_map: FeatureMap | None = None  #: phi, needed with `contexts`
    true_contexts: FloatArray | None = None  #: (M, n) the hidden contexts; None: drawn from the distribution
    num_agents: int | None = None  #: the size of the example; with arrays, what they must have
    context: str = "fixed"  #: "fixed", "resampled" at each pull, or "streaming": new at each step
    noise_std: float = 1.0  #: standard deviation of the noise of Gaussian rewards
    rewards: str = "gaussian"  #: "gaussian", or "bernoulli": 1 with probability equal to the mean
    ell: float | None = None  #: public lower end of the feature norms; None: the smallest norm of all agents
    L: float | None = None  #: public upper end of the feature norms; None: the largest norm of all agents
    shared_theta: bool = False  #: whether all arms have one theta
    same_arms: bool = False  #: whether all agents have the same psi
    theta_bound: float | None = None  #: a bound of the norms of theta
    context_proxy: float | None = None  #: a variance proxy of <theta_a, phi(a, c) - psi_a>
    change_every: int | None = None  #: steps until contexts are new; None: never, or 1 if "streaming"
    _given_stream: GivenStream | None = field(init=False, repr=False, default=None)
    _parts: tuple[FloatArray, FeatureMap, ContextDistribution] = field(init=False, repr=False)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        segment_length(self.context, self.change_every)
        parts = self._given() if self.theta is not None else self._example()
        num_agents = parts[2].num_agents
        if self.true_contexts is not None and self._given_stream is not None:
            shape = ("segments", num_agents, parts[1].context_dim)
            object.__setattr__(self, "true_contexts", checked_contexts(self.true_contexts, shape))
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
        if self.segment_steps is not None:
            object.__setattr__(self, "_given_stream", self._stream(theta))
        if self.contexts is None:
            if self.feature_map is not None:
                raise ValueError(
                    "feature_map: expected none with features, got one; features (M, K, d) are what a map would give"
                )
            if self._given_stream is not None:
                return theta, Table(*theta.shape), self._given_stream.at(0)
            features = real_array("features", self.features, ("agents", *theta.shape))  # type: ignore[arg-type]
            return theta, Table(*theta.shape), PointMass(features.reshape(len(features), -1))
        if self.feature_map is None:
            raise ValueError(
                "feature_map: expected a feature map with contexts, got None; use Identity(K, d) when a context is the "
                "feature vector, Table(K, d) when it is the table of them, or FeatureFunction(...)"
            )
        shown = self.contexts if self._given_stream is None else self._given_stream.at(0)
        check_kinds(self.feature_map, shown)
        assert isinstance(shown, ContextDistribution)  # check_kinds refuses anything else
        return theta, self.feature_map, shown

    @property
    def segment_steps(self) -> int | None:
        """The length of a segment; None: contexts never change."""
        return segment_length(self.context, self.change_every)

    def _stream(self, theta: FloatArray) -> GivenStream:
        """The user's stream; refuses one without public feature norms, which nobody could compute from a function."""
        if self.contexts is None:
            given = GivenStream.of_features(self.features, theta.shape)
        else:
            given = GivenStream.of_distributions(self.contexts)
        if given.count is None and (self.ell is None or self.L is None):
            raise ValueError(
                "ell, L: expected both where contexts are a function of the segment, got "
                f"{self.ell} and {self.L}; they bound the norms of psi in all segments"
            )
        return given

    def _example(self) -> tuple[FloatArray, FeatureMap, ContextDistribution]:
        """Three arms in the plane, agents spread over a quarter circle."""
        if not (self.features is None and self.contexts is None and self.feature_map is None):
            raise ValueError("theta: expected an array (K, d) with features or contexts, got None; pass theta")
        num_agents = 4 if self.num_agents is None else whole_number("num_agents", self.num_agents, at_least=1)
        angle = np.linspace(0.1, 0.4, num_agents) * np.pi
        centres = 0.8 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]]), Identity(3, 2), Gaussian(centres, std=0.05)

    @cached_property
    def _norms(self) -> tuple[float, float]:
        """The range of the norms of psi over all segments, where they are given one by one."""
        given, (_, feature_map, _) = self._given_stream, self._parts
        assert given is not None
        assert given.count is not None  # a function needs ell and L
        ends = []
        for number in range(given.count):
            norms = np.linalg.norm(given.at(number).expected_features(feature_map), axis=-1)
            ends.append((norms.min(), norms.max()))
        low, high = np.array(ends).T
        return (
            float(low.min()) if self.ell is None else self.ell,
            float(high.max()) if self.L is None else self.L,
        )

    def problem_shape(self) -> ProblemShape:
        """The shape of all instances: that of the arrays."""
        _, feature_map, distribution = self._parts
        return ProblemShape(distribution.num_agents, feature_map, distribution, within_segment(self.context))

    def context_stream(self, instance: BanditInstance, seed: int, segments: int) -> ContextStream:
        """The given stream; without arrays, the agents of the example change places at random."""
        given = self._given_stream
        if given is None:
            return DrawnAnew(seed, self._example_segments)
        if given.count is not None and given.count < segments:
            raise ValueError(
                f"Linear: expected at least {segments} segments for an episode of this length, got {given.count}; give "
                "more, or lower max_cycles"
            )
        contexts = self.true_contexts
        if contexts is not None and len(contexts) < segments:
            raise ValueError(f"true_contexts: expected at least {segments} segments, got {len(contexts)}")
        return GivenContexts(given, segments, seed, contexts)

    def _example_segments(
        self, segments: int, rng: np.random.Generator, context_rng: np.random.Generator
    ) -> tuple[ContextDistribution, FloatArray | None]:
        _, _, distribution = self._parts
        rows = rng.integers(distribution.num_agents, size=segments * distribution.num_agents)
        visited = distribution.rows(rows)
        return visited, visited.sample(context_rng)

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """The arrays are given: only the hidden contexts are drawn."""
        return self.part(None, context_rng)

    def part(self, rows: IntArray | None, context_rng: np.random.Generator) -> BanditInstance:
        """The problem of these agents alone, with nothing known of the others; None: of all."""
        theta, feature_map, distribution = self._parts
        contexts, ell, L = self.true_contexts, self.ell, self.L
        if self._given_stream is not None:
            contexts = None if contexts is None else contexts[0]
            ell, L = self._norms if ell is None or L is None else (ell, L)
        if rows is not None:
            distribution = distribution.rows(rows)
            contexts = contexts if contexts is None else real_array("true_contexts", contexts, ("agents", "n"))[rows]
        if contexts is None and self.context != "resampled":
            contexts = distribution.sample(context_rng)
        return BanditInstance(
            theta,
            feature_map,
            distribution,
            contexts,
            self.noise_std,
            self.rewards,
            within_segment(self.context),
            ell,
            L,
            shared_theta=self.shared_theta,
            same_arms=self.same_arms,
            theta_bound=self.theta_bound,
            context_proxy=self.context_proxy,
        )
