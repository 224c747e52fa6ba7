"""Beyond the paper: all policies, hidden and exact, over problems and spreads of the context; what Fed-CI gains.

Policies run with widths scaled to the true noise (`sigma`), so that nobody suffers from a wrong scale. Long runs, at
the paper's horizon, are of policies that play whole plans; short ones have the step-by-step policies too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit_envs.experiments.executors.local import Executor
from fedbandit_envs.experiments.experiment import Experiment, PolicySpec
from fedbandit_envs.experiments.folder import make_folder, write_whole
from fedbandit_envs.experiments.results import Columns, Result, table_text, write_table
from fedbandit_envs.experiments.running import run_all
from fedbandit_envs.experiments.statistics import paired_difference
from fedbandit_envs.experiments.sweeps import sweep_table
from fedbandit_envs.paper.robustness import HORIZON, robustness
from fedbandit_envs.paper.robustness import TRIALS as ROBUSTNESS_TRIALS
from fedbandit_envs.protocol.registry import policy_class, policy_names, policy_parameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, THEIRS, FLOOR = "Fed-CI", "Fed-PECD", "Exact-Thompson"
PLANNING = (OURS, "Fed-CI-Elimination", THEIRS, "Federated-Thompson", "Local-Thompson", "Fed-PE", FLOOR)
LONG, SHORT = 2**17, 2**13
SHORT_TRIALS = 10
AGENTS = 100
KEPT_WRONG = 0.05  # share of agents on a wrong arm above which Fed-PECD is held to have failed
LEAST_GAIN, MOST_FLOORS = 10, 3

SYNTHETIC, MOVIELENS = ("fedbandit/Synthetic-v0", {"noise_std": 1.0}), ("fedbandit/MovieLens-v0", {"noise_std": 0.1})
HOUSEHOLD, LINEAR = ("fedbandit/Household-v0", {"noise_std": 0.1}), ("fedbandit/Linear-v0", {"noise_std": 1.0})
# Each family is a panel: a problem, and the spreads of the context at which it is looked at.
FAMILIES: dict[str, tuple[tuple[str, dict[str, Any]], dict[str, Any], tuple[float, ...]]] = {
    "synthetic": (SYNTHETIC, {"error": "berkson"}, (0.05, 0.1, 0.2)),
    "synthetic-classical": (SYNTHETIC, {"error": "classical"}, (0.05, 0.1, 0.2)),
    "movielens-completed": (MOVIELENS, {"factors": "completed"}, (0.05, 0.1, 0.2)),
    "movielens-masked": (MOVIELENS, {"factors": "masked"}, (0.05, 0.1, 0.2)),
    "household-completed": (HOUSEHOLD, {"factors": "completed"}, ()),
    "household-masked": (HOUSEHOLD, {"factors": "masked"}, ()),
    "linear": (LINEAR, {}, ()),
}


@dataclass(frozen=True)
class Beyond:
    """What `beyond` found; everything is also in its folder."""

    long: Mapping[str, Result]  # by setting
    short: Mapping[str, Result]
    goals: Columns
    robustness: Columns


def settings() -> dict[str, tuple[str, dict[str, Any]]]:
    """Environment and arguments of each setting, by name."""
    found = {}
    for name, ((environment, noise), arguments, spreads) in FAMILIES.items():
        common = {**noise, **arguments, "num_agents": AGENTS}
        if not spreads:
            found[name] = (environment, common)
        for spread in spreads:
            found[setting(name, spread)] = (environment, {**common, "context_std": spread})
    return found


def setting(family: str, spread: float) -> str:
    """The name of a setting."""
    return f"{family}-{spread:g}"


def spec(name: str, noise_std: float) -> PolicySpec:
    """A policy with its widths scaled to the noise, if it has a scale of its own."""
    scaled = policy_parameters(policy_class(name)).get("sigma") is not None
    return PolicySpec(name, {"sigma": noise_std} if scaled else {}, name)


def beyond(
    out: str | Path, trials: int = 100, executor: str | Executor = "processes", *, seed: int = 0, force: bool = False
) -> Beyond:
    """Run all settings (or what is missing), and write tables and figures."""
    long, short = {}, {}
    for name, (environment, arguments) in settings().items():
        policies = [spec(policy, arguments["noise_std"]) for policy in PLANNING]
        long[name] = Experiment(environment, policies, {**arguments, "max_cycles": LONG}, trials, seed)
        policies = [spec(policy, arguments["noise_std"]) for policy in policy_names() if policy != "Oracle"]
        few = min(trials, SHORT_TRIALS)
        short[name] = Experiment(environment, policies, {**arguments, "max_cycles": SHORT}, few, seed)
    folder = Path(out) / "beyond"
    found_long = run_all(long, folder / "long", executor, force=force)
    found_short = run_all(short, folder / "short", executor, force=force)
    rows = [goal_row(name, result) for name, result in found_long.items()]
    goals = {column: [row[column] for row in rows] for column in rows[0]}
    found = Beyond(found_long, found_short, goals, robustness(min(trials, ROBUSTNESS_TRIALS), executor))
    _write(found, folder)
    return found


def goal_row(name: str, result: Result) -> dict[str, Any]:
    """Regret against Fed-PECD's and the floor, and whether each goal is met: holds, fails or undecided, by pairs."""
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


def spread_figure(results: Mapping[str, Result]) -> "Figure":
    """Final regret against the spread of the context, a panel for each family that has one."""
    from fedbandit_envs.reports.plotting import blank, regret_against

    families = {name: spreads for name, (_, _, spreads) in FAMILIES.items() if spreads}
    drawn, grid = blank(9.6, 7, 2, math.ceil(len(families) / 2))
    for axes, (name, spreads) in zip(grid.flat, families.items(), strict=True):
        regret_against({spread: results[setting(name, spread)] for spread in spreads}, "context_std", axes)
        axes.get_legend().remove()
        _finish(axes, name)
    _common_legend(drawn, grid)
    return drawn


def communication_figure(results: Mapping[str, Result]) -> "Figure":
    """Final regret against what was sent, means over trials, a panel for each environment at a middle spread."""
    from fedbandit_envs.reports.plotting import blank, looks

    shown = [setting("synthetic", 0.1), setting("movielens-completed", 0.1), "household-completed", "linear"]
    drawn, grid = blank(9.6, 7, 2, 2)
    for axes, name in zip(grid.flat, shown, strict=True):
        for label, look in looks(results[name]).items():
            point = (results[name].final(label, curve).mean() for curve in ("scalars", "mean_regret"))
            axes.plot(*point, look["marker"], color=look["color"], label=label, clip_on=False)
        axes.set_xscale("symlog", linthresh=1e3)  # some send nothing
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
not more than it; on MovieLens at most {floors} times the floor. Verdicts by paired t intervals of 95 %.

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
    """Everything on one page of markdown."""
    first, few = next(iter(found.long.values())), next(iter(found.short.values()))
    tables = [
        {name: table[name] for name in (*_REPORTED, "scalars_up", "scalars_down")}
        for table in (sweep_table("setting", found.long), sweep_table("setting", found.short))
    ]
    return REPORT.format(
        agents=AGENTS,
        seed=first.experiment.seed,
        ours=OURS,
        floor=FLOOR,
        gain=LEAST_GAIN,
        wrong=KEPT_WRONG,
        floors=MOST_FLOORS,
        long=LONG,
        short=SHORT,
        trials=len(first.records),
        few=len(few.records),
        goals=table_text(found.goals, "markdown"),
        wrong_horizon=HORIZON,
        wrong_trials=ROBUSTNESS_TRIALS,
        robustness=table_text(found.robustness, "markdown"),
        table_long=table_text(tables[0], "markdown"),
        table_short=table_text(tables[1], "markdown"),
    )


def _write(found: Beyond, folder: Path) -> None:
    from fedbandit_envs.reports.plotting import save

    make_folder(folder)
    save(spread_figure(found.long), folder / "spread")
    save(communication_figure(found.short), folder / "communication")
    tables = {"goals": found.goals, "robustness": found.robustness}
    for name, table in (
        tables | {"long": sweep_table("setting", found.long), "short": sweep_table("setting", found.short)}
    ).items():
        for suffix in (".csv", ".json"):
            write_table(table, folder / f"{name}{suffix}")
    write_whole(folder / "report.md", report(found).encode())
