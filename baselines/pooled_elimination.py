"""Phased elimination on averages over agents, for arms without features: what its policies share."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide, Policy, ServerSide
from fedbandit_envs.ties import first_largest, rounding


class PooledElimination(Policy):
    """In each phase agents pull every arm that is left, and a server averages their means and drops arms.

    A subclass says how many pulls a phase has, which agents take part, and how wide the confidence bounds are. A phase
    is one round: an agent that takes part sends its mean of each arm that is left; the server sends to all the arms
    that are left, and the best of them. Once one arm is left all play it, and nothing more is sent.
    """

    drops_ties: ClassVar[bool] = True  #: whether an arm whose interval just touches the best one's is dropped

    @abstractmethod
    def pulls(self, phase: int, constants: Constants) -> int:
        """How often an agent pulls each arm in this phase; phases count from 1."""

    @abstractmethod
    def radii(self, phase: int, eta: FloatArray, clients: IntArray, constants: Constants) -> FloatArray:
        """(K,) half the widths of the confidence intervals of the averages.

        Args:
            phase: the number of the phase, from 1.
            eta: (K,) the variance of each average for noise of variance 1.
            clients: (K,) how many agents are in each average.
            constants: the public constants.
        """

    def num_admitted(self, phase: int, constants: Constants) -> int:
        """How many agents take part in a phase: those with the smallest numbers."""
        return constants.num_agents

    def is_last(self, phase: int, constants: Constants) -> bool:
        """Whether the best arm is chosen after this phase, even if others are left."""
        return False

    def agents(self, view: View) -> "PooledAgents":
        """Agents that explore what is left."""
        return PooledAgents(self, view)

    def server(self, view: ServerView) -> "PooledServer":
        """A server that averages."""
        return PooledServer(self, view.constants)


class PooledAgents(AgentSide):
    """The agents: they explore the arms that are left, or play the server's best arm until they are admitted."""

    def __init__(self, policy: PooledElimination, view: View):
        self.policy, self.view = policy, view
        shape = view.psi.shape[:2]
        self.phase = 1
        self.left: BoolArray = np.ones(shape[1], dtype=bool)  # (K,) the arms that are left, the same for all agents
        self.active: BoolArray = np.ones(shape, dtype=bool)
        self.best: IntArray = view.agents % shape[1]  # (n,) what is played by those who do not explore
        self.recommended: IntArray = np.full(shape[0], -1)
        self.counts: IntArray = np.zeros(shape, dtype=np.int64)
        self.sums: FloatArray = np.zeros(shape)
        self.admitted: BoolArray = self._who_is_admitted()

    def _who_is_admitted(self) -> BoolArray:
        return self.view.agents < self.policy.num_admitted(self.phase, self.view.constants)

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """A phase of exploration; the best arm to the end once it is the only one left."""
        if down is not None:
            self.phase += 1
            self.left = down.present["arms"].copy()
            self.active[:] = self.left
            self.best = np.full(len(self.best), int(down["best"][0]))
            self.recommended = self.best.copy()
            if self.left.sum() > 1:  # otherwise nobody explores any more
                self.admitted = self._who_is_admitted()
        num_arms, left = len(self.left), int(self.left.sum())
        if left == 1:
            self.best = np.full(len(self.best), int(self.left.argmax()))
            self.recommended = self.best.copy()
            return Plan.play(self.best, num_arms, remaining)
        pulls = min(self.policy.pulls(self.phase, self.view.constants), remaining)  # more would be cut off
        explore = np.where(self.admitted[:, None] & self.left, pulls, 0)
        return Plan(explore, self.best, pulls * left)

    def report(self, feedback: Feedback) -> Message | None:
        """The mean of each arm that is left, over all exploration; nothing from those who are not admitted."""
        self.counts += feedback.explored
        self.sums += feedback.explored_sums
        if self.left.sum() == 1 or not self.admitted.any():
            return None
        counts, sums = self.counts[self.admitted], self.sums[self.admitted]
        known = self.left & (counts > 0)
        means = np.where(known, sums / np.maximum(counts, 1), 0.0)
        return Message("means", {"means": means}, self.view.agents[self.admitted], {"means": known})


class PooledServer(ServerSide):
    """The server: it averages what it hears, whoever was heard, and drops the arms that can't be the best."""

    def __init__(self, policy: PooledElimination, constants: Constants):
        self.policy, self.constants = policy, constants
        self.phase = 0
        self.left: BoolArray = np.ones(constants.num_arms, dtype=bool)
        self.best = 0
        self.pulled: IntArray = np.zeros(constants.num_agents, dtype=np.int64)  # an agent's pulls of each arm left

    def refuses(self, up: Message) -> dict[int, str]:
        """Reports of agents that are not admitted yet."""
        refused = super().refuses(up)
        assert up.agents is not None
        early = up.agents[up.agents >= self.policy.num_admitted(self.phase + 1, self.constants)]
        return dict.fromkeys(early.tolist(), "sent means before it was admitted") | refused

    def answer(self, up: Message) -> Message:
        """The arms that are left, and the best of them."""
        self.phase += 1
        everyone = np.arange(self.constants.num_agents)
        admitted = everyone < self.policy.num_admitted(self.phase, self.constants)
        self.pulled = self.pulled + admitted * self.policy.pulls(self.phase, self.constants)
        heard = up.present["means"] & self.left
        clients = heard.sum(axis=0)
        averages = np.where(heard, up["means"], 0.0).sum(axis=0) / np.maximum(clients, 1)
        eta = (heard / self.pulled[up.agents][:, None]).sum(axis=0) / np.maximum(clients, 1) ** 2
        self._drop(averages, self.policy.radii(self.phase, eta, clients, self.constants), clients > 0)
        arms = np.arange(self.constants.num_arms)
        return Message("left", {"arms": arms, "best": np.array([self.best])}, None, {"arms": self.left})

    def _drop(self, averages: FloatArray, radii: FloatArray, heard: BoolArray) -> None:
        """Keep the best arm, and those whose interval reaches above the lower end of another; unheard ones stay."""
        if not heard.any():
            return
        known = np.where(heard, averages, -np.inf)
        self.best = int(first_largest(known[None])[0])
        magnitudes = np.where(heard, np.abs(averages) + radii, 0.0)
        margin = np.where(heard, averages - radii, -np.inf).max() - (averages + radii)
        equal = float(rounding(magnitudes[None])[0])
        beaten = heard & (margin >= -equal if self.policy.drops_ties else margin > equal)
        beaten[self.best] = False
        self.left = self.left & ~beaten
        if self.policy.is_last(self.phase, self.constants):
            self.left = np.arange(len(self.left)) == self.best
