"""How requests and answers travel between the driver and its shards: as pickles, without entries that are masked out.

Both ends are processes of the same run, so pickles are safe here: no bytes from anybody else are read.
"""

import pickle
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.protocol.messages import Message

Border = tuple[int, int]  # the number of a shard's first agent, and the number after that of its last
_LARGE = 2**14  # bytes; an array of fewer is copied in less time than it takes to send a part
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
    agents: IntArray | Border | None  #: the agents; if they are in a row, their first and the one after their last


def slim(message: Message | None, border: Border | None = None) -> SlimMessage | None:
    """The message as it crosses: all of it, or the rows of the agents of one shard, without copying these first.

    Args:
        message: the message; its agents are in rising order.
        border: the first agent of the shard, and the one after its last; None: all.

    >>> up = Message("means", {"means": np.array([[0.5, 9.0]])}, np.array([3]), {"means": np.array([[True, False]])})
    >>> slim(up).arrays["means"].entries
    array([0.5])
    >>> whole([slim(up)])["means"], whole([slim(up, border=(3, 5))]).agents, whole([slim(up, border=(5, 9))]).arrays
    (array([[0.5, 0. ]]), array([3]), mappingproxy({}))
    """
    if message is None:
        return None
    rows, agents = slice(None), message.agents
    if agents is not None and border is not None:
        rows = slice(*np.searchsorted(agents, border).tolist())
        agents = agents[rows]
        if not len(agents):
            nobody = message.for_nobody()  # some policies must know that others have received something
            return SlimMessage(nobody.kind, {}, agents)
    arrays = {}
    for name, array in message.arrays.items():
        own, mask = array[rows], message.present.get(name)
        if mask is None:
            arrays[name] = SlimArray(own, own.shape, None, ())
        else:
            mask = mask[rows]
            arrays[name] = SlimArray(own[mask], own.shape, np.packbits(mask), mask.shape)
    return SlimMessage(message.kind, arrays, _in_short(agents))


def _in_short(agents: IntArray | None) -> IntArray | Border | None:
    """The border of agents whose numbers follow each other, or else the numbers themselves."""
    if agents is None or not len(agents):
        return agents
    first, last = int(agents[0]), int(agents[-1]) + 1
    in_a_row = last - first == len(agents) and bool((agents[1:] > agents[:-1]).all())
    return (first, last) if in_a_row else agents


def whole(found: Sequence[SlimMessage]) -> Message:
    """The message of one shard, or those of several shards put together in their order; these must be `alike`."""
    first = found[0]
    if first.agents is None:
        rows = [slice(None)]
    else:
        ends = np.cumsum([0, *(number_of(one.agents) for one in found)]).tolist()
        rows = [slice(*ends_of) for ends_of in pairwise(ends)]
    arrays: dict[str, NDArray[Any]] = {}
    present: dict[str, NDArray[np.bool_]] = {}
    for name, array in first.arrays.items():
        parts = [one.arrays[name] for one in found]
        if array.mask is None:
            arrays[name] = array.entries if len(found) == 1 else np.concatenate([part.entries for part in parts])
            continue
        lead = sum(part.shape[0] for part in parts)
        full = np.zeros((lead, *array.shape[1:]), dtype=array.entries.dtype)
        mask = np.empty((lead, *array.mask_shape[1:]), dtype=bool)
        for own, part in zip(rows, parts, strict=True):
            assert part.mask is not None
            bits = np.unpackbits(part.mask, count=int(np.prod(part.mask_shape)))
            mask[own] = bits.view(np.bool_).reshape(part.mask_shape)
            full[own][mask[own]] = part.entries
        arrays[name], present[name] = full, mask
    agents = None
    if first.agents is not None:
        listed = [np.arange(*one.agents) if isinstance(one.agents, tuple) else one.agents for one in found]
        agents = np.concatenate([numbers for numbers in listed if numbers is not None])
    return Message(first.kind, arrays, agents, present)


def number_of(agents: IntArray | Border | None) -> int:
    """How many agents these are."""
    if agents is None:
        return 0
    return agents[1] - agents[0] if isinstance(agents, tuple) else len(agents)


def alike(found: Sequence[SlimMessage]) -> bool:
    """Whether messages can be put together: all have one kind, the same arrays and masks, and agents."""
    forms = {
        (one.kind, tuple((name, array.mask is None, array.shape[1:]) for name, array in one.arrays.items()))
        for one in found
    }
    return len(forms) == 1 and all(one.agents is not None for one in found)


def messages_of(found: Sequence[SlimMessage | None]) -> list[Message | None]:
    """The messages of all shards, as one where that is possible; those that say nothing are left out."""
    spoken = [one for one in found if one is not None and (one.agents is None or number_of(one.agents))]
    if alike(spoken):
        return [whole(spoken)]  # one message is made of all parts at once, none of each part
    return [whole([message]) for message in spoken]


def narrow(numbers: IntArray) -> NDArray[Any]:
    """Whole numbers in the smallest type that holds them all.

    >>> narrow(np.array([-1, 9])).dtype
    dtype('int8')
    """
    least, most = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    return numbers.astype(np.min_scalar_type(-max(-least, most + 1)))


def packed(value: Any) -> Parts:
    """A value as bytes; large arrays are parts of their own, so that they are copied less often."""
    buffers: list[memoryview] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LARGE:
            return True
        buffers.append(raw)
        return False

    head = pickle.dumps(value, protocol=5, buffer_callback=stays)
    return [head, *buffers]  # type: ignore[list-item]


def unpacked(parts: Sequence[bytes]) -> Any:
    """The value of `packed`."""
    return pickle.loads(parts[0], buffers=parts[1:])
