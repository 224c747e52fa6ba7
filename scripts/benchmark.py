#!/usr/bin/env python3
"""Measures how fast the package is, and compares it with goals (for maintainers).

Machines are noisy, so most goals are ratios of two times that are measured by turns in one run. Times are CPU time of
one thread unless a row says otherwise. The script prints what was measured beside each goal, writes the rows as JSON,
and exits with 1 when a goal is missed.

    scripts/benchmark.py                 # everything; it takes some minutes
    scripts/benchmark.py --quick         # smaller sizes, within a minute
    scripts/benchmark.py run design      # some subjects only
    scripts/benchmark.py scale           # up to a million agents, in one process and over shards
"""

import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"  # before numpy is imported

import argparse
import json
import platform
import sys
from pathlib import Path

from benchmarks import inference, instructions, memory, peers, profile, runs, scale, scaling, stepping, streams
from benchmarks.measure import Row, show

SUBJECTS = (
    "step",
    "run",
    "profile",
    "design",
    "policies",
    "inference",
    "stream",
    "agents",
    "horizon",
    "sizes",
    "memory",
    "peers",
    "imports",
    "reproduce",
    "instructions",
)
LONG = ("scale", "millions")  # they take minutes and gigabytes, so they run only when they are named


def main(arguments: list[str] | None = None) -> int:
    known = ", ".join((*SUBJECTS, *LONG))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "subjects",
        nargs="*",
        metavar="SUBJECT",
        help=f"one or several of {known}; default: all but the last two",
    )
    parser.add_argument("--quick", action="store_true", help="measure smaller sizes, within a minute")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/benchmark"),
        help="the folder for JSON and pictures (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    unknown = set(options.subjects) - {*SUBJECTS, *LONG}
    if unknown:
        parser.error(f"expected subjects among {known}, got {', '.join(sorted(unknown))}")
    chosen = options.subjects or SUBJECTS

    simple = {
        "step": stepping.step,
        "run": runs.run,
        "profile": profile.profile,
        "design": runs.design,
        "policies": stepping.policies,
        "inference": inference.inference,
        "stream": streams.stream,
        "sizes": scaling.sizes,
        "memory": memory.memory,
        "peers": peers.peers,
        "imports": scaling.imports,
        "reproduce": runs.evaluation,
        "instructions": instructions.instructions,
        "millions": scale.millions,
    }
    grown = {"agents": scaling.agents, "horizon": scaling.horizon, "scale": scale.scale}
    rows: list[Row] = []
    points = {}
    for subject in chosen:
        if subject in simple:
            found = simple[subject](options.quick)
        else:
            found, points[subject] = grown[subject](options.quick)
        show(found)
        print(flush=True)
        rows += found
    options.out.mkdir(parents=True, exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine(), "processors": os.cpu_count()}
    report = {"machine": machine, "quick": options.quick, "rows": [row._asdict() for row in rows]}
    (options.out / "benchmark.json").write_text(json.dumps(report, indent=1) + "\n")
    if "scale" in points:
        scale.picture(points["scale"], options.out / "scale.png")
    if {"agents", "horizon"} <= set(points):
        scaling.picture(points["agents"], points["horizon"], options.out / "scaling.png")
    missed = [row.what for row in rows if row.ok is False]
    goals = f"{len(missed)} goal{'s' * (len(missed) != 1)} missed"
    print(goals + (f": {'; '.join(missed)}" if missed else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
