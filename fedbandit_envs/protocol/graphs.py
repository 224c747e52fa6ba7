"""Graphs by their names: the edges of rings, grids, random graphs and others."""

import math
from collections.abc import Callable

import numpy as np

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.validation import one_of, whole_number

_MOST_DRAWS = 1000  # a random graph is drawn anew until it is connected, at most so often


def _ring(num_agents: int) -> IntArray:
    edges = np.stack([np.arange(num_agents), (np.arange(num_agents) + 1) % num_agents], axis=1)
    return edges if num_agents > 2 else edges[: num_agents - 1]


def _path(num_agents: int) -> IntArray:
    return np.stack([np.arange(num_agents - 1), np.arange(1, num_agents)], axis=1)


def _star(num_agents: int) -> IntArray:
    return np.stack([np.zeros(num_agents - 1, dtype=np.int64), np.arange(1, num_agents)], axis=1)


def _complete(num_agents: int) -> IntArray:
    return np.stack(np.triu_indices(num_agents, 1), axis=1)


_FIXED: dict[str, Callable[[int], IntArray]] = {"ring": _ring, "path": _path, "star": _star, "complete": _complete}
GRAPHS = (*_FIXED, "grid", "erdos-renyi", "random-regular")  #: the names of graphs


def named_edges(name: str, num_agents: int, draw: Callable[[int], np.random.Generator]) -> IntArray:
    """The edges (E, 2) of a graph with this name.

    Args:
        name: one of `GRAPHS`, with a parameter after a colon where there is one: "grid:4x5", "random-regular:4".
        num_agents: the number of agents, M.
        draw: gives the generator of the j-th attempt at a random graph.

    >>> named_edges("path", 3, np.random.default_rng).tolist()
    [[0, 1], [1, 2]]
    """
    kind, colon, parameter = name.partition(":")
    one_of("network", kind, GRAPHS)
    if kind in _FIXED:
        if colon:
            raise ValueError(f"network: expected {kind!r} without a parameter, got {name!r}")
        return _FIXED[kind](num_agents)
    if kind == "grid":
        return _grid(*_sides(parameter, num_agents))
    if kind == "erdos-renyi":
        share = _share(parameter, num_agents)
        return _first_connected(name, num_agents, draw, lambda rng: _erdos_renyi(num_agents, share, rng))
    degree = _degree(parameter, num_agents)
    return _first_connected(name, num_agents, draw, lambda rng: _random_regular(num_agents, degree, rng))


def pieces(edges: IntArray, num_agents: int) -> tuple[int, IntArray]:
    """The number of connected pieces of a graph, and the piece of each agent (M,).

    >>> pieces(np.array([[0, 1]]), 3)
    (2, array([0, 0, 1]))
    """
    from scipy.sparse import coo_array  # slow to import
    from scipy.sparse.csgraph import connected_components

    matrix = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(num_agents, num_agents))
    number, piece = connected_components(matrix, directed=False)
    return int(number), piece.astype(np.int64)


def _first_connected(
    name: str,
    num_agents: int,
    draw: Callable[[int], np.random.Generator],
    edges_of: Callable[[np.random.Generator], IntArray],
) -> IntArray:
    for attempt in range(_MOST_DRAWS):
        edges = edges_of(draw(attempt))
        if pieces(edges, num_agents)[0] == 1:
            return edges
    raise ValueError(
        f"network: expected a connected graph within {_MOST_DRAWS} draws of {name!r} with {num_agents} agents, got "
        "none; ask for more edges"
    )


def _sides(parameter: str, num_agents: int) -> tuple[int, int]:
    """The rows and columns of a grid: those that are asked for, or the most square ones."""
    if parameter:
        rows, _, columns = parameter.partition("x")
        if not (rows.isdigit() and columns.isdigit() and int(rows) * int(columns) == num_agents):
            raise ValueError(
                f"network: expected grid:ROWSxCOLUMNS of {num_agents} agents, such as grid:1x{num_agents}, got "
                f"'grid:{parameter}'"
            )
        return int(rows), int(columns)
    side = next(side for side in range(math.isqrt(num_agents), 0, -1) if num_agents % side == 0)
    if side == 1 and num_agents > 3:
        raise ValueError(
            f"network: expected a number of agents that fills a grid, got {num_agents}, a prime number; use 'path', or "
            "another number"
        )
    return side, num_agents // side


def _grid(rows: int, columns: int) -> IntArray:
    place = np.arange(rows * columns).reshape(rows, columns)
    along = np.stack([place[:, :-1].ravel(), place[:, 1:].ravel()], axis=1)
    down = np.stack([place[:-1].ravel(), place[1:].ravel()], axis=1)
    return np.concatenate([along, down])


def _share(parameter: str, num_agents: int) -> float:
    """The probability of an edge; by default twice that from which such graphs are mostly connected, ln M / M."""
    if not parameter:
        return min(1.0, 2 * math.log(max(num_agents, 2)) / num_agents)
    try:
        share = float(parameter)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise ValueError(f"network: expected erdos-renyi:P with a probability P, got 'erdos-renyi:{parameter}'")
    return share


def _erdos_renyi(num_agents: int, share: float, rng: np.random.Generator) -> IntArray:
    """Each pair of agents is an edge with probability `share`."""
    drawn = [i + 1 + np.flatnonzero(rng.random(num_agents - 1 - i) < share) for i in range(num_agents)]
    first = np.repeat(np.arange(num_agents), [len(others) for others in drawn])
    return np.stack([first, np.concatenate(drawn)], axis=1)


def _degree(parameter: str, num_agents: int) -> int:
    if parameter and not parameter.isdigit():
        raise ValueError(f"network: expected random-regular:DEGREE, got 'random-regular:{parameter}'")
    degree = whole_number("network, random-regular", int(parameter or 4), at_least=1)
    if degree >= num_agents or degree * num_agents % 2:
        raise ValueError(
            f"network: expected a degree below the {num_agents} agents, and an even number of ends of edges, got "
            f"degree {degree}; write random-regular:DEGREE"
        )
    return degree


def _random_regular(num_agents: int, degree: int, rng: np.random.Generator) -> IntArray:
    """A graph in which all agents have `degree` neighbours: free ends of edges are paired at random (Steger, Wormald).

    Pairs that would be loops or double edges are paired anew; where this does not end, all begin anew. It hardly ever
    ends with few pairs left to choose from, so of many edges those that are missing are drawn.
    """
    if 2 * degree > num_agents - 1:
        linked = np.triu(np.ones((num_agents, num_agents), dtype=bool), 1)
        linked[tuple(_random_regular(num_agents, num_agents - 1 - degree, rng).T)] = False
        return np.argwhere(linked)
    while True:
        kept = np.zeros(0, dtype=np.int64)  # an edge (i, j), i < j, as the number i M + j
        free = np.repeat(np.arange(num_agents), degree)
        for _ in range(100):
            pairs = np.sort(rng.permutation(free).reshape(-1, 2), axis=1)
            codes = pairs[:, 0] * num_agents + pairs[:, 1]
            fresh = np.zeros(len(codes), dtype=bool)
            fresh[np.unique(codes, return_index=True)[1]] = True
            fresh &= (pairs[:, 0] != pairs[:, 1]) & ~np.isin(codes, kept)
            kept, free = np.concatenate([kept, codes[fresh]]), pairs[~fresh].ravel()
            if not len(free):
                return np.stack([kept // num_agents, kept % num_agents], axis=1)
