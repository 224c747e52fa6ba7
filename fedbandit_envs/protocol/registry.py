"""Policies by their names: those that are installed, and those that a user registers."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from sys import modules
from typing import Any

from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.validation import nearest

_registered: dict[str, str | type[Policy]] = {}


@cache
def _installed_policies() -> dict[str, str]:
    from importlib.metadata import entry_points  # slow to import, and not every user asks for policies

    return {point.name: point.value for point in entry_points(group="fedbandit.policies")}


def register_policy(name: str, policy: str | type[Policy]) -> None:
    """Make a policy known by name, to `make_policy`, to experiments and to their worker processes.

    The same class defined anew, as when a notebook's cell is run again, takes the place of the old one.

    Args:
        name: a name that no other policy has.
        policy: a subclass of `Policy`, or its address "my_package:MyPolicy".

    >>> import fedbandit_envs as fb
    >>> fb.register_policy("My-Policy", "my_package:MyPolicy")
    >>> "My-Policy" in fb.policy_names()
    True
    >>> del _registered["My-Policy"]
    """
    if not isinstance(policy, str) and not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise ValueError(f"policy: expected a subclass of Policy or 'package:Class', got {policy!r}; pass the class")
    known = _installed_policies() | _registered
    if name in known and not same_class(known[name], policy):
        raise ValueError(f"name: expected one that is not taken, got {name!r}; choose another")
    _registered[name] = policy


def replace_policy(name: str, policy: str | type[Policy]) -> None:
    """In a worker: know a policy by name as the process that started the run does, whatever was known here before."""
    _registered[name] = policy


def address(registered: str | type[Any]) -> str:
    """Where a class is found, as "module:class"."""
    return registered if isinstance(registered, str) else f"{registered.__module__}:{registered.__qualname__}"


def loaded(registered: str | type[Any]) -> Any:
    """The object behind "module:class"; ValueError if there is none."""
    if not isinstance(registered, str):
        return registered
    name, _, attribute = registered.partition(":")
    try:
        module = import_module(name)
    except (ImportError, ValueError) as error:
        raise ValueError(f"{registered}: expected 'module:Class' that can be imported, got none ({error})") from error
    if not hasattr(module, attribute):
        raise ValueError(
            f"{registered}: expected 'module:Class' that can be imported, got none (module {name!r} has no attribute "
            f"{attribute!r}){nearest(attribute, vars(module))}"
        )
    return getattr(module, attribute)


def same_class(known: str | type[Any], other: str | type[Any]) -> bool:
    """Whether both are one class, perhaps defined anew; a package may offer its class under two paths."""
    if address(known) == address(other):
        return True
    try:
        return loaded(known) is loaded(other)
    except ValueError:  # one of them is nowhere
        return False


def registered_policies() -> dict[str, str | type[Policy]]:
    """The policies registered in this process: "module:class" where others can import it, else the class itself."""
    return importable(_registered)


def importable(registered: Mapping[str, str | type[Any]]) -> dict[str, str | type[Any]]:
    """The addresses of registered classes; a class that other processes can't import stays a class.

    A class made inside a function, in a notebook or in a script that runs has no path by which others can import it.
    """
    return {name: address(one) if _has_path(one) else one for name, one in registered.items()}


def _has_path(registered: str | type[Any]) -> bool:
    if isinstance(registered, str):
        return True
    module = modules.get(registered.__module__)
    return registered.__module__ != "__main__" and getattr(module, registered.__qualname__, None) is registered


def policy_names() -> list[str]:
    """The names of all policies: those that are installed, and those that were registered.

    >>> "Fed-PECD" in policy_names()
    True
    """
    return sorted(_installed_policies() | _registered)


def policy_class(name: str) -> type[Policy]:
    """The class behind a policy's name, or behind "module:Class"."""
    known = _installed_policies() | _registered
    if name not in known and isinstance(name, str) and ":" in name:
        known[name] = name
    if name not in known:
        hint = nearest(name, known) or (
            "; choose one of these, register_policy() yours first, or write module:Class; the shell knows yours as an "
            "entry point of group fedbandit.policies too"
        )
        raise ValueError(f"policy: expected one of {', '.join(sorted(known))}, got {name!r}{hint}")
    policy = loaded(known[name])
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise ValueError(f"policy: expected {name!r} to name a subclass of fedbandit_envs.Policy, got {policy!r}")
    return policy


def policy_parameters(policy: type[Policy]) -> dict[str, Any]:
    """The hyper-parameters of a policy and their defaults."""
    if not is_dataclass(policy):
        return {}
    return {field.name: field.default for field in fields(policy) if field.init}


def make_policy(name: str, **parameters: Any) -> Policy:
    """Create a policy by its name.

    Args:
        name: one of `policy_names()`.
        parameters: the hyper-parameters; `fedbandit list NAME` explains each.

    >>> import fedbandit_envs as fb
    >>> fb.make_policy("Fed-PECD", delta=0.05).delta
    0.05
    """
    policy = policy_class(name)
    known = policy_parameters(policy)
    for parameter in parameters:
        if parameter not in known:
            raise ValueError(
                f"{name}: expected parameters among {', '.join(known) or '(none)'}, got "
                f"{parameter!r}{nearest(parameter, known)}"
            )
    return policy(**parameters)
