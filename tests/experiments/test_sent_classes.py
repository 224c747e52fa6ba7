"""A class that no other process can import has the same hash in a worker to which it was sent."""

import enum
import functools
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pytest
from experiment_policies import OneArm

import fedbandit_envs as fb
from fedbandit_agents import from_callable
from fedbandit_envs.experiments.code import code_digest

LIST, SET, ARRAY = [0], {"x", "y", "z"}, np.arange(3)


def used(rows: Any, share: float = 0.5) -> Any:
    return [rows, share, SET]


def wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    return wrapper


def sent_classes() -> dict[str, type]:
    """Classes that no other process can import."""
    kept = [1, 2]
    part = functools.partial(used, share=0.25)

    class Plain(OneArm):
        """As short as can be."""

    class Color(enum.Enum):
        RED = 1

    class Pair(NamedTuple):
        first: int
        second: float = 2.0

    class Slots:
        __slots__ = ("first",)

        def __init__(self) -> None:
            self.first = 1

    @dataclass(frozen=True)
    class Table:
        size: int = 3
        rows: list[int] = field(default_factory=lambda: [1, 2])

    table = Table()

    @dataclass(frozen=True)
    class Closes(OneArm):
        share: float = 0.5
        function = staticmethod(lambda rows: [rows, kept])
        color = Color.RED

        @wrapped
        def agents(self, view: fb.View) -> Any:
            assert view is not None, "pytest writes this line anew"
            return [super().agents(view), part, used, LIST, [ARRAY for _ in LIST if (lambda: kept)()], self.half]

        @property
        def half(self) -> Any:
            return Pair(1), Slots(), table, np.linalg.norm, self.share in {"p", "q", "r"}

    class Inherits(Closes):
        def later(self) -> Any:
            import json

            return json, Closes, Color

    made = {"lambda": lambda rows: rows @ ARRAY + kept[0], "partial": functools.partial(used), "function": used}
    from_functions = {name: type(from_callable(function, version="1")) for name, function in made.items()}
    return {"plain": Plain, "closes": Closes, "inherits": Inherits, **from_functions}


def digest_of_sent(content: bytes) -> str:
    """In a worker."""
    return code_digest(pickle.loads(content))


def test_a_class_has_the_same_hash_in_a_worker_to_which_it_was_sent() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as worker:
        for name, one in sent_classes().items():
            there = worker.submit(digest_of_sent, cloudpickle.dumps(one)).result()
            assert (name, there) == (name, code_digest(one))


@pytest.mark.parametrize("how", ["closes", "lambda"])
def test_what_a_class_encloses_is_part_of_its_hash(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_digest(sent_classes()[how])
    assert code_digest(sent_classes()[how]) == before
    monkeypatch.setitem(globals(), "ARRAY", np.arange(4))
    assert code_digest(sent_classes()[how]) != before
