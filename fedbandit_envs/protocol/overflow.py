"""Numbers in reports that no honest agent sends, because sums over them would not be finite."""

import numpy as np

from fedbandit_envs.protocol.messages import Message

#: No honest report holds a larger number: sums and squares of smaller numbers are finite.
LARGEST_NUMBER = 1e100


def overflowing(up: Message) -> dict[int, str]:
    """The agents with numbers that are not finite, or beyond `LARGEST_NUMBER`, and the reason; see `refuses`.

    >>> up = Message("means", {"means": np.array([[0.5], [np.nan], [1e300]])}, agents=np.array([3, 5, 8]))
    >>> overflowing(up)
    {5: 'sent NaN or infinity in means', 8: 'sent a number beyond 1e+100 in means'}
    """
    refused: dict[int, str] = {}
    for name, array in up.arrays.items():
        if array.dtype.kind != "f" or not array.size:
            continue
        if max(array.max(), -array.min()) <= LARGEST_NUMBER:  # also false for NaN
            continue
        assert up.agents is not None
        for agent, row in zip(up.agents.tolist(), array, strict=True):
            if not np.isfinite(row).all():
                refused.setdefault(agent, f"sent NaN or infinity in {name}")
            elif np.abs(row).max() > LARGEST_NUMBER:
                refused.setdefault(agent, f"sent a number beyond {LARGEST_NUMBER:g} in {name}")
    return refused
