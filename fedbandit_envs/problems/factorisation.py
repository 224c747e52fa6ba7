"""Ratings as products: non-negative factors of the observed cells, and clusters of items as arms.

Only numpy and scipy are needed, and every step is deterministic.
"""

from typing import TYPE_CHECKING

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

RIDGE = 0.5  # the weight of the penalty on large factors
ITERATIONS = 1000  # how often both factors are updated
MEDIAN_NORM_SQUARED = np.sqrt(0.32)  # the geometric middle of [0.4, 0.8], where MovieLens' eligible users lie
_STARTS = 20  # how often k-means starts anew; the best clusters are kept
_SWEEPS = 300  # how often k-means moves its centres at most


def masked_nmf(
    ratings: "FloatArray | csr_array", dim: int, iterations: int = ITERATIONS
) -> tuple[FloatArray, FloatArray]:
    """W (users, d) and H (d, items) >= 0 that minimise the ridge-penalised squared error on the observed cells.

    Multiplicative updates, W first, from a seeded start. A user or an item without ratings gets zeros.

    Args:
        ratings: (users, items), with 0 where a rating is missing, or a sparse array whose stored cells may be 0.
        dim: The rank d.
        iterations: The number of updates of both factors.
    """
    from scipy.sparse import csr_array

    observed = csr_array(ratings)
    num_users, num_items = observed.shape
    user, item = np.repeat(np.arange(num_users), np.diff(observed.indptr)), observed.indices
    rng = np.random.default_rng(0)
    level = np.sqrt(observed.data.mean() / dim)
    w = level * (0.5 + rng.random((num_users, dim)))
    h = level * (0.5 + rng.random((dim, num_items)))
    predicted = observed.copy()

    def predict() -> None:
        predicted.data[:] = (w.T.take(user, axis=1) * h.take(item, axis=1)).sum(axis=0)

    for _ in range(iterations):
        predict()
        w *= _ratio(observed @ h.T, predicted @ h.T + RIDGE * w)
        predict()
        h *= _ratio((observed.T @ w).T, (predicted.T @ w).T + RIDGE * h)
    return w, h


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    return np.divide(above, below, out=np.zeros_like(below), where=below > 0)


def balanced(users: FloatArray, items: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same products, with factors of users whose median squared norm is that of MovieLens.

    Only products have a meaning, so a scale must be chosen; with this one a `context_std` means the same everywhere.
    """
    scale = np.sqrt(MEDIAN_NORM_SQUARED / np.median(np.sum(users**2, axis=1)))
    return users * scale, items / scale


def k_means(points: FloatArray, num_clusters: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Centres (k, n) and the cluster (N,) of each point, by Lloyd's steps from the best of some k-means++ starts.

    The points have at least k different rows. A cluster that loses all its points takes the point that is farthest
    from its centre.

    >>> centres, cluster = k_means(np.array([[0.0], [1.0], [9.0], [10.0]]), 2, np.random.default_rng(0))
    >>> sorted(centres.ravel())
    [np.float64(0.5), np.float64(9.5)]
    """
    best, lowest = None, np.inf
    for _ in range(_STARTS):
        centres = _spread_start(points, num_clusters, rng)
        for _ in range(_SWEEPS):
            cluster = _squares(points, centres).argmin(axis=1)
            moved = _means(points, cluster, centres)
            if np.array_equal(moved, centres):
                break
            centres = moved
        squares = _squares(points, centres)
        if squares.min(axis=1).sum() < lowest:
            best, lowest = (centres, squares.argmin(axis=1)), squares.min(axis=1).sum()
    assert best is not None  # the sum of squares is finite
    return best


def _spread_start(points: FloatArray, num_clusters: int, rng: np.random.Generator) -> FloatArray:
    """Different points, each drawn with a probability in proportion to its squared distance to those before."""
    chosen = [int(rng.integers(len(points)))]
    nearest = _squares(points, points[chosen])[:, 0]
    while len(chosen) < num_clusters:
        chosen.append(int(rng.choice(len(points), p=nearest / nearest.sum())))
        nearest = np.minimum(nearest, _squares(points, points[chosen[-1:]])[:, 0])
    return points[chosen]


def _means(points: FloatArray, cluster: IntArray, centres: FloatArray) -> FloatArray:
    """The mean of each cluster's points."""
    moved = np.empty_like(centres)
    distance = ((points - centres[cluster]) ** 2).sum(axis=1)
    for number in range(len(centres)):
        mine = cluster == number
        if not mine.any():
            mine = np.arange(len(points)) == distance.argmax()
            distance = np.where(mine, -1, distance)
        moved[number] = points[mine].mean(axis=0)
    return moved


def _squares(points: FloatArray, centres: FloatArray) -> FloatArray:
    """(N, k) squared distances, exactly 0 where a point is a centre."""
    return ((points[:, None] - centres[None]) ** 2).sum(axis=2)
