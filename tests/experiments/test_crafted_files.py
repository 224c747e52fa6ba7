"""Whole files with a wrong content: they are refused, no fault of this program is told, and --force replaces them."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_policies import small

import fedbandit_envs as fb
from fedbandit_envs import storage
from fedbandit_envs.cli.main import main
from fedbandit_envs.experiments.folder import FolderError

MISSING = object()
VALUES = [MISSING, None, "text", -1, 10**30, float("nan"), True, {}, {"x": {"y": 1}}, np.zeros(0), np.zeros((2, 3, 4))]
VALUES += [np.array("x"), np.array(["a", "b"]), np.full((1, 1), np.nan), np.zeros(3, bool)]
EVIL = "\x1b[2J"


def paths(tree: dict[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in tree.items():
        yield (*prefix, name)
        if isinstance(value, dict):
            yield from paths(value, (*prefix, name))


def changed(tree: dict[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    found = part = copy.deepcopy(tree)
    for name in path[:-1]:
        part = part[name]
    if value is MISSING:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results") / "out"
    fb.run(EXPERIMENT, out, "serial")
    return out


EXPERIMENT = small(trials=1, policies=["Fed-PE"], audited=1)


def same(one: object, two: object) -> bool:
    return type(one) is type(two) and bool(np.array_equal(np.asarray(one), np.asarray(two)))


@pytest.mark.slow
def test_whatever_is_put_into_a_trial_s_file_is_refused_with_words(folder: Path) -> None:
    """Every value of a record is replaced by values of every kind; only the numbers themselves can't be judged."""
    (file,) = folder.glob("runs/*/trial_000000.npz")
    content = file.read_bytes()
    tree, provenance = storage.load_with_provenance(file)
    accepted = set()
    for path in paths(tree):
        for value in VALUES:
            before = tree
            for name in path:
                before = before[name]
            if value is not MISSING and same(before, value):
                continue
            file.write_bytes(storage.to_bytes(changed(tree, path, value), provenance))
            try:
                fb.Result.load(folder).table()
            except FolderError as error:
                assert "expected a file of this experiment" in str(error)  # noqa: PT017
            else:
                accepted.add(path[-1])
    file.write_bytes(content)
    # A number in the place of another one, or a claim that is left out: of the right form, so who could know better?
    record = tree["record"]
    assert accepted <= {*record["totals"], *record["audit"]["0"], "audit", str(len(record["audit"]) - 1)}


# Numbers of the right name and shape that no run has: they would overflow tables and figures, or stop them.
NUMBERS: dict[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    "a regret that overflows": (("record", "curves"), lambda curves: np.full_like(curves, 1e308)),
    "an endless regret": (("record", "agents"), lambda agents: np.full_like(agents, np.inf)),
    "longer numbers": (("record", "curves"), lambda curves: curves.astype(np.longdouble)),
    "shorter numbers": (("record", "curves"), lambda curves: curves.astype(np.float16)),
    "shorter steps": (("record", "steps"), lambda steps: steps.astype(np.int8)),
    "a count that no float holds": (("record", "totals", "rounds"), lambda rounds: 10**400),
    "words that can't be printed": (("record", "audit", "0", "unless"), lambda unless: EVIL),
    "endless lists in lists": (("identity",), lambda identity: "[" * 100_000),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_what_no_run_has_is_refused_although_its_form_is_right(folder: Path, what: str) -> None:
    (file,) = folder.glob("runs/*/trial_000000.npz")
    content = file.read_bytes()
    tree, provenance = storage.load_with_provenance(file)
    path, change = NUMBERS[what]
    value: Any = tree
    for name in path:
        value = value[name]
    storage.save(file, changed(tree, path, change(value)), provenance)
    with pytest.raises(FolderError, match="expected a file of this experiment"):
        fb.Result.load(folder)
    file.write_bytes(content)
    fb.Result.load(folder)


@pytest.mark.parametrize(
    "provenance", [{"commit": EVIL}, {EVIL: "x"}, {"commit": "x" * 10**6}, {str(n): "x" for n in range(100)}]
)
def test_a_provenance_that_can_not_be_shown_is_refused(folder: Path, provenance: dict[str, str]) -> None:
    (file,) = folder.glob("runs/*/trial_000000.npz")
    content = file.read_bytes()
    storage.save(file, storage.load(file), provenance)
    with pytest.raises(FolderError, match="provenance: expected at most"):
        fb.Result.load(folder)
    file.write_bytes(content)


@pytest.mark.parametrize("path", [("record", "totals", "rounds"), ("record", "audit", "0"), ("seed",), ("record",)])
def test_force_replaces_a_crafted_file(
    tmp_path: Path, path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    fb.run(EXPERIMENT, tmp_path, "serial")
    (file,) = tmp_path.glob("runs/*/trial_000000.npz")
    content = file.read_bytes()
    tree, provenance = storage.load_with_provenance(file)
    storage.save(file, changed(tree, path, "text"), provenance)
    with pytest.raises(FolderError, match="use --force"):
        fb.run(EXPERIMENT, tmp_path, "serial")
    assert main(["compare", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "expected a file of this experiment" in error
    assert "a fault of this program" not in error
    fb.run(EXPERIMENT, tmp_path, "serial", force=True)
    assert file.read_bytes() == content


def test_a_description_that_was_edited_is_refused_and_force_writes_it_anew(tmp_path: Path) -> None:
    """Names of folders under other labels would show the numbers of one policy as those of another."""
    experiment = small(trials=2, policies=["Fed-PE", "Oracle"])
    fb.run(experiment, tmp_path, "serial")
    file = tmp_path / "experiment.toml"
    text = file.read_text()
    kept = {trial: trial.stat().st_mtime_ns for trial in tmp_path.glob("runs/*/trial_*.npz")}
    oracle, fed_pe = (next(tmp_path.glob(f"runs/{name}-*")).name for name in ("Oracle", "Fed-PE"))
    swapped = text.replace(oracle, "?").replace(fed_pe, oracle).replace("?", fed_pe)
    for edited in (
        swapped,
        text.replace('label = "Oracle"', 'label = "Ours"'),
        text.replace("checksum = ", "format_ = "),
    ):
        file.write_text(edited)
        for use in (fb.Result.load, lambda folder: fb.run(experiment, folder, "serial")):
            with pytest.raises(FolderError, match=r"experiment\.toml: expected (the checksum|keys|a file of this)"):
                use(tmp_path)
    fb.run(experiment, tmp_path, "serial", force=True)
    assert file.read_text() == text
    assert {trial: trial.stat().st_mtime_ns for trial in kept} == kept  # what was computed is used again
    file.write_text(text.replace("\n", "\r\n") + "\n# the layout does not matter\n")
    fb.Result.load(tmp_path)


def test_the_description_of_a_folder_can_be_edited_and_run_elsewhere(tmp_path: Path) -> None:
    fb.run(small(trials=1, policies=["Oracle"]), tmp_path / "out", "serial")
    (tmp_path / "mine.toml").write_text(
        (tmp_path / "out" / "experiment.toml").read_text().replace("trials = 1", "trials = 2")
    )
    assert fb.Experiment.read(tmp_path / "mine.toml").trials == 2
