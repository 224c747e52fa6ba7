#!/usr/bin/env python3
"""Prints how often the regions of Fed-CI's posterior hold the true mean rewards (for maintainers; some minutes).

scripts/calibrate.py               # the tests' problems with other seeds; docs/results/calibration.md has the table
scripts/calibrate.py --runs 10     # a quick look
"""

import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"  # before numpy is imported

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from calibration import APPROXIMATE, EXACT, LEVELS, STEPS, held, places

FIRST_SEED = 1000


def row(problem, observe: str, runs: int) -> tuple[list[str], list[float]]:
    """The shares after each number of steps, as text, and for each level the largest standard error over runs."""
    shares = [
        [held(place, level) for level in LEVELS]
        for place in places(problem, range(FIRST_SEED, FIRST_SEED + runs), observe)
    ]
    errors = [[share.std(ddof=1) / np.sqrt(runs) for share in by_level] for by_level in shares]
    cells = [" / ".join(f"{share.mean():.3f}".lstrip("0") for share in by_level) for by_level in shares]
    return cells, list(np.max(errors, axis=0))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--runs", type=int, default=100, help="the number of runs of each problem, at least 2 (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    if options.runs < 2:
        parser.error(f"--runs: expected at least 2, got {options.runs}; standard errors need two")
    levels = " / ".join(f"{level:.0%}" for level in LEVELS)
    print(f"| regions of {levels} after | " + " | ".join(f"{steps} steps" for steps in STEPS) + " | standard error |")
    print("|---" * (2 + len(STEPS)) + "|")
    problems = EXACT | {label: (problem, "distribution") for label, problem in APPROXIMATE.items()}
    for label, (problem, observe) in problems.items():
        cells, errors = row(problem, observe, options.runs)
        at_most = " / ".join(f"{error:.3f}".lstrip("0") for error in errors)
        print(f"| {label} | " + " | ".join(cells) + f" | {at_most} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
