"""Texts from outside are cut, and characters that a terminal or a file would take for commands are written out."""

from fedbandit_envs.validation import visible

MOST_CHARACTERS = 300  #: how much of a text from the other side is kept


def shown(text: str, most: int = MOST_CHARACTERS) -> str:
    """A text from the other side in a form that can be stored and printed anywhere.

    Escapes, line ends and lone surrogates are written out, and of a long text only the beginning is kept.

    Args:
        text: the text, of any content.
        most: how many characters are kept.

    >>> shown("out of memory")
    'out of memory'
    >>> print(shown("\\x1b[31mred\\udc80"))
    \\x1b[31mred\\udc80
    >>> shown("x" * 1000).endswith("... (1000 characters)")
    True
    """
    cut = text[:most]
    seen = visible(cut)
    return seen if len(seen) <= most and len(text) <= most else f"{seen[:most]}... ({len(text)} characters)"
