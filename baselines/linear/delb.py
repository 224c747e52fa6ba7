"""DELB: distributed elimination on one set of arms, which all agents share, after Wang, Hu, Chen and Wang."""

from dataclasses import dataclass

import numpy as np

from fedbandit_agents.linear.elimination import kept, phase_estimate, phase_pulls, shares, small_design
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

    In phase l the server finds a design on the arms that are left, agents pull their shares and send a mean for each
    arm of theirs, and the server answers with the estimate of theta from this phase, by which everybody drops the arms
    that are 2^(1 - l) below the best. So a phase costs as many numbers as there are shares, and d for each agent. All
    agents must have the same arms: problems that don't guarantee it are refused. At the start all agents send their
    psi, which is charged. Where all arms have one theta the elimination is linear; else it is that of a multi-armed
    bandit, because no arm then tells anything about another.
    Reference: after Wang, Hu, Chen and Wang, Distributed Bandit Learning: Near-Optimal Regret with Efficient
    Communication, ICLR 2020. Its steps are recalled, and agree with a public reimplementation. Its constant C = 600
    never ends the first phase at usual horizons. The default 10 is that of the reimplementation's runs; for finitely
    many arms and noise of scale 1 the errors of a phase still stay below 2^-l with high probability.

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
        self.phase = 0  # l; before the first phase agents send psi

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """The shares of a phase; at the start, and where one arm is left, there are none."""
        n, num_arms = self.active.shape
        if self.phase == 0 and down is None:
            return Plan.wait(n, num_arms)
        if down is None:  # nothing has arrived, because elimination is over or because the reports were lost
            return Plan.play(self.best, num_arms, remaining)
        if "theta" in down.arrays:
            self._drop(down["theta"])
        self.phase += 1
        if (self.active.sum(axis=1) == 1).all():
            return Plan.play(self.best, num_arms, remaining)
        explore = down["pulls"]
        return Plan(explore, self.best, int(explore.sum(axis=1).max()))

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
        if not explored.any():
            return None
        means = feedback.explored_sums / np.maximum(feedback.explored, 1)
        return Message("means", {"means": means}, self.view.agents, {"means": explored})


class DELBServer(ServerSide):
    """The server of DELB."""

    def __init__(self, policy: DELB, constants: Constants):
        self.policy, self.constants = policy, constants
        self.arms: FloatArray | None = None  # (K, D) the regressors of the arms; None: nobody has reported yet
        self.active: BoolArray = np.ones(constants.num_arms, dtype=bool)
        self.dealt: IntArray = np.zeros((constants.num_agents, constants.num_arms), dtype=np.int64)  # of this phase
        self.phase = 0

    def answer(self, up: Message) -> Message:
        """The shares of the next phase and, after the first one, the estimate of the last."""
        M = self.constants.num_agents
        if self.arms is None:
            self.arms = regressors(up["psi"][0], self.constants)
            return Message("shares", *self._shares({}))
        theta = self._estimate(up)
        self.active = kept(self.arms, theta, self.active, self.phase)
        return Message("shares", *self._shares({"theta": np.broadcast_to(theta, (M, len(theta)))}))

    def _estimate(self, up: Message) -> FloatArray:
        """Theta from the means of this phase that have arrived."""
        assert self.arms is not None
        pulls = np.where(up.present["means"], self.dealt[up.agents], 0)
        total = pulls.sum(axis=0)
        means = (pulls * up["means"]).sum(axis=0) / np.maximum(total, 1)
        return phase_estimate(self.arms, total, means)

    def _shares(
        self, arrays: dict[str, FloatArray]
    ) -> tuple[dict[str, FloatArray | IntArray], IntArray, dict[str, BoolArray]]:
        """What a message of shares is made of; when one arm is left there are none."""
        assert self.arms is not None
        constants = self.constants
        self.phase += 1
        pulls: IntArray = np.zeros(constants.num_arms, dtype=np.int64)
        if self.active.sum() > 1:
            pi, rank = small_design(self.arms[self.active])
            factor = self.policy.factor(constants)
            M, T = constants.num_agents, constants.horizon
            pulls[self.active] = phase_pulls(pi, self.phase, rank, M, T, factor)
        self.dealt = shares(pulls, constants.num_agents)
        agents = np.arange(constants.num_agents)
        return {**arrays, "pulls": self.dealt}, agents, {"pulls": self.dealt > 0}
