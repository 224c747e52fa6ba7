"""Accelerated gossip in stages: DDUCB (Martinez-Rubio, Kanade, Rebeschini)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_baselines.peer_agents import PeerAgents
from fedbandit_envs.arrays import FloatArray, IntArray, row_groups
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.ties import first_largest
from fedbandit_envs.validation import check_fields, checked, probability, real_number

_FEWEST = 1e-9  # estimates of pulls below this, which can even be negative, count as this


@dataclass(frozen=True)
class DDUCB(Policy):
    """Agents mix the pulls and rewards of one stage while they collect those of the next, and play upper bounds.

    A stage has as many steps as accelerated gossip (by Chebyshev polynomials) needs to bring the averages over the
    network within the accuracy `epsilon`. Decisions use what was mixed in all stages before, and the agent's own fresh
    pulls. Use it beside coop-UCB2: it needs to know how fast the network mixes (the second eigenvalue), and depends
    less on it. Each step sends 2 K numbers over each edge in each direction.
    The paper proves group regret of the order ln T, where all agents have the same means and no message is lost.
    Reference: Martinez-Rubio, Kanade and Rebeschini, Decentralized cooperative stochastic bandits, NeurIPS 2019.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("DDUCB"), seed=0, network="ring")
    >>> history.ledger.scalars_peer
    37800
    """

    talks_to: ClassVar[str] = "peers"

    eta: float = checked(2.0, real_number, above=1)  #: the exponent of the confidence, above 1
    epsilon: float = checked(1 / 22, probability)  #: the accuracy of the averages at the end of a stage

    def __post_init__(self) -> None:
        check_fields(self)

    def agents(self, view: View) -> "DDUCBAgents":
        """Agents that gossip in stages."""
        return DDUCBAgents(self, view)

    def stage(self, num_agents: int, second_eigenvalue: float) -> int:
        """C, the number of steps of a stage.

        >>> DDUCB().stage(num_agents=20, second_eigenvalue=0.96737)
        27
        """
        if not second_eigenvalue:  # one step gives the exact average
            return 1
        rate = math.sqrt(2 * math.log(1 / second_eigenvalue))
        return max(1, math.ceil(math.log(2 * num_agents / self.epsilon) / rate))


def chebyshev_factors(step: int, second_eigenvalue: float) -> tuple[float, float]:
    """The factors (a, b) of step r: y_{r+1} = a P y_r - b y_{r-1}; a - b = 1, so sums over the agents are kept.

    >>> chebyshev_factors(0, 0.5)
    (1.0, 0.0)
    >>> chebyshev_factors(1, 0.5)  # w = 1, 2, 7
    (1.1428571428571428, 0.14285714285714285)
    """
    if not step:
        return 1.0, 0.0
    ratio = second_eigenvalue  # w_{r-1} / w_r, which stays finite where w itself overflows
    for _ in range(1, step):
        ratio = 1 / (2 / second_eigenvalue - ratio)
    after = 1 / (2 / second_eigenvalue - ratio)  # w_r / w_{r+1}
    return 2 * after / second_eigenvalue, ratio * after


class DDUCBAgents(PeerAgents):
    """Agents of DDUCB. Each array (n, 2 K) holds pulls, then sums of rewards."""

    def __init__(self, policy: DDUCB, view: View):
        super().__init__(view)
        self.policy = policy
        self.place = 0  # r, the steps that were taken in this stage
        self.size = 0.0  # s, how many pulls of all agents the estimates stand for
        shape = len(view.agents), 2 * view.constants.num_arms
        self.known: FloatArray = np.zeros(shape)  # alpha, what decisions use
        self.mixing: FloatArray = np.zeros(shape)  # beta, what is being averaged
        self.before: FloatArray = np.zeros(shape)  # beta before the last exchange
        self.fresh: FloatArray = np.zeros(shape)  # gamma, what was collected in this stage
        self.settled: FloatArray = np.zeros(shape)  # delta, what was averaged in stages before

    def begin(self, pulls: IntArray, sums: FloatArray) -> None:
        """The first stage averages the first pulls."""
        self.mixing = np.concatenate([pulls, sums], axis=1).astype(np.float64)
        self.known = self.mixing / self.view.constants.num_agents
        self.size = float(self.steps)

    def choose(self) -> IntArray:
        """The arm with the largest index; ties go to the first arm."""
        constants = self.view.constants
        counts, sums = np.split(self.known, 2, axis=1)
        counts = np.maximum(counts, _FEWEST)
        spread = 2 * self.policy.eta * math.log(self.size) / (constants.num_agents * counts)
        return first_largest(sums / counts + constants.noise_std * np.sqrt(spread))

    def learn(self, pulls: IntArray, sums: FloatArray) -> Message:
        """Collect the step, count it for the agent's own decisions at once, and send what is being averaged."""
        step = np.concatenate([pulls, sums], axis=1)
        self.fresh += step
        self.known += step / self.view.constants.num_agents
        self.size += 1
        return Message.of_own("mixing", {"mixing": self.mixing}, self.view.agents)

    def hear(self, down: Message | None) -> None:
        """One exchange of the accelerated gossip; at the end of a stage the next one begins."""
        num_agents, second = self.view.constants.num_agents, self.network.second_eigenvalue
        mixed = self.network.mixed(self.mixing, *self.received(down, "mixing", self.mixing))
        ahead, back = chebyshev_factors(self.place, second)
        mixed *= ahead
        for rows in row_groups(len(mixed)):
            mixed[rows] -= back * self.before[rows]
        self.mixing, self.before = mixed, self.mixing
        self.place += 1
        stage = self.policy.stage(num_agents, second)
        if self.place == stage:
            self.settled = self.settled + self.mixing
            self.known, self.mixing, self.fresh = self.settled.copy(), self.fresh, np.zeros_like(self.fresh)
            self.place, self.size = 0, float((self.steps - stage) * num_agents)
