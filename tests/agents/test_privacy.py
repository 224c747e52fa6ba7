"""Privacy: what is clipped, how much noise a budget takes, which noises a release carries, and what it has cost."""

import math

import numpy as np
import pytest
from refusals import assert_refused
from scipy.stats import norm

from fedbandit_agents.privacy import (
    Budget,
    clipped,
    delta_of,
    epsilon_spent,
    new_level,
    noise_std,
    noisy_node,
    report_noise,
    running_sum,
    sensitivity,
    tree_levels,
)
from fedbandit_envs.seeding import Randomness, Stream


def test_a_release_carries_one_noise_for_each_set_bit_of_its_number():
    levels, releases = 6, 63
    sums, nodes = np.zeros((levels, 1)), np.zeros((levels, 1))
    for release in range(1, releases + 1):
        tag = np.array([2.0 ** (release - 1)])  # the noise of a release is a bit of its own, and all data are 0
        total = int(running_sum(nodes, release, noisy_node(sums, release, np.zeros(1), tag))[0])
        assert total.bit_count() == release.bit_count()


def test_release_seven_carries_the_noises_of_releases_four_six_and_seven():
    sums, nodes = np.zeros((3, 1)), np.zeros((3, 1))
    for release in range(1, 8):
        noise = np.array([10.0**release])
        total = running_sum(nodes, release, noisy_node(sums, release, np.zeros(1), noise))
    assert total[0] == 10.0**4 + 10.0**6 + 10.0**7


def test_without_noise_a_release_is_the_sum_of_all_batches():
    rng = np.random.default_rng(0)
    batches = rng.integers(-9, 9, size=(31, 4, 2, 2)).astype(float)
    sums, nodes = np.zeros((5, 4, 2, 2)), np.zeros((5, 4, 2, 2))
    for release, batch in enumerate(batches, start=1):
        total = running_sum(nodes, release, noisy_node(sums, release, batch, np.zeros(batch.shape)))
        np.testing.assert_array_equal(total, batches[:release].sum(axis=0))


@pytest.mark.parametrize("releases", [1, 2, 3, 4, 7, 8, 31, 32, 33])
def test_an_observation_is_in_as_many_nodes_as_there_are_levels_at_most(releases):
    held = np.zeros(releases + 1, dtype=int)  # how many nodes hold batch 1, 2, ...
    for release in range(1, releases + 1):
        held[release - 2 ** new_level(release) + 1 : release + 1] += 1
    assert held.max() == held[1] == tree_levels(releases)


def test_a_tree_that_is_full_refuses_another_release():
    assert_refused(lambda: noisy_node(np.zeros((2, 1)), 4, np.zeros(1), np.zeros(1)), "release: ", "1 to 3", "got 4")
    assert_refused(lambda: running_sum(np.zeros((2, 1)), 0, np.zeros(1)), "release: ", "got 0")


@pytest.mark.parametrize(("L", "Y"), [(1.0, 1.0), (0.5, 1.0), (2.0, 1.0), (1.0, 3.0), (1.0, math.sqrt(2))])
def test_no_clipped_observation_moves_a_report_by_more_than_the_sensitivity(L, Y):
    rng = np.random.default_rng(7)
    x = 2 * L * rng.normal(size=(2, 200_000, 2))
    features, rewards = clipped(x, 2 * Y * rng.normal(size=x.shape[:2]), L, Y)
    gram = features[..., :, None] * features[..., None, :]
    report = np.concatenate([gram.reshape(*x.shape[:2], 4), features * rewards[..., None]], axis=2)
    moved = np.linalg.norm(report[0] - report[1], axis=1).max()
    stated = sensitivity(L, Y)
    assert 0.98 * stated < moved <= stated * (1 + 1e-12)  # it is not merely an upper bound: some pair comes near


def test_the_sensitivity_by_hand():
    assert sensitivity(1.0, 1.0) == pytest.approx(1.5 * math.sqrt(2))  # sqrt(2) (L^2 + Y^2 / 2)
    assert sensitivity(1.0, 3.0) == pytest.approx(6.0)  # 2 L Y, since Y^2 > 2 L^2
    assert sensitivity(2.0, 1.0) == pytest.approx(4.5 * math.sqrt(2))


def test_clipping_keeps_what_is_small_enough_bit_by_bit():
    x, y = np.array([[0.1, 0.2, 0.3], [0.0, 0.0, 0.0]]), np.array([0.7, -0.7])
    features, rewards = clipped(x, y, 1.0, 0.7)
    np.testing.assert_array_equal(features, x)
    np.testing.assert_array_equal(rewards, y)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [0.1, 1e-6])
@pytest.mark.parametrize("levels", [1, 11])
def test_the_noise_meets_its_budget_and_no_smaller_noise_does(epsilon, delta, levels):
    std = noise_std(Budget(epsilon, delta), levels, sensitivity=2.0)

    def spent(std):  # by Balle and Wang's formula, from scipy's normal law
        mu = math.sqrt(levels) * 2.0 / std
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)

    assert spent(std) == pytest.approx(delta, rel=1e-6)
    assert spent(std * 0.999) > delta


def test_noise_grows_with_the_root_of_the_levels_and_with_the_sensitivity():
    budget = Budget(1.0, 1e-5)
    assert noise_std(budget, 9, 2.0) == pytest.approx(6 * noise_std(budget, 1, 1.0))


def test_an_infinite_epsilon_takes_no_noise_and_noise_of_nothing_spends_everything():
    assert noise_std(Budget(math.inf, 0.1), 5, 2.0) == 0
    assert epsilon_spent(0.0, releases=1, sensitivity=2.0, delta=0.1) == math.inf
    assert delta_of(math.inf, 1.0) == 0


def test_a_budget_is_spent_after_all_its_releases_and_no_sooner():
    budget, releases = Budget(0.5, 1e-4), 100
    std = noise_std(budget, tree_levels(releases), 2.0)
    spent = [epsilon_spent(std, number, 2.0, budget.delta) for number in range(releases + 1)]
    assert spent[0] == 0
    assert spent == sorted(spent)
    assert spent[63] < 0.5  # 6 levels of 7
    assert spent[64] == pytest.approx(0.5)
    assert spent[100] == spent[64]


def test_huge_and_tiny_budgets_are_met_too():
    for epsilon in (1e-4, 1e4):
        std = noise_std(Budget(epsilon, 1e-5), 4, 1.0)
        assert epsilon_spent(std, releases=15, sensitivity=1.0, delta=1e-5) == pytest.approx(epsilon)


def test_what_an_observer_of_all_nodes_can_tell_is_what_the_formula_says():
    """The observer of 5 releases tells neighbours apart by their likelihood ratio, the best test there is.

    With 400,000 runs the standard error of the empirical delta is below 1.6e-3, and 5 of them are allowed: the
    false-alarm rate is below 1e-6.
    """
    runs, releases, epsilon, moved = 400_000, 5, 0.5, 1.0
    std = noise_std(Budget(epsilon, 0.05), tree_levels(releases), moved)
    rng = np.random.default_rng(3)
    losses = []
    for extra in (moved, 0.0):  # the first batch of the two neighbours
        sums, loss = np.zeros((3, runs)), np.zeros(runs)
        for release in range(1, releases + 1):
            batch = np.full(runs, extra if release == 1 else 0.0)
            node = noisy_node(sums, release, batch, std * rng.standard_normal(runs))
            holds_the_first = release == 2 ** new_level(release)
            mean = moved if holds_the_first else 0.0
            loss += (node**2 - (node - mean) ** 2) / (2 * std**2)
        losses.append(loss)
    empirical = (losses[0] > epsilon).mean() - math.exp(epsilon) * (losses[1] > epsilon).mean()
    assert empirical == pytest.approx(0.05, abs=5 * 1.6e-3)


def test_noise_of_a_gram_matrix_is_symmetric_and_has_the_stated_variances():
    # 40,000 matrices: sample variances have a relative standard error of 0.7 %; beyond 5 of them, 1e-5 of runs fail.
    draws = Randomness(1, Stream.POLICY, num_agents=4_000).draws(3)
    gram, moments = report_noise(draws, 2.0, 10, 2)
    np.testing.assert_array_equal(gram, gram.swapaxes(-1, -2))
    assert gram[..., 0, 0].var() == pytest.approx(4.0, rel=0.036)
    assert gram[..., 0, 1].var() == pytest.approx(2.0, rel=0.036)
    assert moments[..., 1].var() == pytest.approx(4.0, rel=0.036)


@pytest.mark.parametrize("rows", [[0], [6, 2], [0, 1, 2, 3, 4, 5, 6]])
def test_noisy_nodes_have_the_same_bits_however_agents_are_split(rows):
    batches = np.random.default_rng(0).normal(size=(5, 7, 2, 2))

    def nodes(agents):
        randomness = Randomness(9, Stream.POLICY, 7, agents)
        sums = np.zeros((3, len(agents), 2, 2))
        return [
            noisy_node(sums, k, batch[agents], report_noise(randomness.draws(k), 0.3, 2)[0])
            for k, batch in enumerate(batches, start=1)
        ]

    for own, every in zip(nodes(np.array(rows)), nodes(np.arange(7)), strict=True):
        np.testing.assert_array_equal(own, every[rows])


def test_noise_is_fixed_by_the_seed_and_fresh_in_each_release():
    def first(seed, release):
        return report_noise(Randomness(seed, Stream.POLICY, 1).draws(release), 1.0, 2)[1][0, 0]

    assert first(0, 1) == first(0, 1)
    assert len({first(0, 1), first(0, 2), first(1, 1)}) == 3


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (-1.0, 0.1), (math.nan, 0.1), (1.0, 0.0), (1.0, 1.0)])
def test_what_is_no_budget_is_refused(epsilon, delta):
    assert_refused(lambda: Budget(epsilon, delta))
