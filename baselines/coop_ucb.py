"""Running consensus between neighbours: coop-UCB2 (Landgren, Srivastava, Leonard)."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_baselines.peer_agents import PeerAgents
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.ties import first_largest
from fedbandit_envs.validation import check_fields, checked, real_number

#: False reports can bring estimates of pulls, which begin at 1, below this; they then count as this.
FEWEST = 1e-9


@dataclass(frozen=True)
class CoopUCB2(Policy):
    """Agents average what they know about each arm with their neighbours at each step, and play an upper bound of it.

    Use it where all agents have the same arms and no server exists: the group then learns nearly as one agent with all
    pulls. Each step sends 2 K numbers over each edge in each direction.
    The paper proves group regret of the order ln T, for Gaussian rewards with the same means for all agents and a
    connected graph. Lost messages are not covered.
    Reference: Landgren, Srivastava and Leonard, Distributed cooperative decision-making in multiarmed bandits, CDC
    2016. The paper leaves two details open; they are read so that the regret of another program comes out.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("coop-UCB2"), seed=0, network="ring")
    >>> history.ledger.scalars_peer  # 2 K for each of 10 directed edges, each time but after the last step
    38000
    """

    talks_to: ClassVar[str] = "peers"

    gamma: float = checked(1.01, real_number, above=1)  #: the exponent of the confidence, above 1

    def __post_init__(self) -> None:
        check_fields(self)

    def agents(self, view: View) -> "CoopUCB2Agents":
        """Agents that average with their neighbours."""
        return CoopUCB2Agents(self, view)


class CoopAgents(PeerAgents):
    """Agents that average pulls and rewards with their neighbours at each step; a subclass makes indices of them."""

    def __init__(self, view: View):
        super().__init__(view)
        self.totals: FloatArray = np.zeros((len(view.agents), 2 * view.constants.num_arms))  # nhat, then shat

    @abstractmethod
    def indices(self, counts: FloatArray, sums: FloatArray) -> FloatArray:
        """The index of each arm, (n, K), from nhat, at least `FEWEST`, and shat."""

    def begin(self, pulls: IntArray, sums: FloatArray) -> Message:
        """The start is learnt like any step."""
        return self.learn(pulls, sums)

    def choose(self) -> IntArray:
        """The arm with the largest index; ties go to the first arm."""
        num_arms = self.view.constants.num_arms
        counts, sums = self.totals[:, :num_arms], self.totals[:, num_arms:]
        return first_largest(self.indices(np.maximum(counts, FEWEST), sums))

    def learn(self, pulls: IntArray, sums: FloatArray) -> Message:
        """Add the step to the totals, and send them."""
        self.totals += np.concatenate([pulls, sums], axis=1)
        return Message("totals", {"totals": self.totals}, self.view.agents)

    def hear(self, down: Message | None) -> None:
        """Average the totals with those of the neighbours."""
        self.totals = self.network.mixed(self.totals, *self.received(down, "totals", self.totals))


class CoopUCB2Agents(CoopAgents):
    """Agents of coop-UCB2."""

    def __init__(self, policy: CoopUCB2, view: View):
        super().__init__(view)
        self.policy = policy

    def indices(self, counts: FloatArray, sums: FloatArray) -> FloatArray:
        """The upper confidence bounds."""
        constants, log = self.view.constants, math.log(self.steps)
        spread = 2 * self.policy.gamma * log * (counts + math.sqrt(log)) / (constants.num_agents * counts**2)
        return sums / counts + constants.noise_std * np.sqrt(spread)
