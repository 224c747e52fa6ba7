"""What crosses between agents and server: named arrays, immutable, that know what sending them costs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import BoolArray, IntArray, immutable, read_only, short_repr
from fedbandit_envs.protocol.plans import ProtocolError

State = dict[str, Any]  # plain arrays, numbers, strings and None, by name


class Cost(NamedTuple):
    """What sending one array costs.

    >>> Message("theta", {"theta": np.zeros((3, 2))}).costs[0].scalars
    6
    """

    mask: BoolArray | None  #: which entries are sent; None: all of them
    scalars_per_entry: int  #: scalars of each entry of the mask or, without one, of each row
    scalars: int  #: scalars of the whole array
    itemsize: int  #: bytes of one scalar


def _empty() -> Mapping[str, BoolArray]:
    """The default of `present`: no masks."""
    return MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Message:
    """What crosses between agents and server: arrays by name, which nobody can change once they are sent.

    With `agents`, the first axis of every array has one row for each of them; `agents=None` is a broadcast to all. A
    mask in `present` (over leading axes of the array of that name) says which entries are really sent: the others cost
    nothing, and are set to 0 so that nothing crosses unseen. Copies and pickles are as immutable as the message itself.

    >>> up = Message("means", {"means": np.array([[0.5, 9.0], [0.2, 0.4]])}, agents=np.array([3, 7]),
    ...              present={"means": np.array([[True, False], [True, True]])})
    >>> up["means"]
    array([[0.5, 0. ],
           [0.2, 0.4]])
    >>> up.scalars()
    array([1, 2])
    """

    kind: str  #: what the message says, in a word
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)  #: what is sent, by name
    agents: IntArray | None = None  #: (n,) the agents that the rows belong to; None: a broadcast to all
    present: Mapping[str, BoolArray] = field(default_factory=_empty)  #: masks of what is really sent, by array
    costs: tuple[Cost, ...] = field(init=False, repr=False)  #: what each array costs, in the order of `arrays`

    __repr__ = short_repr

    def __post_init__(self) -> None:
        self._complete(copied=True)

    @classmethod
    def of_own(
        cls,
        kind: str,
        arrays: Mapping[str, NDArray[Any]],
        agents: IntArray | None,
        present: Mapping[str, BoolArray] | None = None,
    ) -> "Message":
        """A message of arrays that were just made for it, and that nobody else will write to: they are not copied.

        Many agents send much at a time, and a second copy of it would take most of the memory of a run.

        >>> sums = np.arange(2.0)
        >>> np.shares_memory(Message.of_own("sums", {"sums": sums}, np.arange(2))["sums"], sums), sums.flags.writeable
        (True, False)
        """
        message = object.__new__(cls)
        given = {"kind": kind, "arrays": arrays, "agents": agents, "present": {} if present is None else present}
        for name, value in given.items():
            object.__setattr__(message, name, value)
        message._complete(copied=False)
        return message

    def _complete(self, *, copied: bool) -> None:
        """Check everything, make it read-only, and find out what it costs."""
        self._check_types()
        if self.agents is not None:
            object.__setattr__(self, "agents", self._own_numbers(self.agents))
        masks = {name: read_only(np.array(mask)) for name, mask in self.present.items()}
        arrays, costs = {}, []
        for name, given in self.arrays.items():
            arrays[name], cost = self._own_array(name, np.asarray(given), masks.get(name), copied)
            costs.append(cost)
        for name in masks:
            if name not in arrays:
                raise self._wrong_mask(name, masks[name], None)
        object.__setattr__(self, "arrays", MappingProxyType(arrays))
        object.__setattr__(self, "present", MappingProxyType(masks))
        object.__setattr__(self, "costs", tuple(costs))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy and a pickle are made anew from plain parts, so that a copy is immutable too."""
        return type(self), (self.kind, dict(self.arrays), self.agents, dict(self.present))

    def _check_types(self) -> None:
        """Refuse a kind that is no text, and arrays without names."""
        if not isinstance(self.kind, str):
            raise ProtocolError(f"message: expected a text for its kind, got {self.kind!r}")
        for name, part in (("arrays", self.arrays), ("present", self.present)):
            if type(part) is not dict and not isinstance(part, Mapping):
                raise ProtocolError(
                    f"message {self.kind!r}: expected {name} as a dict from names to arrays, got "
                    f"{type(part).__name__}; write {{'theta': array}}"
                )

    def _own_array(
        self, name: str, array: NDArray[Any], mask: BoolArray | None, copied: bool
    ) -> tuple[NDArray[Any], Cost]:
        """A read-only array, which may be a copy, wiped where its mask says so, and what sending it costs."""
        agents = self.agents
        if array.dtype.kind not in "biuf" or (agents is not None and array.shape[:1] != agents.shape):
            raise self._wrong_array(name, array)
        if mask is not None:
            if mask.dtype.kind != "b" or not mask.ndim or mask.shape != array.shape[: mask.ndim]:
                raise self._wrong_mask(name, mask, array.shape)
            sent = int(np.count_nonzero(mask))
            if sent < mask.size:
                each = array.size // mask.size
                return read_only(_wiped(array, mask, copied)), Cost(mask, each, each * sent, array.itemsize)
        rows = 1 if agents is None else max(len(agents), 1)
        array = np.array(array) if copied else array
        return read_only(array), Cost(None, array.size // rows, array.size, array.itemsize)

    def _own_numbers(self, agents: IntArray) -> IntArray:
        """The numbers of the agents as an immutable array of 64 bits."""
        if isinstance(agents, np.ndarray) and agents.ndim == 1 and agents.dtype == np.int64:
            return immutable(agents)
        agents = np.asarray(agents)
        if agents.dtype.kind not in "iu" and agents.size:
            raise ProtocolError(
                f"message {self.kind!r}: expected the numbers of its agents, got {agents.dtype}; a mask becomes "
                "numbers by view.agents[mask]"
            )
        if agents.ndim != 1:
            raise ProtocolError(f"message {self.kind!r}: expected agents of shape (n,), got {agents.shape}")
        return immutable(agents.astype(np.int64, copy=False))

    def _wrong_array(self, name: str, array: NDArray[Any]) -> ProtocolError:
        """The error that says what is wrong with an array."""
        if array.dtype.kind not in "biuf":
            return ProtocolError(f"message {self.kind!r}, {name}: expected numbers, got an array of {array.dtype}")
        assert self.agents is not None
        return ProtocolError(
            f"message {self.kind!r}, {name}: expected one row for each of its {len(self.agents)} agents, got "
            f"shape {array.shape}; put the agents first"
        )

    def _wrong_mask(self, name: str, mask: NDArray[Any], shape: tuple[int, ...] | None) -> ProtocolError:
        """The error that says what is wrong with a mask; `shape` is that of its array, None if there is none."""
        if shape is None:
            return ProtocolError(
                f"message {self.kind!r}, present[{name!r}]: expected a mask over one of its arrays, got one for "
                f"{name!r}, which is not among them; a mask has the name of its array"
            )
        return ProtocolError(
            f"message {self.kind!r}, present[{name!r}]: expected True or False over leading axes of an array "
            f"of that name, got {mask.dtype} of shape {mask.shape} for shape {shape}"
        )

    def __getitem__(self, name: str) -> NDArray[Any]:
        try:
            return self.arrays[name]
        except KeyError:
            raise ProtocolError(
                f"message {self.kind!r}: expected an array {name!r}, got {', '.join(self.arrays) or 'none'}; the other "
                "side has to send it"
            ) from None

    def rows(self, index: IntArray | BoolArray) -> "Message":
        """The part of the agents with these positions (or of those where a mask is True); a broadcast stays whole."""
        if self.agents is None:
            return self
        arrays = {name: array[index] for name, array in self.arrays.items()}
        present = {name: mask[index] for name, mask in self.present.items()}
        return Message.of_own(self.kind, arrays, self.agents[index], present)

    def for_agents(self, agents: IntArray) -> "Message | None":
        """The part for these agents, in their order, or None if there is none; a broadcast stays whole.

        Args:
            agents: the numbers of the agents. The rows of the message must be sorted by agent.
        """
        if self.agents is None:
            return self
        if not len(self.agents):
            return None
        if self.agents is agents or np.array_equal(self.agents, agents):
            return self
        position = np.searchsorted(self.agents, agents).clip(max=len(self.agents) - 1)
        mine = position[self.agents[position] == agents]
        return self.rows(mine) if len(mine) else None

    def for_nobody(self) -> "Message":
        """The part for none of the agents: it says that something has arrived for others."""
        return Message(self.kind, {}, np.empty(0, dtype=np.int64))

    def tree(self) -> State:
        """The message as plain arrays, for storage."""
        return {
            "kind": self.kind,
            "arrays": dict(self.arrays),
            "agents": self.agents,
            "present": dict(self.present),
        }

    @classmethod
    def from_tree(cls, tree: State) -> "Message":
        """The message that `tree` made plain."""
        return cls(tree["kind"], tree.get("arrays", {}), tree["agents"], tree.get("present", {}))

    def scalars(self) -> IntArray:
        """How many numbers are sent: (n,) for each of `agents`, or (1,) for a broadcast."""
        return summed_over_rows(self.costs, self._num_rows)[0]

    def bytes(self) -> IntArray:
        """How many bytes are sent: (n,) for each of `agents`, or (1,) for a broadcast."""
        return summed_over_rows(self.costs, self._num_rows)[1]

    @property
    def _num_rows(self) -> int:
        return 1 if self.agents is None else len(self.agents)


def summed_over_rows(costs: Iterable[Cost], rows: int) -> tuple[IntArray, IntArray]:
    """The numbers of scalars and of bytes, each (rows,), that each row of a message with these costs sends."""
    scalars: IntArray = np.zeros(rows, dtype=np.int64)
    sizes: IntArray = np.zeros(rows, dtype=np.int64)
    for cost in costs:
        sent: IntArray | int = cost.scalars_per_entry
        if cost.mask is not None:
            sent = sent * np.add.reduce(cost.mask.reshape(rows, -1), axis=1, dtype=np.int64)
        scalars += sent
        sizes += sent * cost.itemsize
    return scalars, sizes


def _wiped(array: NDArray[Any], mask: BoolArray, copied: bool) -> NDArray[Any]:
    """The array, or a copy, with zeros where the mask over its leading axes is False."""
    sent, nothing = mask.reshape(mask.shape + (1,) * (array.ndim - mask.ndim)), array.dtype.type(0)
    if copied:
        return np.where(sent, array, nothing)
    np.copyto(array, nothing, where=~sent)
    return array
