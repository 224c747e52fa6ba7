"""Trackers get every run with its curves: really written by each of them, and read back with its own reader."""

import json
import math
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import fedbandit_envs as fb
from fedbandit_envs.reports import tracking

LABELS = ["Uniform", "Fed-PECD (delta=0.05)", "../../a/b"]
EXPERIMENT = fb.Experiment(
    "fedbandit/Synthetic-v0",
    ["Uniform", fb.PolicySpec("Fed-PECD", {"delta": 0.05}), fb.PolicySpec("Oracle", label="../../a/b")],
    {"num_agents": 4, "max_cycles": 200},
    trials=2,
)


@pytest.fixture(scope="module")
def result() -> fb.Result:
    return fb.run(EXPERIMENT, executor="serial")


def call(callback: tracking.Callback, result: fb.Result) -> None:
    """Run the experiment of the result again, and tell the callback about every run."""
    fb.run(EXPERIMENT, executor="serial", callbacks=[callback])


def installed(package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"needs {package}, of the extra of that name")


def curve(result: fb.Result, label: str, trial: int, name: str) -> list[tuple[int, float]]:
    return list(zip(result.steps(label).tolist(), result.curve(label, name)[trial].tolist(), strict=True))


def same(read: list[tuple[int, float]], expected: list[tuple[int, float]]) -> bool:
    """TensorBoard keeps numbers of 32 bits."""
    return [step for step, _ in read] == [step for step, _ in expected] and all(
        math.isclose(one, other, rel_tol=1e-6) for (_, one), (_, other) in zip(read, expected, strict=True)
    )


@pytest.mark.tensorboard
@pytest.mark.filterwarnings("ignore")  # other libraries warn
def test_tensorboard_shows_every_run(result: fb.Result, tmp_path: Path) -> None:
    installed("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import TENSORS, EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    call(tracking.tensorboard(tmp_path / "runs"), result)
    folders = sorted(path.name for path in (tmp_path / "runs").iterdir())
    names = [label.replace("/", "%2F") for label in LABELS]
    assert folders == sorted(f"{name} trial {trial}" for name in names for trial in (0, 1))
    for label, name in zip(LABELS, names, strict=True):
        reader = EventAccumulator(str(tmp_path / "runs" / f"{name} trial 1"), size_guidance={TENSORS: 0})
        reader.Reload()
        assert set(reader.Tags()["tensors"]) == {*tracking.METRICS, "seconds"}
        for metric in tracking.METRICS:
            read = [(event.step, float(make_ndarray(event.tensor_proto))) for event in reader.Tensors(metric)]
            assert same(read, curve(result, label, 1, metric))


@pytest.mark.mlflow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_shows_every_run(result: fb.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed("mlflow")
    monkeypatch.chdir(tmp_path)  # MLflow makes a folder for artifacts where it is
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    call(tracking.mlflow(uri, "mine"), result)
    client = MlflowClient(uri)
    filed = client.get_experiment_by_name("mine")
    runs = {run.info.run_name: run for run in client.search_runs([filed.experiment_id])}
    assert sorted(runs) == sorted(f"{label} trial {trial}" for label in LABELS for trial in (0, 1))
    for label in LABELS:
        run = runs[f"{label} trial 1"]
        assert run.info.status == "FINISHED"
        assert (run.data.params["policy"], run.data.params["trial"]) == (label, "1")
        assert run.data.params["seed"] == str(EXPERIMENT.trial_seed(1))
        for metric in tracking.METRICS:
            history = sorted(client.get_metric_history(run.info.run_id, metric), key=lambda point: point.step)
            assert same([(point.step, point.value) for point in history], curve(result, label, 1, metric))
    tracking.mlflow(uri, "mine")  # an experiment that is there already is used again


@pytest.mark.wandb
@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_shows_every_run(result: fb.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    import wandb

    call(tracking.wandb("mine", tmp_path / "kept"), result)
    wandb.teardown()  # as at the end of a process: its service has then written everything
    runs = dict(read_wandb(path) for path in (tmp_path / "kept" / "wandb").glob("offline-run-*/*.wandb"))
    assert sorted(runs) == sorted(f"{label} trial {trial}" for label in LABELS for trial in (0, 1))
    for label in LABELS:
        rows = runs[f"{label} trial 1"]
        for metric in tracking.METRICS:
            assert same([(row["_step"], row[metric]) for row in rows], curve(result, label, 1, metric))


def read_wandb(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """The name and the history in the file of an offline run."""
    from wandb.proto import wandb_internal_pb2

    name, rows = "", []
    for data in log_entries(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            name = record.run.display_name
        if record.HasField("history"):
            items = record.history.item
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
            rows.append({"_step": record.history.step.num} | row)
    return name, rows


def log_entries(content: bytes) -> Iterator[bytes]:
    """The entries of a log in LevelDB's format: blocks of 32 KiB, in which an entry can be cut into pieces."""
    place, entry = 7, b""  # after the head of the file
    while place < len(content):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack("<IHB", content[place : place + 7])
        entry += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield entry
            entry = b""


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_tracker_that_is_not_installed_is_asked_for(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fedbandit_envs.validation.find_spec", lambda package: None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ImportError, match=rf"expected {name} to be installed.*pip install -e '\.\[{name}\]'"):
        getattr(tracking, name)("here")
    assert list(tmp_path.iterdir()) == []


def test_every_metric_is_a_curve_of_a_run(result: fb.Result) -> None:
    assert set(tracking.METRICS) <= set(result.records[0]["policies"]["0"]["curve_rows"])
