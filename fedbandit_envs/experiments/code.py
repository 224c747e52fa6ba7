"""The code of a policy as a hash, so that results of other code are never taken for its own.

The hash covers the modules of the policy's classes, and the modules of its author that they import. Installed libraries
are not among them, and neither is `fedbandit_envs`, whose changes show in the number of the result format. Classes that
no module holds, as those of a notebook, are hashed as they are in memory.
"""

import ast
import hashlib
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import ModuleType

from fedbandit_envs.experiments.fingerprints import Fingerprint
from fedbandit_envs.experiments.staleness import changed_since_import

_LIBRARY = "fedbandit_envs"
_SHIPPED = {"fedbandit_agents", "fedbandit_baselines"}  # the author's own, wherever they are installed
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
    """The hash of the code of a policy's class.

    A class in memory can use an object whose content nobody can tell, such as a random generator. Then random digits
    follow the hash after a blank, so that no other run takes the results for its own.
    """
    classes = [one for one in policy.__mro__ if not _foreign(one.__module__)]
    tops = {one.__module__.partition(".")[0] for one in classes}
    typed = Fingerprint(lambda module: _own(module, tops))
    for one in classes:
        typed.add(one)
    digest = hashlib.sha256(typed.hexdigest().encode())
    sources = _sources(typed.modules, tops)
    for source in sorted(sources.values()):
        digest.update(hashlib.sha256(source.encode()).digest())
    for name in sorted(sources):
        for key in changed_since_import(sys.modules.get(name), sources[name]):
            digest.update(key)
    return digest.hexdigest() + (f" {secrets.token_hex(16)}" if typed.unknown else "")


def _foreign(module: str) -> bool:
    """Whether a module belongs to Python or to this library."""
    top = module.partition(".")[0]
    return top == _LIBRARY or (top in sys.stdlib_module_names and top != "__main__")


def _sources(modules: Iterable[str], tops: set[str]) -> dict[str, str]:
    """The texts of modules and of all modules of the same author that they import, by their names."""
    waiting, seen, sources = list(modules), set(modules), dict[str, str]()
    while waiting:
        name = waiting.pop()
        file, package = _located(name)
        if file is None:
            continue
        text = file.read_text(encoding="utf-8")
        sources[name] = text
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
    spec = _spec_of(name)
    if spec is None or not (spec.origin or "").endswith(".py"):
        return None, ""
    return Path(str(spec.origin)), name if spec.submodule_search_locations else spec.parent or ""


def _spec_of(name: str) -> ModuleSpec | None:
    """Where a module would come from; None: nowhere, as a name that was imported from a module is no module.

    Nothing is imported. `importlib.util.find_spec` imports the modules above a name, and with them code that a policy
    imports late because that takes long or can fail.
    """
    parent = name.rpartition(".")[0]
    folders = _folders_of(parent) if parent else None
    if parent and folders is None:
        return None
    finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
    try:
        return next((spec for finder in finders if (spec := finder.find_spec(name, folders)) is not None), None)
    except KeyError:  # a folder without an __init__.py in another such folder, which must be imported first
        return find_spec(name)


def _folders_of(package: str) -> Sequence[str] | None:
    """Where a package looks for its modules; None: it is no package."""
    module = sys.modules.get(package)
    if module is not None:
        return getattr(module, "__path__", None)
    spec = _spec_of(package)
    return None if spec is None else spec.submodule_search_locations


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
    if top in tops or top in _SHIPPED or top == "__main__":
        return True
    # A package without a file of its own can be in several places, so there each module is looked at.
    file, _ = _located(name if _is_namespace(top) else top)
    return file is not None and not _INSTALLED & set(file.parts)


@cache
def _is_namespace(top: str) -> bool:
    """Whether a package has no `__init__.py`."""
    module = sys.modules.get(top)
    spec = find_spec(top) if module is None else None
    folders = getattr(module, "__path__", None) if spec is None else spec.submodule_search_locations
    return folders is not None and _located(top)[0] is None
