"""DELB and Feature-Selection on real environments: by hand, by the slow oracle, and what they refuse."""

import numpy as np
import pytest
from reference_weights import delb_design, delb_phases
from refusals import assert_refused

import fedbandit_envs as fb
from fedbandit_agents.linear.distributed_elimination import small_design

PLANE = np.eye(2)


def alike(M, T, arms=PLANE, theta=(0.5, 0.45), noise_std=0.0, **more):
    """All agents have the same arms, of which each is known."""
    more = {"features": np.tile(arms, (M, 1, 1)), "shared_theta": True, "same_arms": True, **more}
    theta = np.tile(theta, (len(arms), 1)) if np.ndim(theta) == 1 else theta
    return fb.make("fedbandit/Linear-v0", theta=theta, noise_std=noise_std, max_cycles=T, **more)


def phases(history):
    """(phases, M, K) the pulls of exploration, and the messages down that came before them."""
    turns = [turn for turn in history.exchanges if turn.plan.explore.any()]
    return np.array([turn.feedback.explored for turn in turns]), [turn.down for turn in turns]


def test_the_pulls_of_the_first_phases_by_hand():
    history = fb.play(alike(2, 1000), fb.make_policy("DELB", constant=1.0), seed=0, record=True)
    pulls, _ = phases(history)
    assert pulls[0].tolist() == [[61, 0], [0, 61]]  # one arm for each agent
    assert pulls[1].tolist() == [[244, 0], [0, 244]]
    assert pulls[2].tolist() == [[1000 - 305, 0], [0, 1000 - 305]]  # these are 973 pulls, cut at the horizon


def test_with_the_published_constant_the_first_phase_does_not_end():
    history = fb.play(alike(2, 1000), fb.make_policy("DELB", constant=600.0), seed=0, record=True)
    pulls, _ = phases(history)
    assert pulls.tolist() == [[[1000, 0], [0, 1000]]]
    assert history.ledger.rounds == 1  # psi, and the first shares


def test_a_phase_costs_a_number_for_each_share_and_theta():
    M, T = 4, 20_000
    arms = np.random.default_rng(1).uniform(-0.7, 0.7, (8, 3))
    history = fb.play(alike(M, T, arms, (0.6, -0.5, 0.3), 0.5), fb.make_policy("DELB"), seed=0, record=True)
    pulls, _ = phases(history)
    shares = [int((one > 0).sum()) for one in pulls]
    supports = [int((one.sum(axis=0) > 0).sum()) for one in pulls]
    assert len(shares) >= 3
    assert all(number <= support + M - 1 for number, support in zip(shares, supports, strict=True))
    over = history.ledger.rounds == len(shares) + 1  # whether the last phase was reported
    assert history.ledger.scalars_up == M * 8 * 3 + sum(shares if over else shares[:-1])
    assert history.ledger.scalars_down == sum(shares) + (history.ledger.rounds - 1) * M * 3


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_oracle_finds_the_same_pulls_the_same_estimates_and_the_same_arms(shared, seed):
    rng = np.random.default_rng(seed)
    arms, theta = rng.uniform(-0.7, 0.7, (6, 2)), rng.uniform(-0.7, 0.7, (1 if shared else 6, 2))
    env = alike(3, 30_000, arms, np.tile(theta, (6 if shared else 1, 1)), 0.3, shared_theta=shared)
    history = fb.play(env, fb.make_policy("DELB"), seed=seed, record=True)
    lifted = arms if shared else np.einsum("ab,ad->abd", np.eye(6), arms).reshape(6, 12)
    assert_the_oracle_agrees(history, lifted, constant=10.0)


def assert_the_oracle_agrees(history, arms, constant):
    """Pulls and estimates of all phases, and the arm that is played last, as the oracle has them from the rewards."""
    constants = history.constants
    told = [turn.down["theta"] for turn in history.exchanges if turn.down is not None and "theta" in turn.down.arrays]
    turns = [turn for turn in history.exchanges if turn.plan.explore.any()]
    sums = [turn.feedback.explored_sums.sum(axis=0) for turn in turns[: len(told)]]
    M, T = constants.num_agents, constants.horizon
    expected = delb_phases(arms, num_agents=M, horizon=T, constant=constant, sums_of_phases=sums)
    assert len(told) >= 2
    for turn, (pulls, _, _) in zip(turns, expected, strict=True):
        np.testing.assert_array_equal(turn.down["pulls"], pulls)
    for found, (_, estimate, _) in zip(told, expected, strict=False):
        np.testing.assert_allclose(found, np.tile(estimate, (M, 1)), rtol=1e-8, atol=1e-10)
    left, last = expected[-1][2], expected[len(told) - 1][1]
    assert history.active[-1].tolist() == [len(left)] * M
    assert history.exchanges[-1].plan.arm.tolist() == [max(left, key=lambda arm: arms[arm] @ last)] * M


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.3, 0.7]])
def test_the_oracle_plays_feature_selection_on_the_average_table(weights):
    env = tables(weights, T=30_000)
    history = fb.play(env, fb.make_policy("Feature-Selection", constant=2.0), seed=1, record=True)
    both = env.view().distribution.support[0].reshape(2, 3, 2)
    average = weights[0] * both[0] + weights[1] * both[1]
    assert_the_oracle_agrees(history, average, constant=2.0 * (1.5 + 1))  # C (v + sigma^2) / sigma^2


@pytest.mark.parametrize("dims", [(12, 4, 4), (30, 3, 3), (10, 5, 3), (4, 4, 1)])
def test_the_oracle_finds_the_same_design(dims):
    num_arms, dim, rank = dims
    for seed in range(5):
        rng = np.random.default_rng(seed)
        arms = rng.normal(size=(num_arms, rank)) @ rng.normal(size=(rank, dim)) * rng.uniform(0.1, 1, (num_arms, 1))
        pi, r = small_design(arms)
        expected, expected_r = delb_design(arms)
        assert r == expected_r == rank
        np.testing.assert_allclose(pi, expected, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_without_noise_the_best_arm_stays_and_worse_ones_go_in_time(seed):
    rng = np.random.default_rng(seed)
    arms, theta = rng.uniform(-0.5, 0.5, (20, 3)), np.array([0.6, -0.5, 0.3])
    history = fb.play(alike(4, 30_000, arms, theta), fb.make_policy("DELB", constant=1.0), seed=0, record=True)
    pulls, _ = phases(history)
    gaps = (arms @ theta).max() - arms @ theta
    for phase, explored in enumerate(pulls):  # no arm is explored that the phases before should have dropped
        assert gaps[explored.any(axis=0)].max() <= 2.0 ** (1 - phase) + 1e-9
    assert len(pulls) >= 4
    assert gaps[history.exchanges[-1].plan.arm].max() == 0


def tables(weights, M=3, T=3000):
    rng = np.random.default_rng(0)
    both = rng.uniform(-0.7, 0.7, (2, 6))
    mu = fb.Discrete(np.tile(both, (M, 1, 1)), np.tile(weights, (M, 1)))
    env = fb.make(
        "fedbandit/Linear-v0",
        theta=np.tile([0.8, 0.3], (3, 1)),
        contexts=mu,
        feature_map=fb.Table(3, 2),
        context="resampled",
        shared_theta=True,
        same_arms=True,
        context_proxy=1.5,
        max_cycles=T,
    )
    env.reset(seed=0)
    return env


def test_what_is_hidden_makes_feature_selection_pull_more():
    assert fb.make_policy("Feature-Selection", sigma=0.5).factor(tables([0.5, 0.5]).view().constants) == 10 * 7
    known = alike(3, 3000, noise_std=0.5)
    known.reset(seed=0)
    assert fb.make_policy("Feature-Selection").factor(known.view().constants) == 10
    runs = [
        fb.play(tables([0.5, 0.5]), fb.make_policy(name, constant=constant), seed=2)
        for name, constant in (("Feature-Selection", 1.0), ("DELB", 2.5))
    ]
    np.testing.assert_array_equal(runs[0].pulls, runs[1].pulls)


def single_table(T=5000):
    """One table, which agents are shown as the only one of a distribution over tables."""
    mu = fb.Discrete(np.tile(np.eye(2).reshape(1, 1, 4), (3, 1, 1)), np.ones((3, 1)))
    how = {"context": "resampled", "shared_theta": True, "same_arms": True, "context_proxy": 0.0, "noise_std": 0.5}
    theta = np.tile([0.5, 0.45], (2, 1))
    return fb.make("fedbandit/Linear-v0", theta=theta, contexts=mu, feature_map=fb.Table(2, 2), max_cycles=T, **how)


@pytest.mark.parametrize("env", [alike(3, 5000, noise_std=0.5), single_table()], ids=["known", "guaranteed"])
def test_with_one_table_feature_selection_is_delb(env):
    runs = [fb.play(env, fb.make_policy(name), seed=2) for name in ("Feature-Selection", "DELB")]
    np.testing.assert_array_equal(runs[0].pulls, runs[1].pulls)
    assert runs[0].ledger.scalars == runs[1].ledger.scalars


def test_feature_selection_finds_the_best_arm_of_the_average():
    env = tables([0.3, 0.7], T=30_000)
    best = (env.view().psi[0] @ np.array([0.8, 0.3])).argmax()
    history = fb.play(env, fb.make_policy("Feature-Selection", constant=2.0), seed=0, record=True)
    assert history.exchanges[-1].plan.arm.tolist() == [best] * 3
    assert history.active[-1].max() < 3


@pytest.mark.parametrize("name", ["DELB", "Feature-Selection"])
def test_agents_with_different_arms_are_refused_and_so_are_streams(name):
    policy = fb.make_policy(name)
    assert_refused(lambda: fb.play(fb.make("fedbandit/Synthetic-v0", num_agents=2), policy), "same_arms=True")
    features = np.tile(PLANE, (9, 3, 1, 1))
    env = fb.make(
        "fedbandit/Linear-v0", theta=PLANE, features=features, context="streaming", same_arms=True, max_cycles=9
    )
    assert_refused(lambda: fb.play(env, policy), "contexts which change at each step", "KK-UCB or DisLinUCB")


def test_shares_whose_means_were_lost_are_dealt_out_again():
    env = alike(4, 60_000, np.random.default_rng(1).uniform(-0.7, 0.7, (8, 3)), (0.6, -0.5, 0.3), 0.5)
    lost = fb.play(env, fb.make_policy("DELB"), seed=0, faults=fb.Faults(dropout=0.5), record=True)
    assert len(lost.faults) >= 5
    last = lost.exchanges[-1]
    assert (env.instance.means[np.arange(4), last.plan.arm] == env.instance.means.max(axis=1)).all()
    assert lost.active[-1].max() < 8


def test_agents_that_hear_nothing_pull_their_shares_again():
    env = alike(2, 2000)
    history = fb.play(env, fb.make_policy("DELB", constant=1.0), seed=1, faults=fb.Faults(dropout=0.8), record=True)
    pulls, downs = phases(history)
    again = [number for number, down in enumerate(downs) if down is None]
    assert again
    for number in again:
        np.testing.assert_array_equal(pulls[number], pulls[number - 1])
