"""DELB: distributed elimination on one set of arms, which all agents share, after Wang, Hu, Chen and Wang."""

from dataclasses import dataclass

import numpy as np

from fedbandit_agents.linear.distributed_elimination import kept, phase_estimate, phase_pulls, shares, small_design
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide, Policy, ServerSide
from fedbandit_envs.ties import first_largest
from fedbandit_envs.validation import check_fields, checked, real_number


@dataclass(frozen=True)
class DELB(Policy):
    """Phased elimination for agents that all have the same arms: the pulls of a phase are dealt out among them.

    Use it where all agents have the same arms and should send little: a phase costs as many numbers as there are
    shares, and d for each agent. Problems that don't guarantee the same arms are refused.
    The publication promises group regret of the order d sqrt(M T ln T), for one theta and known contexts. Contexts that
    are hidden and stay the same are not covered.
    Reference: after Wang, Hu, Chen and Wang, Distributed Bandit Learning: Near-Optimal Regret with Efficient
    Communication, ICLR 2020. The steps are recalled. Its constant C = 600 never ends the first phase at usual horizons;
    the default here is 10.

    >>> import numpy as np
    >>> import fedbandit_envs as fb
    >>> theta, arms = np.array([[0.8, 0.2]] * 3), np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])
    >>> env = fb.make("fedbandit/Linear-v0", theta=theta, features=np.tile(arms, (5, 1, 1)), same_arms=True,
    ...               shared_theta=True, max_cycles=10_000)
    >>> history = fb.play(env, fb.make_policy("DELB"), seed=0)
    >>> history.ledger.rounds
    4
    """

    constant: float = checked(10.0, real_number, above=0)  #: C, the factor on the pulls of a phase

    def __post_init__(self) -> None:
        check_fields(self)

    def check_problem(self, constants: Constants) -> None:
        """All agents must have the same arms."""
        if not constants.same_arms:
            raise ValueError(
                f"policy: expected one for agents that have different arms, got {type(self).__name__}, whose agents "
                "share one set of arms; take DisLinUCB or Fed-PE, or a problem with same_arms=True"
            )

    def factor(self, constants: Constants) -> float:
        """The factor on the pulls of a phase in this problem."""
        return self.constant

    def agents(self, view: View) -> "DELBAgents":
        """Agents that pull their shares."""
        return DELBAgents(self, view)

    def server(self, view: ServerView) -> "DELBServer":
        """A server that deals out pulls and estimates theta."""
        return DELBServer(self, view.constants)


def regressors(psi: FloatArray, constants: Constants) -> FloatArray:
    """The arms as the one theta of all arms meets them: psi (K, d) itself, or e_a (x) psi, (K, K d).

    >>> constants = Constants(3, 2, 1, 100, ell=0.5, L=1.0, noise_std=1.0, context="fixed")
    >>> regressors(np.array([[3.0], [5.0]]), constants)
    array([[3., 0.],
           [0., 5.]])
    """
    if constants.shared_theta:
        return psi
    num_arms, dim = psi.shape
    lifted = np.zeros((num_arms, num_arms, dim))
    lifted[np.arange(num_arms), np.arange(num_arms)] = psi
    return lifted.reshape(num_arms, num_arms * dim)


class DELBAgents(AgentSide):
    """Agents of DELB: whoever has pulled its share plays the best arm by the last estimate until the phase is over."""

    def __init__(self, policy: DELB, view: View):
        self.policy, self.view = policy, view
        n, num_arms, _ = view.psi.shape
        self.active: BoolArray = np.ones((n, num_arms), dtype=bool)
        self.best: IntArray = np.zeros(n, dtype=np.int64)
        self.share: IntArray = np.zeros((n, num_arms), dtype=np.int64)  # what to pull
        self.phase = 0  # l; before the first phase agents send psi

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """The shares of a phase; there are none at the start, and none where one arm is left.

        Where nothing has arrived all reports were lost, and are made again.
        """
        n, num_arms = self.active.shape
        if down is not None:
            if "theta" in down.arrays:
                self._drop(down["theta"])
            if "theta" in down.arrays or self.phase == 0:
                self.phase += 1
            if down.kind == "end":
                return Plan.play(self.best, num_arms, remaining)
            self.share = down["pulls"].copy()
        if self.phase == 0:
            return Plan.wait(n, num_arms)
        return Plan(self.share, self.best, int(self.share.sum(axis=1).max()))

    def _drop(self, theta: FloatArray) -> None:
        """Drop arms by an estimate (n, D), the same for all agents."""
        for row, (psi, estimate) in enumerate(zip(self.view.psi, theta, strict=True)):
            arms = regressors(psi, self.view.constants)
            self.active[row] = kept(arms, estimate, self.active[row], self.phase)
            values = np.where(self.active[row], np.einsum("kd,d->k", arms, estimate), -np.inf)
            self.best[row] = first_largest(values[None])[0]

    def report(self, feedback: Feedback) -> Message | None:
        """Psi at the start, then the mean of each arm that was explored."""
        if self.phase == 0:
            return Message("arms", {"psi": self.view.psi}, self.view.agents)
        explored = feedback.explored > 0
        rows = np.flatnonzero(explored.any(axis=1))
        if not len(rows):
            return None
        means = feedback.explored_sums / np.maximum(feedback.explored, 1)
        return Message("means", {"means": means[rows]}, self.view.agents[rows], {"means": explored[rows]})


class DELBServer(ServerSide):
    """The server of DELB. Shares whose means were lost are dealt out again before a phase ends."""

    def __init__(self, policy: DELB, constants: Constants):
        self.policy, self.constants = policy, constants
        self.arms: FloatArray | None = None  # (K, D) the regressors of the arms; None: nobody has reported yet
        self.active: BoolArray = np.ones(constants.num_arms, dtype=bool)
        self.dealt: IntArray = np.zeros((constants.num_agents, constants.num_arms), dtype=np.int64)
        self.pulls: IntArray = np.zeros(constants.num_arms, dtype=np.int64)  # the reported pulls of this phase
        self.sums: FloatArray = np.zeros(constants.num_arms)  # the sums of their rewards
        self.phase = 0

    def answer(self, up: Message) -> Message:
        """The shares of the next phase and, after the first one, the estimate of the last."""
        if self.arms is None:
            self.arms = regressors(np.median(up["psi"], axis=0), self.constants)  # no single agent decides
            return self._shares(self._phase_pulls(self.arms))
        self._count(up)
        if self.dealt.any():
            return self._shares(self.dealt.sum(axis=0))
        theta = phase_estimate(self.arms, self.pulls, self.sums / np.maximum(self.pulls, 1))
        self.active = kept(self.arms, theta, self.active, self.phase)
        if self.active.sum() == 1:
            return Message("end", {"theta": self._for_all(theta)}, np.arange(self.constants.num_agents))
        return self._shares(self._phase_pulls(self.arms), {"theta": self._for_all(theta)})

    def _count(self, up: Message) -> None:
        """Count the means that have arrived; `dealt` keeps what is missing."""
        arrived = np.where(up.present["means"], self.dealt[up.agents], 0)
        self.pulls = self.pulls + arrived.sum(axis=0)
        self.sums = self.sums + (arrived * up["means"]).sum(axis=0)
        self.dealt[up.agents] -= arrived

    def _phase_pulls(self, arms: FloatArray) -> IntArray:
        """The pulls (K,) of the next phase, which begins."""
        self.phase += 1
        self.pulls[:] = self.sums[:] = 0
        pi, rank = small_design(arms[self.active])
        M, T = self.constants.num_agents, self.constants.horizon
        pulls: IntArray = np.zeros(len(arms), dtype=np.int64)
        pulls[self.active] = phase_pulls(pi, self.phase, rank, M, T, self.policy.factor(self.constants))
        return pulls

    def _shares(self, pulls: IntArray, estimate: dict[str, FloatArray] | None = None) -> Message:
        """Pulls (K,) that are dealt out among all agents, and perhaps an estimate."""
        self.dealt = shares(pulls, self.constants.num_agents)
        agents = np.arange(len(self.dealt))
        return Message("shares", {"pulls": self.dealt, **(estimate or {})}, agents, {"pulls": self.dealt > 0})

    def _for_all(self, theta: FloatArray) -> FloatArray:
        """The estimate, a row for each agent."""
        return np.broadcast_to(theta, (self.constants.num_agents, len(theta)))
