"""Networks: what they are made from, what they know, and what is refused."""

import numpy as np
import pytest
from scipy import sparse

import fedbandit_envs as fb
from fedbandit_envs.protocol.graphs import GRAPHS


def mixing_matrix(network):
    """P = I - Laplacian / (D + 1), from the edges alone."""
    adjacency = np.zeros((network.num_agents, network.num_agents))
    for one, other in network.edges:
        adjacency[one, other] = adjacency[other, one] = 1
    return np.eye(len(adjacency)) - (np.diag(adjacency.sum(axis=1)) - adjacency) / (adjacency.sum(axis=1).max() + 1)


def test_the_same_path_from_a_name_from_edges_from_a_matrix_and_from_a_graph():
    class Graph:  # what is used of networkx
        nodes, edges = ("a", "b", "c"), (("a", "b"), ("b", "c"))

        def is_directed(self):
            return False

    matrix = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    made = [fb.Network.of(value, 3) for value in ("path", [(0, 1), (2, 1), (1, 2)], matrix, Graph())]
    assert all(network == made[0] for network in made)
    assert made[0].edges.tolist() == [[0, 1], [1, 2]]


def test_a_networkx_graph_becomes_a_network():
    networkx = pytest.importorskip("networkx")
    assert fb.Network.of(networkx.cycle_graph(6), 6) == fb.Network.of("ring", 6)
    with pytest.raises(ValueError, match="undirected graph, got a directed one"):
        fb.Network.of(networkx.DiGraph([(0, 1)]), 2)


@pytest.mark.parametrize(
    ("name", "agents", "degrees"),
    [
        ("ring", 5, [2, 2, 2, 2, 2]),
        ("path", 4, [1, 2, 2, 1]),
        ("star", 4, [3, 1, 1, 1]),
        ("complete", 4, [3, 3, 3, 3]),
        ("grid", 6, [2, 3, 2, 2, 3, 2]),
        ("grid:1x3", 3, [1, 2, 1]),
        ("random-regular:3", 8, [3] * 8),
        ("erdos-renyi:1", 4, [3, 3, 3, 3]),
    ],
)
def test_named_graphs_have_the_degrees_of_their_name(name, agents, degrees):
    assert fb.Network.of(name, agents).degrees.tolist() == degrees


@pytest.mark.parametrize("name", ["erdos-renyi:0.2", "random-regular:4", "erdos-renyi"])
def test_a_random_graph_repeats_with_its_seed_and_differs_with_another(name):
    first = fb.Network.of(name, 30, seed=1)
    assert first == fb.Network.of(name, 30, seed=1)
    assert first != fb.Network.of(name, 30, seed=2)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_agent_finds_its_neighbours_and_they_find_it(name):
    network = fb.Network.of(name, 12, seed=3)
    links = {(i, int(j)) for i in range(12) for j in network.neighbours[i][network.present[i]]}
    assert links == {(j, i) for i, j in links}
    assert len(links) == 2 * len(network.edges)
    for (one, other), (slot, back) in zip(network.edges, network.slots, strict=True):
        assert (network.neighbours[one, slot], network.neighbours[other, back]) == (other, one)


@pytest.mark.parametrize("name", ["ring", "star", "path", "erdos-renyi:0.4"])
def test_mixing_is_the_product_with_the_mixing_matrix(name):
    network = fb.Network.of(name, 7, seed=0)
    rows = np.random.default_rng(0).normal(size=(7, 3))
    view = network.around(np.arange(7))
    mixed = view.mixed(rows, rows[network.neighbours], network.present)
    np.testing.assert_allclose(mixed, mixing_matrix(network) @ rows, atol=1e-14)
    values = np.sort(np.abs(np.linalg.eigvalsh(mixing_matrix(network))))
    assert network.second_eigenvalue == pytest.approx(values[-2], abs=1e-12)


@pytest.mark.parametrize("name", ["ring", "star", "path", "erdos-renyi:0.4"])
def test_pair_weights_are_the_same_at_both_ends_and_keep_the_sum_whatever_arrives(name):
    network, rng = fb.Network.of(name, 7, seed=0), np.random.default_rng(0)
    view, rows = network.around(np.arange(7)), rng.normal(size=(7, 3))
    for one, other, (slot, back) in zip(*network.edges.T, network.slots, strict=True):
        assert view.pair_weights[one, slot] == view.pair_weights[other, back]
        assert view.pair_weights[one, slot] == 1 / (1 + max(network.degrees[[one, other]]))
    lost = rng.random(len(network.edges)) < 0.4
    arrived = network.present.copy()
    arrived[network.edges[lost], network.slots[lost]] = False
    mixed = view.mixed(rows, rows[network.neighbours], arrived, view.pair_weights)
    np.testing.assert_allclose(mixed.sum(axis=0), rows.sum(axis=0), atol=1e-14)


@pytest.mark.parametrize(("weight", "words"), [(0.6, "a sum of 1.2"), (-0.1, "got -0.1"), (np.nan, "got nan")])
def test_weights_that_leave_nothing_for_the_agent_itself_are_refused(weight, words):
    view = fb.Network.of("ring", 5).around(np.arange(5))
    rows, received, weights = np.ones((5, 1)), np.ones((5, 2, 1)), np.full((5, 2), weight)
    with pytest.raises(ValueError, match=f"weights: expected ones of at least 0 .*{words}"):
        view.mixed(rows, received, view.present, weights)


@pytest.mark.parametrize(
    ("name", "agents", "formula"),
    [
        ("ring", 1200, (1 + 2 * np.cos(2 * np.pi / 1200)) / 3),
        ("ring", 20_000, (1 + 2 * np.cos(2 * np.pi / 20_000)) / 3),
        ("path", 5000, (1 + 2 * np.cos(np.pi / 5000)) / 3),
        ("grid:40x50", 2000, (3 + 2 * np.cos(np.pi / 50)) / 5),
        ("complete", 1100, 0.0),
    ],
)
def test_a_large_network_has_the_same_second_eigenvalue_as_by_formula(name, agents, formula):
    assert fb.Network.of(name, agents).second_eigenvalue == pytest.approx(formula, rel=0, abs=1.1e-12)


@pytest.mark.slow
def test_long_and_other_large_networks_have_the_second_eigenvalue_of_all_eigenvalues():
    rng = np.random.default_rng(0)
    tree = [(int(rng.integers(node)), node) for node in range(1, 1100)]
    # All of one half with all of the other: P has an eigenvalue near -1, which is as far from 0 as any but the first.
    halves = np.argwhere(np.ones((550, 550))) + np.array([0, 550])
    for value in (tree, halves, "random-regular:3", "erdos-renyi"):
        network = fb.Network.of(value, 1100)
        values = np.sort(np.abs(np.linalg.eigvalsh(mixing_matrix(network))))
        assert network.second_eigenvalue == pytest.approx(values[-2], rel=0, abs=1.1e-12)


@pytest.mark.parametrize("degree", [99, 98, 51, 50, 49])
def test_regular_graphs_of_many_edges_are_drawn_at_once(degree):
    network = fb.Network.of(f"random-regular:{degree}", 100, seed=1)
    assert (network.degrees == degree).all()


def test_a_random_graph_of_many_edges_misses_every_edge_alike():
    """8 agents of degree 5 miss 8 of 28 edges: each in 86 of 300 draws, within 5 standard deviations; fixed seeds."""
    linked = np.zeros((8, 8))
    for seed in range(300):
        linked[tuple(fb.Network.of("random-regular:5", 8, seed=seed).edges.T)] += 1
    missed = 300 - linked[np.triu_indices(8, 1)]
    assert np.abs(missed - 300 * 8 / 28).max() < 5 * np.sqrt(300 * 8 / 28 * 20 / 28)


def test_agents_of_a_graph_are_its_nodes_if_these_are_numbers_from_0():
    class Graph:  # what is used of networkx
        nodes, edges = (2, 0, 1), ((2, 0), (0, 1))

        def is_directed(self):
            return False

    assert fb.Network.of(Graph(), 3) == fb.Network([(0, 2), (0, 1)], 3)
    Graph.nodes, Graph.edges = (3, 1, 2), ((3, 1), (1, 2))  # no agent 0: in their order
    assert fb.Network.of(Graph(), 3) == fb.Network.of("path", 3)


def test_a_sparse_matrix_is_read_like_a_plain_one_and_refused_with_the_same_words():
    plain = np.zeros((5, 5), dtype=int)
    plain[tuple(fb.Network.of("ring", 5).edges.T)] = 1
    for kind in (sparse.csr_array, sparse.coo_array, sparse.csr_matrix):
        assert fb.Network.of(kind(plain + plain.T), 5) == fb.Network.of("ring", 5)
        with pytest.raises(ValueError, match=r"symmetric matrix, .* got 0 -> 1 without 1 -> 0"):
            fb.Network.of(kind(plain), 5)
        with pytest.raises(ValueError, match="matrix of 0 and 1, got 2 in it"):
            fb.Network.of(kind(2 * (plain + plain.T)), 5)
        with pytest.raises(ValueError, match=r"a square adjacency matrix \(M, M\)"):
            fb.Network.of(kind(plain[:3]), 5)


def test_one_agent_is_a_network_without_edges():
    network = fb.Network.of("ring", 1)
    assert (network.largest_degree, network.second_eigenvalue, len(network.edges)) == (0, 0.0, 0)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("rings", "did you mean 'ring'"),
        ("ring:3", "without a parameter"),
        ("grid:2x3", "grid:ROWSxCOLUMNS of 5 agents"),
        ("grid", "a prime number"),
        ("erdos-renyi:2", "with a probability P"),
        ("erdos-renyi:0.0001", "a connected graph within"),
        ("random-regular:3", "an even number of ends"),
        ("random-regular:5", "a degree below the 5 agents"),
        ([(0, 1), (2, 3), (3, 4)], "2 pieces: nothing leads from agent 0 to agent 2"),
        ([(0, 1), (1, 1)], "one from 1 to itself"),
        ([(0, 1), (1, 5)], "agents from 0 to 4, got 0 to 5"),
        ([(0, 1, 2)], "pairs of agents"),
        ([(0.5, 1.0)], "pairs of agents"),
        (np.triu(np.ones((5, 5)), 1), "a symmetric matrix"),
        (np.ones((4, 4)) - np.eye(4), "one of 5 agents, got one of 4"),
        (fb.Network.of("ring", 4), "one of 5 agents, got one of 4"),
        (object(), "expected a name such as 'ring'"),
        (0.5 * (np.ones((5, 5)) - np.eye(5)), "matrix of 0 and 1, got 0.5 in it; a network has no weights"),
        (np.ones((5, 5), dtype=int), "one from 0 to itself"),
    ],
)
def test_what_is_no_network_of_five_agents_is_refused_with_words(value, words):
    with pytest.raises(ValueError, match=words):
        fb.Network.of(value, 5)


def test_a_huge_star_is_refused_because_its_tables_would_be_empty():
    with pytest.raises(ValueError, match="degrees that are more alike"):
        fb.Network.of("star", 20_000)
