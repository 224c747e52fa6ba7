"""Computations over all agents, whether these are in one process or spread over several.

A function that computes for some agents, and needs all of them now and then, is a generator. Where it needs them it
yields a `Joint`, and is given the answer. In one process `alone` answers at once. Over shards the driver of the run
gathers what the generators of all shards have yielded, and answers them all.
"""

from collections.abc import Callable, Generator, Iterable
from functools import reduce
from operator import add
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import FloatArray, row_groups

_Found = TypeVar("_Found")
_Scalar = TypeVar("_Scalar", bound=np.generic)


class Joint(NamedTuple):
    """A question to all agents: `function(parts, *common)`, with the parts of all processes in the order of agents."""

    function: Callable[..., Any]  #: a function of a module, so that it can be sent; it runs once for all
    parts: Iterable[Any]  #: the parts of these agents; an iterator frees the memory of those that were read
    common: tuple[Any, ...] = ()  #: further arguments, which are the same in all processes
    each: bool = False  #: whether the function returns a list with an answer for each part; else it has one for all


Jointly = Generator[Joint, Any, _Found]


def alone(computing: Jointly[_Found]) -> _Found:
    """What a computation finds when its agents are all there are.

    >>> alone(sum_jointly(lambda rows: np.ones((5000, 2))[rows].sum(axis=0), 5000))
    array([5000., 5000.])
    """
    try:
        joint = next(computing)
        while True:
            joint = computing.send(joint.function(joint.parts, *joint.common))
    except StopIteration as end:
        found: _Found = end.value
        return found


def sum_jointly(function: Callable[[slice], FloatArray], number: int) -> Jointly[FloatArray]:
    """The sum of what `function` gives for each group of rows, of these `number` agents and then of all others.

    Groups are added in their order, so that the sum is the same bit for bit however the groups are spread.
    """
    total: FloatArray = yield Joint(summed, map(function, row_groups(number)))
    return total


def summed(parts: Iterable[Any]) -> Any:
    """The sum of some parts, in their order.

    >>> summed(iter([1, 2, 3]))
    6
    """
    return reduce(add, parts)


def joined(parts: Iterable[NDArray[_Scalar]]) -> NDArray[_Scalar]:
    """The rows of all parts; a single part is returned as it is.

    >>> joined([np.ones((2, 1)), np.zeros((1, 1))]).shape
    (3, 1)
    """
    listed = list(parts)
    return listed[0] if len(listed) == 1 else np.concatenate(listed)
