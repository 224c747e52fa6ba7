"""PF-UCB: federated multi-armed bandits between the agent's own means and those of the group."""

import math
from dataclasses import dataclass

import numpy as np

from fedbandit_baselines.multi_armed_ucb import known_noise
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide, Policy, ServerSide
from fedbandit_envs.ties import JUST_WHOLE, TIE, first_largest
from fedbandit_envs.validation import check_fields, checked, optional, real_number


def _share(name: str, value: float) -> float:
    """Refuse what is no number from 0 to 1."""
    number = real_number(name, value, at_least=0)
    if number > 1:
        raise ValueError(f"{name}: expected a number from 0 to 1, got {value!r}")
    return number


@dataclass(frozen=True)
class PFUCB(Policy):
    """Personalised federated elimination: each agent looks for its best arm by means that mix its own and the group's.

    The mixed mean of an arm is alpha times the agent's own mean plus 1 - alpha times the average over all agents;
    alpha = 1 is every agent for itself, alpha = 0 one arm for all. Phase p has two rounds. Agents explore every arm
    that anybody still considers for the group, and those that they consider themselves for their own mean; they send
    their means, and receive the averages. Then they drop arms, send what they still consider, and receive what anybody
    does. Judge it by "mixed_regret:ALPHA". Whoever has found its arm plays it, and helps the others to explore.
    Reference: Shi, Shen and Yang, Federated Multi-armed Bandits with Personalization, AISTATS 2021, without its
    "enhancement"; the authors' program has width = 1.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/MultiArmed-v0", num_agents=5, local_std=0.3, max_cycles=50_000)
    >>> history = fb.play(env, fb.make_policy("PF-UCB"), seed=0)
    >>> history.ledger.rounds
    14
    """

    alpha: float = checked(0.5, _share)  #: the share of the agent's own mean
    width: float = checked(4.0, real_number, at_least=0)  #: the factor under the root of B_p
    #: noise scale that the bounds assume; None: that of the problem
    sigma: float | None = checked(None, optional(real_number), at_least=0)

    def __post_init__(self) -> None:
        check_fields(self)

    def agents(self, view: View) -> "PFUCBAgents":
        """Agents that explore for the group and for themselves."""
        return PFUCBAgents(self, view)

    def server(self, view: ServerView) -> "PFUCBServer":
        """A server that averages means, and unites sets."""
        return PFUCBServer(view.constants)

    def f(self, phase: int, constants: Constants) -> float:
        """2^p ln T, from which the lengths of phase p follow."""
        return float(2**phase) * math.log(max(constants.horizon, 2))

    def radius(self, phase: int, constants: Constants) -> float:
        """B_p = sigma sqrt(width ln T / (M F(p))), where F(p) = f(1) + ... + f(p)."""
        total = (2.0 ** (phase + 1) - 2) * math.log(max(constants.horizon, 2))  # F(p)
        log = math.log(constants.horizon)
        return known_noise(self.sigma, constants) * math.sqrt(self.width * log / (constants.num_agents * total))


class PFUCBAgents(AgentSide):
    """Agents of PF-UCB. A plan lasts as long as the longest exploration: the others play their best arm meanwhile."""

    def __init__(self, policy: PFUCB, view: View):
        self.policy, self.view = policy, view
        shape = view.psi.shape[:2]
        self.phase = 1
        self.group: BoolArray = np.ones(shape[1], dtype=bool)  # A, (K,) the arms that anybody considers
        self.own: BoolArray = np.ones(shape, dtype=bool)  # A_m, (n, K) those that an agent considers
        self.best: IntArray = np.zeros(shape[0], dtype=np.int64)  # O_m, or the best estimate so far
        self.counts: IntArray = np.zeros(shape, dtype=np.int64)  # pulls of exploration
        self.sums: FloatArray = np.zeros(shape)
        self.averages_known = False  # whether the last answer were averages: then the sets are sent next
        self._note_active()

    def _note_active(self) -> None:
        """Every arm that the agent may still pull: for the group, for itself, or because it is the best."""
        self.active = self.group | self.own
        self.active[np.arange(len(self.best)), self.best] = True

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """Exploration, or a round without pulls in which the sets are exchanged."""
        self.averages_known = down is not None and down.kind == "averages"
        if down is not None and self.averages_known:
            self._drop(down["averages"], down.present["averages"])
            return Plan.wait(*self.own.shape)
        if down is not None:
            self.group = down.present["arms"].copy()
            self.phase += 1
        self._note_active()
        num_arms, constants = self.own.shape[1], self.view.constants
        if not self.group.any():
            return Plan.play(self.best, num_arms, remaining)
        f, alpha = self.policy.f(self.phase, constants), self.policy.alpha
        for_group, for_itself = (
            min(math.ceil(part * JUST_WHOLE), remaining) for part in ((1 - alpha) * f, constants.num_agents * alpha * f)
        )
        explore = for_group * self.group + for_itself * self.own
        return Plan(explore, self.best, int(explore.sum(axis=1).max()))

    def _drop(self, averages: FloatArray, known: BoolArray) -> None:
        """Steps 6 and 7: drop the arms whose mixed estimate is 2 B_p below the best one; a last one is the best arm."""
        alpha, radius = self.policy.alpha, self.policy.radius(self.phase, self.view.constants)
        mixed = alpha * self.sums / np.maximum(self.counts, 1) + (1 - alpha) * averages
        judged = self.own & known & (self.counts > 0)
        mixed = np.where(judged, mixed, -np.inf)
        some = judged.any(axis=1)
        leader = np.where(some, first_largest(mixed), self.best)
        below = mixed[np.arange(len(leader)), leader][:, None] - np.where(judged, mixed, 0.0)
        dropped = judged & (below >= 2 * radius * (1 - TIE)) & (np.arange(mixed.shape[1]) != leader[:, None])
        self.own = self.own & ~dropped
        self.best = leader
        self.own[self.own.sum(axis=1) == 1] = False  # the last one is the leader, which was not dropped

    def report(self, feedback: Feedback) -> Message | None:
        """Means of all exploration, or after a round of averages the arms that are still considered."""
        agents, shape = self.view.agents, self.own.shape
        if self.averages_known:
            arms = np.broadcast_to(np.arange(shape[1]), shape)
            return Message("sets", {"arms": arms}, agents, {"arms": self.own})
        if not self.group.any():
            return None
        self.counts += feedback.explored
        self.sums += feedback.explored_sums
        known = self.group & (self.counts > 0)
        means = np.where(known, self.sums / np.maximum(self.counts, 1), 0.0)
        return Message("means", {"means": means}, agents, {"means": known})


class PFUCBServer(ServerSide):
    """The server of PF-UCB. It remembers the set of an agent that is not heard."""

    def __init__(self, constants: Constants):
        self.sets: BoolArray = np.ones((constants.num_agents, constants.num_arms), dtype=bool)

    def answer(self, up: Message) -> Message:
        """The averages over those who were heard, or the arms that anybody considers."""
        if up.kind == "sets":
            self.sets[up.agents] = up.present["arms"]
            arms = np.arange(self.sets.shape[1])
            return Message("group", {"arms": arms}, None, {"arms": np.asarray(self.sets.any(axis=0))})
        known = up.present["means"]
        heard = known.sum(axis=0)
        averages = np.where(known, up["means"], 0.0).sum(axis=0) / np.maximum(heard, 1)
        return Message("averages", {"averages": averages}, None, {"averages": heard > 0})
