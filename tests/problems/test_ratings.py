"""Problems from tables of ratings: what they hold, what is refused, and MovieLens as one table among others."""

import os
from pathlib import Path

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.problems.factorisation import k_means, masked_nmf
from fedbandit_envs.problems.movielens.factors import load_factors

REPOSITORY = Path(__file__).parents[2]
REAL_RATINGS = Path(os.environ.get("FEDBANDIT_MOVIELENS", REPOSITORY.parent / "shared" / "data" / "ml-100k" / "u.data"))
NAMES = {"user": "who", "item": "film", "rating": "stars"}


def rank_two(noise=0.0, users=30, items=24, density=0.8, seed=0):
    """Ratings that are products of two non-negative factors, up to noise."""
    rng = np.random.default_rng(seed)
    exact = rng.uniform(0.2, 1, (users, 2)) @ rng.uniform(0.2, 1, (2, items))
    user, item = np.nonzero(rng.random((users, items)) < density)
    stars = np.maximum(exact[user, item] + noise * rng.standard_normal(len(user)), 0)
    return {"who": user, "film": item, "stars": stars}


def learnt(table, **arguments):
    return fb.from_ratings(table, **NAMES, **{"num_arms": 4, "dim": 2} | arguments)


def test_products_of_rank_two_are_explained_by_rank_two_and_noise_is_not():
    assert learnt(rank_two()).report.r2 > 0.9  # measured: 0.96, and -0.22 below
    rng = np.random.default_rng(1)
    shuffled = rank_two() | {"stars": rng.permutation(rank_two()["stars"])}
    assert learnt(shuffled).report.r2 < 0.2


def test_the_means_are_the_ratings_of_the_arms_divided_by_the_highest():
    table = rank_two()
    problem = learnt(table, num_arms=24, dim=2)  # as many arms as items: each arm is one item
    assert all(len(items) == 1 for items in problem.arms)
    means = problem.contexts.mean @ problem.theta.T
    place = [int(items[0]) for items in problem.arms]
    seen = {(user, item): star for user, item, star in zip(*table.values(), strict=True)}
    cells = [(user, arm) for user in range(30) for arm in range(24) if (user, place[arm]) in seen]
    expected = np.array([seen[user, place[arm]] for user, arm in cells]) / max(table["stars"])
    got = np.array([means[cell] for cell in cells])
    assert np.corrcoef(got, expected)[0, 1] > 0.97
    assert means.max() <= 1 + 1e-12


def test_equal_tables_give_equal_bytes_and_the_seed_decides_only_what_it_says(tmp_path):
    for name, arguments in (("a", {}), ("b", {}), ("c", {"seed": 1})):
        learnt(rank_two(noise=0.1), **arguments).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()
    ours, other = (learnt(rank_two(noise=0.1), seed=seed) for seed in (0, 1))
    assert np.array_equal(ours.contexts.mean, other.contexts.mean)


def test_csv_files_mappings_and_data_frames_mean_the_same(tmp_path):
    pandas = pytest.importorskip("pandas")
    table = rank_two(noise=0.1)
    frame = pandas.DataFrame(table)
    texts = frame.astype({"who": "string", "film": "string"})
    frame.to_csv(tmp_path / "comma.csv", index=False)
    frame.assign(note="a; b, c").to_csv(tmp_path / "semicolon.csv", index=False, sep=";")
    frame.to_csv(tmp_path / "tab.csv", index=False, sep="\t", encoding="utf-8-sig")
    expected = learnt(table).arguments
    for given in (frame, texts, *(tmp_path / f"{name}.csv" for name in ("comma", "semicolon", "tab"))):
        got = learnt(given).arguments
        assert np.array_equal(got["theta"], expected["theta"])
        assert np.array_equal(got["contexts"].mean, expected["contexts"].mean)


class Series:
    """A column of a data frame of another library: it can only be made an array."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype=dtype)


class Frame:
    """A data frame of another library, with as little as is asked of it."""

    def __init__(self, table):
        self.columns, self._table = list(table), table

    def __getitem__(self, name):
        return Series(self._table[name])


def test_any_data_frame_will_do():
    table = rank_two(noise=0.1)
    assert np.array_equal(learnt(Frame(table)).theta, learnt(table).theta)


def test_the_noise_is_that_of_held_out_ratings_unless_it_is_given():
    quiet, loud = (learnt(rank_two(noise=noise)) for noise in (0.01, 0.3))
    assert quiet.noise_std < loud.noise_std
    assert loud.noise_std == pytest.approx(loud.report.rmse_arms / max(rank_two(noise=0.3)["stars"]), rel=0.05)
    assert learnt(rank_two(), noise_std=0.25).noise_std == 0.25


def test_agents_are_users_or_accounts_that_users_share():
    users = learnt(rank_two()).contexts.mean
    few = learnt(rank_two(), num_agents=5).contexts
    assert few.num_agents == 5
    assert all(any(np.array_equal(row, user) for user in users) for row in few.mean)
    accounts = learnt(rank_two(), hidden="household", num_agents=50).contexts
    assert isinstance(accounts, fb.Discrete)
    assert accounts.support.shape == (50, 4, 2)


def test_users_who_gave_nothing_but_zero_are_no_agents():
    table = rank_two()
    table["stars"] = np.where(table["who"] == 7, 0.0, table["stars"])
    problem = learnt(table)
    assert problem.contexts.num_agents == 29
    assert "1 user gave nothing but 0 and is left out" in str(problem)


def test_a_learnt_problem_plays_the_same_from_memory_and_from_its_file(tmp_path):
    problem = learnt(rank_two(noise=0.1))
    problem.save(tmp_path / "mine.npz")
    runs = [
        fb.play(fb.make(id, max_cycles=50, **arguments), fb.make_policy("Local-UCB"), seed=1).mean_regret()
        for id, arguments in (
            ("fedbandit/Linear-v0", problem.arguments),
            ("fedbandit/File-v0", {"path": str(tmp_path / "mine.npz")}),
        )
    ]
    assert np.array_equal(*runs)


def changed(name, row, value):
    table = {key: list(values) for key, values in rank_two().items()}
    table[name][row] = value
    return table


@pytest.mark.parametrize("hole", [None, "", float("nan")])
@pytest.mark.parametrize("name", ["who", "film", "stars"])
def test_a_hole_is_refused_by_column_and_row(name, hole):
    with pytest.raises(ValueError, match=f"column '{name}', row 3: expected a (value|number), got "):
        learnt(changed(name, 2, hole))


def test_the_missing_value_of_pandas_is_a_hole():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rank_two()).astype({"film": "string"})
    frame.loc[4, "film"] = pandas.NA
    with pytest.raises(ValueError, match="column 'film', row 5: expected a value, got none"):
        learnt(frame)


@pytest.mark.parametrize(
    ("table", "arguments", "words"),
    [
        (changed("stars", 9, "good"), {}, "column 'stars', row 10: expected a number, got 'good'"),
        (changed("stars", 9, float("inf")), {}, "column 'stars', row 10: expected a finite number"),
        (changed("stars", 9, -1.0), {}, "expected a rating of at least 0, got -1; subtract the lowest"),
        (rank_two() | {"stars": np.full(len(rank_two()["who"]), 3)}, {}, "expected ratings that differ, got 3"),
        ({name: [*values, values[0]] for name, values in rank_two().items()}, {}, "got another for user '0', item"),
        (
            {name: values[:100] for name, values in rank_two().items()},
            {"dim": 4},
            "expected at least 120 ratings.*got 100",
        ),
        (rank_two() | {"stars": [1.0]}, {}, "expected columns of one length"),
        ({name: [] for name in rank_two()}, {}, "expected ratings, got no rows"),
        (rank_two(), {"num_arms": 25}, "num_arms: expected at most the 24 items there are, got 25"),
        (rank_two(), {"num_agents": 31}, "num_agents: expected at most the 30 users there are, got 31"),
        (rank_two(), {"hidden": "gausian"}, "hidden: expected one of .*did you mean 'gaussian'"),
        (rank_two(), {"rating": "star"}, "rating: expected a column among who, film, stars, got 'star'; did you mean"),
        ([1, 2], {}, "table: expected the path of a csv file, a mapping of columns or a data frame, got a list"),
        ("no.csv", {}, r"table: expected a csv file, got 'no.csv' \(No such file"),
    ],
)
def test_a_table_that_can_not_be_learnt_from_is_refused(table, arguments, words):
    with pytest.raises(ValueError, match=words):
        fb.from_ratings(table, **NAMES | {"num_arms": 4, "dim": 2} | arguments)


def test_two_ratings_of_one_cell_are_named_by_their_lines(tmp_path):
    (tmp_path / "x.csv").write_text("who,film,stars\n1,2,3\n1,3,4\n1,2,5\n")
    with pytest.raises(ValueError, match=r"line 4: expected one rating .*got another for user '1', item '2' of line 2"):
        learnt(tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "expected a header of different names, got nothing"),
        (b"who,who,stars\n", "expected a header of different names, got who, who, stars"),
        (b"who,film,stars\n1,2\n", "line 2: expected 3 fields as in the header, got 2"),
        (b"who,film,stars\n1,2,\xff\n", "expected text in UTF-8"),
        (b'who,film,stars\n1,2,"3\n', "line 2: expected csv, got unexpected end of data"),
    ],
)
def test_a_broken_csv_file_is_refused_by_line(tmp_path, text, words):
    (tmp_path / "x.csv").write_bytes(text)
    with pytest.raises(ValueError, match=words):
        learnt(tmp_path / "x.csv")


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="expected a file, got a folder, a pipe or a device"):
        learnt(tmp_path / "pipe")


def test_k_means_finds_separate_groups_and_never_leaves_a_cluster_empty():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    points = np.repeat(centres, 20, axis=0) + 0.1 * rng.standard_normal((60, 2))
    found, cluster = k_means(points, 3, np.random.default_rng(1))
    assert sorted(np.bincount(cluster)) == [20, 20, 20]
    for number in range(3):
        np.testing.assert_allclose(found[number], points[cluster == number].mean(axis=0))
    for seed in range(5):  # as many clusters as different points, some of which come often
        points = np.repeat(np.arange(6.0), [1, 50, 1, 50, 1, 1])[:, None]
        found, cluster = k_means(points, 6, np.random.default_rng(seed))
        assert sorted(found.ravel()) == [0, 1, 2, 3, 4, 5]


def test_an_observed_zero_is_a_rating_and_a_missing_one_is_not():
    from scipy.sparse import csr_array

    user, item = np.divmod(np.arange(12), 3)
    stored = csr_array((np.where(item == 2, 0.0, 1.0), (user, item)), shape=(4, 3))
    with_zeros, without = masked_nmf(stored, 1), masked_nmf(stored.toarray(), 1)
    assert with_zeros[1][0, 2] < 1e-6
    assert without[1][0, 2] == 0  # nobody rated it
    assert np.isfinite(np.concatenate([factor.ravel() for factor in without])).all()


@pytest.mark.slow
@pytest.mark.skipif(
    not REAL_RATINGS.is_file(), reason="needs MovieLens-100K: set FEDBANDIT_MOVIELENS to the path of u.data"
)
def test_movielens_as_a_table_gives_the_contexts_that_ship_with_the_package():
    user, item, stars, _ = np.loadtxt(REAL_RATINGS, dtype=int).T
    problem = fb.from_ratings({"who": user, "film": item, "stars": stars}, **NAMES)
    shipped = load_factors("masked")
    np.testing.assert_allclose(problem.contexts.mean, shipped.users, rtol=0, atol=1e-6)
    # The arms come from another k-means: each film is rated nearly as the arms that ship with the package rate it.
    best, theirs = ((shipped.users @ theta.T).max(axis=1) for theta in (problem.theta, shipped.theta))
    assert np.corrcoef(best, theirs)[0, 1] > 0.99
    assert problem.report.r2 == pytest.approx(0.32, abs=0.02)  # measured: 0.322
    assert problem.report.r2_arms == pytest.approx(0.26, abs=0.03)  # measured: 0.258
    assert problem.report.rmse_mean == pytest.approx(np.std(stars), abs=0.02)
