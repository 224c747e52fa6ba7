"""The ids of the environments, and their entries in the registries of PettingZoo and Gymnasium.

The entries are strings, so that importing this package costs little more than importing PettingZoo and Gymnasium.
"""

import re
import warnings
from importlib.metadata import entry_points
from typing import Any

import gymnasium
import pettingzoo

NAMESPACE = "fedbandit"
GROUP = "fedbandit.problems"  # the group of entry points by which other packages add environments

#: The class of each environment's problem, or where it is found, by the environment's id.
PROBLEMS: dict[str, str | type[Any]] = {}

_OWN = {
    "Synthetic": "fedbandit_envs.problems.synthetic:Synthetic",
    "MovieLens": "fedbandit_envs.problems.movielens.problem:MovieLens",
    "Household": "fedbandit_envs.problems.movielens.problem:Household",
    "Linear": "fedbandit_envs.problems.linear:Linear",
    "MultiArmed": "fedbandit_envs.problems.multi_armed:MultiArmed",
    "Forecast": "fedbandit_envs.problems.forecast:Forecast",
    "File": "fedbandit_envs.problems.file:File",
    "SharedArms": "fedbandit_envs.problems.shared_arms:SharedArms",
}
#: Environments without Gymnasium's views: their agents can't be played apart, because rewards depend on all of them.
COUPLED = ("fedbandit/SharedArms-v0",)
_ID = re.compile(r"(?P<namespace>[A-Za-z0-9_]+)/(?P<name>[A-Za-z0-9_]+)-v(?P<version>\d+)")


def environment_ids() -> list[str]:
    """The ids of all environments: those of this package, of other installed packages, and the registered ones.

    >>> environment_ids()[0]
    'fedbandit/Synthetic-v0'
    """
    return list(PROBLEMS)


def id_of(name: str) -> str:
    """The id of an environment by its short name; a whole id stays as it is.

    >>> id_of("Synthetic"), id_of("fedbandit/Synthetic-v0")
    ('fedbandit/Synthetic-v0', 'fedbandit/Synthetic-v0')
    """
    return name if "/" in name else f"{NAMESPACE}/{name}-v0"


def short_name(id: str) -> str:
    """What `id_of` takes for this id: the name alone of an environment of this package, else the id itself.

    >>> short_name("fedbandit/Synthetic-v0"), short_name("mine/Own-v0")
    ('Synthetic', 'mine/Own-v0')
    """
    match = _ID.fullmatch(id)
    return match["name"] if match and id == id_of(match["name"]) else id


def enter(id: str, problem: str | type[Any]) -> None:
    """Make an id known here, to PettingZoo and to Gymnasium; of an id that is known already, only the class changes."""
    match = _ID.fullmatch(id) if isinstance(id, str) else None
    if match is None:
        raise ValueError(
            f"id: expected 'namespace/Name-v0', where names are letters, digits and underscores, got {id!r}"
        )
    known = id in PROBLEMS
    PROBLEMS[id] = problem
    if known:
        return
    given = {"problem": id}
    pettingzoo.register("parallel", id, "fedbandit_envs.envs.registration:parallel_env", kwargs=given)
    pettingzoo.register("aec", id, "fedbandit_envs.envs.registration:aec_env", kwargs=given)
    if id in COUPLED:
        return
    gymnasium.register(id, "fedbandit_envs.envs.views:JointView", kwargs=given)
    gymnasium.register(
        f"{match['namespace']}/{match['name']}-Agent-v{match['version']}",
        "fedbandit_envs.envs.views:OneAgentView",
        vector_entry_point="fedbandit_envs.envs.views:AgentsVectorEnv",
        kwargs=given,
    )


def register_environments() -> None:
    """Make known the environments of this package and those that other packages have as entry points.

    It is done when the package is imported, and not later: `gymnasium.make("fedbandit_envs:theirs/Name-v0")` imports it
    and then looks into Gymnasium's own registry alone.
    """
    for name, where in _OWN.items():
        enter(id_of(name), where)
    for point in entry_points(group=GROUP):
        try:
            if PROBLEMS.get(point.name, point.value) != point.value:
                raise ValueError(f"id: expected one that is not taken, got {point.name!r}")
            enter(point.name, point.value)
        except ValueError as error:  # a fault of another package must not break the import of this one
            warnings.warn(f"entry point {point.name!r} of group {GROUP} is left out: {error}", stacklevel=2)
