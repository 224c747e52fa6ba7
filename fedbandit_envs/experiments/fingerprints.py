"""Hashes of code and values in memory, for classes that no file describes, as those typed into a notebook.

A `Fingerprint` follows a class to all that its numbers can depend on: its functions, what they name, and the values
behind these names. The hash is the same in every process of the same Python; it does not depend on line numbers.
"""

import dis
import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice)
_BY_PYTHON = ("_abc_impl",)  # what Python itself adds to a class; its other additions have names like __doc__


@cache
def code_key(code: CodeType) -> bytes:
    """The hash of compiled code and of all code inside it."""
    parts = [code.co_code, repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)).encode()]
    return _joined([*parts, *map(_constant_key, code.co_consts)])


def _constant_key(constant: Any) -> bytes:
    if isinstance(constant, CodeType):
        return code_key(constant)
    if isinstance(constant, frozenset):  # its order differs from process to process
        return _joined([b"set", *sorted(map(_constant_key, constant))])
    if isinstance(constant, tuple):
        return _joined([b"tuple", *map(_constant_key, constant)])
    return _joined([type(constant).__name__.encode(), repr(constant).encode()])


def _joined(parts: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.digest()


def nested(code: CodeType) -> Iterator[CodeType]:
    """The code and all code inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def functions_behind(member: Any) -> Iterator[Any]:
    """The functions that a member of a class is made of: itself, or those that a descriptor or a decorator wraps."""
    if isinstance(member, FunctionType):
        yield member
    if isinstance(member, property):
        yield from (part for part in (member.fget, member.fset, member.fdel) if part is not None)
    elif isinstance(member, functools.cached_property):
        yield member.func
    elif hasattr(member, "__wrapped__"):
        yield from functions_behind(member.__wrapped__)
    elif isinstance(member, (staticmethod, classmethod)):
        yield from functions_behind(member.__func__)


class Fingerprint:
    """The hash of values and of all that they refer to; values are added one after the other.

    >>> def key(value: object) -> str:
    ...     fingerprint = Fingerprint(lambda module: False)
    ...     fingerprint.add(value)
    ...     return fingerprint.hexdigest()
    >>> key({"a": [3], "b": {"x", "y"}}) == key({"a": [3], "b": {"y", "x"}}), key([1]) == key([2])
    (True, False)
    """

    def __init__(self, own: Callable[[str], bool]):
        """Begin with nothing; `own` tells whether a module is the author's own."""
        self._own = own
        self._digest = hashlib.sha256()
        self._seen: dict[int, int] = {}  # the order in which objects were met, by their ids
        self._kept: list[Any] = []  # keeps objects alive: the id of one that is gone could be given to another
        self.modules: set[str] = set()  #: the author's own modules that were met, and whose text decides too
        self.unknown: list[str] = []  #: the types of objects whose content could not be read

    def hexdigest(self) -> str:
        """The hash of all that was added."""
        return self._digest.hexdigest()

    def add(self, value: Any) -> None:
        """Add a value."""
        self._write(type(value).__name__)
        if isinstance(value, _PLAIN):
            self._write(repr(value))
        elif isinstance(value, np.generic) or type(value) is np.ndarray:
            self._add_array(np.asarray(value))
        elif isinstance(value, tuple):
            self._add_all(value)
        elif isinstance(value, CodeType):
            self._digest.update(code_key(value))
        elif isinstance(value, ModuleType):
            self._add_module(value.__name__)
        elif isinstance(value, type(MISSING)):
            pass  # the type says all; a class that was sent to a worker process has a MISSING of its own
        elif id(value) in self._seen:
            self._write(f"again {self._seen[id(value)]}")
        else:
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
            self._add_object(value)

    def _write(self, text: str) -> None:
        self._digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())

    def _add_all(self, values: Iterable[Any]) -> None:
        several = list(values)
        self._write(str(len(several)))
        for value in several:
            self.add(value)

    def _add_array(self, array: np.ndarray[Any, Any]) -> None:
        self._write(f"{array.dtype}{array.shape}")
        if array.dtype.hasobject:
            self._add_all(array.ravel().tolist())
        else:
            self._digest.update(hashlib.sha256(array.tobytes()).digest())

    def _add_module(self, name: str) -> None:
        self._write(name)
        if name != "__main__" and self._own(name):
            self.modules.add(name)

    def _add_object(self, value: Any) -> None:
        if isinstance(value, list):
            self._add_all(value)
        elif isinstance(value, dict):
            self._add_all(value.items())
        elif isinstance(value, (set, frozenset)):
            self._add_unordered(value)
        elif isinstance(value, (type, FunctionType)) and self._is_elsewhere(value):
            self._add_module(value.__module__)
            self._write(value.__qualname__)
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, FunctionType):
            self._add_function(value)
        elif isinstance(value, (MethodType, BuiltinFunctionType)):
            self._write(value.__name__)
            self.add(value.__self__)
        elif isinstance(value, np.ufunc):
            self._write(value.__name__)
        elif isinstance(value, functools.partial):
            self.add((value.func, value.args, value.keywords))
        elif behind := list(functions_behind(value)):
            self._add_all(behind)
        else:
            self._add_instance(value)

    def _add_unordered(self, values: Iterable[Any]) -> None:
        """Add values whose order is not the same in every process, or does not matter."""
        keys = []
        for value in values:
            alone = Fingerprint(self._own)
            alone._seen, alone.modules, alone.unknown = dict(self._seen), self.modules, self.unknown
            alone.add(value)
            keys.append(alone.hexdigest())
        self._write(" ".join(sorted(keys)))

    def _is_elsewhere(self, value: Any) -> bool:
        """Whether a class or a function is found by its name in a module that worker processes import too."""
        found: Any = sys.modules.get(value.__module__ or "")
        if found is None or value.__module__ == "__main__":
            return False
        for name in value.__qualname__.split("."):
            found = vars(found).get(name) if hasattr(found, "__dict__") else None
        return found is value or not self._own(value.__module__)

    def _add_class(self, value: type) -> None:
        self._write(value.__name__)  # a class that was sent to a worker process has lost its __qualname__
        self._add_all(value.__bases__)
        if is_dataclass(value):
            self._add_all((one.name, one.default, one.default_factory) for one in fields(value))
        for name, member in sorted(vars(value).items()):
            of_python = name in _BY_PYTHON or (name.startswith("__") and name.endswith("__"))
            behind = list(functions_behind(member))
            inherited = next((vars(base)[name] for base in value.__mro__[1:] if name in vars(base)), value)
            # A value that is the inherited one is not sent to worker processes, where it is inherited again.
            if member is inherited or (of_python and not behind) or any(map(_is_generated, behind)):
                continue
            if not behind and _is_place(member):
                continue
            self._write(name)
            self.add(member)

    def _add_function(self, function: FunctionType) -> None:
        """Add a function: its code, its defaults, what it encloses, imports, and names in its own module."""
        self.add((function.__code__, function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                self.add(cell.cell_contents)
            except ValueError:  # a cell that is still empty
                self._write("empty")
        for name in _global_names(function.__code__):
            if name in function.__globals__:
                self._write(name)
                self.add(function.__globals__[name])
        for name in _imported_names(function.__code__):
            self._add_module(name)
        if hasattr(function, "__wrapped__"):
            self.add(function.__wrapped__)

    def _add_instance(self, value: Any) -> None:
        kind = type(value)
        if _is_place(value):
            return
        self.add(kind)
        if is_dataclass(kind):
            self._add_all((one.name, getattr(value, one.name, None)) for one in fields(kind))
        elif self._own(kind.__module__) and hasattr(value, "__dict__"):
            self._add_unordered(vars(value).items())
        else:
            self.unknown.append(f"{kind.__module__}.{kind.__qualname__}")


@cache
def _global_names(code: CodeType) -> tuple[str, ...]:
    steps = (step for one in nested(code) for step in dis.get_instructions(one))
    return tuple(dict.fromkeys(step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")))


@cache
def _imported_names(code: CodeType) -> tuple[str, ...]:
    """The modules that code imports; names that it takes from a module may be modules themselves."""
    names, module = [], ""
    for one in nested(code):
        for step in dis.get_instructions(one):
            if step.opname == "IMPORT_NAME":
                module = step.argval
                names.append(module)
            elif step.opname == "IMPORT_FROM":
                names.append(f"{module}.{step.argval}")
    return tuple(dict.fromkeys(names))


def _is_place(member: Any) -> bool:
    """Whether a member of a class is a slot, or a field of a named tuple; classes lose slots on the way to a worker."""
    # Fields of named tuples come from "collections" since Python 3.12.
    return inspect.isdatadescriptor(member) and type(member).__module__ in ("builtins", "_collections", "collections")


def _is_generated(function: Any) -> bool:
    """Whether `dataclass` wrote a function; the fields of the class say all that it does."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is not None and code.co_qualname.startswith("__create_fn__")
