"""The command `fedbandit league`."""

import argparse
from dataclasses import replace

from fedbandit_envs.cli.options import add_running, executor_of

HELP = "Every policy on every problem that it can play: regret, communication and time in one table and one figure."
EXAMPLES = (
    "fedbandit league --out results/league",
    "fedbandit league --policy Fed-PECD --policy DisLinUCB --problem synthetic --trials 10",
)
_SHOWN = ("problem", "policy", "regret", "regret_low", "regret_high", "scalars", "rounds", "seconds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit league`."""
    parser.add_argument(
        "--policy", action="append", metavar="NAME", help="only this policy; can be repeated (default: all)"
    )
    parser.add_argument(
        "--problem", action="append", metavar="NAME", help="only this problem; can be repeated (default: all)"
    )
    parser.add_argument("--agents", type=int, default=20, metavar="M", help="agents (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=2**12, metavar="T", help="steps of a run (default: %(default)s)")
    parser.add_argument("--trials", type=int, default=3, metavar="N", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="default: %(default)s")
    add_running(parser, out="results/league")


def run(options: argparse.Namespace) -> int:
    """Play the league, show its table, and write table, figure and report."""
    from fedbandit_envs.cli.screen import show
    from fedbandit_envs.paper.league import CONTESTS, LEAGUE_SCALE, league
    from fedbandit_envs.protocol.registry import policy_names
    from fedbandit_envs.reports.page import report
    from fedbandit_envs.validation import one_of, whole_number

    policies = [one_of("--policy", name, policy_names()) for name in options.policy or ()]
    chosen = [one_of("--problem", name, tuple(CONTESTS)) for name in options.problem or CONTESTS]
    scale = replace(
        LEAGUE_SCALE,
        agents=whole_number("--agents", options.agents, at_least=1),
        steps=whole_number("--steps", options.steps, at_least=1),
        contests={name: CONTESTS[name] for name in chosen},
        policies=policies,
    )
    made = league(
        options.out, options.trials, executor_of(options), seed=options.seed, force=options.force, scale=scale
    )
    played = [place for place, reason in enumerate(made.table["why not"]) if not reason]
    written = report(options.out) if made.results else None  # before the first line: the reader may leave
    show({name: [made.table[name][place] for place in played] for name in _SHOWN})
    left_out = len(made.table["why not"]) - len(played)
    if left_out:
        print(f"\n{left_out} times a policy can't play a problem; the column 'why not' of league.csv says why")
    print(f"\nwritten to {options.out}: league.md, league.csv, league.json, league.pdf, league.png")
    if written:
        print(f"report: {written}")
    return 0
