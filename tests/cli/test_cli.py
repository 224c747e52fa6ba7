"""The command `fedbandit`: what it prints, what it writes, and its exit codes."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import experiment_policies  # noqa: F401 - registers its policies
import pytest

import fedbandit_envs as fb
from fedbandit_envs.cli.main import COMMANDS, main, parser
from fedbandit_envs.cli.options import value_of
from fedbandit_envs.cli.sweep import values_of
from fedbandit_envs.paper import panels
from fedbandit_envs.problems.regrets import REGRETS, Regret

pytestmark = pytest.mark.usefixtures("plain_plots")  # every run with --out writes a report
QUICK = ["--env", "Synthetic", "--set", "num_agents=5", "--set", "num_arms=3", "--set", "max_cycles=2**6"]
FEDBANDIT = [sys.executable, "-m", "fedbandit_envs"]


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.strip()


def test_list_names_every_environment_and_policy_with_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    for name in (*fb.environment_ids(), *fb.policy_names(), "delta=0.1", "context_std=0.05"):
        assert name in text
    assert main(["list", "policies"]) == 0
    assert "Synthetic-v0" not in capsys.readouterr().out


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    from importlib.metadata import version

    assert capsys.readouterr().out == f"fedbandit {version('fedbandit-envs')}\n"


def help_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_names_every_command_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of([], capsys)
    for name in COMMANDS:
        assert re.search(rf"^ +{name}\s", text, re.MULTILINE)
        assert f"\n  fedbandit {name}" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_says_what_it_does_and_gives_examples_that_parse(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, text = COMMANDS[name], help_of([name], capsys)
    assert command.HELP in text
    assert command.EXAMPLES
    for example in command.EXAMPLES:
        assert f"\n  {example}\n" in text
        program, *arguments = shlex.split(example)
        assert program == "fedbandit"
        assert parser().parse_args(arguments).command == name


def test_the_parser_loads_nothing_of_the_library_but_the_command_line() -> None:
    program = "import sys, fedbandit_envs\nbefore = set(sys.modules)\n"
    program += "from fedbandit_envs.cli.main import parser\nparser(['--help'])"
    program += "\nprint(*[name for name in set(sys.modules) - before if name.startswith('fedbandit')])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = ran.stdout.split()
    assert "fedbandit_envs.cli.main" in loaded
    assert {name for name in loaded if not name.startswith("fedbandit_envs.cli")} == set()


def test_help_explains_every_kind_of_regret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Regret(lambda instance: instance.means, "an axis", "against one arm for all")
    monkeypatch.setitem(REGRETS, "my_regret", own)
    with pytest.raises(SystemExit):
        main(["plot", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    for name, regret in REGRETS.items():
        assert f"{name}: {regret.help}" in words


def test_run_shows_a_summary_and_writes_into_its_folder_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    policies = ["--policy", "Uniform", "--policy", "Fed-PECD delta=0.05 label=tight"]
    assert main(["run", *QUICK, *policies, "--trials", "2", "--out", "here", "--executor", "serial"]) == 0
    told = capsys.readouterr().out
    assert "tight" in told
    assert told.splitlines()[-1] == f"report: {Path('here') / 'report.html'}"
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    written = fb.Experiment.read("here/experiment.toml")
    assert written.arguments["max_cycles"] == 64
    assert written.policies[1].parameters["delta"] == 0.05


@pytest.mark.parametrize(
    ("label", "on_screen", "in_markdown"),
    [("a | b", "a | b", r"a \| b"), ("a\nb", r"a\nb", "a<br>b"), ("a\\|b", "a\\|b", r"a\\\|b")],
)
def test_a_label_with_bars_or_line_breaks_is_one_cell(
    label: str, on_screen: str, in_markdown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    policies = ["--policy", f"Uniform 'label={label}'", "--policy", "Oracle"]
    assert main(["run", *QUICK, *policies, "--trials", "1", "--out", out, "--executor", "serial"]) == 0
    header, first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{on_screen}  ")
    start = header.index("regret")  # the columns are aligned
    assert first[start - 1] == second[start - 1] == " "
    assert second[start:].startswith("0.0 ")
    assert main(["compare", out]) == 0
    assert capsys.readouterr().out.count(f"\n{on_screen}  ") == 2  # in the summary and in the comparisons
    assert main(["compare", out, "--format", "markdown"]) == 0
    summary = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(summary) == 4
    assert summary[2].startswith(f"| {in_markdown} | ")
    assert len({len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in summary}) == 1


def test_run_without_a_folder_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *QUICK, "--policy", "Uniform", "--trials", "1", "--executor", "serial"]) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["Synthetic", "MovieLens"])
def test_the_paper_is_a_name_for_its_settings(name: str, tmp_path: Path) -> None:
    small = ["--set", "max_cycles=64", "--trials", "1", "--executor", "serial", "--out", str(tmp_path)]
    assert main(["run", "--env", name, "--paper", *small]) == 0
    written = fb.Experiment.read(tmp_path / "experiment.toml")
    paper = panels.experiment(name.lower(), 100, trials=1)
    assert written.arguments | {"max_cycles": 2**17} == paper.resolved().arguments
    assert [spec.name for spec in written.policies] == ["Fed-PE", "Fed-PECD"]


def test_the_paper_s_settings_can_have_other_policies(tmp_path: Path) -> None:
    small = ["--set", "max_cycles=64", "--trials", "1", "--executor", "serial", "--out", str(tmp_path)]
    assert main(["run", "--env", "Synthetic", "--paper", "--policy", "Uniform", *small]) == 0
    written = fb.Experiment.read(tmp_path / "experiment.toml")
    assert (written.labels, written.arguments["error"]) == (["Uniform"], "classical")


def test_a_run_that_is_too_short_for_a_policy_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "--env", "Synthetic", "--policy", "Fed-PECD", "--policy", "Uniform", "--set", "num_agents=50"]
    command += ["--trials", "1", "--executor", "serial"]
    assert main(command) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Fed-PECD: at T = 8,192 only ")]
    assert "it needs about 16,522 steps; max_cycles=2**17 shows the gain." in line
    assert main([*command, "--set", "max_cycles=2**17"]) == 0
    assert "it needs about" not in capsys.readouterr().out


def test_a_dry_run_prints_a_file_that_run_reads_and_computes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    policies = ["--policy", "Uniform", "--policy", "Fed-PECD delta=0.05 label=tight"]
    assert main(["run", *QUICK, *policies, "--trials", "3", "--out", "here", "--dry-run"]) == 0
    assert list(tmp_path.iterdir()) == []
    text = capsys.readouterr().out
    assert text.endswith("# would compute 3 trials of 2 policies; nothing was run\n")
    (tmp_path / "experiment.toml").write_text(text)
    read = fb.Experiment.read(tmp_path / "experiment.toml")
    assert (read.labels, read.trials, read.arguments["max_cycles"]) == (["Uniform", "tight"], 3, 64)
    assert main(["sweep", *QUICK, *policies, "--over", "num_agents=2,3", "--over", "dropout=0,0.5", "--dry-run"]) == 0
    assert "# would compute 10 trials of 2 policies in each of 4 settings" in capsys.readouterr().out
    assert main(["sweep", *QUICK, *policies, "--over", "num_agnts=2,3", "--dry-run"]) == 2


def test_a_file_names_environments_as_options_do(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text('environment = "Synthetic"\npolicies = ["Uniform"]\n')
    assert fb.Experiment.read(tmp_path / "e.toml").environment == "fedbandit/Synthetic-v0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('environment = "Synthetic"\npolicies = [{name = ["x"]}]', "name of a policy: expected text, got ['x']"),
        (
            'environment = "Synthetic"\npolicies = [{name = "Uniform", label = 3}]',
            "label of Uniform: expected text, got 3",
        ),
        ('environment = ["x"]\npolicies = ["Uniform"]', "environment: expected text, got ['x']"),
        ('environment = "Synthetic"\npolicies = 3', "policies: expected a list of one or more, got 3"),
        ('environment = "Synthetic"\npolicies = ["Uniform"]\ntrials = 1000000000000000000', "trials: expected at most"),
    ],
)
def test_wrong_values_in_a_file_are_told_in_words(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e.toml").write_text(text)
    assert main(["run", str(tmp_path / "e.toml")]) == 2
    assert message in error_of(capsys)


def test_a_file_can_be_changed_by_options(tmp_path: Path) -> None:
    fb.Experiment("fedbandit/Synthetic-v0", ["Uniform"], {"num_agents": 4, "max_cycles": 10}).write(tmp_path / "e.toml")
    options = ["--trials", "2", "--seed", "5", "--set", "num_agents=3", "--policy", "Oracle"]
    assert (
        main(["run", str(tmp_path / "e.toml"), *options, "--out", str(tmp_path / "out"), "--executor", "serial"]) == 0
    )
    written = fb.Experiment.read(tmp_path / "out" / "experiment.toml")
    assert (written.trials, written.seed, written.labels) == (2, 5, ["Oracle"])
    assert (written.arguments["num_agents"], written.arguments["max_cycles"]) == (3, 10)


def test_sweep_compare_and_plot_work_on_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "sweep")
    policies = ["--policy", "Uniform", "--policy", "Oracle"]
    over = ["--over", "num_agents=2,4", "--trials", "2", "--executor", "serial"]
    assert main(["sweep", *QUICK, *policies, *over, "--out", out]) == 0
    assert {"sweep.csv", "sweep.pdf", "sweep.png"} <= {path.name for path in (tmp_path / "sweep").iterdir()}
    capsys.readouterr()
    assert main(["compare", out, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    expected = [(2, "Uniform"), (2, "Oracle"), (4, "Uniform"), (4, "Oracle")]
    assert [(row["num_agents"], row["policy"]) for row in rows] == expected
    assert main(["compare", f"{out}/num_agents=2", "--kind", "paper_regret"]) == 0
    assert "comparisons (2 trials)" in capsys.readouterr().out
    assert main(["plot", f"{out}/num_agents=2", "--figure", "agents", "--format", "svg"]) == 0
    assert (tmp_path / "sweep" / "num_agents=2" / "agents.svg").stat().st_size > 1000
    assert main(["plot", out, "--out", str(tmp_path / "figures")]) == 0
    assert (tmp_path / "figures" / "sweep.pdf").exists()


def test_a_sweep_over_several_parameters_is_a_grid_and_says_what_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "grid"
    over = ["--over", "num_agents=2:4:2", "--over", "Fed-PECD.delta=0.05,0.1", "--trials", "2", "--executor", "serial"]
    assert main(["sweep", *QUICK, "--policy", "Fed-PECD", *over, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].split()[:3] == ["num_agents", "Fed-PECD.delta", "policy"]
    folders = {path.name for path in out.iterdir() if path.is_dir()}
    assert folders == {f"num_agents={m},Fed-PECD.delta={delta}" for m in (2, 4) for delta in (0.05, 0.1)}
    assert f"written to {out}: sweep.csv, sweep.pdf, sweep.png, and a folder of results for each of 4 settings" in text
    assert f"next: fedbandit compare {out}" in text
    assert main(["compare", str(out)]) == 0
    assert "num_agents=4, Fed-PECD.delta=0.1: summary" in capsys.readouterr().out
    assert main(["plot", str(out), "--format", "svg"]) == 0
    assert (out / "sweep.svg").read_text().count("Fed-PECD.delta=0.") == 2


def test_a_sweep_says_what_to_know_about_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """Without it, parameters of a policy that has not eliminated anything would seem to change nothing."""
    command = ["sweep", "--env", "Synthetic", "--policy", "Fed-PECD", "--set", "num_agents=5", "--trials", "1"]
    assert main([*command, "--over", "max_cycles=32,64,128", "--executor", "serial"]) == 0
    out = capsys.readouterr().out
    assert "\nmax_cycles=32: Fed-PECD: at T = 32 only 0% of the agents have one arm left" in out
    assert "\nand 1 more such lines" in out


def test_a_sweep_without_a_folder_says_that_nothing_was_kept(capsys: pytest.CaptureFixture[str]) -> None:
    over = ["--over", "num_agents=2", "--trials", "1", "--executor", "serial"]
    assert main(["sweep", *QUICK, "--policy", "Uniform", *over]) == 0
    assert "nothing was kept; --out FOLDER keeps the results" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("50:200:50", [50, 100, 150, 200]),
        ("50:199:50", [50, 100, 150]),
        ("0.1:0.5:0.1", [0.1, 0.2, 0.3, 0.4, 0.5]),
        ("3:1:-1", [3, 2, 1]),
        ("2**3:2**4:4", [8, 12, 16]),
        ("1e2:3e2:1e2", [100, 200, 300]),
        ("7", [7]),
        ("a:b:c", ["a:b:c"]),
    ],
)
def test_a_range_has_its_last_value_if_the_steps_meet_it(text: str, values: list[object]) -> None:
    assert values_of(text) == values


def test_audit_prints_the_claims_and_passes_an_honest_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *QUICK, "--policy", "Fed-PE"]) == 0
    assert "scalars sent, both ways" in capsys.readouterr().out


def test_an_audit_of_several_trials_counts_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *QUICK, "--policy", "Fed-PE", "--trials", "3"]) == 0
    rows = {line[: line.index("  ")]: line for line in capsys.readouterr().out.splitlines() if "trials" in line}
    assert rows["scalars sent, both ways"].endswith("true in 3 of 3 trials, claimed in 3")
    assert main(["audit", *QUICK, "--policy", "Fed-PE", "--trials", "3", "--trial", "1"]) == 2
    assert "expected --trial or --trials, got both" in error_of(capsys)


def test_an_audit_of_several_trials_says_why_a_claim_is_not_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *QUICK, "--policy", "Fed-PECD", "--trials", "2"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "eliminated" in line]
    assert "claimed in none (" in row


def test_an_audit_of_many_trials_gives_one_of_many_reasons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = iter("abcdabaaa")
    uniform = type(fb.make_policy("Uniform"))
    monkeypatch.setattr(uniform, "claims", lambda policy, history: [fb.Claim("it", 0, 1, unless=next(reasons))])
    for trials, told in ((4, "(a, and 3 other reasons)"), (2, "(a; b)"), (3, "(a)")):
        assert main(["audit", *QUICK, "--policy", "Uniform", "--trials", str(trials)]) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("it ")]
        assert line.endswith(f"claimed in none {told}")


def test_figures_of_another_kind_of_regret_are_files_of_their_own(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["run", *QUICK, "--policy", "Uniform", "--trials", "2", "--executor", "serial", "--out", str(out)]) == 0
    plot = ["plot", str(out), "--figure", "regret", "--format", "svg"]
    assert main(plot) == main([*plot, "--kind", "paper_regret"]) == 0
    assert {path.name for path in out.glob("*.svg")} == {"regret.svg", "regret_paper_regret.svg"}


def test_a_kind_of_regret_that_a_problem_lacks_is_refused_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    stream = ["--set", "context=streaming", "--policy", "KK-UCB", "--policy", "Lin-Hidden", "--trials", "2"]
    assert main(["run", *QUICK, *stream, "--executor", "serial", "--out", out]) == 0
    for command in ("compare", "plot"):
        assert main([command, out, "--kind", "group_regret"]) == 2
        assert "kind: expected one that this problem has, got 'group_regret'" in error_of(capsys)


def test_an_audit_fails_when_a_claim_fails_in_one_of_several_trials(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = iter([-1, 2, 0])
    uniform = type(fb.make_policy("Uniform"))
    monkeypatch.setattr(uniform, "claims", lambda policy, history: [fb.Claim("at most zero", 0, next(measured))])
    assert main(["audit", *QUICK, "--policy", "Uniform", "--trials", "3"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("at most zero")]
    assert " ".join(line.split()) == "at most zero 0 2 true in 2 of 3 trials, claimed in 3"


def test_audit_fails_when_a_claim_does(monkeypatch: pytest.MonkeyPatch) -> None:
    false = fb.Claim("one is at most zero", 0, 1)
    monkeypatch.setattr(type(fb.make_policy("Uniform")), "claims", lambda policy, history: [false])
    assert main(["audit", *QUICK, "--policy", "Uniform"]) == 1


def test_data_check_counts_the_eligible_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check"]) == 0
    assert "completed: 943 users, 30 arms, 802 eligible users" in capsys.readouterr().out
    (tmp_path / "u.data").write_text("1\t1\t5\t0\n")
    assert main(["data", "check", str(tmp_path / "u.data")]) == 2
    assert "is not the u.data of MovieLens-100K" in error_of(capsys)
    with pytest.raises(SystemExit) as ended:
        main(["data", "fetch"])
    assert ended.value.code == 2


FAILS = "experiment_policies:FailsSometimes"


def test_a_failing_trial_gives_exit_code_1_and_the_command_that_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert main(["run", *QUICK, "--policy", FAILS, "--trials", "8", "--out", out, "--executor", "serial"]) == 1
    first, second, *_ = error_of(capsys).splitlines()
    assert "failed: TwoArgumentsError: no luck" in first
    command = second.strip().removeprefix("alone: fedbandit ").split()
    trial = command[command.index("--trial") + 1]
    assert main([argument for argument in command if argument != "--debug"]) == 1
    assert f"trial {trial} (seed" in error_of(capsys)
    finished = {int(path.stem.removeprefix("trial_")) for path in (tmp_path / "out").glob("runs/*/trial_*")}
    assert finished
    assert int(trial) not in finished


def test_only_a_few_of_many_failures_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    policy = ["--policy", "Test-Fails share=1.0"]
    assert main(["run", *QUICK, *policy, "--trials", "9", "--executor", "serial"]) == 1
    lines = error_of(capsys).splitlines()
    assert (len(lines), lines[-1]) == (11, "and 4 more trials")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "expected an experiment FILE, or --env and --policy"),
        (["run", "nowhere.toml"], "nowhere.toml: expected a readable experiment file"),
        (["run", "--env", "Synthetc", "--policy", "Uniform"], "did you mean 'fedbandit/Synthetic-v0'"),
        (["run", *QUICK, "--policy", "Unifrm"], "did you mean 'Uniform'"),
        (["run", *QUICK, "--policy", "Fed-PE delt=1"], "did you mean 'delta'"),
        (["run", *QUICK, "--policy", "Uniform", "--set", "T=100"], "did you mean 'max_cycles'?"),
        (["run", *QUICK, "--policy", "Uniform", "--set", "K=3"], "did you mean 'num_arms'?"),
        (["run", "--env", "Household", "--paper"], "environment of the paper: expected one of"),
        (["run", "--paper", "--policy", "Uniform"], "--paper: expected --env Synthetic or --env MovieLens"),
        (["run", *QUICK, "--policy", "Uniform", "--trials", "0"], "trials: expected a whole number of at least 1"),
        (["run", *QUICK, "--policy", "Uniform", "--set", "dim"], "expected KEY=VALUE, got 'dim'"),
        (["run", *QUICK, "--policy", "Uniform", "--executor", "seral"], "did you mean 'serial'"),
        (["run", *QUICK, "--policy", "Uniform", "--workers", "0"], "expected a whole number of at least 1, got 0"),
        (["run", *QUICK, "--policy", "Uniform", "--workers", "2", "--executor", "serial"], "got both"),
        (
            ["run", *QUICK, "--policy", "Uniform", "--trial", "-1"],
            "trial: expected a whole number of at least 0, got -1",
        ),
        (["sweep", *QUICK, "--policy", "Uniform", "--over", "dim"], "--over: expected NAME=V1,V2"),
        (["sweep", *QUICK, "--policy", "Uniform", "--over", "dim=2", "--over", "dim=3"], "got 'dim' again"),
        (["sweep", *QUICK, "--policy", "Uniform", "--over", "dim=2:4"], "got '2:4' without a step"),
        (["sweep", *QUICK, "--policy", "Uniform", "--over", "dim=2:4:0"], "a step that leads from first to last"),
        (["sweep", *QUICK, "--policy", "Uniform", "--over", "dim=2:4:-1"], "a step that leads from first to last"),
        (["sweep", *QUICK, "--policy", "Uniform", "--over", "dim=2:1e18:1"], "expected at most 10,000 values"),
        (["sweep", *QUICK, "--policy", "Uniform", "--over", "dimm=2,3"], "did you mean 'dim'"),
        (["sweep", *QUICK, "--policy", "Fed-PE", "--over", "Fed-PE.delt=0.1"], "did you mean 'delta'"),
        (["reproduce", "--trials", "0", "--out", "x"], "trials: expected a whole number of at least 1"),
        (["run", "x.py"], "got a program; start it with `python x.py`, or use a policy of it with --policy x:"),
        (["run", *QUICK, "--policy", "Uniform", "--set", "seed=3"], "got 'seed=3'; use --seed 3"),
        (["run", "--env", "my.npz", "--policy", "Uniform"], "got the file my.npz; use --env File --set path=my.npz"),
        (["run", *QUICK, "--policy", "Uniform,Fed-PE delta=0.2"], "--policy Uniform --policy 'Fed-PE delta=0.2'"),
    ],
)
def test_wrong_settings_give_exit_code_2_and_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    text = error_of(capsys)
    assert text.startswith("fedbandit: error: ")
    assert message in text
    assert "\n" not in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["compare", "nowhere"], ["plot", "nowhere"]])
def test_a_folder_without_results_gives_exit_code_1(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    assert "nowhere: expected the results of a run or of one sweep, got no such folder" in error_of(capsys)


def test_settings_that_need_too_much_memory_are_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--env", "Synthetic", "--policy", "Uniform", "--set", "num_agents=10**15"]) == 2
    assert "num_agents: expected" in error_of(capsys)
    assert main(["run", "--env", "Synthetic", "--policy", "Uniform", "--set", "num_arms=10**12"]) == 1
    assert error_of(capsys).startswith("fedbandit: error: not enough memory for these settings. Unable to allocate")


def test_wrong_grammar_gives_exit_code_2() -> None:
    for arguments in ([], ["rum"], ["reproduce", "--panel", "e"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", *QUICK, "--policy", "Uniform", "--trails", "3"], "got --trails; did you mean '--trials'"),
        (["run", *QUICK, "--policy", "Uniform", "--max-cycles", "100"], "; write --set max_cycles=..."),
        (["run", *QUICK, "--policy", "Uniform", "--horizon=100"], "; write --set max_cycles=..."),
        (["plot", "folder", "--fgure=regret"], "got --fgure=regret; did you mean '--figure'"),
        (["report", "one", "two"], "fedbandit report: error: expected the arguments of its --help, got two\n"),
    ],
)
def test_an_unknown_option_is_answered_with_the_nearest(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err


def test_debug_shows_the_traceback() -> None:
    for arguments in (["--debug", "run", "nowhere.toml"], ["run", "nowhere.toml", "--debug"]):
        with pytest.raises(ValueError, match=r"nowhere\.toml"):
            main(arguments)


@pytest.mark.slow
def test_it_works_without_a_terminal(tmp_path: Path) -> None:
    command = [*FEDBANDIT, "run", *QUICK, "--policy", "Uniform", "--trials", "2", "--out", str(tmp_path / "out")]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0
    assert ran.stderr == ""
    assert "Uniform" in ran.stdout


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    slow = ["--env", "Synthetic", "--policy", "Fed-PECD", "--set", "max_cycles=2**16", "--trials", "500"]
    command = [*FEDBANDIT, "run", *slow, "--out", str(tmp_path / "out"), "--workers", "1"]
    # As a terminal does, the signal goes to the whole group: workers must leave it to their parent.
    run = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # ignored in a shell's background
    )
    while not list((tmp_path / "out").glob("runs/*/trial_*")):
        assert run.poll() is None
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "of 500 trials, which are kept in" in errors
    assert "the same command goes on from there" in errors
    assert "Traceback" not in errors


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    run = subprocess.Popen([*FEDBANDIT, "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.close()
    errors = run.stderr.read()
    run.wait()
    run.stderr.close()
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize("command", [["run"], ["sweep", "--over", "dim=2,3"]])
def test_a_reader_that_leaves_early_still_gets_all_files(command: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [*FEDBANDIT, *command, *QUICK, "--policy", "Uniform", "--executor", "serial", "--out", str(out)]
    run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert run.stdout is not None
    run.stdout.close()
    run.wait()
    assert (out / ("report.html" if command == ["run"] else "sweep.pdf")).exists()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("(0.1, 0.2)", [0.1, 0.2]),
        ("(not a pair)", "(not a pair)"),
        ("2**17", 131072),
        ("2^3", 8),
        ("0.5", 0.5),
        ("1e4", 10_000),
        ("1.5e3", 1500),
        ("1e-3", 0.001),
        ("true", True),
        ("False", False),
        ("[0.1, 0.2]", [0.1, 0.2]),
        ("classical", "classical"),
        ("1979-05-27", "1979-05-27"),
        ("3\nb = 4", "3\nb = 4"),
    ],
)
def test_values_are_read_as_toml_or_as_text(text: str, value: object) -> None:
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


def test_a_power_that_would_fill_the_memory_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert main(["run", *QUICK, "--policy", "Uniform", "--set", "max_cycles=9**999999999"]) == 2
    assert "expected a number of at most 2**63 - 1, got '9**999999999'" in error_of(capsys)
    assert value_of("2**62") == 2**62
    assert time.monotonic() - began < 5


SHARED = ["--env", "SharedArms", "--set", "num_agents=3", "--set", "num_arms=4"]


@pytest.mark.slow
def test_shared_arms_are_run_reported_drawn_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("OrchExplore", "Shared-Uniform", "Shared-Oracle")
    policies = [word for name in names for word in ("--policy", name)]
    out = str(tmp_path / "out")
    several = ["--set", "max_cycles=40", "--trials", "2", "--executor", "serial", "--out", out]
    assert main(["run", *SHARED, *policies, *several]) == 0
    assert main(["run", *SHARED, "--policy", "OrchExplore", "--set", "max_cycles=40", "--trials", "1"]) == 0
    assert main(["report", out]) == 0
    assert main(["plot", out]) == 0
    capsys.readouterr()
    assert main(["compare", out]) == 0
    table = capsys.readouterr().out
    assert all(name in table for name in names)
    assert {"report.html", "regret.png"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_shared_arms_are_swept_and_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = ["--over", "max_cycles=20,30", "--trials", "1", "--executor", "serial", "--out", str(tmp_path)]
    assert main(["sweep", *SHARED, "--policy", "OrchExplore", *sweep]) == 0
    assert (tmp_path / "sweep.csv").exists()
    capsys.readouterr()
    assert main(["audit", *SHARED, "--policy", "OrchExplore", "--set", "max_cycles=40"]) == 0
    assert "scalars up in the ledger differ from the messages by" in capsys.readouterr().out
