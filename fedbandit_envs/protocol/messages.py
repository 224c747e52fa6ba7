"""What crosses between agents and server: named arrays, immutable, that know what sending them costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import BoolArray, IntArray, immutable
from fedbandit_envs.protocol.plans import ProtocolError

State = dict[str, Any]  # plain arrays, numbers, strings and None, by name


def _empty() -> Mapping[str, BoolArray]:
    return MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Message:
    """What crosses between agents and server; immutable.

    With `agents`, the first axis of every array has one row for each of them; `agents=None` is a broadcast to all. A
    mask in `present` (over leading axes of the array of that name) says which entries are really sent: the others are
    free, and are wiped so that nothing crosses unseen. Scalars are counted from what is present.
    """

    kind: str
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    agents: IntArray | None = None  # (n,)
    present: Mapping[str, BoolArray] = field(default_factory=_empty)
    costs: tuple[tuple[BoolArray | None, int, int, int], ...] = field(init=False, repr=False)
    """For each array its mask, if anything is left out, the scalars of each of the mask's entries (or else of each of
    `agents`), those of all together, and the bytes of a scalar."""

    def __post_init__(self) -> None:
        fields, agents = self.__dict__, self.agents  # written to directly, because a frozen class can't be otherwise
        if not isinstance(self.kind, str):
            raise ProtocolError(f"message: expected a text for its kind, got {self.kind!r}; name what it says")
        for name, part in (("arrays", self.arrays), ("present", self.present)):
            if type(part) is not dict and not isinstance(part, Mapping):
                raise ProtocolError(
                    f"message {self.kind!r}: expected {name} as a dict from names to arrays, got "
                    f"{type(part).__name__}; write {{'theta': array}}"
                )
        if agents is not None:
            agents = fields["agents"] = self._own_numbers(agents)
        masks = {name: _frozen(np.array(mask)) for name, mask in self.present.items()}
        arrays: dict[str, NDArray[Any]] = {}
        costs: list[tuple[BoolArray | None, int, int, int]] = []
        masked = 0
        rows = 1 if agents is None else max(len(agents), 1)
        for name, given in self.arrays.items():
            array, mask = np.asarray(given), masks.get(name)
            if array.dtype.kind not in "biuf" or (agents is not None and array.shape[:1] != agents.shape):
                raise self._wrong_array(name, array)
            kept = 0
            if mask is not None:
                masked += 1
                if mask.dtype.kind != "b" or not mask.ndim or mask.shape != array.shape[: mask.ndim]:
                    raise self._wrong_mask(name, mask, array.shape)
                kept = int(np.count_nonzero(mask))
            if mask is None or kept == mask.size:
                arrays[name] = _frozen(np.array(array))
                costs.append((None, array.size // rows, array.size, array.itemsize))
            else:
                arrays[name] = _frozen(_wiped(array, mask))
                each = array.size // mask.size
                costs.append((mask, each, each * kept, array.itemsize))
        if masked < len(masks):
            stray = next(name for name in masks if name not in arrays)
            raise self._wrong_mask(stray, masks[stray], None)
        fields["arrays"], fields["present"] = MappingProxyType(arrays), MappingProxyType(masks)
        fields["costs"] = tuple(costs)

    def _own_numbers(self, agents: IntArray) -> IntArray:
        if isinstance(agents, np.ndarray) and agents.ndim == 1 and agents.dtype == np.int64:
            return immutable(agents)
        agents = np.asarray(agents)
        if agents.dtype.kind not in "iu" and agents.size:
            raise ProtocolError(
                f"message {self.kind!r}: expected the numbers of its agents, got {agents.dtype}; a mask becomes "
                "numbers by view.agents[mask]"
            )
        if agents.ndim != 1:
            raise ProtocolError(
                f"message {self.kind!r}: expected agents of shape (n,), got {agents.shape}; pass their numbers"
            )
        return immutable(agents.astype(np.int64, copy=False))

    def _wrong_array(self, name: str, array: NDArray[Any]) -> ProtocolError:
        if array.dtype.kind not in "biuf":
            return ProtocolError(
                f"message {self.kind!r}, {name}: expected numbers, got an array of {array.dtype}; send numbers only"
            )
        assert self.agents is not None
        return ProtocolError(
            f"message {self.kind!r}, {name}: expected one row for each of its {len(self.agents)} agents, got "
            f"shape {array.shape}; put the agents first"
        )

    def _wrong_mask(self, name: str, mask: NDArray[Any], shape: tuple[int, ...] | None) -> ProtocolError:
        if shape is None:
            return ProtocolError(
                f"message {self.kind!r}, present[{name!r}]: expected a mask over one of its arrays, got one for "
                f"{name!r}, which is not among them; a mask has the name of its array"
            )
        return ProtocolError(
            f"message {self.kind!r}, present[{name!r}]: expected True or False over leading axes of an array "
            f"of that name, got {mask.dtype} of shape {mask.shape} for shape {shape}; pass booleans that fit"
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
        """The part that belongs to some of its agents, given by position."""
        if self.agents is None:
            return self
        arrays = {name: array[index] for name, array in self.arrays.items()}
        return Message(
            self.kind, arrays, self.agents[index], {name: mask[index] for name, mask in self.present.items()}
        )

    def for_agents(self, agents: IntArray) -> "Message | None":
        """The part for these agents, in their order; all of a broadcast. The rows must be sorted by agent."""
        if self.agents is None:
            return self
        if not len(self.agents):
            return None
        if self.agents is agents or np.array_equal(self.agents, agents):
            return self
        position = np.searchsorted(self.agents, agents).clip(max=len(self.agents) - 1)
        mine = position[self.agents[position] == agents]
        return self.rows(mine) if len(mine) else None

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
        """The message of a `tree`."""
        return cls(tree["kind"], tree.get("arrays", {}), tree["agents"], tree.get("present", {}))

    def scalars(self) -> IntArray:
        """Entries present: one number for each agent of `agents`, or a single one for a broadcast."""
        return self._summed([1] * len(self.costs))

    def bytes(self) -> IntArray:
        """Scalars times the size of each, in the same form."""
        return self._summed([size for *_, size in self.costs])

    def _summed(self, worth: list[int]) -> IntArray:
        rows = 1 if self.agents is None else len(self.agents)
        total: IntArray = np.zeros(rows, dtype=np.int64)
        for (mask, each, _, _), scalar in zip(self.costs, worth, strict=True):
            total += each * scalar if mask is None else each * scalar * in_rows(mask, rows)
        return total


def in_rows(counts: NDArray[Any], rows: int) -> IntArray:
    """(rows,) sums over all other axes, of what is there for each row."""
    return np.asarray(np.add.reduce(counts.reshape(rows, -1), axis=1, dtype=np.int64))


def _wiped(array: NDArray[Any], mask: BoolArray) -> NDArray[Any]:
    """A copy with zeros where the mask over its leading axes says so."""
    if array.ndim > mask.ndim:  # numpy is slow where the last axis is short and its mask is not there
        mask = mask.reshape(-1).repeat(array.size // max(mask.size, 1)).reshape(array.shape)
    return np.where(mask, array, array.dtype.type(0))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
