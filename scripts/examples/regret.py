"""What the examples share: a small problem, the table that each of them prints, and the error for a missing library."""

import argparse
import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import fedbandit_envs as fb

ENVIRONMENT = "fedbandit/Synthetic-v0"
PROBLEM = {
    "num_agents": 8,
    "num_arms": 4,
    "dim": 2,
    "max_cycles": 128,
    "context_std": 0.2,
    "noise_std": 0.1,
}
EVALUATION = range(7000, 7020)  # seeds of the episodes on which regret is measured; no training starts from them


@contextmanager
def extra(name: str) -> Iterator[None]:
    """A context for imports that need the extra `name`: if one fails, the program ends with one line that says so."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"expected the packages of the extra {name!r}, got: {error}; in a clone: pip install -e '.[{name}]'"
        ) from None


def arguments(description: str | None, steps: int) -> argparse.ArgumentParser:
    """The options of every example."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--steps", type=int, default=steps, help="the number of pulls to train on (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed of training (default: %(default)s)")
    return parser


def regret(policy: fb.Policy) -> float:
    """Regret per agent at the horizon, on average over the evaluation episodes."""
    env = fb.make(ENVIRONMENT, **PROBLEM)
    return float(np.mean([fb.play(env, policy, seed=seed).mean_regret()[-1] for seed in EVALUATION]))


def report(before: float, after: float, others: dict[str, float] | None = None) -> None:
    """Print the regret of a learner before and after training, beside that of other policies.

    Args:
        before: its regret before training.
        after: its regret after training.
        others: the regret of other policies by name; None: of Fed-PECD, which is told the noise, and of Uniform.
    """
    if others is None:
        others = {
            "Fed-PECD": regret(fb.make_policy("Fed-PECD", sigma=PROBLEM["noise_std"])),
            "Uniform": regret(fb.make_policy("Uniform")),
        }
    rows = {"before training": before, "after training": after, **others}
    print("policy            regret per agent")
    for name, value in rows.items():
        print(f"{name:<16} {value:10.2f}")
    if not all(map(math.isfinite, rows.values())):
        raise SystemExit("expected finite regret, got the numbers in the table above")
