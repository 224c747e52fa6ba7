"""Sweeps: one experiment at every combination of the values of some of its parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from fedbandit_envs.experiments.executors.local import Executor
from fedbandit_envs.experiments.experiment import Experiment, PolicySpec
from fedbandit_envs.experiments.folder import FolderError
from fedbandit_envs.experiments.places import check_place, sweep_folders
from fedbandit_envs.experiments.reading import read_folder
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.running import run_all
from fedbandit_envs.experiments.text import Columns, stacked
from fedbandit_envs.validation import one_of, visible

Value = int | float | str
Point = tuple[Value, ...]  # a value of each parameter
MOST_POINTS = 10_000  # a larger grid is a mistake, and listing it can take all memory
_IN_NAMES = ",=/"  # these divide the name of a folder, so neither a parameter nor a value can have them


def sweep(
    experiment: Experiment,
    over: Mapping[str, Sequence[Value]],
    out: str | Path | None = None,
    executor: str | Executor = "processes",
    *,
    force: bool = False,
    timeout: float | None = None,
) -> dict[Point, Result]:
    """Run the experiment at each point of a grid, in subfolders of `out` like "num_agents=50,dropout=0.1".

    Args:
        experiment: what to run; its own values of the swept parameters are not used.
        over: the values of each parameter. A parameter is an argument of the environment, "dropout", "network", or a
            parameter of a policy after the policy's label or name, such as "Fed-PECD.delta".
        out: the folder of the results; trials that are there already are not computed again. None: memory only.
        executor: who computes, as in `run`.
        force: remove files in `out` that are torn or of another experiment, instead of refusing them.
        timeout: the seconds that a trial may take, as in `run`.

    Returns:
        The result of each point, by the tuple of its values in the order of `over`.

    Raises:
        ValueError: some parameter or value is none of this experiment; nothing has been computed then.
        FolderError: `out` holds a run, or a sweep over other parameters; nothing has been computed then.

    >>> experiment = Experiment("fedbandit/Synthetic-v0", ["Fed-PECD"], {"max_cycles": 32}, trials=1)
    >>> results = sweep(experiment, {"num_agents": [2, 4], "Fed-PECD.delta": [0.05, 0.1]}, executor="serial")
    >>> list(results)
    [(2, 0.05), (2, 0.1), (4, 0.05), (4, 0.1)]
    """
    experiments = grid(experiment, over)
    if out is not None:
        check_place(out, tuple(over))
    named = {point_name(tuple(over), point): one for point, one in experiments.items()}
    results = run_all(named, out, executor, force=force, timeout=timeout)
    return {point: results[point_name(tuple(over), point)] for point in experiments}


def grid(experiment: Experiment, over: Mapping[str, Sequence[Value]]) -> dict[Point, Experiment]:
    """The experiments of a sweep by their points."""
    if not isinstance(over, Mapping):
        raise ValueError(f"over: expected the values of each parameter, got {over!r}; use {{'num_agents': [50, 100]}}")
    for parameter, values in over.items():
        _check_values(parameter, values)
    size = prod(len(values) for values in over.values()) if over else 0
    if not 1 <= size <= MOST_POINTS:
        raise ValueError(f"over: expected 1 to {MOST_POINTS:,} combinations of values, got {size:,}")
    return {point: at_point(experiment, tuple(over), point) for point in product(*over.values())}


def _check_values(parameter: str, values: Sequence[Value]) -> None:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ValueError(f"over: expected a list of values for {parameter}, got {values!r}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError(f"over: expected numbers or names for {parameter}, got {value!r}; run others one by one")
    if not values or len(set(values)) < len(values):
        raise ValueError(f"over: expected one or more different values of {parameter}, got {list(values)!r}")
    for text in (parameter, *map(str, values)):
        if any(mark in text for mark in _IN_NAMES):
            remedy = "; go to the folder of the files, and name them without it" if "/" in text else ""
            raise ValueError(f"over: expected parameters and values without any of {_IN_NAMES}, got {text!r}{remedy}")


def point_name(parameters: Sequence[str], point: Sequence[Value]) -> str:
    """A point of a grid in words, which is also the name of its folder.

    >>> point_name(["num_agents", "dropout"], (50, 0.1))
    'num_agents=50,dropout=0.1'
    """
    return ",".join(f"{parameter}={value}" for parameter, value in zip(parameters, point, strict=True))


def at_point(experiment: Experiment, parameters: Sequence[str], point: Point) -> Experiment:
    """The experiment with the values of a point; labels of policies stay what they are."""
    for parameter, value in zip(parameters, point, strict=True):
        label, dot, name = parameter.rpartition(".")
        if not dot:
            experiment = _with_setting(experiment, parameter, value)
            continue
        swept = _policies(experiment, label)
        specs = [
            replace(spec, parameters={**spec.parameters, name: value}) if spec in swept else spec
            for spec in experiment.policies
        ]
        experiment = replace(experiment, policies=specs)
    return experiment


def _with_setting(experiment: Experiment, name: str, value: Value) -> Experiment:
    if name in ("trials", "seed"):
        raise ValueError(f"over: expected a parameter that changes the problem, got {name!r}; it is set for all values")
    return experiment.with_argument(name, value)


def _policies(experiment: Experiment, label: str) -> list[PolicySpec]:
    """The policy of that label, or else all policies of that name."""
    specs = experiment.policies
    one_of("policy", label, list(dict.fromkeys([*experiment.labels, *(spec.name for spec in specs)])))
    return [spec for spec in specs if spec.label == label] or [spec for spec in specs if spec.name == label]


def _value(experiment: Experiment, parameter: str) -> Value:
    """The value that `at_point` gave to a parameter."""
    label, dot, name = parameter.rpartition(".")
    value: Value = _policies(experiment, label)[0].parameters[name] if dot else experiment.argument(parameter)
    return value


def load_sweep(folder: str | Path) -> tuple[tuple[str, ...], dict[Point, Result]]:
    """The parameters of a sweep's folder, and its results by their values, smaller numbers first.

    Args:
        folder: where `sweep` or `fedbandit sweep` wrote; the folder of one of its settings is read by `Result.load`.

    >>> from tempfile import TemporaryDirectory
    >>> experiment = Experiment("fedbandit/Synthetic-v0", ["Uniform"], {"max_cycles": 32}, trials=1)
    >>> with TemporaryDirectory() as folder:
    ...     kept = sweep(experiment, {"num_agents": [4, 2], "dropout": [0.1]}, folder, "serial")
    ...     parameters, results = load_sweep(folder)
    >>> parameters, list(results)
    (('num_agents', 'dropout'), [(2, 0.1), (4, 0.1)])
    """
    folders = sweep_folders(Path(folder))
    swept = set(folders.values())
    if len(swept) != 1:
        nothing = "neither" if Path(folder).exists() else "no such folder"
        got = f"sweeps over {'; '.join(sorted(', '.join(names) for names in swept))}" if swept else nothing
        raise FolderError(f"{folder}: expected the results of a run or of one sweep, got {got}; check the path")
    (parameters,) = swept
    contents = {path.name: read_folder(path) for path in folders}
    loaded = [Result(*content) for content in contents.values() if content.records]
    if not loaded:
        raise FolderError(f"{folder}: expected a finished trial, got none in any of its folders; run the sweep first")
    if empty := [name for name, content in contents.items() if not content.records]:
        loaded[0].notes.append(f"left out, because no trial has finished there: {'; '.join(empty)}")
    try:
        results = {tuple(_value(result.experiment, name) for name in parameters): result for result in loaded}
    except (KeyError, ValueError) as error:
        got = f"experiments without {visible(str(error))}"
        raise FolderError(f"{folder}: expected the sweep that the names of its folders tell, got {got}") from error
    return parameters, {point: results[point] for point in sorted(results, key=_numbers_first)}


def _numbers_first(point: Point) -> list[tuple[bool, float, str]]:
    """A key by which points are sorted: numbers by size, then names by their letters."""
    return [(True, 0.0, value) if isinstance(value, str) else (False, value, "") for value in point]


def sweep_table(parameters: Sequence[str], results: Mapping[Any, Result], kind: str = "regret") -> Columns:
    """The summaries of all results, one below the other, with a column for each parameter first.

    Args:
        parameters: the names of these columns.
        results: the results by what stands in these columns, a tuple of as many values.
        kind: which regret.

    >>> experiment = Experiment("fedbandit/Synthetic-v0", ["Uniform"], {"max_cycles": 32}, trials=1)
    >>> table = sweep_table(["num_agents"], sweep(experiment, {"num_agents": [2, 4]}, executor="serial"))
    >>> list(table)[:3], table["num_agents"]
    (['num_agents', 'policy', 'trials'], [2, 4])
    """
    return stacked(parameters, {point: result.table(kind=kind) for point, result in results.items()})
