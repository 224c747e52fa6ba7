"""What false reports cost the honest agents, by kind of attack, share of attackers and way of aggregation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.envs.registration import make
from fedbandit_envs.experiments.executors.local import Executor, make_executor
from fedbandit_envs.experiments.executors.tasks import outcomes
from fedbandit_envs.experiments.statistics import student_band
from fedbandit_envs.experiments.text import Columns
from fedbandit_envs.protocol.policy import observe_for
from fedbandit_envs.protocol.registry import make_policy
from fedbandit_envs.rounds.attacks import ATTACKS, Attackers
from fedbandit_envs.rounds.faults import Faults
from fedbandit_envs.seeding import derived_seed
from fedbandit_envs.shards.playing import play

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AGGREGATIONS = ("mean", "huber", "tukey")
SHARES = (0.05, 0.1, 0.2, 0.3)
TRIALS = 10


@dataclass(frozen=True)
class Setting:
    """A policy and the problem that it plays: Synthetic, with the defaults for all that is not said here.

    >>> Setting("Fed-PECD", {"allocation": "uniform"}, agents=20, horizon=500).regret("mean", "scale", 0.1, trial=0) > 0
    True
    """

    policy: str  #: the name of the policy
    parameters: Mapping[str, Any] = field(default_factory=dict)  #: its parameters, without the aggregation
    agents: int = 100  #: the number of agents, M
    horizon: int = 2**14  #: the number of steps, T
    known: bool = False  #: whether all agents are shown their contexts

    def regret(self, aggregation: str, attack: str, share: float, trial: int) -> float:
        """The mean regret of the honest agents at the end of one run.

        Args:
            aggregation: how the server puts reports together.
            attack: a kind of attack.
            share: the share of attackers.
            trial: the number of the trial, from which its seed is derived.
        """
        policy = make_policy(self.policy, aggregation=aggregation, **self.parameters)
        observe = "context" if self.known else observe_for(policy)
        env = make("fedbandit/Synthetic-v0", num_agents=self.agents, max_cycles=self.horizon, observe=observe)
        attackers, seed = Attackers(attack, share), derived_seed(0, trial)
        regret = play(env, policy, seed=seed, faults=Faults(attackers=attackers)).regret()[-1]
        return float(np.delete(regret, attackers.agents(seed, self.agents)).mean())


SETTINGS = {
    "Fed-PECD, uniform allocation": Setting("Fed-PECD", {"allocation": "uniform"}),
    "Fed-PECD, contexts known": Setting("Fed-PECD", {"allocation": "uniform"}, known=True),
    "Collaborative": Setting("Collaborative", {"allocation": "uniform"}),
    "DisLinUCB": Setting("DisLinUCB", horizon=2**12),
}
Regrets = dict[
    tuple[str, str, str, float], FloatArray
]  # (trials,) for a setting, an aggregation, an attack and a share


def poisoned(
    settings: Mapping[str, Setting] = SETTINGS,
    trials: int = TRIALS,
    executor: str | Executor = "processes",
    shares: Sequence[float] = SHARES,
) -> Regrets:
    """The regrets of the honest agents, for each setting, aggregation, attack and share, also the share 0.

    Trials are paired: the trial of one number has the same problem and the same attackers everywhere.

    Args:
        settings: the settings by name.
        trials: the number of trials.
        executor: who computes the trials.
        shares: the shares of attackers, without 0.
    """
    workers = make_executor(executor) if isinstance(executor, str) else executor
    tasks = [(name, aggregation, ATTACKS[0], 0.0) for name in settings for aggregation in AGGREGATIONS]
    tasks += list(product(settings, AGGREGATIONS, ATTACKS, shares))
    with workers:
        regrets = dict(outcomes(workers, partial(_regrets, settings=settings, trials=trials), tasks))
    for outcome in regrets.values():
        if isinstance(outcome, BaseException):
            raise outcome
    for name, aggregation in product(settings, AGGREGATIONS):  # without attackers all attacks are the same run
        clean = regrets[name, aggregation, ATTACKS[0], 0.0]
        regrets |= {(name, aggregation, attack, 0.0): clean for attack in ATTACKS}
    return {key: regrets[key] for key in product(settings, AGGREGATIONS, ATTACKS, (0.0, *shares))}


def _regrets(
    name: str, aggregation: str, attack: str, share: float, *, settings: Mapping[str, Setting], trials: int
) -> FloatArray:
    return np.array([settings[name].regret(aggregation, attack, share, trial) for trial in range(trials)])


def poison_table(regrets: Regrets) -> Columns:
    """Mean regrets, and their ratios to those without attackers: with the same aggregation, and with "mean"."""
    columns: Columns = {name: [] for name in ("setting", "aggregation", "attack", "attackers")}
    columns |= {name: [] for name in ("regret", "to_own_without", "to_mean_without")}
    for (name, aggregation, attack, share), values in regrets.items():
        own, mean = (regrets[name, way, attack, 0.0].mean() for way in (aggregation, "mean"))
        row = name, aggregation, attack, share, values.mean(), values.mean() / own, values.mean() / mean
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return columns


def poison_figure(regrets: Regrets) -> "Figure":
    """Regret of the honest agents against the share of attackers: a row for each setting, a column for each attack."""
    from fedbandit_envs.reports.plotting import blank, style

    names, shares = list(dict.fromkeys(key[0] for key in regrets)), sorted({key[3] for key in regrets})
    figure, grid = blank(2.6 * len(ATTACKS), 2.3 * len(names), len(names), len(ATTACKS))
    for (name, row), attack in product(zip(names, grid, strict=True), ATTACKS):
        axes = row[ATTACKS.index(attack)]
        for number, aggregation in enumerate(AGGREGATIONS):
            values = np.array([regrets[name, aggregation, attack, share] for share in shares])
            band, look = student_band(values.T), style(number)
            axes.plot(100 * np.array(shares), band.mean, label=aggregation, **look)
            axes.fill_between(100 * np.array(shares), band.low, band.high, color=look["color"], alpha=0.2, linewidth=0)
        axes.set_yscale("log")
        if name == names[0]:
            axes.set_title(attack, fontsize=10)
        if name == names[-1]:
            axes.set_xlabel("attackers (%)")
        if attack == ATTACKS[0]:
            axes.set_ylabel(f"{name}\nregret per honest agent", fontsize=8)
    for row in grid:  # one scale for each setting, so that attacks can be compared
        low, high = min(axes.get_ylim()[0] for axes in row), max(axes.get_ylim()[1] for axes in row)
        for axes in row:
            axes.set_ylim(low, high)
    grid[0, ATTACKS.index("scale")].legend(fontsize=8)  # where the plain mean does not rise far
    return figure
