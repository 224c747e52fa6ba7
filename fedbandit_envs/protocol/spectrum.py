"""How fast averages spread over a graph: the second eigenvalue of its mixing matrix."""

from typing import Any, Literal

import numpy as np

from fedbandit_envs.arrays import IntArray

_DENSE = 1000  # up to this many agents all eigenvalues are computed
_DIGITS = 12  # decimals that are the same on every CPU: what policies decide must not depend on the others
_BESIDE_ONE = 1 + 1e-9  # the shift: near the largest eigenvalue, 1, and never an eigenvalue itself


def second_eigenvalue(edges: IntArray, degrees: IntArray) -> float:
    """The second largest absolute eigenvalue of P = I - Laplacian / (D + 1), to 12 decimals, for a connected graph.

    Args:
        edges: (E, 2) each edge once.
        degrees: (M,) the number of neighbours of each agent, at most D.

    >>> second_eigenvalue(np.array([[0, 1], [1, 2]]), np.array([1, 2, 1]))
    0.666666666667
    """
    num_agents = len(degrees)
    if num_agents == 1:
        return 0.0
    mixing = _mixing_matrix(edges, degrees)
    if num_agents <= _DENSE:
        second = np.sort(np.abs(np.linalg.eigvalsh(mixing.toarray())))[-2]
    elif _is_long(mixing, len(edges)):
        second = _second_of_long(mixing, int(degrees.max()))
    else:
        second = np.sort(np.abs(_extremes(mixing, 2, "LM")))[0]
    return abs(round(float(second), _DIGITS))


def _mixing_matrix(edges: IntArray, degrees: IntArray) -> Any:
    from scipy.sparse import coo_array, diags_array  # slow to import

    i, j = edges.T
    weight = 1 / (degrees.max() + 1)
    places = np.concatenate([i, j]), np.concatenate([j, i])
    links = coo_array((np.full(2 * len(i), weight), places), shape=(len(degrees), len(degrees)))
    return (links + diags_array(1 - weight * degrees)).tocsc()


def _is_long(mixing: Any, num_edges: int) -> bool:
    """Whether a graph is like a ring, a grid or a tree: it mixes slowly, and its equations are solved fast."""
    from scipy.sparse.csgraph import shortest_path

    num_agents = mixing.shape[0]
    hops = shortest_path(mixing, unweighted=True, indices=0).astype(np.int64)
    widest = int(np.bincount(hops).max())
    return widest**2 <= 4 * num_agents or num_edges <= 1.1 * num_agents


def _second_of_long(mixing: Any, largest_degree: int) -> float:
    """The second eigenvalue where many eigenvalues crowd below 1, which the usual way would not tell apart.

    The inverse of (P - 1) sets them apart. No eigenvalue is below -(D - 1) / (D + 1), by the discs of Gershgorin, so
    the lower end only has to be looked at if the second eigenvalue is not above that.
    """
    from scipy.sparse.linalg import eigsh

    found = eigsh(mixing, k=2, sigma=_BESIDE_ONE, v0=_start(mixing.shape[0]), return_eigenvectors=False)
    second = float(np.sort(found)[0])
    if second >= (largest_degree - 1) / (largest_degree + 1):
        return second
    return max(second, -float(_extremes(mixing, 1, "SA")[0]))


def _extremes(mixing: Any, number: int, which: Literal["LM", "SA"]) -> Any:
    from scipy.sparse.linalg import eigsh

    start, basis = _start(mixing.shape[0]), 100  # more vectors than usual: with few it takes five times as long
    return eigsh(mixing, k=number, which=which, ncv=basis, v0=start, return_eigenvectors=False)


def _start(num_agents: int) -> Any:
    return np.random.default_rng(0).standard_normal(num_agents)
