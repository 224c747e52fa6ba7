"""Docstrings and types as they are written here, with `names` in single backticks and the paper's symbols.

reStructuredText reads more into such a text than is meant: `*` and `|` begin emphasis, a word that ends in `_` is a
link. Python, asked for a type, shows what its alias stands for.
"""

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.domains.python import PyAttribute, PyProperty

ALIASES = {"float64": "FloatArray", "int64": "IntArray", "bool": "BoolArray"}  #: the array types by their entries
ARRAY = re.compile(
    r"~?(?:numpy\.)?ndarray\[tuple\[~?(?:typing\.)?Any, \.\.\.\], ~?(?:numpy\.)?dtype\[~?(?:\w+\.)*(\w+)\]\]"
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the rewriting before napoleon, whose priority is 500."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", plain, priority=400)
    app.connect("autodoc-process-signature", with_alias_names)
    app.add_directive_to_domain("py", "attribute", NamedAttribute, override=True)
    app.add_directive_to_domain("py", "property", NamedProperty, override=True)
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
    """The text of annotations with the names of our array types in it, and "..." for a default that is made anew.

    >>> named("(theta: ~numpy.ndarray[tuple[~typing.Any, ...], ~numpy.dtype[~numpy.float64]] = <factory>)")
    '(theta: FloatArray = ...)'
    >>> named("ndarray[tuple[Any, ...], dtype[Any]] | None")
    'NDArray[Any] | None'
    """
    if text is None:
        return None
    aliased = ARRAY.sub(lambda found: ALIASES.get(found[1], f"NDArray[{found[1]}]"), text)
    return aliased.replace("<factory>", "...")


def with_named_type(options: dict[str, Any]) -> None:
    """Rewrite the type of an attribute or a property, for which autodoc has no event."""
    if "type" in options:
        options["type"] = named(options["type"])


class NamedAttribute(PyAttribute):
    """An attribute whose type is shown by the names of our array types."""

    def handle_signature(self, sig: str, signode: Any) -> tuple[str, str]:
        """Give the type its names, and go on as usual."""
        with_named_type(self.options)
        return super().handle_signature(sig, signode)


class NamedProperty(PyProperty):
    """A property whose type is shown by the names of our array types."""

    def handle_signature(self, sig: str, signode: Any) -> tuple[str, str]:
        """Give the type its names, and go on as usual."""
        with_named_type(self.options)
        return super().handle_signature(sig, signode)
