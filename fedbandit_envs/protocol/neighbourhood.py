"""What agents know about the network around them, and how they average over it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray, row_groups

if TYPE_CHECKING:
    from fedbandit_envs.protocol.network import Network  # it makes neighbourhoods, so it imports this module


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """What a block of n agents knows about the network: `view.network` of a policy that talks to peers.

    A message that arrives has an axis of D columns after that of the agents: column c of agent i holds what its
    neighbour `neighbours[i, c]` sent, where the mask in `present` says that it arrived. An array whose delivery reaches
    one neighbour at most has one column.

    >>> from fedbandit_envs.protocol.network import Network
    >>> view = Network.of("path", 3).around(np.array([0, 1]))
    >>> view.neighbour_degrees
    array([[2, 0],
           [1, 1]])
    """

    graph: "Network"  #: the whole graph, of which policies use the public numbers only
    agents: IntArray  #: (n,) the numbers of the agents

    @property
    def neighbours(self) -> IntArray:
        """(n, D) the neighbours of each agent, filled up with 0."""
        return self.graph.neighbours[self.agents]

    @property
    def present(self) -> BoolArray:
        """(n, D) which entries of `neighbours` are neighbours."""
        return self.graph.present[self.agents]

    @property
    def degrees(self) -> IntArray:
        """(n,) the number of neighbours of each agent."""
        return self.graph.degrees[self.agents]

    @property
    def neighbour_degrees(self) -> IntArray:
        """(n, D) the number of neighbours of each neighbour, 0 where there is none."""
        return np.where(self.present, self.graph.degrees[self.neighbours], 0)

    @property
    def largest_degree(self) -> int:
        """D, the largest number of neighbours in the whole network, a public number."""
        return self.graph.largest_degree

    @property
    def second_eigenvalue(self) -> float:
        """The second largest absolute eigenvalue of the mixing matrix, a public number."""
        return self.graph.second_eigenvalue

    def rows(self, index: IntArray | slice) -> "Neighbourhood":
        """The part of some of these agents."""
        return Neighbourhood(self.graph, self.agents[index])

    @property
    def pair_weights(self) -> FloatArray:
        """(n, D) weights that need no number of the whole network: 1 / (1 + the larger degree of the two), else 0.

        >>> from fedbandit_envs.protocol.network import Network
        >>> Network.of("path", 3).around(np.array([0, 1])).pair_weights.round(3)
        array([[0.333, 0.   ],
               [0.333, 0.333]])
        """
        return np.where(self.present, 1 / (1 + np.maximum(self.neighbour_degrees, self.degrees[:, None])), 0.0)

    def mixed(
        self, own: FloatArray, received: FloatArray, arrived: BoolArray, weights: FloatArray | None = None
    ) -> FloatArray:
        """One step of averaging with the neighbours, by default with the matrix P = I - Laplacian / (D + 1).

        An agent's own row has the weight that is left to 1, and that of what did not arrive. If the weights of both
        ends of an edge are equal, the sum over all agents stays the same, also when edges fail, because an edge that
        fails does so in both directions.

        Args:
            own: (n, k) the agents' own rows, as they sent them.
            received: (n, D, k) the rows of the neighbours.
            arrived: (n, D) which of them arrived.
            weights: (n, D) the weight of each neighbour; None: 1 / (D + 1) for all.

        >>> from fedbandit_envs.protocol.network import Network
        >>> view = Network.of("path", 3).around(np.array([0]))
        >>> view.mixed(np.array([[3.0]]), np.array([[[6.0], [0.0]]]), np.array([[True, False]]))
        array([[4.]])
        """
        if weights is None:
            weight, counted = 1 / (self.largest_degree + 1), arrived.astype(np.float64)
            kept = 1 - weight * np.einsum("nd->n", counted)
            mixed = np.einsum("nd,ndk->nk", counted, received)
            mixed *= weight
            for rows in row_groups(len(own)):
                mixed[rows] += kept[rows, None] * own[rows]
            return mixed
        used = np.where(arrived, weights, 0.0)
        total = np.add.reduce(used, axis=1)
        if not (np.minimum.reduce(used, axis=None, initial=0) >= 0 and np.maximum.reduce(total) <= 1 + 1e-9):
            raise ValueError(
                f"weights: expected ones of at least 0 whose sum over the neighbours is at most 1, got "
                f"{np.min(used):g} and a sum of {np.max(total):g}; what is left to 1 is the weight of the agent itself"
            )
        return (1 - total)[:, None] * own + np.einsum("nd,ndk->nk", used, received)
