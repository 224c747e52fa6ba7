"""The pulls of many agents at many checkpoints, in little memory."""

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import IntArray, read_only
from fedbandit_envs.protocol.messages import State

_PLAIN = 8  # up to this many tables none is compressed, since compressing takes time
_LARGE = 2**16  # bytes from which a table is compressed once there are more
_LEVEL = 1  # zlib's fastest; higher levels save little more


class _Piece(NamedTuple):
    """What one table has more than the one before."""

    data: NDArray[Any]  # the differences (n, K) in the smallest type that holds them, or bytes that zlib made of them
    kind: str  # the type of the differences if they are compressed, else ""


class CountTables(Sequence[IntArray]):
    """Tables (n, K) of counts that only grow, each kept as what it has more than the one before.

    Differences have the smallest type that holds them, and where there are many large ones all are compressed, so a
    table of step-by-step agents takes a tenth of its size. Reading all tables in their order costs each once; a single
    one is added up from those before it, but the last is at hand.

    >>> tables = CountTables(np.zeros((1, 2), dtype=np.int32))
    >>> for now in ([[1, 0]], [[3, 4]]):
    ...     tables.add(np.array(now))
    >>> len(tables), tables[0], tables[-1], tables.since(0)[0]
    (2, array([[1, 0]], dtype=int32), array([[3, 4]], dtype=int32), array([[2, 4]], dtype=int32))

    Args:
        start: the counts (n, K) before the first table, in the type of all tables.
    """

    def __init__(self, start: IntArray):
        self._start = self._last = start
        self._pieces: list[_Piece] = []

    def add(self, counts: IntArray) -> None:
        """Write down a table; no count is less than it was."""
        now = read_only(counts.astype(self._start.dtype))
        more = now - self._last
        more = more.astype(np.min_scalar_type(more.max(initial=0)))
        self._last = now
        self._pieces.append(_Piece(more, ""))
        if len(self._pieces) > _PLAIN:  # the first time all of them, later the one that is new
            last = len(self._pieces) - 1
            for place in range(0 if last == _PLAIN else last, last + 1):
                self._pieces[place] = _packed(self._pieces[place])

    def copy(self) -> "CountTables":
        """The tables as they are now; what is added later is not in the copy. No table is copied."""
        other = CountTables(self._start)
        other._pieces, other._last = list(self._pieces), self._last
        return other

    def since(self, place: int) -> "CountTables":
        """The tables after one of them, counted from it."""
        begin = self[place]
        other = CountTables(np.zeros_like(begin))
        other._pieces, other._last = self._pieces[place + 1 :], read_only(self._last - begin)
        return other

    def __len__(self) -> int:
        return len(self._pieces)

    def __iter__(self) -> Iterator[IntArray]:
        now = self._start
        for piece in self._pieces:
            now = read_only(np.add(now, self._difference(piece), dtype=now.dtype))
            yield now

    @overload
    def __getitem__(self, place: int) -> IntArray: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[IntArray]: ...

    def __getitem__(self, place: int | slice) -> IntArray | Sequence[IntArray]:
        places = range(len(self))[place]
        if isinstance(places, range):
            wanted = set(places)
            found = {number: table for number, table in enumerate(self) if number in wanted}
            return tuple(found[number] for number in places)
        if places == len(self) - 1:
            return self._last
        return next(table for number, table in enumerate(self) if number == places)

    def _difference(self, piece: _Piece) -> NDArray[Any]:
        if not piece.kind:
            return piece.data
        size = self._start.size * np.dtype(piece.kind).itemsize
        content = zlib.decompressobj().decompress(piece.data.tobytes(), size + 1)  # a state may come from somebody else
        if len(content) != size:
            raise ValueError(f"pulls: expected a table of {size} bytes, got one of another size")
        return np.frombuffer(content, dtype=piece.kind).reshape(self._start.shape)

    def tree(self) -> State:
        """The tables as plain arrays, for storage."""
        return {
            "start": self._start,
            "kinds": np.array([piece.kind for piece in self._pieces], dtype=np.str_),
            "pieces": {str(number): piece.data for number, piece in enumerate(self._pieces)},
        }

    @classmethod
    def from_tree(cls, tree: State) -> "CountTables":
        """The tables of a `tree`."""
        tables = cls(read_only(tree["start"]))
        pieces = tree["pieces"]
        tables._pieces = [_Piece(pieces[str(number)], str(kind)) for number, kind in enumerate(tree["kinds"])]
        for table in tables:
            tables._last = table
        return tables


class StackedTables(Sequence[IntArray]):
    """Tables of several blocks of agents, in the order of the blocks, as tables of all of them.

    >>> blocks = [CountTables(np.zeros((1, 1), dtype=np.int32)) for _ in range(2)]
    >>> for number, block in enumerate(blocks):
    ...     block.add(np.array([[number]]))
    >>> StackedTables(blocks)[0].tolist()
    [[0], [1]]

    Args:
        blocks: the tables of each block, equally many.
    """

    def __init__(self, blocks: Sequence[CountTables]):
        self._blocks = list(blocks)

    def since(self, place: int) -> "StackedTables":
        """The tables after one of them, counted from it."""
        return StackedTables([block.since(place) for block in self._blocks])

    def __len__(self) -> int:
        return len(self._blocks[0])

    def __iter__(self) -> Iterator[IntArray]:
        return (read_only(np.concatenate(parts)) for parts in zip(*self._blocks, strict=True))

    @overload
    def __getitem__(self, place: int) -> IntArray: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[IntArray]: ...

    def __getitem__(self, place: int | slice) -> IntArray | Sequence[IntArray]:
        parts: Any = [block[place] for block in self._blocks]
        if isinstance(place, slice):
            return tuple(read_only(np.concatenate(tables)) for tables in zip(*parts, strict=True))
        return read_only(np.concatenate(parts))


def _packed(piece: _Piece) -> _Piece:
    """A table of differences, compressed if it is large."""
    if piece.kind or piece.data.nbytes < _LARGE:
        return piece
    packed = zlib.compress(piece.data.tobytes(), _LEVEL)
    return _Piece(np.frombuffer(packed, dtype=np.uint8), piece.data.dtype.name)
