"""The kinds of regret: one table, from which curves, axes and help are made.

A kind is what one pull of each arm costs each agent, a table of gaps (M, K); the regret of a run is the sum of the
gaps of its pulls. Add a kind of your own by assignment, before the run that shall record it:

>>> def against_the_first_arm(instance):
...     return instance.means[:, [0]] - instance.means
>>> REGRETS["first_arm_regret"] = Regret(against_the_first_arm, "regret to the first arm", "against the first arm")
>>> list(REGRETS)
['regret', 'distribution_regret', 'paper_regret', 'group_regret', 'mixed_regret:0.5', 'first_arm_regret']
>>> del REGRETS["first_arm_regret"]

A mixed regret of another share is added with `mixed_regret`. Instances and histories know each of them without that.

>>> REGRETS["mixed_regret:0.9"] = mixed_regret(0.9)
>>> del REGRETS["mixed_regret:0.9"]
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line reads this table for its help, and must not wait for numpy
    from fedbandit_envs.arrays import FloatArray
    from fedbandit_envs.problems.instance import BanditInstance


@dataclass(frozen=True)
class Regret:
    """One kind of regret: how it is computed, and the words for it.

    A kind is a table of gaps: what one pull of each arm costs each agent. `REGRETS` has all kinds by name, and results,
    tables, axes and the help of commands are made from it. A kind of your own is one more entry.

    >>> REGRETS["regret"].axis_label
    'regret per agent'
    """

    gaps: "Callable[[BanditInstance], FloatArray]"  #: takes an instance, returns its gaps (M, K)
    axis_label: str  #: what stands at the axis of a figure
    help: str  #: what the kind compares with, for the help of commands
    #: whether each row of the gaps depends on its agent alone; only such kinds are recorded where contexts change
    by_agent: bool = False


def _for_the_true_context(instance: "BanditInstance") -> "FloatArray":
    return instance.means.max(axis=1, keepdims=True) - instance.means


def _under_mu(instance: "BanditInstance") -> "FloatArray":
    return _from_the_best_under_mu(instance, instance.distribution_means)


def _of_the_paper(instance: "BanditInstance") -> "FloatArray":
    return _from_the_best_under_mu(instance, instance.means)


def _from_the_best_under_mu(instance: "BanditInstance", means: "FloatArray") -> "FloatArray":
    best = instance.distribution_means.argmax(axis=1)
    return means[range(len(best)), best][:, None] - means


def _against_the_common_arm(instance: "BanditInstance") -> "FloatArray":
    common = (instance.population or instance).means.mean(axis=0)  # a shard compares with the arm of all agents
    return (common.max() - common)[None].repeat(instance.num_agents, axis=0)


def _mixed(instance: "BanditInstance", share: float) -> "FloatArray":
    return mixed_gaps(_for_the_true_context(instance), _against_the_common_arm(instance), share)


def mixed_gaps(personal: "FloatArray", group: "FloatArray", share: float) -> "FloatArray":
    """The gaps (M, K) of a mixed regret, from those of `regret` and of `group_regret`.

    Both tables are a constant of each agent minus means, so their mixture is a constant minus the mixed means.
    """
    mixed = share * personal + (1 - share) * group
    return mixed - mixed.min(axis=1, keepdims=True)


def mixed_regret(share: float) -> Regret:
    """The kind of regret between personal and group regret, by the mixed means of Shi, Shen and Yang (AISTATS 2021).

    The mixed mean of an arm is `share` times the agent's own mean plus 1 - `share` times the average over all agents.
    The comparison is with the arm whose mixed mean is largest. A share of 1 is `regret`, a share of 0 `group_regret`.

    >>> mixed_regret(0.25).axis_label
    'mixed regret per agent (0.25 personal)'
    """
    if not (isinstance(share, (int, float)) and 0 <= share <= 1):
        raise ValueError(f"share: expected a number from 0 to 1, got {share!r}")
    return Regret(
        partial(_mixed, share=float(share)),
        f"mixed regret per agent ({share:g} personal)",
        f"against the best arm by means that are {share:g} personal and {1 - share:g} averaged over all agents",
    )


#: All kinds of regret by name, in the order in which results list them.
REGRETS: dict[str, Regret] = {
    "regret": Regret(_for_the_true_context, "regret per agent", "against the best arm for the true context", True),
    "distribution_regret": Regret(
        _under_mu, "regret per agent under $\\mu_i$", "against the best arm under mu_i by its means under mu_i", True
    ),
    "paper_regret": Regret(
        _of_the_paper,
        "regret per agent (Eq. 2)",
        "against the best arm under mu_i by the true means, the paper's Eq. 2: can be negative",
        True,
    ),
    "group_regret": Regret(
        _against_the_common_arm,
        "group regret per agent",
        "against the arm that is best on average over all agents, by its average means",
    ),
    "mixed_regret:0.5": mixed_regret(0.5),
}


def mixed_share(kind: str) -> float:
    """The share of "mixed_regret:SHARE"; refuses a name that is neither this nor in `REGRETS`.

    >>> mixed_share("mixed_regret:0.2")
    0.2
    """
    name, _, share = str(kind).partition(":")
    if name != "mixed_regret":
        from fedbandit_envs.validation import one_of  # numpy is slow to import, and help does not need it

        one_of("kind", kind, REGRETS)
    try:
        found = float(share)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise ValueError(
            f"kind: expected 'mixed_regret:SHARE' with a share from 0 to 1, as 'mixed_regret:0.5', got {kind!r}"
        )
    return found


def kind_of_regret(kind: str) -> Regret:
    """The kind of regret of this name: one of `REGRETS`, or "mixed_regret:SHARE" with any share from 0 to 1.

    >>> kind_of_regret("mixed_regret:0.2").axis_label
    'mixed regret per agent (0.2 personal)'
    """
    return REGRETS[kind] if kind in REGRETS else mixed_regret(mixed_share(kind))


def all_gaps(instance: "BanditInstance") -> "dict[str, FloatArray]":
    """(M, K) what one pull of each arm of an instance costs, for each kind in `REGRETS`."""
    return {kind: instance.gaps(kind) for kind in REGRETS}


class GapsWhenAsked(Mapping[str, "FloatArray"]):
    """What one pull of each arm of an instance costs (M, K), for each kind in `REGRETS`, computed when it is asked for.

    A copy and a pickle are plain dicts with all kinds.

    >>> import numpy as np
    >>> from fedbandit_envs.problems.linear import Linear
    >>> rng = np.random.default_rng(0)
    >>> gaps = GapsWhenAsked(Linear(theta=np.eye(2), features=[[[1.0, 0.0], [0.0, 0.6]]]).instance(rng, rng))
    >>> gaps["regret"]
    array([[0. , 0.4]])
    """

    def __init__(self, instance: "BanditInstance"):
        self._instance, self._kinds = instance, tuple(REGRETS)
        self._found: dict[str, FloatArray] = {}

    def __getitem__(self, kind: str) -> "FloatArray":
        if kind not in self._kinds:
            raise KeyError(kind)
        if kind not in self._found:
            self._found[kind] = self._instance.gaps(kind)
        return self._found[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
