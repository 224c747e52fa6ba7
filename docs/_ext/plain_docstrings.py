"""Docstrings as they are written here, with `names` in single backticks and the paper's symbols, for autodoc.

reStructuredText reads more into such a text than is meant: `*` and `|` begin emphasis, a word that ends in `_` is a
link.
"""

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.typing import stringify_annotation

import fedbandit_envs.arrays

ALIASES = ("FloatArray", "IntArray", "BoolArray")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the rewriting before napoleon, whose priority is 500."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", plain, priority=400)
    app.connect("autodoc-process-signature", with_alias_names)
    return {"parallel_read_safe": True}


def plain(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Rewrite the lines in place; examples stay as they are."""
    example = False
    for number, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            lines[number] = escaped(line)
    if what in ("attribute", "property", "data") and lines:
        lines[0] = lines[0].replace(": ", " \u2013 ")  # napoleon would take what stands before a colon for a type


def escaped(line: str) -> str:
    """One line of words: code between backticks stays code, all other marks become plain signs.

    >>> escaped("`f(*x)` gives x_ and a * b | c")
    '``f(*x)`` gives x\\\\_ and a \\\\* b \\\\| c'
    """
    parts = re.split(r"(``[^`]+``|`[^`]+`)", line)
    for place, part in enumerate(parts):
        if place % 2:
            parts[place] = f"``{part.strip('`')}``"
        else:
            bare = re.sub(r"(?<!^)([*|])|(\w_)(?=\W|$)", lambda found: _escape(found[0]), part)
            parts[place] = bare
    return "".join(parts)


def _escape(found: str) -> str:
    return f"{found[:-1]}\\{found[-1]}"


def with_alias_names(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Show the names of our array types, not what they stand for."""
    return named(signature), named(returned)


def named(text: str | None) -> str | None:
    """The text of annotations with the names of our array types in it."""
    for alias in ALIASES if text else ():
        for mode in ("fully-qualified-except-typing", "smart", "fully-qualified"):
            text = str(text).replace(stringify_annotation(getattr(fedbandit_envs.arrays, alias), mode), alias)
    return text
