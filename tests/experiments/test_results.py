"""What results say, on runs so simple that every number is known by hand."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import experiment_policies  # noqa: F401 - registers its policies
import numpy as np
import pytest
from scipy import stats

import fedbandit_envs as fb
from fedbandit_envs.experiments.tables import LEDGER, TABLES
from fedbandit_envs.experiments.text import table_cells, table_text
from fedbandit_envs.experiments.trials import summary

# Two agents, three arms, T = 8; means by hand: <theta_a, phi_a>.
THETA = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
FEATURES = [[[0.5, 0.0], [0.0, 0.4], [0.1, 0.1]], [[0.2, 0.0], [0.0, 0.8], [0.1, 0.1]]]  # gaps of arm 0: 0 and 0.6


@pytest.fixture(scope="module")
def result() -> fb.Result:
    policies = [
        {"name": "Test-One-Arm", "label": "first arm", "parameters": {"arm": 0, "pieces": 4}},
        {"name": "Test-One-Arm", "label": "second arm", "parameters": {"arm": 1, "pieces": 2}},
        "Oracle",
    ]
    arguments = {"theta": THETA, "features": FEATURES, "max_cycles": 8}
    return fb.run(fb.Experiment("fedbandit/Linear-v0", policies, arguments, trials=3), executor="serial")


def test_curves_are_those_computed_by_hand(result: fb.Result) -> None:
    assert result.steps("first arm").tolist() == [2, 4, 6, 8]
    np.testing.assert_allclose(result.curve("first arm"), [[0.6, 1.2, 1.8, 2.4]] * 3)  # mean of 0 and 0.6 per step
    np.testing.assert_allclose(result.curve("first arm", "worst_regret")[0], [1.2, 2.4, 3.6, 4.8])
    np.testing.assert_allclose(result.curve("first arm", "total_regret")[0], [1.2, 2.4, 3.6, 4.8])
    np.testing.assert_allclose(result.agents("first arm")[0], [0, 4.8])
    np.testing.assert_allclose(result.agents("second arm")[0], [0.8, 0])


def test_curves_at_other_times_are_straight_lines_from_zero(result: fb.Result) -> None:
    np.testing.assert_allclose(result.curve("first arm", times=[0, 1, 3, 8])[0], [0, 0.3, 0.9, 2.4])
    np.testing.assert_allclose(result.curve("first arm", "active_arms", times=[0, 8])[0], [3, 3])


def test_counts_at_other_times_are_those_of_the_checkpoint_before(result: fb.Result) -> None:
    assert result.steps("first arm").tolist() == [2, 4, 6, 8]
    assert result.curve("first arm", "scalars", times=[0, 1, 2, 3, 5, 7])[0].tolist() == [0, 0, 2, 2, 4, 6]


def test_communication_is_counted_up_to_each_checkpoint(result: fb.Result) -> None:
    # One scalar per agent after each piece but the last, after which nothing is sent.
    assert result.curve("first arm", "scalars")[0].tolist() == [2, 4, 6, 6]
    assert result.final("first arm", "rounds").tolist() == [3, 3, 3]
    assert result.final("first arm", "bytes_up").tolist() == [48, 48, 48]
    assert result.final("Oracle", "scalars").tolist() == [0, 0, 0]


def test_wrong_share_counts_agents_on_a_worse_arm(result: fb.Result) -> None:
    assert result.curve("first arm", "wrong_share")[0].tolist() == [0.5] * 4
    assert result.final("Oracle", "wrong_share").tolist() == [0, 0, 0]


def test_time_to_settle_is_when_one_arm_is_left_and_nan_if_never(result: fb.Result) -> None:
    assert np.isnan(result.time_to_settle("Oracle")).all()
    env = fb.make("fedbandit/Linear-v0", theta=[[1.0, 0.0]] * 2, features=[[[0.9, 0.1], [-0.9, 0.1]]] * 2)
    eliminating = fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
    record = {"trial": 0, "seed": "0", "policies": {"0": summary(eliminating)}}
    found = fb.Result(fb.Experiment("fedbandit/Linear-v0", ["Fed-PECD"]), [record])
    first = np.flatnonzero((eliminating.active == 1).all(axis=1))[0]
    (settled,) = found.time_to_settle("Fed-PECD")
    assert eliminating.steps[first - 1] < settled <= eliminating.steps[first]


@pytest.mark.parametrize(("name", "pulls"), [("One-Round", 1000), ("Limited-Interaction", 999)])
def test_time_to_settle_is_when_the_answer_was_given_and_not_when_the_pulls_of_that_arm_end(
    name: str, pulls: int
) -> None:
    # Equal arms are never dropped, so both answer after all of their budget; Limited-Interaction has 3 equal rounds.
    policy = {"name": name, "parameters": {"budget": 1000}}
    arguments = {"num_agents": 6, "means": [0.5, 0.5, 0.5], "max_cycles": 3000}
    found = fb.run(fb.Experiment("MultiArmed", [policy], arguments, trials=3), executor="serial")
    (label,) = found.labels
    assert (found.time_to_settle(label) > pulls).all()
    assert (found.time_to_settle(label) <= pulls + 30).all()  # the grid has 100 times that are evenly spread


def test_summary_has_a_row_per_policy(result: fb.Result) -> None:
    table = result.table()
    assert table["policy"] == ["first arm", "second arm", "Oracle"]
    assert table["regret"] == pytest.approx([2.4, 0.4, 0])
    assert table["regret_low"] == pytest.approx(table["regret_high"])  # the instance is the same in all trials
    assert table["worst_agent"] == pytest.approx([4.8, 0.8, 0])
    assert np.isnan(table["time_to_settle"]).all()


def test_a_table_is_made_once_and_each_caller_has_a_copy(result: fb.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    result.table("curves")["regret"].clear()
    assert len(result.table("curves")["regret"]) == len(result.table("curves")["policy"]) > 0
    made = []

    def own(result: fb.Result, kind: str, times: Any) -> dict[str, list[Any]]:
        made.append((kind, times))
        return {"policy": result.labels}

    monkeypatch.setitem(TABLES, "own", own)
    for kind in ("regret", "paper_regret", "regret"):
        result.table("own", kind)
    assert made == [("regret", None), ("paper_regret", None)]


def test_comparisons_are_paired_and_corrected(result: fb.Result) -> None:
    table = result.table("comparisons", times=[4, 8])
    assert len(table["policy"]) == 6
    assert table["difference"][:2] == pytest.approx([1.0, 2.0])  # first against second arm: 0.3 - 0.05 a step
    assert all(p <= corrected for p, corrected in zip(table["p_value"], table["p_holm"], strict=True))


def test_other_tables_have_the_rows_they_promise(result: fb.Result) -> None:
    assert len(result.table("trials")["trial"]) == 9
    assert len(result.table("agents")["agent"]) == 18
    assert result.table("curves", times=[8])["regret"] == pytest.approx([2.4, 0.4, 0])
    assert result.table("trials")["seed"][0] == str(result.experiment.trial_seed(0))


def test_one_policy_has_no_comparisons() -> None:
    experiment = fb.Experiment("fedbandit/Linear-v0", ["Oracle"], {"max_cycles": 4}, trials=1)
    result = fb.run(experiment, executor="serial")
    table = result.table("comparisons")
    assert set(map(len, table.values())) == {0}
    assert list(table) == list(result.frame("comparisons"))
    assert result.frame("comparisons")["step"].dtype == "int64"
    assert result.frame("comparisons")["p_holm"].dtype == "float64"


def test_frame_is_the_table(result: fb.Result) -> None:
    assert result.frame("trials").to_dict("list").keys() == result.table("trials").keys()


def test_text_of_a_table_can_be_read_back(result: fb.Result) -> None:
    table = result.table()
    rows = list(csv.DictReader(io.StringIO(table_text(table, "csv"))))
    assert [float(row["regret"]) for row in rows] == table["regret"]
    assert [row["policy"] for row in json.loads(table_text(table, "json"))] == table["policy"]
    assert table_text(table, "markdown").count("\n") == 5


def test_a_path_is_a_row_per_policy_trial_and_checkpoint(result: fb.Result) -> None:
    table = result.table("paths")
    assert len(table["policy"]) == 3 * (4 + 2 + 1)  # three trials; as many checkpoints as plans
    assert [table["step"][:4], table["trial"][:5]] == [[2, 4, 6, 8], [0, 0, 0, 0, 1]]
    assert table["regret"][:4] == pytest.approx([0.6, 1.2, 1.8, 2.4])
    assert table["worst_agent"][:4] == pytest.approx([1.2, 2.4, 3.6, 4.8])
    assert table["scalars"][:4] == [2, 4, 6, 6]
    assert result.table("paths", times=[1, 8])["regret"][:2] == pytest.approx([0.3, 2.4])


def test_types_of_columns_do_not_depend_on_the_data(result: fb.Result) -> None:
    integers = {"trials", "agents", "trial", "agent", "step"}
    for what in TABLES:
        counts = LEDGER if what == "trials" else ()
        for name, values in result.table(what).items():
            expected = str if name in ("policy", "against", "seed") else int if name in (*integers, *counts) else float
            assert {type(value) for value in values} == {expected}, (what, name)


def test_one_trial_has_no_interval(result: fb.Result, tmp_path: Path) -> None:
    alone = fb.Result(result.experiment, result.records[:1])
    for what in ("summary", "curves"):
        table = alone.table(what)
        for name in ("regret_low", "regret_high", "worst_agent_low", "worst_agent_high"):
            assert np.isnan(table[name]).all()
    table = alone.table("comparisons")
    assert np.isnan([table["low"], table["high"], table["p_value"], table["p_holm"]]).all()
    assert ",,," in table_text(table, "csv")
    assert json.loads(table_text(table, "json"))[0]["p_holm"] is None
    fb.plotting.save(fb.plotting.regret(alone), tmp_path / "figure")
    fb.plotting.save(fb.plotting.regret_against({1: alone, 2: alone}, "gap"), tmp_path / "sweep")


def test_intervals_of_tables_are_students() -> None:
    arguments = {"num_agents": 3, "max_cycles": 16}
    found = fb.run(fb.Experiment("fedbandit/Synthetic-v0", ["Uniform"], arguments, trials=4), executor="serial")
    values = found.final("Uniform")
    half = stats.t.ppf(0.975, 3) * stats.sem(values)
    for table in (found.table(), found.table("curves", times=[16])):
        assert table["regret_low"] == pytest.approx([values.mean() - half])
        assert table["regret_high"] == pytest.approx([values.mean() + half])


@pytest.mark.parametrize(
    ("values", "cells"),
    [
        ([50321.4, 39.52, 0.0], ["50,321.4", "39.5", "0.0"]),
        ([2077.1234, 0.5, 4e-14], ["2,077.123", "0.500", "0.000"]),
        ([16.0, 131072.0, 0.0], ["16", "131,072", "0"]),
        ([1.0, 0.04, 3e-8], ["1.00e+00", "4.00e-02", "3.00e-08"]),
        ([1.0, 0.04, 3e-5], ["1.000000", "0.040000", "0.000030"]),
        ([123456.7, 0.1234], ["123,456.7", "0.1"]),
        ([float("nan"), 1.5, -0.00001], ["", "1.500000", "-0.000010"]),
        ([8, 131072], ["8", "131,072"]),
        (["a", 1, None], ["a", "1", ""]),
    ],
)
def test_a_column_has_one_format(values: list[Any], cells: list[str]) -> None:
    assert [row[0] for row in table_cells({"name": values})] == ["name", *cells]


def test_a_mean_and_the_ends_of_its_interval_are_written_alike() -> None:
    difference = {"difference": [-200.44, -10.1], "low": [-294.0, -203.0], "high": [-106.93, 182.2]}
    assert table_cells(difference)[1:] == [["-200.4", "-294.0", "-106.9"], ["-10.1", "-203.0", "182.2"]]
    mean = {"regret": [254.123], "regret_low": [209.0], "regret_high": [299.5], "rounds": [3.0]}
    assert table_cells(mean)[1:] == [["254", "209", "300", "3"]]


def test_a_frame_has_the_types_of_the_table(result: fb.Result) -> None:
    for what in TABLES:
        types = {name: type(values[0]).__name__ for name, values in result.table(what).items()}
        found = {name: str(kind) for name, kind in result.frame(what).dtypes.items()}
        assert found == {name: {"int": "int64", "float": "float64", "str": "str"}[kind] for name, kind in types.items()}


def test_a_frame_of_polars_has_the_same_columns(result: fb.Result) -> None:
    pytest.importorskip("polars")
    for what in TABLES:
        found = result.frame(what, backend="polars")
        np.testing.assert_equal(found.to_dict(as_series=False), result.table(what))


def test_tables_are_written_as_parquet_when_asked(result: fb.Result, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    result.write_tables(tmp_path, parquet=True)
    for what in TABLES:
        np.testing.assert_equal(parquet.read_table(tmp_path / f"{what}.parquet").to_pydict(), result.table(what))


def test_what_is_not_installed_is_named_with_the_extra_that_brings_it(
    result: fb.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbandit_envs.validation.find_spec", lambda name: None)
    for backend in ("pandas", "polars"):
        with pytest.raises(ImportError, match=rf"expected {backend} .*'\.\[frames\]', or use table"):
            result.frame(backend=backend)
    with pytest.raises(ImportError, match=r"expected pyarrow .*'\.\[frames\]', or leave out parquet=True"):
        result.write_tables(tmp_path / "new", parquet=True)
    assert not (tmp_path / "new").exists()


def test_tables_are_written_as_files(result: fb.Result, tmp_path: Path) -> None:
    names = {path.name for path in result.write_tables(tmp_path / "new")}
    assert {"summary.csv", "summary.json", "trials.csv", "curves.csv", "comparisons.csv"} <= names
    assert names == {path.name for path in (tmp_path / "new").iterdir()}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: r.curve("first"), "did you mean 'first arm'"),
        (lambda r: r.curve("Oracle", "mean_regrets"), "did you mean 'mean_regret'"),
        (lambda r: r.table("sumary"), "did you mean 'summary'"),
        (lambda r: r.table(kind="regert"), "did you mean 'regret'"),
        (lambda r: r.curve("Oracle", times=[-1]), "at least 0"),
        (lambda r: r.curve("Oracle", times=[9]), "expected a step from 0 to 8, the horizon of these runs, got 9"),
        (lambda r: r.table("curves", times=[4, 9]), "expected a step from 0 to 8"),
        (lambda r: r.table("paths", times=[9]), "expected a step from 0 to 8"),
        (lambda r: r.table("comparisons", times=[9]), "expected a step from 0 to 8"),
        (lambda r: r.table("summary", times=[8]), "expected a table with steps"),
        (lambda r: r.frame(backend="panda"), "did you mean 'pandas'"),
        (lambda r: fb.Result(r.experiment, []), "at least one finished trial"),
    ],
)
def test_wrong_names_are_refused(result: fb.Result, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(result)


def test_checkpoints_that_differ_between_trials_are_brought_to_one_grid(result: fb.Result) -> None:
    records = [
        {"trial": n, "seed": "0", "policies": {"0": record["policies"][str(n)]}}
        for n, record in enumerate(result.records[:2])
    ]
    mixed = fb.Result(fb.Experiment("fedbandit/Linear-v0", ["Oracle"]), records)
    assert mixed.steps("Oracle").tolist() == [2, 4, 6, 8]
    np.testing.assert_allclose(mixed.curve("Oracle"), [[0.6, 1.2, 1.8, 2.4], [0.1, 0.2, 0.3, 0.4]])


def test_a_file_without_names_is_refused(result: fb.Result) -> None:
    run = {name: value for name, value in result.records[0]["policies"]["0"].items() if not name.endswith("_rows")}
    unnamed = fb.Result(
        fb.Experiment("fedbandit/Linear-v0", ["Oracle"]), [{"trial": 0, "seed": "0", "policies": {"0": run}}]
    )
    with pytest.raises(ValueError, match="got one of another version without it; run the experiment again"):
        unnamed.final("Oracle")
    with pytest.raises(ValueError, match="got one of another version without it"):
        unnamed.agents("Oracle")


def test_recommended_arms_and_admitted_agents_are_kept_as_computed_by_hand() -> None:
    # Averages over the two agents are 0.25, 0.6 and 0.1, so arm 1 is recommended: the first agent loses 0.1 with it.
    policies = [
        "Multi-Round",
        {"name": "Fed2-UCB", "label": "Fed2-UCB", "parameters": {"pulls_per_phase": 10}},
        "Uniform",
    ]
    arguments = {"theta": THETA, "features": FEATURES, "max_cycles": 400, "noise_std": 1e-6}
    guaranteed = {"context_proxy": 0.0}
    found = fb.run(fb.Experiment("fedbandit/Linear-v0", policies, arguments | guaranteed, trials=2), executor="serial")
    for name in ("Multi-Round", "Fed2-UCB"):
        assert found.final(name, "wrong_recommended").tolist() == [0.5, 0.5]
        np.testing.assert_allclose(found.final(name, "simple_regret"), 0.05)
        assert found.final(name, "admitted").tolist() == [2, 2]
    assert np.isnan(found.final("Uniform", "wrong_recommended")).all()
    assert np.isnan(found.final("Uniform", "simple_regret")).all()
    assert found.final("Uniform", "admitted").tolist() == [2, 2]
    table = found.table("summary")
    assert table["wrong_recommended"][:2] == [0.5, 0.5]


def test_only_agents_that_were_admitted_are_counted() -> None:
    experiment = fb.Experiment(
        "fedbandit/MultiArmed-v0",
        [{"name": "Fed2-UCB", "label": "Fed2-UCB", "parameters": {"pulls_per_phase": 10}}],
        {"num_agents": 9, "num_arms": 3, "local_std": 0.1, "max_cycles": 100},
        trials=1,
    )
    found = fb.run(experiment, executor="serial")
    # Phases of 30 steps admit 2, 6, 9 and 9 agents; a checkpoint at the end of a plan tells who took part in it.
    assert found.steps("Fed2-UCB").tolist() == [30, 60, 90, 100]
    assert found.curve("Fed2-UCB", "admitted")[0].tolist() == [2, 6, 9, 9]
    first = found.curve("Fed2-UCB", "wrong_recommended")[0][0]
    assert np.isnan(first)  # before the first answer nothing is recommended
