"""Policies by their names: those that are installed, and those that a user registers."""

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
    """Make a policy known by name: a class, or "my_package:MyPolicy"; another class of that name is refused.

    The same class defined anew, as when a notebook's cell is run again, takes the place of the old one.
    """
    if not isinstance(policy, str) and not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise ValueError(f"policy: expected a subclass of Policy or 'package:Class', got {policy!r}; pass the class")
    known = _installed_policies() | _registered
    if name in known and not _same(known[name], policy):
        raise ValueError(f"name: expected one that is not taken, got {name!r}; choose another")
    _registered[name] = policy


def _same(known: str | type[Policy], policy: str | type[Policy]) -> bool:
    """Whether both are one class, perhaps defined anew; a package may offer its class under two paths."""
    if _address(known) == _address(policy):
        return True
    try:
        return _loaded(known) is _loaded(policy)
    except ValueError:  # one of them is nowhere
        return False


def _address(policy: str | type[Policy]) -> str:
    return policy if isinstance(policy, str) else f"{policy.__module__}:{policy.__qualname__}"


def _loaded(policy: str | type[Policy]) -> Any:
    """The object behind "module:Class"; ValueError if there is none."""
    if not isinstance(policy, str):
        return policy
    module, _, attribute = policy.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"policy: expected 'module:Class' that can be imported, got {policy!r} ({error})") from error


def registered_policies() -> dict[str, str | type[Policy]]:
    """The policies registered in this process: "module:class" where others can import it, else the class itself.

    A class made inside a function, in a notebook or in a script that runs has no path by which others can import it.
    """
    return {name: _address(policy) if _importable(policy) else policy for name, policy in _registered.items()}


def _importable(policy: str | type[Policy]) -> bool:
    if isinstance(policy, str):
        return True
    module = modules.get(policy.__module__)
    return policy.__module__ != "__main__" and getattr(module, policy.__qualname__, None) is policy


def policy_names() -> list[str]:
    """The names of all policies."""
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
    found = _loaded(known[name])
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
