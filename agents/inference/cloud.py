"""A cloud of points that stands for a context distribution where features are not linear in the context.

The bias <theta_a, phi(a, c) - psi_a> is then skewed, or has several modes, and one Gaussian is a poor belief about it.
The points make a mixture. Each stands for the contexts around it: it is drawn towards the mean, and what that takes
from the covariance is added to the variance of each of its rewards.
"""

from functools import lru_cache

import numpy as np

from fedbandit_envs.arrays import FloatArray, read_only
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import is_linear
from fedbandit_envs.protocol.knowledge import View

POINTS = 128  #: the points of each agent, unless features would take too much memory
_FEWEST = 32
_MOST_ENTRIES = 2**23  # how many entries the features of all agents may have
_GAP = 1.5  # how far the neighbours of a point reach, in distances between points


def needs_cloud(view: View) -> bool:
    """Whether points are needed, and can be drawn: the map is not linear, and contexts are made of normals."""
    distribution = view.distribution
    drawn = type(distribution).from_normals is not ContextDistribution.from_normals
    return drawn and not distribution.finite_support and not is_linear(view.feature_map)


def cloud(view: View) -> tuple[FloatArray, float]:
    """Contexts (n, S, context), and the share of the covariance that is left around each of them."""
    constants, dim = view.constants, view.distribution.normals_per_context
    entries = constants.num_agents * constants.num_arms * constants.dim
    count = max(_FEWEST, min(POINTS, _MOST_ENTRIES // entries))
    left = min(1.0, _GAP * count ** (-1 / dim)) ** 2
    normals = np.sqrt(1 - left) * spread_normals(count, dim)
    return view.distribution.from_normals(np.broadcast_to(normals, (len(view.agents), *normals.shape))), left


@lru_cache(maxsize=8)
def spread_normals(count: int, dim: int) -> FloatArray:
    """Points (count, dim) that are spread like standard normals, more evenly than random ones; the same at each call.

    They are the additive recurrence of the roots of x^(dim + 1) = x + 1, mapped by the normal quantiles, with mean 0
    and variance 1 along each axis.

    >>> spread_normals(4, 1).ravel().round(2)
    array([ 0.35, -1.45,  1.31, -0.22])
    """
    from scipy.special import ndtri

    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (dim + 1))
    steps = (1 / root) ** np.arange(1, dim + 1)
    points = ndtri((0.5 + np.arange(count)[:, None] * steps) % 1)
    points -= np.add.reduce(points, axis=0) / count
    return read_only(points / np.sqrt(np.add.reduce(points**2, axis=0) / count))
