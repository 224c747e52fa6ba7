"""Options that several commands share: their grammar, and what their text means."""

import argparse
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedbandit_envs.envs.ids import id_of

if TYPE_CHECKING:
    from fedbandit_envs.experiments.experiment import Experiment, PolicySpec

_OPTIONS = (
    "trials",
    "seed",
    "policy",
    "env",
    "out",
    "workers",
    "executor",
)  # often taken for a KEY of --set
LARGEST = 2**63 - 1  # the largest whole number of TOML and of numpy


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe an experiment, which `experiment_of` reads."""
    group = parser.add_argument_group("what to run")
    group.add_argument("file", nargs="?", metavar="FILE", help="an experiment as .toml or .json; options change it")
    group.add_argument("--env", metavar="ID", help="the environment: Synthetic, MovieLens, ... or a whole id")
    group.add_argument(
        "--policy",
        action="append",
        metavar="'NAME KEY=VALUE ...'",
        help="a policy, or module:Class, with its parameters (and label=...); can be repeated",
    )
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an argument of the environment, or dropout (the probability that a report is lost), edge_dropout (that "
        "an edge between peers fails), attackers (the share of agents that report falsely) and attack (sign-flip, "
        "scale, constant or collude); can be repeated",
    )
    group.add_argument(
        "--paper",
        action="store_true",
        help="the paper's settings for Synthetic or MovieLens (M = 100, T = 2**17, classical error), and its policies "
        "unless --policy names others; --set changes them",
    )
    group.add_argument(
        "--network",
        metavar="GRAPH",
        help="who can talk to whom, for policies that talk to peers: ring, path, star, complete, grid (or grid:4x5), "
        "erdos-renyi:P with the probability of an edge, random-regular:D with the degree",
    )
    group.add_argument(
        "--shards",
        type=int,
        metavar="N",
        help="spread the agents of each run over N processes, for very many agents; results are the same (default: one "
        "process for each run)",
    )
    group.add_argument(
        "--shards-on",
        metavar="WHERE",
        help="where these shards live: processes, ray or ray:ADDRESS (default: processes)",
    )
    group.add_argument("--trials", type=int, metavar="N", help="default: 10")
    group.add_argument("--seed", type=int, metavar="S", help="default: 0")


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add the option --dry-run, which `show_plan` serves."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="compute nothing; print the experiment as TOML, which can be saved as a FILE, and what would be computed",
    )


def show_plan(experiment: "Experiment", settings: int = 1, finished: int = 0) -> None:
    """Print the experiment as TOML, and the amount of work as a comment, so that the output is a valid file.

    Args:
        experiment: what would run.
        settings: at how many settings, if it is a sweep.
        finished: how many runs, each a policy and a trial, are there already.
    """
    print(experiment.text(), end="")
    policies = "1 policy" if len(experiment.policies) == 1 else f"{len(experiment.policies)} policies"
    work = f"{experiment.trials} trial{'s' * (experiment.trials != 1)} of {policies}"
    work += f" in each of {settings} settings" if settings > 1 else ""
    if finished:
        runs = experiment.trials * len(experiment.policies) * settings
        work += f", of whose {runs} runs {finished} are there already"
    print(f"\n# would compute {work}; nothing was run")


def add_running(parser: argparse.ArgumentParser, out: str | None = None) -> None:
    """Add the options that say where results go and who computes them; `out` is the default folder."""
    from fedbandit_envs.experiments.executors.local import executor_help

    group = parser.add_argument_group("how to run it")
    default = f"default: {out}" if out else "default: keep nothing"
    group.add_argument("--out", metavar="FOLDER", default=out, help=f"the results; trials there are kept ({default})")
    group.add_argument("--workers", type=int, metavar="N", help="processes (default: one for each processor)")
    group.add_argument("--executor", metavar="NAME", help=f"{executor_help()} (default: processes)")
    group.add_argument(
        "--force", action="store_true", help="remove torn or foreign files in the folder, not refuse them"
    )


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add the option --timeout."""
    explained = "a trial that takes longer has failed, and its worker process is ended (default: no limit)"
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help=explained)


def add_kind(parser: argparse.ArgumentParser) -> None:
    """Add the option --kind: which regret to show."""
    from fedbandit_envs.problems.regrets import REGRETS

    explained = "; ".join(f"{name}: {regret.help}" for name, regret in REGRETS.items())
    parser.add_argument(
        "--kind", choices=REGRETS, default="regret", help=f"which regret (default: regret). {explained}"
    )


def experiment_of(options: argparse.Namespace) -> "Experiment":
    """The experiment that the file and the options describe together; the options win. Nobody has checked it yet."""
    experiment = _described(options)
    names = ("trials", "seed", "network", "shards", "shards_on")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    for text in options.set:
        key, value = pair_of(text)
        if key in _OPTIONS:
            raise ValueError(f"--set: expected an argument of the environment, got {text!r}; use --{key} {value}")
        experiment = experiment.with_argument(key, value)
    return replace(experiment, **given)


def _described(options: argparse.Namespace) -> "Experiment":
    """The experiment of the file, of --env and --policy, or of --env and --paper."""
    from fedbandit_envs.experiments.experiment import Experiment

    policies = [policy_of(text) for text in options.policy or ()]
    if options.env is not None and options.env.endswith(".npz"):
        raise ValueError(
            f"--env: expected the name of an environment, got the file {options.env}; use --env File --set "
            f"path={options.env}"
        )
    if options.paper:
        from fedbandit_envs.paper.panels import paper_experiment

        if options.file is not None or options.env is None:
            came = f"the file {options.file}" if options.file is not None else "no --env"
            raise ValueError(f"--paper: expected --env Synthetic or --env MovieLens beside it, got {came}")
        experiment = paper_experiment(id_of(options.env))
    elif options.file is not None:
        experiment = Experiment.read(options.file)
        for spec in experiment.policies:
            find_own_modules(spec.name)
        if options.env is not None:
            experiment = replace(experiment, environment=id_of(options.env))
    elif options.env is None or not policies:
        came = "no --policy" if options.env is not None else "neither"
        raise ValueError(
            f"expected an experiment FILE, or --env and --policy, got {came}; `fedbandit list` shows names"
        )
    else:
        experiment = Experiment(id_of(options.env), policies)
    return replace(experiment, policies=policies) if policies else experiment


def executor_of(options: argparse.Namespace) -> str:
    """The name of the executor that --executor or --workers asks for."""
    if options.executor is not None and options.workers is not None:
        raise ValueError("expected --executor or --workers, got both; write --executor processes:N")
    if options.workers is not None:
        return f"processes:{options.workers}"
    return options.executor or "processes"


def policy_of(text: str) -> "PolicySpec":
    """The policy that `NAME KEY=VALUE ...` describes; the key `label` names it in tables."""
    import shlex

    from fedbandit_envs.experiments.experiment import PolicySpec

    name, *rest = shlex.split(text) or [""]
    if "," in name:
        several = " ".join(f"--policy {shlex.quote(one)}" for one in text.split(","))
        raise ValueError(f"--policy: expected one policy, got {text!r}; use {several}")
    find_own_modules(name)
    parameters = dict(pair_of(part) for part in rest)
    return PolicySpec(name, parameters, str(parameters.pop("label", "")))


def find_own_modules(name: str) -> None:
    """Let `module:Class` be found if the module is in the current folder, as `python -m` finds it."""
    if ":" in name and "" not in sys.path:
        sys.path.insert(0, "")


def pair_of(text: str) -> tuple[str, Any]:
    """The key and the value of a setting written as `KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"expected KEY=VALUE, got {text!r}; for example num_agents=20 or compiled=true")
    return key, value_of(value)


def value_of(text: str) -> Any:
    """A number, boolean or list as TOML or Python write it, a power like 2**17, or else the text itself.

    >>> [value_of(text) for text in ("2**17", "1e4", "0.1", "true", "classical", "(0.1, 0.2)")]
    [131072, 10000, 0.1, True, 'classical', [0.1, 0.2]]
    """
    import tomllib
    from decimal import Decimal

    text = {"True": "true", "False": "false"}.get(text, text)
    if power := re.fullmatch(r"(\d{1,19})(?:\*\*|\^)(\d{1,19})", text):
        value = int(power[1]) ** min(int(power[2]), LARGEST.bit_length())  # larger exponents would fill all memory
        if value > LARGEST:
            raise ValueError(f"expected a number of at most 2**63 - 1, got {text!r}")
        return value
    if re.fullmatch(r"\d+(\.\d+)?[eE]\+?\d{1,2}", text) and float(text).is_integer():
        return int(Decimal(text))  # 1e4 stands where a whole number is needed, and a whole number can be any number
    in_toml = re.sub(r"^[(](.*)[)]$", r"[\1]", text)  # Python writes (1, 2) for a pair
    try:
        table = tomllib.loads(f"value = {in_toml}")
    except tomllib.TOMLDecodeError:
        return text
    # Text with line breaks can be several settings of TOML; then it is no value but just text.
    plain = len(table) == 1 and isinstance(table["value"], (bool, int, float, str, list))
    return table["value"] if plain else text
