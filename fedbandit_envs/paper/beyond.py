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
from fedbandit_envs.experiments.text import Columns, write_table
from fedbandit_envs.paper.beyond_page import report, with_largest_run
from fedbandit_envs.paper.goals import ALONE, CONTEXTS_TOLD, OURS, THEIRS, THETA_TOLD, TUNED_WIDTH, goal_row, tuned
from fedbandit_envs.paper.robustness import CASES, HORIZON, robustness
from fedbandit_envs.paper.robustness import TRIALS as ROBUSTNESS_TRIALS
from fedbandit_envs.protocol.policy import observe_for
from fedbandit_envs.protocol.registry import make_policy, policy_class, policy_names, policy_parameters
from fedbandit_envs.rounds.why_not import why_not

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLANNING = (
    OURS,
    "Fed-CI-Elimination",
    THEIRS,
    "Federated-Thompson",
    ALONE,
    "Fed-PE",
    CONTEXTS_TOLD,
    THETA_TOLD,
)
TUNED = (THEIRS, "Fed-PE")  # these policies also run with a tuned width


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


def tuned_spec(name: str, noise_std: float) -> PolicySpec:
    """A policy of phased elimination with a tuned width.

    >>> tuned_spec("Fed-PECD", 0.1).parameters
    {'sigma': 0.1, 'width': 0.25}
    """
    return PolicySpec(name, {"sigma": noise_std, "width": TUNED_WIDTH}, tuned(name))


def experiments(
    names: Sequence[str], horizon: int, trials: int, seed: int, scale: BeyondScale, *, with_tuned: bool = False
) -> dict[str, Experiment]:
    """The experiments of all settings with these policies, by the setting's name."""
    found = {}
    for family_name, family in scale.families.items():
        noise_std = family.arguments["noise_std"]
        policies = [spec(name, noise_std) for name in names]
        policies += [tuned_spec(name, noise_std) for name in TUNED if with_tuned]
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
    # The Oracle is no competitor. Policies that talk to peers need a network, which these problems don't have.
    everybody = [name for name in policy_names() if name != "Oracle" and _plays_usual_problems(name)]
    long = experiments(PLANNING, scale.long, trials, seed, scale, with_tuned=True)
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
    drawn, grid = blank(9.6, 8, 2, 2)
    for axes, name in zip(grid.flat, shown, strict=True):
        for label, look in looks(results[name]).items():
            scalars, regret = (results[name].final(label, curve).mean() for curve in ("scalars", "mean_regret"))
            shown_regret = regret if regret > 0 else math.nan  # 0 has no place on a logarithmic axis
            axes.plot(scalars, shown_regret, look["marker"], color=look["color"], label=label, clip_on=False)
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


def _write(beyond: Beyond, folder: Path) -> None:
    from fedbandit_envs.reports.plotting import save

    make_folder(folder)
    save(spread_figure(beyond.long, beyond.scale.families), folder / "spread")
    save(communication_figure(beyond.short), folder / "communication")
    tables = {"goals": beyond.goals, "robustness": beyond.robustness}
    for name, table in (
        tables | {"long": with_largest_run(beyond.long), "short": with_largest_run(beyond.short)}
    ).items():
        for suffix in (".csv", ".json"):
            write_table(table, folder / f"{name}{suffix}")
    write_whole(folder / "report.md", report(beyond).encode())
