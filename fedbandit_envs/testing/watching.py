"""A policy under observation: its sides wrapped, so that every fault has a name and a place."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.envs.shared_arms import SharedArmsBandit
from fedbandit_envs.protocol.knowledge import ServerView, View
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.plans import Feedback, Plan, ProtocolError
from fedbandit_envs.protocol.policy import AgentSide, Policy, ServerSide, agents_of, server_of
from fedbandit_envs.rounds.loop import CommunicationRounds
from fedbandit_envs.rounds.turn import NeverPulls

Blocks = Sequence[Sequence[int]]


class PolicyFault(ProtocolError):
    """What is wrong with a policy.

    Args:
        fault: the fault in two or three words; it is kept as `fault`.
        place: the problem and the run in which it was found.
        detail: what was expected, what came, and what to do.

    >>> PolicyFault("pulls too many", "M = 2, K = 3", "expected at most length = 1 pulls, got 4")
    PolicyFault('pulls too many (M = 2, K = 3): expected at most length = 1 pulls, got 4')
    """

    def __init__(self, fault: str, place: str, detail: str):
        super().__init__(f"{fault} ({place}): {detail}")
        self.fault = fault


def _digest(message: Message | None) -> object:
    """The content of a message, which can be compared later."""
    if message is None:
        return None
    arrays = [*message.arrays.items(), *message.present.items(), ("agents", message.agents)]
    return message.kind, [(name, None if array is None else array.tobytes()) for name, array in arrays]


class Watch:
    """Looks at everything that passes between the sides of a policy and the rounds, and knows the place of a fault."""

    def __init__(self, place: str):
        self.place = place
        self._sent: list[tuple[str, Message, object]] = []

    def fault(self, fault: str, detail: str) -> PolicyFault:
        """The error for a fault that was found in this run."""
        return PolicyFault(fault, self.place, detail)

    @contextmanager
    def verb(self, name: str, received: Message | None = None) -> Iterator[None]:
        """Turn every error of a verb into a fault with a name, and notice a received message that was changed."""
        before = _digest(received)
        try:
            yield
        except PolicyFault:
            raise
        except ProtocolError as error:
            fault = "wrong shape" if "shape" in str(error) else "breaks the protocol"
            raise self.fault(fault, f"{name}: {error}") from error
        except Exception as error:
            if isinstance(error, ValueError) and "read-only" in str(error):
                advice = "expected what it was given to stay as it is, got a write to it; work on a copy"
                raise self.fault("mutates what it was given", f"{name}: {advice}") from error
            came = f"expected no exception, got {type(error).__name__}: {error}; see the traceback above"
            raise self.fault("crashes", f"{name}: {came}") from error
        if _digest(received) != before:
            raise self.fault(
                "mutates a message",
                f"{name}: expected the message {before[0]!r} to stay as it came, got other content; "  # type: ignore[index]
                "work on a copy",
            )

    def plan(self, name: str, plan: object, num_agents: int, num_arms: int) -> None:
        """Look at a plan, and refuse one with a fault."""
        if not isinstance(plan, Plan):
            raise self.fault(
                "breaks the protocol",
                f"{name}: expected a Plan, got {type(plan).__name__}; return Plan(explore, arm, length), "
                "Plan.play(arm, num_arms) or Plan.wait(num_agents, num_arms)",
            )
        shape = (num_agents, num_arms)
        if np.shape(plan.explore) != shape or np.shape(plan.arm) != shape[:1]:
            raise self.fault(
                "wrong shape",
                f"{name}: expected explore {shape} and arm {shape[:1]}, one row for each agent of the block, got "
                f"{np.shape(plan.explore)} and {np.shape(plan.arm)}; use len(view.agents), not num_agents",
            )
        most = int(np.sum(plan.explore, axis=1).max())
        if np.ndim(plan.length) == 0 and most > plan.length:  # the rounds refuse a length that is no number
            raise self.fault(
                "pulls too many",
                f"{name}: expected at most length = {plan.length} pulls, got {most}; raise length or explore less",
            )

    def message(self, name: str, message: object) -> None:
        """Look at a message that is sent, refuse one with a fault, and remember it."""
        if not isinstance(message, Message):
            return  # None sends nothing, and the channel refuses everything else
        for array_name, array in message.arrays.items():
            if np.isnan(array).any():
                where = tuple(int(axis) for axis in np.argwhere(np.isnan(array))[0])
                raise self.fault(
                    "NaN in a message",
                    f"{name}: expected numbers in {array_name!r} of message {message.kind!r}, got NaN at {where}; "
                    "leave out what is unknown with a mask in present",
                )
        self._sent.append((name, message, _digest(message)))

    def still_as_sent(self) -> None:
        """Look at all messages again, and refuse those that were changed after they were sent."""
        for name, message, digest in self._sent:
            if _digest(message) != digest:
                raise self.fault(
                    "mutates a message",
                    f"{name}: expected the message {message.kind!r} to stay as it was sent, got other content; build a "
                    "new message each time",
                )


class _WatchedAgents(AgentSide):
    """An agent side whose verbs are watched."""

    def __init__(self, side: AgentSide, watch: Watch, num_agents: int, num_arms: int):
        self.side, self.watch, self.shape = side, watch, (num_agents, num_arms)
        self.name = type(side).__name__

    @property
    def active(self) -> Any:  # type: ignore[override]
        return self.side.active

    @property
    def admitted(self) -> Any:  # type: ignore[override]
        return self.side.admitted

    @property
    def recommended(self) -> Any:  # type: ignore[override]
        return self.side.recommended

    @property
    def hears_of_others(self) -> bool:  # type: ignore[override]
        return self.side.hears_of_others

    @property
    def uncounted(self) -> int:  # type: ignore[override]
        return self.side.uncounted

    def plan(self, down: Message | None, remaining: int) -> Plan:
        with self.watch.verb(f"{self.name}.plan", down):
            plan = self.side.plan(down, remaining)
            self.watch.plan(f"{self.name}.plan", plan, *self.shape)
        return plan

    def report(self, feedback: Feedback) -> Message | None:
        with self.watch.verb(f"{self.name}.report"):
            up = self.side.report(feedback)
        self.watch.message(f"{self.name}.report", up)
        return up

    def observe(self, view: View) -> None:
        with self.watch.verb(f"{self.name}.observe"):
            self.side.observe(view)

    def snapshot(self) -> State:
        return self.side.snapshot()

    def restore(self, state: State) -> None:
        with self.watch.verb(f"{self.name}.restore"):
            self.side.restore(state)


class _WatchedServer(ServerSide):
    """A server side whose verbs are watched."""

    def __init__(self, side: ServerSide, watch: Watch):
        self.side, self.watch, self.name = side, watch, type(side).__name__

    def answer(self, up: Message) -> Message | None:
        with self.watch.verb(f"{self.name}.answer", up):
            down = self.side.answer(up)
        self.watch.message(f"{self.name}.answer", down)
        return down

    def snapshot(self) -> State:
        return self.side.snapshot()

    def restore(self, state: State) -> None:
        with self.watch.verb(f"{self.name}.restore"):
            self.side.restore(state)


class WatchedRounds(CommunicationRounds):
    """Rounds whose sides are watched.

    Args:
        env: the environment.
        policy: the policy whose sides are watched.
        watch: what looks at the sides.
        blocks: the numbers of the agents of each block; None: one block of all.
        apart: whether each block and the server get a policy object of their own.
    """

    def __init__(
        self,
        env: HiddenContextBandit | SharedArmsBandit,
        policy: Policy,
        watch: Watch,
        blocks: Blocks | None,
        apart: bool,
    ):
        super().__init__(env, policy, blocks=blocks, record=True, network="ring")
        self._watch, self._apart = watch, apart

    def _begin(self) -> None:
        """Start a new run; errors of the policy's constructors become faults with a name."""
        name = type(self.policy).__name__
        with self._watch.verb(f"{name}.agents or {name}.server"):
            super()._begin()

    def _agent_side(self, view: View) -> AgentSide:
        side = agents_of(self._own_policy(), view)
        return _WatchedAgents(side, self._watch, len(view.agents), view.constants.num_arms)

    def _server_side(self, view: ServerView) -> ServerSide:
        return _WatchedServer(server_of(self._own_policy(), view), self._watch)

    def _own_policy(self) -> Policy:
        return copy.deepcopy(self.policy) if self._apart else self.policy

    def advance(self) -> None:
        """Play one turn; what the rounds and the channel refuse becomes a fault with a name."""
        try:
            super().advance()
        except PolicyFault:
            raise
        except NeverPulls as error:
            raise self._watch.fault("never pulls", str(error)) from error
        except ProtocolError as error:
            raise self._watch.fault("breaks the protocol", str(error)) from error
