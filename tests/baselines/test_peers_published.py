"""Policies that talk to peers in published settings: what other programs paid there, and what is claimed."""

import math

import numpy as np
import pytest
from peers import LateDDUCB, common_arms

import fedbandit_envs as fb
from fedbandit_baselines.coop_ucb import CoopUCB2
from fedbandit_baselines.dd_ucb import DDUCB
from fedbandit_baselines.dec_ucb import DecUCB
from fedbandit_baselines.gossip_ucb import GossipUCB
from fedbandit_baselines.multi_armed_ucb import UCB1, PooledUCB

RING_OF_20 = {  # by policy, what the reference programs paid after 4000 and after 10,000 steps
    "UCB1": (UCB1(), 11132, 18366),
    "pooled UCB1": (PooledUCB(), 1423, 1720),
    "coop-UCB2": (CoopUCB2(), 1166, 1325),
    "bold coop-UCB2": (CoopUCB2(gamma=2.0), 2391, 2834),
    "DDUCB": (DDUCB(), 3244, 3920),
    "DDUCB without fresh samples": (LateDDUCB(), 3939, 4195),
    "Dec-UCB": (DecUCB(), 12878, 25784),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RING_OF_20)
def test_twenty_agents_on_a_ring_pay_what_they_paid_in_the_reference_programs_after_more_steps(name):
    """These had 3 runs, whose standard deviation is taken to be that of our 10.

    Among 14 right means one is farther away than 5 standard errors with probability below 1e-2 (Student's t, 9 degrees
    of freedom), and the seeds are fixed. These numbers were known before the tolerance was chosen.
    """
    policy, *published = RING_OF_20[name]
    env = common_arms([1.0] + 16 * [0.8], 20, 10_000)
    histories = [fb.play(env, policy, seed=seed, network="ring") for seed in range(10)]
    for steps, theirs in zip((4000, 10_000), published, strict=True):
        runs = [run.total_regret()[np.searchsorted(run.steps, steps)] for run in histories]
        assert abs(np.mean(runs) - theirs) < 5 * np.std(runs, ddof=1) * math.sqrt(1 / 3 + 1 / 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "coop", "bold", "staged"),
    [
        ("ring", 1166, 2391, 3244),
        ("complete", 1201, 2376, 2930),
        ("star", 1260, 2440, 3411),
        ("grid:4x5", 1213, 2408, 3310),
    ],
)
def test_twenty_agents_pay_what_they_paid_in_the_reference_programs(network, coop, bold, staged):
    """The reference programs met the rewards of the same three seeds, so their means come out to the rounding.

    The papers leave details of coop-UCB2 open: whether the start is averaged, and which t its index has. Of twelve
    readings ours was chosen because these numbers come out. So they show that both programs do the same, and not that
    the reading is the authors' own.
    """
    env = common_arms([1.0] + 16 * [0.8], 20, 4000)
    for policy, published in ((CoopUCB2(), coop), (CoopUCB2(gamma=2.0), bold), (DDUCB(), staged)):
        runs = [fb.play(env, policy, seed=seed, network=network).total_regret()[-1] for seed in range(3)]
        assert round(np.mean(runs)) == published
    if network == "ring":  # 2 K numbers over 40 directed edges in each step, in both as measured with a relay
        ledger = fb.play(env, CoopUCB2(), seed=0, network=network).ledger
        assert ledger.scalars_peer == 34 * 40 * (4000 - 17)
    alone = fb.play(env, fb.make_policy("Local-UCB"), seed=0).total_regret()[-1]
    pooled = np.mean([fb.play(env, fb.make_policy("Pooled-UCB"), seed=seed).total_regret()[-1] for seed in range(3)])
    assert max(coop, bold, staged) < alone / 3
    assert coop < pooled < bold < staged < 2.5 * pooled  # UCB1 on everybody's pulls has a wider bonus than coop-UCB2


@pytest.mark.slow
def test_the_group_regret_of_gossip_ucb_is_logarithmic_where_that_of_agents_alone_is_linear():
    """Seeds are fixed. A doubling of T costs as much as the one before if regret is logarithmic, twice if linear."""
    means = np.array([[1.0, 0.1, 0.8], [0.1, 1.0, 0.8], [0.2, 0.1, 0.8]])  # the last arm is best on average
    gaps = means.mean(axis=0).max() - means.mean(axis=0)
    env = fb.make(
        "fedbandit/Linear-v0", theta=np.ones((3, 1)), features=means[..., None], noise_std=0.5, max_cycles=16_000
    )

    def doublings(policy):
        runs = [fb.play(env, policy, seed=seed, network="complete") for seed in range(2)]
        times = np.searchsorted(runs[0].steps, [4000, 8000, 16_000])
        return np.diff(np.mean([(run.pulls * gaps).sum(axis=2).mean(axis=1)[times] for run in runs], axis=0))

    early, late = doublings(GossipUCB())
    assert 0 < late < 1.4 * early
    early, late = doublings(fb.make_policy("Local-UCB"))
    assert late == pytest.approx(2 * early, rel=0.05)


@pytest.mark.slow
def test_gossip_ucb_pays_what_another_program_paid_with_the_bonus_of_its_paper():
    """It had a group regret of 348, 427 and 533 per agent in one run, and agents alone 801, 1627 and 3264.

    The means were not written down. Of 400 draws of such means, these were chosen because they fit: the difference
    between its personal and its group regret, 3001 - 533, is T times the mean advantage of the own best arm over the
    group's, which is 2468 here. Noise of standard deviation 1 met the paper's bonus for rewards in [0, 1], half of
    ours. One run scatters as ours do; within 5 standard deviations of the difference says little more than that
    nothing is wrong by a factor.
    """
    means = np.random.default_rng(3).uniform(0, 1, (3, 5))
    own, group = means.max(axis=1).mean(), means.mean(axis=0).max()
    assert 20_000 * (own - group) == pytest.approx(3001 - 533, abs=1)
    env = fb.make("fedbandit/MultiArmed-v0", local_means=means, local_std=0.3, max_cycles=20_000)
    runs = {}
    for policy in (GossipUCB(scale=0.5), UCB1()):
        histories = [fb.play(env, policy, seed=seed, network="complete") for seed in range(4)]
        times = np.searchsorted(histories[0].steps, [5000, 10_000, 20_000])
        runs[type(policy)] = np.array([run.mean_regret("group_regret")[times] for run in histories])
    for policy, theirs in ((GossipUCB, [348, 427, 533]), (UCB1, [801, 1627, 3264])):
        off = np.abs(runs[policy].mean(axis=0) - theirs)
        assert (off < 5 * runs[policy].std(axis=0, ddof=1) * math.sqrt(1 + 1 / 4)).all()
    assert (runs[GossipUCB][:, 2] < runs[UCB1][:, 2] / 4).all()


@pytest.mark.slow
def test_dec_ucb_pays_less_than_the_classic_ucb1_on_every_connected_network():
    """The paper's problem. Its networks of 6 agents are not written down; on them it paid 51 to 60, and UCB1 92.

    Means of 10 runs of 6 agents, and of 200 agents alone, differ by more than 20 standard errors. Seeds are fixed. The
    claim is about the bonus sqrt(2 ln t / n): UCB1 with the sigma of such rewards, 1/2, pays 35 here.
    """
    means = [0.10, 0.25, 0.45, 0.65, 0.75, 0.90]

    def regret(policy, num_agents, runs, **network):
        env = fb.make(
            "fedbandit/MultiArmed-v0", num_agents=num_agents, means=means, rewards="bernoulli", max_cycles=1000
        )
        return np.mean([fb.play(env, policy, seed=seed, **network).mean_regret()[-1] for seed in range(runs)])

    alone = regret(UCB1(sigma=1.0), 200, 1)
    assert alone == pytest.approx(92, abs=5 * 0.64 * math.sqrt(2))  # 0.64: our standard error, taken for theirs
    found = {name: regret(DecUCB(), 6, 10, network=name) for name in ("complete", "star", "ring", "path")}
    assert max(found.values()) < 0.75 * alone
    assert found["complete"] < found["star"] < min(found["ring"], found["path"])  # more neighbours, less regret
    assert regret(UCB1(), 200, 1) < min(found.values())
