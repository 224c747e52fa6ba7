"""Messages as bytes. Nothing is unpickled, and sizes are checked before memory is taken.

A packet is a JSON header and the raw bytes of each array. Only the present entries of an array with a mask cross, so
the bytes of a message's arrays are exactly those that the ledger counts for its agents. The header (kind, agents,
shapes), the masks and the envelope (verb, turn, length of the plan) are not counted, as in every other run.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import BoolArray
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.messages import Message

#: A packet: "header" holds JSON, "0/theta" the array theta of the first message, and "0/theta?" its mask.
Packet = dict[str, str | bytes]

_HEADER = "header"
_DTYPES = ("<f8", "<f4", "<i8", "<i4", "<u8", "<u4", "|b1", "|i1", "|u1")
_MOST_AXES = 8
_MOST_ARRAYS = 64  # the most arrays of one message
_LONGEST_HEADER = 4  # the header of many messages may be this many times as long as the largest message
_LONGEST_NAME = 100  # the most characters of a kind or of an array's name


class WireError(ValueError):
    """A packet has another form than it should have; nothing of it is used."""


class Transport(Protocol):
    """How packets reach the clients. Each client is a node with a number, which may change when it comes back."""

    def nodes(self) -> dict[int, str]:
        """The numbers of the nodes that are connected now, each with the key that it has proved to have."""

    def exchange(self, requests: Mapping[int, Packet], timeout: float) -> dict[int, Packet | str]:
        """Send each node its packet, and collect the answers of `timeout` seconds.

        Returns:
            For each node that answered its packet, or a text that says what failed.
        """


def most_bytes(constants: Constants, agents: int) -> int:
    """The largest message, in bytes of memory, that is accepted from or for `agents` agents.

    It is eight times the second moments of every arm, and a megabyte: far more than any policy here sends, and too
    little to do harm.

    Args:
        constants: the public numbers of the problem.
        agents: the number of agents.
    """
    row = 8 * (constants.num_arms + 1) * (constants.dim + 1) ** 2
    return 2**20 + 8 * row * max(agents, 1)


def pack(envelope: Mapping[str, Any], messages: Sequence[Message | None]) -> Packet:
    """The packet of some messages and of the plain values around them.

    Args:
        envelope: plain values such as the verb and the turn.
        messages: the messages; None stands for silence.

    >>> packet = pack({"turn": 3}, [Message("sums", {"reward": np.array([0.5, 1.5])})])
    >>> sorted(packet), len(packet["0/reward"])
    (['0/reward', 'header'], 16)
    >>> envelope, messages = unpack(packet, most=1000, number=1)
    >>> envelope["turn"], messages[0].arrays["reward"]
    (3, array([0.5, 1.5]))
    """
    packet: Packet = {}
    headers = [
        None if message is None else _pack_message(f"{n}/", message, packet) for n, message in enumerate(messages)
    ]
    packet[_HEADER] = json.dumps({**envelope, "messages": headers})
    return packet


def _pack_message(prefix: str, message: Message, packet: Packet) -> dict[str, Any]:
    arrays = {}
    for name, array in message.arrays.items():
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        mask = message.present.get(name)
        arrays[name] = {"dtype": little.dtype.str, "shape": array.shape, "mask": None if mask is None else mask.shape}
        packet[prefix + name] = (little if mask is None else little[mask]).tobytes()
        if mask is not None:
            packet[f"{prefix}{name}?"] = np.packbits(mask).tobytes()
    agents = None if message.agents is None else message.agents.tolist()
    return {"kind": message.kind, "agents": agents, "arrays": arrays}


class Messages:
    """The messages of a packet, each of which takes memory only while it is used.

    A few bytes can stand for a large array of which nothing is present, so all arrays of a packet at once could fill
    the memory.
    """

    def __init__(self, forms: list[Any], packet: Mapping[str, Any], most: int):
        self._forms, self._packet, self._most = forms, packet, most

    def __len__(self) -> int:
        return len(self._forms)

    def __iter__(self) -> Iterator[Message | None]:
        return (self[place] for place in range(len(self)))

    def __getitem__(self, place: int) -> Message | None:
        """The message at this place, made anew."""
        form = self._forms[place]
        return None if form is None else _unpack_message(f"{place}/", form, self._packet, self._most)


def unpack(packet: Mapping[str, Any], most: int, number: int) -> tuple[dict[str, Any], Messages]:
    """The plain values and the messages of a packet from outside.

    All messages are checked now, one after the other. Each is made again when it is asked for.

    Args:
        packet: the packet, of any content.
        most: the most bytes of memory that a message may take.
        number: the most messages.

    Raises:
        WireError: the packet has another form, or is too large.
    """
    text = packet.get(_HEADER)
    longest = most * min(number, _LONGEST_HEADER)
    if not isinstance(text, str) or len(text) > longest:
        raise WireError(
            f"packet: expected a header of at most {longest} characters, got {_size(text)}; send less at once"
        )
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"header: expected JSON, got {error}; both sides need the same version") from error
    _expect(
        isinstance(header, dict) and isinstance(header.get("messages"), list),
        "header: expected a list of messages",
        header,
    )
    forms = header.pop("messages")
    _expect(len(forms) <= number, f"header: expected at most {number} messages", len(forms))
    messages = Messages(forms, packet, most)
    for _ in messages:
        pass
    return header, messages


def not_finite(message: Message) -> str | None:
    """The name of an array of the message that holds NaN or infinity; None: all numbers are finite.

    >>> not_finite(Message("estimates", {"theta": np.array([1.0, np.inf])}))
    'theta'
    """
    for name, array in message.arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return name
    return None


def _unpack_message(prefix: str, header: Any, packet: Mapping[str, Any], most: int) -> Message:
    _expect(
        isinstance(header, dict) and header.keys() == {"kind", "agents", "arrays"},
        "message: expected a kind, agents and arrays",
        header,
    )
    kind, agents, forms = header["kind"], header["agents"], header["arrays"]
    _expect(
        isinstance(kind, str) and len(kind) <= _LONGEST_NAME,
        f"kind: expected a text of at most {_LONGEST_NAME} characters",
        kind,
    )
    _expect(
        agents is None or (isinstance(agents, list) and all(map(_whole, agents))),
        "agents: expected a list of whole numbers",
        agents,
    )
    _expect(isinstance(forms, dict) and len(forms) <= _MOST_ARRAYS, f"arrays: expected at most {_MOST_ARRAYS}", forms)
    arrays: dict[str, NDArray[Any]] = {}
    present: dict[str, BoolArray] = {}
    for name, form in forms.items():
        left = most - sum(array.nbytes for array in arrays.values())
        dtype, shape, masked = _form(name, form, left, None if agents is None else len(agents))
        payload = packet.get(prefix + name)
        if masked is None:
            arrays[name] = _exactly(name, payload, math.prod(shape), dtype).reshape(shape)
            continue
        mask = _mask(name, packet.get(f"{prefix}{name}?"), masked)
        sent = (int(mask.sum()), *shape[len(masked) :])
        dense = np.zeros(shape, dtype=dtype)
        dense[mask] = _exactly(name, payload, math.prod(sent), dtype).reshape(sent)
        arrays[name], present[name] = dense, mask
    return Message(kind, arrays, None if agents is None else np.array(agents, dtype=np.int64), present)


def _form(
    name: str, form: Any, most: int, rows: int | None
) -> tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...] | None]:
    """The dtype, the shape and the mask's shape that a header claims, if they fit together and into `most` bytes."""
    _expect(len(name) <= _LONGEST_NAME, f"array: expected a name of at most {_LONGEST_NAME} characters", name)
    _expect(
        isinstance(form, dict) and form.keys() == {"dtype", "shape", "mask"},
        f"{name}: expected dtype, shape and mask",
        form,
    )
    _expect(form["dtype"] in _DTYPES, f"{name}: expected a dtype among {', '.join(_DTYPES)}", form["dtype"])
    shape, mask = form["shape"], form["mask"]
    for axes in (shape, mask) if mask is not None else (shape,):
        fits = (
            isinstance(axes, list) and len(axes) <= _MOST_AXES and all(map(_whole, axes)) and min(axes, default=0) >= 0
        )
        _expect(fits, f"{name}: expected a shape of at most {_MOST_AXES} axes", axes)
    dtype = np.dtype(form["dtype"])
    _expect(rows is None or shape[:1] == [rows], f"{name}: expected one row for each of {rows} agents", shape)
    _expect(math.prod(shape) * dtype.itemsize <= most, f"{name}: expected at most {most} bytes", shape)
    _expect(mask is None or (mask and mask == shape[: len(mask)]), f"{name}: expected a mask of its leading axes", mask)
    return dtype, tuple(shape), None if mask is None else tuple(mask)


def _exactly(name: str, payload: Any, entries: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    expected = entries * dtype.itemsize
    if not isinstance(payload, bytes) or len(payload) != expected:
        raise WireError(f"{name}: expected {expected} bytes, got {_size(payload)}; the message was cut or made up")
    if dtype.kind == "b":
        return np.frombuffer(payload, dtype=np.uint8) != 0  # a byte of 2 would be neither true nor false
    return np.frombuffer(payload, dtype=dtype).astype(dtype.newbyteorder("="))


def _mask(name: str, payload: Any, shape: tuple[int, ...]) -> BoolArray:
    entries = math.prod(shape)
    packed = _exactly(f"mask of {name}", payload, -(-entries // 8), np.dtype(np.uint8))
    return np.unpackbits(packed, count=entries).astype(bool).reshape(shape)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62


def _size(value: Any) -> str:
    return f"{len(value)} of {type(value).__name__}" if isinstance(value, (str, bytes)) else type(value).__name__


def _expect(fits: bool, expected: str, got: Any) -> None:
    if not fits:
        raise WireError(f"{expected}, got {str(got)[:100]!r}; both sides need the same version")
