"""What wrong assumptions cost a policy: a wrong noise scale or mu_i, heavy tails, few agents, lost reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.experiments.executors.local import Executor, make_executor
from fedbandit_envs.experiments.executors.tasks import outcomes
from fedbandit_envs.experiments.text import Columns
from fedbandit_envs.problems.generator import InstanceGenerator
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.movielens.problem import MovieLens
from fedbandit_envs.problems.synthetic import Synthetic
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.registry import make_policy
from fedbandit_envs.rounds.faults import Faults
from fedbandit_envs.seeding import Stream, derived_seed, generator
from fedbandit_envs.shards.playing import play

HORIZON = 2**15  # the number of steps, T, by default
TRIALS = 20
ROBUSTNESS_PROBLEMS: dict[str, Synthetic | MovieLens] = {
    "synthetic": Synthetic(context_std=0.1),
    "movielens": MovieLens(context_std=0.1, noise_std=0.1, factors="masked"),
}
POLICIES = ("Fed-CI", "Local-Thompson", "Fed-PECD")


@dataclass(frozen=True)
class Misjudged:
    """A problem whose agents are shown a wrong Gaussian mu_i.

    >>> from fedbandit_envs.envs.bandit import draw_instance
    >>> right = draw_instance(Synthetic(num_agents=3, context_std=0.1), seed=0)
    >>> wrong = draw_instance(Misjudged(Synthetic(num_agents=3, context_std=0.1), spread=3), seed=0)
    >>> bool((wrong.means == right.means).all()), wrong.distribution.encode()["std"][0, 0].round(3)
    (True, np.float64(0.3))
    """

    problem: Synthetic | MovieLens  #: the problem whose rewards are paid
    spread: float = 1.0  #: the factor of the standard deviations that agents are shown
    offset: float = 0.0  #: how far the shown centres are off, in standard deviations of mu_i

    @property
    def num_agents(self) -> int:
        """The number of agents, M."""
        return self.problem.num_agents

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """The instance of the problem, except that agents are shown another mu."""
        whole = self.problem.instance(rng, context_rng)
        shown = whole.distribution.encode()
        mean, std = shown["mean"], shown["std"]
        centre = mean + self.offset * std * context_rng.standard_normal(mean.shape)
        return replace(whole, distribution=Gaussian(centre, std=self.spread * std))


class HeavyTailedBandit(HiddenContextBandit):
    """An environment whose noise has Student's t distribution with 3 degrees of freedom, scaled to `noise_std`."""

    def pull(self, plan: Plan) -> Feedback:
        """Carry out a plan.

        A number with Student's t distribution is normal, given an inverse chi-square. So the sum of n of them is drawn
        as one normal number, whose variance is the sum of n inverse chi-squares.
        """
        instance, rng = self.instance, generator(self.episode_seed, Stream.PLANS, self.episode.plans, 2)
        played = plan.length - plan.explore.sum(axis=1)
        counts = np.concatenate([plan.explore, played[:, None]], axis=1)
        noise = instance.noise_std * np.sqrt(_inverse_chi_squares(rng, counts)) * rng.standard_normal(counts.shape)
        means = instance.means
        self.resume(self.episode.steps + plan.length, self.episode.plans + 1)
        return Feedback(
            explored=plan.explore,
            explored_sums=plan.explore * means + noise[:, :-1],
            arm=plan.arm,
            played=played,
            played_sums=played * means[np.arange(len(played)), plan.arm] + noise[:, -1],
        )


def _inverse_chi_squares(rng: np.random.Generator, counts: IntArray) -> FloatArray:
    """Sums of `counts` random numbers 1 / chi^2_3, each of which has mean 1."""
    drawn = 1 / rng.chisquare(3, size=int(counts.sum()))
    place = np.repeat(np.arange(counts.size), counts.ravel())
    return np.asarray(np.bincount(place, drawn, counts.size).reshape(counts.shape), dtype=np.float64)


@dataclass(frozen=True)
class Case:
    """One wrong assumption; the defaults are a case in which all assumptions are right."""

    sigma: float = 1.0  #: the noise scale that the policy assumes, as a multiple of the true one
    misjudged: Mapping[str, float] = field(default_factory=dict)  #: arguments of `Misjudged`; empty: the right mu
    agents: int = 100  #: the number of agents, M
    heavy_tails: bool = False  #: whether the noise has heavy tails
    faults: Faults | None = None  #: the reports that are lost
    parameters: Mapping[str, Any] = field(default_factory=dict)  #: further parameters of Fed-CI

    def regret(self, problem: str, policy: str, trial: int, horizon: int = HORIZON) -> float:
        """The regret per agent at the end of one run.

        Args:
            problem: a name in `ROBUSTNESS_PROBLEMS`.
            policy: the name of a policy.
            trial: the number of the trial, from which its seed is derived.
            horizon: the number of steps, T.
        """
        right = replace(ROBUSTNESS_PROBLEMS[problem], num_agents=self.agents)
        shown: InstanceGenerator = Misjudged(right, **self.misjudged) if self.misjudged else right
        bandit = (HeavyTailedBandit if self.heavy_tails else HiddenContextBandit)(shown, max_cycles=horizon)
        own = self.parameters if policy == "Fed-CI" else {}
        made = make_policy(policy, sigma=self.sigma * right.noise_std, **own)
        return float(play(bandit, made, seed=derived_seed(0, trial), faults=self.faults).mean_regret()[-1])


_KNOWN = {"estimate_sigma": False}
CASES = {
    "all assumptions right": Case(),
    "sigma 3 times too small": Case(sigma=1 / 3),
    "sigma 3 times too large": Case(sigma=3),
    "sigma 3 times too small, not estimated": Case(sigma=1 / 3, parameters=_KNOWN),
    "sigma 3 times too large, not estimated": Case(sigma=3, parameters=_KNOWN),
    "spread of mu 3 times too small": Case(misjudged={"spread": 1 / 3}),
    "spread of mu 3 times too large": Case(misjudged={"spread": 3}),
    "centre of mu off by its spread": Case(misjudged={"offset": 1}),
    "centre of mu off by 3 spreads": Case(misjudged={"offset": 3}),
    "noise of Student's t with 3 degrees": Case(heavy_tails=True),
    "10 % of the reports lost": Case(faults=Faults(dropout=0.1)),
    "half of the reports lost": Case(faults=Faults(dropout=0.5)),
    "half of the agents silent after 3 rounds": Case(faults=Faults(schedule={i: range(3, 100) for i in range(50)})),
    "1 agent": Case(agents=1),
    "2 agents": Case(agents=2),
    "5 agents": Case(agents=5),
}


def robustness(
    trials: int = TRIALS,
    executor: str | Executor = "processes",
    *,
    cases: Sequence[str] = tuple(CASES),
    horizon: int = HORIZON,
) -> Columns:
    """A table of the regret per agent of each policy in each case: the mean over trials and its standard error.

    Args:
        trials: the number of trials.
        executor: who computes the trials.
        cases: names in `CASES`.
        horizon: the number of steps, T.
    """
    workers = make_executor(executor) if isinstance(executor, str) else executor
    tasks = [(case, problem, policy) for case in cases for problem in ROBUSTNESS_PROBLEMS for policy in POLICIES]
    with workers:
        found = dict(outcomes(workers, partial(_regrets, trials=trials, horizon=horizon), tasks))
    for outcome in found.values():
        if isinstance(outcome, BaseException):
            raise outcome
    columns: Columns = {"case": list(cases)}
    for problem in ROBUSTNESS_PROBLEMS:
        for policy in POLICIES:
            columns[f"{policy}, {problem}"] = [_with_error(found[case, problem, policy]) for case in cases]
    return columns


def _with_error(values: FloatArray) -> str:
    """The mean of the values and its standard error, as text."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    digits = 0 if values.mean() >= 100 else 1
    return f"{values.mean():,.{digits}f} ± {error:,.{digits}f}"


def _regrets(case: str, problem: str, policy: str, *, trials: int, horizon: int) -> FloatArray:
    return np.array([CASES[case].regret(problem, policy, trial, horizon) for trial in range(trials)])
