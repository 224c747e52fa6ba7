"""The reference of the command line, from its parser."""

import argparse
import textwrap

from markdown_text import words

from fedbandit_envs.cli.main import COMMANDS, EXIT_CODES, parser


def pages() -> dict[str, str]:
    """The page of the command line."""
    top = parser()
    (choice,) = (action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    parts = [command(name, one) for name, one in choice.choices.items()]
    listed = "".join(f"| [`{name}`](#fedbandit-{name}) | {words(one.HELP)} |\n" for name, one in COMMANDS.items())
    return {
        "reference/command-line": f"""# Command line

`fedbandit COMMAND --help` shows the same in the shell. {words(EXIT_CODES[0].upper() + EXIT_CODES[1:])}.

| command | what it does |
|---|---|
{listed}

{"".join(parts)}"""
    }


def command(name: str, one: argparse.ArgumentParser, level: int = 2) -> str:
    """The section of one command: what it does, its arguments, and examples."""
    text = f"{'#' * level} fedbandit {name}\n\n{words(one.description or '')}\n\n"
    usage = textwrap.fill(
        " ".join(one.format_usage().removeprefix("usage: ").split()),
        width=88,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    text += f"```text\n{usage}\n```\n\n"
    for group in one._action_groups:
        shown = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        for action in shown:
            if isinstance(action, argparse._SubParsersAction):
                text += "".join(command(f"{name} {key}", sub, level + 1) for key, sub in action.choices.items())
            else:
                text += entry(action, one)
    if one.epilog:
        lines = [line.strip() for line in one.epilog.splitlines()[1:] if line.strip()]
        text += "```bash\n" + "\n".join(lines) + "\n```\n\n"
    return text


def entry(action: argparse.Action, one: argparse.ArgumentParser) -> str:
    """One argument as an entry of a list of definitions."""
    formatter = one._get_formatter()
    if action.option_strings:
        value = "" if action.nargs == 0 else " " + formatter._format_args(action, str(action.dest).upper())
        names = ", ".join(f"`{option}{value}`" for option in action.option_strings)
    else:
        names = f"`{formatter._format_args(action, str(action.dest))}`"
    told = formatter._expand_help(action) if action.help else ""
    return f"{names}\n: {words(' '.join(told.split())) or '(no help)'}\n\n"
