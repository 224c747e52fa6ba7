"""Sweeps: one experiment at several values of an argument of its environment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbandit_envs.experiments.description import EXPERIMENT_FILE
from fedbandit_envs.experiments.executors.local import Executor
from fedbandit_envs.experiments.experiment import Experiment
from fedbandit_envs.experiments.folder import FolderError
from fedbandit_envs.experiments.results import Columns, Result
from fedbandit_envs.experiments.running import run_all

Value = int | float | str


def sweep(
    experiment: Experiment,
    parameter: str,
    values: Sequence[Value],
    out: str | Path | None = None,
    executor: str | Executor = "processes",
    *,
    force: bool = False,
) -> dict[Value, Result]:
    """Run the experiment at each value, in subfolders of `out` like "num_agents=50".

    Example: `sweep(experiment, "num_agents", [50, 100, 150], out="results/agents")`.
    """
    if not values or len(set(values)) < len(values):
        raise ValueError(f"values: expected one or more different values of {parameter}, got {list(values)!r}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)) or "/" in str(value):
            raise ValueError(f"values: expected numbers or names for {parameter}, got {value!r}; run others one by one")
    names = {value: f"{parameter}={value}" for value in values}
    experiments = {names[value]: experiment.with_argument(parameter, value) for value in values}
    results = run_all(experiments, out, executor, force=force)
    return {value: results[name] for value, name in names.items()}


def load_sweep(folder: str | Path) -> tuple[str, dict[Value, Result]]:
    """The parameter and the results of a sweep's folder, by value."""
    folders = sorted(path.parent for path in Path(folder).glob(f"*=*/{EXPERIMENT_FILE}"))
    parameters = {path.name.partition("=")[0] for path in folders}
    if len(parameters) != 1:
        nothing = "neither" if Path(folder).exists() else "no such folder"
        got = f"sweeps over {', '.join(sorted(parameters))}" if parameters else nothing
        raise FolderError(f"{folder}: expected the results of a run or of one sweep, got {got}; check the path")
    (parameter,) = parameters
    results = {}
    for path in folders:
        result = Result.load(path)
        results[result.experiment.argument(parameter)] = result
    numeric = all(isinstance(value, (int, float)) for value in results)
    return parameter, dict(sorted(results.items()) if numeric else results.items())


def sweep_table(parameter: str, results: Mapping[Any, Result], kind: str = "regret") -> Columns:
    """The summaries of all results, one below the other; the column `parameter` has their keys."""
    columns: Columns = {}
    for value, result in results.items():
        table = result.table(kind=kind)
        columns.setdefault(parameter, []).extend([value] * len(table["policy"]))
        for name, cells in table.items():
            columns.setdefault(name, []).extend(cells)
    return columns
