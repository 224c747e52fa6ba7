"""Fed-PE and its variants: phased elimination with another view of the contexts, or with other widths."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_agents.phased.elimination import PhasedAgents, PhasedElimination
from fedbandit_agents.phased.estimation import predictions, squared_widths, survivors
from fedbandit_agents.phased.server import PhasedServer
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.joint import Jointly
from fedbandit_envs.protocol.knowledge import ServerView, View
from fedbandit_envs.protocol.messages import Message


@dataclass(frozen=True)
class FedPE(PhasedElimination):
    """Federated phased elimination on the true features phi(a, c_i), for agents that know their context.

    Use it in the exact setting (`observe="context"`), as the baseline that Fed-PECD generalises; it can't be played
    where contexts are hidden. It sends the same messages as Fed-PECD, and has the same parameters. The paper proves a
    bound on regret for known contexts, against which `fedbandit audit` checks runs.
    Reference: Huang, Wu, Yang and Shen, Federated Linear Contextual Bandits, NeurIPS 2021.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, observe="context")
    >>> history = fb.play(env, fb.make_policy("Fed-PE"), seed=0)
    >>> history.ledger.rounds
    14
    """

    observes: ClassVar[str] = "context"


@dataclass(frozen=True)
class EnhancedFedPE(FedPE):
    """Fed-PE with estimates and widths that accumulate over all phases.

    Fed-PE forgets the estimates of earlier phases; here agents keep a weighted sum of them, so that their widths are
    smaller in practice. Use it for the exact setting when the empirical regret matters more than the theorem of Fed-PE,
    which does not cover it. It sends the same messages as Fed-PE.
    Reference: Huang, Wu, Yang and Shen, Federated Linear Contextual Bandits, NeurIPS 2021.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, observe="context")
    >>> history = fb.play(env, fb.make_policy("Enhanced-Fed-PE"), seed=0)
    >>> history.ledger.rounds
    14
    """

    theorem: ClassVar[bool] = False

    def agents(self, view: View) -> "EnhancedAgents":
        """Agents of Fed-PE whose widths accumulate."""
        return EnhancedAgents(self, view, self.ell or view.constants.ell)


class EnhancedAgents(PhasedAgents):
    """Agents of Enhanced-Fed-PE: r' = m / N and u = sqrt(S ln((M / dK) S (MK / delta)^2)) / N.

    m, S and N are sums over phases, weighted by f_{p-1}.
    """

    def __init__(self, policy: PhasedElimination, view: View, ell: float):
        super().__init__(policy, view)
        constants = view.constants
        self.ell = ell
        self.agents_per_dimension = constants.num_agents / (constants.dim * constants.num_arms)
        self.pairs_over_delta = constants.num_agents * constants.num_arms / policy.delta
        self.sums: FloatArray = np.zeros(self.active.shape)  # m
        self.squares: FloatArray = np.full(self.active.shape, 1 / self.agents_per_dimension)  # S, dK/M at the start
        self.weight: FloatArray = np.zeros(self.active.shape)  # N

    def eliminated(self, down: Message) -> tuple[BoolArray, IntArray]:
        """Add the predictions of this phase, and eliminate by the accumulated ones."""
        psi, budget = self.view.psi, self.policy.budget(self.phase)
        squares = squared_widths(psi, down["V"])
        # A phase whose reports about an arm were lost says nothing about it: its sums stay as they are.
        known = down.present["theta"]
        informed = known & np.isfinite(squares)
        self.sums = self.sums + np.where(informed, budget * predictions(psi, down["theta"]), 0)
        self.squares = self.squares + np.where(informed, budget**2 * squares / self.ell**2, 0)
        self.weight = self.weight + np.where(informed, budget, 0)
        logarithm = np.log(self.agents_per_dimension * self.squares * self.pairs_over_delta**2)
        deviations = self.policy.width * self.policy.sigma * np.sqrt(self.squares * logarithm)
        ever = self.weight > 0
        widths = np.divide(deviations, self.weight, out=np.full(ever.shape, np.inf), where=ever)
        r = np.divide(self.sums, self.weight, out=np.zeros(ever.shape), where=ever)
        return survivors(r, widths, self.active, known, self.best)


@dataclass(frozen=True)
class Collaborative(FedPE):
    """Fed-PE with full information: agents also send their features, once, with their first estimates.

    The server then works with the features themselves instead of their directions, and the widths need no common lower
    bound on their norms. Use it to see what Fed-PE's privacy costs. The features are charged as communication. No
    theorem is claimed for it here.
    Reference: Huang, Wu, Yang and Shen, Federated Linear Contextual Bandits, NeurIPS 2021.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, observe="context")
    >>> history = fb.play(env, fb.make_policy("Collaborative"), seed=0)
    >>> history.ledger.rounds
    14
    """

    theorem: ClassVar[bool] = False

    def agents(self, view: View) -> "CollaborativeAgents":
        """Agents with the widths of Enhanced-Fed-PE, without the factor 1 / ell."""
        return CollaborativeAgents(self, view, 1.0)

    def server(self, view: ServerView) -> "CollaborativeServer":
        """A server that does least squares on the features themselves."""
        return CollaborativeServer(self, view.constants)


class CollaborativeAgents(EnhancedAgents):
    """Agents of Collaborative, who send psi with their first estimates."""

    def extras(self) -> dict[str, FloatArray]:
        """The features psi, in phase 0 alone."""
        return {"psi": self.view.psi} if self.phase == 0 else {}


class CollaborativeServer(PhasedServer):
    """The server of Collaborative, which works on psi in place of directions.

    V_a = (sum f psi psi^T)^+ and theta_a = V_a sum f ||psi||^2 theta_{a,i}. Features are sent once: the estimates of an
    agent whose first report was lost can't be used.
    """

    def refuses(self, up: Message) -> dict[int, str]:
        """What any server of phased elimination refuses, and features that are zero or far too long."""
        refused: dict[int, str] = {}
        if "psi" in up.arrays:
            assert up.agents is not None
            norms = _norms(up["psi"])
            most = np.inf if self.constants.longest is None else self.constants.longest * (1 + 1e-9)
            for row, arm in np.argwhere((norms == 0) | (norms > most)):
                refused.setdefault(int(up.agents[row]), f"sent features of norm {norms[row, arm]:.3g} for arm {arm}")
        return refused | super().refuses(up)

    def feature_norms(self, rows: "IntArray | slice", up: Message, group: slice) -> FloatArray:
        """||psi|| (n, K), from the message that brings them or as they are known; 1 where they are not known."""
        norms = _norms(up["psi"][group] if "psi" in up.arrays else self.directions[rows])
        return np.where((norms > 0) & np.isfinite(norms), norms, 1.0)

    def squared_lengths(self, rows: "IntArray | slice") -> FloatArray:
        """||psi||^2 (n, K), because psi itself stands for the direction."""
        return np.asarray(np.einsum("nad,nad->na", self.directions[rows], self.directions[rows]))

    def learn_directions(self, rows: "IntArray | slice", new: BoolArray, up: Message) -> None:
        """Keep the features psi of agents that report for the first time."""
        if "psi" in up.arrays:
            self.keep_directions(rows, new, up["psi"])

    def aggregated(
        self, theta: FloatArray, directions: FloatArray, weights: FloatArray
    ) -> Jointly[tuple[FloatArray, FloatArray]]:
        """theta_a and V_a from the features; theta_{a,i} ||psi||^2 is the mean reward times psi."""
        squares = np.einsum("nad,nad->na", directions, directions)
        return (yield from super().aggregated(theta * squares[..., None], directions, weights))


def _norms(psi: FloatArray) -> FloatArray:
    """The norms along the last axis, infinite where they overflow."""
    with np.errstate(over="ignore"):
        return np.asarray(np.sqrt(np.einsum("nad,nad->na", psi, psi)))


@dataclass(frozen=True)
class SharedThetaFedPE(FedPE):
    """Fed-PE for problems in which all arms have the same theta.

    The server makes one estimate and one design over all arms and agents, instead of one for each arm. Use it only
    where theta is shared: with different theta_a its estimate is wrong. Agents send what those of Fed-PE send; the
    server answers with one theta and one matrix.
    The publication proves near-optimal regret for this case, where agents know their features. Its constants are not
    worked out here, so no audit checks it.
    Reference: Huang, Wu, Yang and Shen, Federated Linear Contextual Bandits, NeurIPS 2021, the shared-parameter case.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, observe="context")
    >>> history = fb.play(env, fb.make_policy("Shared-Theta-Fed-PE"), seed=0)
    >>> history.ledger.rounds
    14
    """

    theorem: ClassVar[bool] = False

    def server(self, view: ServerView) -> "SharedThetaServer":
        """A server that makes one estimate for all arms."""
        return SharedThetaServer(self, view.constants)


class SharedThetaServer(PhasedServer):
    """The server of Shared-Theta-Fed-PE, with one estimate and the design of one matrix.

    V = (sum_{a,i} f e e^T)^+ and theta = V sum_{a,i} f theta_{a,i}.
    """

    shared = True

    def aggregated(
        self, theta: FloatArray, directions: FloatArray, weights: FloatArray
    ) -> Jointly[tuple[FloatArray, FloatArray]]:
        """The one estimate, theta (1, d) and V (1, d, d)."""
        one_arm = (-1, 1, theta.shape[2])
        pairs = theta.reshape(one_arm), directions.reshape(one_arm), weights.reshape(-1, 1)
        return (yield from super().aggregated(*pairs))

    def heard(self, V: FloatArray) -> BoolArray:
        """The one estimate speaks of every arm: True, (1,)."""
        return np.ones(1, dtype=bool)
