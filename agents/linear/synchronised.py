"""Agents that all synchronise when one of them asks for it: who asks, the call, and what comes back."""

from abc import abstractmethod

import numpy as np

from fedbandit_envs.arrays import BoolArray, IntArray
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.steps import StepAgents


class SynchronisedAgents(StepAgents):
    """Step agents that all synchronise when one of them asks for it.

    An agent that asks sends an empty message, the server calls, all agents send what they have, and the server answers
    all of them. A subclass says in `asks` who asks, in `news` what is sent, and in `take_over` what an answer does; it
    adds 1 to `since` in each step.
    """

    called: bool = False  #: whether the server has called for a synchronisation
    since: int = 0  #: steps since the last synchronisation

    @abstractmethod
    def asks(self) -> BoolArray:
        """Which agents ask for a synchronisation, (n,)."""

    @abstractmethod
    def news(self, rows: IntArray) -> Message:
        """What these agents send when the server has called."""

    @abstractmethod
    def take_over(self, down: Message) -> None:
        """Go on from what the server answers."""

    def speak(self) -> Message | None:
        """A request by the agents that ask for it; when the server has called, what all agents have to say."""
        if self.called:
            self.called = False
            return self.news(np.arange(len(self.view.agents)))
        asking = self.asks()
        return Message("request", {}, self.view.agents[asking]) if asking.any() else None

    def hear(self, down: Message) -> None:
        """A call for what is new, or an answer, from which everybody goes on."""
        self.called = down.kind == "call"
        if not self.called:
            self.take_over(down)
            self.since = 0
