"""The command `fedbandit data`."""

import argparse

HELP = "Make a problem from a table of your own, check the MovieLens factors, or fetch the MovieLens ratings."
EXAMPLES = (
    "fedbandit data ratings ratings.csv --user user --item film --rating stars --arms 30 --dim 3 --out my.npz",
    "fedbandit data classification rows.csv --label kind --hide income,age --out my.npz",
    "fedbandit data check",
    "fedbandit data fetch ml-100k",
    "fedbandit data check ml-100k/u.data",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit data`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, help: str) -> argparse.ArgumentParser:
        one = actions.add_parser(name, help=help, description=help)
        one.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        return one

    ratings = action("ratings", "Make a problem from a csv file of ratings: users are contexts, clusters of items arms")
    for name, help in (("user", "who rated"), ("item", "what was rated"), ("rating", "the ratings, numbers from 0 on")):
        ratings.add_argument(f"--{name}", required=True, metavar="COLUMN", help=f"the column: {help}")
    ratings.add_argument("--arms", type=int, default=30, metavar="K", help="default: 30")
    ratings.add_argument("--dim", type=int, default=3, metavar="D", help="the length of the vectors (default: 3)")
    ratings.add_argument("--hidden", choices=("gaussian", "household"), default="gaussian", help="default: gaussian")
    ratings.add_argument(
        "--context-std", type=float, metavar="S", help="standard deviation of gaussian contexts (default: 0.05)"
    )
    _add_table(ratings)

    rows = action("classification", "Make a problem from a labelled csv file: rows are agents, labels are arms")
    rows.add_argument("--label", required=True, metavar="COLUMN", help="the column of labels")
    rows.add_argument("--hide", default="", metavar="A,B,...", help="the hidden columns (default: none)")
    rows.add_argument("--features", metavar="A,B,...", help="the columns of a context (default: all but the label)")
    _add_table(rows)

    check = action("check", "Check the MovieLens factors that ship with the package, and a file of ratings if given.")
    check.add_argument("path", nargs="?", metavar="FILE", help="a u.data file")
    fetch = action("fetch", "Fetch the MovieLens ratings.")
    fetch.add_argument("path", metavar="FOLDER", help="the folder to put u.data in")


def _add_table(parser: argparse.ArgumentParser) -> None:
    """Add what both ways to make a problem share."""
    parser.add_argument("table", metavar="FILE", help="a csv file with a header")
    parser.add_argument("--out", required=True, metavar="FILE", help="the problem, usually with the ending .npz")
    parser.add_argument("--agents", type=int, metavar="M", help="the agents drawn from the table (default: all)")
    parser.add_argument(
        "--noise-std", type=float, metavar="S", help="noise of the rewards (default: that of held-out rows)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="default: 0")
    parser.add_argument("--delimiter", metavar="C", help="between fields (default: found out from the header)")


def run(options: argparse.Namespace) -> int:
    """Do what the action says."""
    if options.action in ("ratings", "classification"):
        _make_problem(options)
    elif options.action == "fetch":
        from fedbandit_envs.problems.movielens.download import download

        download(options.path)
    else:
        _check_movielens(options.path)
    return 0


def _make_problem(options: argparse.Namespace) -> None:
    """Learn a problem from a table, say how well its model fits, and write it to a file."""
    from fedbandit_envs.problems.classification import from_classification
    from fedbandit_envs.problems.ratings import from_ratings
    from fedbandit_envs.problems.user_tables import FittedProblem

    shared = {
        "num_agents": options.agents,
        "noise_std": options.noise_std,
        "seed": options.seed,
        "delimiter": "\t" if options.delimiter in ("\\t", "tab") else options.delimiter,
    }
    problem: FittedProblem[object]
    if options.action == "ratings":
        spread = {} if options.context_std is None else {"context_std": options.context_std}
        problem = from_ratings(
            options.table,
            user=options.user,
            item=options.item,
            rating=options.rating,
            num_arms=options.arms,
            dim=options.dim,
            hidden=options.hidden,
            **spread,
            **shared,
        )
    else:
        problem = from_classification(
            options.table,
            label=options.label,
            hide=_names(options.hide),
            features=None if options.features is None else _names(options.features),
            **shared,
        )
    problem.save(options.out)
    policy = f"'Fed-PECD sigma={problem.noise_std:.3g}'" if problem.noise_std else "Fed-PECD"
    run = f"fedbandit run --env File --set path={options.out} --policy {policy}"
    print(f"{problem}\nwritten to {options.out}; next: {run}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _check_movielens(path: str | None) -> None:
    """Show what the shipped factors hold, and check a file of ratings."""
    from fedbandit_envs.problems.movielens.factors import FACTORS, eligible_users, load_factors
    from fedbandit_envs.problems.movielens.ratings_file import read_ratings

    for name in FACTORS:
        factors = load_factors(name)
        eligible = len(eligible_users(factors))
        print(f"{name}: {len(factors.users)} users, {len(factors.theta)} arms, {eligible} eligible users")
    if path is not None:
        ratings = read_ratings(path)
        print(f"{path}: the ratings of MovieLens-100K, {ratings.shape[0]} users, {ratings.shape[1]} films")
