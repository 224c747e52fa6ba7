"""The sections of a report: each is made from a result by its public methods, and says how to read it."""

import platform
from collections.abc import Mapping
from html import escape
from importlib.metadata import version
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbandit_envs.experiments.advice import advice
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.tables import columns_of_some, shown_more
from fedbandit_envs.experiments.text import Columns
from fedbandit_envs.experiments.trials import PRIVACY
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.protocol.registry import policy_names
from fedbandit_envs.reports import plotting
from fedbandit_envs.reports.canvas import OUTSIDE, plain_settings
from fedbandit_envs.reports.html import choice, colours_of, facts, figure, folded, number, section, table
from fedbandit_envs.reports.series import band_note, series_key
from fedbandit_envs.reports.svg import inline_svg

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

# Two tables that fit on the page: only the first depends on the kind of regret.
_REGRETS = ("policy", "regret", "regret_low", "regret_high", "worst_agent")
_ARMS_AND_COMMUNICATION = (
    *("policy", "time_to_settle", "wrong_share", "active_arms"),
    *("scalars_up", "scalars_down", "scalars_peer", "bytes_up", "bytes_down", "bytes_peer", "rounds"),
)
_FEW = 5  # with more policies there are many pairs, so their table is folded
SCALES = {"linear": "", "logarithmic": "xy"}


class Plots:
    """Draws the plots of one page: each gets a name of its own, whatever settings matplotlib has at the moment."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def draw(
        self, make: "Callable[..., Figure]", labels: list[str], caption: str, keywords: Mapping[str, Any], **chosen: str
    ) -> str:
        """The figure that `make` draws, as a part of the page; `chosen` are the positions of switches that show it."""
        with plain_settings():
            svg = inline_svg(make(**keywords), f"plot{next(self._numbers)}", labels, caption)
        return figure(svg, caption, **chosen)


def kinds_of(result: Result) -> list[str]:
    """The kinds of regret that a result holds; where contexts change some are not known, which is NaN."""
    return [kind for kind in REGRETS if _holds(result, kind)]


def _holds(result: Result, kind: str) -> bool:
    try:
        return bool(np.isfinite(result.final(result.labels[0], f"mean_{kind}")).all())
    except ValueError:
        return False


def headline(result: Result) -> list[str]:
    """What a reader wants to know first, in a few sentences."""
    summary = result.table()
    yardsticks = shown_more(result)
    rows = sorted(range(len(result.labels)), key=lambda row: summary["regret"][row])
    lowest = [_regret(summary, row) for row in rows if summary["policy"][row] not in yardsticks]
    lines = [f"Least regret per agent at the end: {'; then '.join(lowest[:3])}."]
    easier = [
        f"{_regret(summary, row)}, shown {yardsticks[label]}"
        for row, label in enumerate(summary["policy"])
        if label in yardsticks
    ]
    if easier:
        lines.append(f"Yardsticks, which are shown more than the others: {'; '.join(easier)}.")
    done, wanted = len(result.trials), result.experiment.trials
    whole = f"All {wanted} trials are finished." if wanted > 1 else "The one trial is finished."
    lines.append(f"{done} of {wanted} trials are finished." if done < wanted else whole)
    p_values = result.table("comparisons")["p_holm"]
    if p_values and done > 1:
        different = sum(p_value < 0.05 for p_value in p_values)
        lines.append(f"{different} of {len(p_values)} pairs of policies differ at the level of 5 %, corrected by Holm.")
    audits = audit_table(result)
    if audits:
        claimed = [verdict for verdict in audits["verdict"] if verdict != "not claimed"]
        held = claimed.count("holds")
        lines.append(f"{held} of {len(claimed)} claims of theory held in all audited runs for which they are made.")
        found = zip(audits["policy"], audits["claim"], audits["verdict"], strict=True)
        lines += [f"The claim fails for {policy}: {claim}." for policy, claim, verdict in found if verdict == "fails"]
    return lines


def _regret(summary: Columns, row: int) -> str:
    """A policy with its regret and its interval; a single trial has no interval."""
    low, high = summary["regret_low"][row], summary["regret_high"][row]
    interval = f" [{number(low)}, {number(high)}]" if low == low else ""
    return f"{summary['policy'][row]} {number(summary['regret'][row])}{interval}"


def advice_lines(result: Result) -> list[str]:
    """Advice on the policies that are installed.

    A folder can come from another machine, with parameters or data that are missing here. Then there is no advice.
    """
    known = set(policy_names())  # any other name in a folder could import code that someone else has chosen
    specs = [spec for spec in result.experiment.policies if spec.name in known]
    try:
        return advice(result, specs)
    except ValueError:
        return []


def audit_table(result: Result) -> Columns:
    """A row for each policy and claim of theory: in how many audited runs it was made, and in how many it held."""
    rows = []
    for label in result.labels:
        for claim, found in result.claims(label).items():
            claimed = [row for row in found if row["claimed"]]
            held = sum(bool(row["holds"]) for row in claimed)
            verdict = "not claimed" if not claimed else "holds" if held == len(claimed) else "fails"
            most = max(found, key=lambda row: float(row["measured"]))
            row = {"policy": label, "claim": claim, "verdict": verdict, "audited": len(found), "claimed": len(claimed)}
            rows.append(row | {"held": held, "largest": float(most["measured"]), "its bound": float(most["bound"])})
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def summary_section(result: Result, kinds: list[str], name: str = "summary") -> str:
    """The tables of means: regret, for each kind of it, and below it arms and communication."""
    colours, shown = colours_of(result), []
    for kind in kinds:
        summary = result.table(kind=kind)
        caption = f"Means over trials at the end; regret per agent {REGRETS[kind].help}"
        shown.append(choice(table({key: summary[key] for key in _REGRETS}, caption, colours), kind=kind))
    summary = result.table()
    caption = "Arms of an agent and communication of all agents: means over trials at the end; time to settle: median"
    names = [name for name in _ARMS_AND_COMMUNICATION if not name.endswith("_peer") or any(summary[name])]
    if all(name in summary for name in PRIVACY):
        names += PRIVACY
        caption += "; epsilon and privacy_delta: the budget that all reports of an agent keep together"
    shown.append(table({name: summary[name] for name in names}, caption, colours))
    if some := columns_of_some(summary):
        caption = "Agents that take part, and recommended arms: means over trials at the end"
        shown.append(table({name: summary[name] for name in ("policy", *some)}, caption, colours))
    how = (
        "Each row is a policy; low and high are the ends of Student's 95 % interval of its mean regret over trials. "
        "Click a heading to sort."
    )
    return section(name, "Summary", how, *shown)


def regret_section(result: Result, plots: Plots, kinds: list[str], name: str = "regret") -> str:
    """Curves with bands, for each kind of regret, on linear and logarithmic axes."""
    how = (
        "A lower curve is better, and where a curve is flat the policy has stopped losing. "
        f"In the plot, {' '.join(band_note(len(result.trials)).split())}. On logarithmic axes a straight line is a "
        "power of time. Move the pointer over a plot to read values, drag a box to zoom in, double-click to zoom out."
    )
    drawn = [
        plots.draw(
            plotting.regret,
            result.labels,
            f"{REGRETS[kind].help}; {scale} axes",
            {"result": result, "kind": kind, "log": log, "size": wide(result.labels)},
            kind=kind,
            scale=scale,
        ).replace("<figure", f'<figure data-curves="{name}-{kind}"', 1)
        for kind in kinds
        for scale, log in SCALES.items()
    ]
    return section(name, "Regret over time", how, *drawn)


def wide(labels: list[str]) -> tuple[float, float]:
    """The size of a plot in inches, with room for a legend beside the axes if the legend stands there."""
    width, height = 8.6, 4.4
    return (width + 1.4, max(height, 0.185 * (len(labels) + 4))) if len(labels) >= OUTSIDE else (width, height)


def curve_data(result: Result, kind: str) -> dict[str, Any]:
    """The values under the pointer: for each policy's key its label, steps, means and intervals."""
    curves = result.table("curves", kind)
    data: dict[str, Any] = {}
    for row, label in enumerate(curves["policy"]):
        parts = data.setdefault(series_key(label), {"label": label, "x": [], "mean": [], "low": [], "high": []})
        parts["x"].append(curves["step"][row] - sum(parts["x"]))  # steps since the last checkpoint
        for part, column in (("mean", "regret"), ("low", "regret_low"), ("high", "regret_high")):
            value = curves[column][row]
            parts[part].append(float(f"{value:.4g}") if value == value else None)
    return data


def differences_section(result: Result, plots: Plots, kinds: list[str]) -> str:
    """A forest plot to the best policy, and the table of all pairs."""
    if len(result.labels) < 2:
        return ""
    how = (
        "Trials are paired: in each of them all policies meet the same instance. Intervals and p-values are Student's "
        "for paired differences. A bar right of 0 means that the policy loses more than the one at 0, a bar left of 0 "
        "that it loses less. The policy at 0 is the best of those that are shown the least. The table has all pairs, "
        "with p-values corrected by Holm."
    )
    drawn = [
        plots.draw(
            plotting.differences,
            result.labels,
            f"differences to the policy at 0, {REGRETS[kind].help}",
            {"result": result, "kind": kind, "size": (wide(result.labels)[0], 1.4 + 0.3 * len(result.labels))},
            kind=kind,
        )
        for kind in kinds
    ]
    caption = "Differences of regret per agent: policy minus against"
    pairs = [choice(table(result.table("comparisons", kind), caption), kind=kind) for kind in kinds]
    shown = "".join(pairs) if len(result.labels) <= _FEW else folded("All pairs", "".join(pairs))
    return section("differences", "Paired differences", how, *drawn, shown)


def other_plots(result: Result, plots: Plots) -> list[str]:
    """Communication, the spread over agents, and active arms: a section each."""
    parts = {
        "communication": (
            "Communication",
            plotting.communication,
            "A policy further left sends less, and one further down loses less: the best ones are at the lower left.",
        ),
        "agents": (
            "Regret of single agents",
            plotting.agents,
            "A curve shows the share of agents with at most that much regret. A long tail to the right is a few agents "
            "that lose much more than the others.",
        ),
        "active": (
            "Active arms",
            plotting.active_arms,
            "How many arms an agent still considers. Policies that eliminate no arm stay at the top.",
        ),
    }
    keywords = {"result": result, "size": wide(result.labels)}
    return [
        section(name, title, how, plots.draw(make, result.labels, title, keywords))
        for name, (title, make, how) in parts.items()
    ]


def audit_section(result: Result) -> str:
    """The claims of theory, if trials were audited."""
    audits = audit_table(result)
    if not audits:
        return ""
    how = (
        "Audited runs are checked against the theory of their policies. A claim fails if it was made and did not hold "
        "in some run. Where the theory's conditions are not met a claim is not made, and is only measured."
    )
    reasons = []
    for label in result.labels:
        unless = (row["unless"] for found in result.claims(label).values() for row in found if not row["claimed"])
        reasons += [f"{label}: a claim is not made where, for example, {reason}." for reason in islice(unless, 1)]
    shown = table(audits, "Claims in audited runs", colours_of(result))
    return section("audits", "Claims of theory", how, shown, facts(reasons))


def settings_section(results: Mapping[str, Result]) -> str:
    """What was run, how to run it again, and with which versions this page was written."""
    how = "Save a text below as experiment.toml and run the command: the same versions give the same numbers."
    command = "fedbandit run experiment.toml --out results/again"
    texts = "".join(
        f"<details{' open' * (len(results) == 1)}><summary>{escape(name or 'experiment.toml')}</summary>"
        f"<pre>{escape(result.experiment.text())}</pre></details>"
        for name, result in results.items()
    )
    packages = ("fedbandit-envs", "numpy", "scipy", "matplotlib")
    versions = [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in packages)]
    computed = [", ".join(f"{n} {v}" for n, v in one.items()) for each in results.values() for one in each.provenance]
    origins = [f"Runs were computed with {text}." for text in dict.fromkeys(computed)]
    origins += [note for result in results.values() for note in result.notes]
    written = facts([*origins, f"This page was written with {', '.join(versions)}."])
    return section("settings", "Configuration", how, f"<pre>{escape(command)}</pre>", texts, written)


def verdict_section(rows: list[dict[str, Any]]) -> str:
    """The verdicts that `reproduce` wrote."""
    names = sorted(rows[0], key=lambda name: name not in ("panel", "verdict"))  # what matters most comes first
    columns = {name: [row.get(name) for row in rows] for name in names}
    how = (
        "Each row is a statement of the paper. It holds if the whole 95 % interval (Student's) is on its side of the "
        "border, fails if the whole interval is on the other, and is undecided otherwise."
    )
    return section("verdicts", "Verdicts", how, table(columns, "Statements of the paper, checked by trials"))


def verdict_lines(rows: list[dict[str, Any]]) -> list[str]:
    """The number of verdicts of each sort, in one sentence."""
    sorts = [row.get("verdict") for row in rows]
    counts = ", ".join(f"{sorts.count(sort)} {sort}" for sort in ("holds", "fails", "undecided", "not claimed"))
    return [f"{len(rows)} statements of the paper: {counts}."]
