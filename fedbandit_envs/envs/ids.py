"""The ids of the environments, and their entries in the registries of PettingZoo and Gymnasium.

Entries are strings, so that importing the package costs little more than importing these two.
"""

import gymnasium
import pettingzoo

NAMESPACE = "fedbandit"
PROBLEM_NAMES = ("Synthetic", "MovieLens", "Household", "Linear")  # classes in `fedbandit_envs.problems`


def environment_id(name: str) -> str:
    """The id of an environment by the short name of its problem; a whole id stays as it is.

    >>> environment_id("Synthetic"), environment_id("fedbandit/Synthetic-v0")
    ('fedbandit/Synthetic-v0', 'fedbandit/Synthetic-v0')
    """
    return name if "/" in name else f"{NAMESPACE}/{name}-v0"


def problem_name(id: str) -> str:
    """The short name of the problem behind an id, the other direction of `environment_id`.

    >>> problem_name("fedbandit/Synthetic-v0")
    'Synthetic'
    """
    return id.removeprefix(f"{NAMESPACE}/").removesuffix("-v0")


def environment_ids() -> list[str]:
    """The ids of all environments."""
    return [environment_id(name) for name in PROBLEM_NAMES]


def register_environments() -> None:
    """Make the ids known to PettingZoo and to Gymnasium."""
    for name in PROBLEM_NAMES:
        # functools.partial would do, but a string keeps the specs printable and copyable.
        module = f"fedbandit_envs.{name.lower()}_v0"
        pettingzoo.register("parallel", environment_id(name), f"{module}:parallel_env")
        pettingzoo.register("aec", environment_id(name), f"{module}:env")
        gymnasium.register(environment_id(name), "fedbandit_envs.envs.views:JointView", kwargs={"problem": name})
        gymnasium.register(
            f"{NAMESPACE}/{name}-Agent-v0",
            "fedbandit_envs.envs.views:OneAgentView",
            vector_entry_point="fedbandit_envs.envs.views:AgentsVectorEnv",
            kwargs={"problem": name},
        )
