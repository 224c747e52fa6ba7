"""Whole folders that somebody made with care: every checksum is right, and only what they say is wrong."""

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from experiment_policies import small

import fedbandit_envs as fb
from fedbandit_envs import storage
from fedbandit_envs.cli.main import main
from fedbandit_envs.experiments.description import checksum
from fedbandit_envs.experiments.folder import FolderError
from fedbandit_envs.experiments.identity import digest_of, known_without_code
from fedbandit_envs.experiments.sweeps import load_sweep
from fedbandit_envs.reports.canvas import fitting_label

ODD = ["$\\frac{a$", "$" + "{" * 90 + "x" + "}" * 90 + "$", "<script>alert(1)</script>", "_x | y", "\\input{x}", "5$"]


def described(folder: Path, **changes: Any) -> None:
    """Write the description of a folder anew, with its checksum."""
    file = folder / "experiment.toml"
    table = {name: value for name, value in tomllib.loads(file.read_text()).items() if name != "checksum"} | changes
    file.write_text(tomli_w.dumps({"checksum": checksum(table), **table}))


def forged(source: Path, target: Path, arguments: Mapping[str, Any], environment: str, policy: str = "Uniform") -> None:
    """A copy of a folder with one run whose files all say that it had these arguments."""
    table = tomllib.loads((source / "experiment.toml").read_text())
    table |= {"arguments": table["arguments"] | arguments, "environment": environment}
    table["policies"][0]["name"] = policy
    experiment = fb.Experiment.from_table(table)
    (run,) = source.glob("runs/*")
    for file in run.glob("trial_*.npz"):
        tree, provenance = storage.load_with_provenance(file)
        known = known_without_code(experiment, experiment.policies[0].parameters)
        text = json.dumps(json.loads(tree["identity"]) | known, sort_keys=True)
        name = f"{run.name[:-12]}{digest_of(text)[:12]}"
        (target / "runs" / name).mkdir(parents=True, exist_ok=True)
        tree |= {"identity": text, "run": digest_of(text)}
        storage.save(target / "runs" / name / file.name, tree, provenance)
    table["runs"] = {str(experiment.seed): {experiment.labels[0]: name}}
    (target / "experiment.toml").write_text(tomli_w.dumps(table))
    described(target)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results") / "out"
    fb.run(small(trials=2, policies=["Uniform"]), out, "serial")
    return out


@pytest.mark.parametrize(
    "name", [7, "", "..", "../../other/runs/Uniform-0123456789ab", "/tmp/Uniform-0123456789ab", {}]
)
def test_a_description_that_leads_out_of_its_folder_is_refused(tmp_path: Path, name: Any) -> None:
    experiment = small(trials=1, policies=["Uniform"])
    fb.run(experiment, tmp_path, "serial")
    described(tmp_path, runs={"3": {"Uniform": name}})
    for use in (fb.Result.load, lambda path: fb.run(experiment, path, "serial")):
        with pytest.raises(FolderError, match="expected the folders of runs by seed and label"):
            use(tmp_path)
    fb.run(experiment, tmp_path, "serial", force=True)
    fb.Result.load(tmp_path)


def test_force_removes_no_trials_of_another_folder(tmp_path: Path) -> None:
    """The description of a stranger's folder says that its runs are those of one's own folder beside it."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    fb.run(small(trials=1, policies=["Uniform"]), mine, "serial")
    fb.run(small(trials=1, policies=["Uniform"]), theirs, "serial")
    (run,) = mine.glob("runs/*")
    described(theirs, runs={"3": {"Uniform": f"../../mine/runs/{run.name}"}})
    fb.run(small(trials=1, policies=["Uniform"]).with_argument("num_agents", 7), theirs, "serial", force=True)
    assert fb.Result.load(mine).trials == [0]


@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD)
def test_odd_values_and_names_of_a_sweep_are_shown_letter_by_letter(folder: Path, tmp_path: Path, odd: str) -> None:
    named = re.sub("[/,=]", "", odd)
    for number in (1, 2):
        arguments = {"error": f"{odd}{number}", named: number}
        environment = f"fedbandit/{named}-v0"
        forged(folder, tmp_path / "one" / f"error={number}", arguments, environment)
        for other in (3, 4):
            forged(folder, tmp_path / "two" / f"{named}={number},error={other}", arguments, environment)
    for path in (tmp_path / "one", tmp_path / "one" / "error=1", tmp_path / "two"):
        assert main(["plot", str(path), "--format", "svg", "--out", str(tmp_path)]) == 0, path
    results = {value: result for (value,), result in load_sweep(tmp_path / "one")[1].items()}
    axes = fb.plotting.regret_against(results, "error").axes[0]
    assert {fitting_label(f"{odd}1"), fitting_label(f"{odd}2")} <= {text.get_text() for text in axes.get_xticklabels()}
    assert main(["report", str(tmp_path / "one"), "--out", str(tmp_path / "report.html")]) == 0
    assert "<script>alert" not in (tmp_path / "report.html").read_text()


def test_readers_import_nothing_that_a_folder_names(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code_of_a_stranger.py").write_text("import pathlib\n\npathlib.Path('mark').touch()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for number in (1, 2):
        path = tmp_path / "sweep" / f"num_agents={number}"
        forged(folder, path, {"sha256": "0"}, "code_of_a_stranger:Problem", "code_of_a_stranger:Policy")
    path.rename(tmp_path / "one")
    for command in (["compare"], ["compare", "--format", "latex"], ["plot", "--format", "svg"], ["report"]):
        for name in ("one", "sweep"):
            assert main([command[0], name, *command[1:]]) == 0
    assert not (tmp_path / "mark").exists()
    assert "code_of_a_stranger" not in sys.modules
    assert main(["run", "one/experiment.toml"]) != 0
    assert (tmp_path / "mark").exists()  # to run an experiment is to run its code: SECURITY.md says so


def test_a_folder_with_the_name_of_another_sweep_is_refused(folder: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        forged(folder, tmp_path / f"zeta={number}", {}, "fedbandit/Synthetic-v0")
    with pytest.raises(FolderError, match="expected the sweep that the names of its folders tell"):
        load_sweep(tmp_path)


VERDICTS = ["{", "[" * 10**5, "[1]", "[{}]", '[{"verdict": " "}]', '[{"verdict": "holds", "low": [1]}]']
VERDICTS += [f'[{{"verdict": "holds", "low": 1{"0" * 400}}}]', " " * (10**7 + 1)]


@pytest.mark.parametrize("text", VERDICTS, ids=range(len(VERDICTS)))
def test_verdicts_that_nobody_wrote_are_refused(folder: Path, tmp_path: Path, text: str) -> None:
    forged(folder, tmp_path / "trials" / "one", {}, "fedbandit/Synthetic-v0")
    (tmp_path / "verdicts.json").write_text(text)
    with pytest.raises(FolderError, match=r"verdicts\.json: expected the verdicts of reproduce"):
        fb.report(tmp_path)


def test_a_file_that_is_larger_than_any_trial_is_refused_unread(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive with a hole of 20 GB as its content takes no place on the disk, and would take all memory."""
    forged(folder, tmp_path, {}, "fedbandit/Synthetic-v0")
    fb.Result.load(tmp_path)
    monkeypatch.setattr("fedbandit_envs.experiments.folder._MOST_BYTES", 1000)
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
    with pytest.raises(FolderError, match="expected a file of this experiment"):
        fb.Result.load(tmp_path)
