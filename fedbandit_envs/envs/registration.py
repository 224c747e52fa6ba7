"""Making environments by their ids, and adding ids of one's own."""

import inspect
from collections.abc import Sequence
from typing import Any

import pettingzoo
from pettingzoo.utils.conversions import parallel_to_aec

from fedbandit_envs.envs.ids import PROBLEMS, enter, environment_ids, id_of, short_name
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.envs.shared_arms import SharedArmsBandit
from fedbandit_envs.problems.generator import InstanceGenerator
from fedbandit_envs.problems.shared_arms import SharedArms
from fedbandit_envs.protocol.registry import importable, loaded, same_class
from fedbandit_envs.validation import nearest, one_of, whole_number

_ENV_KEYWORDS = ("max_cycles", "observe", "reveal", "render_mode")
# What papers and other libraries call our keywords.
_OTHER_NAMES = {"M": "num_agents", "K": "num_arms", "d": "dim", "T": "max_cycles", "horizon": "max_cycles"}
_registered: dict[str, str | type[Any]] = {}


def register_environment(id: str, problem: str | type[InstanceGenerator]) -> None:
    """Make an environment known by its id: to `make`, experiments, the command line's worker processes and Gymnasium.

    The registration lasts as long as the process. An installed package is known everywhere, also in the shell, if it
    names its problems as entry points of the group `fedbandit.problems`, for example
    `"my/Tiny-v0" = "my_package:Tiny"`.

    Args:
        id: "namespace/Name-v0".
        problem: The class of the problems, or "my_package:MyProblem". Its keywords are the environment's, and it has
            `num_agents` and `instance(rng, context_rng)`, as `fedbandit_envs.problems.generator` says. The same class
            defined anew, as when a notebook's cell is run again, takes the place of the old one.

    Raises:
        ValueError: The id is not of that form, or belongs to another environment, or the class is no problem.

    >>> from fedbandit_envs.problems.linear import Linear
    >>> class Tiny(Linear):
    ...     "Two agents."
    >>> register_environment("docs/Tiny-v0", Tiny)
    >>> make("docs/Tiny-v0", num_agents=2, max_cycles=10).num_arms
    3
    """
    if not isinstance(problem, str):
        _checked_class(id, problem)
    elif ":" not in problem:
        raise ValueError(f"problem: expected a class or 'package:Class', got {problem!r}")
    if not same_class(PROBLEMS.get(id, problem), problem):
        raise ValueError(f"id: expected one that is not taken, got {id!r}; choose another")
    enter(id, problem)
    _registered[id] = problem


def replace_environment(id: str, problem: str | type[InstanceGenerator]) -> None:
    """In a worker: know an environment as the process that started the run does, whatever was known here before."""
    enter(id, problem)
    _registered[id] = problem


def registered_environments() -> dict[str, str | type[Any]]:
    """The environments registered in this process: "module:class" where others can import it, else the class."""
    return importable(_registered)


def problem_class(name: str) -> type[InstanceGenerator]:
    """The class of the problems of an environment, which is given by its id, or as `Synthetic` for one of ours."""
    id = id_of(name) if isinstance(name, str) else name
    problem = PROBLEMS[one_of("environment", id, environment_ids())]
    return _checked_class(id, loaded(problem))


def _checked_class(id: str, problem: Any) -> type[InstanceGenerator]:
    if not isinstance(problem, type) or not callable(getattr(problem, "instance", None)):
        raise ValueError(
            f"problem: expected for {id!r} a class with a method instance(rng, context_rng), or 'package:Class', got "
            f"{problem!r}"
        )
    return problem


def split_keywords(
    name: str, keywords: dict[str, Any], taken: Sequence[str] = ()
) -> tuple[InstanceGenerator, dict[str, Any]]:
    """The problem of an environment built from its keywords, and the keywords of the environment.

    Args:
        name: the name of a problem, such as "Synthetic".
        keywords: the keywords of both, mixed; an unknown one is refused.
        taken: keywords that the caller has taken out already; an error offers them too.

    >>> split_keywords("Synthetic", {"num_agents": 3, "max_cycles": 10})[1]
    {'max_cycles': 10}
    """
    problem = problem_class(one_of("problem", short_name(name), [short_name(id) for id in environment_ids()]))
    parameters = inspect.signature(problem).parameters
    known = list(parameters)
    offered = [*known, *_ENV_KEYWORDS, *taken]
    for keyword in keywords:
        if keyword not in known and keyword not in _ENV_KEYWORDS:
            hint = _meant(keyword, offered)
            raise ValueError(f"{problem.__name__}: expected keywords among {', '.join(offered)}, got {keyword!r}{hint}")
    whole = ["max_cycles", *(keyword for keyword in known if parameters[keyword].annotation is int)]
    given = {keyword: _whole(value) if keyword in whole else value for keyword, value in keywords.items()}
    own = {keyword: value for keyword, value in given.items() if keyword in known}
    return problem(**own), {keyword: value for keyword, value in given.items() if keyword not in known}


def _meant(keyword: str, offered: Sequence[str]) -> str:
    """A hint at the keyword that was meant."""
    if keyword in _OTHER_NAMES:
        other = _OTHER_NAMES[keyword]
        return f"; did you mean {other!r}?" if other in offered else "; the data decides it"
    return nearest(keyword, offered)


def _whole(value: Any) -> Any:
    """1e4 as 10000; anything else as it is, to be checked by who takes it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parallel_env(problem: str, **keywords: Any) -> Any:
    """The PettingZoo parallel environment of an id, or of a name such as `Synthetic`."""
    generator, rest = split_keywords(problem, keywords)
    env: Any
    if isinstance(generator, SharedArms):
        env = SharedArmsBandit(generator, **rest)
    else:
        env = HiddenContextBandit(generator, **rest)
    name, _, version = id_of(problem).partition("/")[2].rpartition("-")
    env.metadata = {**env.metadata, "name": f"{name.lower()}_{version}"}
    return env


def aec_env(problem: str, **keywords: Any) -> Any:
    """The environment of PettingZoo in which one agent acts after the other."""
    return parallel_to_aec(parallel_env(problem, **keywords))


def make(id: str, **keywords: Any) -> HiddenContextBandit:
    """Create an environment by its id.

    Args:
        id: one of `fb.environment_ids()`; "Synthetic" stands for "fedbandit/Synthetic-v0".
        keywords: the keywords of the problem, such as `num_agents`, and those of the environment: `max_cycles`,
            `observe` and `render_mode`, which `HiddenContextBandit` explains.

    >>> env = make("fedbandit/Synthetic-v0", num_agents=100, max_cycles=2**17)
    >>> len(env.possible_agents), env.num_arms
    (100, 10)
    >>> make("Linear").metadata["name"]
    'linear_v0'
    """
    id = one_of("id", id_of(id) if isinstance(id, str) else id, environment_ids())
    if keywords.get("max_cycles") is not None:
        keywords["max_cycles"] = _whole(keywords["max_cycles"])
        whole_number("max_cycles", keywords["max_cycles"], at_least=1)  # PettingZoo takes -1 for the default
    return pettingzoo.make("parallel", id, **keywords)
