"""Verdicts on the paper's claims: each holds, fails or is undecided, and an interval over trials says why."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.statistics import Difference, paired_difference, proportion

EXACT, HIDDEN = "exact (Fed-PE)", "hidden (Fed-PECD)"

# What the claims of `audit` mean that must hold in every run with known contexts, by the claim's name.
_IN_EVERY_RUN = {
    "agents that eliminated their best arm": "on covered runs no agent eliminates its best arm",
    "regret of a phase, as a share of its bound": "on covered runs the regret of each phase is within its bound",
    "total regret, as a share of its bound": "on covered runs the total regret is within the bound at every step",
    "scalars sent, both ways": "communication is within the bound",
}
_COVERAGE = "largest error of an estimate, in widths"


@dataclass(frozen=True)
class Verdict:
    """A claim of the paper, what was measured, and what follows from it.

    The interval is Student's for paired differences, and Clopper and Pearson's for shares of runs.
    """

    panel: str  #: the letter of the panel
    claim: str  #: the claim in words
    measured: float  #: the measured difference or share
    low: float  #: the lower end of the 95 % interval
    high: float  #: the upper end of the 95 % interval
    trials: int  #: the number of trials or runs
    verdict: str  #: "holds", "fails", "undecided", or "not claimed"
    explanation: str  #: why this is the verdict


def _of_difference(panel: str, claim: str, difference: Difference, meaning: str) -> Verdict:
    if difference.trials < 2:
        explanation = f"{meaning}: one trial has no interval; more trials would decide"
    else:
        seen = {
            "holds": "Student's 95 % interval of the paired difference is above 0",
            "fails": "Student's 95 % interval of the paired difference is below 0, the opposite of the claim",
            "undecided": "Student's 95 % interval of the paired difference contains 0; more trials would decide",
        }[difference.verdict]
        explanation = f"{meaning}: {seen} (p = {difference.p_value:.2g})"
    return Verdict(
        panel,
        claim,
        difference.mean,
        difference.low,
        difference.high,
        difference.trials,
        difference.verdict,
        explanation,
    )


def exact_below_hidden(panel: str, result: Result) -> Verdict:
    """The verdict on the claim that known contexts give less regret than hidden ones, on the same instances."""
    difference = paired_difference(result.final(HIDDEN), result.final(EXACT))
    return _of_difference(panel, "exact below hidden", difference, "regret per agent, hidden minus exact")


def falls_with_agents(panel: str, by_agents: Mapping[int, Result], label: str) -> list[Verdict]:
    """The verdicts on the claim that regret per agent falls from each number of agents to the next.

    Args:
        panel: the letter of the panel.
        by_agents: the results by the number of agents, M.
        label: the policy, `EXACT` or `HIDDEN`.
    """
    return [
        _of_difference(
            panel,
            f"{label}: regret per agent falls from M = {few} to {many}",
            _difference(by_agents[few], by_agents[many], label),
            f"regret per agent at M = {few} minus M = {many}",
        )
        for few, many in pairwise(sorted(by_agents))
    ]


def _difference(first: Result, second: Result, label: str) -> Difference:
    """The paired difference between two settings, over the trials that both have; these share their seeds."""
    both = [trial for trial in first.trials if trial in set(second.trials)]
    one, other = (result.final(label)[[result.trials.index(trial) for trial in both]] for result in (first, second))
    return paired_difference(one, other)


def theory(panel: str, result: Result, delta: float) -> list[Verdict]:
    """The verdicts on coverage, bounds and communication, over the audited trials.

    Args:
        panel: the letter of the panel.
        result: the trials.
        delta: the probability with which the widths may fail.
    """
    exact = result.claims(EXACT)
    if not exact:
        return []
    verdicts = [_coverage(panel, [row["holds"] for row in exact[_COVERAGE]], delta)]
    for name, claim in _IN_EVERY_RUN.items():
        rows = [row for row in exact[name] if row["claimed"]]
        if rows:
            verdicts.append(_in_every_run(panel, claim, [row["holds"] for row in rows], max(_use(row) for row in rows)))
    hidden = [row["holds"] for row in result.claims(HIDDEN)[_COVERAGE]]
    share = proportion(sum(hidden), len(hidden))
    return [
        *verdicts,
        Verdict(
            panel,
            "hidden contexts: share of runs with all estimates within their widths",
            *(share.share, share.low, share.high, share.trials, "not claimed"),
            "a fixed hidden context biases an agent's rewards for good, and no width of the paper covers a bias: "
            "its lemma that they do is mistaken (docs/results/open-points.md), so nothing is claimed here",
        ),
    ]


def _use(row: Mapping[str, float]) -> float:
    """How much of its bound a claim has used, as a share; anything above 0 uses up a bound of 0."""
    return row["measured"] / row["bound"] if row["bound"] else float(row["measured"] > 0)


def _coverage(panel: str, covered: list[bool], delta: float) -> Verdict:
    share = proportion(sum(covered), len(covered))
    verdict = "holds" if share.low >= 1 - delta else "fails" if share.high < 1 - delta else "undecided"
    explanation = f"all estimates within their widths in {sum(covered)} of {len(covered)} runs; claimed: {1 - delta:g}"
    if verdict == "undecided":
        explanation += "; the interval contains this share, more trials would decide"
    claim = f"exact: coverage of at least {1 - delta:g}"
    return Verdict(panel, claim, share.share, share.low, share.high, share.trials, verdict, explanation)


def _in_every_run(panel: str, claim: str, holds: list[bool], most: float) -> Verdict:
    share = proportion(sum(holds), len(holds))
    explanation = f"in {sum(holds)} of {len(holds)} runs; at most {most:.0%} of the bound was used"
    verdict = "holds" if all(holds) else "fails"
    return Verdict(panel, f"exact: {claim}", share.share, share.low, share.high, share.trials, verdict, explanation)
