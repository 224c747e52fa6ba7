"""Agents that decide at each step."""

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan, ProtocolError
from fedbandit_envs.protocol.policy import AgentSide


class Outcome(NamedTuple):
    """What came of one step; its arrays are read-only.

    `StepAgents.learn` is given one after each step. Learn from `arm` and `pulls`, and not from what `choose` returned,
    because a wrapper may have pulled otherwise.

    >>> Outcome(np.array([2]), np.array([1]), np.array([0.5])).features is None
    True
    """

    arm: IntArray  #: (n,) the arm that each agent has pulled
    pulls: IntArray  #: (n,) how often it was pulled: once, unless a wrapper pulled otherwise
    rewards: FloatArray  #: (n,) the sum of the rewards of these pulls
    features: FloatArray | None = None  #: (n, d) phi of the arm pulled, where contexts are revealed; None: they are not


class StepAgents(AgentSide):
    """Agents that decide at each step: they need `choose` and `learn`, and those that communicate `speak` and `hear`.

    A step is `choose`, `learn`, `speak`. When something arrives, `hear` and then `speak` are called, and so on until
    nobody speaks; such rounds cost no step, and nothing new is shown in between. Most steps in which nobody speaks are
    played without a turn of the four verbs; the run is the same and takes less time. If a subclass overrides `plan` or
    `report`, these are called instead. Pulls that a wrapper turned into exploration are not passed to `learn`.

    A class that also plays problems whose contexts change defines `observe`. It is one line, `self.view = view`, for a
    class that computes from `self.view.psi` at each step; a class that precomputes from psi does so there anew.

    Args:
        view: what the agents know; it is kept as `self.view`.

    >>> class First(StepAgents):
    ...     def choose(self):
    ...         return np.zeros(len(self.view.agents), dtype=np.int64)
    ...
    ...     def learn(self, outcome):
    ...         pass
    >>> from fedbandit_envs.contexts.finite import PointMass
    >>> from fedbandit_envs.contexts.features import Identity
    >>> from fedbandit_envs.protocol.knowledge import Constants
    >>> from fedbandit_envs.seeding import Randomness, Stream
    >>> mu, phi = PointMass(np.eye(2)), Identity(3, 2)
    >>> constants = Constants(2, 3, 2, 100, ell=1.0, L=1.0, noise_std=1.0, context="fixed")
    >>> view = View(constants, np.arange(2), mu, phi, mu.expected_features(phi), Randomness(0, Stream.POLICY, 2))
    >>> First(view).plan(None, remaining=100).arm
    array([0, 0])
    """

    hears_of_others = True
    heard: bool = False  #: whether the last `plan` was about what had arrived, and so without a pull

    def __init__(self, view: View):
        self.view = view

    def __getattr__(self, name: str) -> Any:
        """Python asks this for attributes that are missing; a missing view gets an error that says why."""
        if name == "view":
            raise AttributeError(
                f"{type(self).__name__}.view: expected the view of its agents, got none; call super().__init__(view) "
                "first in __init__"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @abstractmethod
    def choose(self) -> IntArray:
        """The arms (n,) of the next step, as whole numbers."""

    @abstractmethod
    def learn(self, outcome: Outcome) -> None:
        """Learn from what was pulled."""

    def speak(self) -> Message | None:
        """What to tell the server now, after a step or after `hear`; agents with nothing to say are left out."""
        return None

    def hear(self, down: Message) -> None:
        """Take in what the server says; the default refuses, because agents that never speak hear nothing."""
        raise ProtocolError(
            f"{type(self).__name__}.hear: expected a class that takes in what a server says, got a message "
            f"{down.kind!r} and no such method; define hear(down)"
        )

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """The plan of one step with the chosen arms; a plan of no step when something has arrived."""
        # All blocks wait when something arrives for any of them, so that a run does not depend on the blocks.
        self.heard = down is not None
        if down is not None:
            if down.agents is None or len(down.agents):
                self.hear(down)
            return Plan.wait(len(self.view.agents), self.view.constants.num_arms)
        return Plan.play(self.checked(self.choose()), self.view.constants.num_arms)

    def checked(self, chosen: object) -> IntArray:
        """The arms (n,) that `choose` returned; refuses what are no arms."""
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
        """Learn from the step, if there was one, and say what there is to say."""
        if not self.heard:
            self.learn(Outcome(feedback.arm, feedback.played, feedback.played_sums, feedback.features))
        return self.speak()
