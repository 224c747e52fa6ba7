"""The command `fedbandit list`."""

import argparse
from typing import Any

from fedbandit_envs.envs.ids import environment_id

HELP = "List environments and policies with their parameters, or explain one of them."
EXAMPLES = ("fedbandit list", "fedbandit list policies", "fedbandit list Fed-PECD")
_GROUPS = ("environments", "policies")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit list`."""
    parser.add_argument(
        "what", nargs="?", metavar="NAME", help="environments, policies, or the name of one to explain; default: all"
    )


def run(options: argparse.Namespace) -> int:
    """Show every environment and every policy in a few lines, or explain the one that is named."""
    if options.what in (None, "environments"):
        _list_environments()
    if options.what in (None, "policies"):
        _list_policies()
    if options.what not in (None, *_GROUPS):
        _explain(options.what)
    return 0


def _explain(name: str) -> None:
    """Show the docstring of a policy or an environment, and each of its parameters."""
    import inspect

    from fedbandit_envs.cli.field_comments import field_comments
    from fedbandit_envs.envs.parallel import HiddenContextBandit
    from fedbandit_envs.envs.registration import PROBLEMS
    from fedbandit_envs.protocol.registry import policy_class, policy_names, policy_parameters
    from fedbandit_envs.validation import one_of

    names = {environment_id(problem): problem for problem in PROBLEMS}
    known = [*_GROUPS, *PROBLEMS, *names, *policy_names()]
    name = names.get(one_of("NAME", name, known), name)
    what: Any = PROBLEMS[name] if name in PROBLEMS else policy_class(name)
    comments = field_comments(what)
    if name in PROBLEMS:
        title, parameters = environment_id(name), _defaults_of(what)
        parameters["max_cycles"] = _defaults_of(HiddenContextBandit)["max_cycles"]
        comments["max_cycles"] = "the number of steps T"
    else:
        title, parameters = f"{name} (is shown the {what.observes})", policy_parameters(what)
    print(
        f"{title}\n\n{inspect.getdoc(what) or '(no description)'}\n\n{'parameters' if parameters else 'no parameters'}"
    )
    for key, value in parameters.items():
        print(f"  {key}={value!r}")
        if key in comments:
            print(f"      {comments[key]}")


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
