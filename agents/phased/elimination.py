"""Federated phased elimination: its parameters, and the paper's Algorithm 1 (agents). Algorithm 2 is in `server`.

A phase is two rounds. Estimates come down, agents eliminate arms and send their active sets; the allocation comes down,
agents explore and send their estimates.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import ClassVar

import numpy as np

from fedbandit_agents.phased import estimation, theorem
from fedbandit_agents.phased.aggregation import AGGREGATIONS
from fedbandit_agents.phased.confidence import confidence, number_of_phases
from fedbandit_agents.phased.estimation import Estimates, inner_products
from fedbandit_agents.phased.server import PhasedServer
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.claims import Claim, RecordedRun
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan, ProtocolError
from fedbandit_envs.protocol.policy import AgentSide, Policy
from fedbandit_envs.validation import (
    check_fields,
    checked,
    needs,
    one_of,
    optional,
    probability,
    real_number,
    true_or_false,
    whole_number,
)


@dataclass(frozen=True)
class PhasedElimination(Policy):
    """Federated phased elimination: the parameters that Fed-PECD, Fed-PE and its variants share.

    Phase p explores for f_p = first * growth^p steps. After it, each agent drops the arms whose upper confidence bound
    is below the lower bound of its best arm. The server spreads the next pulls over the arms that are left, by a
    G-optimal design over all agents. Agents send estimates of theta_a and their active sets, never rewards. Subclass
    this to build a variant: `agents` and `server` make the two sides.
    Reference: Huang, Wu, Yang and Shen, Federated Linear Contextual Bandits, NeurIPS 2021, Algorithms 1 and 2.

    >>> policy = PhasedElimination(first=2, growth=3)
    >>> [policy.budget(phase) for phase in range(4)]
    [2, 6, 18, 54]
    """

    theorem: ClassVar[bool] = True  #: whether Fed-PE's regret theorem covers this policy, so that audits check it

    delta: float = checked(0.1, probability)  #: allowed probability that some width of a run fails
    #: factor w on the widths: 1 in the paper's Algorithm 1, sqrt(10) in its lemmas
    width: float = checked(1.0, real_number, above=0)
    sigma: float = checked(1.0, real_number, above=0)  #: noise scale that the widths assume
    #: lower end of the feature norms; None takes the problem's public constant
    ell: float | None = checked(None, optional(real_number), above=0)
    first: int = checked(1, whole_number, at_least=1)  #: c, the steps that phase 0 explores each arm for
    growth: int = checked(2, whole_number, at_least=2)  #: n, how many times longer each phase is than the one before
    #: H in alpha, the number of phases that the widths allow for; None takes ceil(log_n T)
    phases: int | None = checked(None, optional(whole_number), at_least=1)
    #: how pulls are spread over the active arms: by the "g-optimal" design, or "uniform"
    allocation: str = checked("g-optimal", one_of, choices=("g-optimal", "uniform"))
    gap: float = checked(0.1, real_number, above=0)  #: the certified gap at which the design stops
    #: how the server puts estimates together: by their "mean", or robustly, by "huber" or "tukey"
    aggregation: str = checked("mean", one_of, choices=AGGREGATIONS)
    compiled: bool = checked(False, true_or_false)  #: whether designs and estimates use numba, the extra "compiled"
    pad: bool = checked(True, true_or_false)  #: whether a phase always lasts f_p + K steps
    count_init: bool = checked(True, true_or_false)  #: whether steps and regret of the initialisation count

    def __post_init__(self) -> None:
        check_fields(self)

    def check_installed(self) -> None:
        """Compiled code needs numba."""
        if self.compiled:
            needs("numba", extra="compiled", instead="leave compiled out")

    def budget(self, phase: int) -> int:
        """f_p = c n^p."""
        return self.first * self.growth**phase

    def alpha(self, constants: Constants) -> float:
        """The confidence factor of all widths."""
        phases = self.phases or number_of_phases(constants.horizon, self.growth)
        return confidence(constants.num_agents, constants.num_arms, constants.dim, phases, self.delta)

    def steps_to_separate(self, constants: Constants, gap: float) -> int | None:
        """The end of the first phase whose widths are below gap / 2, when all arms are explored evenly.

        An arm then has M f_p / K pulls in d dimensions, so ||e||_V^2 is about d K / (M f_p), and no width is above
        w sigma alpha (L / ell) times the root of that. None for variants with other widths than Algorithm 1.
        """
        if not self.theorem:
            return None
        scale = self.width * self.sigma * self.alpha(constants) * constants.L / (self.ell or constants.ell)
        enough = constants.dim * constants.num_arms / constants.num_agents * (2 * scale / gap) ** 2
        phase, steps = 0, self.first * constants.num_arms
        while self.budget(phase) < enough:
            phase += 1
            steps += self.budget(phase) + constants.num_arms
        return steps

    @property
    def arithmetic(self) -> ModuleType:
        """`estimation`, or the module with the same functions in compiled code."""
        return _compiled_estimation() if self.compiled else estimation

    def agents(self, view: View) -> "PhasedAgents":
        """Algorithm 1."""
        return PhasedAgents(self, view)

    def server(self, view: ServerView) -> PhasedServer:
        """Algorithm 2."""
        return PhasedServer(self, view.constants)

    def claims(self, history: RecordedRun) -> Iterable[Claim]:
        """Fed-PE's theorem, for the policies that it covers."""
        return theorem.claims(self, history)


@lru_cache(maxsize=1)
def _compiled_estimation() -> ModuleType:
    needs("numba", extra="compiled", instead="leave compiled out")
    from fedbandit_agents.phased import estimation_compiled  # numba takes long to import, and then to compile

    return estimation_compiled


class PhasedAgents(AgentSide):
    """Algorithm 1, for a block of agents."""

    def __init__(self, policy: PhasedElimination, view: View):
        self.policy, self.view = policy, view
        self.scale = policy.width * policy.sigma * policy.alpha(view.constants) / (policy.ell or view.constants.ell)
        self.squared_norms = inner_products(view.psi, view.psi)  # (n, K)
        shape = view.psi.shape[:2]
        self.phase = 0
        self.active: BoolArray = np.ones(shape, dtype=bool)
        self.best: IntArray = np.zeros(shape[0], dtype=np.int64)
        self.uncounted = 0 if policy.count_init else policy.first * shape[1]
        self.exploring = True  # whether the last plan explored, else it only waited for the allocation

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """Initialise; then by turns eliminate arms and wait, or explore as allocated."""
        n, num_arms = self.active.shape
        if self.phase == 0 and down is None:
            return Plan.explore_each(self.policy.first, n, num_arms)
        if self.exploring:  # what comes down now are estimates
            if down is not None:
                self.active, self.best = self.eliminated(down)
            self.phase += 1
            self.exploring = False
            return Plan.wait(n, num_arms)
        self.exploring = True
        explore = self._allocated(down)
        if self.policy.pad:
            return Plan(explore, self.best, self.policy.budget(self.phase) + num_arms)
        return Plan(explore, self.best, max(int(explore.sum(axis=1).max()), 1))

    def _allocated(self, down: Message | None) -> IntArray:
        """(n, K) the pulls that the server allocates; none for agents that it does not answer."""
        explore: IntArray = np.zeros(self.active.shape, dtype=np.int64)
        if down is None:
            return explore
        if down.agents is None:
            raise ProtocolError(f"message {down.kind!r}: expected rows for some agents, got a broadcast")
        if len(down.agents) == len(explore):
            return down["pulls"]
        explore[np.isin(self.view.agents, down.agents)] = down["pulls"]
        return explore

    def eliminated(self, down: Message) -> tuple[BoolArray, IntArray]:
        """Lines 5 to 8: A_i^p (n, K), best arms (n,), by r = psi^T theta_a, u = w sigma alpha ||psi||_V / ell."""
        estimates = Estimates(down["theta"], down["V"], down.present["theta"])
        found: tuple[BoolArray, IntArray] = self.policy.arithmetic.eliminated(
            self.view.psi, estimates, self.scale, self.active, self.best
        )
        return found

    def report(self, feedback: Feedback) -> Message | None:
        """The active sets, or the estimates of the arms that were explored."""
        if not self.exploring:
            return Message("active", {"arms": _arms(*self.active.shape)}, self.view.agents, {"arms": self.active})
        explored = feedback.explored > 0
        speaking = np.logical_or.reduce(explored, axis=1)
        speakers = np.count_nonzero(speaking)
        if not speakers:
            return None
        theta = self.policy.arithmetic.local_estimate(
            feedback.explored_sums / np.maximum(feedback.explored, 1), self.view.psi, self.squared_norms
        )
        message = Message.of_own("estimates", {"theta": theta} | self.extras(), self.view.agents, {"theta": explored})
        return message if speakers == len(speaking) else message.rows(speaking)

    def extras(self) -> dict[str, FloatArray]:
        """What else goes with the estimates; nothing here."""
        return {}


@lru_cache(maxsize=8)
def _arms(num_agents: int, num_arms: int) -> IntArray:
    """(n, K) the numbers of the arms for each agent, read-only; a message leaves out those that it doesn't name."""
    return np.broadcast_to(np.arange(num_arms), (num_agents, num_arms))
