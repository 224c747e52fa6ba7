"""What a program has added to the library, told to its worker processes."""

import pickle
from collections.abc import Mapping
from typing import NamedTuple

from fedbandit_envs.envs.ids import environment_ids
from fedbandit_envs.envs.registration import register_environment, registered_environments
from fedbandit_envs.problems.regrets import REGRETS, Regret
from fedbandit_envs.protocol.registry import policy_names, register_policy, registered_policies


class Known(NamedTuple):
    """What a program can add to the library, and its workers must know too."""

    policies: Mapping[str, str]  #: the addresses "module:class" by name
    environments: Mapping[str, str]  #: the addresses "module:class" by id
    regrets: Mapping[str, Regret]  #: in the order in which results list them


def known_here() -> Known:
    """The policies, environments and kinds of regret that this process has added."""
    for kind, regret in REGRETS.items():
        try:
            pickle.dumps(regret)
        except (pickle.PicklingError, AttributeError) as error:
            raise ValueError(
                f"REGRETS: expected functions that worker processes can import, got that of {kind!r}, defined in a "
                "function or as a lambda; put it at the top of a module, or use executor='serial'"
            ) from error
    return Known(registered_policies(), registered_environments(), dict(REGRETS))


def know(known: Known) -> None:
    """In a worker: add what the process that started the run has added."""
    for name, policy in known.policies.items():
        if name not in policy_names():  # a script that is imported again registers its own
            register_policy(name, policy)
    for id, problem in known.environments.items():
        if id not in environment_ids():
            register_environment(id, problem)
    REGRETS.clear()
    REGRETS.update(known.regrets)
