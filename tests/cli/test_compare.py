"""The command `fedbandit compare`: which tables it shows, and how."""

import csv
import io
import json
from pathlib import Path

import pytest

from fedbandit_envs.cli.main import main
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.text import table_text

pytestmark = pytest.mark.usefixtures("plain_plots")  # every run with --out writes a report
QUICK = ["--env", "Synthetic", "--set", "num_agents=5", "--set", "num_arms=3", "--set", "max_cycles=64"]
POLICIES = ["--policy", "Uniform label=all_arms", "--policy", "Local-UCB", "--policy", "Oracle"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = str(tmp_path_factory.mktemp("results") / "run")
    assert main(["run", *QUICK, *POLICIES, "--trials", "3", "--out", out, "--executor", "serial"]) == 0
    return out


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = str(tmp_path_factory.mktemp("results") / "sweep")
    over = ["--over", "num_agents=2,4", "--trials", "2", "--executor", "serial"]
    assert main(["sweep", *QUICK, *POLICIES, *over, "--out", out]) == 0
    return out


def shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["compare", *arguments]) == 0
    return capsys.readouterr().out


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["compare", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""  # nothing is shown before all is known to be right
    return output.err


@pytest.mark.parametrize("more", [[], ["--table", "curves"], ["--table", "comparisons", "--format", "csv"]])
def test_steps_after_the_horizon_are_refused(folder: str, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "--at: expected steps from 1 to 64, the horizon of these runs, got 100000" in refusal(
        [folder, "--at", "10,100000", *more], capsys
    )


def test_the_step_before_the_first_is_refused(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--at: expected steps from 1 to 64, the horizon of these runs, got 0" in refusal(
        [folder, "--at", "0"], capsys
    )


def test_what_lies_between_checkpoints_is_told(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = "between checkpoints: straight lines, and counts as at the checkpoint before"
    assert " ".join(shown([folder, "--at", "10"], capsys).split()).count(told) == 2  # curves and comparisons
    assert told in " ".join(shown([folder, "--at", "10", "--table", "paths"], capsys).split())
    assert "between checkpoints" not in shown([folder], capsys)


def test_another_kind_of_regret_is_named_below_the_numbers(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--table", "summary"], ["--table", "trials"], ["--table", "comparisons"]):
        text = " ".join(shown([folder, "--kind", "paper_regret", *more], capsys).split())
        assert "regret: paper_regret, against the best arm under mu_i by the true means" in text
        assert "against the best arm" not in shown([folder, *more], capsys)


def test_the_notes_of_a_sweep_stand_once_at_its_end(swept: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(shown([swept], capsys).split())
    assert text.count("p_holm: the p-value with Holm's correction") == 1
    assert text.count("time_to_settle: median step") == 1


def test_at_adds_steps_to_the_end(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    for what in ("curves", "comparisons", "paths"):
        text = shown([folder, "--at", "10,2**5", "--table", what, "--format", "csv"], capsys)
        assert {row["step"] for row in csv.DictReader(io.StringIO(text))} == {"10", "32", "64"}
    assert "--table curves or paths or comparisons" in refusal([folder, "--at", "10", "--format", "csv"], capsys)


@pytest.mark.parametrize("what", ["summary", "trials", "agents", "curves", "paths", "comparisons"])
def test_csv_and_json_are_one_table(folder: str, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = Result.load(folder).table(what)
    rows = len(table["policy"])
    text = shown([folder, "--table", what, "--format", "csv"], capsys)
    assert text == table_text(table, "csv")
    assert len(list(csv.reader(io.StringIO(text), strict=True))) == rows + 1
    found = json.loads(shown([folder, "--table", what, "--format", "json"], capsys))
    assert len(found) == rows
    assert list(found[0]) == list(table)


def test_the_summary_is_the_default_table(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("csv", "json", "markdown", "latex"):
        by_name = shown([folder, "--table", "summary", "--format", form], capsys)
        assert shown([folder, "--format", form], capsys) == by_name


def test_a_summary_as_text_has_the_columns_that_matter_most(
    folder: str, swept: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown([folder, "--table", "summary"], capsys)
    assert shown([folder], capsys).startswith(f"summary (3 trials)\n{text}")
    assert "bytes_up" not in text
    assert shown([swept, "--table", "summary"], capsys).split()[:2] == ["num_agents", "policy"]


def test_columns_are_chosen_by_name_and_in_that_order(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown([folder, "--columns", "rounds,policy", "--format", "csv"], capsys).startswith("rounds,policy\n")
    text = shown([folder, "--columns", "policy,p_holm", "--table", "comparisons"], capsys)
    assert text.splitlines()[0].split() == ["policy", "p_holm"]
    assert "did you mean 'regret'" in refusal([folder, "--columns", "policy,regert"], capsys)
    assert "did you mean 'summary'" in refusal([folder, "--table", "sumary"], capsys)
    assert "did you mean 'regret'" in refusal([folder, "--columns", "regert", "--format", "latex"], capsys)


def test_a_swept_table_begins_with_the_values(swept: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown([swept, "--columns", "policy,regret", "--format", "csv"], capsys)
    assert text.startswith("num_agents,policy,regret\n2,all_arms,")
    assert shown([swept, "--columns", "policy,num_agents", "--format", "csv"], capsys).startswith("policy,num_agents\n")
    assert r"\multicolumn{2}{l}{num\_agents=4} \\" in shown(
        [swept, "--columns", "policy,regret", "--format", "latex"], capsys
    )


def test_the_method_stands_below_the_numbers(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    method = "mean with Student's 95 % interval (low, high) over 3 trials"
    words = " ".join(shown([folder], capsys).split())
    assert words.count(method) == 2
    assert "Student's t-test for pairs" in words
    assert method in " ".join(shown([folder, "--format", "markdown"], capsys).split())
    assert "Student" not in shown([folder, "--table", "trials", "--columns", "policy,regret"], capsys)


def test_one_trial_is_said_to_have_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "one")
    assert main(["run", *QUICK, *POLICIES, "--trials", "1", "--out", out, "--executor", "serial"]) == 0
    assert "from one trial, which has no interval" in capsys.readouterr().out
    first = json.loads(shown([out, "--format", "json"], capsys))[0]
    assert first["regret_low"] is first["regret_high"] is None
    assert "nan" not in shown([out], capsys)
    assert "mean over one trial" in shown([out, "--format", "latex"], capsys)


def test_trials_that_are_missing_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "few")
    assert main(["run", *QUICK, *POLICIES, "--trials", "5", "--trial", "3", "--out", out]) == 0
    assert "summary (1 of 5 trials)" in shown([out], capsys)


def test_latex_leaves_the_oracle_out_of_the_race(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown([folder, "--format", "latex"], capsys)
    (bold,) = [line for line in text.splitlines() if "mathbf" in line]
    assert bold.startswith((r"all\_arms & $\mathbf{", r"Local-UCB & $\mathbf{"))
    assert "the lowest mean, without Oracle" in text
    assert r"\caption{Regret per agent under $\mu_i$: mean" in shown(
        [folder, "--format", "latex", "--kind", "distribution_regret"], capsys
    )


PRIVATE = ["--policy", "Private-FedLinUCB epsilon=0.5 label=private", "--policy", "Uniform"]


def test_whoever_reads_a_table_sees_the_budget_of_privacy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main(["run", *QUICK, *PRIVATE, "--trials", "2", "--out", out, "--executor", "serial"]) == 0
    said = capsys.readouterr().out
    for text in (said, shown([out], capsys), shown([out, "--table", "summary"], capsys)):
        rows = [line for line in text.splitlines() if line.startswith(("policy ", "private ", "Uniform "))]
        heading, private, uniform = rows[:3]
        assert heading.endswith("epsilon  privacy_delta")
        assert private.split()[-2:] == ["0.500", "0.000010"]
        assert uniform.split()[-1] == "0"  # its rounds: no budget
        assert "the budget of differential privacy" in " ".join(text.split())
    assert " & epsilon & privacy delta" in shown([out, "--format", "latex"], capsys)
    page = (Path(out) / "report.html").read_text()
    assert "privacy_delta" in page
    assert "the budget that all reports of an agent keep together" in page
    assert "privacy_delta" in Result.load(out)._repr_html_()


def test_a_swept_budget_is_explained_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "sweep")
    over = ["--over", "private.epsilon=1.0,1e9", "--trials", "1", "--executor", "serial", "--out", out]
    assert main(["sweep", *QUICK, *PRIVATE, *over]) == 0
    table = json.loads(shown([out, "--format", "json"], capsys))
    assert [row["epsilon"] for row in table] == [1.0, None, 1e9, None]
    assert "the budget of differential privacy" in " ".join(shown([out], capsys).split())
