"""Policies that talk to peers: hand cases, conservation laws, the slow oracle, and every way to play a run."""

import math

import numpy as np
import pytest
from peers import (
    FAULTS,
    MEANS,
    NETWORKS,
    CoopOracle,
    DDUCBOracle,
    LateDDUCB,
    common_arms,
    decisions,
    every_step,
    first_best,
    rounds_of,
)

import fedbandit_envs as fb
from fedbandit_baselines.coop_ucb import CoopUCB2
from fedbandit_baselines.coop_ucl import CoopUCL
from fedbandit_baselines.dcb import DCB, longest_queue
from fedbandit_baselines.dd_ucb import DDUCB, chebyshev_factors
from fedbandit_baselines.dec_ucb import DecUCB
from fedbandit_baselines.gosine import GosInE
from fedbandit_baselines.gossip_ucb import GossipUCB
from fedbandit_baselines.private_gossip_ucb import PrivateGossipUCB
from fedbandit_envs.rounds.ledger import COUNTS
from fedbandit_envs.rounds.relay import ViaGraph

POLICIES = {
    "coop-UCB2": CoopUCB2(),
    "coop-UCL": CoopUCL(prior_mean=0.5, prior_std=0.4),
    "DDUCB": DDUCB(),
    "Gossip-UCB": GossipUCB(scale=0.1),
    "Private-Gossip-UCB": PrivateGossipUCB(scale=0.001),
    "Dec-UCB": DecUCB(),
    "GosInE": GosInE(growth=1.5),
    "DCB": DCB(sigma=0.1),
}
every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def test_one_step_of_coop_ucb2_on_a_path_of_three_by_hand():
    env = common_arms([0.0, 0.0], 3, 10)
    env.reset(seed=0)
    rounds = fb.CommunicationRounds(env, CoopUCB2(), network="path")
    rounds.start(0)
    (agents,) = rounds.sides
    agents.begin(np.ones((3, 2), dtype=np.int64), np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 3.0]]))
    hits = np.array([[1, 0], [0, 1], [1, 0]])
    sent = agents.learn(hits, hits * np.array([[2.0], [1.0], [4.0]]))
    agents.hear(rounds.carrier.exchange([sent], 3).down)
    counts, sums = np.split(agents.totals, 2, axis=1)
    np.testing.assert_allclose(counts, np.tile([5 / 3, 4 / 3], (3, 1)), rtol=1e-15)
    np.testing.assert_allclose(sums, [[2, 1 / 3], [7 / 3, 4 / 3], [8 / 3, 7 / 3]], rtol=1e-15)


@pytest.mark.parametrize("faults", FAULTS, ids=["no faults", "faults"])
@pytest.mark.parametrize("network", NETWORKS)
def test_coop_ucb2_keeps_the_sum_of_all_pulls_and_rewards_at_every_step(network, faults):
    rounds = rounds_of(CoopUCB2(), network, faults, horizon=70, record=True)
    for side, taken in every_step(rounds):
        rewards = sum(exchange.feedback.sums().sum() for exchange in rounds._exchanges)
        counts, sums = np.split(side.totals, 2, axis=1)
        assert counts.sum() == pytest.approx(7 * taken, rel=1e-12)
        assert sums.sum() == pytest.approx(rewards, abs=1e-9)


@pytest.mark.parametrize("faults", FAULTS, ids=["no faults", "faults"])
@pytest.mark.parametrize("network", NETWORKS)
def test_dducb_keeps_the_sum_of_all_pulls_at_every_step(network, faults):
    for side, taken in every_step(rounds_of(DDUCB(), network, faults, horizon=100)):
        held = (side.settled + side.mixing + side.fresh)[:, : len(MEANS)]
        assert held.sum() == pytest.approx(7 * taken, rel=1e-10)


@pytest.mark.parametrize("faults", FAULTS, ids=["no faults", "faults"])
@pytest.mark.parametrize("network", NETWORKS)
def test_gossip_and_dec_ucb_keep_the_sum_of_all_sample_means_at_every_step(network, faults):
    for policy in (GossipUCB(), PrivateGossipUCB(), DecUCB()):
        for side, _ in every_step(rounds_of(policy, network, faults, horizon=60)):
            np.testing.assert_allclose(side.means.sum(axis=0), side.sample_means().sum(axis=0), atol=1e-8)


def test_gossip_ucb_knows_the_most_pulls_as_late_as_they_are_far_away():
    network = fb.Network.of("path", 5)
    distance = np.abs(np.arange(5)[:, None] - np.arange(5))
    pulls = []  # the pulls of all agents after each step
    for side, _ in every_step(rounds_of(GossipUCB(scale=0.1), network, agents=5)):
        pulls.append(side.pulls.copy())
        if len(pulls) > 1:  # ntilde_i(t + 1) = max_j n_j(t - d(j, i)); before the start the pulls of the start count
            late = np.array([[pulls[max(0, len(pulls) - 1 - d)][j] for j, d in enumerate(row)] for row in distance])
            np.testing.assert_array_equal(side.most, late.max(axis=1))


def test_accelerated_gossip_on_the_ring_of_20_is_as_accurate_as_published():
    network = fb.Network.of("ring", 20)
    stage = DDUCB().stage(20, network.second_eigenvalue)
    view, rows = network.around(np.arange(20)), np.eye(20)[:, :1]
    before, plain = np.zeros_like(rows), rows
    for step in range(stage):
        ahead, back = chebyshev_factors(step, network.second_eigenvalue)
        mixed = view.mixed(rows, rows[network.neighbours], network.present)
        rows, before = ahead * mixed - back * before, rows
        plain = view.mixed(plain, plain[network.neighbours], network.present)
    assert network.second_eigenvalue == pytest.approx(0.96737, abs=5e-6)
    assert stage == 27
    assert np.abs(rows - 1 / 20).max() == pytest.approx(8.6e-4, rel=0.02)
    assert np.abs(plain - 1 / 20).max() == pytest.approx(4.3e-2, rel=0.02)
    assert rows.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("agents", "stage"), [(100, 164), (200, 355)])
def test_stages_on_long_cycles_are_as_long_as_published(agents, stage):
    assert DDUCB().stage(agents, fb.Network.of("ring", agents).second_eigenvalue) == stage


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("policy", [CoopUCB2(gamma=1.5), DDUCB(eta=1.5)], ids=["coop-UCB2", "DDUCB"])
def test_decisions_are_those_of_the_slow_oracle(policy, network):
    env = common_arms(MEANS, 6, 300, noise_std=0.5)
    rounds = fb.CommunicationRounds(env, policy, network=network, record=True)
    rounds.start(seed=1)
    rounds.finish()
    if isinstance(policy, CoopUCB2):
        oracle = CoopOracle(rounds.network, len(MEANS), 0.5, policy.gamma)
    else:
        oracle = DDUCBOracle(rounds.network, len(MEANS), 0.5, policy.eta)
    chosen, first, rewards = decisions(rounds.history())
    oracle.begin(first)
    for step, (arms, paid) in enumerate(zip(chosen, rewards, strict=True)):
        assert arms.tolist() == oracle.choose(t=len(MEANS) + step)
        oracle.learn(arms, paid)


@every_policy
def test_a_run_with_faults_is_the_same_in_any_blocks_and_after_any_stop(policy):
    faults = FAULTS[1]

    def bytes_of(history):
        parts = (history.pulls, history.ledger.per_agent, history.ledger.per_round)
        return [part.tobytes() for part in parts], history.faults

    whole = rounds_of(policy, "erdos-renyi:0.4", faults)
    whole.finish()
    expected = bytes_of(whole.history())
    for blocks in ([[i] for i in range(7)], [[6, 2, 0], [1, 5], [4, 3]]):
        rounds = rounds_of(policy, "erdos-renyi:0.4", faults, blocks=blocks)
        while not rounds.done:
            rounds.advance()
            if rounds.taken in (20, 21, 90):
                state, rounds = rounds.snapshot(), rounds_of(policy, "erdos-renyi:0.4", faults, blocks=blocks)
                rounds.restore(state)
        assert bytes_of(rounds.history()) == expected


@pytest.mark.parametrize("number", [1e99, -1e99, 1e9, -1, 0, math.nan])
@every_policy
def test_a_neighbour_can_send_what_it_likes_and_nobody_crashes(policy, number, monkeypatch):
    def lie(self, sent, round):
        whole = int(np.clip(np.nan_to_num(number), -(2**60), 2**60))
        arrays = {name: array.copy() for name, array in sent.arrays.items()}
        for array in arrays.values():
            array[sent.agents == 2] = number if array.dtype.kind == "f" else whole
        return fb.Message(sent.kind, arrays, sent.agents, sent.present)

    monkeypatch.setattr(ViaGraph, "_changed", lie)
    rounds = rounds_of(policy, "ring")
    rounds.finish()
    history, faults = rounds.history(), rounds.history().faults
    assert (history.pulls[-1].sum(axis=1) == 150).all()
    assert {fault.agent for fault in faults} <= {2}
    told = {GosInE: "arm", GossipUCB: "a number of pulls", PrivateGossipUCB: "a number of pulls", DecUCB: "a number of"}
    if type(policy) in told and number not in (0, math.nan):
        assert len(faults) == history.ledger.rounds
        assert told[type(policy)] in faults[0].reason


def test_false_reports_can_make_what_a_dcb_agent_knows_singular_and_the_others_stay_as_they_are():
    rounds = rounds_of(DCB(), "ring")
    rounds.advance()
    (side,) = rounds.sides
    side.known[:, :, 0, 0], side.known[:, :, 0, 1] = 3.0, [2.0, 3.0, 1.0, 0.5]
    expected = side.ridge().theta()[..., 0]
    side.known[2, 1, 0, 0] = -1.0
    expected[2, 1] = 3.0  # V = 1 - 1 is taken for 1
    np.testing.assert_array_equal(side.ridge().theta()[..., 0], expected)
    assert side.choose().tolist() == 7 * [1]


def test_an_arm_that_does_not_exist_is_not_taken_for_one_that_does():
    reports = fb.Message("arm", {"arm": np.array([-1, 3, 4])}, np.arange(3))
    assert list(GosInE().refuses(reports, rounds_of(GosInE(), "ring").constants)) == [0, 2]  # there are 4 arms


def scalars_of_a_round(name, edges):
    """What crosses in a round by the formula of the paper; DCB sends queues that grow, and is left out."""
    K = len(MEANS)
    if name.endswith("Gossip-UCB"):
        return K * (2 * edges + 2)
    return 7 if name == "GosInE" else 2 * K * 2 * edges


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "DCB"])
@pytest.mark.parametrize("network", NETWORKS)
def test_the_ledger_counts_what_the_formulas_say(network, name):
    policy, K = POLICIES[name], len(MEANS)
    rounds = rounds_of(policy, network)
    rounds.finish()
    ledger, edges = rounds.history().ledger, len(rounds.network.edges)
    # Nothing is said after the last step; only coop-UCB2 and coop-UCL speak about the start.
    speaking = 150 - K - (not name.startswith("coop"))
    if name == "GosInE":  # phases end after j^1.5 steps, and only the arrays of one neighbour cross
        speaking = sum(math.ceil(j**1.5) < 150 for j in range(1, 150))
    each = scalars_of_a_round(name, edges)
    assert (ledger.scalars_peer, ledger.scalars, ledger.rounds) == (each * speaking, each * speaking, speaking)
    assert ledger.messages == ledger.messages_peer == (7 if name == "GosInE" else 2 * edges) * speaking
    if name in (
        "coop-UCB2",
        "coop-UCL",
        "DDUCB",
        "Dec-UCB",
    ):  # every edge carries the same: each agent pays for what it hears
        heard = ledger.per_agent[:, COUNTS.index("scalars_peer")]
        np.testing.assert_array_equal(heard, 2 * K * speaking * rounds.network.degrees)


def test_the_ledger_of_dcb_counts_a_queue_for_each_agent_that_hears():
    rounds = rounds_of(DCB(), "complete", record=True)
    rounds.finish()
    history, K = rounds.history(), len(MEANS)  # one feature: 2 numbers for each arm
    downs = [exchange.down for exchange in history.exchanges if exchange.down is not None]
    queues = [(down["queue"].shape[2], np.count_nonzero(down.present["queue"])) for down in downs]
    assert history.ledger.scalars == sum(length * heard * K * 2 for length, heard in queues)
    assert max(length for length, _ in queues) == math.floor(longest_queue(7, 149)) + 1


@every_policy
def test_one_agent_and_one_arm_are_enough(policy):
    env = fb.make("fedbandit/Linear-v0", theta=np.ones((1, 1)), features=np.ones((1, 1, 1)), max_cycles=20)
    assert fb.play(env, policy, seed=0, network="ring").ledger.scalars == 0


def test_an_arm_that_lags_behind_is_pulled():
    policy = GossipUCB(scale=1e-6)  # greedy but for the arms that lag behind
    history = fb.play(common_arms([0.5, 0.4], 3, 400, noise_std=0.3), policy, seed=2, network="complete")
    pulls = history.pulls[-1]
    assert (pulls.max(axis=0) - pulls <= 3 + 3).all()  # at most M behind, and a few steps late


def test_without_fresh_samples_dducb_on_a_complete_graph_is_pooled_ucb1_one_step_late():
    rounds = fb.CommunicationRounds(
        common_arms(MEANS, 5, 300), LateDDUCB(eta=1 + 1e-12), network="complete", record=True
    )
    rounds.start(2)
    rounds.finish()
    chosen, first, rewards = decisions(rounds.history())
    pulls, sums = np.full(4, 5.0), first.sum(axis=0)
    assert len(chosen) == 296
    for t in range(4 + 1, 300):  # before it, agents know of their own start only
        index = sums / pulls + np.sqrt(2 * math.log((t - 1) * 5) / pulls)
        assert set(chosen[t - 4].tolist()) == {first_best(list(index))}
        pulls += np.bincount(chosen[t - 4 - 1], minlength=4)
        sums += np.bincount(chosen[t - 4 - 1], weights=rewards[t - 4 - 1], minlength=4)


def test_the_mean_gossip_step_on_three_agents_that_all_know_each_other_has_the_published_eigenvalue():
    rounds = fb.CommunicationRounds(common_arms([0.5, 0.4, 0.3], 3, 20), GossipUCB(), network="complete")
    rounds.start(0)
    rounds.advance()
    (side,) = rounds.sides
    steps = []
    for one, other in ((0, 1), (0, 2), (1, 2)):
        side.means = side.sent = np.eye(3)
        means, pair = np.zeros((3, 1, 3)), np.zeros((3, 1), dtype=bool)
        means[[one, other], 0], pair[[one, other]] = np.eye(3)[[other, one]], True
        arrays, arrived = {"means": means, "most": np.zeros((3, 2, 3))}, np.zeros((3, 2), dtype=bool)
        side.hear(fb.Message("gossip", arrays, np.arange(3), {"means": pair, "most": arrived}))
        steps.append(side.means)
    np.testing.assert_allclose(np.linalg.eigvalsh(np.mean(steps, axis=0)), [0.5, 0.5, 1], atol=1e-15)
