"""The paper's panels, at a size that takes seconds; and verdicts that can go each way."""

import csv
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import COMPILED_OR_NOT

import fedbandit_envs as fb
from fedbandit_envs.cli.main import main
from fedbandit_envs.paper import grid, panels
from fedbandit_envs.paper.verdicts import EXACT, HIDDEN, exact_below_hidden, falls_with_agents, theory
from fedbandit_envs.rounds.ledger import COUNTS

SMALL = panels.PaperScale(agents=(4, 6, 8), compared_at=6, horizon=2**8, audited=2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, panels.Reproduction]:
    """All panels, once."""
    out = tmp_path_factory.mktemp("whole")
    return out, panels.reproduce(out, trials=3, executor="serial", scale=SMALL)


@pytest.fixture
def small_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command `fedbandit reproduce`, which has no options for its scale, at a small one."""
    monkeypatch.setattr(panels, "reproduce", partial(panels.reproduce, scale=SMALL))


def test_reproduce_writes_figure_numbers_verdicts_and_report(whole: tuple[Path, panels.Reproduction]) -> None:
    out, found = whole
    names = {path.name for path in out.iterdir()}
    tables = {f"{table}{suffix}" for table in ("numbers", "verdicts") for suffix in (".csv", ".json", ".md")}
    assert names == {"figure.pdf", "figure.png", "report.md", "trials"} | tables
    assert sorted(found.results) == sorted(f"{p}-M{m}" for p in ("synthetic", "movielens") for m in (4, 6, 8))
    with open(out / "numbers.csv") as file:
        assert len(list(csv.DictReader(file))) == 12
    claims = {(verdict.panel, verdict.claim) for verdict in found.verdicts}
    assert {("a", "exact below hidden"), ("c", "exact below hidden")} <= claims
    assert ("d", f"{HIDDEN}: regret per agent falls from M = 6 to 8") in claims
    assert ("c", "exact: communication is within the bound") in claims
    report = (out / "report.md").read_text()
    assert all(verdict.claim in report for verdict in found.verdicts)


def test_one_panel_runs_only_what_it_needs(tmp_path: Path) -> None:
    found = panels.reproduce(tmp_path, "a", trials=2, executor="serial", scale=SMALL)
    assert list(found.results) == ["synthetic-M6"]
    assert {verdict.panel for verdict in found.verdicts} == {"a"}


def test_panels_share_their_runs(tmp_path: Path) -> None:
    panels.reproduce(tmp_path, "a", trials=2, executor="serial", scale=SMALL)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("trials/*/runs/*/trial_*")}
    panels.reproduce(tmp_path, "ab", trials=2, executor="serial", scale=SMALL)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_figure_has_the_four_panels(whole: tuple[Path, panels.Reproduction]) -> None:
    results = whole[1].results
    axes = panels.figure(results, scale=SMALL).axes
    assert [ax.get_title()[:3] for ax in axes] == ["(a)", "(b)", "(c)", "(d)"]
    assert [len(ax.lines) for ax in axes] == [2, 3, 2, 3]
    assert len(panels.figure(results, "b", SMALL).axes) == 1


def test_the_paper_s_settings_are_as_stated() -> None:
    assert [panels.PaperScale().agents_of(panel) for panel in "abcd"] == [(100,), (50, 100, 150)] * 2
    for problem, noise in (("synthetic", 1.0), ("movielens", 1e-3)):
        experiment = panels.experiment(problem, 100, 1).resolved()
        assert experiment.arguments["error"] == "classical"
        assert experiment.arguments["noise_std"] == noise
        assert experiment.arguments["max_cycles"] == 2**17
        for spec in experiment.policies:
            chosen = {name: spec.parameters[name] for name in ("delta", "width", "sigma", "first", "growth")}
            assert chosen == {"delta": 0.1, "width": 1.0, "sigma": 1.0, "first": 1, "growth": 2}


@pytest.mark.usefixtures("small_command")
@pytest.mark.parametrize("compiled", COMPILED_OR_NOT)
def test_the_report_says_whether_it_is_of_compiled_runs(tmp_path: Path, compiled: bool) -> None:
    options = ["--panel", "a", "--trials", "2", "--out", str(tmp_path), "--executor", "serial"]
    main(["reproduce", *options, *["--compiled"] * compiled])
    assert ("2 trials, seed 0, compiled." in (tmp_path / "report.md").read_text()) == compiled
    ran = fb.Result.load(tmp_path / "trials" / "synthetic-M6").experiment.policies
    assert [spec.parameters["compiled"] for spec in ran] == [compiled] * 2


@pytest.mark.usefixtures("small_command")
def test_the_command_prints_verdicts_and_explains_what_does_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["reproduce", "--panel", "a", "--trials", "2", "--out", str(tmp_path), "--executor", "serial"])
    text = capsys.readouterr().out
    assert code == int("fails" in text)
    assert "exact below hidden" in text
    assert "exact: coverage of at least 0.9: undecided. all estimates within their widths in 2 of 2 runs" in text
    assert text.splitlines()[-1] == f"report: {tmp_path / 'report.html'}"
    page = (tmp_path / "report.html").read_text()
    assert "statements of the paper" in page
    assert "<summary>synthetic-M6</summary>" in page


def test_the_grid_has_a_row_per_cell_with_both_verdicts(tmp_path: Path) -> None:
    cells = [cell for cell in grid.all_cells() if (cell.context_std, cell.width) == (0.05, 1.0)]
    table = grid.grid(tmp_path, trials=2, executor="serial", cells=cells, scale=SMALL)
    assert len(table["problem"]) == 4
    assert set(table["error"]) == {"classical", "berkson"}
    text = (tmp_path / "grid.md").read_text()
    assert text.count("\n| ") == 6
    assert 'so there "exact below hidden" can reverse' in text
    assert set(table["exact_below_hidden"]) <= {"holds", "fails", "undecided"}


# --- verdicts, on results made by hand ------------------------------------------------------------------------------


def made(exact: Any, hidden: Any, claims: list[dict[str, Any]] | None = None) -> fb.Result:
    """A result of two agents whose runs end at these regrets per agent."""
    records = []
    for trial, pair in enumerate(zip(exact, hidden, strict=True)):
        policies = {}
        for place, value in enumerate(pair):
            run = {
                "steps": np.array([8]),
                "curves": np.array([[value]]),
                "curve_rows": {"mean_regret": 0},
                "agents": np.full((1, 2), value),
                "agent_rows": {"regret": 0},
                "totals": dict.fromkeys((*COUNTS, "rounds"), 0),
            }
            if claims is not None:
                run["audit"] = {str(number): claim for number, claim in enumerate(claims)}
            policies[str(place)] = run
        records.append({"trial": trial, "seed": "0", "policies": policies})
    return fb.Result(replace(panels.experiment("synthetic", 2, 1), trials=len(records)), records)


NOISE = np.random.default_rng(0).normal(size=12)


def test_exact_below_hidden_goes_each_way() -> None:
    low, high = 10 + NOISE, 20 + 2 * NOISE
    assert exact_below_hidden("a", made(low, high)).verdict == "holds"
    reversed_claim = exact_below_hidden("a", made(high, low))
    assert reversed_claim.verdict == "fails"
    assert "the opposite of the claim" in reversed_claim.explanation
    assert exact_below_hidden("a", made(low, low - NOISE + NOISE[::-1])).verdict == "undecided"


def test_falling_with_agents_is_judged_step_by_step() -> None:
    by_agents = {m: made(NOISE, base + NOISE * scale) for m, base, scale in ((50, 30, 1), (100, 10, 2), (150, 20, 3))}
    assert [verdict.verdict for verdict in falls_with_agents("b", by_agents, HIDDEN)] == ["holds", "fails"]


def test_one_trial_decides_nothing_and_the_verdict_says_why() -> None:
    found = exact_below_hidden("a", made([1.0], [2.0]))
    assert (found.measured, found.verdict) == (1, "undecided")
    assert np.isnan([found.low, found.high]).all()
    assert found.explanation.endswith("one trial has no interval; more trials would decide")


def claim(name: str, holds: bool, claimed: bool = True) -> dict[str, Any]:
    return {"claim": name, "bound": 1.0, "measured": 0.5 if holds else 2.0, "claimed": claimed, "holds": holds}


def test_theory_is_judged_on_audited_runs() -> None:
    names = ["largest error of an estimate, in widths", "agents that eliminated their best arm"]
    names += ["regret of a phase, as a share of its bound", "total regret, as a share of its bound"]
    rows = [claim(name, True) for name in names] + [claim("scalars sent, both ways", False)]
    found = {verdict.claim: verdict for verdict in theory("a", made([1.0] * 50, [1.0] * 50, rows), 0.1)}
    assert found["exact: coverage of at least 0.9"].verdict == "holds"
    assert found["exact: communication is within the bound"].verdict == "fails"
    few = theory("a", made([1.0] * 5, [1.0] * 5, rows), 0.1)
    assert few[0].verdict == "undecided"
    uncovered = [claim(names[0], False), *(claim(name, False, claimed=False) for name in names[1:]), rows[-1]]
    lost = {verdict.claim: verdict.verdict for verdict in theory("a", made([1.0] * 50, [1.0] * 50, uncovered), 0.1)}
    assert lost["exact: coverage of at least 0.9"] == "fails"
    assert not any("best arm" in name for name in lost)  # nothing is claimed of runs that are not covered


def test_no_audits_no_verdicts_on_theory() -> None:
    assert theory("a", made([1.0], [2.0]), 0.1) == []


def test_labels_are_those_of_the_experiments() -> None:
    assert panels.experiment("synthetic", 10, 1).labels == [EXACT, HIDDEN]


# --- the script -----------------------------------------------------------------------------------------------------

SCRIPTS = Path(__file__).parents[2] / "scripts"


def copied(tmp_path: Path, name: str) -> Path:
    (tmp_path / "scripts").mkdir()
    for file in (name, "venv.sh"):
        (tmp_path / "scripts" / file).write_text((SCRIPTS / file).read_text())
    return tmp_path / "scripts" / name


@pytest.mark.parametrize("name", ["reproduce", "test"])
def test_a_script_says_which_python_it_found_and_what_to_install(tmp_path: Path, name: str) -> None:
    old = tmp_path / "python-old"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.8.1" && exit 0\nexit 1\n')
    old.chmod(0o755)
    shim = tmp_path / "python-shim"  # as pyenv leaves them for versions that are not there
    shim.write_text("#!/bin/sh\necho command not found >&2\nexit 127\n")
    shim.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": f"nowhere {shim} {old}"}
    ran = subprocess.run(["bash", copied(tmp_path, name)], capture_output=True, text=True, env=environment)
    assert ran.returncode == 1
    assert f"expected Python 3.11 or newer, found: Python 3.8.1 ({old})" in ran.stderr
    assert "install one" in ran.stderr
    assert not (tmp_path / ".venv").exists()


def test_the_script_passes_its_options_on(tmp_path: Path) -> None:
    script = copied(tmp_path, "reproduce")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name, body in (("python", "exit 0"), ("fedbandit", 'echo "$@"')):
        program = tmp_path / ".venv" / "bin" / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    ran = subprocess.run(["bash", script, "--panel", "a"], capture_output=True, text=True, check=True)
    assert ran.stdout == "reproduce --out results/reproduce --panel a\n"
