"""The contract between policies and the world: the two sides of a policy.

Four verbs in one direction: `server.answer(up) -> down`, `agents.plan(down, remaining) -> plan`,
`env.pull(plan) -> feedback`, `agents.report(feedback) -> up`.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from fedbandit_envs.arrays import BoolArray
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.plans import Feedback, Plan, ProtocolError


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

    def check_installed(self) -> None:
        """Raise an ImportError before a run that needs what is not installed. Results can be read without it."""
        return

    def steps_to_separate(self, constants: Constants, gap: float) -> int | None:
        """About how many steps it takes to rule out an arm whose mean is `gap` below the best; None: it can't be said.

        Override it in a policy that eliminates arms: users are then told when a run was too short for it.
        """
        return None

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
