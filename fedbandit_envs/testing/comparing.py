"""Where two runs part, in words."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.rounds.history import Exchange


def first_difference(run: list[Exchange], other: list[Exchange]) -> str | None:
    """The first place where two runs differ, in words; None if they are the same bit for bit."""
    for turn, (one, two) in enumerate(zip(run, other, strict=False)):
        first, second = _flat(one.tree()), _flat(two.tree())
        for name in [*first, *(name for name in second if name not in first)]:
            difference = _difference(first.get(name), second.get(name))
            if difference:
                return f"{name} {difference} in turn {turn}, after {one.step} steps"
    return f"{len(other)} turns in place of {len(run)}" if len(run) != len(other) else None


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of a tree by their path, such as "down.arrays.theta"."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def _difference(one: Any, two: Any) -> str | None:
    """How two leaves differ, in words; None if they are the same bit for bit."""
    if not isinstance(one, np.ndarray) or not isinstance(two, np.ndarray):
        same = type(one) is type(two) and one == two
        return None if same else f"{two!r} in place of {one!r}"
    if one.shape != two.shape or one.dtype != two.dtype:
        return f"{two.dtype} of shape {two.shape} in place of {one.dtype} of shape {one.shape}"
    if one.tobytes() == two.tobytes():
        return None
    changed: IntArray = np.argwhere((one != two) & ~(np.isnan(one) & np.isnan(two)))
    if not len(changed):
        return "with other signs of zero"
    where = tuple(int(axis) for axis in changed[0])
    return f"{two[where]!s} in place of {one[where]!s} at {where}"
