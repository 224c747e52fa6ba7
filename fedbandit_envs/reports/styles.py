"""Colours, lines and markers: tied to policies by name, so that a policy looks the same in every figure.

The policies of the package have entries of their own. Any other policy gets an entry by a rule that depends on its
label alone, unless another policy of the same figure has it already; then it gets the next free one.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

# Okabe and Ito's palette without its yellow, which is too light for lines on white, and three colours more. Grey prints
# are told apart by line style and marker.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#7F7F7F", "#9467BD", "#8C564B"),
)
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
ENTRIES = len(COLOURS) * len(LINES)  # no two of these share a colour and a marker, or a colour and a line

# The order makes policies that are often compared differ in colour, line and marker at once.
_OWN = (
    "Fed-PE",
    "Fed-PECD",
    "Fed-CI",
    "Enhanced-Fed-PE",
    "Collaborative",
    "Local-UCB",
    "Oracle",
    "Uniform",
    "DisLinUCB",
    "KK-UCB",
    "Shared-Theta-Fed-PE",
    "Fed-CI-Elimination",
    "Exact-Thompson",
    "Federated-Thompson",
    "Local-Thompson",
)


def style(number: int) -> dict[str, Any]:
    """Colour, line and marker of an entry, as keyword arguments of matplotlib's `plot`.

    >>> style(0)
    {'color': '#0072B2', 'linestyle': '-', 'marker': 'o'}
    """
    turn, place = divmod(number, len(COLOURS))
    return {
        "color": COLOURS[place],
        "linestyle": LINES[(place + turn) % len(LINES)],
        "marker": MARKERS[(place + 3 * turn) % len(MARKERS)],
    }


def styles(labels: Sequence[str], names: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """The style of each series of a figure, by label; no two are equal up to 50 series.

    Args:
        labels: what the series are called in the figure.
        names: the policies that they show. By default the labels are names of policies.

    >>> styles(["Mine", "Fed-PE"])["Fed-PE"] == styles(["exact"], ["Fed-PE"])["exact"]
    True
    """
    names = labels if names is None else names
    found: dict[str, int] = {}
    # A label that is a policy's plain name comes first, so that variants of the policy don't take its entry.
    order = sorted(zip(labels, names, strict=True), key=lambda pair: (pair[1] not in _OWN, pair[0] != pair[1]))
    for label, name in order:
        wanted = _OWN.index(name) if name in _OWN else _by_rule(label)
        if name in _OWN and wanted in found.values():
            wanted = _by_rule(label)
        found[label] = _free(wanted, list(found.values()))
    return {label: style(found[label]) for label in labels}


def _by_rule(label: str) -> int:
    """An entry after those of the package's own policies, which depends on the label alone."""
    first = int.from_bytes(hashlib.sha256(label.encode()).digest()[:4], "big")
    return len(_OWN) + first % (ENTRIES - len(_OWN))


def _free(wanted: int, taken: Sequence[int]) -> int:
    """The wanted entry, or the next one that is used least: a figure of more series than entries repeats them."""
    places = [(wanted + step) % ENTRIES for step in range(ENTRIES)]
    return min(places, key=taken.count)
