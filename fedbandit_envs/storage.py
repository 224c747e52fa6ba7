"""Plain arrays and numbers on disk: one file, no pickle, written whole or not at all.

The file is an .npz file of numpy, so other programs can read it too. Its first member, `tree`, is a JSON text: the
tree with its numbers and strings, and in the place of each array a list with the name of the member that holds it.
A member of its own, `provenance`, can say where the content comes from; it is no part of the tree.
"""

import contextlib
import io
import json
import lzma
import os
import secrets
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TREE = "tree"
_PROVENANCE = "provenance"
_OVERHEAD = 100_000  # more bytes than a member has beside its content
#: What zipfile, numpy and json raise at bytes that they can't read.
UNREADABLE = (
    OSError,
    LookupError,
    TypeError,
    ValueError,
    EOFError,
    MemoryError,  # the shape of an array may promise more than any memory holds
    RuntimeError,
    OverflowError,
    SyntaxError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
    tokenize.TokenError,
    zipfile.BadZipFile,
)


class StoredFileError(ValueError):
    """A file is torn, or was not written by `save`."""


def save(path: Path, tree: Mapping[str, Any], provenance: Mapping[str, str] | None = None) -> None:
    """Write a tree to a file that appears complete or not at all.

    Equal trees give equal bytes. `load` gives the tree back.

    Args:
        path: The file. Its folder must exist; an older file of that name is replaced.
        tree: Mappings from names to arrays, numbers, strings, None and further mappings.
        provenance: Where the tree comes from, in words. `load` leaves it out; `load_with_provenance`
            gives it back.

    Raises:
        ValueError: The tree holds something else, for example a list. Nothing was written.
        OSError: The file could not be written. An older file of that name is still there.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "state.npz"
    >>> save(file, {"step": 3, "agents": {"pulls": np.array([2, 1])}})
    >>> load(file)
    {'agents': {'pulls': array([2, 1])}, 'step': 3}
    """
    content = to_bytes(tree, provenance)
    try:
        write_whole(path, content)
    except OSError as error:
        reason = f"expected a place that can be written to, got {error.strerror!r}; create the folder or choose another"
        raise OSError(error.errno, reason, str(path)) from error


def load(path: Path) -> dict[str, Any]:
    """The tree of a file that `save` wrote.

    Raises:
        StoredFileError: the file is torn or foreign.
        OSError: the file can't be read.
    """
    return from_bytes(_read_members(path), str(path))


def load_with_provenance(path: Path, most: int | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """The tree of a file and its provenance, which is empty if the file was saved without one.

    Args:
        path: the file.
        most: the largest number of bytes that it may have, beyond which it is refused unread; None: any.
    """
    return _parsed(_read_members(path, most), str(path))


def _read_members(path: Path, most: int | None = None) -> bytes:
    """The content of a file of `save`; one that is larger than its members say is refused before it is read."""
    check_regular(path)
    _check_size(path, most)
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except UNREADABLE:
        members = []
    if size > sum(member.file_size for member in members) + _OVERHEAD * (1 + len(members)):
        raise StoredFileError(
            f"{path}: expected a file written by this program, got {size:,} bytes that are not all in its members; "
            "delete it or move it away"
        )
    return path.read_bytes()


def read_whole(path: Path, most: int | None = None) -> bytes:
    """The content of a file; `StoredFileError` where the path leads to something else, such as a device.

    Args:
        path: the file.
        most: the largest number of bytes that it may have, beyond which it is refused unread; None: any.
    """
    check_regular(path)
    _check_size(path, most)
    return path.read_bytes()


def _check_size(path: Path, most: int | None) -> None:
    if most is not None and (size := path.stat().st_size) > most:
        raise StoredFileError(f"{path}: expected at most {most:,} bytes, got {size:,}; delete it or move it away")


def check_regular(path: Path) -> None:
    """Refuse with a `StoredFileError` what is there but is no file."""
    if path.exists() and not path.is_file():  # reading a device or a pipe may never end
        raise StoredFileError(f"{path}: expected a file, got a folder, a pipe or a device; delete it or move it away")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears complete or not at all, also when the machine stops.

    Args:
        path: the file. Its folder must exist; an older file of that name is replaced.
        content: the whole content.
    """
    # The name is unique also among threads, and among containers in which process ids are equal.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # the folder may be the very thing that is gone
            temporary.unlink()
        raise


def to_bytes(tree: Mapping[str, Any], provenance: Mapping[str, str] | None = None) -> bytes:
    """The content of the file that `save` writes.

    >>> from_bytes(to_bytes({"step": 3}), "example")
    {'step': 3}
    """
    arrays: dict[str, NDArray[Any]] = {}
    text = json.dumps(_without_arrays(tree, "", arrays), sort_keys=True)
    members = {_TREE: np.array(text.encode()), **dict(sorted(arrays.items()))}
    if provenance is not None:
        members[_PROVENANCE] = np.array(json.dumps(dict(provenance), sort_keys=True).encode())
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **members)
    return buffer.getvalue()


def from_bytes(content: bytes, source: str) -> dict[str, Any]:
    """The tree of a content that `to_bytes` made.

    Args:
        content: the bytes of a file.
        source: what the content is called in an error.

    Raises:
        StoredFileError: the content is torn or foreign.
    """
    return _parsed(content, source)[0]


def _parsed(content: bytes, source: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The tree and the provenance of a content."""
    try:
        members = _members(content)
        found = json.loads(members.pop(_PROVENANCE).item()) if _PROVENANCE in members else {}
        provenance = {str(name): str(value) for name, value in dict(found).items()}
        tree = _with_arrays(json.loads(members.pop(_TREE).item()), members)
        if not isinstance(tree, dict):
            raise ValueError(f"tree: expected names with values, got {type(tree).__name__}")
        if members:
            raise ValueError(f"arrays: expected those of its tree, got {', '.join(members)} too")
    except UNREADABLE as error:
        raise StoredFileError(
            f"{source}: expected a file written by this program, got one that is torn or foreign ({error}); delete it "
            "or move it away"
        ) from error
    return tree, provenance


def arrays_of(content: bytes, source: str) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file that `numpy.savez` wrote, by name; `source` names the file in errors.

    Nothing is unpickled, every checksum is checked, and what is compressed is refused.
    """
    try:
        return _members(content)
    except UNREADABLE as error:
        raise StoredFileError(
            f"{source}: expected arrays of plain numbers and texts as numpy.savez writes them, got a file that is torn "
            f"or foreign ({error})"
        ) from error


def _members(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        # `save` does not compress. A few compressed bytes of somebody else could fill the memory.
        if packed := [one.filename for one in archive.infolist() if one.compress_type != zipfile.ZIP_STORED]:
            raise ValueError(f"expected arrays that are not compressed, got {packed[0]} compressed")
        # numpy reads no further than the shape says, so it would not notice every change.
        if (torn := archive.testzip()) is not None:
            raise ValueError(f"{torn}: expected the checksum that was written with it, got another")
        names = archive.namelist()
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        # Whole names, with ".npy": to numpy "x.npy" is the array "x" as well as the array "x.npy".
        members = {name.removesuffix(".npy"): arrays[name] for name in names}
    for name, member in members.items():
        if not isinstance(member, np.ndarray):  # numpy gives the bytes of what is no array
            raise ValueError(f"{name}: expected an array, got other bytes")
    return members


def plain_value(name: str, value: Any) -> Any:
    """An array, a number, a text or None, as it can be stored; numbers of numpy become those of Python.

    Args:
        name: what the value is called in an error.
        value: the value. An array is returned as it is, and is not copied.

    Raises:
        ValueError: the value is something else. Nothing is ever pickled, so objects can't be stored.

    >>> plain_value("count", np.int64(3))
    3
    >>> plain_value("log", [1, 2])
    Traceback (most recent call last):
        ...
    ValueError: log: expected an array of numbers or texts, a number, a text or None, got list
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise ValueError(f"{name}: expected an array of numbers or texts, a number, a text or None, got {kind}")


def _without_arrays(tree: Mapping[str, Any], prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """The tree for JSON; its arrays are put into `arrays` instead."""
    plain: dict[str, Any] = {}
    for name, value in tree.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise ValueError(f"name: expected a text without '/', got {name!r} in {prefix or 'the tree'}; rename it")
        if isinstance(value, Mapping):
            plain[name] = _without_arrays(value, f"{prefix}{name}/", arrays)
            continue
        plain[name] = plain_value(prefix + name, value)
        if isinstance(value, np.ndarray):
            member = f"arrays/{prefix}{name}"
            arrays[member] = value
            plain[name] = [member]
    return plain


def _with_arrays(plain: Any, members: dict[str, NDArray[Any]]) -> Any:
    """The tree of `_without_arrays`; takes its arrays out of `members`."""
    if isinstance(plain, list):
        return members.pop(plain[0])
    if isinstance(plain, dict):
        return {name: _with_arrays(value, members) for name, value in plain.items()}
    return plain
