"""The command `fedbandit`: its parser, made from the table of commands, and how errors are written."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedbandit_envs.cli import audit, compare, data, federate, league, list_names, plot, report, reproduce, run, sweep

if TYPE_CHECKING:
    from typing import Protocol

    class Command(Protocol):
        """What the file of a command defines."""

        @property
        def HELP(self) -> str:
            """One sentence that says what the command does."""

        @property
        def EXAMPLES(self) -> Sequence[str]:
            """Whole command lines, of which the help of `fedbandit` shows the first one."""

        def add_arguments(self, parser: argparse.ArgumentParser) -> None:
            """Add the command's own arguments to its parser."""

        def run(self, options: argparse.Namespace) -> int:
            """Do what the command is for; returns the exit code."""


DESCRIPTION = "Federated bandits with hidden contexts: run, compare and check policies."
EXIT_CODES = (
    "exit codes: 0 done; 1 something failed (a trial, a claim, a file); 2 wrong usage or settings; 130 interrupted"
)
_SHOWN_FAILURES = 5


COMMANDS: "dict[str, Command]" = {
    "list": list_names,
    "run": run,
    "sweep": sweep,
    "plot": plot,
    "compare": compare,
    "report": report,
    "audit": audit,
    "reproduce": reproduce,
    "league": league,
    "federate": federate,
    "data": data,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command of the command line.

    Args:
        arguments: The words after `fedbandit`; None takes those of this process.

    Returns:
        The exit code. Wrong grammar and `--help` end in SystemExit instead, as argparse does it.
    """
    words = sys.argv[1:] if arguments is None else arguments
    options = parser(words).parse_args(words)
    try:
        code = COMMANDS[options.command].run(options)
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
        return tell_error(error)
    return code


def tell_error(error: Exception) -> int:
    """Write an error to stderr, in one line unless trials failed; returns the exit code."""
    from fedbandit_envs.experiments.failures import FailedTrials
    from fedbandit_envs.validation import visible

    text = str(error)
    if isinstance(error, FailedTrials):
        lines = text.splitlines()
        text = "\n".join(map(visible, lines[: 2 * _SHOWN_FAILURES]))
        if len(lines) > 2 * _SHOWN_FAILURES:
            text += f"\nand {len(lines) // 2 - _SHOWN_FAILURES} more trials"
        print(text, file=sys.stderr)
        return 1
    if isinstance(error, MemoryError):
        text = f"not enough memory for these settings. {text}"
    expected = isinstance(error, (ValueError, RuntimeError, OSError, ImportError, MemoryError))
    name = "" if expected else f"{type(error).__name__}, a fault of this program (--debug shows where): "
    print(f"fedbandit: error: {name}{visible(' '.join(text.split()))}", file=sys.stderr)
    return 2 if isinstance(error, ValueError) else 1


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line, with a parser for each command.

    Args:
        words: the words that will be parsed. Only commands that are among them get their arguments, because these are
            made from tables of the library, which take time to import. None: all commands.
    """
    examples = [command.EXAMPLES[0] for command in COMMANDS.values()]
    top = _Parser(
        prog="fedbandit",
        description=DESCRIPTION,
        epilog=f"{_example_lines(examples)}\n{EXIT_CODES}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    top.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        one = commands.add_parser(
            name,
            help=command.HELP.replace("%", "%%"),  # argparse formats a help text, but not a description
            description=command.HELP,
            epilog=_example_lines(command.EXAMPLES),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        one.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )
        if words is None or name in words:
            command.add_arguments(one)
    return top


def _example_lines(examples: Sequence[str]) -> str:
    title = "example" if len(examples) == 1 else "examples"
    return f"{title}:\n" + "".join(f"  {example}\n" for example in examples)


# Arguments of environments that are often taken for options, and what else they are called.
_ARGUMENTS = ("max_cycles", "num_agents", "num_arms", "dim", "noise_std", "context_std", "error")
_OTHER_NAMES = {"horizon": "max_cycles", "T": "max_cycles", "K": "num_arms", "M": "num_agents"}


class _Parser(argparse.ArgumentParser):
    """A parser that names the options most like one that it does not know. The parsers of its commands do so too."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            known = re.findall(r"--[\w-]+", self.format_usage())
            hints = [_hint(word.partition("=")[0], known) for word in unknown if word.startswith("--")]
            self.error(f"expected the arguments of its --help, got {' '.join(unknown)}{next(filter(None, hints), '')}")
        return found, unknown


def _hint(option: str, known: Sequence[str]) -> str:
    """How arguments of an environment are given, for an option that is one of them; else the option most like it."""
    from fedbandit_envs.validation import nearest

    name = option.removeprefix("--")
    key = _OTHER_NAMES.get(name, name.replace("-", "_"))
    if "--set" in known and key in _ARGUMENTS:
        return f"; write --set {key}=..."
    return nearest(option, known)


class _Version(argparse.Action):
    """Prints the version, which is looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from fedbandit_envs.version import __version__

        print(f"fedbandit {__version__}")
        parser.exit()
