#!/usr/bin/env python3
"""Rebuilds the MovieLens factors that ship with fedbandit_envs, or checks them (for maintainers)."""

import argparse
import sys
from pathlib import Path

import fedbandit_envs
from fedbandit_envs.problems.movielens.download import DownloadError, download
from fedbandit_envs.problems.movielens.factors import eligible_users, encode_factors, load_factors
from fedbandit_envs.problems.movielens.learning import build_factors, largest_difference
from fedbandit_envs.storage import write_whole

SHIPPED = Path(fedbandit_envs.__file__).parent / "problems" / "movielens" / "factors.npz"
TOLERANCE = 1e-6
EXAMPLES = """examples:
  python scripts/build_movielens.py --download /tmp/ml-100k --check
  python scripts/build_movielens.py --ratings ml-100k/u.data --out factors.npz
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--ratings", type=Path, metavar="FILE", help="the u.data of MovieLens-100K")
    source.add_argument(
        "--download", type=Path, metavar="FOLDER", help="fetch u.data from GroupLens into this folder first"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--out", type=Path, default=SHIPPED, metavar="FILE", help="the file to write; default: the package's data file"
    )
    action.add_argument("--check", action="store_true", help="compare with the shipped factors, and write nothing")
    options = parser.parse_args(arguments)
    try:
        return build(options.ratings or download(options.download), None if options.check else options.out)
    except (DownloadError, ImportError, OSError, ValueError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2


def build(ratings: Path, out: Path | None) -> int:
    """Write the factors to `out`, or compare them with the shipped ones; returns 1 if they differ."""
    factors = build_factors(ratings)
    for name, variant in factors.items():
        print(f"{name}: {len(eligible_users(variant))} of {len(variant.users)} users are eligible")
    if out is not None:
        write_whole(out, encode_factors(factors))
        print(f"written to {out}")
        return 0
    worst = 0.0
    for name, variant in factors.items():
        difference = largest_difference(variant, load_factors(name))
        print(f"{name}: largest difference from the shipped factors {difference:.1e}")
        worst = max(worst, difference)
    print(f"{'equal' if worst <= TOLERANCE else 'NOT equal'} within {TOLERANCE:.0e}")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
