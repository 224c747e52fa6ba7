"""Relatives of Fed-CI that explain where its gain comes from: each lacks one thing."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedbandit_agents.inference.fed_ci import FedCI, FedCIAgents
from fedbandit_agents.inference.stream import LocalStreamAgents, StreamAgents, is_stream
from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.features import Table
from fedbandit_envs.contexts.finite import PointMass, unchecked
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import ServerSide, SilentServer


@dataclass(frozen=True)
class ExactThompson(FedCI):
    """Federated Thompson sampling with known contexts: what Fed-CI would be with nothing left to infer.

    Use it beside Fed-CI to see the price of the hidden context; `ThetaTold` shows the price of the unknown theta. It is
    no bound that Fed-CI could reach with many agents, each of whom must still find its own bias. It needs
    `observe="context"`, and sends the same messages as Fed-CI.
    No bound on its regret is proved. The policy belongs to this library.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, observe="context")
    >>> history = fb.play(env, fb.make_policy("Exact-Thompson"), seed=0)
    >>> history.ledger.rounds
    4
    """

    observes: ClassVar[str] = "context"


@dataclass(frozen=True)
class FederatedThompson(FedCI):
    """Federated Thompson sampling that ignores the bias: it takes the expected features for the true ones.

    Use it beside Fed-CI to see what the inference of the context gains: agents share theta in the same way, but believe
    that they know their context. On streams all rewards then have the same weight. It sends what Fed-CI sends.
    No bound on its regret is proved; where contexts are hidden and fixed its model is wrong, and it can settle on a
    wrong arm. The policy belongs to this library.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Federated-Thompson"), seed=0)
    >>> history.ledger.rounds
    4
    """

    def agents(self, view: View) -> "FedCIAgents | UnweightedStreamAgents":
        """Agents that take their context for known: a table of features, psi."""
        if is_stream(view.constants):
            return UnweightedStreamAgents(self, view)
        n, num_arms, d = view.psi.shape
        known = unchecked(PointMass, points=view.psi.reshape(n, num_arms * d))
        return FedCIAgents(self, replace(view, distribution=known, feature_map=Table(num_arms, d)))


class UnweightedStreamAgents(StreamAgents):
    """Agents of Federated-Thompson on streams, who give all rewards the same weight."""

    def hidden_variances(self) -> FloatArray:
        """0: they take their context for known."""
        return np.zeros(self.view.psi.shape[:2])


@dataclass(frozen=True)
class LocalThompson(FedCI):
    """Thompson sampling without a server: each agent starts from the prior of theta and learns alone.

    Use it beside Fed-CI to see what federation gains. It models the hidden context as Fed-CI does, also on streams, but
    nothing is sent.
    No bound on its regret is proved: the theory of Thompson sampling takes features for known. The policy belongs to
    this library.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Local-Thompson"), seed=0)
    >>> history.ledger.messages
    0
    """

    talks_to: ClassVar[str] = "nobody"

    def first_plan(self, constants: Constants) -> int:
        """The number of steps before an agent's first decision: each arm once, since no other agent will report it."""
        return constants.num_arms

    def agents(self, view: View) -> "LocalAgents | LocalStreamAgents":
        """Agents that never speak."""
        return (LocalStreamAgents if is_stream(view.constants) else LocalAgents)(self, view)

    def server(self, view: ServerView) -> ServerSide:
        """A server that is never spoken to."""
        return SilentServer()


class LocalAgents(FedCIAgents):
    """Agents of Local-Thompson, who estimate the noise scale alone, too."""

    def report(self, feedback: Feedback) -> None:
        """Count the rewards and correct the noise scale; nothing is reported."""
        self.count(feedback)
        if self.policy.estimate_sigma and self.plan_end == self.phase_end:
            squares, freedom = np.split(self.residuals, 2, axis=1)
            self.sigma = self.policy.corrected_sigma(self.view.constants, squares, freedom)
            self.form_prior()


@dataclass(frozen=True)
class ThetaTold(LocalThompson):
    """Thompson sampling with theta known and the context hidden: what Fed-CI would be with a perfect server.

    Use it as the bound that Fed-CI comes near to with many agents: each agent must still find its own bias, however
    many there are. It is no learner of theta, which it is shown. Nothing is sent.
    No bound on its regret is proved. The policy belongs to this library.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Theta-Told"), seed=0)
    >>> history.ledger.messages
    0
    """

    observes: ClassVar[str] = "theta"

    def first_plan(self, constants: Constants) -> int:
        """One step: agents can decide from the first on."""
        return 1

    def agents(self, view: View) -> "ToldAgents":
        """Agents that know theta and never speak."""
        return ToldAgents(self, view)


class ToldAgents(LocalAgents):
    """Agents of Theta-Told, whose belief about theta is certain."""

    def __init__(self, policy: ThetaTold, view: View):
        super().__init__(policy, view)
        assert view.theta is not None
        self.told, self.theta = True, view.theta
        self.V = np.zeros(self.V.shape)
        size = np.sqrt(np.einsum("ad,ad->", self.theta, self.theta) / self.theta.size)
        self.scale = np.full(self.scale.shape, size)
        self.form_prior()

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """The posterior decides from the first step on."""
        if remaining == self.view.constants.horizon:
            self.plan_end = self.phase_end
            return self.chosen(self.plan_end, remaining)
        return super().plan(down, remaining)
