"""Gossip over one edge at a time, for the arm that is best for the whole group: Gossip-UCB (Zhu and others)."""

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
from fedbandit_envs.validation import check_fields, checked, real_number


@dataclass(frozen=True)
class GossipUCB(Policy):
    """Agents with different means look for the arm that is best on average, and average over one random edge a step.

    Use it where a group must agree on one arm and no server exists. Its constants are large: below about 10^5 steps it
    plays nearly uniformly unless `scale` is lowered. Each step sends K numbers over each edge in each direction, and K
    more over both directions of the random edge.
    The paper proves group regret of the order M K ln T, for rewards in [0, 1] on a connected graph that does not
    change. With lost messages or a smaller `scale` nothing is promised.
    Reference: Zhu, Zhu, Liu and Liu, Federated bandit: a gossiping approach, 2021 (Gossip_UCB).

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, num_arms=4, max_cycles=100)
    >>> history = fb.play(env, fb.make_policy("Gossip-UCB"), seed=0, network="ring")
    >>> history.ledger.scalars_peer  # K (2 |E| + 2) in all steps but the start and the last
    4560
    """

    talks_to: ClassVar[str] = "peers"
    delivery: ClassVar[dict[str, str]] = {"means": "one-edge"}

    scale: float = checked(1.0, real_number, above=0)  #: a factor on the paper's bonus

    def __post_init__(self) -> None:
        check_fields(self)

    def refuses(self, up: Message, constants: Constants) -> dict[int, str]:
        """Numbers of pulls that can't be: all would pull an arm that is said to be pulled so often."""
        return strange_counts(up, "most", constants.horizon) | super().refuses(up, constants)

    def agents(self, view: View) -> "GossipUCBAgents":
        """Agents that gossip over one edge at a time."""
        return GossipUCBAgents(self, view)


class GossipUCBAgents(PeerAgents):
    """Agents of Gossip-UCB."""

    def __init__(self, policy: GossipUCB, view: View):
        super().__init__(view)
        self.policy = policy
        shape = view.psi.shape[:2]
        self.pulls: FloatArray = np.zeros(shape)  # n
        self.sums: FloatArray = np.zeros(shape)  # the sums of the agent's own rewards
        self.most: FloatArray = np.zeros(shape)  # ntilde, the most pulls that any agent is known to have
        self.means: FloatArray = np.zeros(shape)  # theta, the estimates of the means over all agents
        self.sent: FloatArray = np.zeros(shape)  # theta as it was sent last

    def sample_means(self) -> FloatArray:
        """X (n, K), the means of the agent's own rewards; 0 for an arm that was never pulled."""
        return self.sums / np.maximum(self.pulls, 1)

    def take_in(self, pulls: IntArray, sums: FloatArray) -> None:
        """Count the agent's own pulls and rewards."""
        self.pulls += pulls
        self.sums += sums

    def begin(self, pulls: IntArray, sums: FloatArray) -> None:
        """Start with the agent's own first rewards."""
        self.take_in(pulls, sums)
        self.most, self.means = self.pulls.copy(), self.sample_means().copy()

    def choose(self) -> IntArray:
        """One of the arms that lag behind, if there are any; else the arm with the largest index."""
        arms = first_largest(self.means + self.radii(self.steps - self.view.constants.num_arms + 1))
        behind = self.pulls < self.most - self.view.constants.num_agents
        lags = behind.any(axis=1)
        if lags.any():
            arms = np.where(lags, one_among(behind, self.view.randomness.draws(self.steps).uniforms()), arms)
        return arms

    def radii(self, t: int) -> FloatArray:
        """(n, K) what is added to the estimates at the t-th step after the start."""
        constants = self.view.constants
        radius = np.sqrt(2 * constants.num_agents * math.log(t) / np.maximum(self.pulls, 1))
        return 2 * constants.noise_std * self.policy.scale * radius

    def learn(self, pulls: IntArray, sums: FloatArray) -> Message:
        """Send the estimates as they were before the step, and then add the change of the agent's own means."""
        message = Message("gossip", {"most": self.most, "means": self.means}, self.view.agents)
        self.sent, before = self.means, self.sample_means()
        self.take_in(pulls, sums)
        self.means = self.means + self.sample_means() - before
        return message

    def hear(self, down: Message | None) -> None:
        """Average with the other end of the edge, if this agent is at one, and learn who has pulled most."""
        others, arrived = self.received(down, "means", self.sent)
        self.means = self.means + np.einsum("nd,ndk->nk", arrived / 2, others - self.sent[:, None])
        most, arrived = self.received(down, "most", self.most)
        # The agent's own `most` is never larger than what arrives without failures; with failures it keeps its place.
        theirs = np.where(arrived[..., None], most, 0).max(axis=1, initial=0)
        self.most = np.maximum(np.maximum(self.pulls, self.most), theirs)
