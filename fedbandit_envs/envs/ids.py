"""The ids of the environments, and their entries in the registries of PettingZoo and Gymnasium.

Entries are strings, so that importing the package costs little more than importing these two.
"""

import gymnasium
import pettingzoo

NAMESPACE = "fedbandit"
PROBLEM_NAMES = ("Synthetic", "MovieLens", "Household", "Linear")  # classes in `fedbandit_envs.problems`


def environment_ids() -> list[str]:
    """The ids of all environments."""
    return [f"{NAMESPACE}/{name}-v0" for name in PROBLEM_NAMES]


def id_of(name: str) -> str:
    """The id of an environment: `Synthetic` means `fedbandit/Synthetic-v0`, and an id stays as it is."""
    return name if "/" in name else f"{NAMESPACE}/{name}-v0"


def register_environments() -> None:
    """Make the ids known to PettingZoo and to Gymnasium."""
    for name in PROBLEM_NAMES:
        # functools.partial would do, but a string keeps the specs printable and copyable.
        module = f"fedbandit_envs.{name.lower()}_v0"
        pettingzoo.register("parallel", f"{NAMESPACE}/{name}-v0", f"{module}:parallel_env")
        pettingzoo.register("aec", f"{NAMESPACE}/{name}-v0", f"{module}:env")
        gymnasium.register(f"{NAMESPACE}/{name}-v0", "fedbandit_envs.envs.views:JointView", kwargs={"problem": name})
        gymnasium.register(
            f"{NAMESPACE}/{name}-Agent-v0",
            "fedbandit_envs.envs.views:OneAgentView",
            vector_entry_point="fedbandit_envs.envs.views:AgentsVectorEnv",
            kwargs={"problem": name},
        )
