"""Histories that must be the same bit for bit."""

from typing import Any

import numpy as np

from fedbandit_envs import History
from fedbandit_envs.rounds.history import Exchange


def assert_same_history(one: History, two: History) -> None:
    """Checkpoints and communication are equal, with their shapes and types."""
    for name in ("steps", "pulls", "active"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name, strict=True)
    np.testing.assert_array_equal(one.ledger.per_agent, two.ledger.per_agent)
    np.testing.assert_array_equal(one.ledger.per_round, two.ledger.per_round)


def assert_same_run(one: History, two: History) -> None:
    """All that a history holds is equal, bit for bit; turns are compared where both runs were recorded."""
    assert_same_history(one, two)
    for name in ("admitted", "recommended"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name, strict=True)
    for tables, others in ((one.gaps, two.gaps), (one.summed, two.summed)):
        assert list(tables) == list(others)
        for kind, table in tables.items():
            np.testing.assert_array_equal(table, others[kind], err_msg=kind, strict=True)
    assert one.constants == two.constants
    assert one.faults == two.faults
    if one.exchanges is not None and two.exchanges is not None:
        for turn, other in zip(one.exchanges, two.exchanges, strict=True):
            assert_same_turn(turn, other)


def assert_same_turn(one: Exchange, two: Exchange, tolerance: float | None = None) -> None:
    """The plan, the feedback and the messages of two turns are equal, or equal but for a tolerance."""
    first, second = flat(one.tree()), flat(two.tree())
    assert first.keys() == second.keys()
    for name, value in first.items():
        if tolerance is None:
            np.testing.assert_array_equal(value, second[name], err_msg=name, strict=isinstance(value, np.ndarray))
        else:
            np.testing.assert_allclose(value, second[name], rtol=tolerance, atol=tolerance, err_msg=name)


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of a tree by their path."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return leaves
