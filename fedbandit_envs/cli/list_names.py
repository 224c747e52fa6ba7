"""The command `fedbandit list`."""

import argparse
from typing import Any

from fedbandit_envs.cli.options import find_own_modules
from fedbandit_envs.envs.ids import environment_ids, id_of, short_name

HELP = "List environments and policies with their parameters, or explain one of them."
EXAMPLES = ("fedbandit list", "fedbandit list policies", "fedbandit list Fed-PECD")
_GROUPS = ("environments", "policies")
# What `Policy.observes` means for who chooses a policy. Policies that ignore what they are shown exist, as Uniform.
_NEEDS = {
    "distribution": "contexts may stay hidden",
    "context": "must be shown the contexts",
    "truth": "must be shown the true means",
}
_TALKS = {"server": "talks to a server", "peers": "talks to peers", "nobody": "talks to nobody"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit list`."""
    parser.add_argument(
        "what",
        nargs="?",
        metavar="NAME",
        help="environments, policies, or the name (or module:Class) of one to explain; default: all",
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
    from fedbandit_envs.cli.field_comments import field_comments
    from fedbandit_envs.envs.parallel import HiddenContextBandit
    from fedbandit_envs.envs.registration import problem_class
    from fedbandit_envs.protocol.registry import policy_class, policy_names, policy_parameters
    from fedbandit_envs.validation import one_of

    ids = environment_ids()
    names = dict.fromkeys([*_GROUPS, *map(short_name, ids), *ids, *policy_names()])
    if ":" not in name:
        one_of("NAME", name, names)
    find_own_modules(name)
    environment = id_of(name) in ids
    what: Any = problem_class(name) if environment else policy_class(name)
    comments = field_comments(what)
    if environment:
        title, parameters = id_of(name), _defaults_of(what)
        parameters["max_cycles"] = _defaults_of(HiddenContextBandit)["max_cycles"]
        comments["max_cycles"] = "the number of steps T"
    else:
        title, parameters = _title(name, what), policy_parameters(what)
    print(f"{title}\n\n{_description(what)}\n\n{'parameters' if parameters else 'no parameters'}")
    for key, value in parameters.items():
        print(f"  {key}={value!r}")
        if key in comments:
            print(f"      {comments[key]}")


def _list_environments() -> None:
    from fedbandit_envs.envs.parallel import HiddenContextBandit
    from fedbandit_envs.envs.registration import problem_class

    print("environments")
    for id in environment_ids():
        problem = problem_class(id)
        _entry(id, problem, _defaults_of(problem))
    steps = _defaults_of(HiddenContextBandit)["max_cycles"]
    print(f"  each also has\n      max_cycles={steps}, the number of steps T")


def _list_policies() -> None:
    from fedbandit_envs.protocol.registry import policy_class, policy_names, policy_parameters

    print("policies")
    for name in policy_names():
        policy = policy_class(name)
        _entry(_title(name, policy), policy, policy_parameters(policy))


def _title(name: str, policy: Any) -> str:
    """The name of a policy, what it must be shown, and whom its agents talk to."""
    from fedbandit_envs.protocol.policy import partner_of

    return f"{name} ({_NEEDS[policy.observes]}; {_TALKS[partner_of(policy)]})"


def _entry(name: str, what: Any, parameters: dict[str, Any]) -> None:
    print(f"  {name}\n      {_description(what).splitlines()[0]}")
    if parameters:
        print("      " + ", ".join(f"{key}={value!r}" for key, value in parameters.items()))


def _description(what: Any) -> str:
    """The class's own docstring; a base class's would be about something else."""
    import inspect

    text = inspect.cleandoc(what.__doc__ or "")
    written_by_dataclass = text.startswith(f"{what.__name__}(")  # its signature, where the author wrote nothing
    return text if text and not written_by_dataclass else "(no description)"


def _defaults_of(problem: Any) -> dict[str, Any]:
    import inspect

    return {name: parameter.default for name, parameter in inspect.signature(problem).parameters.items()}
