"""The code of a policy as a hash, so that results of other code are never taken for its own.

The hash covers the modules of the policy's classes, and the modules of its author that they import. Installed libraries
are not among them, and neither is `fedbandit_envs`, whose changes show in the number of the result format.
"""

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_LIBRARY = "fedbandit_envs"
_INSTALLED = {"site-packages", "dist-packages"}


def class_path(policy: type) -> str:
    """The class as "module:name"; a script that runs has the name by which others would import it."""
    module = policy.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file else module
    return f"{module}:{policy.__qualname__}"


def code_digest(policy: type) -> str:
    """The hash of the code of a policy's class."""
    digest = hashlib.sha256()
    classes = [one for one in policy.__mro__ if not _foreign(one.__module__)]
    tops = {one.__module__.partition(".")[0] for one in classes}
    for source in sorted(_sources([one.__module__ for one in classes], tops)):
        digest.update(hashlib.sha256(source.encode()).digest())
    for one in classes:
        # A class that was typed in has no file. One that was made in a function can differ from call to call.
        if "<locals>" in one.__qualname__ or _file(sys.modules.get(one.__module__)) is None:
            _add(digest, one, set())
    return digest.hexdigest()


def _foreign(module: str) -> bool:
    """Whether a module belongs to Python or to this library."""
    top = module.partition(".")[0]
    return top == _LIBRARY or (top in sys.stdlib_module_names and top != "__main__")


def _sources(modules: list[str], tops: set[str]) -> set[str]:
    """The texts of modules and of all modules of the same author that they import."""
    waiting, seen, sources = list(modules), set(modules), set()
    while waiting:
        name = waiting.pop()
        file, package = _located(name)
        if file is None:
            continue
        text = file.read_text(encoding="utf-8")
        sources.add(text)
        for imported in _imports(text, package):
            if imported not in seen and _own(imported, tops):
                seen.add(imported)
                waiting.append(imported)
    return sources


@cache
def _located(name: str) -> tuple[Path | None, str]:
    """The source file of a module, if it has one, and the package in which its relative imports begin."""
    module = sys.modules.get(name)
    if module is not None:
        return _file(module), getattr(module, "__package__", None) or ""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # a name that was imported from a module is no module
        return None, ""
    if spec is None or not (spec.origin or "").endswith(".py"):
        return None, ""
    return Path(str(spec.origin)), name if spec.submodule_search_locations else spec.parent or ""


def _file(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file) if file and file.endswith(".py") and Path(file).is_file() else None


@cache
def _imports(text: str, package: str) -> tuple[str, ...]:
    """Every name that a module imports; names that it takes from a module may be modules themselves."""
    return tuple(_each_import(text, package))


def _each_import(text: str, package: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            try:
                base = resolve_name(relative, package)
            except ImportError:  # a relative import outside a package would fail in Python too
                continue
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))


def _own(name: str, tops: set[str]) -> bool:
    """Whether a module is the author's own: of a package of the policy's classes, or not installed at all."""
    top = name.partition(".")[0]
    if _foreign(name):
        return False
    if top in tops:
        return True
    file, _ = _located(top)
    return file is not None and not _INSTALLED & set(file.parts)


def _add(digest: Any, value: Any, seen: set[int]) -> None:
    """Add what a class, a function or a value of theirs is made of."""
    if id(value) in seen:
        return
    if isinstance(value, (type, FunctionType, CodeType)):
        seen.add(id(value))
    digest.update(f"{type(value).__name__}:".encode())
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
        digest.update(repr(value).encode())
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    elif isinstance(value, (tuple, list)):
        for item in value:
            _add(digest, item, seen)
    elif isinstance(value, CodeType):
        digest.update(value.co_code + repr(value.co_names).encode())
        _add(digest, value.co_consts, seen)
    elif isinstance(value, FunctionType):
        _add_function(digest, value, seen)
    elif isinstance(value, type) and not _foreign(value.__module__):
        for name, member in sorted(vars(value).items()):
            plain = isinstance(member, (int, float, str, tuple)) and not name.startswith("__")  # no line numbers
            if plain or isinstance(member, (FunctionType, staticmethod, classmethod, property)):
                digest.update(name.encode())
                _add(digest, getattr(member, "fget", getattr(member, "__func__", member)), seen)


def _add_function(digest: Any, function: FunctionType, seen: set[int]) -> None:
    """Add a function: its code, its defaults, what it encloses, and what it names in its own module."""
    for part in (function.__code__, function.__defaults__ or ()):
        _add(digest, part, seen)
    for cell in function.__closure__ or ():
        _add(digest, cell.cell_contents, seen)
    for name in function.__code__.co_names:
        named = function.__globals__.get(name)
        if getattr(named, "__module__", None) == function.__module__ or isinstance(named, (int, float, str, tuple)):
            _add(digest, named, seen)
