"""Plain arrays and numbers on disk: one file, no pickle, written whole or not at all."""

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_SCALARS = "scalars.json"


class StoredFileError(ValueError):
    """A file is torn, or not what it should be."""


def save(path: Path, tree: Mapping[str, Any]) -> None:
    """Write a tree of mappings, arrays, numbers, strings and None; the same tree gives the same bytes."""
    arrays: dict[str, Any] = {}
    scalars: dict[str, Any] = {}
    _flatten("", tree, arrays, scalars)
    encoded = np.frombuffer(json.dumps(scalars, sort_keys=True).encode(), dtype=np.uint8)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, **{_SCALARS: encoded}, **dict(sorted(arrays.items())))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load(path: Path) -> dict[str, Any]:
    """The tree of a file written by `save`."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            flat = {name: stored[name] for name in stored.files}
        scalars = json.loads(flat.pop(_SCALARS).tobytes())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StoredFileError(
            f"{path}: expected a file written by this program, got one that is torn or foreign ({error}); delete it or "
            "move it away"
        ) from error
    tree: dict[str, Any] = {}
    for name, value in (flat | scalars).items():
        *folders, leaf = name.split("/")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = value
    return tree


def _flatten(prefix: str, tree: Mapping[str, Any], arrays: dict[str, Any], scalars: dict[str, Any]) -> None:
    for name, value in tree.items():
        if "/" in name:
            raise ValueError(f"name: expected one without '/', got {name!r}")
        if isinstance(value, Mapping):
            _flatten(f"{prefix}{name}/", value, arrays, scalars)
        elif isinstance(value, np.ndarray):
            arrays[prefix + name] = value
        elif value is None or isinstance(value, (bool, int, float, str)):
            scalars[prefix + name] = value
        else:
            raise TypeError(f"{prefix}{name}: expected arrays, numbers, strings or None, got {type(value).__name__}")
