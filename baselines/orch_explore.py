"""OrchExplore: a server that sends agents to arms which they share, and learns how many have room there."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.capacities import filled
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide, Policy, ServerSide
from fedbandit_envs.ties import TIE

_LIFT = 5.0  # what is added to the means of arms whose capacity is explored, so that they are filled first


@dataclass(frozen=True)
class OrchExplore(Policy):
    """A server assigns agents to arms with room for several, and learns means and capacities.

    Use it where agents share arms of unknown capacity; it plays `SharedArms-v0` only. Each agent sends its reward and
    receives its next arm: 1 scalar up and 1 down for each step.
    The paper proves regret of the order ln T against the best assignment; it is for one server that sees every reward,
    so nothing is promised where reports are lost.
    Reference: Wang, Xie and Lui, Multiple-Play Stochastic Bandits with Shareable Finite-Capacity Arms, ICML 2022.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/SharedArms-v0", num_agents=3, num_arms=4, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("OrchExplore"), seed=0)
    >>> history.ledger.scalars_up, history.ledger.scalars_down
    (597, 597)
    """

    shares_arms: ClassVar[bool] = True

    def agents(self, view: View) -> "OrchExploreAgents":
        """Agents that go where they are sent."""
        return OrchExploreAgents(view)

    def server(self, view: ServerView) -> "OrchExploreServer":
        """The server that sends them."""
        return OrchExploreServer(view)


class OrchExploreAgents(AgentSide):
    """Agents of OrchExplore: at first each is alone on the arm of its number, then they obey."""

    def __init__(self, view: View):
        self.view = view
        self.arm: IntArray = first_arms(view.constants)[view.agents]

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """One step on the arm that the server has named; without news the same again."""
        if down is not None:
            self.arm = down["arm"].copy()
        return Plan.play(self.arm, self.view.constants.num_arms)

    def report(self, feedback: Feedback) -> Message:
        """The reward."""
        return Message("reward", {"reward": feedback.sums().sum(axis=1)}, self.view.agents)


def first_arms(constants: Constants) -> IntArray:
    """(M,) the arms of the first step: every agent is alone on one, for there are at least as many arms."""
    return np.arange(constants.num_agents) % constants.num_arms


def width(pulls: FloatArray, delta: float) -> FloatArray:
    """phi(x) = sqrt((1 + 1/x) ln(2 sqrt(x + 1) / delta) / (2 x)), for x = `pulls` of at least 1.

    >>> round(float(width(np.array([1.0]), 0.5)[0]), 4)
    1.3164
    """
    return np.sqrt((1 + 1 / pulls) * np.log(2 * np.sqrt(pulls + 1) / delta) / (2 * pulls))


def divergence(p: FloatArray, q: float) -> FloatArray:
    """The Kullback-Leibler divergence of coins with probabilities `p` and `q`.

    >>> divergence(np.array([0.5, 0.0]), 0.5).round(4)
    array([0.    , 0.6931])
    """
    p, q = np.clip(p, 1e-12, 1 - 1e-12), min(max(q, 1e-12), 1 - 1e-12)
    return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))


class OrchExploreServer(ServerSide):
    """The server of OrchExplore. It knows the loads, because it has made them."""

    def __init__(self, view: ServerView):
        self.view = view
        num_agents, num_arms = view.constants.num_agents, view.constants.num_arms
        self.step = 0  # the answers so far
        self.arms: IntArray = first_arms(view.constants)  # (M,) where the agents are
        self.single: FloatArray = np.zeros((2, num_arms))  # times and sums of R / a where a is at most `least`: e
        self.full: FloatArray = np.zeros((2, num_arms))  # times and sums of R where a is at least `most`: v
        self.least: IntArray = np.ones(num_arms, dtype=np.int64)  # no capacity is smaller
        self.most: IntArray = np.full(num_arms, num_agents)  # no capacity is larger

    def refuses(self, up: Message) -> dict[int, str]:
        """Rewards that can't be: the part of an agent is from 0 to 1."""
        assert up.agents is not None
        strange = ~((up["reward"] >= 0) & (up["reward"] <= 1))
        return dict.fromkeys(up.agents[strange].tolist(), "sent a reward below 0 or above 1") | super().refuses(up)

    def answer(self, up: Message) -> Message:
        """The next arm of each agent."""
        self._learn(up)
        self.step += 1
        constants = self.view.constants
        if self.step * constants.num_agents < constants.num_arms:  # every arm once, with one agent
            self.arms = (self.step * constants.num_agents + first_arms(constants)) % constants.num_arms
        else:
            self.arms = np.repeat(np.arange(constants.num_arms), self._loads())
        return Message("arm", {"arm": self.arms}, np.arange(constants.num_agents))

    def _learn(self, up: Message) -> None:
        """Take in what the arms have paid, and narrow the bounds on capacities."""
        num_arms = len(self.least)
        loads = np.bincount(self.arms, minlength=num_arms)
        where = self.arms[up.agents]
        heard = np.bincount(where, minlength=num_arms)
        part = np.bincount(where, weights=up["reward"], minlength=num_arms) / np.maximum(heard, 1)  # R / a
        alone, full = (heard > 0) & (loads <= self.least), (heard > 0) & (loads >= self.most)
        self.single = self.single + np.where(alone, [np.ones(num_arms), part], 0.0)
        self.full = self.full + np.where(full, [np.ones(num_arms), part * loads], 0.0)
        self._bound_capacities()

    def _bound_capacities(self) -> None:
        known = (self.single[0] > 0) & (self.full[0] > 0)
        if not known.any():
            return
        delta = 2 / max(self.view.constants.horizon, 2)
        e, v = self.means(), self.full[1] / np.maximum(self.full[0], 1)
        wide = width(np.maximum(self.single[0], 1), delta) + width(np.maximum(self.full[0], 1), delta)
        low = np.ceil(v / (e + wide) - TIE)
        high = np.where(e > wide, np.floor(v / np.where(e > wide, e - wide, 1.0) + TIE), np.inf)
        most = np.where(known, np.minimum(self.most, high), self.most)
        least = np.where(known, np.maximum(self.least, low), self.least)
        self.most = np.maximum(most, 1).astype(np.int64)
        self.least = np.minimum(least, self.most).astype(np.int64)

    def means(self) -> FloatArray:
        """(K,) e, the mean of what one agent gets on an arm that is not overfull."""
        return self.single[1] / np.maximum(self.single[0], 1)

    def _loads(self) -> IntArray:
        """(K,) how many agents go to each arm in the next step."""
        num_agents, e = self.view.constants.num_agents, self.means()
        loads = filled(e, self.least, num_agents)
        used = loads > 0
        worst = int(np.where(used, e, np.inf).argmin())
        unknown = used & (self.least != self.most)
        unknown[worst] = False
        if self.step % 2 == 0 and unknown.any():
            return filled(e + _LIFT * unknown, self.most, num_agents)
        rng = self.view.randomness.generator(self.step)
        others = np.flatnonzero(self._could_be_better(e, worst) & ~used)
        if len(others) and rng.random() < 0.5:
            loads[worst] -= 1
            loads[rng.choice(others)] += 1
        return loads

    def _could_be_better(self, e: FloatArray, worst: int) -> BoolArray:
        """(K,) the arms whose KL-UCB index is at least the mean of the arm `worst`."""
        log = math.log(max(self.step + 1, 2))
        budget = log + 4 * math.log(max(log, 1.0))
        return np.asarray((e >= e[worst]) | (self.single[0] * divergence(e, float(e[worst])) <= budget))
