"""Deliveries that reach one neighbour at most: over which edges they go in a round.

Each function gives a mask (M, D) over the slots of `network.neighbours`: in slot c agent i hears that neighbour. Masks
are drawn from the run's seed and the number of the round, so all blocks, and all arrays that travel alike, meet the
same.
"""

from collections.abc import Callable, Mapping

import numpy as np

from fedbandit_envs.arrays import BoolArray, IntArray
from fedbandit_envs.protocol.network import Network
from fedbandit_envs.seeding import Stream, generator


def one_edge(network: Network, links: BoolArray, rng: np.random.Generator) -> BoolArray:
    """The two ends of one edge, uniform over all edges, hear each other.

    >>> path = Network.of("path", 3)
    >>> one_edge(path, path.present, np.random.default_rng(0))
    array([[False, False],
           [False,  True],
           [ True, False]])
    """
    chosen = np.zeros(links.shape, dtype=bool)
    if len(network.edges):
        edge = rng.integers(len(network.edges))
        chosen[network.edges[edge], network.slots[edge]] = True
    return chosen & links


def one_neighbour(network: Network, links: BoolArray, rng: np.random.Generator) -> BoolArray:
    """Each agent hears one of its neighbours, uniform over all of them.

    >>> path = Network.of("path", 3)
    >>> one_neighbour(path, path.present, np.random.default_rng(0)).sum(axis=1)
    array([1, 1, 1])
    """
    place = np.floor(rng.random(network.num_agents) * network.degrees).astype(np.int64)
    return links & (np.arange(links.shape[1]) == place[:, None])


def permutation(network: Network, links: BoolArray, rng: np.random.Generator) -> BoolArray:
    """Agent i hears agent s(i), for a random permutation s along edges that carry in both directions.

    Each agent is then heard as often as it hears, so that means of pairs keep the sum over all agents. Where all who
    take part are linked to each other, s is uniform over all permutations; an agent with s(i) = i hears nobody. On
    other networks agents and neighbours are paired at random until no two free neighbours are left.

    >>> complete = Network.of("complete", 5)
    >>> permutation(complete, complete.present, np.random.default_rng(0)).sum(axis=1)
    array([1, 1, 1, 1, 1])
    """
    ends, slots = network.edges, network.slots
    carries = links[ends[:, 0], slots[:, 0]] & links[ends[:, 1], slots[:, 1]]
    linked = np.unique(ends[carries])
    chosen = np.zeros(links.shape, dtype=bool)
    if 2 * np.count_nonzero(carries) == len(linked) * (len(linked) - 1):
        heard = linked[rng.permutation(len(linked))]
        chosen[linked] = network.present[linked] & (network.neighbours[linked] == heard[:, None])
    else:
        pairs = np.flatnonzero(carries)
        pairs = pairs[_matching(ends[pairs], network.num_agents, rng)]
        chosen[ends[pairs].ravel(), slots[pairs].ravel()] = True
    return chosen


def _matching(edges: IntArray, num_agents: int, rng: np.random.Generator) -> IntArray:
    """The places of edges that share no end, taken in a random order as long as there are any."""
    rank, left = rng.permutation(len(edges)), np.arange(len(edges))
    taken: list[IntArray] = []
    while len(left):  # an edge that comes first at both of its ends is taken: the same as one after the other
        first = np.full(num_agents, len(edges))
        np.minimum.at(first, edges[left].ravel(), np.repeat(rank[left], 2))
        wins = (first[edges[left]] == rank[left, None]).all(axis=1)
        taken.append(left[wins])
        free = np.ones(num_agents, dtype=bool)
        free[edges[left[wins]]] = False
        left = left[free[edges[left]].all(axis=1)]
    return np.concatenate(taken) if taken else left


_Draw = Callable[[Network, BoolArray, np.random.Generator], BoolArray]
#: The deliveries that are drawn in each round, with the number of their stream.
_DRAWN: Mapping[str, tuple[_Draw, tuple[int, ...]]] = {
    "one-edge": (one_edge, ()),
    "one-neighbour": (one_neighbour, (1,)),
    "permutation": (permutation, (2,)),
}


def drawn(way: str, network: Network, links: BoolArray, seed: int, number: int) -> BoolArray:
    """(M, D) the slots over which arrays with this delivery arrive in round `number` of the episode of that seed.

    Args:
        way: a name in `DELIVERIES` other than "neighbours".
        network: who can talk to whom.
        links: (M, D) the slots that carry anything in this round.
        seed: the seed of the episode.
        number: the number of the round.
    """
    draw, key = _DRAWN[way]
    return draw(network, links, generator(seed, Stream.DELIVERIES, number, *key))
