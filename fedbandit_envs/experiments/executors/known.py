"""What a program adds to the library, so that the workers of its runs know it too: policies and kinds of regret."""

import pickle
from collections.abc import Mapping
from typing import NamedTuple

from fedbandit_envs.problems.regrets import REGRETS, Regret
from fedbandit_envs.protocol.registry import policy_names, register_policy, registered_policies


class Known(NamedTuple):
    """What a program can add to the library, which its workers must know too."""

    policies: Mapping[str, str]  #: the policies by name, as "module:class"
    regrets: Mapping[str, Regret]  #: the kinds of regret, in the order in which results list them


def known_here() -> Known:
    """The policies and the kinds of regret that this process knows."""
    for kind, regret in REGRETS.items():
        try:
            pickle.dumps(regret)
        except (pickle.PicklingError, AttributeError) as error:
            raise ValueError(
                f"REGRETS: expected functions that worker processes can import, got that of {kind!r}, defined in a "
                "function or as a lambda; put it at the top of a module, or use executor='serial'"
            ) from error
    return Known(registered_policies(), dict(REGRETS))


def know(known: Known) -> None:
    """Add in a worker what was added where the run was started."""
    for name, policy in known.policies.items():
        if name not in policy_names():  # a script that the worker imports has registered its own policies
            register_policy(name, policy)
    REGRETS.clear()
    REGRETS.update(known.regrets)
