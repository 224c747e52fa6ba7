"""Docstrings, tables and snippets as Markdown."""

import ast
import doctest
import re
from collections.abc import Iterable, Sequence

import fedbandit_agents
import fedbandit_baselines
import fedbandit_envs
from fedbandit_envs.cli.list_names import Explanation

MODULES = {"np": "import numpy as np", "fb": "import fedbandit_envs as fb", "Path": "from pathlib import Path"}


def words(text: str) -> str:
    """Plain words in which no sign has a meaning of its own but the backticks around code.

    >>> words("a * b < c, `x*y`")
    'a \\\\* b \\\\< c, `x*y`'
    """
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if place % 2 else re.sub(r"([*<|$#\[\]\\])", r"\\\1", part) for place, part in enumerate(parts))


def docstring(text: str) -> tuple[str, str]:
    """The words of a docstring as Markdown, and its example without prompts and answers' marks."""
    paragraphs = text.split("\n\n")
    told = [words(paragraph) for paragraph in paragraphs if not paragraph.lstrip().startswith(">>>")]
    examples = [paragraph for paragraph in paragraphs if paragraph.lstrip().startswith(">>>")]
    shown = "".join(f"```pycon\n{with_imports(example)}\n```\n\n" for example in examples[:1])
    shown += "".join(f"```pycon\n{example}\n```\n\n" for example in examples[1:])
    return "\n\n".join(told), shown


def with_imports(example: str) -> str:
    """An example of a docstring with the imports that its module has already, so that it runs when pasted.

    >>> print(with_imports(">>> Uniform()\\nUniform()"))
    >>> from fedbandit_baselines import Uniform
    >>> Uniform()
    Uniform()
    """
    tree = ast.parse("".join(one.source for one in doctest.DocTestParser().get_examples(example)))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    given = {alias.asname or alias.name for node in ast.walk(tree) for alias in getattr(node, "names", ())}
    lines = [line for name, line in MODULES.items() if name in used - given]
    public = {
        package.__name__: sorted((used - given) & set(package.__all__))
        for package in (fedbandit_envs, fedbandit_agents, fedbandit_baselines)
    }
    lines += [f"from {package} import {', '.join(names)}" for package, names in public.items() if names]
    return "\n".join([*(f">>> {line}" for line in lines), example])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, whose cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace(chr(10), ' ') for cell in line)} |\n" for line in lines)


def parameters(told: Explanation) -> str:
    """The table of parameters with their defaults, from the same source as `fedbandit list NAME`."""
    if not told.parameters:
        return "There are none.\n"
    rows = [[f"`{key}`", f"`{value!r}`", words(told.comments.get(key, ""))] for key, value in told.parameters.items()]
    return table(["name", "default", "what it is"], rows)


def heading(told: Explanation) -> str:
    """The first sentence of a description."""
    return told.description.splitlines()[0]
