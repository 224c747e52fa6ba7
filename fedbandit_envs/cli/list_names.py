"""The command `fedbandit list`."""

import argparse
from typing import Any

HELP = "List environments and policies with their parameters."
EXAMPLES = ("fedbandit list", "fedbandit list policies")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit list`."""
    parser.add_argument("what", nargs="?", choices=("environments", "policies"), help="only these")


def run(options: argparse.Namespace) -> int:
    """Show every environment and every policy in a few lines."""
    if options.what != "policies":
        _list_environments()
    if options.what != "environments":
        _list_policies()
    return 0


def _list_environments() -> None:
    from fedbandit_envs.envs.ids import environment_ids
    from fedbandit_envs.envs.parallel import HiddenContextBandit
    from fedbandit_envs.envs.registration import PROBLEMS

    print("environments")
    for id, problem in zip(environment_ids(), PROBLEMS.values(), strict=True):
        _entry(id, problem, _defaults_of(problem))
    steps = _defaults_of(HiddenContextBandit)["max_cycles"]
    print(f"  each also has\n      max_cycles={steps}, the number of steps T")


def _list_policies() -> None:
    from fedbandit_envs.protocol.registry import policy_class, policy_names, policy_parameters

    print("policies")
    for name in policy_names():
        policy = policy_class(name)
        _entry(f"{name} (is shown the {policy.observes})", policy, policy_parameters(policy))


def _entry(name: str, what: Any, parameters: dict[str, Any]) -> None:
    first_line, *_ = (what.__doc__ or "").strip().splitlines() or ["(no description)"]
    print(f"  {name}\n      {first_line}")
    if parameters:
        print("      " + ", ".join(f"{key}={value!r}" for key, value in parameters.items()))


def _defaults_of(problem: Any) -> dict[str, Any]:
    import inspect

    return {name: parameter.default for name, parameter in inspect.signature(problem).parameters.items()}
