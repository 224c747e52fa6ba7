"""The command `fedbandit`: its grammar. What each command does is in `commands`, imported when it is needed."""

import argparse
import os
import sys
from collections.abc import Sequence

REGRET_KINDS = ("regret", "distribution_regret", "paper_regret")
_KIND_HELP = (
    "against the best arm for the true context (regret, the default), the best under mu_i by its means under mu_i "
    "(distribution_regret), or the best under mu_i by the true means (paper_regret: can be negative)"
)

DESCRIPTION = "Federated bandits with hidden contexts: run, compare and check policies."
EXAMPLES = """examples:
  fedbandit list
  fedbandit run --env Synthetic --policy Fed-PECD --policy Fed-PE --set max_cycles=2**17 --out results/mine
  fedbandit run experiment.toml --trials 100 --out results/mine
  fedbandit compare results/mine --at 1000,100000
  fedbandit plot results/mine
  fedbandit sweep experiment.toml --over num_agents=50,100,150 --out results/agents
  fedbandit audit --env Synthetic --policy Fed-PE
  fedbandit sweep --env Synthetic --policy Fed-PECD --over dropout=0,0.1,0.3 --out results/dropout
  fedbandit reproduce --out results/reproduce
  fedbandit federate --policy Fed-PECD --agents 8 --clients 4 --set max_cycles=30

exit codes: 0 done; 1 something failed (a trial, a claim, a file); 2 wrong usage or settings; 130 interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code."""
    options = parser().parse_args(arguments)
    from fedbandit_envs.cli import commands

    try:
        code = commands.COMMANDS[options.command](options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as interruption:
        print(f"fedbandit: {interruption or 'interrupted'}", file=sys.stderr)
        return 130
    except Exception as error:
        if getattr(options, "debug", False):
            raise
        return commands.complain(error)
    return code


def parser() -> argparse.ArgumentParser:
    """The grammar."""
    top = _parser(argparse.ArgumentParser, prog="fedbandit", description=DESCRIPTION, epilog=EXAMPLES)
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    top.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, summary: str, example: str) -> argparse.ArgumentParser:
        brief = summary.replace("%", "%%")  # a help text is a format, a description is not
        one = _parser(commands.add_parser, name, help=brief, description=summary, epilog=f"example:\n  {example}\n")
        one.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
        return one

    listing = add("list", "List environments and policies with their parameters.", "fedbandit list policies")
    listing.add_argument("what", nargs="?", choices=("environments", "policies"), help="only these")

    run = add(
        "run",
        "Run an experiment, or what is missing of it.",
        "fedbandit run experiment.toml --trials 20 --out results/mine",
    )
    _experiment(run)
    _running(run)
    run.add_argument("--trial", type=int, metavar="K", help="only trial K, in this process")

    sweep = add(
        "sweep",
        "Run an experiment at several values of one argument, and plot against it.",
        "fedbandit sweep --env Synthetic --policy Fed-PECD --over num_agents=50,100,150 --out results/agents",
    )
    _experiment(sweep)
    _running(sweep)
    sweep.add_argument("--over", required=True, metavar="NAME=V1,V2,...", help="the argument and its values")

    plot = add(
        "plot", "Draw the figures of a run or a sweep.", "fedbandit plot results/mine --figure regret --format svg"
    )
    plot.add_argument("folder", help="results of run or sweep")
    plot.add_argument("--figure", metavar="NAME", help="regret, communication, active or agents; default: all")
    plot.add_argument("--kind", choices=REGRET_KINDS, default="regret", help=_KIND_HELP)
    plot.add_argument("--format", default="pdf,png", metavar="F1,F2", help="pdf, svg, png (default: %(default)s)")
    plot.add_argument("--out", metavar="FOLDER", help="where to write; default: the same folder")

    compare = add(
        "compare",
        "Compare policies: means with 95 % intervals, paired differences with Holm's correction.",
        "fedbandit compare results/mine --at 1000,100000 --format csv",
    )
    compare.add_argument("folder", help="results of run or sweep")
    compare.add_argument("--at", metavar="T1,T2", help="compare at these steps too; default: at the end")
    compare.add_argument("--kind", choices=REGRET_KINDS, default="regret", help=_KIND_HELP)
    compare.add_argument("--format", choices=("text", "csv", "json", "markdown"), default="text")

    audit = add(
        "audit",
        "Check a run against what theory claims about it.",
        "fedbandit audit --env Synthetic --policy Fed-PE --set error=classical",
    )
    _experiment(audit)
    audit.add_argument("--trial", type=int, default=0, metavar="K", help="which trial (default: %(default)s)")

    reproduce = add(
        "reproduce",
        "The paper's four panels, their numbers, and a verdict on each claim; exit code 1 if a claim fails.",
        "fedbandit reproduce --panel a --trials 20 --out results/panel-a",
    )
    reproduce.add_argument("--panel", action="append", choices=tuple("abcd"), help="only this panel; can be repeated")
    reproduce.add_argument("--trials", type=int, default=100, metavar="N", help="default: %(default)s")
    reproduce.add_argument("--seed", type=int, default=0, metavar="S", help="default: %(default)s")
    reproduce.add_argument(
        "--compiled",
        action="store_true",
        help="the panels' policies with compiled=true, which needs the extra compiled",
    )
    reproduce.add_argument("--grid", action="store_true", help="also the verdicts over what the paper leaves open")
    reproduce.add_argument("--beyond", action="store_true", help="also all policies, with Fed-CI, on all problems")
    _running(reproduce, out="results/reproduce")

    federate = add(
        "federate",
        "Run agents in processes of their own, over Flower, on this machine; needs the extra `flower`.",
        "fedbandit federate --policy Fed-PECD --agents 8 --clients 4 --set max_cycles=30",
    )
    _federation(federate)

    data = add(
        "data", "Check the MovieLens factors that ship with the package, or fetch the ratings.", "fedbandit data check"
    )
    data.add_argument("action", choices=("check", "fetch"), help="check the factors (and ratings, if given), or fetch")
    data.add_argument("path", nargs="?", help="check: a u.data file; fetch: the folder to put it in")
    return top


class _Version(argparse.Action):
    """Prints the version; looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"fedbandit {version('fedbandit-envs')}")
        parser.exit()


def _parser(make: "object", *names: str, **keywords: "object") -> argparse.ArgumentParser:
    return make(*names, formatter_class=argparse.RawDescriptionHelpFormatter, **keywords)  # type: ignore[operator]


def _experiment(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("what to run")
    group.add_argument("file", nargs="?", metavar="FILE", help="an experiment as .toml or .json; options change it")
    group.add_argument("--env", metavar="ID", help="the environment: Synthetic, MovieLens, ... or a whole id")
    group.add_argument(
        "--policy",
        action="append",
        metavar="'NAME KEY=VALUE ...'",
        help="a policy with its parameters (and label=...); can be repeated",
    )
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an argument of the environment, or dropout (the probability that a report is lost); can be repeated",
    )
    group.add_argument("--trials", type=int, metavar="N", help="default: 10")
    group.add_argument("--seed", type=int, metavar="S", help="default: 0")


def _federation(command: argparse.ArgumentParser) -> None:
    command.add_argument("--policy", required=True, metavar="'NAME KEY=VALUE ...'", help="with its parameters")
    command.add_argument("--env", default="Synthetic", metavar="ID", help="the environment (default: %(default)s)")
    command.add_argument("--agents", type=int, metavar="M", help="default: the environment's")
    command.add_argument("--clients", type=int, metavar="N", help="default: one for each agent")
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an environment's argument")
    command.add_argument("--seed", type=int, default=0, metavar="S", help="default: %(default)s")
    command.add_argument("--quorum", type=float, default=0.5, metavar="SHARE", help="of agents (default: %(default)s)")
    command.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="a turn (default: %(default)s)")
    command.add_argument("--out", metavar="FOLDER", help="states and logs; a run that stopped goes on from there")


def _running(command: argparse.ArgumentParser, out: str | None = None) -> None:
    group = command.add_argument_group("how to run it")
    default = f"default: {out}" if out else "default: keep nothing"
    group.add_argument("--out", metavar="FOLDER", default=out, help=f"the results; trials there are kept ({default})")
    group.add_argument("--workers", type=int, metavar="N", help="processes (default: one for each processor)")
    group.add_argument(
        "--executor", metavar="NAME", help="serial, processes[:N], ray[:ADDRESS] or dask[:ADDRESS] (default: processes)"
    )
    group.add_argument(
        "--force", action="store_true", help="remove torn or foreign files in the folder, not refuse them"
    )
