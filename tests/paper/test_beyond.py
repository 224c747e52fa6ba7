"""The comparison beyond the paper, on a small scale: what it runs, writes and decides."""

import csv
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedbandit_envs.cli.main import main
from fedbandit_envs.paper import beyond, goals, panels, robustness
from fedbandit_envs.protocol import registry

SMALL = beyond.BeyondScale(
    agents=3,
    long=2**6,
    short=2**4,
    families={name: replace(family, spreads=family.spreads[1:2]) for name, family in beyond.FAMILIES.items()},
    wrong=2**7,
    cases=(
        "all assumptions right",
        "centre of mu off by its spread",
        "noise of Student's t with 3 degrees",
        "2 agents",
    ),
)


@pytest.mark.slow
def test_every_setting_is_run_and_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})  # other tests may have registered policies that fail
    found = beyond.beyond(tmp_path, trials=1, executor="serial", scale=SMALL)
    settings = {name for family in SMALL.families for name in SMALL.families[family].settings(family)}
    assert set(found.long) == set(found.short) == settings == set(found.goals["setting"])
    assert found.robustness["case"] == list(SMALL.cases)
    assert {result.experiment.arguments["max_cycles"] for result in found.long.values()} == {2**6}
    assert {setting.partition("-")[0] for setting in found.long} == {"synthetic", "movielens", "household", "linear"}
    assert {"KK-UCB", "DisLinUCB", "Fed-CI", "Fed-PECD"} <= set(found.short["linear"].labels)
    names = ("report.md", "goals.csv", "robustness.csv", "long.csv", "spread.png", "communication.pdf")
    assert all((tmp_path / "beyond" / name).stat().st_size for name in names)
    with open(tmp_path / "beyond" / "goals.csv", newline="") as file:
        row = next(csv.DictReader(file))
    assert float(row["Fed-CI"]) == pytest.approx(found.long[row["setting"]].final("Fed-CI").mean())


def test_the_command_shows_the_goals(tmp_path, capsys, monkeypatch):
    shown = {"setting": ["synthetic-0.1"], "goal": ["holds"]}
    monkeypatch.setattr(beyond, "beyond", lambda *_, **__: beyond.Beyond({}, {}, shown, {}))
    few = panels.PaperScale(agents=(4,), compared_at=4, horizon=2**7, audited=2)
    monkeypatch.setattr(panels, "reproduce", partial(panels.reproduce, scale=few))
    main(["reproduce", "--beyond", "--panel", "a", "--trials", "2", "--executor", "serial", "--out", str(tmp_path)])
    assert "synthetic-0.1  holds" in capsys.readouterr().out


class FakeResult:
    def __init__(self, ours, theirs, alone, wrong):
        told = {"Exact-Thompson": [3, 4, 5], "Theta-Told": [3.9, 3, 2.1]}
        tuned = {"Fed-PECD, width 0.25": [50, 50, 50]}
        self.numbers = {"Fed-CI": ours, "Fed-PECD": theirs, "Local-Thompson": alone} | told | tuned
        self.wrong = wrong

    def final(self, label, name="mean_regret"):
        if name == "wrong_share":
            return np.full(3, self.wrong)
        return np.array(self.numbers[label]) if name == "mean_regret" else np.full(3, 100.0)


@pytest.mark.parametrize(
    ("ours", "wrong", "allowed", "goal", "alone", "told"),
    [
        ([8, 8.1, 8.2], 0.2, 0.1, "holds", "holds", "holds"),  # a tenth is 20, and 1.5 times what is told 10.5
        ([29, 30, 32], 0.2, 0.1, "fails", "fails", "fails"),
        ([29, 30, 32], 0.01, 1.0, "holds", "fails", "fails"),
        ([10, 20, 30], 0.2, 0.1, "undecided", "undecided", "undecided"),
    ],
)
def test_goals_are_decided_by_pairs(ours, wrong, allowed, goal, alone, told):
    result = FakeResult(ours, [199, 200, 201], [22, 20, 18], wrong)
    row = goals.goal_row("movielens-masked-0.1", result)
    assert (row["allowed of Fed-PECD"], row["goal"]) == (allowed, goal)
    assert (row["within 1.05 of no server"], row["within 1.5 of told"]) == (alone, told)
    assert row["ratio to no server"] == pytest.approx(np.mean(ours) / 20)
    assert row["ratio to told"] == pytest.approx(np.mean(ours) / 7)
    assert (row["largest run"], row["worst agent"], row["Fed-PECD, width 0.25"]) == (max(ours), 100, 50)
    assert goals.goal_row("linear", result)["within 1.5 of told"] == ""


def test_heavy_tailed_noise_has_the_scale_it_should_have():
    counts = np.full((200, 5), 40)
    sums = robustness._inverse_chi_squares(np.random.default_rng(0), counts)
    # Numbers 1 / chi^2_3 have mean 1 and no variance: the mean of 40,000 is within 10 % but for rare extremes.
    assert sums.shape == counts.shape
    assert sums.mean() / 40 == pytest.approx(1, rel=0.1)
    assert (robustness._inverse_chi_squares(np.random.default_rng(0), np.zeros((2, 2), dtype=int)) == 0).all()
