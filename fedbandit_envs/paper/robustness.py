"""What wrong assumptions cost a policy: noise scale, mu_i, tails, few agents, lost reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.experiments.executors.local import Executor, make_executor, outcomes
from fedbandit_envs.experiments.text import Columns
from fedbandit_envs.problems.generator import InstanceGenerator
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.movielens.problem import MovieLens
from fedbandit_envs.problems.synthetic import Synthetic
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.registry import make_policy
from fedbandit_envs.rounds.faults import Faults
from fedbandit_envs.rounds.loop import play
from fedbandit_envs.seeding import Stream, derived_seed, generator

HORIZON, TRIALS = 2**15, 20
PROBLEMS: dict[str, Synthetic | MovieLens] = {
    "synthetic": Synthetic(context_std=0.1),
    "movielens": MovieLens(context_std=0.1, noise_std=0.1, factors="masked"),
}
POLICIES = ("Fed-CI", "Local-Thompson", "Fed-PECD")


@dataclass(frozen=True)
class Misjudged:
    """A problem whose agents are shown a wrong Gaussian mu_i: another spread, or a centre off by `offset` spreads."""

    problem: Synthetic | MovieLens
    spread: float = 1.0
    offset: float = 0.0

    @property
    def num_agents(self) -> int:
        """M."""
        return self.problem.num_agents

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """The problem's, behind another mu."""
        whole = self.problem.instance(rng, context_rng)
        assert isinstance(whole.distribution, Gaussian)
        mean = whole.distribution.mean
        std = np.broadcast_to(np.asarray(whole.distribution.std), mean.shape)
        centre = mean + self.offset * std * context_rng.standard_normal(mean.shape)
        return replace(whole, distribution=Gaussian(centre, std=self.spread * std))


class HeavyTailedBandit(HiddenContextBandit):
    """Noise with Student's t distribution of 3 degrees of freedom, scaled to the standard deviation it should have."""

    def pull(self, plan: Plan) -> Feedback:
        """The sum of n such numbers is normal given the sum of n inverse chi-squares."""
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
    """Sums of `counts` numbers 1 / chi^2_3, which have mean 1."""
    drawn = 1 / rng.chisquare(3, size=int(counts.sum()))
    place = np.repeat(np.arange(counts.size), counts.ravel())
    return np.asarray(np.bincount(place, drawn, counts.size).reshape(counts.shape), dtype=np.float64)


@dataclass(frozen=True)
class Case:
    """One wrong assumption."""

    sigma: float = 1.0  # assumed, in units of the true one
    changed: Mapping[str, float] = field(default_factory=dict)  # how mu is misjudged
    agents: int = 100
    heavy_tails: bool = False
    faults: Faults | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of Fed-CI

    def regret(self, problem: str, policy: str, trial: int) -> float:
        """Per agent at the end of one run."""
        right = replace(PROBLEMS[problem], num_agents=self.agents)
        shown: InstanceGenerator = Misjudged(right, **self.changed) if self.changed else right
        bandit = (HeavyTailedBandit if self.heavy_tails else HiddenContextBandit)(shown, max_cycles=HORIZON)
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
    "spread of mu 3 times too small": Case(changed={"spread": 1 / 3}),
    "spread of mu 3 times too large": Case(changed={"spread": 3}),
    "centre of mu off by its spread": Case(changed={"offset": 1}),
    "centre of mu off by 3 spreads": Case(changed={"offset": 3}),
    "noise of Student's t with 3 degrees": Case(heavy_tails=True),
    "10 % of the reports lost": Case(faults=Faults(dropout=0.1)),
    "half of the reports lost": Case(faults=Faults(dropout=0.5)),
    "half of the agents silent after 3 rounds": Case(faults=Faults(schedule={i: range(3, 100) for i in range(50)})),
    "1 agent": Case(agents=1),
    "2 agents": Case(agents=2),
    "5 agents": Case(agents=5),
}


def robustness(trials: int = TRIALS, executor: str | Executor = "processes") -> Columns:
    """Regret per agent of each policy in each case: the mean over trials and its standard error."""
    workers = make_executor(executor) if isinstance(executor, str) else executor
    tasks = [(case, problem, policy, trials) for case in CASES for problem in PROBLEMS for policy in POLICIES]
    with workers:
        found = dict(outcomes(workers, _regrets, tasks))
    for outcome in found.values():
        if isinstance(outcome, BaseException):
            raise outcome
    columns: Columns = {"case": list(CASES)}
    for problem in PROBLEMS:
        for policy in POLICIES:
            columns[f"{policy}, {problem}"] = [_told(found[case, problem, policy, trials]) for case in CASES]
    return columns


def _told(values: FloatArray) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    digits = 0 if values.mean() >= 100 else 1
    return f"{values.mean():,.{digits}f} ± {error:,.{digits}f}"


def _regrets(case: str, problem: str, policy: str, trials: int) -> FloatArray:
    return np.array([CASES[case].regret(problem, policy, trial) for trial in range(trials)])
