"""The relay: what neighbours receive, what it costs, and what fails."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.rounds.faults import Fault
from fedbandit_envs.rounds.ledger import COUNTS
from fedbandit_envs.rounds.relay import ViaGraph

PATH = fb.Network.of("path", 3)
CONSTANTS = Constants(3, 2, 1, 100, ell=1.0, L=1.0, noise_std=1.0, context="fixed")


def report(**arrays):
    return fb.Message("rows", {name: np.array(rows) for name, rows in arrays.items()}, np.arange(3))


def bandit(num_agents=6, horizon=60):
    """The same three arms for all agents."""
    theta = np.array([[0.9], [0.5], [0.2]])
    return fb.make("fedbandit/Linear-v0", theta=theta, features=np.ones((num_agents, 3, 1)), max_cycles=horizon)


def test_every_agent_receives_the_rows_of_its_neighbours_with_a_mask():
    down = ViaGraph(PATH, {}, CONSTANTS).exchange([report(x=[[1.0], [2.0], [4.0]])], 1).down
    np.testing.assert_array_equal(down["x"][..., 0], [[2, 0], [1, 4], [2, 0]])
    np.testing.assert_array_equal(down.present["x"], [[True, False], [True, True], [True, False]])


def test_an_edge_is_charged_once_for_each_direction_and_nothing_goes_up_or_down():
    carrier = ViaGraph(PATH, {}, CONSTANTS)
    carrier.exchange([report(x=np.ones((3, 5)))], 1)
    ledger = carrier.ledger
    assert (ledger.messages_peer, ledger.scalars_peer, ledger.bytes_peer) == (4, 20, 160)
    assert (ledger.messages, ledger.scalars, ledger.scalars_up, ledger.scalars_down) == (4, 20, 0, 0)
    assert ledger.per_agent[:, COUNTS.index("scalars_peer")].tolist() == [5, 10, 5]
    assert ledger.per_agent[:, COUNTS.index("messages_peer")].tolist() == [1, 2, 1]


def test_the_masks_of_senders_combine_with_that_of_the_network():
    sent = fb.Message(
        "rows", {"x": np.ones((3, 2))}, np.arange(3), {"x": np.array([[True, False], [True, True], [False, False]])}
    )
    carrier = ViaGraph(PATH, {}, CONSTANTS)
    down = carrier.exchange([sent], 1).down
    np.testing.assert_array_equal(down.present["x"][1], [[True, False], [False, False]])
    assert carrier.ledger.scalars_peer == 2 + 1 + 0 + 2


def test_an_array_over_one_edge_reaches_its_two_ends_only():
    carrier = ViaGraph(PATH, {"x": "one-edge"}, CONSTANTS, seed=5)
    chosen = set()
    for step in range(40):
        down = carrier.exchange([report(x=[[1.0], [2.0], [4.0]], y=[[1.0], [2.0], [4.0]])], step).down
        ends = np.flatnonzero(down.present["x"].any(axis=1)).tolist()
        assert ends in ([0, 1], [1, 2])
        assert down.present["y"].sum() == 4
        received = [float(down["x"][agent].sum()) for agent in ends]
        assert received == ([2.0, 1.0] if ends == [0, 1] else [4.0, 2.0])
        chosen.add(tuple(ends))
    assert chosen == {(0, 1), (1, 2)}  # a fair edge misses one with probability 2**-39
    assert carrier.ledger.scalars_peer == 40 * (2 + 4)


def test_agents_that_say_nothing_are_masked_and_still_hear():
    sent = fb.Message("rows", {"x": np.array([[7.0]])}, np.array([1]))
    down = ViaGraph(PATH, {}, CONSTANTS).exchange([None, sent], 1).down
    np.testing.assert_array_equal(down.present["x"], [[True, False], [False, False], [True, False]])
    np.testing.assert_array_equal(down["x"][[0, 2], 0, 0], [7, 7])


def test_an_agent_that_fails_neither_sends_nor_receives():
    carrier = ViaGraph(PATH, {}, CONSTANTS, fb.Faults(schedule={0: [0]}))
    down = carrier.exchange([report(x=np.ones((3, 1)))], 1).down
    np.testing.assert_array_equal(down.present["x"], [[False, False], [False, True], [True, False]])
    assert carrier.lost == [Fault(0, 0, "scheduled")]
    assert carrier.ledger.scalars_peer == 2


def test_a_report_that_is_not_finite_cuts_its_agent_off():
    carrier = ViaGraph(PATH, {}, CONSTANTS)
    down = carrier.exchange([report(x=[[1.0], [np.nan], [1.0]])], 1).down
    assert not down.present["x"].any()
    assert carrier.lost == [Fault(1, 0, "sent NaN or infinity in x")]


def test_an_edge_that_fails_carries_nothing_either_way_and_costs_nothing():
    carrier = ViaGraph(PATH, {}, CONSTANTS, fb.Faults(edge_dropout=0.5), seed=1)
    arrived = 0
    for step in range(50):
        mask = carrier.exchange([report(x=np.ones((3, 1)))], step).down.present["x"]
        assert mask[0, 0] == mask[1, 0]
        assert mask[1, 1] == mask[2, 0]
        arrived += int(mask.sum())
    assert carrier.ledger.scalars_peer == carrier.ledger.messages_peer == arrived
    assert len(carrier.lost) == 100 - arrived // 2
    assert 25 < len(carrier.lost) < 75  # beyond 5 standard deviations of 50
    assert all(fault.peer == fault.agent + 1 for fault in carrier.lost)


def test_too_few_agents_make_a_round_lost_for_all():
    faults = fb.Faults(schedule={0: [3], 1: [3]}, quorum=0.9)
    rounds = fb.CommunicationRounds(bandit(), fb.make_policy("coop-UCB2"), faults=faults, network="ring")
    rounds.start(0)
    with pytest.raises(fb.QuorumLost):
        rounds.finish()
    rounds.finish()
    assert rounds.history().pulls[-1].sum(axis=1).tolist() == [60] * 6


def test_attackers_change_what_neighbours_receive():
    env = bandit()
    attacked = fb.Faults(attackers=fb.Attackers("constant", share=0.5, value=100.0))
    changed = fb.play(env, fb.make_policy("coop-UCB2"), seed=0, network="ring", faults=attacked, record=True)
    received = [exchange.down["totals"] for exchange in changed.exchanges if exchange.down is not None]
    assert all((rows == 100.0).any() for rows in received)


def test_a_peer_policy_without_a_network_says_how_to_give_one():
    with pytest.raises(ValueError, match=r"network: expected one, because the agents of CoopUCB2 .* network='ring'"):
        fb.play(bandit(), fb.make_policy("coop-UCB2"))


def test_a_network_of_other_agents_is_refused_by_every_policy():
    for policy in ("coop-UCB2", "Local-UCB"):
        with pytest.raises(ValueError, match="one of 6 agents, got one of 4"):
            fb.play(bandit(), fb.make_policy(policy), network=fb.Network.of("ring", 4))


def test_a_policy_that_does_not_talk_to_peers_does_without_the_network():
    env = bandit()
    with_network = fb.play(env, fb.make_policy("Local-UCB"), seed=0, network="ring")
    np.testing.assert_array_equal(with_network.pulls, fb.play(env, fb.make_policy("Local-UCB"), seed=0).pulls)


def test_edges_can_fail_only_where_there_are_edges():
    with pytest.raises(ValueError, match="edge_dropout: expected 0, because FedPECD does not talk to peers"):
        fb.play(bandit(), fb.make_policy("Fed-PECD"), faults=fb.Faults(edge_dropout=0.1))


def test_an_unknown_delivery_is_refused_with_the_nearest():
    class Wrong(type(fb.make_policy("coop-UCB2"))):
        delivery: ClassVar = {"totals": "one-edges"}

    with pytest.raises(ValueError, match="did you mean 'one-edge'"):
        fb.play(bandit(), Wrong(), network="ring")


def test_an_unknown_partner_is_refused():
    @dataclass(frozen=True)
    class Wrong(fb.Policy):
        talks_to: ClassVar = "peer"

        def agents(self, view):
            raise NotImplementedError

    with pytest.raises(ValueError, match="did you mean 'peers'"):
        fb.play(bandit(), Wrong(), network="ring")


def test_a_random_network_is_drawn_from_the_seed_of_the_run():
    def network(seed):
        rounds = fb.CommunicationRounds(bandit(20), fb.make_policy("coop-UCB2"), network="erdos-renyi:0.3")
        rounds.start(seed)
        return rounds.network

    assert network(1) == network(1) == fb.Network.of("erdos-renyi:0.3", 20, seed=1)
    assert network(1) != network(2)


def test_a_state_of_another_network_is_refused():
    rounds = fb.CommunicationRounds(bandit(), fb.make_policy("coop-UCB2"), network="ring")
    rounds.start(0)
    other = fb.CommunicationRounds(bandit(), fb.make_policy("coop-UCB2"), network="star")
    with pytest.raises(ValueError, match="the environment, the network and the faults"):
        other.restore(rounds.snapshot())


@pytest.mark.parametrize("policy", ["coop-UCB2", "Gossip-UCB", "GosInE", "DCB"])
def test_the_audit_finds_the_accounts_of_peers_in_order(policy):
    history = fb.play(bandit(), fb.make_policy(policy), seed=0, network="ring", record=True)
    found = fb.audit(history)
    assert found.ok
    assert found["scalars between peers in the ledger differ from the messages by"].measured == 0
    assert history.ledger.scalars_peer > 0
