"""PF-UCB: federated multi-armed bandits between the agent's own means and those of the group."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit_baselines.multi_armed_ucb import known_noise
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide, Policy, ServerSide
from fedbandit_envs.ties import JUST_WHOLE, TIE, first_largest
from fedbandit_envs.validation import check_fields, checked, optional, real_number, true_or_false

_CLOSEST = 1e-12  # D of the best arm where there is no noise, and so no radius


def _share(name: str, value: float) -> float:
    """Refuse what is no number from 0 to 1."""
    number = real_number(name, value, at_least=0)
    if number > 1:
        raise ValueError(f"{name}: expected a number from 0 to 1, got {value!r}")
    return number


@dataclass(frozen=True)
class PFUCB(Policy):
    """Personalised federated elimination: each agent looks for its best arm by means that mix its own and the group's.

    Use it where agents differ, but resemble each other: the mixed mean of an arm is alpha times the agent's own mean
    plus 1 - alpha times the average over all agents. Judge it by "mixed_regret:ALPHA". With `enhanced`, agents explore
    arms that are close to their best one more often; on the paper's game we have measured no gain.
    The paper proves that mixed regret grows like ln T, for local means that are fixed and noise with a known sigma,
    with the default width. Nothing is promised for regret by own means, for a smaller width, or for `enhanced`.
    Reference: Shi, Shen and Yang, Federated Multi-armed Bandits with Personalization, AISTATS 2021; what `enhanced`
    does is read from the authors' program.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/MultiArmed-v0", num_agents=5, local_std=0.3, max_cycles=50_000)
    >>> history = fb.play(env, fb.make_policy("PF-UCB"), seed=0)
    >>> history.ledger.rounds
    14
    """

    alpha: float = checked(0.5, _share)  #: the share of the agent's own mean
    width: float = checked(4.0, real_number, at_least=0)  #: the factor under the root of the width B_p
    enhanced: bool = checked(False, true_or_false)  #: whether exploration depends on how close an arm is to the best
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


def shares(roots: FloatArray, summed: FloatArray, num_agents: int, alpha: float) -> FloatArray:
    """(n, K) e, what exploration is multiplied with: (alpha r + (1 - alpha) R / M) / r.

    Args:
        roots: (n, K) r, the roots of how far the arms are from the best one, for these agents.
        summed: (K,) R, their sums over all M agents.
        num_agents: M.
        alpha: the share of the agent's own mean.

    >>> shares(np.array([[1.0, 0.5]]), np.array([2.0, 1.4]), num_agents=2, alpha=0.5)
    array([[1. , 1.2]])
    """
    return alpha + (1 - alpha) / num_agents * summed / roots


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
        self.mixed: FloatArray = np.zeros(shape)  # the last mixed estimates of all arms
        self.roots: FloatArray = np.ones(shape)  # the roots of D, how far an arm is from the best one
        self.summed: FloatArray = np.full(shape[1], float(view.constants.num_agents))  # their sums over all agents
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
            if self.policy.enhanced:
                self.summed = down["roots"].copy()
        self._note_active()
        num_arms, constants = self.own.shape[1], self.view.constants
        if not self.group.any():
            return Plan.play(self.best, num_arms, remaining)
        alpha, num_agents = self.policy.alpha, constants.num_agents
        f = np.full(self.own.shape, self.policy.f(self.phase, constants))
        if self.policy.enhanced:
            f *= shares(self.roots, self.summed, num_agents, alpha)
        for_group, for_itself = (
            np.minimum(np.ceil(part * JUST_WHOLE), remaining).astype(np.int64)
            for part in ((1 - alpha) * f, num_agents * alpha * f)
        )
        explore = for_group * self.group + for_itself * self.own
        return Plan(explore, self.best, int(explore.sum(axis=1).max()))

    def _drop(self, averages: FloatArray, known: BoolArray) -> None:
        """Steps 6 and 7: drop the arms whose mixed estimate is 2 B_p below the best one; a last one is the best arm."""
        alpha, radius = self.policy.alpha, self.policy.radius(self.phase, self.view.constants)
        mixed = alpha * self.sums / np.maximum(self.counts, 1) + (1 - alpha) * averages
        judged = self.own & known & (self.counts > 0)
        self.mixed = np.where(known & (self.counts > 0), mixed, self.mixed)
        mixed = np.where(judged, mixed, -np.inf)
        some = judged.any(axis=1)
        leader = np.where(some, first_largest(mixed), self.best)
        below = mixed[np.arange(len(leader)), leader][:, None] - np.where(judged, mixed, 0.0)
        dropped = judged & (below >= 2 * radius * (1 - TIE)) & (np.arange(mixed.shape[1]) != leader[:, None])
        self.own = self.own & ~dropped
        self.best = leader
        if self.policy.enhanced:
            gap = np.maximum(self.mixed[np.arange(len(leader)), leader][:, None] - self.mixed, 0)
            self.roots = np.sqrt(np.clip(gap + 2 * radius, _CLOSEST, 1))
        self.own[self.own.sum(axis=1) == 1] = False  # the last one is the leader, which was not dropped

    def report(self, feedback: Feedback) -> Message | None:
        """Means of all exploration, or after a round of averages the arms that are still considered."""
        agents, shape = self.view.agents, self.own.shape
        if self.averages_known:
            arms = np.broadcast_to(np.arange(shape[1]), shape)
            roots = {"roots": self.roots} if self.policy.enhanced else {}
            return Message("sets", {"arms": arms, **roots}, agents, {"arms": self.own})
        if not self.group.any():
            return None
        self.counts += feedback.explored
        self.sums += feedback.explored_sums
        known = self.group & (self.counts > 0)
        means = np.where(known, self.sums / np.maximum(self.counts, 1), 0.0)
        return Message("means", {"means": means}, agents, {"means": known})


class PFUCBServer(ServerSide):
    """The server of PF-UCB. It remembers the set of an agent that is not heard, and its roots."""

    def __init__(self, constants: Constants):
        self.sets: BoolArray = np.ones((constants.num_agents, constants.num_arms), dtype=bool)
        self.roots: FloatArray = np.ones(self.sets.shape)

    def answer(self, up: Message) -> Message:
        """The averages over those who were heard, or the arms that anybody considers."""
        if up.kind == "sets":
            self.sets[up.agents] = up.present["arms"]
            arrays: dict[str, NDArray[Any]] = {"arms": np.arange(self.sets.shape[1])}
            if "roots" in up.arrays:
                self.roots[up.agents] = np.clip(up["roots"], math.sqrt(_CLOSEST), 1.0)  # whoever sends others lies
                arrays["roots"] = self.roots.sum(axis=0)
            return Message("group", arrays, None, {"arms": np.asarray(self.sets.any(axis=0))})
        known = up.present["means"]
        heard = known.sum(axis=0)
        averages = np.where(known, up["means"], 0.0).sum(axis=0) / np.maximum(heard, 1)
        return Message("averages", {"averages": averages}, None, {"averages": heard > 0})
