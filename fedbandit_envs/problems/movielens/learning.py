"""How the MovieLens factors are learnt, from u.data to users and arms. Every step is deterministic.

There are two variants. For "completed", the missing cells are filled by user-based filtering, as the Fed-PE authors do,
and the full matrix is factorised by NMF. For "masked", a weighted NMF looks at the observed ratings only. In both, the
rank is 3, the films' factors are clustered by k-means, and the 30 centres are the arms.

This needs scikit-learn, which the extra `data` brings.
"""

import warnings
from pathlib import Path

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.problems.factorisation import balanced, masked_nmf
from fedbandit_envs.problems.movielens.factors import DIM, NUM_ARMS, MovieLensFactors
from fedbandit_envs.problems.movielens.ratings_file import HIGHEST_RATING, RATINGS_SHA256, read_ratings
from fedbandit_envs.validation import needs

NEIGHBOURS = 10  # how many similar users predict a missing rating


def build_factors(ratings_path: str | Path, sha256: str | None = RATINGS_SHA256) -> dict[str, MovieLensFactors]:
    """Learn both variants of the factors, "completed" and "masked", which takes some ten seconds.

    Args:
        ratings_path: the file u.data.
        sha256: the checksum that the file must have; None accepts other ratings of the same form.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    needs("sklearn", extra="data")  # a missing library is reported before the work, not after it
    ratings = read_ratings(ratings_path, sha256)
    return {"completed": completed_factors(ratings), "masked": masked_factors(ratings)}


def largest_difference(built: MovieLensFactors, shipped: MovieLensFactors) -> float:
    """The largest difference of an entry between two factorisations.

    The arms are matched first, because k-means numbers its clusters arbitrarily.

    >>> from fedbandit_envs.problems.movielens.factors import load_factors
    >>> shipped = load_factors("masked")
    >>> largest_difference(MovieLensFactors(shipped.users, shipped.theta[::-1]), shipped)
    0.0
    """
    from scipy.optimize import linear_sum_assignment

    distance = np.linalg.norm(built.theta[:, None] - shipped.theta[None], axis=2)  # (K, K)
    rows, columns = linear_sum_assignment(distance)
    theta_difference = np.abs(built.theta[rows] - shipped.theta[columns]).max()
    return float(max(theta_difference, np.abs(built.users - shipped.users).max()))


def completed_factors(ratings: FloatArray) -> MovieLensFactors:
    """The factors of the completed matrix; `ratings` (users, items) is 0 where a rating is missing."""
    from sklearn.decomposition import NMF
    from sklearn.exceptions import ConvergenceWarning

    model = NMF(DIM, init="nndsvda", max_iter=500, random_state=0)
    with warnings.catch_warnings():
        # The 500 iterations are the definition of the factors, not an attempt at convergence.
        warnings.simplefilter("ignore", ConvergenceWarning)
        users: FloatArray = model.fit_transform(complete(ratings))
    return _with_arms(users, model.components_)


def masked_factors(ratings: FloatArray) -> MovieLensFactors:
    """The factors of the observed ratings; `ratings` (users, items) is 0 where a rating is missing."""
    return _with_arms(*balanced(*masked_nmf(ratings / HIGHEST_RATING, DIM)))


def similarities(ratings: FloatArray) -> FloatArray:
    """The similarities (users, users): Pearson's correlation over the items that both users rated.

    Deviations are taken from a user's mean over all cells, in which missing ratings count as zeros. The result is
    rounded to 9 digits, so that equal similarities tie, and it is 0 where a denominator vanishes.

    >>> similarities(np.array([[5.0, 3.0, 1.0], [4.0, 3.0, 0.0], [1.0, 5.0, 4.0]])).round(2)
    array([[ 1.  ,  0.93, -0.72],
           [ 0.93,  1.  , -0.54],
           [-0.72, -0.54,  1.  ]])
    """
    num_items = ratings.shape[1]
    rated = (ratings > 0).astype(np.float64)
    # Deviations times num_items are whole numbers: the sums below are exact, on any machine and in any order.
    deviations = (ratings * num_items - ratings.sum(axis=1, keepdims=True)) * rated
    squares = deviations**2 @ rated.T  # entry [u, v]: the squares of u, summed over the items that v rated too
    denominator = np.sqrt(squares) * np.sqrt(squares.T)
    similarity: FloatArray = np.zeros_like(denominator)
    np.divide(deviations @ deviations.T, denominator, out=similarity, where=denominator > 0)
    return similarity.round(9)


def complete(ratings: FloatArray) -> FloatArray:
    """Predict every cell from the most similar other users who rated the item, also the observed cells.

    A prediction is the mean of their ratings, weighted by similarity and divided by the highest rating. Among equally
    similar users those with lower numbers come first. It is 0 where the sum of the weights is not positive.
    """
    similarity = similarities(ratings)
    np.fill_diagonal(similarity, -np.inf)
    order = np.argsort(-similarity, axis=1, kind="stable")
    rank = np.empty_like(order)  # entry [u, v]: how many users are closer to u than v is; u itself comes last
    np.put_along_axis(rank, order, np.arange(len(ratings))[None], axis=1)
    np.fill_diagonal(similarity, 0)

    completed = np.zeros_like(ratings)
    for item in np.flatnonzero(ratings.any(axis=0)):
        raters = np.flatnonzero(ratings[:, item])
        last = min(NEIGHBOURS, raters.size) - 1
        ranks = rank[:, raters]
        nearest = ranks <= np.partition(ranks, last, axis=1)[:, last, None]
        weights = np.where(nearest, similarity[:, raters], 0)  # (users, raters)
        total = weights.sum(axis=1)
        np.divide(weights @ ratings[raters, item], total, out=completed[:, item], where=total > 0)
    return completed / HIGHEST_RATING


def _with_arms(users: FloatArray, items: FloatArray) -> MovieLensFactors:
    """Cluster the columns of `items` (d, items) into arms, scaled so that no reward exceeds 1."""
    from sklearn.cluster import KMeans

    clusters = KMeans(NUM_ARMS, n_init=50, random_state=0).fit(items.T)
    theta: FloatArray = clusters.cluster_centers_
    return MovieLensFactors(users=users, theta=theta / max(1.0, (users @ theta.T).max()))
