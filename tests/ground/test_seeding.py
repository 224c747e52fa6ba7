"""Random numbers: reproducible, independent streams, the same however agents are split."""

import itertools

import numpy as np
import pytest
from refusals import assert_refused

from fedbandit_envs import seeding
from fedbandit_envs.seeding import Randomness, RowDraws, Stream, checked_seed, derived_seed, fresh_seed, generator


def test_a_stream_is_fixed_by_seed_and_key():
    assert generator(7, Stream.PLANS, 3).random() == generator(7, Stream.PLANS, 3).random()


def test_streams_of_different_seeds_roles_or_numbers_never_coincide():
    keys = [(seed, *key) for seed in (0, 1, 2**64) for key in itertools.product(Stream, range(4))]
    keys += [(seed, Stream.PLANS, number, part) for seed in (0, 1) for number in range(4) for part in (0, 1)]
    first = {generator(*key).integers(2**63) for key in keys}
    assert len(first) == len(keys)


def test_streams_are_uncorrelated():
    # 28 pairs of streams, 10,000 numbers each; |correlation| < 5 / 100 fails by chance in fewer than 2e-5 of runs.
    streams = np.stack(
        [generator(3, stream, 0).standard_normal(10_000) for stream in Stream]
        + [generator(4, Stream.PLANS, 0).standard_normal(10_000)]
    )
    correlations = np.corrcoef(streams)[np.triu_indices(len(streams), 1)]
    assert np.abs(correlations).max() < 0.05


def test_a_derived_seed_differs_from_its_seed_and_from_other_keys():
    derived = [derived_seed(5, Stream.EPISODE, number) for number in range(100)]
    assert len({5, *derived}) == 101
    assert derived == [derived_seed(5, Stream.EPISODE, number) for number in range(100)]
    assert all(0 <= seed < 2**128 for seed in derived)
    assert max(derived) > 2**120  # all four words are used


def test_fresh_seeds_differ_and_are_seeds():
    seeds = {fresh_seed() for _ in range(10)}
    assert len(seeds) == 10
    assert all(checked_seed(seed) == seed for seed in seeds)


@pytest.mark.parametrize("seed", [-1, 1.0, "1", True])
def test_what_is_no_seed_is_refused(seed):
    assert_refused(lambda: checked_seed(seed), "seed: ", repr(seed))


def test_no_seed_is_no_seed():
    assert checked_seed(None) is None


@pytest.mark.parametrize("rows", [[0], [4], [3, 1], [4, 3, 2, 1, 0], [2, 2]])
def test_a_block_keeps_its_rows_of_the_numbers_of_all_agents(rows):
    rows = np.array(rows)
    whole, block = Randomness(1, Stream.POLICY, 5), Randomness(1, Stream.POLICY, 5, rows)
    for number in range(3):
        all_draws, own_draws = whole.draws(number), block.draws(number)
        for _ in range(2):  # the second call of each kind goes on where the first ended
            np.testing.assert_array_equal(own_draws.normals(3, 2), all_draws.normals(3, 2)[rows])
            np.testing.assert_array_equal(own_draws.uniforms(), all_draws.uniforms()[rows])


@pytest.mark.parametrize("num_agents", [1, 4096])
def test_up_to_4096_agents_share_one_stream(num_agents):
    draws, rng = RowDraws(3, (Stream.PLANS, 2), num_agents), generator(3, Stream.PLANS, 2)
    np.testing.assert_array_equal(draws.normals(2), rng.standard_normal((num_agents, 2)))
    np.testing.assert_array_equal(draws.uniforms(), rng.random(num_agents))


def test_further_groups_of_4096_agents_have_streams_of_their_own():
    draws = RowDraws(3, (Stream.PLANS, 2), 10_000)
    streams = [generator(3, Stream.PLANS, 2), generator(3, Stream.PLANS, 2, 1), generator(3, Stream.PLANS, 2, 2)]
    for _ in range(2):  # the second call goes on where the first ended
        expected = [rng.standard_normal((n, 2)) for rng, n in zip(streams, (4096, 4096, 1808), strict=True)]
        np.testing.assert_array_equal(draws.normals(2), np.concatenate(expected))


@pytest.mark.parametrize("rows", [[0], [4096], [9_999, 4095, 5000], [8191, 8192, 1]])
def test_a_block_of_many_agents_keeps_its_rows_and_draws_its_groups_alone(rows, monkeypatch):
    made = []
    rows = np.array(rows)
    every = RowDraws(3, (Stream.PLANS, 2), 10_000).normals(3)
    monkeypatch.setattr(seeding, "generator", lambda *key: made.append(key) or generator(*key))
    np.testing.assert_array_equal(RowDraws(3, (Stream.PLANS, 2), 10_000, rows).normals(3), every[rows])
    assert len(made) == len(set((rows // 4096).tolist()))


def test_draws_of_different_plans_differ():
    randomness = Randomness(1, Stream.POLICY, 5)
    assert not np.array_equal(randomness.draws(0).normals(4), randomness.draws(1).normals(4))


def test_draws_are_standard_normal_and_uniform():
    # Kolmogorov-Smirnov at 1e-6 each, seed fixed.
    from scipy.stats import kstest

    draws = RowDraws(0, (Stream.STEPS, 0), 100)
    assert kstest(draws.normals(100).ravel(), "norm").pvalue > 1e-6
    assert kstest(draws.uniforms(100).ravel(), "uniform").pvalue > 1e-6
