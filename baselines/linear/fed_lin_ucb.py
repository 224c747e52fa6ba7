"""FedLinUCB: each agent synchronises with the server alone, when it has learnt enough, after He et al."""

import math
from dataclasses import dataclass

import numpy as np

from fedbandit_agents.linear.ridge import Ridge, choose, from_sums
from fedbandit_agents.linear.triggers import has_learnt
from fedbandit_agents.linear.widths import fed_lin_ucb_width
from fedbandit_baselines.linear.agents import LinearPolicy
from fedbandit_baselines.linear.sharing import AddingServer, SharingAgents, check_new
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.validation import checked, optional, real_number


@dataclass(frozen=True)
class FedLinUCB(LinearPolicy):
    """A linear bandit whose agents each send and receive sums on their own, when their determinant has grown enough.

    Use it where agents can't wait for each other: each message concerns one agent and the server only. An agent plays
    by what it last received; its own newer data only decide when it sends.
    The paper proves regret of the order d sqrt(n), up to logarithms, for n pulls of all agents, one agent at a time,
    with one theta and known contexts. Agents that act together and hidden contexts are not covered.
    Reference: after He, Wang, Min and Gu, A Simple and Provably Efficient Algorithm for Asynchronous Federated
    Contextual Linear Bandits, NeurIPS 2022. The steps agree with the authors' code. The width and the defaults of alpha
    and lambda are recalled from the paper.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, context="streaming")
    >>> fb.play(env, fb.make_policy("FedLinUCB", alpha=1.0), seed=0).ledger.messages
    66
    """

    #: how much a determinant must grow before its agent sends; None takes 1 / M^2
    alpha: float | None = checked(None, optional(real_number), above=0)
    regularisation: float = checked(1.0, real_number, above=0)  #: lambda: V starts as lambda times the identity
    #: the confidence width; None takes that of the theory, which is large
    width: float | None = checked(None, optional(real_number), at_least=0)

    def agents(self, view: View) -> "FedLinUCBAgents":
        """Agents that share sums of psi psi^T and psi y."""
        return FedLinUCBAgents(self, view)

    def server(self, view: ServerView) -> "FedLinUCBServer":
        """A server that adds up sums, and answers those who sent some."""
        return FedLinUCBServer(view.constants, together=False)


class FedLinUCBAgents(SharingAgents):
    """Agents of FedLinUCB: what they learn decides when they send, what they last received decides what they play."""

    def __init__(self, policy: FedLinUCB, view: View):
        settings = policy.settings(view, regularisation=policy.regularisation)
        super().__init__(view, settings)
        constants = view.constants
        self.factor = 1 + (1 / constants.num_agents**2 if policy.alpha is None else policy.alpha)
        self.fixed_width = policy.width
        if policy.width is None:
            self.fixed_width = fed_lin_ucb_width(
                num_agents=constants.num_agents,
                horizon=constants.horizon,
                dim=self.blocks * constants.dim,
                alpha=self.factor - 1,
                scale=settings.scale,
                delta=settings.delta,
                regularisation=settings.regularisation,
                theta_bound=math.sqrt(self.blocks) * settings.theta_bound,
                feature_bound=constants.L,
            )
        # What was last received.
        self.received_inverse, self.received_moments, self.received_growth = (part.copy() for part in self.ridge)

    def choose(self) -> IntArray:
        """The arm with the largest upper confidence bound, by what was last received."""
        received = Ridge(self.received_inverse, self.received_moments, self.received_growth)
        assert self.fixed_width is not None
        return choose(received, self.view.psi, self.fixed_width)

    def speak(self) -> Message | None:
        """What is new, from the agents that have learnt enough."""
        asking = np.flatnonzero(has_learnt(self.grown, self.factor))
        return self.news(asking) if len(asking) else None

    def hear(self, down: Message) -> None:
        """The sums of all agents, from which those who have sent theirs go on."""
        rows = self.rows_of(down)
        common = from_sums(down["gram"], down["moments"], self.regularisation)
        received = Ridge(self.received_inverse, self.received_moments, self.received_growth)
        for known in (self.ridge, received):
            for array, part in zip(known, common, strict=True):
                array[rows] = part
        self.forget_news(rows)


class FedLinUCBServer(AddingServer):
    """The server of FedLinUCB."""

    def answer(self, up: Message) -> Message:
        """The sums over all agents, to those who have sent something."""
        check_new(up)
        assert up.agents is not None

        def for_each(sums: FloatArray) -> FloatArray:
            return np.broadcast_to(sums, (len(up["gram"]), *sums.shape))

        gram, moments = self.sums_with(up)
        return Message("sums", {"gram": for_each(gram), "moments": for_each(moments)}, up.agents)
