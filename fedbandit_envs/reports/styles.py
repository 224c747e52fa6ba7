"""Colours, lines and markers: tied to policies by name, so that a policy looks the same in every figure.

The policies of the package have entries of their own. Any other policy gets an entry by a rule that depends on its
label alone. Where another policy of the same figure has the same colour already, it gets the next entry whose colour is
free; only a figure of more policies than colours repeats a colour, with another line and another marker.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

# Okabe and Ito's palette without its yellow, which is too light for lines on white, and three colours more. In a print
# without colours, curves differ by line style and marker.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#7F7F7F", "#9467BD", "#8C564B"),
)
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
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
    "UCB1",
    "Pooled-UCB",
    "Fed1-UCB",
    "Fed2-UCB",
    "PF-UCB",
    "Multi-Round",
    "coop-UCB2",
    "DDUCB",
    "Gossip-UCB",
    "KK-UCB-Observed",
    "One-Round",
    "Limited-Interaction",
    "OrchExplore",
    "Lin-Hidden",
    "Lin-Delayed",
    "FedLinUCB",
    "Async-LinUCB",
    "Weighted-DisLinUCB",
    "Residual-LinUCB",
    "DELB",
    "Feature-Selection",
    "coop-UCL",
    "Private-Gossip-UCB",
    "Dec-UCB",
    "GosInE",
    "DCB",
    "Private-FedLinUCB",
    "FedUCB",
    "Theta-Told",
    "Shared-Oracle",
    "Shared-Uniform",
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
    """The style of each series of a figure, by label; no two share a colour up to 10 series, or are equal up to 60.

    Args:
        labels: what the series are called in the figure.
        names: the policies that they show. By default the labels are names of policies.

    >>> styles(["Mine", "Fed-PE"])["Fed-PE"] == styles(["exact"], ["Fed-PE"])["exact"]
    True
    """
    names = labels if names is None else names
    places: dict[str, int] = {}
    order = sorted(zip(labels, names, strict=True), key=_precedence)
    for label, name in order:
        wanted = _OWN.index(name) if name in _OWN else _by_rule(label)
        if name in _OWN and wanted in places.values():
            wanted = _by_rule(label)
        places[label] = _free(wanted, list(places.values()))
    return {label: style(places[label]) for label in labels}


def _by_rule(label: str) -> int:
    """An entry after those of the package's own policies, which depends on the label alone."""
    first = int.from_bytes(hashlib.sha256(label.encode()).digest()[:4], "big")
    return len(_OWN) + first % (ENTRIES - len(_OWN))


def _precedence(pair: tuple[str, str]) -> tuple[bool, bool, int]:
    """A key by which label and name of a series are sorted: who comes first keeps the wanted entry.

    A label that is a policy's plain name comes before variants of the policy, so that they don't take its entry.
    """
    label, name = pair
    return name not in _OWN, label != name, _OWN.index(name) if name in _OWN else 0


def _free(wanted: int, taken: Sequence[int]) -> int:
    """The wanted entry, or the next one whose colour is used least; more series than entries repeat them."""
    colours = [entry % len(COLOURS) for entry in taken]
    places = [(wanted + step) % ENTRIES for step in range(ENTRIES)]
    return min(places, key=lambda place: (colours.count(place % len(COLOURS)), taken.count(place)))
