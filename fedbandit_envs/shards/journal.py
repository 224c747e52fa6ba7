"""What a shard was asked since it was last saved: a new process that is asked the same reaches the same state."""

import struct
import tempfile
from collections.abc import Iterator

from fedbandit_envs.shards.packing import Parts

_SIZE = struct.Struct("<Q")


class Journal:
    """The last snapshot of one shard and the requests to it since then, in a temporary file without a name.

    >>> journal = Journal()
    >>> journal.add([b"plan", b"1"])
    >>> journal.add([b"pull"])
    >>> list(journal), len(journal), journal.size
    ([[b'plan', b'1'], [b'pull']], 2, 49)
    >>> journal.clear()
    >>> list(journal)
    []
    >>> journal.close()
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="fedbandit-shard-")  # noqa: SIM115 - it lives as long as the run
        self._number = 0
        self.size = 0  #: how many bytes it takes

    def __len__(self) -> int:
        return self._number

    def add(self, request: Parts) -> None:
        """Write a request at the end."""
        self._file.seek(0, 2)
        self._file.write(_SIZE.pack(len(request)))
        for part in request:
            self._file.write(_SIZE.pack(len(memoryview(part).cast("B"))))
            self._file.write(part)
        self._number += 1
        self.size = self._file.tell()

    def clear(self) -> None:
        """Forget all requests, because a snapshot holds what came of them."""
        self._file.seek(0)
        self._file.truncate()
        self._number = self.size = 0

    def __iter__(self) -> Iterator[Parts]:
        """The requests in their order; nothing may be added meanwhile."""
        self._file.seek(0)
        for _ in range(self._number):
            yield [self._file.read(self._size()) for _ in range(self._size())]

    def _size(self) -> int:
        (size,) = _SIZE.unpack(self._file.read(_SIZE.size))
        return int(size)

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()
