"""The command `fedbandit list`."""

import argparse
from typing import Any, NamedTuple

from fedbandit_envs.cli.options import find_own_modules
from fedbandit_envs.envs.ids import environment_ids, id_of, short_name

HELP = "List environments and policies with their parameters, or explain one of them."
EXAMPLES = ("fedbandit list", "fedbandit list policies", "fedbandit list Fed-PECD")
_GROUPS = ("environments", "policies")
# What `Policy.observes` means for who chooses a policy. Policies that ignore what they are shown exist, as Uniform.
_NEEDS = {
    "distribution": "contexts may stay hidden",
    "context": "must be shown the contexts",
    "delayed": "must be shown each context after its step",
    "truth": "must be shown the true means",
    "theta": "must be shown theta",
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


class Explanation(NamedTuple):
    """What is said about a policy or an environment by `fedbandit list NAME` and by its page in the documentation."""

    name: str  #: the policy's name or the environment's id
    needs: str  #: what a policy must be shown; empty for an environment
    description: str  #: the docstring of its class
    parameters: dict[str, Any]  #: the default of each parameter
    comments: dict[str, str]  #: what parameters mean; some have no comment


def explanation(name: str) -> Explanation:
    """Explain a policy or an environment from its class: the docstring, and the comments beside its fields.

    Args:
        name: the name of a policy, or the id of an environment, or its short name.

    >>> explanation("Fed-PECD").comments["sigma"]
    'noise scale that the widths assume'
    """
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
    if not environment:
        return Explanation(name, _needs(what), _description(what), policy_parameters(what), comments)
    parameters = _defaults_of(what)
    parameters["max_cycles"] = _defaults_of(HiddenContextBandit)["max_cycles"]
    comments["max_cycles"] = "the number of steps T"
    return Explanation(id_of(name), "", _description(what), parameters, comments)


def _explain(name: str) -> None:
    """Show the docstring of a policy or an environment, and each of its parameters."""
    about = explanation(name)
    title = f"{about.name} ({about.needs})" if about.needs else about.name
    print(f"{title}\n\n{about.description}\n\n{'parameters' if about.parameters else 'no parameters'}")
    for key, value in about.parameters.items():
        print(f"  {key}={value!r}")
        if key in about.comments:
            print(f"      {about.comments[key]}")


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
        _entry(f"{name} ({_needs(policy)})", policy, policy_parameters(policy))


def _needs(policy: Any) -> str:
    """What a policy must be shown, and whom its agents talk to."""
    from fedbandit_envs.protocol.policy import partner_of

    return f"{_NEEDS[policy.observes]}; {_TALKS[partner_of(policy)]}"


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
