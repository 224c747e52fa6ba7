"""What of a module in memory is not what its file says: the file was edited after the import.

Python goes on with the code that it imported. Its results must not be taken for those of the text on disk.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from fedbandit_envs.experiments.fingerprints import code_key, functions_behind, nested

_CONSTANTS = (bool, int, float, complex, str, bytes, tuple, type(None))


def changed_since_import(module: ModuleType | None, text: str) -> list[bytes]:
    """Hashes of the functions and constants of a module in memory that its text on disk does not have.

    Compared are functions, also those in classes, and names that are given a number, a text or a tuple of these once.

    >>> import fedbandit_envs.seeding as module
    >>> from pathlib import Path
    >>> text = Path(module.__file__).read_text(encoding="utf-8")
    >>> changed_since_import(module, text), len(changed_since_import(module, text.replace("return", "yield"))) > 0
    ([], True)
    """
    # A module that was loaded in another way, as pytest loads tests, may have other code than its text.
    if module is None or type(getattr(module, "__loader__", None)) is not SourceFileLoader:
        return []
    on_disk, constants = _compiled(text)
    functions = (code_key(code) for code in _codes(vars(module), module, set()))
    return sorted({key for key in functions if key not in on_disk}) + [
        f"{name}={value!r}".encode()
        for name, expected in constants
        for value in _values(module, name)
        if repr(value) != expected
    ]


@cache
def _compiled(text: str) -> tuple[frozenset[bytes], tuple[tuple[str, str], ...]]:
    """All functions of a text as hashes, and its constants as names and representations."""
    tree = ast.parse(text)
    code = compile(tree, "<text>", "exec", dont_inherit=True)
    return frozenset(map(code_key, nested(code))), tuple(_constants(tree, ""))


def _codes(members: Any, module: ModuleType, seen: set[int]) -> Iterator[Any]:
    """The code of all functions that the file of a module has defined."""
    for member in list(members.values()):
        if isinstance(member, type) and member.__module__ == module.__name__ and id(member) not in seen:
            seen.add(id(member))
            yield from _codes(vars(member), module, seen)
        for function in functions_behind(member):
            code = getattr(function, "__code__", None)
            if code is not None and code.co_filename == module.__file__:
                yield code


def _constants(tree: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, str]]:
    """The names of a module, and of its classes, that get a constant and nothing else."""
    stored = Counter(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _constants(node, f"{prefix}{node.name}.")
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(target, ast.Name) and stored[target.id] == 1:
            try:
                value = ast.literal_eval(node.value)  # type: ignore[arg-type]
            except (ValueError, TypeError):
                continue
            if type(value) in _CONSTANTS:
                yield prefix + target.id, repr(value)


def _values(module: ModuleType, name: str) -> list[Any]:
    """The constant of that name in memory, if there is one."""
    found: Any = module
    for part in name.split("."):
        found = vars(found).get(part, vars) if hasattr(found, "__dict__") else vars
    return [found] if type(found) in _CONSTANTS else []
