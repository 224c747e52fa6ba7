"""Plain arrays and numbers on disk: one file, no pickle, written whole or not at all.

The file is a zip of `tree.json` (the scalars, and the names of the arrays) and one .npy for each array, so other
programs can read it too.
"""

import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_TREE = "tree.json"


class StoredFileError(ValueError):
    """A file is torn, or not what it should be."""


def save(path: Path, tree: Mapping[str, Any]) -> None:
    """Write a tree of mappings, arrays, numbers, strings and None; the same tree gives the same bytes."""
    content = to_bytes(tree)
    try:
        write_whole(path, content)
    except OSError as error:
        reason = f"expected a place that can be written to, got {error.strerror!r}; create the folder or choose another"
        raise OSError(error.errno, reason, str(path)) from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears complete or not at all, also when the machine stops."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if temporary.exists():  # best effort: the folder may be the very thing that is gone
            temporary.unlink()
        raise


def to_bytes(tree: Mapping[str, Any]) -> bytes:
    """What `save` writes."""
    arrays: dict[str, Any] = {}
    scalars: dict[str, Any] = {}
    _flatten("", tree, arrays, scalars)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        # A ZipInfo made by hand carries no clock: equal trees give equal bytes.
        tree_json = json.dumps({"arrays": sorted(arrays), "scalars": scalars}, sort_keys=True)
        archive.writestr(zipfile.ZipInfo(_TREE), tree_json)
        for name in sorted(arrays):
            with archive.open(zipfile.ZipInfo(_member(name)), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, arrays[name], allow_pickle=False)
    return buffer.getvalue()


def _member(array: str) -> str:
    return f"arrays/{array}.npy"


def load(path: Path) -> dict[str, Any]:
    """The tree of a file written by `save`."""
    return from_bytes(path.read_bytes(), str(path))


def from_bytes(content: bytes, source: str) -> dict[str, Any]:
    """The tree of what `to_bytes` gave; `source` names it in errors."""
    try:
        flat = _decoded(content)
    except (
        OSError,
        TypeError,
        ValueError,
        KeyError,
        EOFError,
        RuntimeError,
        OverflowError,
        struct.error,
        zlib.error,
        zipfile.BadZipFile,
    ) as error:
        raise StoredFileError(
            f"{source}: expected a file written by this program, got one that is torn or foreign ({error}); delete it "
            "or move it away"
        ) from error
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *folders, leaf = name.split("/")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        if leaf:
            place[leaf] = value
    return tree


def _decoded(content: bytes) -> dict[str, Any]:
    """Arrays and scalars by path; a path that ends in "/" is an empty mapping."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        tree = json.loads(archive.read(_TREE))
        if not isinstance(tree, dict) or archive.namelist() != [_TREE, *map(_member, tree["arrays"])]:
            raise ValueError(f"its arrays are not those of its {_TREE}")
        flat: dict[str, Any] = dict(tree["scalars"])
        for name in tree["arrays"]:
            # Reading the whole member checks its checksum.
            flat[name] = np.lib.format.read_array(io.BytesIO(archive.read(_member(name))), allow_pickle=False)
    return flat


def _flatten(prefix: str, tree: Mapping[str, Any], arrays: dict[str, Any], scalars: dict[str, Any]) -> None:
    if prefix and not tree:
        scalars[prefix] = None
    for name, value in tree.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise ValueError(f"name: expected a text without '/', got {name!r} in {prefix or 'the tree'}; rename it")
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, Mapping):
            _flatten(f"{prefix}{name}/", value, arrays, scalars)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            arrays[prefix + name] = value
        elif value is None or isinstance(value, (bool, int, float, str)):
            scalars[prefix + name] = value
        else:
            kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
            raise ValueError(
                f"{prefix}{name}: expected arrays of plain numbers or texts, numbers, strings or None, got {kind}; "
                "convert it first: nothing is pickled"
            )
