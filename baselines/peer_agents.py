"""What agents that talk to their neighbours at each step have in common."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from fedbandit_agents.phased.plausibility import absurd_reward
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.neighbourhood import Neighbourhood
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide


class PeerAgents(AgentSide):
    """Agents that pull each arm once, and then choose, learn, speak and hear at each step.

    What a step brought is sent after it, and what the neighbours sent is heard before the next choice.

    Args:
        view: what the agents know, the network included.
    """

    each_arm_first: ClassVar[bool] = True  #: whether the first plan pulls each arm once, else it is a step like any

    def __init__(self, view: View):
        self.view = view
        self.steps = 0  # the steps that were taken
        self.spoke = False  # whether something was sent that has not been answered yet

    @property
    def network(self) -> Neighbourhood:
        """The neighbours of the agents."""
        assert self.view.network is not None  # a run of a policy that talks to peers always has a network
        return self.view.network

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """Each arm once at the start, or not; then one step with the chosen arms, after hearing the neighbours."""
        n, num_arms = self.view.psi.shape[:2]
        if not self.steps and self.each_arm_first:
            return Plan.explore_each(1, n, num_arms)
        if self.spoke:
            self.hear(down)
            self.spoke = False
        return Plan.play(self.choose(), num_arms)

    def report(self, feedback: Feedback) -> Message | None:
        """Learn from what was pulled, and tell the neighbours."""
        pulls, sums = feedback.pulls(), feedback.sums()
        if not self.steps:
            self.steps = self.view.constants.num_arms if self.each_arm_first else 1
            message = self.begin(pulls, sums)
        else:
            self.steps += 1
            message = self.learn(pulls, sums)
        self.spoke = message is not None
        return message

    def received(self, down: Message | None, name: str, own: FloatArray) -> tuple[FloatArray, BoolArray]:
        """The rows (n, D, k) of the neighbours, and which of them arrived, (n, D); a lost round brings none.

        Rows with numbers that no honest agent sends, by far, count as lost: what is mixed would carry them on.

        Args:
            down: what arrived; None: nothing.
            name: the name of the array.
            own: (n, k) the agents' own rows.
        """
        if down is not None:
            constants = self.view.constants
            most = constants.horizon * constants.num_agents * absurd_reward(constants)
            rows = down[name]
            possible = np.logical_and.reduce((rows <= most) & (rows >= -most), axis=2)
            if possible.all():
                return rows, down.present[name]
            return np.where(possible[..., None], rows, 0), down.present[name] & possible
        arrived = np.zeros((len(own), self.network.largest_degree), dtype=bool)
        return np.zeros((*arrived.shape, own.shape[1])), arrived

    @abstractmethod
    def begin(self, pulls: IntArray, sums: FloatArray) -> Message | None:
        """Learn from the first plan, its pulls (n, K) and the sums (n, K) of its rewards; return what to tell."""

    @abstractmethod
    def choose(self) -> IntArray:
        """The arms (n,) of the next step."""

    @abstractmethod
    def learn(self, pulls: IntArray, sums: FloatArray) -> Message:
        """Learn from a step, its pulls (n, K) and the sums (n, K) of its rewards; return what to tell neighbours."""

    @abstractmethod
    def hear(self, down: Message | None) -> None:
        """Learn from what the neighbours sent; None: the round was lost for all."""


def strange_counts(up: Message, name: str, horizon: int) -> dict[int, str]:
    """The agents that report fewer than 0 pulls of an arm, or more than there are steps; see `Policy.refuses`.

    Args:
        up: the reports.
        name: the array (n, K) with the numbers of pulls.
        horizon: the number of steps, T.

    >>> up = Message("estimates", {"most": np.array([[1.0, 2.0], [1e9, 2.0]])}, agents=np.array([3, 5]))
    >>> strange_counts(up, "most", horizon=100)
    {5: 'sent a number of pulls below 0 or above 100'}
    """
    assert up.agents is not None
    strange = ~((up[name] >= 0) & (up[name] <= horizon)).all(axis=1)
    return dict.fromkeys(up.agents[strange].tolist(), f"sent a number of pulls below 0 or above {horizon}")


def one_among(allowed: BoolArray, uniforms: FloatArray) -> IntArray:
    """For each row one of the places that are allowed, uniformly drawn; 0 in rows where none is.

    Args:
        allowed: (n, K) which places can be drawn.
        uniforms: (n,) random numbers in [0, 1), one for each row.

    >>> one_among(np.array([[False, True, True], [False, False, False]]), np.array([0.7, 0.7]))
    array([2, 0])
    """
    # The j-th allowed place, j uniform: the first place up to which j + 1 places are allowed.
    drawn = np.floor(uniforms * np.add.reduce(allowed, axis=1))
    return (allowed.cumsum(axis=1) > drawn[:, None]).argmax(axis=1)
