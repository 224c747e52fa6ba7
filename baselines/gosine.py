"""Agents that recommend arms to each other, and explore few arms each: GosInE (Chawla and others)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_baselines.multi_armed_ucb import strange_arms
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.protocol.steps import Outcome, StepAgents
from fedbandit_envs.ties import first_largest
from fedbandit_envs.validation import check_fields, checked, real_number


@dataclass(frozen=True)
class GosInE(Policy):
    """Each agent explores a few arms, and hears from time to time which arm a random neighbour plays most.

    Use it where all agents have the same arms, and messages must be tiny and rare: phase j ends at step j^growth, and
    each agent then hears one number. The best arm spreads like a rumour, and nobody explores all arms.
    The paper proves that each agent's regret is of the order (K / M + 2) ln T, for rewards in [0, 1], alpha above 3 and
    the same means for all agents. Nothing is promised where means differ or messages are lost.
    Reference: Chawla, Sankararaman, Ganesh and Shakkottai, The gossiping insert-eliminate algorithm for multi-agent
    bandits, AISTATS 2020 (synchronous). Its rewards lie in [0, 1], where sigma is 1/2.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/MultiArmed-v0", num_agents=5, max_cycles=200)
    >>> fb.play(env, fb.make_policy("GosInE"), seed=0, network="ring").ledger.scalars_peer  # after 1, 8, ..., 125 steps
    25
    """

    talks_to: ClassVar[str] = "peers"
    delivery: ClassVar[dict[str, str]] = {"arm": "one-neighbour"}

    alpha: float = checked(4.0, real_number, above=0)  #: the width of the index; the guarantee needs more than 3
    growth: float = checked(3.0, real_number, above=1)  #: phase j ends after j^growth steps

    def __post_init__(self) -> None:
        check_fields(self)

    def agents(self, view: View) -> "GosInEAgents":
        """Agents that recommend arms to each other."""
        return GosInEAgents(self, view)

    def refuses(self, up: Message, constants: Constants) -> dict[int, str]:
        """Reports about arms that don't exist."""
        return strange_arms(up, constants.num_arms) | super().refuses(up, constants)

    def end(self, phase: int) -> int:
        """The number of steps after which a phase ends; phases count from 1.

        >>> [GosInE().end(phase) for phase in (1, 2, 3)]
        [1, 8, 27]
        """
        return math.ceil(phase**self.growth)


class GosInEAgents(StepAgents):
    """Agents of GosInE."""

    def __init__(self, policy: GosInE, view: View):
        super().__init__(view)
        self.policy = policy
        n, num_arms = view.psi.shape[:2]
        size = -(-num_arms // view.constants.num_agents)
        first = view.agents * size
        own = (first[:, None] + np.arange(size)) % num_arms
        self.sticky: BoolArray = np.zeros((n, num_arms), dtype=bool)  # the arms that an agent keeps
        self.sticky[np.arange(n)[:, None], own] = True
        self.upper: IntArray = (first + size) % num_arms  # U, the better one of the two other arms
        self.lower: IntArray = (first + size + 1) % num_arms  # L
        self.pulls: FloatArray = np.zeros((n, num_arms))
        self.sums: FloatArray = np.zeros((n, num_arms))  # the sums of the rewards
        self.recent: FloatArray = np.zeros((n, num_arms))  # the pulls of this phase
        self.step = 0  # the steps that were taken
        self.phase = 1
        self.spoke_at = 0  # after how many steps the agents spoke last

    def arms(self) -> BoolArray:
        """S (n, K), the arms that each agent plays."""
        places = np.arange(self.sticky.shape[1])
        return self.sticky | (places == self.upper[:, None]) | (places == self.lower[:, None])

    def choose(self) -> IntArray:
        """The arm of S with the largest index; those that were never pulled come first."""
        scale = 2 * self.view.constants.noise_std * math.sqrt(self.policy.alpha * math.log(self.step + 1))
        n = np.maximum(self.pulls, 1)
        index = np.where(self.pulls > 0, self.sums / n + scale / np.sqrt(n), np.inf)
        return first_largest(np.where(self.arms(), index, -np.inf))

    def learn(self, outcome: Outcome) -> None:
        """Count the step; the first one of a phase starts its counts anew."""
        if self.step == self.policy.end(self.phase):
            self.phase += 1
            self.recent = np.zeros_like(self.recent)
        self.step += 1
        rows = np.arange(len(outcome.arm))
        self.pulls[rows, outcome.arm] += outcome.pulls
        self.recent[rows, outcome.arm] += outcome.pulls
        self.sums[rows, outcome.arm] += outcome.rewards

    def speak(self) -> Message | None:
        """At the end of a phase, once: the arm that was pulled most in it."""
        if self.step != self.policy.end(self.phase) or self.spoke_at == self.step:
            return None
        self.spoke_at = self.step
        return Message("arm", {"arm": self.recent.argmax(axis=1)}, self.view.agents)

    def hear(self, down: Message) -> None:
        """Take in an arm that is new, in place of the one of the two that was pulled less in this phase."""
        heard, rows = down["arm"][:, 0], np.arange(len(self.upper))
        new = down.present["arm"][:, 0] & ~self.arms()[rows, heard]
        better = np.where(self.recent[rows, self.upper] >= self.recent[rows, self.lower], self.upper, self.lower)
        self.upper, self.lower = np.where(new, better, self.upper), np.where(new, heard, self.lower)
