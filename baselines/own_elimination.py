"""Agents that look for the best of some arms alone, before they tell anybody: the first stage of best-arm policies."""

import math

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide
from fedbandit_envs.ties import first_largest, rounding

UNDECIDED = ("random", "best")  #: the answers of an elimination that has not ended


class OwnElimination(AgentSide):
    """Agents that eliminate arms alone, each among arms of its own, in phases of the same length for all agents.

    Phase p has 2^(p-1) times as many steps as the first, which pulls each arm once. After it an arm is dropped if its
    mean + B is below another mean - B, with B = sigma sqrt(2 ln(4 s p^2 / delta) / n) for n pulls of one of s arms: the
    best arm is never dropped with probability 1 - delta.

    Args:
        view: what the agents know.
        sigma: the noise scale.
        delta: the allowed probability that an agent drops the best of its arms.
        most: s, the largest number of arms that an agent looks at.
    """

    def __init__(self, view: View, sigma: float, delta: float, most: int):
        self.view, self.sigma, self.delta, self.most = view, sigma, delta, most
        shape = view.psi.shape[:2]
        self.left: BoolArray = np.ones(shape, dtype=bool)  # (n, K) the own arms that are not dropped
        self.counts: IntArray = np.zeros(shape, dtype=np.int64)
        self.sums: FloatArray = np.zeros(shape)
        self.phase = 1
        self.spent = 0  # the steps of this stage so far
        self.answered = False  # whether the server has told the best arm
        self.best: IntArray = np.zeros(shape[0], dtype=np.int64)  # (n,) what is played at the end
        self.active: BoolArray = np.ones(shape, dtype=bool)
        self.recommended: IntArray = np.full(shape[0], -1)

    def phase_plan(self, until: int) -> Plan:
        """The next phase, or what fits of it within the `until` steps of this stage."""
        length = min(2 ** (self.phase - 1) * self.most, until - self.spent)
        explore = np.where(self.left, length // self.left.sum(axis=1, keepdims=True), 0)
        return Plan(explore, self.leaders(), length)

    def learn_phase(self, feedback: Feedback) -> None:
        """Take in what the phase brought, and drop arms."""
        self.counts += feedback.explored
        self.sums += feedback.explored_sums
        self.spent += int(feedback.explored[0].sum() + feedback.played[0])  # the same for all agents
        log = math.log(4 * self.most * self.phase**2 / self.delta)
        radii = self.sigma * np.sqrt(2 * log / np.maximum(self.counts, 1))
        means, known = self._means(), self.left & (self.counts > 0)
        least = np.where(known, means - radii, -np.inf).max(axis=1, keepdims=True)
        equal = rounding(np.where(known, np.abs(means) + radii, 0.0))[:, None]
        dropped = known & (means + radii < least - equal)
        self.left = self.left & ~dropped
        self.phase += 1

    def _means(self) -> FloatArray:
        return self.sums / np.maximum(self.counts, 1)

    def leaders(self) -> IntArray:
        """(n,) the arm with the largest mean of those that are left; the first of them before any pull."""
        known = self.left & (self.counts > 0)
        best = first_largest(np.where(known, self._means(), -np.inf))
        return np.where(known.any(axis=1), best, self.left.argmax(axis=1))

    def choices(self, undecided: str) -> IntArray:
        """(n,) the arm that is left, or of several a random one or the best one, as `undecided` says."""
        if undecided == "best":
            return self.leaders()
        luck = self.view.randomness.draws(1).uniforms(self.left.shape[1])
        return np.where(self.left, luck, -1.0).argmax(axis=1)

    def settle(self, down: Message) -> None:
        """Take over the answer of the server, which is the same for all."""
        self.answered = True
        self.best = np.full(len(self.best), int(down["best"][0]))
        self.recommended = self.best.copy()
        self.active = np.arange(self.active.shape[1]) == self.best[:, None]


def chosen_arm(values: FloatArray, candidates: BoolArray, undecided: str, rng: np.random.Generator) -> int:
    """One of the candidates: a random one, or the one with the largest value, as `undecided` says.

    Args:
        values: (K,) the means of the arms.
        candidates: (K,) the arms that can be chosen; one of them at least.
        undecided: a name in `UNDECIDED`.
        rng: where a random choice comes from.

    >>> chosen_arm(np.array([0.1, 0.9, 0.5]), np.array([True, False, True]), "best", np.random.default_rng(0))
    2
    """
    if undecided == "best":
        return int(first_largest(np.where(candidates, values, -np.inf)[None])[0])
    return int(rng.choice(np.flatnonzero(candidates)))
