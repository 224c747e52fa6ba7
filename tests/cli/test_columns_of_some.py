"""Columns for policies whose agents wait or recommend arms: on the screen and in reports, and for no others."""

from pathlib import Path

import pytest

from fedbandit_envs.cli.main import main

pytestmark = pytest.mark.usefixtures("plain_plots")
QUICK = ["--env", "MultiArmed", "--set", "num_agents=9", "--set", "max_cycles=50", "--set", "means=[0.1,0.9,0.5]"]
QUICK += ["--set", "noise_std=1e-6", "--trials", "2", "--executor", "serial"]
SOME = ("admitted", "simple_regret", "wrong_recommended")


def played(tmp_path: Path, capsys: pytest.CaptureFixture[str], *policies: str) -> tuple[list[list[str]], str]:
    """The rows that were printed, headings first, and the text of the report."""
    chosen = [word for policy in policies for word in ("--policy", policy)]
    assert main(["run", *QUICK, *chosen, "--out", str(tmp_path)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[: 1 + len(policies)]]
    return rows, (tmp_path / "report.html").read_text()


def test_a_table_says_how_many_agents_are_admitted_and_how_good_their_recommended_arms_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Without noise one phase of 30 steps is enough, so nobody is admitted after the first 2. All are told the best arm.
    rows, page = played(tmp_path, capsys, "Fed2-UCB pulls_per_phase=10", "Uniform")
    assert rows[0][-3:] == list(SOME)
    assert rows[1][-3:] == ["2", "0", "0"]
    assert rows[2][-1] == "9"  # Uniform recommends nothing
    for name in SOME:
        assert f">{name.replace('_', ' ')}</th>" in page


def test_tables_of_other_policies_have_no_such_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, page = played(tmp_path, capsys, "Uniform", "Local-UCB")
    assert not set(SOME) & set(rows[0])
    assert "Agents that take part" not in page
