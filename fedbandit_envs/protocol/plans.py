"""What agents do between two messages, and what comes of it."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import FloatArray, IntArray, immutable, read_only, short, short_repr
from fedbandit_envs.protocol.pull_tables import as_unsigned, no_pulls, places
from fedbandit_envs.validation import whole_number


class ProtocolError(ValueError):
    """A policy broke the contract, for example with a plan of arms that don't exist.

    The message names what is wrong, what was expected and what came. A run in which it was raised can't go on.
    `check_policy` finds most such mistakes at once.

    >>> Plan.play(np.array([0, 7]), num_arms=3).checked(2, 3)
    Traceback (most recent call last):
        ...
    fedbandit_envs.protocol.plans.ProtocolError: plan.arm: expected arms from 0 to 2, got 0 to 7; arms count from 0
    """


@dataclass(frozen=True, eq=False)
class Plan:
    """What n agents do next: `explore` pulls in the order of the arms, then `arm`, until `length` steps have passed.

    An agent side returns one from `plan`. Most are made by `Plan.play`, `Plan.explore_each` or `Plan.wait`. The rounds
    cut it at the horizon and where contexts change, so its feedback can have fewer pulls.

    >>> import numpy as np
    >>> plan = Plan(explore=np.array([[2, 0], [1, 1]]), arm=np.array([0, 1]), length=5)
    >>> plan.exploration, (plan.length - plan.exploration)
    (array([2, 2]), array([3, 3]))
    >>> plan.cut(1).explore
    array([[1, 0],
           [1, 0]])
    """

    explore: IntArray  #: (n, K) pulls of each arm before `arm`
    arm: IntArray  #: (n,) the arm that is played once exploration is done
    length: int  #: the number of steps, the same for all agents

    __repr__ = short_repr

    @classmethod
    def play(cls, arm: IntArray, num_arms: int, length: int = 1) -> "Plan":
        """The plan in which every agent plays its `arm` (n,) for `length` steps."""
        return Plan(no_pulls(len(arm), num_arms), arm, length)

    @classmethod
    def explore_each(cls, pulls: int, num_agents: int, num_arms: int) -> "Plan":
        """The plan in which every agent pulls each arm `pulls` times."""
        whole_number("pulls", pulls, at_least=0)
        explore = np.full((num_agents, num_arms), pulls, dtype=np.int64)
        return Plan(explore, np.zeros(num_agents, dtype=np.int64), pulls * num_arms)

    @staticmethod
    @lru_cache(maxsize=8)
    def wait(num_agents: int, num_arms: int) -> "Plan":
        """The plan without pulls: a round that only exchanges messages."""
        return CheckedPlan(no_pulls(num_agents, num_arms), no_pulls(num_agents, 1)[:, 0], 0)

    @property
    def explores(self) -> bool:
        """Whether there is any exploration in the plan."""
        return self.explore is not no_pulls(*self.explore.shape) and bool(np.count_nonzero(self.explore))

    @property
    def exploration(self) -> IntArray:
        """The number of pulls (n,) before `arm`."""
        return np.add.reduce(self.explore, axis=1)

    def cut(self, remaining: int) -> Self:
        """The plan within `remaining` steps: exploitation is dropped first, then the exploration of the last arms."""
        if self.length <= remaining:
            return self
        explore = self.explore.cumsum(axis=1)
        np.minimum(explore, remaining, out=explore)
        explore[:, 1:] -= explore[:, :-1].copy()
        return type(self)(explore, self.arm, remaining)

    def rows(self, index: IntArray | slice) -> "Plan":
        """The plan of the agents with these positions."""
        return Plan(self.explore[index], self.arm[index], self.length)

    def checked(self, num_agents: int, num_arms: int) -> "CheckedPlan":
        """A validated, read-only copy for `num_agents` agents and `num_arms` arms; itself if it was validated before.

        Raises:
            ProtocolError: the plan is not valid; the message says what is wrong with it.
        """
        if isinstance(self, CheckedPlan) and self.explore.shape == (num_agents, num_arms):
            return self
        self._check_form((num_agents, num_arms))
        return CheckedPlan(self.explore, self.arm, self.length)

    def _check_form(self, expected: tuple[int | str, ...]) -> None:
        """Refuse other types and shapes than whole numbers of shape `expected` (n, K)."""
        for name, array, shape in (("explore", self.explore, expected), ("arm", self.arm, expected[:1])):
            if not isinstance(array, np.ndarray) or array.shape != shape:
                raise ProtocolError(
                    f"plan.{name}: expected an array of shape {shape}, got {short(array)}; one row for each agent of "
                    "the block"
                )
            if array.dtype.kind not in "iu":
                raise ProtocolError(f"plan.{name}: expected whole numbers, got {array.dtype}; use .astype(np.int64)")
        if isinstance(self.length, bool) or not isinstance(self.length, (int, np.integer)) or self.length < 0:
            raise ProtocolError(
                f"plan.length: expected a whole number of at least 0, got {self.length!r}; 0 is a round without pulls"
            )


@dataclass(frozen=True, eq=False)
class CheckedPlan(Plan):
    """A plan that is known to be valid: whole numbers of 64 bits, in range, in read-only arrays of its own.

    Making one checks it, so every object of this class is valid: a changed copy is checked again.

    >>> Plan.play(np.array([0, 5]), num_arms=3).checked(2, 3)
    Traceback (most recent call last):
        ...
    fedbandit_envs.protocol.plans.ProtocolError: plan.arm: expected arms from 0 to 2, got 0 to 5; arms count from 0
    """

    _exploration: IntArray = field(init=False, repr=False)  #: (n,) the pulls before `arm`

    __repr__ = short_repr

    def __post_init__(self) -> None:
        shape: tuple[int, ...] = getattr(self.explore, "shape", ())
        self._check_form(shape if len(shape) == 2 else ("agents", "arms"))
        num_agents, num_arms = shape
        explores = self.explores
        exploration = self._checked_exploration() if explores else no_pulls(num_agents, 1)[:, 0]
        # A plan without steps needs an arm too: the plans of other blocks in the same round may be longer.
        if np.maximum.reduce(as_unsigned(self.arm)) >= num_arms:
            raise ProtocolError(
                f"plan.arm: expected arms from 0 to {num_arms - 1}, got {self.arm.min()} to {self.arm.max()}; arms "
                "count from 0"
            )
        explore = read_only(self.explore.astype(np.int64)) if explores else no_pulls(num_agents, num_arms)
        object.__setattr__(self, "explore", explore)
        object.__setattr__(self, "arm", immutable(self.arm.astype(np.int64)))
        object.__setattr__(self, "length", int(self.length))
        object.__setattr__(self, "_exploration", exploration)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy and a pickle are checked and made read-only anew: arrays that are copied can be written to."""
        return type(self), (self.explore, self.arm, self.length)

    @property
    def exploration(self) -> IntArray:
        """The number of pulls (n,) before `arm`."""
        return self._exploration

    def _checked_exploration(self) -> IntArray:
        """The pulls (n,) before `arm`; refuses negative ones, and more than fit into the length."""
        # The sums can overflow, so the single counts are compared with the length first.
        most = int(np.maximum.reduce(as_unsigned(self.explore), axis=None))
        exploration, longest = np.add.reduce(self.explore, axis=1), min(self.length, 2**63 - 1)
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
        return exploration.astype(np.int64, copy=False)


@dataclass(frozen=True, eq=False)
class Feedback:
    """What was really pulled, and the sums of the rewards; exploration and exploitation are kept apart.

    An agent side is given one in `report`, and `pulls` and `sums` add both parts up. Its arrays are read-only. A source
    of rewards makes one by `Feedback.of`.

    >>> feedback = Feedback(np.array([[2, 0]]), np.array([[1.5, 0.0]]), np.array([1]), np.array([3]), np.array([0.3]))
    >>> feedback.pulls(), feedback.sums()
    (array([[2, 3]]), array([[1.5, 0.3]]))
    """

    explored: IntArray  #: (n, K) pulls of exploration
    explored_sums: FloatArray  #: (n, K) sums of the rewards of these pulls
    arm: IntArray  #: (n,) the arm that was played after exploration
    played: IntArray  #: (n,) pulls of `arm` after exploration
    played_sums: FloatArray  #: (n,) sums of the rewards of these pulls
    #: (n, d) phi of the arm pulled, where contexts are revealed after each step; None: they are not
    features: FloatArray | None = None
    plan: CheckedPlan | None = field(default=None, init=False, repr=False)  #: the plan, if it was carried out unchanged

    __repr__ = short_repr

    @classmethod
    def of(
        cls, plan: CheckedPlan, explored_sums: FloatArray, played_sums: FloatArray, features: FloatArray | None = None
    ) -> "Feedback":
        """The feedback of a plan that was carried out unchanged."""
        played = read_only(plan.length - plan.exploration)
        feedback = cls(plan.explore, explored_sums, plan.arm, played, played_sums, features)
        object.__setattr__(feedback, "plan", plan)
        return feedback

    @classmethod
    def of_no_pulls(cls, plan: CheckedPlan) -> "Feedback":
        """The feedback of a plan without steps."""
        nothing = no_pulls(*plan.explore.shape).view(np.float64)
        return cls.of(plan, nothing, nothing[:, 0])

    def checked(self, plan: CheckedPlan) -> "Feedback":
        """The feedback of `plan`, read-only; refuses one that can't be.

        What was pulled may differ from the plan, because a wrapper or a source of rewards may have pulled otherwise.
        But every agent has pulled as many times as the plan has steps, and sums of rewards are finite.

        Raises:
            ProtocolError: the feedback can't be that of this plan; the message says what is wrong with it.
        """
        own, (n, num_arms) = self, plan.explore.shape
        _check_finite("explored_sums", self.explored_sums, (n, num_arms))
        _check_finite("played_sums", self.played_sums, (n,))
        if self.features is not None:
            _check_finite("features", self.features, (n, *np.shape(self.features)[1:2]))
        if self.plan is not plan:
            own = Feedback(
                _whole("explored", self.explored, (n, num_arms)),
                self.explored_sums,
                _whole("arm", self.arm, (n,), below=num_arms),
                _whole("played", self.played, (n,)),
                self.played_sums,
                self.features,
            )
            own._check_total(plan.length)
        for array in (own.explored, own.explored_sums, own.arm, own.played, own.played_sums, own.features):
            if array is not None:
                read_only(array)
        return own

    def _check_total(self, length: int) -> None:
        """Refuse other numbers of pulls than `length` for each agent."""
        pulls = np.column_stack([self.explored, self.played]).cumsum(axis=1)  # (n, K + 1); negative if it overflows
        if len(wrong := np.flatnonzero((pulls[:, -1] != length) | (pulls.min(axis=1) < 0))):
            got = pulls[wrong[0], -1]
            raise ProtocolError(f"feedback: expected {length} pulls of each agent, as planned, got {got}")

    def rows(self, index: IntArray | slice) -> "Feedback":
        """The feedback of the agents with these positions."""
        arrays: tuple[NDArray[Any], ...] = self.explored, self.explored_sums, self.arm, self.played, self.played_sums
        features = None if self.features is None else read_only(self.features[index])
        explored, explored_sums, arm, played, played_sums = (read_only(array[index]) for array in arrays)
        return Feedback(explored, explored_sums, arm, played, played_sums, features)

    def pulls(self) -> IntArray:
        """All pulls (n, K), of exploration and of exploitation."""
        return self._with_played(self.explored, self.played)

    def sums(self) -> FloatArray:
        """The sums (n, K) of all rewards, of exploration and of exploitation."""
        return self._with_played(self.explored_sums, self.played_sums)

    def _with_played(self, explored: NDArray[Any], played: NDArray[Any]) -> NDArray[Any]:
        """A copy of `explored` (n, K) to which `played` (n,) is added at the played arms."""
        total = explored.copy(order="C")
        total.reshape(-1)[places(self.arm, total.shape[1])] += played
        return total


def _whole(name: str, array: IntArray, shape: tuple[int, ...], below: int = 2**63) -> IntArray:
    """A copy of an array of feedback in 64 bits; refuses what are no whole numbers from 0 up to `below`."""
    _check_array(name, array, shape, "iu", "whole numbers")
    if np.maximum.reduce(as_unsigned(array), axis=None) >= below:
        raise ProtocolError(
            f"feedback.{name}: expected numbers from 0 to {below - 1}, got {array.min()} to {array.max()}; return the "
            "plan's own, or what was pulled in its place"
        )
    return array.astype(np.int64)


def _check_finite(name: str, array: FloatArray, shape: tuple[int, ...]) -> None:
    """Refuse what is no array of finite floating-point numbers of this shape."""
    _check_array(name, array, shape, "f", "floating-point numbers")
    if not np.logical_and.reduce(np.isfinite(array), axis=None):
        raise ProtocolError(f"feedback.{name}: expected finite numbers, got {array[~np.isfinite(array)][0]}")


def _check_array(name: str, array: object, shape: tuple[int, ...], kinds: str, what: str) -> None:
    """Refuse what is no array of this shape, or holds numbers of other kinds than `kinds`, which are `what`."""
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype.kind not in kinds:
        raise ProtocolError(
            f"feedback.{name}: expected {what} of shape {shape}, got {short(array)}; return the plan's own, or what "
            "was pulled in its place"
        )
