"""The MovieLens factors: what ships, how it is learnt, and the ranges that hold by selection."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

from fedbandit_envs import movielens_factors
from fedbandit_envs.movielens import ELL, L, decode_factors, eligible_users, encode_factors, load_factors
from fedbandit_envs.movielens_factors import (
    build_factors,
    complete,
    largest_difference,
    masked_nmf,
    similarities,
)
from fedbandit_envs.movielens_ratings import read_ratings

REPOSITORY = Path(__file__).parents[1]
REAL_RATINGS = Path(os.environ.get("FEDBANDIT_MOVIELENS", REPOSITORY.parent / "shared" / "data" / "ml-100k" / "u.data"))
VARIANTS = ("completed", "masked")


def agents(name, seed, count=100):
    """Contexts (count, d) and expected rewards (count, K) of the first of a seeded permutation of eligible users."""
    factors = load_factors(name)
    chosen = np.random.default_rng(seed).permutation(eligible_users(factors))[:count]
    return factors.users[chosen], factors.users[chosen] @ factors.theta.T


@pytest.mark.parametrize("name", VARIANTS)
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


@pytest.mark.parametrize("name", VARIANTS)
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


@pytest.mark.parametrize("name", VARIANTS)
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
@pytest.mark.parametrize("name", VARIANTS)
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


def test_encoded_factors_are_the_shipped_file_and_come_back_equal():
    factors = {name: load_factors(name) for name in VARIANTS}
    content = encode_factors(factors)
    assert encode_factors(factors) == content
    back = decode_factors(content, "memory")
    for name in VARIANTS:
        np.testing.assert_array_equal(back[name].users, factors[name].users)
        np.testing.assert_array_equal(back[name].theta, factors[name].theta)


def npz(tmp_path, **arrays):
    np.savez_compressed(tmp_path / "factors.npz", **arrays)
    return (tmp_path / "factors.npz").read_bytes()


def test_a_damaged_file_of_factors_is_refused_with_its_name_and_a_remedy(tmp_path):
    good = encode_factors({name: load_factors(name) for name in VARIANTS})
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
        with pytest.raises(ValueError, match=r"some\.npz is not a file of MovieLens factors .*build_movielens\.py"):
            decode_factors(content, "some.npz")
    assert decode_factors(npz(tmp_path, **parts, completed_theta=theta), "some.npz")


# Learning: against loops that follow the definition cell by cell.


def small_ratings(seed, users=40, items=25, density=0.5):
    """Random ratings with all ids present, twin users (ties) and a user alone with an item."""
    rng = np.random.default_rng(seed)
    ratings = np.where(rng.random((users, items)) < density, rng.integers(1, 6, (users, items)), 0).astype(float)
    ratings[5:9] = ratings[4]
    ratings[:, -1] = 0
    ratings[3, -1] = 4
    return ratings


def loop_similarity(ratings, u, v):
    num_items = ratings.shape[1]
    mean_u, mean_v = sum(ratings[u]) / num_items, sum(ratings[v]) / num_items
    both = [j for j in range(num_items) if ratings[u, j] > 0 and ratings[v, j] > 0]
    above = sum((ratings[u, j] - mean_u) * (ratings[v, j] - mean_v) for j in both)
    below_u = sum((ratings[u, j] - mean_u) ** 2 for j in both)
    below_v = sum((ratings[v, j] - mean_v) ** 2 for j in both)
    return round(above / (below_u * below_v) ** 0.5, 9) if below_u * below_v > 0 else 0.0


def loop_complete(ratings):
    users, items = ratings.shape
    completed = np.zeros((users, items))
    for u in range(users):
        similarity = {v: loop_similarity(ratings, u, v) for v in range(users) if v != u}
        nearest_first = sorted(similarity, key=lambda v: -similarity[v])  # noqa: B023, sorted at once; stable
        for j in range(items):
            raters = [v for v in nearest_first if ratings[v, j] > 0][:10]
            total = sum(similarity[v] for v in raters)
            if total > 0:
                completed[u, j] = sum(similarity[v] * ratings[v, j] for v in raters) / total
    return completed / 5


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("density", [0.15, 0.5])
def test_similarity_and_completion_agree_with_their_definition_in_loops(seed, density):
    ratings = small_ratings(seed, density=density)
    expected = [[loop_similarity(ratings, u, v) for v in range(40)] for u in range(40)]
    off_diagonal = ~np.eye(40, dtype=bool)
    np.testing.assert_allclose(similarities(ratings)[off_diagonal], np.array(expected)[off_diagonal], atol=1.1e-9)
    np.testing.assert_allclose(complete(ratings), loop_complete(ratings), atol=1e-8)


def test_completion_by_hand_with_a_tie_at_the_tenth_neighbour():
    # Users 1 to 12 are alike: they tie for user 0, and the first ten of them decide item 1.
    ratings = np.zeros((13, 3))
    ratings[:, 0] = 4
    ratings[1:, 1] = 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 1, 1
    completed = complete(ratings)
    assert completed[0, 1] == pytest.approx((9 * 5 + 4) / 10 / 5)  # with the last two it would be lower
    assert completed[1, 1] == pytest.approx(loop_complete(ratings)[1, 1])
    assert (completed[:, 2] == 0).all()  # nobody rated it


def test_a_user_is_not_its_own_neighbour():
    ratings = small_ratings(seed=0)
    completed = complete(ratings)
    assert completed[3, -1] == 0  # the only rater of the last item
    assert (np.delete(completed[:, -1], 3) > 0).any()


def test_masked_nmf_agrees_with_its_updates_in_loops():
    ratings = small_ratings(seed=1, users=12, items=9) / 5
    users, items = ratings.shape
    observed = [(u, j) for u in range(users) for j in range(items) if ratings[u, j] > 0]
    rng = np.random.default_rng(0)
    level = (sum(ratings[cell] for cell in observed) / len(observed) / 3) ** 0.5
    w, h = level * (0.5 + rng.random((users, 3))), level * (0.5 + rng.random((3, items)))
    for _ in range(7):
        new = w.copy()
        for u in range(users):
            row = [j for (v, j) in observed if v == u]
            for k in range(3):
                above = sum(ratings[u, j] * h[k, j] for j in row)
                below = sum((w[u] @ h[:, j]) * h[k, j] for j in row)
                new[u, k] = w[u, k] * above / (below + 0.5 * w[u, k])
        w, new = new, h.copy()
        for j in range(items):
            column = [u for (u, i) in observed if i == j]
            for k in range(3):
                above = sum(ratings[u, j] * w[u, k] for u in column)
                below = sum((w[u] @ h[:, j]) * w[u, k] for u in column)
                new[k, j] = h[k, j] * above / (below + 0.5 * h[k, j])
        h = new
    for got, expected in zip(masked_nmf(ratings, iterations=7), (w, h), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_masked_nmf_never_raises_its_objective():
    ratings = small_ratings(seed=2) / 5

    def objective(w, h):
        return np.sum(((ratings - w @ h) * (ratings > 0)) ** 2) + 0.5 * (np.sum(w**2) + np.sum(h**2))

    values = [objective(*masked_nmf(ratings, iterations)) for iterations in range(20)]
    assert (np.diff(values) < 0).all()


def test_difference_ignores_the_numbering_of_arms_but_not_their_values():
    factors = load_factors("masked")
    permuted = type(factors)(factors.users, np.random.default_rng(0).permutation(factors.theta))
    assert largest_difference(permuted, factors) == 0
    moved = type(factors)(factors.users, factors.theta + np.eye(30, 3) * 1e-4)
    assert largest_difference(moved, factors) == pytest.approx(1e-4)
    other_users = type(factors)(factors.users + 1e-3, factors.theta)
    assert largest_difference(other_users, factors) == pytest.approx(1e-3)


# Reading u.data.


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
    with pytest.raises(ValueError, match="expected sha256"):
        build_factors(path)


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


def test_learning_without_scikit_learn_names_the_extra_to_install(monkeypatch, tmp_path):
    def without_sklearn(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name="sklearn")

    monkeypatch.setattr(movielens_factors.importlib, "import_module", without_sklearn)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "fedbandit-envs\[data\]"') as caught:
        build_factors(tmp_path / "not even read")
    assert "\n" not in str(caught.value)


# Rebuilding from the real file, where it is at hand.

real_file = pytest.mark.skipif(
    not REAL_RATINGS.is_file(), reason="needs MovieLens-100K: set FEDBANDIT_MOVIELENS to the path of u.data"
)


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("build_movielens", REPOSITORY / "scripts" / "build_movielens.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@real_file
def test_no_similarity_of_real_users_is_negative_so_weights_cannot_cancel():
    assert similarities(read_ratings(REAL_RATINGS)).min() >= 0


@real_file
@pytest.mark.slow
def test_factors_rebuilt_by_the_script_equal_the_shipped_ones(script, tmp_path, capsys):
    pytest.importorskip("sklearn", reason='needs pip install "fedbandit-envs[data]"')
    out = tmp_path / "factors.npz"
    assert script.main(["--ratings", str(REAL_RATINGS), "--out", str(out)]) == 0
    assert os.listdir(tmp_path) == ["factors.npz"]
    assert "completed: 802 of 943 users are eligible" in capsys.readouterr().out
    rebuilt = decode_factors(out.read_bytes(), str(out))
    for name in VARIANTS:
        assert largest_difference(rebuilt[name], load_factors(name)) <= 1e-6


def test_the_script_checks_shipped_factors_and_fails_if_they_differ(script, monkeypatch, capsys):
    shipped = {name: load_factors(name) for name in VARIANTS}
    monkeypatch.setattr(script, "build_factors", lambda path: shipped)
    assert script.main(["--ratings", "u.data", "--check"]) == 0
    assert "masked: largest difference from the shipped factors 0.0e+00" in capsys.readouterr().out
    moved = type(shipped["masked"])(shipped["masked"].users * 1.1, shipped["masked"].theta)
    monkeypatch.setattr(script, "build_factors", lambda path: shipped | {"masked": moved})
    assert script.main(["--ratings", "u.data", "--check"]) == 1
    assert "NOT equal" in capsys.readouterr().out


def test_the_script_reports_errors_in_one_line(script, tmp_path, capsys):
    assert script.main(["--ratings", str(tmp_path / "none")]) == 2
    assert script.main(["--ratings", str(written(tmp_path, "other"))]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert all(line.startswith("error: ") for line in errors)
