"""Upper confidence bounds for arms without features: UCB1 for each agent alone, and Pooled-UCB with a server."""

import math
from dataclasses import dataclass

import numpy as np

from fedbandit_baselines.ucb import LocalUCBAgents
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import Policy, ServerSide
from fedbandit_envs.protocol.steps import Outcome, StepAgents
from fedbandit_envs.ties import first_largest
from fedbandit_envs.validation import check_fields, checked, optional, real_number

# The least factor on a radius: the huge radius of an arm that was never pulled stays huge, others do not change.
_LEAST_BONUS = 1e-100


def known_noise(sigma: float | None, constants: Constants) -> float:
    """The noise scale of a policy: its own parameter, or what the problem tells.

    >>> known_noise(0.5, Constants(3, 10, 2, 5000, ell=1.0, L=1.0, noise_std=2.0, context="fixed"))
    0.5
    """
    return constants.noise_std if sigma is None else sigma


def strange_arms(up: Message, num_arms: int) -> dict[int, str]:
    """The agents whose report names in "arm" an arm that does not exist, and the reason; see `ServerSide.refuses`.

    >>> strange_arms(Message("reward", {"arm": np.array([0, 7])}, np.array([3, 5])), num_arms=2)
    {5: 'sent something about arm 7, which does not exist'}
    """
    assert up.agents is not None
    strange = (up["arm"] < 0) | (up["arm"] >= num_arms)
    pairs = zip(up.agents[strange].tolist(), up["arm"][strange].tolist(), strict=True)
    return {agent: f"sent something about arm {arm}, which does not exist" for agent, arm in pairs}


@dataclass(frozen=True)
class UCB1(Policy):
    """The classic UCB1 for each agent alone, blind to features.

    After t pulls an agent plays the arm with the largest mean + sigma sqrt(2 ln t / n), where n is how often it has
    pulled the arm; every arm is pulled once first. The comparisons of papers on federated multi-armed bandits use it;
    Local-UCB has another bonus. Nothing is sent. For rewards in [0, 1] the paper proves a regret of at most
    sum_a 8 ln T / gap_a and a constant, with the bonus sqrt(2 ln t / n), which is `sigma` = 1 here. With the sigma of
    such rewards, at most 1/2, the bonus is smaller, and that proof does not cover it.
    Reference: Auer, Cesa-Bianchi and Fischer, Finite-time Analysis of the Multiarmed Bandit Problem, Machine Learning
    47, 2002.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/MultiArmed-v0", num_agents=5, max_cycles=200)
    >>> fb.play(env, fb.make_policy("UCB1"), seed=0).ledger.messages
    0
    """

    #: noise scale that the bounds assume; None: that of the problem
    sigma: float | None = checked(None, optional(real_number), at_least=0)

    def __post_init__(self) -> None:
        check_fields(self)

    def agents(self, view: View) -> "UCB1Agents":
        """Agents that never communicate."""
        return UCB1Agents(view, known_noise(self.sigma, view.constants))


class UCB1Agents(LocalUCBAgents):
    """Agents of UCB1."""

    def __init__(self, view: View, sigma: float):
        super().__init__(view)
        self.sigma = sigma

    def bonus(self) -> float:
        """The factor on a radius in an index: sigma sqrt(2 ln t), where t are the pulls so far."""
        return max(self.sigma * math.sqrt(2 * math.log(max(self.step - 1, 1))), _LEAST_BONUS)


@dataclass(frozen=True)
class PooledUCB(Policy):
    """UCB1 on the rewards of all agents: a server adds them up at each step.

    All agents play the arm with the largest mean + sigma sqrt(2 ln t / n), where n are everybody's pulls of the arm and
    t all pulls of everybody; every arm is pulled once first. Use it as the upper end of what sharing can give to agents
    that play the same bandit. Where their means differ, all play one arm for the group. Each agent sends 2 scalars at
    each step and receives 2 K. The theorem of UCB1 is for one agent that learns after each pull. Here M agents pull
    between two answers, and no bound is proved for that. The policy belongs to this library.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/MultiArmed-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Pooled-UCB"), seed=0)
    >>> history.ledger.scalars_up, history.ledger.scalars_down
    (1990, 19900)
    """

    #: noise scale that the bounds assume; None: that of the problem
    sigma: float | None = checked(None, optional(real_number), at_least=0)

    def __post_init__(self) -> None:
        check_fields(self)

    def agents(self, view: View) -> "PooledUCBAgents":
        """Agents that send each reward."""
        return PooledUCBAgents(self, view)

    def server(self, view: ServerView) -> "PooledUCBServer":
        """A server that adds up the rewards of all agents."""
        return PooledUCBServer(view.constants)


class PooledUCBAgents(StepAgents):
    """Agents of Pooled-UCB: they know everybody's pulls and sums as of the last answer."""

    def __init__(self, policy: PooledUCB, view: View):
        super().__init__(view)
        self.sigma = known_noise(policy.sigma, view.constants)
        self.pulls: FloatArray = np.zeros(view.constants.num_arms)  # (K,) the pulls of all agents
        self.sums: FloatArray = np.zeros(view.constants.num_arms)  # (K,) the sums of their rewards

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """Take over the sums of all agents, and play one step."""
        if down is not None:
            self.pulls, self.sums = down["pulls"].astype(np.float64), down["sums"].copy()
        return super().plan(None, remaining)

    def choose(self) -> IntArray:
        """The arm with the largest index, the same for all agents; an arm that nobody has pulled comes first."""
        arm = int(self.pulls.argmin())
        if self.pulls[arm] > 0:
            bonus = self.sigma * math.sqrt(2 * math.log(self.pulls.sum()))
            arm = int(first_largest((self.sums / self.pulls + bonus / np.sqrt(self.pulls))[None])[0])
        return np.full(len(self.view.agents), arm)

    def learn(self, outcome: Outcome) -> None:
        """Nothing is learnt alone: the server adds up."""

    def report(self, feedback: Feedback) -> Message | None:
        """The arm that was pulled, and its reward."""
        pulled = feedback.played == 1
        if not pulled.any():
            return None
        arrays = {"arm": feedback.arm[pulled], "reward": feedback.played_sums[pulled]}
        return Message("reward", arrays, self.view.agents[pulled])


class PooledUCBServer(ServerSide):
    """The server of Pooled-UCB."""

    def __init__(self, constants: Constants):
        self.pulls: IntArray = np.zeros(constants.num_arms, dtype=np.int64)
        self.sums: FloatArray = np.zeros(constants.num_arms)

    def refuses(self, up: Message) -> dict[int, str]:
        """Arms that don't exist."""
        return strange_arms(up, len(self.pulls)) | super().refuses(up)

    def answer(self, up: Message) -> Message:
        """The pulls and sums of all agents."""
        self.pulls = self.pulls + np.bincount(up["arm"], minlength=len(self.pulls))
        self.sums = self.sums + np.bincount(up["arm"], weights=up["reward"], minlength=len(self.sums))
        return Message("sums", {"pulls": self.pulls, "sums": self.sums})
