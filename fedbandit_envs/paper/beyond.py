"""Beyond the paper: all policies, hidden and exact, over problems and spreads of the context, and what Fed-CI gains.

Policies run with widths scaled to the true noise (`sigma`), so that no policy suffers from a wrong scale. Long runs, at
the paper's horizon, are for policies that play whole plans; short runs include policies that decide step by step.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit_envs.envs.registration import make
from fedbandit_envs.experiments.executors.local import Executor
from fedbandit_envs.experiments.experiment import Experiment, PolicySpec
from fedbandit_envs.experiments.folder import make_folder, write_whole
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.running import run_all
from fedbandit_envs.experiments.statistics import paired_difference
from fedbandit_envs.experiments.text import Columns, table_text, write_table
from fedbandit_envs.paper.panels import setting_table
from fedbandit_envs.paper.robustness import CASES, HORIZON, robustness
from fedbandit_envs.paper.robustness import TRIALS as ROBUSTNESS_TRIALS
from fedbandit_envs.protocol.policy import observe_for
from fedbandit_envs.protocol.registry import make_policy, policy_class, policy_names, policy_parameters
from fedbandit_envs.rounds.playing import why_not

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, THEIRS, FLOOR = "Fed-CI", "Fed-PECD", "Exact-Thompson"
PLANNING = (OURS, "Fed-CI-Elimination", THEIRS, "Federated-Thompson", "Local-Thompson", "Fed-PE", FLOOR)
KEPT_WRONG = 0.05  # the share of agents on a wrong arm above which Fed-PECD is taken to have failed
LEAST_GAIN = 10  # where Fed-PECD fails, Fed-CI shall have at most this fraction of its regret: 1 / LEAST_GAIN
MOST_FLOORS = 3  # on MovieLens, Fed-CI shall have at most so many times the regret of FLOOR


@dataclass(frozen=True)
class Family:
    """A problem, and the spreads of the context at which it is played; a panel of the figure if there are any."""

    environment: str  #: the id of the environment
    arguments: Mapping[str, Any]  #: the environment's arguments, with its noise_std
    spreads: tuple[float, ...] = ()  #: the values of context_std; empty: the environment takes none

    def settings(self, name: str) -> dict[str, dict[str, Any]]:
        """The arguments of each setting of this family, by the setting's name.

        >>> Family("fedbandit/Synthetic-v0", {}, (0.1, 0.2)).settings("synthetic")
        {'synthetic-0.1': {'context_std': 0.1}, 'synthetic-0.2': {'context_std': 0.2}}
        """
        if not self.spreads:
            return {name: dict(self.arguments)}
        return {setting(name, spread): {**self.arguments, "context_std": spread} for spread in self.spreads}


def setting(family: str, spread: float) -> str:
    """The name of a family's setting with this spread of the context."""
    return f"{family}-{spread:g}"


SPREADS = (0.05, 0.1, 0.2)
FAMILIES = {
    "synthetic": Family("fedbandit/Synthetic-v0", {"noise_std": 1.0, "error": "berkson"}, SPREADS),
    "synthetic-classical": Family("fedbandit/Synthetic-v0", {"noise_std": 1.0, "error": "classical"}, SPREADS),
    "movielens-completed": Family("fedbandit/MovieLens-v0", {"noise_std": 0.1, "factors": "completed"}, SPREADS),
    "movielens-masked": Family("fedbandit/MovieLens-v0", {"noise_std": 0.1, "factors": "masked"}, SPREADS),
    "household-completed": Family("fedbandit/Household-v0", {"noise_std": 0.1, "factors": "completed"}),
    "household-masked": Family("fedbandit/Household-v0", {"noise_std": 0.1, "factors": "masked"}),
    "linear": Family("fedbandit/Linear-v0", {"noise_std": 1.0}),
}


@dataclass(frozen=True)
class BeyondScale:
    """How large the comparison is. The defaults are those of the report; smaller ones give a quick look."""

    agents: int = 100  #: the number of agents, M
    long: int = 2**17  #: the number of steps of policies that play whole plans
    short: int = 2**13  #: the number of steps of all policies
    short_trials: int = 10  #: the most trials of all policies
    families: Mapping[str, Family] = field(default_factory=lambda: FAMILIES)  #: the problems
    wrong: int = HORIZON  #: the number of steps under wrong assumptions
    cases: Sequence[str] = tuple(CASES)  #: the wrong assumptions, by their names in `robustness.CASES`


BEYOND_SCALE = BeyondScale()


@dataclass(frozen=True)
class Beyond:
    """What `beyond` found; everything is also in its folder."""

    long: Mapping[str, Result]  #: the long runs of each setting
    short: Mapping[str, Result]  #: the short runs of each setting
    goals: Columns  #: whether Fed-CI meets its goals, a row for each setting
    robustness: Columns  #: the regret under wrong assumptions, a row for each case
    scale: BeyondScale = BEYOND_SCALE  #: how large the comparison was


def spec(name: str, noise_std: float) -> PolicySpec:
    """A policy with its widths scaled to the noise, if it has the parameter `sigma`.

    >>> spec("Fed-PECD", 0.1).parameters
    {'sigma': 0.1}
    """
    scaled = policy_parameters(policy_class(name)).get("sigma") is not None
    return PolicySpec(name, {"sigma": noise_std} if scaled else {}, name)


def experiments(
    names: Sequence[str], horizon: int, trials: int, seed: int, scale: BeyondScale
) -> dict[str, Experiment]:
    """The experiments of all settings with these policies, by the setting's name."""
    found = {}
    for family_name, family in scale.families.items():
        policies = [spec(name, family.arguments["noise_std"]) for name in names]
        for name, arguments in family.settings(family_name).items():
            sizes = {"num_agents": scale.agents, "max_cycles": horizon}
            found[name] = Experiment(family.environment, policies, {**arguments, **sizes}, trials, seed)
    return found


def beyond(
    out: str | Path,
    trials: int = 100,
    executor: str | Executor = "processes",
    *,
    seed: int = 0,
    force: bool = False,
    scale: BeyondScale = BEYOND_SCALE,
) -> Beyond:
    """Run all settings, and write tables, figures and a report into the folder `beyond` of `out`.

    Args:
        out: the folder; trials that are there already are kept.
        trials: the number of trials of the long runs.
        executor: who computes the trials.
        seed: the seed from which the seeds of all trials are derived.
        force: whether torn or foreign files in the folder are removed, not refused.
        scale: how large the comparison is.
    """
    # The Oracle is no competitor; peers, for example, need a network, which these problems don't have.
    everybody = [name for name in policy_names() if name != "Oracle" and _plays_usual_problems(name)]
    long = experiments(PLANNING, scale.long, trials, seed, scale)
    short = experiments(everybody, scale.short, min(trials, scale.short_trials), seed, scale)
    folder = Path(out) / "beyond"
    found_long = run_all(long, folder / "long", executor, force=force)
    found_short = run_all(short, folder / "short", executor, force=force)
    rows = [goal_row(name, result) for name, result in found_long.items()]
    goals = {column: [row[column] for row in rows] for column in rows[0]}
    few = min(trials, ROBUSTNESS_TRIALS)
    wrong = robustness(few, executor, cases=scale.cases, horizon=scale.wrong)
    found = Beyond(found_long, found_short, goals, wrong, scale)
    _write(found, folder)
    return found


def _plays_usual_problems(name: str) -> bool:
    """Whether a policy plays problems with fixed contexts, without a network."""
    policy = make_policy(name)
    env = make("fedbandit/Synthetic-v0", num_agents=2, max_cycles=100, observe=observe_for(policy))
    return why_not(policy, env) is None


def goal_row(name: str, result: Result) -> dict[str, Any]:
    """A row of the goals: regret against that of Fed-PECD and of the floor, and whether each goal is met.

    A goal "holds", "fails" or is "undecided", by paired differences over trials.
    """
    ours, theirs, floor = (result.final(label) for label in (OURS, THEIRS, FLOOR))
    wrong = float(result.final(THEIRS, "wrong_share").mean())
    allowed = 1 / LEAST_GAIN if wrong > KEPT_WRONG else 1.0
    row: dict[str, Any] = {"setting": name, "trials": len(ours)}
    row |= {OURS: float(ours.mean()), THEIRS: float(theirs.mean()), FLOOR: float(floor.mean())}
    row |= {"wrong share of Fed-PECD": wrong, "ratio to Fed-PECD": float(ours.mean() / theirs.mean())}
    row |= {"allowed": allowed, "goal": paired_difference(allowed * theirs, ours).verdict}
    row["ratio to the floor"] = float(ours.mean() / floor.mean())
    near = paired_difference(MOST_FLOORS * floor, ours).verdict if name.startswith("movielens") else ""
    row[f"within {MOST_FLOORS} floors"] = near
    row["scalars, share of Fed-PECD's"] = float(
        result.final(OURS, "scalars").mean() / result.final(THEIRS, "scalars").mean()
    )
    return row


def spread_figure(results: Mapping[str, Result], families: Mapping[str, Family]) -> "Figure":
    """Final regret against the spread of the context, a panel for each family that has spreads."""
    from fedbandit_envs.reports.plotting import blank, regret_against

    shown = {name: family for name, family in families.items() if family.spreads}
    drawn, grid = blank(9.6, 7, 2, math.ceil(len(shown) / 2))
    for axes, (name, family) in zip(grid.flat, shown.items(), strict=True):
        by_spread = {spread: results[setting(name, spread)] for spread in family.spreads}
        regret_against(by_spread, "context_std", axes)
        axes.get_legend().remove()
        _finish(axes, name)
    _common_legend(drawn, grid)
    return drawn


def communication_figure(results: Mapping[str, Result]) -> "Figure":
    """Mean final regret against mean communication, a panel for each environment at the middle spread."""
    from fedbandit_envs.reports.plotting import blank, looks

    shown = [setting("synthetic", 0.1), setting("movielens-completed", 0.1), "household-completed", "linear"]
    drawn, grid = blank(9.6, 7, 2, 2)
    for axes, name in zip(grid.flat, shown, strict=True):
        for label, look in looks(results[name]).items():
            point = (results[name].final(label, curve).mean() for curve in ("scalars", "mean_regret"))
            axes.plot(*point, look["marker"], color=look["color"], label=label, clip_on=False)
        axes.set_xscale("symlog", linthresh=1e3)  # some policies send nothing
        most = max(results[name].final(label, "scalars").mean() for label in results[name].labels)
        axes.set_xticks([0, *(10.0**power for power in range(3, 3 + len(str(int(most)))) if 10.0**power < 2 * most)])
        axes.set_xlim(-200, 2 * most)
        axes.set_xlabel("scalars sent, both ways, all agents")
        axes.set_ylabel("final regret per agent")
        _finish(axes, name)
    _common_legend(drawn, grid)
    return drawn


def _finish(axes: "Axes", name: str) -> None:
    axes.set_yscale("log")
    axes.autoscale(axis="y")
    axes.set_title(name, fontsize="medium")


def _common_legend(figure: "Figure", grid: Any) -> None:
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize="small")


REPORT = """# Beyond the paper

M = {agents}, fixed hidden contexts, seed {seed}. Regret per agent, measured against the best arm for the true context.
{ours} is Bayesian: no guarantee is proved. {floor} and Fed-PE are shown the true context, most others mu_i.

## Goals (T = {long:,}, {trials} trials)

At most 1/{gain} of Fed-PECD's regret where Fed-PECD ends on a wrong arm for more than {wrong:.0%} of the agents, else
not more than it; on MovieLens at most {floors} times the floor. Verdicts by Student's 95 % intervals of paired
differences; the intervals of means below (low, high) are Student's too.

{goals}
![regret against the spread of the context](spread.png)

![regret against communication](communication.png)

## Wrong assumptions (T = {wrong_horizon:,}, at most {wrong_trials} trials)

{robustness}
## All policies that play whole plans (T = {long:,}, {trials} trials)

{table_long}
## All policies (T = {short:,}, {few} trials)

{table_short}"""
_REPORTED = ("setting", "policy", "regret", "regret_low", "regret_high", "worst_agent", "wrong_share", "rounds")


def report(found: Beyond) -> str:
    """The goals, figures and tables on one page of Markdown."""
    first, few = next(iter(found.long.values())), next(iter(found.short.values()))
    tables = [
        {name: table[name] for name in (*_REPORTED, "scalars_up", "scalars_down")}
        for table in (setting_table(found.long), setting_table(found.short))
    ]
    return REPORT.format(
        agents=found.scale.agents,
        seed=first.experiment.seed,
        ours=OURS,
        floor=FLOOR,
        gain=LEAST_GAIN,
        wrong=KEPT_WRONG,
        floors=MOST_FLOORS,
        long=found.scale.long,
        short=found.scale.short,
        trials=len(first.trials),
        few=len(few.trials),
        goals=table_text(found.goals, "markdown"),
        wrong_horizon=found.scale.wrong,
        wrong_trials=ROBUSTNESS_TRIALS,
        robustness=table_text(found.robustness, "markdown"),
        table_long=table_text(tables[0], "markdown"),
        table_short=table_text(tables[1], "markdown"),
    )


def _write(found: Beyond, folder: Path) -> None:
    from fedbandit_envs.reports.plotting import save

    make_folder(folder)
    save(spread_figure(found.long, found.scale.families), folder / "spread")
    save(communication_figure(found.short), folder / "communication")
    tables = {"goals": found.goals, "robustness": found.robustness}
    for name, table in (tables | {"long": setting_table(found.long), "short": setting_table(found.short)}).items():
        for suffix in (".csv", ".json"):
            write_table(table, folder / f"{name}{suffix}")
    write_whole(folder / "report.md", report(found).encode())
