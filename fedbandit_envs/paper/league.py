"""The league: every policy on every problem that it can play, in one table and one figure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbandit_envs.experiments.computing import FinishedRun
from fedbandit_envs.experiments.executors.local import Executor
from fedbandit_envs.experiments.experiment import Experiment, PolicySpec
from fedbandit_envs.experiments.folder import make_folder, write_whole
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.running import run_all
from fedbandit_envs.experiments.statistics import student_band
from fedbandit_envs.experiments.text import Columns, table_text, write_table
from fedbandit_envs.protocol.registry import policy_class, policy_names, policy_parameters
from fedbandit_envs.rounds.why_not import why_not

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("regret", "distribution_regret", "group_regret")  #: the kinds of regret in the table
NETWORK = "ring"  #: who talks to whom, for policies that talk to peers


@dataclass(frozen=True)
class Contest:
    """A problem of the league."""

    environment: str  #: the id of the environment
    arguments: Mapping[str, Any]  #: its arguments, but for the number of agents and of steps
    noise_std: float = 1.0  #: the noise that policies with the parameter `sigma` are told


CONTESTS: Mapping[str, Contest] = {
    "synthetic": Contest("fedbandit/Synthetic-v0", {"context_std": 0.1}),
    "synthetic-resampled": Contest("fedbandit/Synthetic-v0", {"context_std": 0.1, "context": "resampled"}),
    "synthetic-stream": Contest("fedbandit/Synthetic-v0", {"context_std": 0.1, "context": "streaming"}),
    "synthetic-revealed": Contest(
        "fedbandit/Synthetic-v0", {"context_std": 0.1, "context": "streaming", "reveal": "after"}
    ),
    "forecast": Contest("fedbandit/Forecast-v0", {}, 0.5),
    "forecast-revealed": Contest("fedbandit/Forecast-v0", {"reveal": "after"}, 0.5),
    "movielens": Contest("fedbandit/MovieLens-v0", {"context_std": 0.1, "noise_std": 0.1}, 0.1),
    "household": Contest("fedbandit/Household-v0", {"noise_std": 0.1}, 0.1),
    "multi-armed": Contest("fedbandit/MultiArmed-v0", {"local_std": 0.05, "noise_std": 0.5}, 0.5),
    "shared-arms": Contest("fedbandit/SharedArms-v0", {"num_arms": 30}, 0.5),
}


@dataclass(frozen=True)
class LeagueScale:
    """How large the league is. With the defaults, it takes less than ten minutes on two processors."""

    agents: int = 20  #: the number of agents, M
    steps: int = 2**12  #: the number of steps, T
    contests: Mapping[str, Contest] = field(default_factory=lambda: CONTESTS)  #: the problems
    policies: Sequence[str] = ()  #: the policies by name; empty: all that are registered


LEAGUE_SCALE = LeagueScale()


@dataclass(frozen=True)
class League:
    """What `league` found; everything is also in its folder."""

    results: Mapping[str, Result]  #: the results of each problem
    table: Columns  #: a row for each policy and problem, also where it can't play
    scale: LeagueScale = LEAGUE_SCALE  #: how large the league was


def league(
    out: str | Path,
    trials: int = 3,
    executor: str | Executor = "processes",
    *,
    seed: int = 0,
    force: bool = False,
    scale: LeagueScale = LEAGUE_SCALE,
) -> League:
    """Play every policy on every problem that it can play, and write table, figure and page into the folder.

    Args:
        out: the folder; trials that are there already are kept.
        trials: the number of trials of each policy on each problem.
        executor: who computes the trials.
        seed: the seed from which the seeds of all trials are derived.
        force: whether torn or foreign files in the folder are removed, not refused.
        scale: how large the league is.
    """
    names = list(scale.policies) or policy_names()
    experiments, refused = fixtures(names, trials, seed, scale)
    seconds: dict[tuple[str, str], list[float]] = {}

    def note_time(run: FinishedRun) -> None:
        seconds.setdefault((run.experiment, run.label), []).append(run.seconds)

    folder = Path(out)
    results = run_all(experiments, folder / "trials", executor, force=force, callbacks=[note_time])
    made = League(results, league_table(names, results, refused, seconds), scale)
    _write(made, folder, trials, seed)
    return made


def fixtures(
    names: Sequence[str], trials: int, seed: int, scale: LeagueScale
) -> tuple[dict[str, Experiment], dict[tuple[str, str], str]]:
    """An experiment for each problem with the policies that can play it; and the reason for each that can't.

    >>> scale = LeagueScale(agents=3, steps=50, contests={"synthetic": CONTESTS["synthetic"]})
    >>> experiments, refused = fixtures(["Uniform", "KK-UCB-Observed"], 1, 0, scale)
    >>> experiments["synthetic"].labels, refused["synthetic", "KK-UCB-Observed"][:46]
    (['Uniform'], 'policy: expected one that does without the con')
    """
    experiments, refused = {}, {}
    for problem, contest in scale.contests.items():
        arguments = {**contest.arguments, "num_agents": scale.agents, "max_cycles": scale.steps}
        playing = []
        for name in names:
            spec = _spec(name, contest.noise_std)
            reason = _why_not(Experiment(contest.environment, [spec], arguments, trials, seed, network=NETWORK))
            if reason is None:
                playing.append(spec)
            else:
                refused[problem, name] = reason
        if playing:
            experiments[problem] = Experiment(contest.environment, playing, arguments, trials, seed, network=NETWORK)
    return experiments, refused


def _spec(name: str, noise_std: float) -> PolicySpec:
    """A policy with its widths scaled to the noise, if it has the parameter `sigma`."""
    scaled = policy_parameters(policy_class(name)).get("sigma") is not None
    return PolicySpec(name, {"sigma": noise_std} if scaled else {}, name)


def _why_not(experiment: Experiment) -> str | None:
    """The reason why the one policy of an experiment can't play it."""
    try:
        policy = experiment.policies[0].make()
        return why_not(policy, experiment.environment_for(policy), network=experiment.network)
    except (ValueError, ImportError) as error:  # for example, contexts that are drawn at each pull can't be shown
        return str(error)


def league_table(
    names: Sequence[str],
    results: Mapping[str, Result],
    refused: Mapping[tuple[str, str], str],
    seconds: Mapping[tuple[str, str], Sequence[float]],
) -> Columns:
    """A row for each problem and policy: regret by kind with Student's intervals, communication, time, or the reason.

    Args:
        names: the policies, in the order of the rows.
        results: the results of each problem.
        refused: why a policy can't play a problem, by both names.
        seconds: the times of the trials that were computed now, by both names; others have no time.
    """
    rows = []
    for problem in dict.fromkeys([*results, *(problem for problem, _ in refused)]):
        for name in names:
            row: dict[str, Any] = {"problem": problem, "policy": name}
            if (problem, name) in refused:
                rows.append(row | {"why not": refused[problem, name]})
            elif name in results[problem].labels:
                rows.append(row | _scores(results[problem], name, seconds.get((problem, name), ())))
    columns = ["problem", "policy"]
    for kind in KINDS:
        columns += [kind, f"{kind}_low", f"{kind}_high"]
    columns += ["worst_agent", "scalars", "rounds", "seconds", "why not"]
    empty = {"why not": ""}
    return {column: [row.get(column, empty.get(column, math.nan)) for row in rows] for column in columns}


def _scores(result: Result, name: str, seconds: Sequence[float]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for kind in KINDS:
        final = result.final(name, f"mean_{kind}")
        if np.isnan(final).any():  # contexts that change have no group regret, for example
            continue
        row[kind] = float(final.mean())
        band = student_band(final[:, None])
        row[f"{kind}_low"], row[f"{kind}_high"] = float(band.low[0]), float(band.high[0])
    row |= {"worst_agent": float(result.final(name, "worst_regret").mean())}
    row |= {count: float(result.final(name, count).mean()) for count in ("scalars", "rounds")}
    return row | {"seconds": sum(seconds) / len(seconds) if seconds else math.nan}


def league_figure(results: Mapping[str, Result]) -> "Figure":
    """Mean final regret against mean communication, a panel for each problem; without the two oracles."""
    from fedbandit_envs.reports.plotting import blank, styles

    columns = 2
    rows = math.ceil(len(results) / columns)
    everybody = dict.fromkeys(label for result in results.values() for label in result.labels)
    labels = [label for label in everybody if label not in ("Oracle", "Shared-Oracle")]
    look = styles(labels)
    drawn, grid = blank(11, 3.4 * rows + 2.2, rows, columns)
    panels = list(getattr(grid, "flat", [grid]))
    handles: dict[str, Any] = {}
    for axes, (problem, result) in zip(panels, results.items(), strict=False):
        most = 1.0
        for label in (label for label in labels if label in result.labels):
            sent, lost = (result.final(label, curve).mean() for curve in ("scalars", "mean_regret"))
            most = max(most, sent)
            marker = {key: value for key, value in look[label].items() if key != "linestyle"}
            (handles[label],) = axes.plot(sent, lost, linestyle="", label=label, **marker)
        axes.set_xscale("symlog", linthresh=1e2, linscale=0.5)  # some policies send nothing
        axes.set_xticks([0, *(10.0**power for power in range(2, 12, 2) if 10.0**power < 2 * most)])
        axes.set_xlim(-50, 3 * most)
        axes.set_yscale("log")
        axes.set_title(problem, fontsize="medium")
        axes.set_xlabel("scalars that crossed, all agents")
        axes.set_ylabel("final regret per agent")
    for axes in panels[len(results) :]:
        axes.set_axis_off()
    shown = [label for label in labels if label in handles]
    entries = [handles[label] for label in shown]
    drawn.legend(entries, shown, loc="outside lower center", ncols=6, frameon=False, fontsize="small")
    return drawn


PAGE = """# The league

Every policy on every problem that it can play: M = {agents} agents, T = {steps:,} steps, {trials} trials, seed {seed}.
Policies that talk to peers play on a {network}. Policies with a parameter `sigma` are told the noise; all others have
their defaults. Numbers are means over trials of the final regret per agent; low and high are Student's 95 % interval.
The figure leaves out Oracle and Shared-Oracle, which have no regret. Runs are short: phased elimination needs longer
ones to show its strength.

![regret against communication](league.png)

{table}"""


def _write(league: League, folder: Path, trials: int, seed: int) -> None:
    from fedbandit_envs.reports.plotting import save

    make_folder(folder)
    if league.results:
        save(league_figure(league.results), folder / "league")
    for suffix in (".csv", ".json"):
        write_table(league.table, folder / f"league{suffix}")
    sizes = {"agents": league.scale.agents, "steps": league.scale.steps, "trials": trials, "seed": seed}
    text = PAGE.format(**sizes, network=NETWORK, table=table_text(league.table, "markdown"))
    write_whole(folder / "league.md", text.encode())
