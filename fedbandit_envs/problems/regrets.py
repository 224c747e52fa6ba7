"""The kinds of regret: one table, from which curves, axes and help are made.

A kind is what one pull of each arm costs each agent, a table of gaps (M, K); the regret of a run is the sum of the
gaps of its pulls. Add a kind of your own by assignment, before the run that shall record it:

>>> def against_the_common_arm(instance):
...     whole = instance.population or instance  # a shard compares with the arm of all agents
...     common = whole.means.mean(axis=0).argmax()
...     return instance.means[:, [common]] - instance.means
>>> REGRETS["group_regret"] = Regret(against_the_common_arm, "group regret per agent", "against one arm for all")
>>> list(REGRETS)
['regret', 'distribution_regret', 'paper_regret', 'group_regret']
>>> del REGRETS["group_regret"]
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line reads this table for its help, and must not wait for numpy
    from fedbandit_envs.arrays import FloatArray
    from fedbandit_envs.problems.instance import BanditInstance


@dataclass(frozen=True)
class Regret:
    """One kind of regret: how it is computed, and the words for it.

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
}
