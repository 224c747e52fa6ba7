"""DisLinUCB on psi, with one block of d dimensions for each arm."""

from dataclasses import dataclass

import numpy as np

from fedbandit_agents.phased.aggregation import AGGREGATIONS, lasting_bias, report_weights
from fedbandit_agents.phased.estimation import quadratic_forms
from fedbandit_agents.phased.plausibility import impossible_grams, longest_moments
from fedbandit_baselines.ridge import LinearAgents, RidgeSettings
from fedbandit_baselines.ucb import IndexAgents
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import Policy, ServerSide
from fedbandit_envs.protocol.pull_tables import places
from fedbandit_envs.protocol.steps import Outcome, StepAgents
from fedbandit_envs.ties import first_largest, rounding
from fedbandit_envs.validation import check_fields, checked, one_of, optional, probability, real_number


@dataclass(frozen=True)
class DisLinUCB(Policy):
    """A step-by-step linear bandit whose agents share all they have seen whenever one of them has learnt enough.

    All agents synchronise when, for some agent, ln(det V / det V_last) * (steps since the last time) > threshold. Use
    it as the federated baseline that decides at every step, without phases. At a synchronisation each agent sends its
    new sums of psi psi^T and psi y for all arms, which is more than phased elimination sends.
    Reference: Wang, Hu, Chen and Wang, Distributed Bandit Learning: Near-Optimal Regret with Efficient Communication,
    ICLR 2020, arXiv:1904.06309.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("DisLinUCB"), seed=0)
    >>> history.ledger.rounds
    38
    """

    delta: float = checked(0.1, probability)  #: allowed probability that some confidence bound fails
    sigma: float = checked(1.0, real_number, above=0)  #: noise scale that the bounds assume
    theta_bound: float = checked(1.0, real_number, at_least=0)  #: B, an upper bound on ||theta_a||
    #: D, how much an agent must have learnt before all synchronise; None takes T ln(MT) / (K d M)
    threshold: float | None = checked(None, optional(real_number), at_least=0)
    #: how the server adds up reports: by their plain sums ("mean"), or robustly, by "huber" or "tukey"
    aggregation: str = checked("mean", one_of, choices=AGGREGATIONS)

    def __post_init__(self) -> None:
        check_fields(self)

    def agents(self, view: View) -> StepAgents:
        """Agents that share sums of psi psi^T and psi y; where psi never changes, they compute in closed form."""
        if view.valid is None:
            return DisLinUCBAgents(self, view)
        return SharingAgents(self, view)

    def usual_threshold(self, constants: Constants) -> float:
        """The threshold D: the one given, or T ln(MT) / (K d M)."""
        if self.threshold is not None:
            return self.threshold
        T, M = constants.horizon, constants.num_agents
        return float(T * np.log(M * T) / (constants.num_arms * constants.dim * M))

    def server(self, view: ServerView) -> "DisLinUCBServer":
        """A server that adds up the sums of all agents."""
        return DisLinUCBServer(self, view.constants)


class DisLinUCBAgents(IndexAgents):
    """Agents of DisLinUCB, with V_{a,i} = W_a + N psi psi^T.

    W_a is common to all agents since the last synchronisation; N are the agent's own pulls since then, and Y is the sum
    of their rewards. An agent's psi of an arm never changes, so that everything new has one direction. With
    q = ||psi||^2_{W^-1}, p = psi^T W^-1 b and x = 1 + N q: det V = x det W, ||psi||^2_{V^-1} = q / x and
    psi^T theta = (p + q Y) / x.
    """

    def __init__(self, policy: DisLinUCB, view: View):
        super().__init__(view)
        self.policy = policy
        c = view.constants
        self.threshold = policy.usual_threshold(c)
        self.confidence = float(2 * np.log(policy.delta))
        self.since = 0  # steps since the last synchronisation
        self.called = False  # whether the server has called for a synchronisation
        self._synchronise(np.zeros((c.num_arms, c.dim, c.dim)), np.zeros((c.num_arms, c.dim)))

    def _synchronise(self, gram: FloatArray, moments: FloatArray) -> None:
        """Start anew from the sums over all agents: of psi psi^T (K, d, d) and of psi y (K, d)."""
        psi = self.view.psi
        W = np.eye(psi.shape[2]) + gram
        inverse = np.asarray(np.linalg.inv(W), dtype=np.float64)
        self.q: FloatArray = quadratic_forms(psi, inverse)
        self.p: FloatArray = np.einsum("nad,ad->na", psi, (inverse @ moments[..., None])[..., 0])
        self.log_det: FloatArray = np.linalg.slogdet(W)[1]  # (K,)
        self.pulls[:] = self.sums[:] = 0
        self.since = 0
        self.growth: FloatArray = np.zeros(len(psi))  # ln(det V / det V_last) over all blocks, (n,)
        self.indices = self._indices(self.q, self.p, self.pulls, self.sums, self.log_det)
        self.tolerance: FloatArray = rounding(np.abs(self.indices))  # (n,) until the next synchronisation

    def _indices(
        self, q: FloatArray, p: FloatArray, pulls: FloatArray, sums: FloatArray, log_det: FloatArray
    ) -> FloatArray:
        """The upper confidence bounds, for arrays of one shape."""
        x = 1 + pulls * q
        radius = self.policy.sigma * np.sqrt(np.log(x) + log_det - self.confidence)
        return (p + q * sums) / x + (radius + self.policy.theta_bound) * np.sqrt(q / x)

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """A plan of one step, or of none when the server calls for a synchronisation."""
        self.called = down is not None and down.kind == "call"
        if self.called:
            return Plan.wait(*self.pulls.shape)
        if down is not None:
            self._synchronise(down["gram"], down["moments"])
        return super().plan(None, remaining)

    def choose(self) -> IntArray:
        """The arm with the largest index; indices that are equal but for rounding go to the first arm."""
        return first_largest(self.indices, self.tolerance)

    def learn(self, outcome: Outcome) -> None:
        """Count the rewards; only the arm that was played has a new index."""
        arm = outcome.arm
        where = places(arm, self.view.constants.num_arms)
        q = self.q.take(where)
        before = np.log1p(self.pulls.take(where) * q)
        self.count(where, outcome)
        total = self.pulls.take(where)
        self.growth += np.log1p(total * q) - before
        indices = self._indices(q, self.p.take(where), total, self.sums.take(where), self.log_det.take(arm))
        self.indices.put(where, indices)
        self.since += 1

    def report(self, feedback: Feedback) -> Message | None:
        """A request by the agents that have learnt enough; when the server has called, the new sums of all agents."""
        agents, psi = self.view.agents, self.view.psi
        if self.called:
            gram = self.pulls[..., None, None] * (psi[..., :, None] * psi[..., None, :])
            return Message("new", {"gram": gram, "moments": self.sums[..., None] * psi}, agents)
        super().report(feedback)
        asking = self.growth * self.since > self.threshold
        return Message("request", {}, agents[asking]) if asking.any() else None


class SharingAgents(LinearAgents):
    """Agents of DisLinUCB where contexts change: each has W + its own sums of psi psi^T since the last synchronisation.

    Their radius is that of KK-UCB: each arm has an ellipsoid of its own, with delta / K, and where contexts are hidden
    their spread counts as noise. So one agent that never synchronises plays as KK-UCB does.
    """

    def __init__(self, policy: DisLinUCB, view: View):
        self.policy = policy
        settings = RidgeSettings.of_hidden(policy.delta, policy.sigma, policy.theta_bound, view, shared=False)
        super().__init__(view, settings)
        self.threshold = policy.usual_threshold(view.constants)
        self.called = False  # whether the server has called for a synchronisation
        self._forget()

    def _forget(self) -> None:
        """Start to count anew."""
        self.gram: FloatArray = np.zeros(self.inverse.shape)  # the sums of psi psi^T since the last synchronisation
        self.new: FloatArray = np.zeros(self.moments.shape)  # the sums of psi y since then
        self.growth: FloatArray = np.zeros(len(self.gram))  # ln(det V / det V_last) over all blocks, (n,)
        self.since = 0  # steps since then

    def learn(self, outcome: Outcome) -> None:
        """Learn as KK-UCB does, and keep apart what is new."""
        rows, x = np.arange(len(outcome.arm)), self.regressor(outcome)
        before = self.log_det[rows, outcome.arm]
        super().learn(outcome)
        self.growth += self.log_det[rows, outcome.arm] - before
        self.gram[rows, outcome.arm] += outcome.pulls[:, None, None] * (x[:, :, None] * x[:, None, :])
        self.new[rows, outcome.arm] += outcome.rewards[:, None] * x
        self.since += 1

    def speak(self) -> Message | None:
        """A request by the agents that have learnt enough; when the server has called, the new sums of all agents."""
        agents = self.view.agents
        if self.called:
            self.called = False
            return Message("new", {"gram": self.gram, "moments": self.new}, agents)
        asking = self.growth * self.since > self.threshold
        return Message("request", {}, agents[asking]) if asking.any() else None

    def hear(self, down: Message) -> None:
        """A call for the new sums, or the sums of all agents, from which everybody starts anew."""
        self.called = down.kind == "call"
        if not self.called:
            self.start_from(down["gram"], down["moments"])
            self._forget()


class DisLinUCBServer(ServerSide):
    """The server of DisLinUCB: it calls all agents when one asks, adds up what is new, and sends the sums back.

    With a robust `aggregation` it keeps the sums of each agent, and adds them up with weights from 0 to 1, by how well
    they agree with those of the others: a report that is believed by half counts for half in both sums, so that the
    widths of the agents allow for it. That takes M times the memory, and all weights are found anew at each answer.
    """

    def __init__(self, policy: DisLinUCB, constants: Constants):
        self.policy, self.constants = policy, constants
        rows = 1 if policy.aggregation == "mean" else constants.num_agents  # whose sums are kept apart
        self.gram: FloatArray = np.zeros((rows, constants.num_arms, constants.dim, constants.dim))
        self.moments: FloatArray = np.zeros((rows, constants.num_arms, constants.dim))

    def refuses(self, up: Message) -> dict[int, str]:
        """Matrices that are no sums of psi psi^T of so many pulls, and moments that are too long for them."""
        found = super().refuses(up)
        if up.kind == "request":
            return found
        assert up.agents is not None
        rows = np.flatnonzero(~np.isin(up.agents, list(found)))
        gram, moments, agents = up["gram"][rows], up["moments"][rows], up.agents[rows].tolist()
        found |= {agents[row]: reason for row, reason in impossible_grams(gram, self.constants).items()}
        most = longest_moments(gram, self.constants)
        norms = np.sqrt(np.einsum("nad,nad->na", moments, moments))
        for row, arm in np.argwhere(norms > most * (1 + 1e-9)):
            reason = f"sent moments of norm {norms[row, arm]:.3g} for arm {arm}, at most {most[row, arm]:.3g} can be"
            found.setdefault(agents[row], reason)
        return found

    def answer(self, up: Message) -> Message:
        """A call to all agents after a request; the sums after new numbers."""
        if up.kind == "request":
            return Message("call")
        if self.policy.aggregation == "mean":
            self.gram = self.gram + up["gram"].sum(axis=0)
            self.moments = self.moments + up["moments"].sum(axis=0)
            return Message("sums", {"gram": self.gram[0], "moments": self.moments[0]})
        self.gram[up.agents] += up["gram"]
        self.moments[up.agents] += up["moments"]
        bias = lasting_bias(self.constants) / self.constants.ell**2  # N pulls give a trace of at least N ell^2
        least_scale = self.constants.noise_std
        weights = report_weights(self.gram, self.moments, self.policy.aggregation, least_scale, bias)
        gram = np.einsum("na,nade->ade", weights, self.gram)
        return Message("sums", {"gram": gram, "moments": np.einsum("na,nad->ad", weights, self.moments)})
