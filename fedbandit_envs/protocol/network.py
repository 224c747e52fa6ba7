"""Who can talk to whom: an undirected graph of agents."""

import hashlib
from functools import cached_property
from typing import Any

import numpy as np

from fedbandit_envs.arrays import BoolArray, IntArray, read_only
from fedbandit_envs.protocol.graphs import named_edges, pieces
from fedbandit_envs.protocol.neighbourhood import Neighbourhood
from fedbandit_envs.protocol.spectrum import second_eigenvalue
from fedbandit_envs.seeding import Stream, generator
from fedbandit_envs.validation import whole_number

_MOST_PADDING = 10**6  # entries of a table of neighbours that may be mostly empty


class Network:
    """A graph of agents: edges that are undirected, connected, and neither loops nor double.

    Give one to `play(..., network=...)`, or what `Network.of` makes one from. Agents count from 0. It says who can talk
    to whom, and nothing else: how numbers travel along the edges is said by the policy.

    Args:
        edges: pairs of agents, (E, 2); the same edge may be named more than once.
        num_agents: the number of agents, M.

    >>> network = Network([(0, 1), (1, 2)], num_agents=3)
    >>> network.degrees, network.neighbours
    (array([1, 2, 1]), array([[1, 0],
           [0, 2],
           [1, 0]]))
    >>> network.present
    array([[ True, False],
           [ True,  True],
           [ True, False]])
    """

    def __init__(self, edges: Any, num_agents: int):
        self.num_agents = whole_number("num_agents", num_agents, at_least=1)
        self.edges: IntArray = read_only(_checked_edges(edges, self.num_agents))  #: (E, 2) each edge once, in order
        #: (M,) the number of neighbours of each agent
        self.degrees: IntArray = read_only(np.bincount(self.edges.ravel(), minlength=self.num_agents))
        self.largest_degree = int(self.degrees.max())  #: D, the largest number of neighbours
        self._check_padding()
        both = np.concatenate([self.edges, self.edges[:, ::-1]])
        order = np.lexsort((both[:, 1], both[:, 0]))
        owner, other = both[order].T
        starts = np.concatenate([[0], self.degrees.cumsum()[:-1]])
        slot = np.arange(len(owner)) - starts[owner]
        neighbours = np.zeros((self.num_agents, self.largest_degree), dtype=np.int64)
        present = np.zeros(neighbours.shape, dtype=bool)
        neighbours[owner, slot], present[owner, slot] = other, True
        self.neighbours: IntArray = read_only(neighbours)  #: (M, D) in rising order, filled up with 0
        self.present: BoolArray = read_only(present)  #: (M, D) which entries of `neighbours` are neighbours
        slots = np.empty(len(both), dtype=np.int64)
        slots[order] = slot
        #: (E, 2) the columns of `neighbours` in which the two ends of an edge have each other
        self.slots: IntArray = read_only(slots.reshape(2, -1).T.copy())

    def __repr__(self) -> str:
        return f"Network({self.num_agents} agents, {len(self.edges)} edges)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Network) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def _check_padding(self) -> None:
        padded = self.num_agents * self.largest_degree
        if padded > max(_MOST_PADDING, 32 * len(self.edges)):
            raise ValueError(
                f"network: expected degrees that are more alike, got one of {self.largest_degree} among "
                f"{len(self.edges)} edges of {self.num_agents} agents; tables have a column for each neighbour"
            )

    @classmethod
    def of(cls, value: Any, num_agents: int, seed: int = 0) -> "Network":
        """The network that `value` stands for, if it has `num_agents` agents.

        Args:
            value: a Network; a name; edges (E, 2); an adjacency matrix (M, M) that is symmetric, also a sparse one of
                scipy; or a networkx graph. Its nodes are the agents if they are the numbers from 0 to M - 1, else they
                become the agents in their order. Names are "ring", "path", "star", "complete", "grid" (or
                "grid:4x5"), "erdos-renyi:P" with the probability of an edge and "random-regular:D" with the degree.
            num_agents: the number of agents, M.
            seed: what a random graph is drawn from.

        >>> Network.of("grid:2x3", 6), Network.of([[0, 1, 0], [1, 0, 1], [0, 1, 0]], 3)
        (Network(6 agents, 7 edges), Network(3 agents, 2 edges))
        """
        if isinstance(value, Network):
            network = value
        elif isinstance(value, str):
            edges = named_edges(value, num_agents, lambda attempt: generator(seed, Stream.NETWORK, attempt))
            network = cls(edges, num_agents)
        elif hasattr(value, "is_directed") and hasattr(value, "nodes"):
            network = _of_graph(value)
        elif hasattr(value, "tocoo"):
            network = _of_sparse(value.tocoo())
        else:
            array = _plain_array(value)
            square = array.ndim == 2 and array.shape[0] == array.shape[1] != 2
            network = _of_adjacency(array) if square else cls(array, num_agents)
        if network.num_agents != num_agents:
            raise ValueError(f"network: expected one of {num_agents} agents, got one of {network.num_agents}")
        return network

    @cached_property
    def digest(self) -> str:
        """A hash of the graph."""
        return hashlib.sha256(f"{self.num_agents} {self.edges.tolist()}".encode()).hexdigest()

    @cached_property
    def second_eigenvalue(self) -> float:
        """The second largest absolute eigenvalue of the mixing matrix P = I - Laplacian / (D + 1).

        It says how fast averages spread over the network: 0 on a complete graph, near 1 on a long ring. It is rounded
        to 12 decimals, so that it is the same on every CPU.

        >>> round(Network.of("ring", 20).second_eigenvalue, 5), Network.of("complete", 5).second_eigenvalue
        (0.96737, 0.0)
        """
        return second_eigenvalue(self.edges, self.degrees)

    def around(self, agents: IntArray) -> Neighbourhood:
        """What these agents know about the network."""
        return Neighbourhood(self, agents)


def _plain_array(value: Any) -> Any:
    try:
        array = np.asarray(value)
        if array.dtype.kind in "biuf":
            return array
    except ValueError:
        pass
    raise ValueError(
        f"network: expected a name such as 'ring', pairs of agents, an adjacency matrix, a Network or a networkx "
        f"graph, got {value!r:.80}"
    )


def _of_graph(graph: Any) -> Network:
    """The network of a networkx graph; its nodes are numbered in their order, unless they are numbers from 0 on."""
    if graph.is_directed():
        raise ValueError("network: expected an undirected graph, got a directed one; use graph.to_undirected()")
    nodes, count = list(graph.nodes), len(graph.nodes)
    if all(isinstance(node, int | np.integer) for node in nodes) and set(nodes) == set(range(count)):
        nodes = list(range(count))
    number = {node: place for place, node in enumerate(nodes)}
    return Network([(number[one], number[other]) for one, other, *_ in graph.edges], len(number))


def _of_adjacency(matrix: Any) -> Network:
    """The network of an adjacency matrix (M, M), which holds 1 for an edge and else 0."""
    rows, columns = np.nonzero(matrix)
    return _of_entries(matrix[rows, columns], rows, columns, len(matrix))


def _of_sparse(matrix: Any) -> Network:
    """The network of a sparse adjacency matrix of scipy, in coordinates."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"network: expected a square adjacency matrix (M, M), got a sparse one of {matrix.shape}")
    matrix = matrix.copy()
    matrix.sum_duplicates()  # entries of the same place, which count as their sum
    kept = matrix.data != 0
    return _of_entries(matrix.data[kept], matrix.row[kept], matrix.col[kept], matrix.shape[0])


def _of_entries(entries: Any, rows: Any, columns: Any, num_agents: int) -> Network:
    """The network of the entries of an adjacency matrix that are not 0, which stand in these rows and columns."""
    if (entries != 1).any():
        raise ValueError(
            f"network: expected an adjacency matrix of 0 and 1, got {entries[entries != 1][0]:g} in it; a network "
            "has no weights, since policies choose their own: use matrix != 0, without its diagonal"
        )
    rows, columns = rows.astype(np.int64), columns.astype(np.int64)
    codes, back = rows * num_agents + columns, columns * num_agents + rows
    alone = np.flatnonzero(~np.isin(codes, back))
    if len(alone):
        one, other = rows[alone[0]], columns[alone[0]]
        raise ValueError(
            f"network: expected a symmetric matrix, since edges carry both ways, got {one} -> {other} without "
            f"{other} -> {one}; use matrix | matrix.T"
        )
    upper = rows <= columns
    return Network(np.stack([rows[upper], columns[upper]], axis=1), num_agents)


def _checked_edges(edges: Any, num_agents: int) -> IntArray:
    """Each edge once, the smaller agent first, in rising order."""
    array = _plain_array(edges)
    if not array.size:
        array = np.zeros((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise ValueError(f"network: expected pairs of agents (E, 2), got {array.dtype} of shape {array.shape}")
    if array.size and not 0 <= array.min() <= array.max() < num_agents:
        raise ValueError(
            f"network: expected agents from 0 to {num_agents - 1}, got {array.min()} to {array.max()}; agents count "
            "from 0"
        )
    loops = array[array[:, 0] == array[:, 1], 0]
    if len(loops):
        raise ValueError(f"network: expected edges between different agents, got one from {loops[0]} to itself")
    unique: IntArray = np.unique(np.sort(array.astype(np.int64), axis=1), axis=0)
    number, piece = pieces(unique, num_agents)
    if number > 1:
        raise ValueError(
            f"network: expected a connected graph, got {number} pieces: nothing leads from agent 0 to agent "
            f"{np.flatnonzero(piece != piece[0])[0]}; add edges"
        )
    return unique
