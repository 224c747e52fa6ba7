"""Making environments by their names."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pettingzoo
from pettingzoo.utils.conversions import parallel_to_aec

from fedbandit_envs.envs.ids import environment_ids
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.problems.generator import InstanceGenerator
from fedbandit_envs.problems.linear import Linear
from fedbandit_envs.problems.movielens.problem import Household, MovieLens
from fedbandit_envs.problems.synthetic import Synthetic
from fedbandit_envs.validation import nearest, one_of, whole_number

PROBLEMS: dict[str, Callable[..., InstanceGenerator]] = {
    problem.__name__: problem for problem in (Synthetic, MovieLens, Household, Linear)
}
_ENV_KEYWORDS = ("max_cycles", "observe", "render_mode")


def split_keywords(
    name: str, keywords: dict[str, Any], taken: Sequence[str] = ()
) -> tuple[InstanceGenerator, dict[str, Any]]:
    """Build the problem called `name` from its keywords, and return it with the keywords of the environment.

    Args:
        name: the name of a problem, such as "Synthetic".
        keywords: the keywords of both, mixed; an unknown one is refused.
        taken: keywords that the caller has taken out already; an error offers them too.

    >>> split_keywords("Synthetic", {"num_agents": 3, "max_cycles": 10})[1]
    {'max_cycles': 10}
    """
    problem = PROBLEMS[one_of("problem", name, PROBLEMS)]
    known = list(inspect.signature(problem).parameters)
    offered = [*known, *_ENV_KEYWORDS, *taken]
    for keyword in keywords:
        if keyword not in known and keyword not in _ENV_KEYWORDS:
            raise ValueError(
                f"{name}: expected keywords among {', '.join(offered)}, got {keyword!r}{nearest(keyword, offered)}"
            )
    own = {keyword: value for keyword, value in keywords.items() if keyword in known}
    return problem(**own), {keyword: value for keyword, value in keywords.items() if keyword not in known}


def parallel_env(name: str, **keywords: Any) -> HiddenContextBandit:
    """The PettingZoo parallel environment of the problem called `name`."""
    problem, rest = split_keywords(name, keywords)
    env = HiddenContextBandit(problem, **rest)
    env.metadata = {**env.metadata, "name": f"{name.lower()}_v0"}
    return env


def aec_env(name: str, **keywords: Any) -> Any:
    """The environment of PettingZoo in which one agent acts after the other, for the problem called `name`."""
    return parallel_to_aec(parallel_env(name, **keywords))


def make(id: str, **keywords: Any) -> HiddenContextBandit:
    """Create an environment by its id.

    Args:
        id: one of `fb.environment_ids()`.
        keywords: the keywords of the problem, such as `num_agents`, and those of the environment: `max_cycles`,
            `observe` and `render_mode`, which `HiddenContextBandit` explains.

    >>> env = make("fedbandit/Synthetic-v0", num_agents=100, max_cycles=2**17)
    >>> len(env.possible_agents), env.num_arms
    (100, 10)
    """
    one_of("id", id, environment_ids())
    if keywords.get("max_cycles") is not None:
        whole_number("max_cycles", keywords["max_cycles"], at_least=1)  # PettingZoo takes -1 for the default
    return pettingzoo.make("parallel", id, **keywords)
