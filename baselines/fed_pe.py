"""Fed-PE (Huang, Wu, Yang and Shen 2021) and its variants, as other views or other widths of one implementation."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_agents.phased.elimination import PhasedAgents, PhasedElimination, PhasedServer
from fedbandit_agents.phased.estimation import predictions, squared_widths, survivors
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import ServerView, View
from fedbandit_envs.protocol.messages import Message


@dataclass(frozen=True)
class FedPE(PhasedElimination):
    """Federated phased elimination on the true features phi(a, c_i), for agents that know their context.

    Use it in the exact setting (`observe="context"`), as the baseline that Fed-PECD generalises; it can't be played
    where contexts are hidden. It sends the same messages as Fed-PECD, and has the same parameters.
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
        """Algorithm 1 with other widths."""
        return EnhancedAgents(self, view, self.ell or view.constants.ell)


class EnhancedAgents(PhasedAgents):
    """r' = m / N and u = sqrt(S ln((M / dK) S (MK / delta)^2)) / N, sums over phases weighted by f_{p-1}."""

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
        """Add this phase's predictions, then go by the accumulated ones."""
        psi, budget = self.view.psi, self.policy.budget(self.phase)
        squares = squared_widths(psi, down["V"])
        # A phase that says nothing about an arm (the reports that would have were lost) leaves its sums as they are.
        known = down.present["theta"]
        told = known & np.isfinite(squares)
        self.sums = self.sums + np.where(told, budget * predictions(psi, down["theta"]), 0)
        self.squares = self.squares + np.where(told, budget**2 * squares / self.ell**2, 0)
        self.weight = self.weight + np.where(told, budget, 0)
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
    bound on their norms. Use it to see what Fed-PE's privacy costs. The features are charged as communication.
    Reference: Huang, Wu, Yang and Shen, Federated Linear Contextual Bandits, NeurIPS 2021.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, observe="context")
    >>> history = fb.play(env, fb.make_policy("Collaborative"), seed=0)
    >>> history.ledger.rounds
    14
    """

    theorem: ClassVar[bool] = False

    def agents(self, view: View) -> "CollaborativeAgents":
        """Enhanced widths without 1/ell."""
        return CollaborativeAgents(self, view, 1.0)

    def server(self, view: ServerView) -> "CollaborativeServer":
        """Least squares on the features themselves."""
        return CollaborativeServer(self, view.constants)


class CollaborativeAgents(EnhancedAgents):
    """Sends psi with its first estimates."""

    def extras(self) -> dict[str, FloatArray]:
        """psi, once."""
        return {"psi": self.view.psi} if self.phase == 0 else {}


class CollaborativeServer(PhasedServer):
    """Works on psi in place of directions: V_a = (sum f psi psi^T)^+, theta_a = V_a sum f ||psi||^2 theta_{a,i}.

    Features are sent once: the estimates of an agent whose first report was lost can't be used.
    """

    def learn_directions(self, rows: "IntArray | slice", new: BoolArray, up: Message) -> None:
        """psi itself."""
        if "psi" in up.arrays:
            self.keep_directions(rows, new, up["psi"])

    def aggregated(
        self, theta: FloatArray, directions: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """theta_{a,i} ||psi||^2 is the mean reward times psi."""
        squares = np.einsum("nad,nad->na", directions, directions)
        return super().aggregated(theta * squares[..., None], directions, weights)


@dataclass(frozen=True)
class SharedThetaFedPE(FedPE):
    """Fed-PE for problems in which all arms have the same theta.

    The server makes one estimate and one design over all arms and agents, instead of one for each arm. Use it only
    where theta is shared: with different theta_a its estimate is wrong. Agents send what those of Fed-PE send; the
    server answers with one theta and one matrix.
    Reference: Huang, Wu, Yang and Shen, Federated Linear Contextual Bandits, NeurIPS 2021, the shared-parameter case.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, observe="context")
    >>> history = fb.play(env, fb.make_policy("Shared-Theta-Fed-PE"), seed=0)
    >>> history.ledger.rounds
    14
    """

    theorem: ClassVar[bool] = False

    def server(self, view: ServerView) -> "SharedThetaServer":
        """One estimate for all arms."""
        return SharedThetaServer(self, view.constants)


class SharedThetaServer(PhasedServer):
    """V = (sum_{a,i} f e e^T)^+ and theta = V sum_{a,i} f theta_{a,i}, with the design of that one matrix."""

    shared = True

    def aggregated(
        self, theta: FloatArray, directions: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """theta (1, d) and V (1, d, d)."""
        one_arm = (-1, 1, theta.shape[2])
        return super().aggregated(theta.reshape(one_arm), directions.reshape(one_arm), weights.reshape(-1, 1))

    def heard(self, V: FloatArray) -> BoolArray:
        """(1,) the one estimate speaks of every arm."""
        return np.ones(1, dtype=bool)
