"""What results say, on runs so simple that every number is known by hand."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import experiment_policies  # noqa: F401 - registers its policies
import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.experiments.results import table_text
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


def test_communication_is_counted_up_to_each_checkpoint(result: fb.Result) -> None:
    # One scalar per agent after each piece but the last, after which nothing is sent.
    assert result.curve("first arm", "scalars")[0].tolist() == [2, 4, 6, 6]
    assert result.final("first arm", "rounds").tolist() == [3, 3, 3]
    assert result.final("first arm", "bytes_up").tolist() == [48, 48, 48]
    assert result.final("Oracle", "scalars").tolist() == [0, 0, 0]


def test_wrong_share_counts_agents_on_a_worse_arm(result: fb.Result) -> None:
    assert result.curve("first arm", "wrong_share")[0].tolist() == [0.5] * 4
    assert result.final("Oracle", "wrong_share").tolist() == [0, 0, 0]


def test_time_to_settle_is_the_first_checkpoint_with_one_arm_left_and_nan_if_never(result: fb.Result) -> None:
    assert np.isnan(result.time_to_settle("Oracle")).all()
    env = fb.make("fedbandit/Linear-v0", theta=[[1.0, 0.0]] * 2, features=[[[0.9, 0.1], [-0.9, 0.1]]] * 2)
    eliminating = fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
    record = {"trial": 0, "seed": "0", "policies": {"0": summary(eliminating)}}
    found = fb.Result(fb.Experiment("fedbandit/Linear-v0", ["Fed-PECD"]), [record])
    first = eliminating.steps[np.flatnonzero((eliminating.active == 1).all(axis=1))[0]]
    assert found.time_to_settle("Fed-PECD").tolist() == [first]


def test_summary_has_a_row_per_policy(result: fb.Result) -> None:
    table = result.table()
    assert table["policy"] == ["first arm", "second arm", "Oracle"]
    assert table["regret"] == pytest.approx([2.4, 0.4, 0])
    assert table["regret_low"] == pytest.approx(table["regret_high"])  # the instance is the same in all trials
    assert table["worst_agent"] == pytest.approx([4.8, 0.8, 0])
    assert table["time_to_settle"] == [None, None, None]


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
    assert fb.run(experiment, executor="serial").table("comparisons") == {}


def test_frame_is_the_table(result: fb.Result) -> None:
    assert result.frame("trials").to_dict("list").keys() == result.table("trials").keys()


def test_text_of_a_table_can_be_read_back(result: fb.Result) -> None:
    table = result.table()
    rows = list(csv.DictReader(io.StringIO(table_text(table, "csv"))))
    assert [float(row["regret"]) for row in rows] == table["regret"]
    assert [row["policy"] for row in json.loads(table_text(table, "json"))] == table["policy"]
    assert table_text(table, "markdown").count("\n") == 5


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


LATER_VERSION = """
import sys
from fedbandit_envs.problems.regrets import REGRETS
known = dict(REGRETS)
REGRETS.clear()  # before anything else is imported: one more kind, in front of the others
REGRETS.update({"own_regret": known["regret"], **known})
import fedbandit_envs as fb
result = fb.Result.load(sys.argv[1])
print([result.final("Uniform", name)[0] for name in sys.argv[2:]])
print(result.agents("Uniform").tolist())
for read in (lambda: result.final("Uniform", "mean_own_regret"), lambda: result.agents("Uniform", "own_regret")):
    try:
        read()
    except ValueError as error:
        print(error)
try:
    fb.run(result.experiment, sys.argv[1], "serial")
except RuntimeError as error:
    print(error)
"""


def test_a_version_with_one_more_kind_of_regret_reads_old_files_rightly(tmp_path: Path) -> None:
    arguments = {"num_agents": 3, "num_arms": 4, "max_cycles": 20}
    result = fb.run(fb.Experiment("fedbandit/Synthetic-v0", ["Uniform"], arguments, trials=1), tmp_path, "serial")
    names = ("worst_regret", "active_arms", "scalars_up", "total_paper_regret")
    command = [sys.executable, "-c", LATER_VERSION, str(tmp_path), *names]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    finals, agents, curve, kind, resumed = ran.stdout.splitlines()
    assert finals == str([result.final("Uniform", name)[0] for name in names])
    assert agents == str(result.agents("Uniform").tolist())
    assert "mean_own_regret: expected a result that holds it, got one of another version without it;" in curve
    assert "own_regret: expected a result that holds it, got one of another version without it;" in kind
    assert "got one of another version, without mean_own_regret, own_regret, worst_own_regret;" in resumed


def test_a_file_without_names_is_refused(result: fb.Result) -> None:
    run = {name: value for name, value in result.records[0]["policies"]["0"].items() if not name.endswith("_rows")}
    unnamed = fb.Result(
        fb.Experiment("fedbandit/Linear-v0", ["Oracle"]), [{"trial": 0, "seed": "0", "policies": {"0": run}}]
    )
    with pytest.raises(ValueError, match="got one of another version without it; run the experiment again"):
        unnamed.final("Oracle")
    with pytest.raises(ValueError, match="got one of another version without it"):
        unnamed.agents("Oracle")
