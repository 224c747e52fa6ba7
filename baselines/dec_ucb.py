"""Consensus on the means of common arms without any number of the whole network: Dec-UCB (Zhu and others)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_baselines.peer_agents import PeerAgents, one_among, strange_counts
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.ties import first_largest
from fedbandit_envs.validation import check_fields


@dataclass(frozen=True)
class DecUCB(Policy):
    """Agents average their estimates with their neighbours, and know nothing of the network beyond these.

    Use it where agents don't know how many they are; coop-UCB2 and DDUCB, which do, share more. It is made for arms
    that pay all agents alike. Each step sends 2 K numbers over each edge in each direction.
    The paper proves that each agent's regret is of the order ln T / |N|, where |N| counts its neighbours and itself,
    for rewards in [0, 1] and the same means for all agents.
    Reference: Zhu, Mulle, Smith and Liu, Decentralized multi-armed bandit can outperform classic upper confidence
    bound, 2021 (Dec_UCB, undirected). Its rewards lie in [0, 1], where sigma is 1/2.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/MultiArmed-v0", num_agents=5, max_cycles=200)
    >>> fb.play(env, fb.make_policy("Dec-UCB"), seed=0, network="ring").ledger.scalars_peer
    37800
    """

    talks_to: ClassVar[str] = "peers"

    def __post_init__(self) -> None:
        check_fields(self)

    def refuses(self, up: Message, constants: Constants) -> dict[int, str]:
        """Numbers of pulls that can't be: all would pull an arm that is said to be pulled so often."""
        return strange_counts(up, "most", constants.horizon) | super().refuses(up, constants)

    def agents(self, view: View) -> "DecUCBAgents":
        """Agents that average estimates with their neighbours."""
        return DecUCBAgents(view)


class DecUCBAgents(PeerAgents):
    """Agents of Dec-UCB."""

    def __init__(self, view: View):
        super().__init__(view)
        shape = view.psi.shape[:2]
        self.pulls: FloatArray = np.zeros(shape)  # n
        self.sums: FloatArray = np.zeros(shape)  # the sums of the agent's own rewards
        self.most: FloatArray = np.zeros(shape)  # m, the most pulls that any agent is known to have
        self.means: FloatArray = np.zeros(shape)  # z, the estimates of the means
        self.change: FloatArray = np.zeros(shape)  # the change of the own sample means in the last step

    def sample_means(self) -> FloatArray:
        """The means (n, K) of the agent's own rewards; 0 for an arm that was never pulled."""
        return self.sums / np.maximum(self.pulls, 1)

    def begin(self, pulls: IntArray, sums: FloatArray) -> None:
        """Start with the agent's own first rewards."""
        self.pulls += pulls
        self.sums += sums
        self.most, self.means = self.pulls.copy(), self.sample_means()

    def choose(self) -> IntArray:
        """One of the arms that lag behind, if there are any; else the arm with the largest index."""
        num_arms, t = self.view.constants.num_arms, self.steps - self.view.constants.num_arms
        heard = (1 + self.network.degrees)[:, None]
        radius = np.sqrt(3 * math.log(max(t, 1)) / (heard * np.maximum(self.pulls, 1)))
        arms = first_largest(self.means + 2 * self.view.constants.noise_std * radius)
        behind = self.pulls <= self.most - num_arms
        lags = behind.any(axis=1)
        if lags.any():
            arms = np.where(lags, one_among(behind, self.view.randomness.draws(self.steps).uniforms()), arms)
        return arms

    def learn(self, pulls: IntArray, sums: FloatArray) -> Message:
        """Send the estimates as they were before the step, and keep the change of the agent's own means."""
        message = Message("estimates", {"most": self.most, "means": self.means}, self.view.agents)
        before = self.sample_means()
        self.pulls += pulls
        self.sums += sums
        self.change = self.sample_means() - before
        return message

    def hear(self, down: Message | None) -> None:
        """Average the estimates, add the change to them, and learn who has pulled most."""
        received = self.received(down, "means", self.means)
        self.means = self.network.mixed(self.means, *received, self.network.pair_weights) + self.change
        most, arrived = self.received(down, "most", self.most)
        theirs = np.where(arrived[..., None], most, 0).max(axis=1, initial=0)
        self.most = np.maximum(np.maximum(self.pulls, self.most), theirs)
