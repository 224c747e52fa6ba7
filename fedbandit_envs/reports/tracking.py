"""Callbacks that hand finished runs to experiment trackers: TensorBoard, MLflow, Weights & Biases.

Each function here makes a callback for `run` and `run_all`. A tracker gets one run of its own for each policy and
trial, with the curves of `METRICS` over the steps. Trackers are extras, and each is imported only by its own function.
None of them needs an account or a network: TensorBoard and Weights & Biases write folders, MLflow a sqlite file.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from fedbandit_envs.experiments.computing import FinishedRun
from fedbandit_envs.validation import needs, one_of

__all__ = ["METRICS", "Callback", "mlflow", "tensorboard", "wandb"]

#: The curves that are handed on, by their names in `Result.curve`.
METRICS = ("mean_regret", "worst_regret", "active_arms", "settled_share", "wrong_share", "scalars_up", "scalars_down")
_LARGEST_BATCH = 1000  # the most metrics that MLflow takes at once


Callback = Callable[[FinishedRun], None]


class Point(NamedTuple):
    """One value of one curve."""

    name: str
    step: int
    value: float


def tensorboard(folder: str | Path) -> Callback:
    """A callback that writes event files for TensorBoard; `tensorboard --logdir FOLDER` shows them.

    Use it as `fb.run(experiment, callbacks=[fb.tracking.tensorboard("runs")])`, with a new folder for each experiment.

    Raises:
        ImportError: TensorBoard is not installed.
    """
    needs("tensorboard", extra="tensorboard")
    from tensorboard.summary import Writer

    def log(finished: FinishedRun) -> None:
        # The name is quoted, because a label can hold characters that a folder's name can't.
        writer = Writer(str(Path(folder) / quote(_name(finished), safe=" (),=")))
        for point in _points(finished):
            writer.add_scalar(point.name, point.value, step=point.step)
        writer.add_scalar("seconds", finished.seconds, step=0)
        writer.close()

    return log


def mlflow(uri: str = "sqlite:///mlflow.db", experiment: str = "fedbandit") -> Callback:
    """A callback that writes runs to MLflow; `mlflow ui --backend-store-uri URI` shows them.

    Args:
        uri: a store of MLflow; the default is a sqlite file in the current folder.
        experiment: the name of the experiment in MLflow to which the runs belong.

    Raises:
        ImportError: MLflow is not installed.
    """
    needs("mlflow", extra="mlflow")
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    known = client.get_experiment_by_name(experiment)
    number = known.experiment_id if known else client.create_experiment(experiment)

    def log(finished: FinishedRun) -> None:
        started = client.create_run(number, run_name=_name(finished))
        parameters = [Param(name, str(value)) for name, value in _identity(finished).items()]
        tags = [RunTag("policy", finished.label)]
        client.log_batch(started.info.run_id, [Metric("seconds", finished.seconds, 0, 0)], parameters, tags)
        metrics = [Metric(point.name, point.value, 0, point.step) for point in _points(finished)]
        for start in range(0, len(metrics), _LARGEST_BATCH):
            client.log_batch(started.info.run_id, metrics[start : start + _LARGEST_BATCH])
        client.set_terminated(started.info.run_id)

    return log


def wandb(project: str = "fedbandit", folder: str | Path = ".", mode: str = "offline") -> Callback:
    """A callback that writes runs for Weights & Biases, grouped by policy.

    Args:
        project: the name of the project to which the runs belong.
        folder: where the folder `wandb` is written; `wandb sync` sends what is there to a server later.
        mode: "offline", or "online" to send each run at once, which needs an account.

    Raises:
        ImportError: wandb is not installed.
    """
    one_of("mode", mode, ("offline", "online"))
    needs("wandb", extra="wandb")
    import wandb as tracker

    Path(folder).mkdir(parents=True, exist_ok=True)

    def log(finished: FinishedRun) -> None:
        settings = tracker.Settings(silent=True, console="off")
        started = tracker.init(
            project=project,
            dir=str(folder),
            mode=mode,
            name=_name(finished),
            group=finished.label[:128],  # a group's name can't be longer
            config=_identity(finished),
            settings=settings,
        )
        by_step: dict[int, dict[str, float]] = {}
        for point in _points(finished):
            by_step.setdefault(point.step, {})[point.name] = point.value
        for step, values in by_step.items():
            started.log(values, step=step)
        started.summary["seconds"] = finished.seconds
        started.finish()

    return log


def _name(finished: FinishedRun) -> str:
    """What a tracker calls a run."""
    return " ".join(
        [*([finished.experiment] if finished.experiment else []), finished.label, f"trial {finished.trial}"]
    )


def _identity(finished: FinishedRun) -> dict[str, str | int]:
    return {
        "experiment": finished.experiment,
        "policy": finished.label,
        "trial": finished.trial,
        "seed": str(finished.seed),  # as text: it has more bits than trackers keep of a number
    }


def _points(finished: FinishedRun) -> Iterator[Point]:
    """Every value of every metric, curve by curve."""
    record = finished.record
    for name in METRICS:
        values = record["curves"][int(record["curve_rows"][name])]
        for step, value in zip(record["steps"].tolist(), values.tolist(), strict=True):
            yield Point(name, step, value)
