"""The MovieLens factors that ship, the ranges that hold by selection, and the reading of u.data."""

import numpy as np
import pytest

from fedbandit_envs.problems.movielens.factors import (
    ELL,
    FACTORS,
    L,
    decode_factors,
    eligible_users,
    encode_factors,
    load_factors,
)
from fedbandit_envs.problems.movielens.ratings_file import read_ratings


def agents(name, seed, count=100):
    """Contexts (count, d) and expected rewards (count, K) of the first of a seeded permutation of eligible users."""
    factors = load_factors(name)
    chosen = np.random.default_rng(seed).permutation(eligible_users(factors))[:count]
    return factors.users[chosen], factors.users[chosen] @ factors.theta.T


@pytest.mark.parametrize("name", FACTORS)
def test_shipped_factors_are_non_negative_read_only_and_shared_between_calls(name):
    factors = load_factors(name)
    assert factors.users.shape == (943, 3)
    assert factors.theta.shape == (30, 3)
    assert factors.users.dtype == factors.theta.dtype == np.float64
    assert min(factors.users.min(), factors.theta.min()) >= 0
    assert load_factors(name) is factors
    with pytest.raises(ValueError, match="read-only"):
        factors.theta[0, 0] = 1


def test_completed_is_the_default_variant():
    assert load_factors() is load_factors("completed")


@pytest.mark.parametrize("wrong", ["complete", "", None, ["masked"]])
def test_unknown_factors_are_refused_with_the_known_names(wrong):
    with pytest.raises(ValueError, match="factors: expected one of 'completed', 'masked'") as caught:
        load_factors(wrong)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("name", FACTORS)
def test_the_largest_reward_over_all_users_and_arms_is_one(name):
    factors = load_factors(name)
    assert (factors.users @ factors.theta.T).max() == pytest.approx(1, abs=1e-12)


def test_masked_users_have_the_median_norm_that_the_selection_is_centred_on():
    norm_squared = np.sum(load_factors("masked").users ** 2, axis=1)
    assert np.median(norm_squared) == pytest.approx(np.sqrt(0.32), abs=1e-12)


@pytest.mark.parametrize(("name", "count"), [("completed", 802), ("masked", 633)])
def test_eligible_users_are_sorted_and_as_many_as_published(name, count):
    eligible = eligible_users(load_factors(name))
    assert len(eligible) == count
    assert (np.diff(eligible) > 0).all()
    assert eligible.dtype == np.int64


@pytest.mark.parametrize("name", FACTORS)
def test_eligible_users_are_those_within_the_ranges_and_no_others(name):
    factors = load_factors(name)
    expected = []
    for user, context in enumerate(factors.users):
        rewards = sorted(float(theta @ context) for theta in factors.theta)
        in_norm = ELL <= np.linalg.norm(context) <= L
        if in_norm and rewards[-1] - rewards[-2] >= 0.01 and rewards[-1] - rewards[0] <= 0.8:
            expected.append(user)
    np.testing.assert_array_equal(eligible_users(factors), expected)


def test_a_hundred_completed_agents_have_the_published_ranges():
    contexts, rewards = agents("completed", seed=0)
    norm_squared, ordered = np.sum(contexts**2, axis=1), np.sort(rewards, axis=1)
    assert (norm_squared.min(), norm_squared.max()) == pytest.approx((0.405, 0.785), abs=5e-4)
    assert (ordered[:, -1] - ordered[:, -2]).min() == pytest.approx(0.0105, abs=5e-5)
    assert (ordered[:, -1] - ordered[:, 0]).max() == pytest.approx(0.797, abs=5e-4)
    assert rewards.max() == pytest.approx(0.98, abs=5e-3)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", FACTORS)
def test_ranges_hold_for_any_seed(name, seed):
    contexts, rewards = agents(name, seed)
    ordered = np.sort(rewards, axis=1)
    assert ELL <= np.linalg.norm(contexts, axis=1).min() < 0.65
    assert 0.83 < np.linalg.norm(contexts, axis=1).max() <= L
    assert 0.01 <= (ordered[:, -1] - ordered[:, -2]).min() < 0.012
    assert 0.76 < (ordered[:, -1] - ordered[:, 0]).max() <= 0.8
    assert 0.85 < rewards.max() <= 1


@pytest.mark.parametrize("seed", range(5))
def test_completed_agents_have_two_different_optimal_arms(seed):
    assert len(set(agents("completed", seed)[1].argmax(axis=1))) == 2


def test_masked_agents_have_about_six_different_optimal_arms():
    different = [len(set(agents("masked", seed)[1].argmax(axis=1))) for seed in range(50)]
    assert 6 <= np.mean(different) < 7
    assert min(different) >= 4


def test_encoded_factors_come_back_equal_and_equal_factors_give_equal_bytes():
    factors = {name: load_factors(name) for name in FACTORS}
    content = encode_factors(factors)
    assert encode_factors(factors) == content
    back = decode_factors(content, "memory")
    for name in FACTORS:
        np.testing.assert_array_equal(back[name].users, factors[name].users)
        np.testing.assert_array_equal(back[name].theta, factors[name].theta)


def npz(tmp_path, **arrays):
    np.savez_compressed(tmp_path / "factors.npz", **arrays)
    return (tmp_path / "factors.npz").read_bytes()


def test_a_damaged_file_of_factors_is_refused_with_its_name_and_a_remedy(tmp_path):
    good = encode_factors({name: load_factors(name) for name in FACTORS})
    users, theta = np.ones((943, 3)), np.ones((30, 3))
    parts = dict.fromkeys(("completed_users", "masked_users"), users) | {"masked_theta": theta}
    damaged = {
        "empty": b"",
        "cut": good[: len(good) // 2],
        "flipped": good[:2000] + bytes([good[2000] ^ 255]) + good[2001:],
        "text": b"not a zip file",
        "without a part": npz(tmp_path, **parts),
        "wrong shape": npz(tmp_path, **parts, completed_theta=np.ones((29, 3))),
        "wrong type": npz(tmp_path, **parts, completed_theta=theta.astype(np.float32)),
        "pickled": npz(tmp_path, **parts, completed_theta=theta.astype(object)),
        "not finite": npz(tmp_path, **parts, completed_theta=theta * np.nan),
        "negative": npz(tmp_path, **parts, completed_theta=-theta),
    }
    for content in damaged.values():
        with pytest.raises(
            ValueError, match=r"some\.npz: expected a file of MovieLens factors, got another .*build_movielens\.py"
        ):
            decode_factors(content, "some.npz")
    with pytest.raises(ValueError, match=r"expected finite factors of at least 0, got -1\)"):
        decode_factors(damaged["negative"], "some.npz")
    assert decode_factors(npz(tmp_path, **parts, completed_theta=theta), "some.npz")


def written(tmp_path, text):
    (tmp_path / "u.data").write_text(text)
    return tmp_path / "u.data"


def test_ratings_are_read_into_a_matrix_with_zeros_for_missing_ones(tmp_path):
    path = written(tmp_path, "1\t2\t5\t881250949\n2\t1\t3\t891717742\n1\t1\t4\t878887116\n")
    np.testing.assert_array_equal(read_ratings(path, sha256=None), [[4, 5], [3, 0]])


def test_another_file_than_movielens_is_refused_with_both_checksums(tmp_path):
    path = written(tmp_path, "")
    with pytest.raises(ValueError, match=r"expected sha256 06416e59\w+, got e3b0c442\w+; download it again"):
        read_ratings(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got an empty file"),
        ("1\t1\t5\t0\n1\t2\t3\n", r"line 2: expected 4 whole numbers .*got '1\\t2\\t3'"),
        ("1\t1\tfive\t0\n", "line 1: expected 4 whole numbers"),
        ("1\t1\t3.5\t0\n", "line 1: expected 4 whole numbers"),
        ("1\t-1\t3\t0\n", "line 1: expected 4 whole numbers"),
        ("1,1,3,0\n", "line 1: expected 4 whole numbers"),
        ("1\t1" + "0" * 30 + "\t3\t0\n", "line 1: expected 4 whole numbers"),
        ("1\t1\t5\t0\n2\t1\t6\t0\n", "line 2: expected a rating from 1 to 5, got 6"),
        ("1\t1\t0\t0\n", "line 1: expected a rating from 1 to 5, got 0"),
        ("0\t1\t5\t0\n", "every user id from 1 .*got 1 ids from 0 to 0"),
        ("1\t1\t5\t0\n1\t999999999\t5\t0\n", "every item id from 1 .*got 2 ids from 1 to 999999999"),
        ("1\t1\t5\t0\n1\t2\t5\t0\n1\t1\t4\t0\n", "line 3: expected one rating .*user 1, item 1"),
    ],
)
def test_bad_rows_are_refused_with_their_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_ratings(written(tmp_path, text), sha256=None)
