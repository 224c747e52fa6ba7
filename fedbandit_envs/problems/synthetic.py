"""The synthetic problems of the paper."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.features import Table
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.problems.context_error import USUAL_STD, around, check_hidden
from fedbandit_envs.problems.generator import ProblemShape
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.streams import DrawnAnew, segment_length, within_segment
from fedbandit_envs.validation import real_number, whole_number


@dataclass(frozen=True)
class Synthetic:
    """The paper's synthetic problems.

    Every arm has theta_a = e_1. The features of each agent are drawn so that its gaps lie in `gap`, its feature norms
    lie in [0.5, 1], and each arm is the best with equal probability. A context is the table of an agent's features,
    which is hidden by Gaussian noise. Agents observe the `mean` and the `std` (each K d numbers) of their mu_i, and
    rewards have Gaussian noise.

    >>> rng = np.random.default_rng(0)
    >>> instance = Synthetic(num_agents=5, gap=0.3, context_std=0.0).instance(rng, rng)
    >>> np.sort(instance.gaps(), axis=1)[0].round(3)
    array([0. , 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3])
    """

    draws_by_rows: ClassVar[bool] = True  #: whether a shard can draw its agents alone; see `draw_rows`

    num_agents: int = 100  #: the number of agents, M
    num_arms: int = 10  #: the number of arms, K
    dim: int = 3  #: the length of a feature vector, d
    gap: tuple[float, float] | float = (0.2, 0.4)  #: the range of the suboptimality gaps, or the one gap of all arms
    context_std: float = USUAL_STD  #: standard deviation of each number of a context
    error: str = "berkson"  #: "berkson" (contexts vary around what is shown) or "classical" (the other way round)
    context: str = "fixed"  #: "fixed", "resampled" at each pull, or "streaming": fresh features at each step
    noise_std: float = 1.0  #: standard deviation of the rewards' noise
    change_every: int | None = None  #: steps until contexts are new; None: never, or 1 if "streaming"

    def __post_init__(self) -> None:
        whole_number("num_agents", self.num_agents, at_least=1)
        whole_number("num_arms", self.num_arms, at_least=1)
        whole_number("dim", self.dim, at_least=2)
        real_number("noise_std", self.noise_std, at_least=0)
        check_hidden(self.context, self.error, self.context_std)
        segment_length(self.context, self.change_every)
        self._gap_range()

    @property
    def segment_steps(self) -> int | None:
        """The length of a segment; None: contexts never change."""
        return segment_length(self.context, self.change_every)

    def _gap_range(self) -> tuple[float, float]:
        """The smallest and the largest gap."""
        ends = self.gap if isinstance(self.gap, (tuple, list)) else (self.gap, self.gap)
        if len(ends) != 2:
            raise ValueError(f"gap: expected a number or a pair (low, high), got {self.gap!r}")
        low, high = (real_number("gap", end, at_least=0) for end in ends)
        if not low <= high <= 1.5:
            raise ValueError(
                f"gap: expected 0 <= low <= high <= 1.5, got {self.gap!r}; the best mean is 0.8 to 0.9 and means are "
                "above -1"
            )
        return low, high

    def problem_shape(self) -> ProblemShape:
        """The shape of all instances, found without drawing one."""
        feature_map = Table(self.num_arms, self.dim)
        shown = Gaussian(np.zeros((1, feature_map.context_dim)), std=self.context_std)
        return ProblemShape(self.num_agents, feature_map, shown, within_segment(self.context))

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """Draw features with the required gaps and norms; no draw is ever rejected."""
        distribution, contexts = self._drawn(1, rng, context_rng)
        theta = np.zeros((self.num_arms, self.dim))
        theta[:, 0] = 1
        feature_map = Table(self.num_arms, self.dim)
        return BanditInstance(
            theta,
            feature_map,
            distribution,
            contexts,
            self.noise_std,
            context=within_segment(self.context),
            ell=0.5,
            L=1.0,
            shared_theta=True,
            theta_bound=1.0,
            context_proxy=self.context_std**2 if self.error == "berkson" else None,
        )

    def context_stream(self, instance: BanditInstance, seed: int, segments: int) -> DrawnAnew:
        """Fresh features in each segment, in the same ranges."""
        return DrawnAnew(seed, self._drawn)

    def _drawn(
        self, segments: int, rng: np.random.Generator, context_rng: np.random.Generator
    ) -> tuple[Gaussian, FloatArray | None]:
        """mu and the hidden contexts of `segments` segments, segment after segment."""
        base = self._features(rng, segments * self.num_agents).reshape(segments * self.num_agents, -1)
        return around(base, self.context_std, self.error, within_segment(self.context), context_rng)

    def _features(self, rng: np.random.Generator, rows: int) -> FloatArray:
        """The features (rows, K, d) before anything is hidden."""
        best = rng.integers(self.num_arms, size=rows)
        gap = rng.uniform(*self._gap_range(), size=(rows, self.num_arms))
        gap[np.arange(rows), best] = 0
        first = rng.uniform(0.8, 0.9, size=(rows, 1)) - gap
        return _with_norms_in_range(first, rng, self.dim)


def _with_norms_in_range(first: FloatArray, rng: np.random.Generator, dim: int) -> FloatArray:
    """Vectors (M, K, d) with the given first coordinates (M, K) and norms in [0.5, 1], in random directions."""
    squares = first**2
    low, high = np.sqrt(np.maximum(0.25 - squares, 0)), np.sqrt(np.maximum(1 - squares, 0))
    direction = rng.standard_normal((*first.shape, dim - 1))
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    radius = low + (high - low) * rng.random(first.shape)
    return np.concatenate([first[..., None], radius[..., None] * direction], axis=-1)
