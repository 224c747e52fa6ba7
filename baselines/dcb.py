"""Linear bandits by gossip: DCB (Korda, Szorenyi, Li)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_agents.linear.ridge import Ridge, choose, from_sums
from fedbandit_agents.linear.widths import hidden_scale
from fedbandit_agents.phased.plausibility import absurd_length, absurd_reward
from fedbandit_baselines.peer_agents import PeerAgents
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.validation import check_fields, checked, probability, real_number


@dataclass(frozen=True)
class DCB(Policy):
    """Linear upper confidence bounds on psi from the observations of all agents, which spread by gossip alone.

    Use it to see what linear policies cost without a server: an agent hears a whole queue of observations at each step.
    Agents decide blindly until their first entry is old enough to be nearly the sum over all agents.
    The paper's theorem is for known contexts, one theta and a complete network. Hidden contexts are not covered.
    Reference: after Korda, Szorenyi and Li, Distributed clustering of linear bandits in peer to peer networks, ICML
    2016 (DCB). Its constants are recalled, and not compared with its text. The paper has a complete network; on others
    neighbours are paired at random.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=4, num_arms=2, max_cycles=30)
    >>> history = fb.play(env, fb.make_policy("DCB"), seed=0, network="complete")
    >>> history.ledger.messages_peer  # at most one for each agent and step: a permutation can leave some alone
    87
    """

    talks_to: ClassVar[str] = "peers"
    delivery: ClassVar[dict[str, str]] = {"queue": "permutation"}

    delta: float = checked(0.1, probability)  #: allowed probability that some confidence bound fails
    sigma: float = checked(1.0, real_number, above=0)  #: noise scale that the bounds assume
    theta_bound: float = checked(1.0, real_number, at_least=0)  #: an upper bound on ||theta_a||

    def __post_init__(self) -> None:
        check_fields(self)

    def agents(self, view: View) -> "DCBAgents":
        """Agents that gossip their observations."""
        return DCBAgents(self, view)


def longest_queue(num_agents: int, steps: int) -> float:
    """4 log2(M^(3/2) t): an entry that is older than this number of steps is as good as a sum over all agents.

    >>> round(longest_queue(10, 42), 2)
    41.5
    """
    return 4 * math.log2(num_agents**1.5 * max(steps, 1))


class DCBAgents(PeerAgents):
    """Agents of DCB. Sums of x x^T and of x y are kept as one array (d, d + 1), for each arm or for all."""

    each_arm_first: ClassVar[bool] = False

    def __init__(self, policy: DCB, view: View):
        super().__init__(view)
        n, num_arms, dim = view.psi.shape
        self.policy = policy
        blocks = 1 if view.constants.shared_theta else num_arms
        self.known: FloatArray = np.zeros((n, blocks, dim, dim + 1))  # what decisions use
        self.queue: FloatArray = np.zeros((n, 0, blocks, dim, dim + 1))  # what is being averaged, the oldest first

    def observe(self, view: View) -> None:
        """Keep what is shown from now on."""
        self.view = view

    def width(self) -> float:
        """The confidence width: R sqrt(d ln(1 + M t L^2 / d) + ln(B / delta)) + S, with B estimates."""
        constants, policy, blocks = self.view.constants, self.policy, self.known.shape[1]
        scale = policy.sigma if self.view.exact else hidden_scale(policy.sigma)
        growth = constants.dim * math.log1p(constants.num_agents * self.steps * constants.L**2 / constants.dim)
        return scale * math.sqrt(growth + math.log(blocks / policy.delta)) + policy.theta_bound

    def begin(self, pulls: IntArray, sums: FloatArray) -> Message:
        """There is no start: the first step is like any other."""
        return self.learn(pulls, sums)

    def choose(self) -> IntArray:
        """The arm with the largest upper confidence bound."""
        return choose(self.ridge(), self.view.psi, self.width())

    def ridge(self) -> Ridge:
        """What is known."""
        return from_sums(self.known[..., :-1], self.known[..., -1], regularisation=1.0)

    def learn(self, pulls: IntArray, sums: FloatArray) -> Message:
        """Put the step into the queue, and send the queue."""
        psi = self.view.psi
        regressors = pulls[..., None] * psi
        entry = np.concatenate(  # (n, K, d, d + 1)
            [psi[..., None] * regressors[..., None, :], (sums[..., None] * psi)[..., None]], axis=-1
        )
        entry *= self.view.constants.num_agents
        if self.known.shape[1] == 1:
            entry = np.add.reduce(entry, axis=1)[:, None]
        self.queue = np.concatenate([self.queue, entry[:, None]], axis=1)
        return Message("queue", {"queue": self.queue}, self.view.agents)

    def _possible(self, queue: FloatArray) -> BoolArray:
        """Whether no entry of a queue is larger than any honest agent's, by far; a false queue is not heard, (n,)."""
        constants = self.view.constants
        most = np.full(queue.shape[-1], constants.num_agents * absurd_length(constants) ** 2)
        most[-1] = constants.num_agents * absurd_length(constants) * absurd_reward(constants)
        return np.asarray((np.abs(queue) <= most).all(axis=(1, 2, 3, 4)))

    def hear(self, down: Message | None) -> None:
        """Average the queue with that of another agent; what is old enough is used from now on."""
        if down is not None:
            heard = down.present["queue"] & self._possible(down["queue"][:, 0])[:, None]
            self.queue += np.where(heard[..., None, None, None], down["queue"][:, 0], 0)
            self.queue *= np.where(heard, 0.5, 1.0)[..., None, None, None]
        if self.queue.shape[1] > longest_queue(self.view.constants.num_agents, self.steps):
            self.known = self.known + self.queue[:, 0]
            self.queue = self.queue[:, 1:]
