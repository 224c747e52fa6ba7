"""The public numbers of a problem when they come from outside: values that no problem can have are refused."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from fedbandit_envs.federation.texts import shown
from fedbandit_envs.problems.streams import CONTEXTS
from fedbandit_envs.protocol.knowledge import LONGEST_HORIZON, Constants
from fedbandit_envs.validation import one_of, real_number, true_or_false, whole_number

_MOST_AGENTS = 10**7
_MOST_NUMBERS = 2**22  # the most numbers in the second moments of one agent, K d^2; messages are allowed in proportion


def checked_constants(table: Mapping[str, Any]) -> Constants:
    """The constants in a table from outside.

    Args:
        table: a value for each field of `Constants`, of any content.

    Raises:
        ValueError: a value is missing, unknown, no number, or larger than any run here can be.

    >>> sizes = {"num_agents": 3, "num_arms": 4, "dim": 2, "horizon": 100}
    >>> checked_constants({**sizes, "ell": 0.5, "L": 1.0, "noise_std": 1.0, "context": "fixed"}).dim
    2
    >>> checked_constants({**sizes, "dim": -3, "ell": 0.5, "L": 1.0, "noise_std": 1.0, "context": "fixed"})
    Traceback (most recent call last):
        ...
    ValueError: dim: expected a whole number of at least 1 and at most 2048, got -3
    """
    known = {field.name for field in fields(Constants)}
    needed = {field.name for field in fields(Constants) if field.default is MISSING}
    if not needed <= table.keys() <= known:
        names = shown(", ".join(sorted(map(str, table))))
        raise ValueError(f"constants: expected {', '.join(sorted(needed))}, and perhaps others, got {names}")
    whole_number("num_agents", table["num_agents"], at_least=1, at_most=_MOST_AGENTS)
    dim = whole_number("dim", table["dim"], at_least=1, at_most=int(_MOST_NUMBERS**0.5))
    whole_number("num_arms", table["num_arms"], at_least=1, at_most=_MOST_NUMBERS // dim**2)
    whole_number("horizon", table["horizon"], at_least=1, at_most=LONGEST_HORIZON)
    real_number("ell", table["ell"], at_least=0)
    real_number("L", table["L"], at_least=0)
    real_number("noise_std", table["noise_std"], at_least=0)
    one_of("context", table["context"], CONTEXTS)
    for name in ("shared_theta", "same_arms"):
        true_or_false(name, table.get(name, False))
    for name in ("theta_bound", "context_proxy", "shortest", "longest"):
        if table.get(name) is not None:
            real_number(name, table[name], at_least=0)
    return Constants(**table)
