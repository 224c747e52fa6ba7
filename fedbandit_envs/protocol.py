"""The contract between policies and the world: values that cross, and the two sides of a policy.

Four verbs in one direction: `server.answer(up) -> down`, `agents.plan(down, remaining) -> plan`,
`env.pull(plan) -> feedback`, `agents.report(feedback) -> up`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.knowledge import Constants, View
from fedbandit_envs.validation import BoolArray, FloatArray, IntArray

State = dict[str, Any]  # plain arrays, numbers, strings and None, by name


class ProtocolError(ValueError):
    """A policy broke the contract."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What n agents do next: `explore` pulls in the order of the arms, then `arm`, until `length` steps have passed."""

    explore: IntArray  # (n, K) pulls
    arm: IntArray  # (n,) played once exploration is done
    length: int  # steps, the same for all
    _checked: ClassVar[bool] = False  # see `joint`

    @classmethod
    def play(cls, arm: IntArray, num_arms: int, length: int = 1) -> "Plan":
        """Every agent plays its `arm` for `length` steps."""
        return cls(np.zeros((len(arm), num_arms), dtype=np.int64), arm, length)

    @classmethod
    def explore_each(cls, pulls: int, num_agents: int, num_arms: int) -> "Plan":
        """Every agent pulls each arm `pulls` times."""
        explore = np.full((num_agents, num_arms), pulls, dtype=np.int64)
        return cls(explore, np.zeros(num_agents, dtype=np.int64), pulls * num_arms)

    @classmethod
    def wait(cls, num_agents: int, num_arms: int) -> "Plan":
        """No pull: a round that only exchanges messages."""
        return cls.play(np.zeros(num_agents, dtype=np.int64), num_arms, 0)

    @classmethod
    def joint(cls, explore: IntArray, arm: IntArray, length: int) -> "Plan":
        """A plan put together from checked ones, in arrays that nobody else has: it is not checked again."""
        plan = cls(explore, arm, length)
        plan.__dict__["_checked"] = True  # of this object alone: no field, so that a changed copy is checked
        return plan

    @property
    def exploration(self) -> IntArray:
        """(n,) pulls before `arm`."""
        return np.add.reduce(self.explore, axis=1)

    def as_int64(self) -> "Plan":
        """The plan in numbers of 64 bits, in which pulls can be added up; itself if it has them already."""
        if self.explore.dtype == self.arm.dtype == np.int64:
            return self
        return Plan(self.explore.astype(np.int64), self.arm.astype(np.int64), self.length)

    def cut(self, remaining: int) -> "Plan":
        """The plan within `remaining` steps: the exploitation goes first, then exploration of the last arms."""
        if self.length <= remaining:
            return self
        ends = self.explore.cumsum(axis=1).clip(max=remaining)
        return Plan(np.diff(ends, axis=1, prepend=0), self.arm, remaining)

    def rows(self, index: IntArray) -> "Plan":
        """The plan of these agents."""
        return Plan(self.explore[index], self.arm[index], self.length)

    def check(self, num_agents: int, num_arms: int) -> None:
        """Raise a ProtocolError that names what is wrong, if anything is."""
        if self._checked:
            return
        expected = (num_agents, num_arms)
        for name, array, shape in (("explore", self.explore, expected), ("arm", self.arm, expected[:1])):
            if not isinstance(array, np.ndarray) or array.shape != shape:
                raise ProtocolError(
                    f"plan.{name}: expected an array of shape {shape}, got {type(array).__name__} of shape "
                    f"{np.shape(array)}; one row for each agent of the block"
                )
            if array.dtype.kind not in "iu":
                raise ProtocolError(f"plan.{name}: expected whole numbers, got {array.dtype}; use .astype(np.int64)")
        if isinstance(self.length, bool) or not isinstance(self.length, (int, np.integer)) or self.length < 0:
            raise ProtocolError(
                f"plan.length: expected a whole number of at least 0, got {self.length!r}; 0 is a round without pulls"
            )
        if np.count_nonzero(self.explore):
            self._check_exploration()
        # What is below 0 becomes huge. A plan without steps needs an arm too: others may have longer ones.
        if np.maximum.reduce(self.arm.astype(np.uint64, copy=False)) >= num_arms:
            raise ProtocolError(
                f"plan.arm: expected arms from 0 to {num_arms - 1}, got {self.arm.min()} to {self.arm.max()}; arms "
                "count from 0"
            )

    def _check_exploration(self) -> None:
        if self.explore.min() < 0:
            raise ProtocolError(
                f"plan.explore: expected counts of at least 0, got {self.explore.min()}; clip them at 0"
            )
        most = max(int(self.explore.max()), int(np.maximum.reduce(self.exploration)))  # a sum can overflow
        if most > self.length:
            raise ProtocolError(
                f"plan.explore: expected at most length = {self.length} pulls, got {most}; raise length or explore less"
            )


@dataclass(frozen=True, eq=False)
class Feedback:
    """What was really pulled, and the sums of the rewards; exploration and exploitation apart."""

    explored: IntArray  # (n, K) pulls
    explored_sums: FloatArray  # (n, K) of their rewards
    arm: IntArray  # (n,)
    played: IntArray  # (n,) pulls of `arm` after exploration
    played_sums: FloatArray  # (n,) of their rewards

    @classmethod
    def of_no_pulls(cls, plan: Plan) -> "Feedback":
        """What a plan without steps brings."""
        none = np.zeros(len(plan.arm), dtype=np.int64)
        return cls(plan.explore, np.zeros(plan.explore.shape), plan.arm, none, none.astype(np.float64))

    def rows(self, index: IntArray) -> "Feedback":
        """The feedback of these agents."""
        return Feedback(
            self.explored[index],
            self.explored_sums[index],
            self.arm[index],
            self.played[index],
            self.played_sums[index],
        )

    def pulls(self) -> IntArray:
        """(n, K) all pulls, of both kinds."""
        return self._with_played(self.explored, self.played)

    def sums(self) -> FloatArray:
        """(n, K) sums of all rewards, of both kinds."""
        return self._with_played(self.explored_sums, self.played_sums)

    def _with_played(self, explored: NDArray[Any], played: NDArray[Any]) -> NDArray[Any]:
        total = explored.copy()
        total[np.arange(len(total)), self.arm] += played
        return total


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
    costs: tuple[tuple[int | IntArray, int], ...] = field(init=False, repr=False)
    """For each array the scalars of each agent of `agents`, one number where they are alike, and a scalar's bytes."""

    def __post_init__(self) -> None:
        if self.agents is not None:
            agents = np.asarray(self.agents)
            if agents.dtype.kind not in "iu" and agents.size:
                raise ProtocolError(
                    f"message {self.kind!r}: expected the numbers of its agents, got {agents.dtype}; a mask becomes "
                    "numbers by view.agents[mask]"
                )
            object.__setattr__(self, "agents", _frozen(np.array(agents, dtype=np.int64)))
        arrays, masks = dict(self.arrays), dict(self.present)
        for name, mask in masks.items():
            masks[name] = _frozen(np.array(mask))
        for name, array in arrays.items():
            arrays[name] = np.asarray(array)
        self._check(arrays, masks)
        costs: list[tuple[int | IntArray, int]] = []
        rows = 1 if self.agents is None else max(len(self.agents), 1)
        for name, array in arrays.items():
            present = masks.get(name)
            entries: int | IntArray = array.size // rows
            if present is not None and (sent := int(np.count_nonzero(present))) < present.size:
                array = _wiped(array, present)
                each = array.size // present.size
                entries = sent * each
                if rows > 1:
                    entries = _frozen(each * np.add.reduce(present.reshape(rows, -1), axis=1))
            else:
                array = np.array(array)
            arrays[name] = _frozen(array)
            costs.append((entries, array.itemsize))
        object.__setattr__(self, "arrays", MappingProxyType(arrays))
        object.__setattr__(self, "present", MappingProxyType(masks))
        object.__setattr__(self, "costs", tuple(costs))

    def _check(self, arrays: dict[str, NDArray[Any]], masks: dict[str, NDArray[Any]]) -> None:
        if not isinstance(self.kind, str):
            raise ProtocolError(f"message: expected a text for its kind, got {self.kind!r}; name what it says")
        if self.agents is not None and self.agents.ndim != 1:
            raise ProtocolError(
                f"message {self.kind!r}: expected agents of shape (n,), got {self.agents.shape}; pass their numbers"
            )
        for name, array in arrays.items():
            if array.dtype.kind not in "biuf":
                raise ProtocolError(
                    f"message {self.kind!r}, {name}: expected numbers, got an array of {array.dtype}; send numbers only"
                )
            if self.agents is not None and array.shape[:1] != self.agents.shape:
                raise ProtocolError(
                    f"message {self.kind!r}, {name}: expected one row for each of its {len(self.agents)} agents, got "
                    f"shape {array.shape}; put the agents first"
                )
        for name, mask in masks.items():
            shape = arrays[name].shape if name in arrays else None
            if shape is None or mask.dtype.kind != "b" or not mask.ndim or mask.shape != shape[: mask.ndim]:
                raise ProtocolError(
                    f"message {self.kind!r}, present[{name!r}]: expected True or False over leading axes of an array "
                    f"of that name, got {mask.dtype} of shape {mask.shape} for shape {shape}; pass a mask that fits"
                )

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

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
        if np.array_equal(self.agents, agents):
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
        return self._summed([entries for entries, _ in self.costs])

    def bytes(self) -> IntArray:
        """Scalars times the size of each, in the same form."""
        return self._summed([entries * size for entries, size in self.costs])

    def _summed(self, costs: list[int | IntArray]) -> IntArray:
        total: IntArray = np.zeros(1 if self.agents is None else len(self.agents), dtype=np.int64)
        for cost in costs:
            total += cost
        return total


def _wiped(array: NDArray[Any], mask: BoolArray) -> NDArray[Any]:
    """A copy with zeros where the mask over its leading axes says so."""
    return np.where(mask.reshape(mask.shape + (1,) * (array.ndim - mask.ndim)), array, array.dtype.type(0))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


class Side:
    """Either side of a policy. Its state is every plain attribute: arrays, numbers, strings, None."""

    def snapshot(self) -> State:
        """The state as plain arrays and numbers."""
        state: State = {}
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                state[name] = value.copy()
            elif value is None or isinstance(value, (bool, int, float, str, np.generic)):
                state[name] = value.item() if isinstance(value, np.generic) else value
            elif not isinstance(value, (View, Constants, Policy)):
                raise ProtocolError(
                    f"{type(self).__name__}.{name}: expected a state of arrays, numbers, strings or None, got "
                    f"{type(value).__name__}; keep it as arrays, or override snapshot() and restore()"
                )
        return state

    def restore(self, state: State) -> None:
        """Take over a state; the other side of `snapshot`."""
        for name, value in state.items():
            setattr(self, name, value.copy() if isinstance(value, np.ndarray) else value)


class AgentSide(Side, ABC):
    """A block of n agents. Row i depends on row i alone, so agents can be split over processes in any way.

    That holds if the agent axis comes first and is never a matrix dimension of a product: elementwise operations, sums
    over other axes, plain `einsum`, stacked `matmul`, `solve`, `eigh` are safe; `(n, d) @ (d, d)`, `tensordot` and
    `einsum(optimize=True)` are not.
    """

    active: BoolArray | None = None  # (n, K) arms still considered, for policies that eliminate arms

    @abstractmethod
    def plan(self, down: Message | None, remaining: int) -> Plan:
        """What to do next, given the server's message; None when nothing arrived, also at the start."""

    @abstractmethod
    def report(self, feedback: Feedback) -> Message | None:
        """What to tell the server about the last plan; agents with nothing to say are left out."""


class ServerSide(Side, ABC):
    """The server. It may hear from any subset of the agents, sorted by their number."""

    @abstractmethod
    def answer(self, up: Message) -> Message | None:
        """The reply, to all or to some."""


class Policy(ABC):
    """Hyper-parameters (a frozen dataclass) and the two sides built from them.

    `observes` says what its agents must be shown: "distribution", "context" (the exact setting) or "truth".
    """

    observes: ClassVar[str] = "distribution"

    @abstractmethod
    def agents(self, view: View) -> AgentSide:
        """A new agent side for the agents of `view`."""

    def server(self, constants: Constants) -> ServerSide:
        """A new server side; the default is for policies that never send anything."""
        return SilentServer()

    def uncounted_steps(self, constants: Constants) -> int:
        """Steps at the start whose pulls are left out of the history; they end with the first plan."""
        return 0


class SilentServer(ServerSide):
    """Nobody is expected to speak to it."""

    def answer(self, up: Message) -> Message | None:
        """Refuse: an agent side that reports needs a server."""
        raise ProtocolError(
            f"report: expected None from a policy without a server, got a message {up.kind!r}; define Policy.server()"
        )
