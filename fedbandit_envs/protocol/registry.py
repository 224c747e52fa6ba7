"""Policies by their names: those that are installed, and those that a user registers."""

from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
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
