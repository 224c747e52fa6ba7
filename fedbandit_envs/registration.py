"""Making environments and policies by their names."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import pettingzoo
from pettingzoo.utils.conversions import parallel_to_aec

from fedbandit_envs import generators
from fedbandit_envs.env import HiddenContextBandit
from fedbandit_envs.generators import InstanceGenerator
from fedbandit_envs.ids import PROBLEM_NAMES, environment_ids
from fedbandit_envs.protocol import Policy
from fedbandit_envs.validation import nearest, one_of, whole_number

PROBLEMS: dict[str, Callable[..., InstanceGenerator]] = {name: getattr(generators, name) for name in PROBLEM_NAMES}
_ENV_KEYWORDS = ("max_cycles", "observe", "render_mode")


def split_keywords(
    name: str, keywords: dict[str, Any], taken: Sequence[str] = ()
) -> tuple[InstanceGenerator, dict[str, Any]]:
    """The problem called `name` built from its keywords, and the keywords of the environment.

    `taken` are keywords that the caller knows what to do with: they are among those a message offers.
    """
    problem = PROBLEMS[one_of("problem", name, PROBLEMS)]
    known = list(inspect.signature(problem).parameters)
    offered = [*known, *_ENV_KEYWORDS, *taken]
    for keyword in keywords:
        if keyword not in known and keyword not in _ENV_KEYWORDS:
            hint = nearest(keyword, offered) or "; leave it out"
            raise ValueError(f"{name}: expected keywords among {', '.join(offered)}, got {keyword!r}{hint}")
    own = {keyword: value for keyword, value in keywords.items() if keyword in known}
    return problem(**own), {keyword: value for keyword, value in keywords.items() if keyword not in known}


def parallel_env(name: str, **keywords: Any) -> HiddenContextBandit:
    """The PettingZoo parallel environment of the problem called `name`."""
    problem, rest = split_keywords(name, keywords)
    env = HiddenContextBandit(problem, **rest)
    env.metadata = {**env.metadata, "name": f"{name.lower()}_v0"}
    return env


def aec_env(name: str, **keywords: Any) -> Any:
    """The same environment, one agent after the other."""
    return parallel_to_aec(parallel_env(name, **keywords))


def make(id: str, **keywords: Any) -> HiddenContextBandit:
    """Create an environment by its id: `make("fedbandit/Synthetic-v0", num_agents=100, max_cycles=2**17)`."""
    one_of("id", id, environment_ids())
    if keywords.get("max_cycles") is not None:
        whole_number("max_cycles", keywords["max_cycles"], at_least=1)  # PettingZoo takes -1 for the default
    return pettingzoo.make("parallel", id, **keywords)


_registered: dict[str, str | type[Policy]] = {}


@cache
def _installed_policies() -> dict[str, str]:
    from importlib.metadata import entry_points  # slow to import, and not every user asks for policies

    return {point.name: point.value for point in entry_points(group="fedbandit.policies")}


def register_policy(name: str, policy: str | type[Policy]) -> None:
    """Make a policy known by name: a class, or "my_package:MyPolicy"; another one of that name is refused.

    The same class defined anew, as when a notebook's cell is run again, takes the place of the old one.
    """
    if not isinstance(policy, str) and not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise ValueError(f"policy: expected a subclass of Policy or 'package:Class', got {policy!r}; pass the class")
    if name in _installed_policies() or _address(_registered.get(name, policy)) != _address(policy):
        raise ValueError(f"name: expected one that is not taken, got {name!r}; choose another")
    _registered[name] = policy


def _address(policy: str | type[Policy]) -> str:
    return policy if isinstance(policy, str) else f"{policy.__module__}:{policy.__qualname__}"


def registered_policies() -> dict[str, str]:
    """The policies registered in this process that another one can import, as "module:class"."""
    found = {}
    for name, policy in _registered.items():
        path = policy if isinstance(policy, str) else f"{policy.__module__}:{policy.__qualname__}"
        # A class made inside a function, or typed into a prompt, has no path by which it can be imported.
        typed_in = path.startswith("__main__:") and not hasattr(import_module("__main__"), "__file__")
        if "<locals>" not in path and not typed_in:
            found[name] = path
    return found


def policy_names() -> list[str]:
    """The names of all policies."""
    return sorted(_installed_policies() | _registered)


def policy_class(name: str) -> type[Policy]:
    """The class behind a policy's name."""
    known = _installed_policies() | _registered
    if name not in known:
        hint = nearest(name, known) or (
            "; choose one of these, or register_policy() yours first; the shell knows yours as an entry point of group "
            "fedbandit.policies"
        )
        raise ValueError(f"policy: expected one of {', '.join(sorted(known))}, got {name!r}{hint}")
    found = known[name]
    if isinstance(found, str):
        module, _, attribute = found.partition(":")
        found = getattr(import_module(module), attribute)
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ValueError(f"policy: expected {name!r} to name a subclass of fedbandit_envs.Policy, got {found!r}")
    return found


def policy_parameters(policy: type[Policy]) -> dict[str, Any]:
    """The hyper-parameters of a policy and their defaults."""
    if not is_dataclass(policy):
        return {}
    return {field.name: field.default for field in fields(policy) if field.init}


def make_policy(name: str, **parameters: Any) -> Policy:
    """Create a policy by its name: `make_policy("Fed-PECD", delta=0.1)`."""
    policy = policy_class(name)
    known = policy_parameters(policy)
    for parameter in parameters:
        if parameter not in known:
            raise ValueError(
                f"{name}: expected parameters among {', '.join(known) or '(none)'}, got "
                f"{parameter!r}{nearest(parameter, known)}"
            )
    return policy(**parameters)
