"""The comments beside the fields of a class, which explain its parameters."""

import ast
import inspect
import io
import re
import textwrap
import tokenize


def field_comments(cls: type) -> dict[str, str]:
    """The explanation of each field of a class and of its base classes, by the field's name.

    An explanation is the comment at the end of the field's last line, or else the lines above it that begin with `#:`.
    A class whose source can't be read, as one typed into a prompt, adds nothing.
    """
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        try:
            source = textwrap.dedent(inspect.getsource(one))
            tree = ast.parse(source)
        except (OSError, TypeError, SyntaxError):
            continue
        found |= _comments_of(tree.body[0], source)
    return found


def _comments_of(definition: ast.stmt, source: str) -> dict[str, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    found = {}
    for field in definition.body if isinstance(definition, ast.ClassDef) else ():
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        line = field.end_lineno or field.lineno
        text = _text(comments[line].string) if line in comments else ""
        found[field.target.id] = text or _text_above(field.lineno, comments)
    return {name: text for name, text in found.items() if text}


def _text_above(line: int, comments: dict[int, tokenize.TokenInfo]) -> str:
    """The words of the lines directly above `line` that hold nothing but a comment with `#:`."""
    words: list[str] = []
    while (token := comments.get(line := line - 1)) and token.line.strip().startswith("#:"):
        words.insert(0, _text(token.string))
    return " ".join(words)


def _text(comment: str) -> str:
    """The words of a comment, without marks for linters and type checkers."""
    return re.split(r"#\s*(?:noqa|type:)", comment)[0].lstrip("#:").strip()
