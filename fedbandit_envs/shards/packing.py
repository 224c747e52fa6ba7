"""How requests and answers travel between the driver and its shards: as pickles, without what is not sent anyway.

Both ends are our own processes, as those of the executors of experiments are. Nothing here reads bytes from outside.
"""

import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.protocol.messages import Message

Parts = list[bytes]  # a pickle, and the arrays that it leaves out


class SlimArray(NamedTuple):
    """An array of a message without the entries that its mask leaves out."""

    entries: NDArray[Any]  #: what is sent
    shape: tuple[int, ...]  #: the shape of the array
    mask: NDArray[np.uint8] | None  #: the bits of the mask; None: everything is sent
    mask_shape: tuple[int, ...]  #: the shape of the mask


class SlimMessage(NamedTuple):
    """A message as it crosses: the numbers for which the ledger charges, masks as bits, and agents."""

    kind: str  #: what the message says
    arrays: dict[str, SlimArray]  #: what is sent, by name
    agents: IntArray | tuple[int, int] | None  #: the agents, in a row as their first and the one after their last


def slim(message: Message | None) -> SlimMessage | None:
    """The message as it crosses.

    >>> up = Message("means", {"means": np.array([[0.5, 9.0]])}, np.array([3]), {"means": np.array([[True, False]])})
    >>> slim(up).arrays["means"].entries
    array([0.5])
    >>> whole(slim(up))["means"], whole(slim(up)).agents
    (array([[0.5, 0. ]]), array([3]))
    """
    if message is None:
        return None
    arrays = {}
    for name, array in message.arrays.items():
        mask = message.present.get(name)
        if mask is None:
            arrays[name] = SlimArray(array, array.shape, None, ())
        else:
            arrays[name] = SlimArray(array[mask], array.shape, np.packbits(mask), mask.shape)
    agents: IntArray | tuple[int, int] | None = message.agents
    if message.agents is not None and len(message.agents):
        first, last = int(message.agents[0]), int(message.agents[-1]) + 1
        if last - first == len(message.agents) and bool((np.diff(message.agents) == 1).all()):
            agents = first, last
    return SlimMessage(message.kind, arrays, agents)


def whole(found: SlimMessage | None) -> Message | None:
    """The message of what has crossed."""
    if found is None:
        return None
    arrays, present = {}, {}
    for name, array in found.arrays.items():
        arrays[name] = array.entries
        if array.mask is not None:
            size = int(np.prod(array.mask_shape))
            mask = np.unpackbits(array.mask, count=size).view(np.bool_).reshape(array.mask_shape)
            full = np.zeros(array.shape, dtype=array.entries.dtype)
            full[mask] = array.entries
            arrays[name], present[name] = full, mask
    agents = np.arange(*found.agents) if isinstance(found.agents, tuple) else found.agents
    return Message(found.kind, arrays, agents, present)


def packed(value: Any) -> Parts:
    """A value as bytes; large arrays are parts of their own, so that they are copied less often."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [head, *(buffer.raw() for buffer in buffers)]  # type: ignore[list-item]


def unpacked(parts: Sequence[bytes]) -> Any:
    """The value of `packed`."""
    return pickle.loads(parts[0], buffers=parts[1:])
