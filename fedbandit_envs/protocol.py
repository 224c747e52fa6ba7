"""The contract between policies and the world: values that cross, and the two sides of a policy.

Four verbs in one direction: `server.answer(up) -> down`, `agents.plan(down, remaining) -> plan`,
`env.pull(plan) -> feedback`, `agents.report(feedback) -> up`.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from fedbandit_envs.knowledge import Constants, View
from fedbandit_envs.messages import Message, State
from fedbandit_envs.plans import Feedback, Plan, ProtocolError
from fedbandit_envs.validation import BoolArray, FloatArray, IntArray

__all__ = [
    "AgentSide",
    "Feedback",
    "Message",
    "Plan",
    "Policy",
    "ProtocolError",
    "ServerSide",
    "Side",
    "SilentServer",
    "State",
    "StepAgents",
]


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


class StepAgents(AgentSide):
    """Agents that decide at each step and never speak: `choose` and `learn` are all that they need.

    A run then asks them step by step, without a turn of the four verbs for most; it is the same run, in less time. Who
    overrides `plan` or `report` is asked through these. What a wrapper made exploration of is not learnt.
    """

    def __init__(self, view: View):
        self.view = view

    def __getattr__(self, name: str) -> Any:
        """Only asked for what is not there."""
        if name == "view":
            raise AttributeError(
                f"{type(self).__name__}.view: expected the view of its agents, got none; call super().__init__(view) "
                "first in __init__"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @abstractmethod
    def choose(self) -> IntArray:
        """(n,) the arms of the next step, as whole numbers."""

    @abstractmethod
    def learn(self, arm: IntArray, pulls: IntArray, rewards: FloatArray) -> None:
        """Each agent has pulled its `arm` (n,) as often as `pulls` (n,) says, once as a rule, for `rewards` (n,)."""

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """One step."""
        return Plan.play(self.checked(self.choose()), self.view.constants.num_arms)

    def checked(self, chosen: object) -> IntArray:
        """(n,) what `choose` returned, if these are arms."""
        n, num_arms, where = len(self.view.agents), self.view.constants.num_arms, f"{type(self).__name__}.choose"
        if not isinstance(chosen, np.ndarray) or chosen.shape != (n,) or chosen.dtype.kind not in "iu":
            came = f"{chosen.dtype} of shape {chosen.shape}" if isinstance(chosen, np.ndarray) else f"{chosen!r:.80}"
            raise ProtocolError(
                f"{where}: expected an array of {n} whole numbers, the arm of each agent, got {came}; return an argmax "
                "over the arms, for example, or np.array(arms)"
            )
        if not 0 <= chosen.min() <= chosen.max() < num_arms:
            raise ProtocolError(
                f"{where}: expected arms from 0 to {num_arms - 1}, got {chosen.min()} to {chosen.max()}; arms count "
                "from 0"
            )
        return chosen

    def report(self, feedback: Feedback) -> Message | None:
        """Learn from the step; say nothing."""
        self.learn(feedback.arm, feedback.played, feedback.played_sums)
        return None


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
