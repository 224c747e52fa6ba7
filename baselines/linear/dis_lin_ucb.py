"""DisLinUCB: all agents synchronise when one of them has learnt enough, after Wang, Hu, Chen and Wang."""

from dataclasses import dataclass

import numpy as np

from fedbandit_agents.linear.synchronised import SynchronisedAgents
from fedbandit_agents.linear.triggers import wants_to_synchronise
from fedbandit_agents.phased.aggregation import AGGREGATIONS, lasting_bias, report_weights
from fedbandit_agents.phased.estimation import quadratic_forms
from fedbandit_baselines.linear.agents import reward_scale
from fedbandit_baselines.linear.sharing import AddingServer, DeterminantAgents, DeterminantPolicy
from fedbandit_baselines.ucb import IndexAgents
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.pull_tables import places
from fedbandit_envs.protocol.steps import Outcome, StepAgents
from fedbandit_envs.ties import first_largest, rounding
from fedbandit_envs.validation import checked, one_of


@dataclass(frozen=True)
class DisLinUCB(DeterminantPolicy):
    """A step-by-step linear bandit whose agents share all they have seen whenever one of them has learnt enough.

    Use it as the federated baseline that decides at every step, without phases. It sends more than phased elimination.
    Where contexts are hidden their spread counts as noise; no noise scale helps against the lasting bias of a hidden
    context that stays the same.
    The publication proves group regret of the order d sqrt(M T), up to logarithms, for one theta and known contexts.
    The ellipsoid for each arm and hidden contexts are additions of this package, and not part of that proof.
    Reference: after Wang, Hu, Chen and Wang, Distributed Bandit Learning: Near-Optimal Regret with Efficient
    Communication, ICLR 2020, arXiv:1904.06309. The default threshold is recalled from the paper.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("DisLinUCB"), seed=0)
    >>> history.ledger.rounds
    38
    """

    #: how the server adds up reports: by their plain sums ("mean"), or robustly, by "huber" or "tukey"
    aggregation: str = checked("mean", one_of, choices=AGGREGATIONS)

    def agents(self, view: View) -> StepAgents:
        """Agents that share sums of psi psi^T and psi y; where psi never changes, they compute in closed form."""
        if view.valid is None:
            return DisLinUCBAgents(self, view)
        return DeterminantAgents(self, view, self.settings(view))

    def server(self, view: ServerView) -> "DisLinUCBServer":
        """A server that adds up the sums of all agents."""
        return DisLinUCBServer(self, view.constants)


class DisLinUCBAgents(SynchronisedAgents, IndexAgents):
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
        self.threshold = policy.usual_threshold(c, c.num_arms)
        self.confidence = float(2 * np.log(policy.delta / c.num_arms))
        self.scale = reward_scale(view, policy.sigma)
        self.since, self.called = 0, False
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
        self.growth: FloatArray = np.zeros(len(psi))  # ln(det V / det V_last) over all blocks, (n,)
        self.indices = self._indices(self.q, self.p, self.pulls, self.sums, self.log_det)
        self.tolerance: FloatArray = rounding(np.abs(self.indices))  # (n,) until the next synchronisation

    def _indices(
        self, q: FloatArray, p: FloatArray, pulls: FloatArray, sums: FloatArray, log_det: FloatArray
    ) -> FloatArray:
        """The upper confidence bounds, for arrays of one shape."""
        x = 1 + pulls * q
        radius = self.scale * np.sqrt(np.log(x) + log_det - self.confidence)
        return (p + q * sums) / x + (radius + self.policy.theta_bound) * np.sqrt(q / x)

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

    def asks(self) -> BoolArray:
        """Those who have learnt enough, for the time that has passed."""
        return wants_to_synchronise(self.growth, self.since, self.threshold)

    def news(self, rows: IntArray) -> Message:
        """The sums of psi psi^T and psi y since the last synchronisation."""
        psi = self.view.psi  # without a copy: `rows` are all agents, because the server calls all of them
        gram = psi[..., :, None] * psi[..., None, :]
        gram *= self.pulls[..., None, None]
        return Message.of_own("new", {"gram": gram, "moments": self.sums[..., None] * psi}, self.view.agents)

    def take_over(self, down: Message) -> None:
        """Start anew from the sums over all agents."""
        self._synchronise(down["gram"], down["moments"])


class DisLinUCBServer(AddingServer):
    """The server of DisLinUCB: it calls all agents when one asks, adds up what is new, and sends the sums back.

    With a robust `aggregation` it keeps the sums of each agent, and adds them up with weights from 0 to 1, by how well
    they agree with those of the others: a report that is believed by half counts for half in both sums, so that the
    widths of the agents allow for it. That takes M times the memory, and all weights are found anew at each answer.
    """

    def __init__(self, policy: DisLinUCB, constants: Constants):
        super().__init__(constants)
        self.policy = policy

    def sums_with(self, up: Message) -> tuple[FloatArray, FloatArray]:
        """Add what is new; gives the sums over all agents, weighted if the aggregation is robust."""
        if self.policy.aggregation == "mean":
            return super().sums_with(up)
        if self.gram is None or self.moments is None:
            self.gram, self.moments = (
                np.zeros((self.constants.num_agents, *up[name].shape[1:])) for name in ("gram", "moments")
            )
        self.gram[up.agents] += up["gram"]
        self.moments[up.agents] += up["moments"]
        bias = lasting_bias(self.constants) / self.constants.ell**2  # N pulls give a trace of at least N ell^2
        least_scale = self.constants.noise_std
        weights = report_weights(self.gram, self.moments, self.policy.aggregation, least_scale, bias)
        return np.einsum("na,nade->ade", weights, self.gram), np.einsum("na,nad->ad", weights, self.moments)
