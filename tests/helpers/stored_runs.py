"""Hashes of small runs: what they are now, and what they were when the table was made, which test_same_bytes compares.

A change that is meant to play other runs makes the table anew: `python tests/helpers/stored_runs.py`, and CHANGELOG.md
says why. A hash covers whole numbers alone: what was pulled, and what was sent. They are the same on every CPU.
"""

import hashlib
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import kernel_runs
import numpy as np

import fedbandit_envs as fb
from fedbandit_envs.protocol.policy import observe_for

TABLE = Path(__file__).with_suffix(".toml")
#: Context inference is left out: what it plays changes with each of its editions.
LEFT_OUT = ("Exact-Thompson", "Fed-CI", "Fed-CI-Elimination", "Federated-Thompson", "Local-Thompson", "Theta-Told")
POLICIES = sorted({point.name for point in entry_points(group="fedbandit.policies")} - set(LEFT_OUT))
#: Each has something of its own: hidden contexts, mixtures, correlated ones, rewards of 0 or 1, contexts that change,
#: the same arms for all agents, and arms that agents share.
PROBLEMS = ("synthetic", "households", "covariance", "Bernoulli", "synthetic stream", "the same arms", "shared arms")


def played(name: str) -> dict[str, str]:
    """The hash of a run of this policy on each problem that it can play."""
    return {problem: hashed(history) for problem, history in runs(fb.make_policy(name))}


def runs(policy: fb.Policy) -> Iterator[tuple[str, fb.History]]:
    """A run on each problem: of 60 steps where they cost time, else of 2^15, so that arms are eliminated."""
    for problem in PROBLEMS:
        name, arguments = kernel_runs.PROBLEMS[problem]
        shown = {**arguments, "observe": observe_for(policy)}
        if policy.observes == "delayed":
            shown["reveal"] = "after"
        try:
            short = fb.make(name, max_cycles=60, **shown)
        except ValueError:  # contexts that stay are not revealed later
            continue
        if fb.why_not(policy, short, network="ring"):
            continue
        history = fb.play(short, policy, seed=1, network="ring")
        if short.episode.plans < 20 and problem != "shared arms":
            history = fb.play(fb.make(name, max_cycles=2**15, **shown), policy, seed=1, network="ring")
        yield problem, history


def hashed(history: fb.History) -> str:
    """A hash of the whole numbers of a run."""
    digest = hashlib.sha256()
    for numbers in (history.steps, history.pulls, history.active, history.ledger.per_agent, history.ledger.per_round):
        digest.update(repr(numbers.shape).encode() + np.ascontiguousarray(numbers, dtype=np.int64).tobytes())
    return digest.hexdigest()[:12]


def stored() -> dict[str, dict[str, str]]:
    """The hashes of the table, by policy and problem."""
    return tomllib.loads(TABLE.read_text())


def main() -> None:
    """Make the table anew."""
    lines = ["# Made by stored_runs.py; test_same_bytes compares it with what runs are now."]
    for name in POLICIES:
        lines += [f'["{name}"]', *(f'"{problem}" = "{value}"' for problem, value in played(name).items()), ""]
    TABLE.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
