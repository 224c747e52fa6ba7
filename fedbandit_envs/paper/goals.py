"""What Fed-CI is to reach beyond the paper, and whether a comparison shows that it does."""

from typing import Any

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.statistics import paired_difference

OURS, THEIRS, ALONE = "Fed-CI", "Fed-PECD", "Local-Thompson"
CONTEXTS_TOLD, THETA_TOLD = "Exact-Thompson", "Theta-Told"
KEPT_WRONG = 0.05  # the share of agents on a wrong arm above which Fed-PECD is taken to have failed
LEAST_GAIN = 10  # where Fed-PECD fails, Fed-CI shall have at most 1 / LEAST_GAIN of Fed-PECD's regret
MOST_ALONE = 1.05  # Fed-CI shall have at most this many times the regret of agents without a server
# Except on Linear, Fed-CI shall have at most this many times the regret with theta told plus that with contexts told.
MOST_TOLD = 1.5


def tuned(name: str) -> str:
    """The label of a policy of phased elimination with a tuned width, with which nothing is guaranteed."""
    return f"{name}, width {TUNED_WIDTH}"


TUNED_WIDTH = 0.25  # of the widths that were tried, this one has the least regret on Synthetic


def goal_row(name: str, result: Result) -> dict[str, Any]:
    """A row of the goals: regret beside that of others, the largest run, the worst agent, and which goals are met.

    A goal "holds", "fails" or is "undecided", by paired differences over trials.
    """
    ours, theirs, alone = (result.final(label) for label in (OURS, THEIRS, ALONE))
    both = result.final(CONTEXTS_TOLD) + result.final(THETA_TOLD)
    wrong = float(result.final(THEIRS, "wrong_share").mean())
    allowed = 1 / LEAST_GAIN if wrong > KEPT_WRONG else 1.0
    row: dict[str, Any] = {"setting": name, "trials": len(ours), OURS: float(ours.mean())}
    row |= {"largest run": float(ours.max()), "worst agent": float(result.final(OURS, "worst_regret").mean())}
    for label in (THEIRS, tuned(THEIRS), ALONE, THETA_TOLD, CONTEXTS_TOLD):
        row[label] = float(result.final(label).mean())
    row |= {"wrong share of Fed-PECD": wrong, "allowed of Fed-PECD": allowed, "goal": _verdict(allowed * theirs, ours)}
    row["ratio to no server"] = float(ours.mean() / alone.mean())
    row[f"within {MOST_ALONE:g} of no server"] = _verdict(MOST_ALONE * alone, ours)
    row["ratio to told"] = float(ours.mean() / both.mean())
    row[f"within {MOST_TOLD:g} of told"] = "" if name.startswith("linear") else _verdict(MOST_TOLD * both, ours)
    scalars, of_theirs = (float(result.final(label, "scalars").mean()) for label in (OURS, THEIRS))
    row["scalars, share of Fed-PECD's"] = scalars / of_theirs
    return row


def _verdict(allowed: FloatArray, ours: FloatArray) -> str:
    return paired_difference(allowed, ours).verdict
