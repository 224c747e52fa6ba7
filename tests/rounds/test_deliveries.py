"""Deliveries that reach one neighbour at most: who hears whom, that it is drawn fairly, and that sums are kept."""

import math
from collections import Counter

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.policy import DELIVERIES
from fedbandit_envs.rounds.relay import ViaGraph

NETWORKS = ["ring", "star", "path", "erdos-renyi:0.5", "complete"]
FAULTS = [None, fb.Faults(edge_dropout=0.2, dropout=0.2)]


def carrier(network, agents, ways, faults=None, seed=0):
    constants = Constants(agents, 2, 1, 100, ell=1.0, L=1.0, noise_std=1.0, context="fixed")
    return ViaGraph(fb.Network.of(network, agents), ways, constants, faults, seed)


def numbers(agents, *names):
    """A report of the agents' own numbers under each of the names."""
    return fb.Message("numbers", {name: np.array(agents) for name in names}, np.array(agents))


def heard(via, agents, name="x"):
    """Whom each agent hears in the next round, -1: nobody."""
    down = via.exchange([numbers(agents, name)], 1).down
    assert down[name].shape == (via.ledger.per_agent.shape[0], 1)
    return np.where(down.present[name], down[name], -1)[:, 0].tolist()


def test_one_neighbour_is_one_of_the_own_and_each_as_often():
    via, counts = carrier("star", 5, {"x": "one-neighbour"}), Counter()
    for _ in range(400):
        first, *others = heard(via, range(5))
        assert others == [0, 0, 0, 0]
        counts[first] += 1
    # 100 expected each; 5 standard deviations of 8.7, which a fair draw exceeds with probability below 3e-6 in all.
    assert sorted(counts) == [1, 2, 3, 4]
    assert all(abs(count - 100) < 44 for count in counts.values())
    assert via.ledger.scalars_peer == via.ledger.messages_peer == 400 * 5


def test_on_a_complete_network_all_permutations_are_as_likely():
    via, counts = carrier("complete", 3, {"x": "permutation"}), Counter()
    for _ in range(600):
        found = heard(via, range(3))
        counts[tuple(agent if one < 0 else one for agent, one in enumerate(found))] += 1
    # 100 expected each; 5 standard deviations of 9.1.
    assert len(counts) == 6
    assert all(abs(count - 100) < 46 for count in counts.values())


@pytest.mark.parametrize("faults", FAULTS, ids=["no faults", "faults"])
@pytest.mark.parametrize("network", NETWORKS)
def test_by_a_permutation_each_agent_is_heard_as_often_as_it_hears(network, faults):
    via, ties = carrier(network, 7, {"x": "permutation"}, faults), fb.Network.of(network, 7)
    edges = {tuple(edge) for edge in ties.edges.tolist()}
    talks = 0
    for number in range(60):
        speakers = [agent for agent in range(7) if agent != number % 9]  # mostly one says nothing
        found = heard(via, speakers)
        hearing = [agent for agent in range(7) if found[agent] >= 0]
        assert sorted(found[agent] for agent in hearing) == hearing
        assert set(hearing) <= set(speakers)
        assert all(tuple(sorted((agent, found[agent]))) in edges for agent in hearing)
        talks += len(hearing)
    assert via.ledger.scalars_peer == talks > 0


@pytest.mark.parametrize("network", ["ring", "star", "path", "grid:2x4"])
def test_where_not_all_are_linked_pairs_hear_each_other_and_no_pair_is_left(network):
    via, ties = carrier(network, 8, {"x": "permutation"}), fb.Network.of(network, 8)
    for _ in range(30):
        found = heard(via, range(8))
        assert all(found[found[agent]] == agent for agent in range(8) if found[agent] >= 0)
        assert all(max(found[one], found[other]) >= 0 for one, other in ties.edges)


def test_arrays_that_travel_alike_travel_together_and_others_apart():
    ways = {"a": "permutation", "b": "permutation", "c": "one-neighbour", "d": "one-edge"}
    via = carrier("complete", 6, ways)
    for _ in range(20):
        sent = numbers(range(6), *"abcde")
        before = via.ledger.messages_peer
        down = via.exchange([sent], 1).down
        np.testing.assert_array_equal(down["a"], down["b"])
        np.testing.assert_array_equal(down.present["a"], down.present["b"])
        assert down.present["c"].all()
        assert down.present["d"].sum() == 2
        assert down["e"].shape == (6, 5)
        assert via.ledger.messages_peer == before + 30  # one for each edge and direction, however many arrays
    assert via.ledger.scalars_peer > 20 * (6 + 2 + 30)


@pytest.mark.parametrize("way", [way for way in DELIVERIES if way != "neighbours"])
def test_a_draw_repeats_with_seed_and_round_and_differs_with_another(way):
    def rounds(seed):
        via = carrier("complete", 9, {"x": way}, seed=seed)
        return [heard(via, range(9)) for _ in range(10)]

    first = rounds(1)
    assert first == rounds(1) != rounds(2)
    assert len({tuple(one) for one in first}) > 1


@pytest.mark.parametrize("way", DELIVERIES)
def test_an_agent_alone_hears_nobody(way):
    down = carrier("ring", 1, {"x": way}).exchange([numbers([0], "x")], 1).down
    assert not down.present["x"].any()


def test_a_matching_is_drawn_fairly():
    via, counts = carrier("path", 3, {"x": "permutation"}), Counter()
    for _ in range(400):
        counts[heard(via, range(3))[1]] += 1
    assert sorted(counts) == [0, 2]
    assert abs(counts[0] - 200) < 5 * math.sqrt(100)  # 5 standard deviations
