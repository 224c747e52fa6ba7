"""Settings as they are typed: what files and options of the command line mean."""

import argparse
import re
import shlex
from dataclasses import replace
from typing import Any

from fedbandit_envs.experiments.experiment import Experiment, ExperimentError, PolicySpec


def experiment_of(options: argparse.Namespace) -> Experiment:
    """The experiment that file and options describe together."""
    if options.file is None and (options.env is None or not options.policy):
        raise ExperimentError("expected an experiment FILE, or --env and --policy; `fedbandit list` shows their names")
    policies = [policy_of(text) for text in options.policy or ()]
    if options.file is None:
        experiment = Experiment(id_of(options.env), policies)
    else:
        experiment = Experiment.read(options.file)
        if options.env is not None:
            experiment = replace(experiment, environment=id_of(options.env))
        if policies:
            experiment = replace(experiment, policies=policies)
    given = {name: getattr(options, name) for name in ("trials", "seed") if getattr(options, name) is not None}
    for text in options.set:
        experiment = experiment.with_argument(*pair_of(text))
    experiment = replace(experiment, **given)
    experiment.check()
    return experiment


def executor_of(options: argparse.Namespace) -> str:
    """The executor by --executor or --workers."""
    if options.executor is not None and options.workers is not None:
        raise ExperimentError("expected --executor or --workers, got both; write --executor processes:N")
    if options.workers is not None:
        return f"processes:{options.workers}"
    return options.executor or "processes"


def id_of(name: str) -> str:
    """The id of an environment, of which the name is enough."""
    return name if "/" in name else f"fedbandit/{name}-v0"


def policy_of(text: str) -> PolicySpec:
    """A policy with its parameters, as `NAME KEY=VALUE ...`."""
    name, *rest = shlex.split(text) or [""]
    parameters = dict(pair_of(part) for part in rest)
    return PolicySpec(name, parameters, str(parameters.pop("label", "")))


def pair_of(text: str) -> tuple[str, Any]:
    """A setting, as `KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ExperimentError(f"expected KEY=VALUE, got {text!r}; write num_agents=20 or compiled=true, for example")
    return key, value_of(value)


def value_of(text: str) -> Any:
    """A number, boolean or list as TOML or Python write it, a power like 2**17, or else the text itself."""
    import tomllib

    text = {"True": "true", "False": "false"}.get(text, text)
    if power := re.fullmatch(r"(\d+)(?:\*\*|\^)(\d+)", text):
        return int(power[1]) ** int(power[2])
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, (bool, int, float, str, list)) else text


def step_of(text: str) -> int:
    """A step of the horizon."""
    value = value_of(text)
    if not isinstance(value, int):
        raise ExperimentError(f"--at: expected steps as whole numbers, got {text!r}")
    return value
