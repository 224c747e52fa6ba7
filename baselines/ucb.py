"""Step-by-step policies without a server: Local UCB, and KK-UCB (Kirschner and Krause 2019)."""

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from fedbandit_envs.knowledge import View
from fedbandit_envs.plans import places
from fedbandit_envs.protocol import AgentSide, Feedback, Message, Plan, Policy
from fedbandit_envs.validation import FloatArray, IntArray, probability, real_number


class IndexAgents(AgentSide):
    """Agents that play, at each step, the arm of the largest index; ties go to the first."""

    def __init__(self, view: View):
        self.view = view
        shape = view.psi.shape[:2]
        self.pulls: FloatArray = np.zeros(shape)
        self.sums: FloatArray = np.zeros(shape)  # of rewards

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """One step."""
        return Plan.play(self.index().argmax(axis=1), self.pulls.shape[1])

    def report(self, feedback: Feedback) -> Message | None:
        """Learn from the reward; say nothing."""
        self.learn(places(feedback.arm, self.pulls.shape[1]), feedback)
        return None

    def learn(self, where: IntArray, feedback: Feedback) -> None:
        """Take in what was played, `where` (n,) being its places in the flattened tables."""
        self.pulls.reshape(-1)[where] += feedback.played
        self.sums.reshape(-1)[where] += feedback.played_sums

    @abstractmethod
    def index(self) -> FloatArray:
        """(n, K)."""


@dataclass(frozen=True)
class LocalUCB(Policy):
    """Each agent alone, blind to features: mean + sqrt(2 ln(1 + n ln^2 n) / t), every arm once first."""

    def agents(self, view: View) -> "LocalUCBAgents":
        """Agents that never communicate."""
        return LocalUCBAgents(view)


class LocalUCBAgents(IndexAgents):
    """n is the step, from 1; t the pulls of the arm."""

    def __init__(self, view: View):
        super().__init__(view)
        self.step = 1

    def index(self) -> FloatArray:
        """Infinite for an arm that was never pulled."""
        if self.step <= self.pulls.shape[1]:
            return np.where(self.pulls == 0, np.inf, 0)
        bonus = 2 * math.log1p(self.step * math.log(self.step) ** 2)
        return self.sums / self.pulls + np.sqrt(bonus / self.pulls)

    def learn(self, where: IntArray, feedback: Feedback) -> None:
        """Count the step too."""
        super().learn(where, feedback)
        self.step += 1


@dataclass(frozen=True)
class KKUCB(Policy):
    """Each agent alone, a linear bandit on psi for each arm; its guarantee is for resampled contexts."""

    delta: float = 0.1
    sigma: float = 1.0
    theta_bound: float = 1.0  # B, a bound on ||theta_a||

    def __post_init__(self) -> None:
        probability("delta", self.delta)
        real_number("sigma", self.sigma, above=0)
        real_number("theta_bound", self.theta_bound, at_least=0)

    def agents(self, view: View) -> "KKUCBAgents":
        """Agents that never communicate."""
        return KKUCBAgents(self, view)


class KKUCBAgents(IndexAgents):
    """psi^T theta + beta ||psi||_{V^-1} with V = I + N psi psi^T, of which only one entry an agent changes at a step.

    An agent's psi of an arm never changes, so V has one direction and everything is in closed form: with x = 1 + N
    ||psi||^2, det V = x, ||psi||^2_{V^-1} = ||psi||^2 / x and psi^T theta = ||psi||^2 Y / x for Y the sum of rewards.
    """

    def __init__(self, policy: KKUCB, view: View):
        super().__init__(view)
        self.policy = policy
        self.confidence = float(2 * np.log(policy.delta / view.constants.num_arms))
        self.scale = policy.sigma if view.exact else float(np.sqrt(4 + policy.sigma**2))
        self.squares: FloatArray = np.einsum("nad,nad->na", view.psi, view.psi)
        self.indices: FloatArray = self._indices(self.squares, self.pulls, self.sums)

    def _indices(self, squares: FloatArray, pulls: FloatArray, sums: FloatArray) -> FloatArray:
        x = 1 + pulls * squares
        beta = self.scale * np.sqrt(np.log(x) - self.confidence)
        return squares * sums / x + (beta + self.policy.theta_bound) * np.sqrt(squares / x)

    def index(self) -> FloatArray:
        """(n, K)."""
        return self.indices

    def learn(self, where: IntArray, feedback: Feedback) -> None:
        """Only the arm that was played has a new index."""
        super().learn(where, feedback)
        played = (table.take(where) for table in (self.squares, self.pulls, self.sums))
        self.indices.put(where, self._indices(*played))
