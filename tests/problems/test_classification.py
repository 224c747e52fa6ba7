"""Problems from labelled tables: arms, hidden columns, and how well linear models fit, in cases with known answers."""

import numpy as np
import pytest

import fedbandit_envs as fb


def linear_table(rows=400, seed=0):
    """Two labels that a linear rule separates; `hidden` is half of `shown` plus noise of variance 1."""
    rng = np.random.default_rng(seed)
    shown, noise = rng.standard_normal((2, rows))
    hidden = 0.5 * shown + noise
    return {"shown": shown, "hidden": hidden, "kind": np.where(shown + hidden > 0, "up", "down")}


def learnt(table=None, **arguments):
    return fb.from_classification(linear_table() if table is None else table, label="kind", **arguments)


def test_an_arm_is_a_label_and_its_theta_the_least_squares_fit_of_its_reward():
    table = linear_table()
    problem = learnt(table)
    assert problem.arms == (("up",), ("down",))  # shorter texts first
    x = np.stack([(table[name] - table[name].mean()) / table[name].std() for name in ("shown", "hidden")], axis=1)
    x = np.hstack([np.ones((400, 1)), x])
    by_least_squares = np.linalg.lstsq(x, (table["kind"] == "up").astype(float), rcond=None)[0]
    np.testing.assert_allclose(problem.theta[0], by_least_squares, atol=2e-3)  # the ridge of 1 beside 400 rows
    np.testing.assert_allclose(problem.theta.sum(axis=0), [1, 0, 0], atol=1e-12)  # the rewards of a row sum to 1


def test_known_rows_are_point_masses():
    problem = learnt(num_agents=7)
    assert isinstance(problem.contexts, fb.PointMass)
    assert np.array_equal(problem.contexts.points, problem.true_contexts)
    assert problem.report.r2_hidden is None
    assert "nothing is hidden" in str(problem)


def test_a_hidden_column_is_normal_given_the_shown_ones():
    problem = learnt(hide=["hidden"])
    mean, covariance, truth = problem.contexts.mean, problem.contexts.covariance[0], problem.true_contexts
    assert np.array_equal(mean[:, :2], truth[:, :2])  # the constant and the shown column are known
    assert np.count_nonzero(covariance) == 1
    # Var(hidden) = 1.25 and Var(hidden | shown) = 1, both divided by Var(hidden) since columns are standardised.
    assert covariance[2, 2] == pytest.approx(1 / 1.25, abs=0.1)
    slope = np.polyfit(truth[:, 1], mean[:, 2], 1)[0]
    assert slope == pytest.approx(0.5 / np.sqrt(1.25), abs=0.1)
    residuals = truth[:, 2] - mean[:, 2]
    assert abs(residuals.mean()) < 1e-9
    assert np.var(residuals) == pytest.approx(covariance[2, 2])
    assert problem.report.r2_hidden == pytest.approx(0.2, abs=0.15)


def test_the_report_tells_a_linear_rule_from_noise():
    fits = learnt().report
    assert fits.accuracy > 0.95
    table = linear_table()
    table["kind"] = np.random.default_rng(1).permutation(table["kind"])
    noise = learnt(table).report
    assert noise.r2 < 0.1
    assert noise.accuracy < 0.65  # 80 held-out rows: a fair coin exceeds it with probability 0.4 %
    assert fits.held_out == noise.held_out == 80


def test_the_noise_is_the_error_on_held_out_rows_unless_it_is_given():
    problem = learnt()
    assert problem.noise_std == problem.report.rmse
    assert learnt(noise_std=0.0).noise_std == 0.0


def test_the_seed_draws_agents_and_held_out_rows_but_not_the_model():
    ours, again, other = (learnt(num_agents=20, hide=["hidden"], seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(ours.true_contexts, again.true_contexts)
    assert ours.report == again.report != other.report
    assert not np.array_equal(ours.true_contexts, other.true_contexts)
    assert np.array_equal(ours.theta, other.theta)


@pytest.mark.parametrize("context", ["fixed", "resampled"])
def test_such_a_problem_is_saved_and_played(tmp_path, context):
    problem = learnt(hide=["hidden"], num_agents=30)
    problem.save(tmp_path / "mine.npz")
    env = fb.make("fedbandit/File-v0", path=str(tmp_path / "mine.npz"), context=context, num_agents=10, max_cycles=20)
    assert fb.play(env, fb.make_policy("Fed-PECD"), seed=0).mean_regret()[-1] >= 0
    assert (env.instance.contexts is None) == (context == "resampled")


def test_the_hidden_truth_is_the_row_also_when_few_agents_are_drawn(tmp_path):
    problem = learnt(hide=["hidden"])
    problem.save(tmp_path / "mine.npz")
    rng = np.random.default_rng(0)
    drawn = fb.File(str(tmp_path / "mine.npz"), num_agents=5).instance(rng, rng)
    rows = {tuple(row) for row in problem.true_contexts}
    assert all(tuple(row) in rows for row in drawn.contexts)
    assert np.array_equal(drawn.contexts[:, 1], drawn.distribution.mean[:, 1])


def test_csv_files_and_data_frames_mean_the_same(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(linear_table())
    frame.to_csv(tmp_path / "rows.csv", index=False)
    expected = learnt(hide=["hidden"])
    for table in (frame, tmp_path / "rows.csv"):
        assert np.array_equal(learnt(table, hide=["hidden"]).theta, expected.theta)


def test_the_columns_of_a_context_can_be_named():
    table = linear_table() | {"note": ["x"] * 400}
    with pytest.raises(ValueError, match="column 'note', row 1: expected a number, got 'x'"):
        learnt(table)
    assert np.array_equal(learnt(table, features=["shown", "hidden"]).theta, learnt().theta)


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        ({}, {"label": "knid"}, "label: expected a column among shown, hidden, kind, got 'knid'; did you mean 'kind'"),
        ({}, {"hide": ["hiden"]}, "hide: expected columns among shown, hidden, got 'hiden'"),
        ({}, {"hide": "hidden"}, r"hide: expected a list of columns, got 'hidden'; use \['hidden'\]"),
        ({}, {"hide": ["hidden", "shown"]}, "hide: expected at least one column that is shown"),
        ({}, {"features": ["shown", "kind"]}, "features: expected columns without the label"),
        ({}, {"num_agents": 401}, "num_agents: expected at most the 400 rows there are, got 401"),
        ({"kind": ["up"] * 400}, {}, "label: expected at least 2 different labels, got up"),
        ({"shown": np.ones(400)}, {}, "column 'shown': expected values that differ, got one value"),
        ({"shown": [None] * 400}, {}, "column 'shown', row 1: expected a value, got none"),
        ({"shown": np.ones(3)}, {}, "expected columns of one length"),
    ],
)
def test_a_table_that_can_not_be_learnt_from_is_refused(change, arguments, words):
    with pytest.raises(ValueError, match=words):
        fb.from_classification(linear_table() | change, **{"label": "kind"} | arguments)


def test_few_rows_are_refused():
    with pytest.raises(ValueError, match=r"table: expected at least 6 rows.*got 5"):
        learnt({name: values[:5] for name, values in linear_table().items()})
