"""The command `fedbandit data`."""

import argparse

HELP = "Check the MovieLens factors that ship with the package, or fetch the ratings."
EXAMPLES = ("fedbandit data check", "fedbandit data fetch ml-100k", "fedbandit data check ml-100k/u.data")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit data`."""
    parser.add_argument(
        "action", choices=("check", "fetch"), help="check the factors (and ratings, if given), or fetch"
    )
    parser.add_argument("path", nargs="?", help="check: a u.data file; fetch: the folder to put it in")


def run(options: argparse.Namespace) -> int:
    """Show what the shipped factors hold and check a file of ratings, or fetch that file."""
    from fedbandit_envs.problems.movielens.download import download
    from fedbandit_envs.problems.movielens.factors import FACTORS, eligible_users, load_factors
    from fedbandit_envs.problems.movielens.ratings import read_ratings

    if options.action == "fetch":
        if options.path is None:
            raise ValueError("data fetch: expected the folder to put u.data in, got none")
        download(options.path)
        return 0
    for name in FACTORS:
        factors = load_factors(name)
        eligible = len(eligible_users(factors))
        print(f"{name}: {len(factors.users)} users, {len(factors.theta)} arms, {eligible} eligible users")
    if options.path is not None:
        ratings = read_ratings(options.path)
        print(f"{options.path}: the ratings of MovieLens-100K, {ratings.shape[0]} users, {ratings.shape[1]} films")
    return 0
