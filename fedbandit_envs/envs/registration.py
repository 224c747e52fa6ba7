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
# What papers and other libraries call our keywords.
_OTHER_NAMES = {"M": "num_agents", "K": "num_arms", "d": "dim", "T": "max_cycles", "horizon": "max_cycles"}


def split_keywords(
    name: str, keywords: dict[str, Any], taken: Sequence[str] = ()
) -> tuple[InstanceGenerator, dict[str, Any]]:
    """The problem called `name` built from its keywords, and the keywords of the environment.

    `taken` are keywords that the caller knows what to do with: they are among those a message offers.
    """
    problem = PROBLEMS[one_of("problem", name, PROBLEMS)]
    parameters = inspect.signature(problem).parameters
    known = list(parameters)
    offered = [*known, *_ENV_KEYWORDS, *taken]
    for keyword in keywords:
        if keyword not in known and keyword not in _ENV_KEYWORDS:
            hint = _meant(keyword, offered)
            raise ValueError(f"{name}: expected keywords among {', '.join(offered)}, got {keyword!r}{hint}")
    whole = ["max_cycles", *(keyword for keyword in known if parameters[keyword].annotation is int)]
    given = {keyword: _whole(value) if keyword in whole else value for keyword, value in keywords.items()}
    own = {keyword: value for keyword, value in given.items() if keyword in known}
    return problem(**own), {keyword: value for keyword, value in given.items() if keyword not in known}


def _meant(keyword: str, offered: Sequence[str]) -> str:
    """A hint at the keyword that was meant."""
    if keyword in _OTHER_NAMES:
        other = _OTHER_NAMES[keyword]
        return f"; did you mean {other!r}?" if other in offered else "; the data decides it"
    return nearest(keyword, offered) or "; leave it out"


def _whole(value: Any) -> Any:
    """1e4 as 10000; anything else as it is, to be checked by who takes it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parallel_env(name: str, **keywords: Any) -> HiddenContextBandit:
    """The PettingZoo parallel environment of the problem called `name`."""
    problem, rest = split_keywords(name, keywords)
    env = HiddenContextBandit(problem, **rest)
    env.metadata = {**env.metadata, "name": f"{name.lower()}_v0"}
    return env


def aec_env(name: str, **keywords: Any) -> Any:
    """The same environment, one agent after the other."""
    return parallel_to_aec(parallel_env(name, **keywords))


def make(id: str, **keywords: Any) -> HiddenContextBandit:
    """Create an environment by its id: `make("fedbandit/Synthetic-v0", num_agents=100, max_cycles=2**17)`."""
    one_of("id", id, environment_ids())
    if keywords.get("max_cycles") is not None:
        keywords["max_cycles"] = _whole(keywords["max_cycles"])
        whole_number("max_cycles", keywords["max_cycles"], at_least=1)  # PettingZoo takes -1 for the default
    return pettingzoo.make("parallel", id, **keywords)
