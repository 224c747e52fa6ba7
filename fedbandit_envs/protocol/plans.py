"""What agents do between two messages, and what comes of it."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.validation import whole_number


class ProtocolError(ValueError):
    """A policy broke the contract."""


@lru_cache(maxsize=8)
def no_pulls(num_agents: int, num_arms: int) -> IntArray:
    """(n, K) zeros that plans without exploration share: they are one number, which nobody can make writable."""
    return np.broadcast_to(np.frombuffer(bytes(8), dtype=np.int64), (num_agents, num_arms))


@lru_cache(maxsize=8)
def _row_starts(num_agents: int, num_arms: int) -> IntArray:
    starts = np.arange(0, num_agents * num_arms, num_arms)
    starts.setflags(write=False)
    return starts


def places(arm: IntArray, num_arms: int) -> IntArray:
    """(..., n) where `arm` (..., n) stands in a flattened table (n, K): faster to read and write there than in rows."""
    return _row_starts(arm.shape[-1], num_arms) + arm


def _huge_below_zero(numbers: IntArray) -> NDArray[np.uint64]:
    """Whole numbers of which those below 0 become huge, so that one look at the largest tells of both ends."""
    return numbers.view(np.uint64) if numbers.dtype == np.int64 else numbers.astype(np.uint64, copy=False)


@dataclass(frozen=True, eq=False)
class Plan:
    """What n agents do next: `explore` pulls in the order of the arms, then `arm`, until `length` steps have passed."""

    explore: IntArray  # (n, K) pulls
    arm: IntArray  # (n,) played once exploration is done
    length: int  # steps, the same for all
    _private: ClassVar[bool] = False  # see `joint`

    @classmethod
    def play(cls, arm: IntArray, num_arms: int, length: int = 1) -> "Plan":
        """Every agent plays its `arm` for `length` steps."""
        return cls(no_pulls(len(arm), num_arms), arm, length)

    @classmethod
    def explore_each(cls, pulls: int, num_agents: int, num_arms: int) -> "Plan":
        """Every agent pulls each arm `pulls` times."""
        whole_number("pulls", pulls, at_least=0)
        explore = np.full((num_agents, num_arms), pulls, dtype=np.int64)
        return cls(explore, np.zeros(num_agents, dtype=np.int64), pulls * num_arms)

    @staticmethod
    @lru_cache(maxsize=8)
    def wait(num_agents: int, num_arms: int) -> "Plan":
        """No pull: a round that only exchanges messages."""
        return Plan.joint(no_pulls(num_agents, num_arms), no_pulls(num_agents, 1)[:, 0], 0)

    @classmethod
    def joint(cls, explore: IntArray, arm: IntArray, length: int) -> "Plan":
        """A plan made of checked ones, in arrays of 64 bits that it makes read-only: it is not checked again."""
        plan = cls(explore, arm, length)
        explore.setflags(write=False)
        arm.setflags(write=False)
        plan.__dict__["_private"] = True  # of this object alone: no field, so that a changed copy is checked
        return plan

    @property
    def explores(self) -> bool:
        """Whether there is any exploration in it."""
        return self.explore is not no_pulls(*self.explore.shape) and bool(np.count_nonzero(self.explore))

    @property
    def exploration(self) -> IntArray:
        """(n,) pulls before `arm`."""
        known: IntArray | None = self.__dict__.get("_exploration")
        return np.add.reduce(self.explore, axis=1) if known is None else known

    def cut(self, remaining: int) -> "Plan":
        """The plan within `remaining` steps: the exploitation goes first, then exploration of the last arms."""
        if self.length <= remaining:
            return self
        explore = self.explore.cumsum(axis=1)
        np.minimum(explore, remaining, out=explore)
        explore[:, 1:] -= explore[:, :-1].copy()
        return Plan(explore, self.arm, remaining)

    def rows(self, index: IntArray) -> "Plan":
        """The plan of these agents."""
        return Plan(self.explore[index], self.arm[index], self.length)

    def checked(self, num_agents: int, num_arms: int) -> "Plan":
        """The plan in numbers of 64 bits that are its own; itself if it is that already.

        Raises:
            ProtocolError: that names what is wrong with it.
        """
        if self._private and self.explore.shape == (num_agents, num_arms):
            return self
        self._check_form((num_agents, num_arms))
        explores = self.explores
        exploration = self._checked_exploration() if explores else None
        # A plan without steps needs an arm too: others may have longer ones.
        if np.maximum.reduce(_huge_below_zero(self.arm)) >= num_arms:
            raise ProtocolError(
                f"plan.arm: expected arms from 0 to {num_arms - 1}, got {self.arm.min()} to {self.arm.max()}; arms "
                "count from 0"
            )
        explore = self.explore.astype(np.int64) if explores else no_pulls(num_agents, num_arms)
        own = Plan.joint(explore, self.arm.astype(np.int64), int(self.length))
        own.__dict__["_exploration"] = None if exploration is None else exploration.astype(np.int64, copy=False)
        return own

    def _check_form(self, expected: tuple[int, int]) -> None:
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

    def _checked_exploration(self) -> IntArray:
        # A sum of numbers that are not below 0 can overflow.
        most = int(np.maximum.reduce(_huge_below_zero(self.explore), axis=None))
        exploration, longest = self.exploration, min(self.length, 2**63 - 1)
        if most <= longest:
            most = int(np.maximum.reduce(exploration))
        if not 0 <= most <= longest:
            if self.explore.min() < 0:
                raise ProtocolError(
                    f"plan.explore: expected counts of at least 0, got {self.explore.min()}; clip them at 0"
                )
            raise ProtocolError(
                f"plan.explore: expected at most length = {self.length} pulls, got {most}; raise length or explore less"
            )
        return exploration


@dataclass(frozen=True, eq=False)
class Feedback:
    """What was really pulled, and the sums of the rewards; exploration and exploitation apart. To be read only."""

    explored: IntArray  # (n, K) pulls
    explored_sums: FloatArray  # (n, K) of their rewards
    arm: IntArray  # (n,)
    played: IntArray  # (n,) pulls of `arm` after exploration
    played_sums: FloatArray  # (n,) of their rewards

    @classmethod
    def of_no_pulls(cls, plan: Plan) -> "Feedback":
        """What a plan without steps brings."""
        nothing = no_pulls(*plan.explore.shape)
        none = nothing[:, 0]
        return cls(nothing, nothing.view(np.float64), plan.arm, none, none.view(np.float64))

    def checked(self, plan: Plan) -> "Feedback":
        """The feedback of `plan`, read-only. A wrapper or a source of rewards may have pulled something else."""
        own = self
        if self.arm is not plan.arm or self.explored is not plan.explore:
            n, num_arms = plan.explore.shape
            own = Feedback(
                _whole("explored", self.explored, (n, num_arms)),
                self.explored_sums,
                _whole("arm", self.arm, (n,), below=num_arms),
                _whole("played", self.played, (n,)),
                self.played_sums,
            )
        for array in (own.explored, own.explored_sums, own.arm, own.played, own.played_sums):
            array.setflags(write=False)
        return own

    def rows(self, index: IntArray) -> "Feedback":
        """The feedback of these agents."""
        whole = (self.explored, self.explored_sums, self.arm, self.played, self.played_sums)
        part: list[NDArray[Any]] = [array[index] for array in whole]
        for array in part:
            array.setflags(write=False)
        return Feedback(*part)

    def pulls(self) -> IntArray:
        """(n, K) all pulls, of both kinds."""
        return self._with_played(self.explored, self.played)

    def sums(self) -> FloatArray:
        """(n, K) sums of all rewards, of both kinds."""
        return self._with_played(self.explored_sums, self.played_sums)

    def add_pulls(self, total: IntArray) -> None:
        """Add all pulls, of both kinds, to a `total` (n, K) in C order."""
        if self.explored is not no_pulls(*total.shape):
            total += self.explored
        total.reshape(-1)[places(self.arm, total.shape[1])] += self.played

    def _with_played(self, explored: NDArray[Any], played: NDArray[Any]) -> NDArray[Any]:
        total = explored.copy(order="C")
        total.reshape(-1)[places(self.arm, total.shape[1])] += played
        return total


def _whole(name: str, array: IntArray, shape: tuple[int, ...], below: int = 2**63) -> IntArray:
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype.kind not in "iu":
        raise ProtocolError(
            f"feedback.{name}: expected whole numbers of shape {shape}, got {type(array).__name__} of shape "
            f"{np.shape(array)}; return the plan's own, or what was pulled in its place"
        )
    if np.maximum.reduce(_huge_below_zero(array), axis=None) >= below:
        raise ProtocolError(
            f"feedback.{name}: expected numbers from 0 to {below - 1}, got {array.min()} to {array.max()}; return the "
            "plan's own, or what was pulled in its place"
        )
    return array.astype(np.int64)
