"""A folder of results grows, never uses what is stale, and refuses what is not its own."""

import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from experiment_policies import small

import fedbandit_envs as fb
from fedbandit_envs import storage
from fedbandit_envs.cli.main import main
from fedbandit_envs.experiments import identity, provenance
from fedbandit_envs.experiments.description import checksum
from fedbandit_envs.experiments.folder import FolderError
from fedbandit_envs.experiments.identity import run_identities

POLICIES = ["Test-One-Arm", "Fed-PECD", "Fed-PE"]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, byte for byte."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def one(folder: Path, policy: str, trial: int) -> Path:
    (file,) = folder.glob(f"runs/{policy}-*/trial_{trial:06d}.npz")
    return file


# --- growth -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_any_order_of_growth_gives_the_same_bytes(tmp_path: Path) -> None:
    fb.run(small(), tmp_path / "whole", "serial")
    for policy in POLICIES:
        fb.run(small(policies=[policy]), tmp_path / "by policies", "processes:2")
    for trials in (2, 5):
        fb.run(small(trials=trials), tmp_path / "by trials", "serial")
    for trial in (4, 0, 3, 1, 2):
        fb.run(small(), tmp_path / "trial by trial", "serial", only=[trial])
    for policy, trials in (("Fed-PE", 3), ("Test-One-Arm", 5), ("Fed-PECD", 1)):
        fb.run(small(policies=[policy], trials=trials), tmp_path / "mixed", "serial")
    fb.run(small(), tmp_path / "mixed", "processes:3")
    whole = contents(tmp_path / "whole")
    assert len(whole) == 1 + 3 * 5
    for name in ("by policies", "by trials", "trial by trial"):
        assert contents(tmp_path / name) == whole, name
    whole.pop("experiment.toml")  # lists the policies in the order in which they came
    mixed = contents(tmp_path / "mixed")
    assert mixed.pop("experiment.toml")
    assert mixed == whole


def test_only_what_is_missing_is_computed_and_the_notes_say_so(tmp_path: Path) -> None:
    fb.run(small(trials=3, policies=["Uniform"]), tmp_path, "serial")
    before = contents(tmp_path / "runs")
    result = fb.run(small(trials=4, policies=["Uniform", "Oracle"]), tmp_path, "serial")
    assert result.notes == ["Uniform: 3 trials reused, 1 computed", "Oracle: 0 trials reused, 4 computed"]
    assert contents(tmp_path / "runs").items() >= before.items()
    again = fb.run(small(trials=4, policies=["Uniform", "Oracle"]), tmp_path, "serial")
    assert again.notes == ["nothing was left to compute: all trials were there"]
    np.testing.assert_equal(again.table(), result.table())


def test_a_policy_that_is_asked_for_twice_is_computed_once(tmp_path: Path) -> None:
    twice = small(policies=["Uniform", {"name": "Uniform", "label": "again"}], trials=2)
    result = fb.run(twice, tmp_path, "serial")
    assert result.trials == [0, 1]
    assert len(list(tmp_path.glob("runs/*/trial_*"))) == 2
    assert fb.Result.load(tmp_path).labels == ["Uniform", "again"]


def test_a_new_label_is_no_new_run(tmp_path: Path) -> None:
    fb.run(small(policies=["Uniform", "Oracle"]), tmp_path, "serial")
    renamed = fb.run(small(policies=[{"name": "Uniform", "label": "random"}]), tmp_path, "serial")
    assert renamed.notes == ["nothing was left to compute: all trials were there"]
    assert sorted(fb.Result.load(tmp_path).labels) == ["Oracle", "random"]


def test_fewer_trials_or_policies_do_not_shrink_what_the_folder_shows(tmp_path: Path) -> None:
    fb.run(small(), tmp_path, "serial")
    asked = fb.run(small(trials=2, policies=["Fed-PE"]), tmp_path, "serial")
    assert (asked.trials, asked.labels) == ([0, 1], ["Fed-PE"])
    whole = fb.Result.load(tmp_path)
    assert (whole.trials, whole.labels, whole.planned) == ([0, 1, 2, 3, 4], POLICIES, 5)


def test_trials_that_some_policies_have_not_finished_are_left_out_with_a_note(tmp_path: Path) -> None:
    fb.run(small(trials=4, policies=["Uniform"]), tmp_path, "serial")
    fb.run(small(trials=4, policies=["Oracle"]), tmp_path, "serial", only=[2])
    result = fb.Result.load(tmp_path)
    assert (result.trials, result.planned) == ([2], 4)
    assert result.notes == [
        "trials that only some policies have finished are left out; finished: Uniform 4, Oracle 1",
    ]


def test_another_seed_is_kept_beside_the_first_and_either_can_be_shown(tmp_path: Path) -> None:
    first = fb.run(small(policies=["Uniform", "Oracle"]), tmp_path, "serial")
    second = fb.run(small(policies=["Uniform"], seed=9), tmp_path, "serial")
    assert second.notes == ["Uniform: 0 trials reused, 5 computed"]
    shown = fb.Result.load(tmp_path)
    assert (shown.experiment.seed, shown.labels) == (9, ["Uniform"])
    assert shown.notes == ["shown is seed 9; the folder also holds seed 3: run it with --seed to show it"]
    back = fb.run(small(policies=["Uniform"]), tmp_path, "serial")
    assert back.notes == ["nothing was left to compute: all trials were there"]
    np.testing.assert_equal(fb.Result.load(tmp_path).table(), first.table())


def test_audits_that_are_asked_for_later_are_added(tmp_path: Path) -> None:
    fb.run(small(trials=3, policies=["Fed-PE"]), tmp_path / "late", "serial")
    late = fb.run(small(trials=3, policies=["Fed-PE"], audited=2), tmp_path / "late", "serial")
    assert late.notes[-1:] == ["Fed-PE: 1 trial reused, 2 computed"]
    fb.run(small(trials=3, policies=["Fed-PE"], audited=2), tmp_path / "at once", "serial")
    assert contents(tmp_path / "late") == contents(tmp_path / "at once")


# --- what is stale ------------------------------------------------------------------------------------------------


def test_an_identity_is_all_that_decides_the_numbers_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def address(**changes: object) -> str:
        return run_identities(small(policies=["Uniform"], **changes))[0].folder  # type: ignore[arg-type]

    base = address()
    assert run_identities(small(trials=9, policies=[{"name": "Uniform", "label": "u"}]))[0].folder == base
    assert run_identities(small(policies=["Oracle", "Uniform"]))[1].folder == base
    assert run_identities(small(policies=["Uniform"], audited=1))[0].folder == base
    assert run_identities(small(policies=["Oracle"]))[0].digest[:12] not in base
    assert address(seed=4) != base
    assert address(dropout=0.1) != base
    assert run_identities(small(policies=["Uniform"]).with_argument("dim", 4))[0].folder != base
    parameter = {"name": "Fed-PE", "parameters": {"delta": 0.2}}
    assert run_identities(small(policies=["Fed-PE"])) != run_identities(small(policies=[parameter]))
    monkeypatch.setattr(identity, "RESULT_FORMAT", 0)
    assert address() != base


OWN = """
from dataclasses import dataclass
from fedbandit_baselines.yardsticks import Uniform
{how}

@dataclass(frozen=True)
class Mine(Uniform):
    share: float = 0.5

    def agents(self, view):
        assert {use}()
        return super().agents(view)
"""
IMPORTS = {
    "import own_steps": "own_steps.ready",
    "from own_steps import ready": "ready",
    "def ready():\n    import own_steps\n    return own_steps.ready()": "ready",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", IMPORTS)
def test_results_of_changed_code_are_never_used(tmp_path: Path, how: str) -> None:
    """The policy's own module, and the author's modules that it imports."""

    def told() -> str:
        command = [sys.executable, "-m", "fedbandit_envs", "run", "--env", "Synthetic", "--policy", "own_policy:Mine"]
        command += ["--set", "num_agents=2", "--set", "max_cycles=8", "--trials", "2", "--executor", "serial"]
        ran = subprocess.run([*command, "--out", "out"], capture_output=True, text=True, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    policy, steps = tmp_path / "own_policy.py", tmp_path / "own_steps.py"
    policy.write_text(OWN.format(how=how, use=IMPORTS[how]))
    steps.write_text("import json\n\ndef ready():\n    return True\n")
    assert "Mine: 0 trials reused, 2 computed" in told()
    assert "nothing was left to compute" in told()
    steps.write_text(steps.read_text().replace("True", "1"))
    changed = told()
    assert "Mine: 0 trials reused, 2 computed" in changed
    assert "not shown, because their code or settings have changed: own-policy-Mine-" in changed
    policy.write_text(policy.read_text().replace("0.5", "0.25"))
    assert "Mine: 0 trials reused, 2 computed" in told()
    (tmp_path / "other.py").write_text("nobody imports this")
    assert "nothing was left to compute" in told()


# --- what is not this folder's ------------------------------------------------------------------------------------


def test_another_problem_is_refused_with_what_differs(tmp_path: Path) -> None:
    fb.run(small(), tmp_path, "serial")
    other = small().with_argument("num_agents", 7)
    expected = (
        r"experiment\.toml: expected a file of this experiment, got another experiment \(with num_agents = 6; without "
    )
    with pytest.raises(FolderError, match=expected + r"num_agents = 7\); choose another"):
        fb.run(other, tmp_path, "serial")
    assert fb.Result.load(tmp_path).num_agents("Fed-PE") == 6
    assert fb.run(other, tmp_path, "serial", force=True).num_agents("Fed-PE") == 7
    assert fb.Result.load(tmp_path).num_agents("Fed-PE") == 7
    assert len(list(tmp_path.glob("runs/*/trial_*"))) == 3 * 5


TWO = """
import sys, time
import fedbandit_envs as fb
from experiment_policies import small
while time.time() < float(sys.argv[3]):
    pass
fb.run(small(trials=3, policies=["Uniform"]).with_argument("num_agents", int(sys.argv[2])), sys.argv[1], "serial")
"""


@pytest.mark.slow
def test_of_two_experiments_that_start_together_in_one_folder_one_is_refused(tmp_path: Path) -> None:
    import time

    for attempt in range(3):
        start = str(time.time() + 3)
        command = [sys.executable, "-c", TWO, tmp_path / str(attempt)]
        path = {"PYTHONPATH": ":".join(sys.path)}
        both = [
            subprocess.Popen([*command, agents, start], stderr=subprocess.PIPE, text=True, env=path)
            for agents in ("2", "3")
        ]
        told = [process.communicate(timeout=60)[1] for process in both]
        codes = [process.returncode for process in both]
        assert sorted(codes) == [0, 1], told
        assert "got another experiment (with num_agents" in told[codes.index(1)]
        assert fb.Result.load(tmp_path / str(attempt)).num_agents("Uniform") == (2, 3)[codes.index(0)]
        assert fb.Result.load(tmp_path / str(attempt)).trials == [0, 1, 2]


@pytest.mark.parametrize("name", ["trial_000000 (copy).npz", "trial_000000_1.npz", "trial_0.npz", "copy.npz"])
def test_a_copied_file_is_no_other_trial(tmp_path: Path, name: str) -> None:
    fb.run(small(), tmp_path, "serial")
    file = one(tmp_path, "Fed-PE", 0)
    shutil.copy(file, file.with_name(name))
    for use in (lambda: fb.Result.load(tmp_path), lambda: fb.run(small(), tmp_path, "serial")):
        with pytest.raises(FolderError, match="got one whose name is no trial's") as caught:
            use()
        assert name in str(caught.value)
    fb.run(small(), tmp_path, "serial", force=True)
    assert fb.Result.load(tmp_path).trials == [0, 1, 2, 3, 4]


def test_a_copy_under_the_name_of_another_trial_and_swapped_names_are_refused(tmp_path: Path) -> None:
    fb.run(small(), tmp_path, "serial")
    undisturbed = contents(tmp_path)
    first, second = one(tmp_path, "Fed-PE", 0), one(tmp_path, "Fed-PE", 1)
    aside = first.with_name("aside")
    for old, new in ((first, aside), (second, first), (aside, second)):
        old.replace(new)
    for use in (lambda: fb.Result.load(tmp_path), lambda: fb.run(small(), tmp_path, "serial")):
        with pytest.raises(FolderError, match=r"trial_000000\.npz: .* got trial 1 under another name"):
            use()
    fb.run(small(), tmp_path, "serial", force=True)
    assert contents(tmp_path) == undisturbed
    shutil.copy(first, first.with_name("trial_000017.npz"))
    with pytest.raises(FolderError, match=r"trial_000017\.npz: .* got trial 0 under another name"):
        fb.Result.load(tmp_path)


def test_a_file_of_another_run_is_refused(tmp_path: Path) -> None:
    fb.run(small(), tmp_path / "mine", "serial")
    fb.run(small(seed=9), tmp_path / "other", "serial")
    for policy, other in (("Fed-PE", tmp_path / "other"), ("Fed-PECD", tmp_path / "mine")):
        file = one(tmp_path / "mine", "Fed-PE", 1)
        kept = file.read_bytes()
        shutil.copy(one(other, policy, 1), file)
        for use in (lambda: fb.Result.load(tmp_path / "mine"), lambda: fb.run(small(), tmp_path / "mine", "serial")):
            with pytest.raises(FolderError, match=r"trial_000001\.npz: .* got one of another run"):
                use()
        file.write_bytes(kept)


def with_checksum(text: str) -> str:
    """A changed description as a program could write it: with the checksum of its content."""
    table = tomllib.loads(text)
    del table["checksum"]
    return tomli_w.dumps({"checksum": checksum(table), **table})


def test_a_description_that_a_program_changed_is_refused_by_readers(tmp_path: Path) -> None:
    fb.run(small(), tmp_path, "serial")
    file = tmp_path / "experiment.toml"
    written = file.read_text()
    for old, new in (
        ("num_agents = 6", "num_agents = 7"),
        ("delta = 0.1", "delta = 0.2"),
        ("dropout = 0.0", "dropout = 0.5"),
    ):
        assert old in written
        file.write_text(with_checksum(written.replace(old, new)))
        refused = r"trial_000000\.npz: .* got one that (is not as experiment\.toml says|this program did not write)"
        with pytest.raises(FolderError, match=refused):
            fb.Result.load(tmp_path)
    file.write_text(with_checksum(written.replace("seed = 3", "seed = 4")))
    with pytest.raises(FolderError, match=r"experiment\.toml: expected runs of seed 4, got those of 3"):
        fb.Result.load(tmp_path)


def test_folders_of_an_earlier_layout_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage.save(tmp_path / "trial_000000.npz", {"trial": 0})
    small().write(tmp_path / "experiment.toml")
    expected = "expected results in runs/, got trial_000000.npz of an earlier version; choose another folder"
    for force in (False, True):
        with pytest.raises(FolderError, match=expected):
            fb.run(small(), tmp_path, "serial", force=force)
    with pytest.raises(FolderError, match=expected):
        fb.Result.load(tmp_path)
    assert main(["compare", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"fedbandit: error: {tmp_path}: {expected}\n"


def test_an_experiment_file_that_no_run_wrote_is_refused(tmp_path: Path) -> None:
    small().write(tmp_path / "experiment.toml")
    with pytest.raises(FolderError, match=r"one that can't be used .*expected results of format 4, got no format"):
        fb.run(small(), tmp_path, "serial")


# --- provenance ---------------------------------------------------------------------------------------------------


def members(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_files_of_another_machine_differ_in_the_provenance_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fb.run(small(), tmp_path / "here", "serial")
    there = {**provenance.provenance(), "kernel": "SkylakeX", "numpy": "9.9"}
    monkeypatch.setattr("fedbandit_envs.experiments.computing.provenance", lambda: there)
    fb.run(small(), tmp_path / "there", "serial")
    for file in (tmp_path / "here").glob("runs/*/*"):
        one, other = members(file), members(tmp_path / "there" / file.relative_to(tmp_path / "here"))
        assert json.loads(one["provenance.npy"][128:]) == provenance.provenance()
        assert json.loads(other.pop("provenance.npy")[128:]) == there
        one.pop("provenance.npy")
        assert one == other


def test_a_mixture_of_machines_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fb.run(small(trials=2), tmp_path, "serial")
    assert fb.Result.load(tmp_path).notes == []
    here = provenance.provenance()
    monkeypatch.setattr("fedbandit_envs.experiments.computing.provenance", lambda: here | {"numpy": "9.9"})
    mixed = f"runs were computed with different software or machines: numpy {here['numpy']} and 9.9"
    assert mixed in fb.run(small(trials=3), tmp_path, "serial").notes
    assert fb.Result.load(tmp_path).notes == [mixed]


def test_provenance_names_versions_and_the_kernel_of_linear_algebra() -> None:
    found = provenance.provenance()
    assert found["numpy"] == __import__("numpy").__version__
    assert found["python"] == sys.version.split()[0]
    assert found["kernel"]
    assert "time" not in found


# --- the command line ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_trial_alone_does_not_shrink_the_tables_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = replace(small(), policies=["Uniform", "Oracle"])
    experiment.write(tmp_path / "e.toml")
    run = ["run", str(tmp_path / "e.toml"), "--executor", "serial", "--out", str(tmp_path / "out")]
    assert main(run) == 0
    tables = {name: (tmp_path / "out" / name).read_bytes() for name in ("summary.csv", "trials.csv", "summary.json")}
    capsys.readouterr()
    for less in (["--trial", "3"], ["--trials", "2"], ["--policy", "Oracle"]):
        assert main([*run, *less]) == 0
        told = capsys.readouterr().out
        assert "nothing was left to compute: all trials were there" in told
        assert "holds 5 of 5 trials of Uniform, Oracle" in told
        assert tables == {name: (tmp_path / "out" / name).read_bytes() for name in tables}


def test_a_run_without_a_folder_says_that_nothing_was_kept(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--set", "num_agents=2", "--set", "max_cycles=8", "--trials", "1", "--executor", "serial"]
    assert main(["run", "--env", "Synthetic", "--policy", "Uniform", *options]) == 0
    assert "nothing was kept; --out FOLDER keeps the results" in capsys.readouterr().out


def test_a_folder_without_a_common_trial_is_told_as_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fb.run(small(trials=2, policies=["Uniform"]), tmp_path, "serial")
    small(policies=["Oracle"]).write(tmp_path / "oracle.toml")
    assert main(["run", str(tmp_path / "oracle.toml"), "--trial", "4", "--out", str(tmp_path)]) == 0
    assert "holds no trial that all its policies have finished" in capsys.readouterr().out
