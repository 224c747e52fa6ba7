"""coop-UCL and Dec-UCB: their indices by hand, what they are with one agent, and numbers of other programs."""

import math

import numpy as np
import pytest
from peers import MEANS, common_arms, decisions, every_step, first_best, rounds_of
from scipy.stats import norm

import fedbandit_envs as fb
from fedbandit_baselines.coop_ucb import CoopUCB2
from fedbandit_baselines.coop_ucl import CoopUCL
from fedbandit_baselines.dec_ucb import DecUCB

PAW = [(0, 1), (0, 2), (1, 2), (2, 3)]  # a triangle, and one more agent at its third


def slow_ucl(counts, sums, t, policy, num_agents, sigma):
    """The index of one arm by the paper's formulas, from the posterior of a normal mean."""
    precision, mean = num_agents * counts / sigma**2, sums / counts
    if policy.prior_std is not None:
        own = 1 / policy.prior_std**2
        mean = (precision * mean + own * policy.prior_mean) / (precision + own)
        precision += own
    share = (counts + math.sqrt(math.log(t))) / counts
    return mean + math.sqrt(share) * norm.isf(t**-policy.gamma) / math.sqrt(precision)


@pytest.mark.parametrize("prior", [{}, {"prior_mean": 0.7, "prior_std": 0.2}], ids=["no prior", "prior"])
def test_coop_ucl_plays_the_largest_quantile_of_its_posterior(prior):
    policy = CoopUCL(gamma=1.5, **prior)
    for side, taken in every_step(rounds_of(policy, "path", horizon=80)):
        counts, sums = np.split(side.totals, 2, axis=1)
        expected = [
            first_best([slow_ucl(n, s, taken, policy, 7, 1.0) for n, s in zip(row, total, strict=True)])
            for row, total in zip(counts, sums, strict=True)
        ]
        assert side.choose().tolist() == expected


@pytest.mark.slow
def test_a_prior_that_is_right_costs_less_than_none_and_a_wrong_one_more():
    """Means of 30 runs; the differences are many standard errors, and seeds are fixed."""
    env = common_arms([1.0, 0.9, 0.8, 0.7], 5, 200)

    def regret(**prior):
        return np.mean([fb.play(env, CoopUCL(**prior), seed=s, network="ring").mean_regret()[-1] for s in range(30)])

    right, none, wrong = regret(prior_mean=0.85, prior_std=0.1), regret(), regret(prior_mean=10.0, prior_std=0.5)
    assert right < none < wrong


def test_without_noise_coop_ucl_plays_the_best_arm_after_its_start():
    history = fb.play(common_arms(MEANS, 4, 60, noise_std=0.0), CoopUCL(), seed=0, network="ring")
    assert history.pulls[-1].tolist() == [[57, 1, 1, 1]] * 4


def test_alone_dec_ucb_is_ucb1_with_3_in_place_of_2():
    policy, ucb = DecUCB(), fb.make_policy("UCB1", sigma=math.sqrt(6) / 2)  # 2 sigma sqrt(3 ln t / n), sigma = 1/2
    env = common_arms(MEANS, 1, 300, noise_std=0.5)
    rounds = fb.CommunicationRounds(env, policy, network="ring", record=True)
    rounds.start(3)
    rounds.finish()
    chosen, first, rewards = decisions(rounds.history())
    pulls, sums = np.ones(4), first[0].copy()
    for t, (arms, paid) in enumerate(zip(chosen, rewards, strict=True)):
        if t:
            index = sums / pulls + ucb.sigma * np.sqrt(2 * math.log(t) / pulls)
            behind = pulls <= pulls.max() - 4
            assert arms[0] == first_best(list(index)) or behind[arms[0]]
        pulls[arms[0]] += 1
        sums[arms[0]] += paid[0]


def test_one_step_of_dec_ucb_on_a_path_of_three_by_hand():
    rounds = rounds_of(DecUCB(), "path", agents=3, horizon=20)
    rounds.advance()
    (side,) = rounds.sides
    side.sums = np.array([[1.0, 0, 0, 0], [0, 0, 0, 0], [0, 3.0, 0, 0]])
    side.means = side.sample_means()
    hits = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]])
    sent = side.learn(hits, hits * np.array([[2.0], [1.0], [4.0]]))
    side.hear(rounds.carrier.exchange([sent], 5).down)
    # All edges of this path weigh 1/3. The means of pulled arms change by 1.5 - 1, 0.5 - 0 and 2 - 0.
    np.testing.assert_allclose(side.means[:, 0], [2 / 3 + 0.5, 1 / 3, 2])
    np.testing.assert_allclose(side.means[:, 1], [0, 1 + 0.5, 2])
    np.testing.assert_array_equal(side.most[:, :2], [[2, 1], [1, 2], [2, 1]])


def test_dec_ucb_knows_the_most_pulls_as_late_as_they_are_far_away():
    distance, pulls = np.abs(np.arange(5)[:, None] - np.arange(5)), []
    for side, _ in every_step(rounds_of(DecUCB(), "path", agents=5, horizon=60)):
        pulls.append(side.pulls.copy())
        late = [max_late(pulls, row) for row in distance]
        np.testing.assert_array_equal(side.most, late)


def max_late(pulls, distances):
    """The most pulls of each arm among all agents, of each as many steps ago as it is far away less one."""
    at = [max(0, len(pulls) - 1 - distance) for distance in distances]
    known = np.array([pulls[when][agent] for agent, when in enumerate(at)])
    return known.max(axis=0) if len(pulls) > 1 else pulls[0][distances == 0][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "published"), [("ring", 12878), ("complete", 5298), ("star", 5747), ("grid:4x5", 11493)]
)
def test_dec_ucb_pays_what_it_paid_in_the_reference_program(network, published):
    """The same three seeds. Where arms lag behind, the draws are others: 40 to 140 is a standard error there."""
    env = common_arms([1.0] + 16 * [0.8], 20, 4000)
    runs = [fb.play(env, DecUCB(), seed=seed, network=network).total_regret()[-1] for seed in range(3)]
    assert np.mean(runs) == pytest.approx(published, abs=3 * 140)


def test_the_mixing_matrix_gives_the_published_numbers_of_the_paw():
    """eps_n and eps_c of Landgren and others, which coop-UCB has in its index and coop-UCB2 in its bound alone.

    They come out with the matrix I - Laplacian / (d_max + 1), and not with the one that is printed.
    """
    network = fb.Network(PAW, 4)
    P = network.around(np.arange(4)).mixed(np.eye(4), np.eye(4)[network.neighbours], network.present)
    values, vectors = np.linalg.eigh(P)
    values, vectors = values[::-1], vectors[:, ::-1]
    assert 4**0.5 * sum(abs(one) / (1 - abs(one)) for one in values[1:]) == pytest.approx(6.6667, abs=5e-5)
    eps = np.zeros(4)
    for p, one in enumerate(values):
        for other, column in zip(values[1:], vectors.T[1:], strict=True):
            products = vectors[:, p] * column
            above, below = products.clip(min=0).sum(), products.clip(max=0).sum()
            if one * other >= 0:
                b = np.where(products >= 0, above, below) * products
            else:
                b = max(-below, above) * np.abs(products)
            eps += 4 * abs(one * other) / (1 - abs(one * other)) * b
    np.testing.assert_allclose(eps, [2.31099, 2.31099, 0, 5.42857], atol=1e-5)


@pytest.mark.slow
def test_on_the_paw_the_agent_in_the_middle_pays_least_and_the_one_that_hangs_on_it_most():
    """Landgren's problem; the reference program had 1493, 1492, 1371 and 1607 in 2000 runs, and 2630 alone.

    The means of our 80 runs must be within 5 standard errors, which a right mean exceeds with probability below 1e-5.
    """
    env = common_arms([40.0, 50.0, 50.0, 60.0, 70.0, 70.0, 80.0, 90.0, 92.0, 95.0], 4, 500, noise_std=30.0)
    policy = CoopUCB2(gamma=1 + 1e-9)
    runs = np.array([fb.play(env, policy, seed=seed, network=PAW).regret()[-1] for seed in range(80)])
    errors = runs.std(axis=0, ddof=1) / math.sqrt(len(runs))
    assert (np.abs(runs.mean(axis=0) - [1493, 1492, 1371, 1607]) < 5 * errors).all()
    assert runs.mean(axis=0).argmin() == 2
    assert runs.mean(axis=0).argmax() == 3
    # 2000 agents alone, as the reference program had: its standard error is taken to be ours.
    alone = common_arms([40.0, 50.0, 50.0, 60.0, 70.0, 70.0, 80.0, 90.0, 92.0, 95.0], 2000, 500, noise_std=30.0)
    found = fb.play(alone, fb.make_policy("UCB1"), seed=0).regret()[-1]
    assert abs(found.mean() - 2630) < 5 * math.sqrt(2) * found.std(ddof=1) / math.sqrt(2000)
