"""Differential privacy of running sums: clipping, noise, a binary tree over releases, and the budget.

Agents report sums of x x^T and x y again and again. Noise that is fresh in every report would cost more budget with
each report, and noise that is drawn once could be subtracted. The binary tree lies between: release k is the sum of
popcount(k) noisy nodes, and one observation is part of at most `tree_levels` nodes, however many releases there are.
Reference: Chan, Shi and Song, Private and Continual Release of Statistics, 2011.

Two data sets are neighbours if one observation (x, y) of one agent is replaced by another one. When observations are
added must not depend on them: a policy whose reports are triggered by the data leaks through their times.

The privacy of Gaussian noise is computed exactly here, not bounded. A node with noise `std` and sensitivity D is
mu-Gaussian private for mu = D / std, m nodes are so for sqrt(m) mu, also if later ones depend on earlier ones (Dong,
Roth and Su, Gaussian Differential Privacy, 2022), and Balle and Wang (2018) say which (epsilon, delta) this gives.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.seeding import RowDraws
from fedbandit_envs.validation import probability, real_number, whole_number

_HALVINGS = 200  # after this many halvings the ends of an interval are equal


@dataclass(frozen=True)
class Budget:
    """How much an observer may learn about one observation: (epsilon, delta)-differential privacy.

    >>> Budget(epsilon=1.0, delta=1e-5)
    Budget(epsilon=1.0, delta=1e-05)
    """

    epsilon: float  #: the bound on the privacy loss; infinity: no privacy, and no noise
    delta: float  #: how far the bound may be missed

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            real_number("epsilon", self.epsilon, above=0)
        probability("delta", self.delta)


def clipped(
    features: FloatArray, rewards: FloatArray, feature_bound: float, reward_bound: float
) -> tuple[FloatArray, FloatArray]:
    """Features (..., d) of at most the norm L and rewards (...) in [-Y, Y], from any.

    Without clipping there is no privacy: one Gaussian reward can be arbitrarily large. A feature vector that is too
    long is shortened, and keeps its direction.

    Args:
        features: x, (..., d).
        rewards: y, (...).
        feature_bound: L, the longest norm.
        reward_bound: Y, the largest magnitude of a reward.

    >>> clipped(np.array([[3.0, 4.0], [0.3, 0.4]]), np.array([2.0, -0.5]), feature_bound=1.0, reward_bound=1.0)
    (array([[0.6, 0.8],
           [0.3, 0.4]]), array([ 1. , -0.5]))
    """
    norms = np.sqrt(np.einsum("...d,...d->...", features, features))
    too_long = np.maximum(norms / feature_bound, 1)
    return features / too_long[..., None], np.clip(rewards, -reward_bound, reward_bound)


def sensitivity(feature_bound: float, reward_bound: float) -> float:
    """How far the pair (x x^T, x y) moves, in the Euclidean norm, if one clipped observation is replaced by another.

    The worst pair has norms L, rewards Y and -Y, and the cosine c = min(Y^2 / (2 L^2), 1) between its features: it
    moves by 2 L^4 (1 - c^2) + 2 L^2 Y^2 (1 + c), squared. With sums for each arm, the other observation may belong to
    another arm. That is the case c = 0, so the same number holds.

    >>> round(sensitivity(feature_bound=1.0, reward_bound=1.0), 5)  # 1.5 sqrt(2)
    2.12132
    """
    L, Y = feature_bound, reward_bound
    c = min(Y**2 / (2 * L**2), 1.0)
    return math.sqrt(2 * L**4 * (1 - c**2) + 2 * L**2 * Y**2 * (1 + c))


def tree_levels(releases: int) -> int:
    """m, the levels of a tree for `releases` releases; at most m of its nodes hold a given observation.

    >>> [tree_levels(number) for number in (1, 2, 3, 4, 1000)]
    [1, 2, 2, 3, 10]
    """
    return whole_number("releases", releases, at_least=1).bit_length()


def delta_of(epsilon: float, mu: float) -> float:
    """The least delta for which Gaussian noise is (epsilon, delta)-private; mu is sensitivity over standard deviation.

    This is Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu), the formula of Balle and Wang (2018).

    >>> round(delta_of(0.0, mu=1.0), 4)  # the total variation between N(0, 1) and N(1, 1)
    0.3829
    """
    from scipy.special import log_ndtr

    if mu == 0 or epsilon == math.inf:
        return 0.0
    first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(max(np.exp(first) - np.exp(second), 0.0))


def noise_std(budget: Budget, levels: int, sensitivity: float) -> float:
    """The standard deviation of each node's noise with which a tree of `levels` levels keeps within the budget.

    It is the least that does, and 0 for an infinite epsilon.

    Args:
        budget: what may be spent by all releases together.
        levels: m, as `tree_levels` gives it.
        sensitivity: how far one observation moves a node, as the function `sensitivity` gives it.

    >>> round(noise_std(Budget(1.0, 1e-5), levels=1, sensitivity=1.0), 4)
    3.7306
    """
    if budget.epsilon == math.inf:
        return 0.0
    mu = _root(lambda mu: delta_of(budget.epsilon, mu) > budget.delta)
    return math.sqrt(levels) * sensitivity / mu


def epsilon_spent(std: float, releases: int, sensitivity: float, delta: float) -> float:
    """The epsilon that `releases` releases of a tree have spent, at this delta.

    Args:
        std: the standard deviation of each node's noise; 0 spends everything.
        releases: how many there were; none spend nothing.
        sensitivity: how far one observation moves a node.
        delta: the delta of the budget.

    >>> std = noise_std(Budget(1.0, 1e-5), tree_levels(100), sensitivity=2.0)
    >>> [round(epsilon_spent(std, number, sensitivity=2.0, delta=1e-5), 3) for number in (0, 1, 10, 100)]
    [0.0, 0.346, 0.736, 1.0]
    """
    if releases == 0:
        return 0.0
    if std == 0:
        return math.inf
    mu = math.sqrt(tree_levels(releases)) * sensitivity / std
    if delta_of(0.0, mu) <= delta:
        return 0.0
    return _root(lambda epsilon: delta_of(epsilon, mu) <= delta)


def _root(beyond: Callable[[float], bool]) -> float:
    """The positive number from which on `beyond` is true, by doubling and halving."""
    low, high = 0.0, 1.0
    while not beyond(high):
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return low


def report_noise(draws: RowDraws, std: float, *shape: int) -> tuple[FloatArray, FloatArray]:
    """Noise for a Gram matrix (n, ..., d, d), which is symmetric, and for moments (n, ..., d); `shape` is (..., d).

    The matrix is (Z + Z^T) / 2, where Z has independent entries of the standard deviation `std`. Its off-diagonal
    entries have half the variance of the others. This is as private as Z itself: each such entry of a Gram matrix is
    there twice, and to average the two is a function of x x^T + Z.

    >>> from fedbandit_envs.seeding import Randomness, Stream
    >>> draws = Randomness(seed=0, stream=Stream.POLICY, num_agents=5).draws(1)
    >>> gram, moments = report_noise(draws, 2.0, 3)
    >>> gram.shape, moments.shape, bool((gram == gram.swapaxes(1, 2)).all())
    ((5, 3, 3), (5, 3), True)
    """
    Z = draws.normals(*shape, shape[-1])
    return (Z + Z.swapaxes(-1, -2)) * (std / 2), std * draws.normals(*shape)


def laplace_noise(draws: RowDraws, scale: float, *shape: int) -> FloatArray:
    """Laplace noise (n, *shape) of a scale b, whose standard deviation is sqrt(2) b.

    It makes a number that one observation moves by at most D private, with epsilon = D / b and no delta. The epsilons
    of several numbers add up: m nodes of a tree spend m D / b.

    >>> from fedbandit_envs.seeding import Randomness, Stream
    >>> draws = Randomness(seed=0, stream=Stream.POLICY, num_agents=5).draws(1)
    >>> laplace_noise(draws, 2.0, 3).shape
    (5, 3)
    """
    centred = draws.uniforms(*shape) - 0.5
    # The smallest uniform is 0, whose noise would be infinite: it gets that of half the step to the next one.
    return -scale * np.sign(centred) * np.log(np.maximum(1 - 2 * np.abs(centred), 2.0**-53))


def new_level(release: int) -> int:
    """The level of the node that is new in this release, which is the place of its lowest set bit.

    >>> [new_level(release) for release in range(1, 9)]
    [0, 1, 0, 2, 0, 1, 0, 3]
    """
    return (release & -release).bit_length() - 1


def noisy_node(sums: NDArray[Any], release: int, batch: NDArray[Any], noise: NDArray[Any]) -> NDArray[Any]:
    """The noisy node of a release, on the side of those who hold the data.

    Sums of booleans, of which one that is true is enough, say which entries of a node were observed at all.

    Args:
        sums: (m, ...) the exact sum behind the newest node of each level, 0 at first. The new node's is written into
            it. If agents are an axis of a batch, no agent's node depends on another's.
        release: k, the number of the release; releases count from 1 and come in order.
        batch: (...) everything that was observed since the last release.
        noise: (...) fresh noise.

    >>> sums = np.zeros((2, 1))
    >>> batches = np.array([[1.0], [2.0], [4.0]])
    >>> [float(noisy_node(sums, k, batch, noise=np.zeros(1))[0]) for k, batch in enumerate(batches, start=1)]
    [1.0, 3.0, 4.0]
    """
    level = _checked_level(release, len(sums))
    total = batch
    for below in sums[:level]:  # one by one: a sum over an axis may add in another order for other numbers of agents
        total = total + below
    sums[level] = total
    return total + noise


def running_sum(nodes: FloatArray, release: int, node: FloatArray) -> FloatArray:
    """The noisy sum of all batches up to a release, which whoever is sent the nodes can compute.

    It is the sum of popcount(release) nodes.

    Args:
        nodes: (m, ...) the newest node of each level, 0 at first. The new node is written into it.
        release: k, the number of the release; releases count from 1 and come in order.
        node: (...) the node that is new.

    >>> nodes = np.zeros((2, 1))
    >>> new = np.array([[1.0], [3.0], [4.0]])
    >>> [float(running_sum(nodes, k, node)[0]) for k, node in enumerate(new, start=1)]  # release 3 is 3 + 4
    [1.0, 3.0, 7.0]
    """
    nodes[_checked_level(release, len(nodes))] = node
    return nodes[[level for level in range(len(nodes)) if release >> level & 1]].sum(axis=0)


def _checked_level(release: int, levels: int) -> int:
    """The level of a release's new node; refuses a release for which the tree is too small."""
    if not 1 <= release < 2**levels:
        raise ValueError(f"release: expected 1 to {2**levels - 1} from a tree of {levels} levels, got {release}")
    return new_level(release)
