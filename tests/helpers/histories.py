"""Histories that must be the same bit for bit."""

import numpy as np

from fedbandit_envs import History


def assert_same_history(one: History, two: History) -> None:
    """Checkpoints and communication are equal, with their shapes and types."""
    for name in ("steps", "pulls", "active"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name, strict=True)
    np.testing.assert_array_equal(one.ledger.per_agent, two.ledger.per_agent)
    np.testing.assert_array_equal(one.ledger.per_round, two.ledger.per_round)
