"""How the MovieLens factors are learnt: against loops that follow the definition, and against what ships."""

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from fedbandit_envs.problems.factorisation import masked_nmf
from fedbandit_envs.problems.movielens.factors import FACTORS, decode_factors, load_factors
from fedbandit_envs.problems.movielens.learning import (
    build_factors,
    complete,
    largest_difference,
    similarities,
)
from fedbandit_envs.problems.movielens.ratings_file import read_ratings

REPOSITORY = Path(__file__).parents[2]
REAL_RATINGS = Path(os.environ.get("FEDBANDIT_MOVIELENS", REPOSITORY.parent / "shared" / "data" / "ml-100k" / "u.data"))


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
        nearest_first = sorted(similarity, key=lambda v: -similarity[v])  # a stable sort
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
    for got, expected in zip(masked_nmf(ratings, 3, iterations=7), (w, h), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_masked_nmf_never_raises_its_objective():
    ratings = small_ratings(seed=2) / 5

    def objective(w, h):
        return np.sum(((ratings - w @ h) * (ratings > 0)) ** 2) + 0.5 * (np.sum(w**2) + np.sum(h**2))

    values = [objective(*masked_nmf(ratings, 3, iterations)) for iterations in range(20)]
    assert (np.diff(values) < 0).all()


def test_difference_ignores_the_numbering_of_arms_but_not_their_values():
    factors = load_factors("masked")
    permuted = type(factors)(factors.users, np.random.default_rng(0).permutation(factors.theta))
    assert largest_difference(permuted, factors) == 0
    moved = type(factors)(factors.users, factors.theta + np.eye(30, 3) * 1e-4)
    assert largest_difference(moved, factors) == pytest.approx(1e-4)
    other_users = type(factors)(factors.users + 1e-3, factors.theta)
    assert largest_difference(other_users, factors) == pytest.approx(1e-3)


def test_learning_without_scikit_learn_names_the_extra_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sklearn", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"pip install -e '\.\[data\]'") as caught:
        build_factors(tmp_path / "not even read")
    assert "\n" not in str(caught.value)


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
    pytest.importorskip("sklearn", reason='needs pip install -e ".[data]"')
    out = tmp_path / "factors.npz"
    assert script.main(["--ratings", str(REAL_RATINGS), "--out", str(out)]) == 0
    assert os.listdir(tmp_path) == ["factors.npz"]
    assert "completed: 802 of 943 users are eligible" in capsys.readouterr().out
    rebuilt = decode_factors(out.read_bytes(), str(out))
    for name in FACTORS:
        assert largest_difference(rebuilt[name], load_factors(name)) <= 1e-6


def test_the_script_checks_shipped_factors_and_fails_if_they_differ(script, monkeypatch, capsys):
    shipped = {name: load_factors(name) for name in FACTORS}
    monkeypatch.setattr(script, "build_factors", lambda path: shipped)
    assert script.main(["--ratings", "u.data", "--check"]) == 0
    assert "masked: largest difference from the shipped factors 0.0e+00" in capsys.readouterr().out
    moved = type(shipped["masked"])(shipped["masked"].users * 1.1, shipped["masked"].theta)
    monkeypatch.setattr(script, "build_factors", lambda path: shipped | {"masked": moved})
    assert script.main(["--ratings", "u.data", "--check"]) == 1
    assert "NOT equal" in capsys.readouterr().out


def test_the_script_reports_errors_in_one_line(script, tmp_path, capsys):
    other = tmp_path / "u.data"
    other.write_text("other")
    assert script.main(["--ratings", str(tmp_path / "none")]) == 2
    assert script.main(["--ratings", str(other)]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert all(line.startswith("error: ") for line in errors)
