"""What a program has added to the library, as its worker processes must know it.

Classes that a worker can import are sent as their address. Others, as those of a notebook, are sent with their code, by
cloudpickle. That happens between our own processes only, and is never written to a file.
"""

import contextlib
import pickle
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fedbandit_envs.envs.registration import registered_environments, replace_environment
from fedbandit_envs.problems.regrets import REGRETS, Regret
from fedbandit_envs.protocol.registry import registered_policies, replace_policy

Packed = str | bytes  # an address "module:class", or a class with its code


class Known(NamedTuple):
    """What a program can add to the library, and its workers must know too."""

    policies: Mapping[str, Packed]  #: the policies by name
    environments: Mapping[str, Packed]  #: the classes of problems by id
    regrets: Mapping[str, Regret]  #: the kinds of regret, in the order in which results list them


def known_here() -> Known:
    """The policies, environments and kinds of regret that this process has added.

    A class that can't be packed is left out; `check_packable` says so where it is needed.
    """
    for kind, regret in REGRETS.items():
        try:
            pickle.dumps(regret)
        except (pickle.PicklingError, AttributeError) as error:
            raise ValueError(
                f"REGRETS: expected functions that worker processes can import, got that of {kind!r}, defined in a "
                "function or as a lambda; put it at the top of a module, or use executor='serial'"
            ) from error
    return Known(_all_packed(registered_policies()), _all_packed(registered_environments()), dict(REGRETS))


def check_packable(policies: Iterable[str], environments: Iterable[str]) -> None:
    """Refuse policies and environments that worker processes can neither import nor be sent."""
    known = {"policy": registered_policies(), "environment": registered_environments()}
    for kind, names in (("policy", policies), ("environment", environments)):
        for name in names:
            try:
                _packed(known[kind].get(name, ""))
            except Exception as error:
                raise ValueError(
                    f"{kind}: expected one that can be sent to worker processes, got {name!r} ({error}); put it at the "
                    "top of a module, or use executor='serial'"
                ) from error


def _all_packed(classes: Mapping[str, str | type[Any]]) -> dict[str, Packed]:
    packed: dict[str, Packed] = {}
    for name, one in classes.items():
        with contextlib.suppress(Exception):  # anything can go wrong in the reduction of a user's objects
            packed[name] = _packed(one)
    return packed


def _packed(one: str | type[Any]) -> Packed:
    if isinstance(one, str):
        return one
    import cloudpickle

    return bytes(cloudpickle.dumps(one))


def know(known: Known) -> None:
    """In a worker: add what the process that started the run has added."""
    for name, policy in known.policies.items():  # a worker of a cluster may know an older class by that name
        replace_policy(name, _unpacked(policy))
    for id, problem in known.environments.items():
        replace_environment(id, _unpacked(problem))
    REGRETS.clear()
    REGRETS.update(known.regrets)


def _unpacked(packed: Packed) -> Any:
    return pickle.loads(packed) if isinstance(packed, bytes) else packed
