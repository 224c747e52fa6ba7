"""One-Round: best-arm identification with a single round of communication."""

import math
from dataclasses import dataclass

import numpy as np

from fedbandit_baselines.multi_armed_ucb import known_noise, strange_arms
from fedbandit_baselines.own_elimination import UNDECIDED, OwnElimination, chosen_arm
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import Policy, ServerSide
from fedbandit_envs.ties import JUST_WHOLE
from fedbandit_envs.validation import check_fields, checked, one_of, optional, probability, real_number, whole_number


@dataclass(frozen=True)
class OneRound(Policy):
    """Best-arm identification in one round: k agents vote for an arm, each after looking at a few arms alone.

    Use it where agents can talk only once. Compared with one agent, each of k agents needs about sqrt(k) times fewer
    pulls. It is judged by the recommended arm and by the pulls until agents settle, as Multi-Round is.
    The paper proves that the answer is right with probability 2/3, for k from 36 to K^2 agents with the same means and
    a `budget` of the order (1 / sqrt(k)) sum_a ln(1 / gap_a) / gap_a^2. Its factor is not stated, so no given budget
    comes with a promise, and neither does regret.
    Reference: Hillel, Karnin, Koren, Lempel and Somekh, Distributed Exploration in Multi-Armed Bandits, NIPS 2013. The
    paper leaves open what an agent does alone.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/MultiArmed-v0", num_agents=36, means=[0.9, 0.5, 0.4, 0.3], noise_std=0.5)
    >>> history = fb.play(env, fb.make_policy("One-Round", budget=4_000), seed=0)
    >>> history.ledger.rounds, history.ledger.scalars_up, set(history.recommended[-1].tolist())
    (1, 72, {0})
    """

    #: the pulls of an agent until the answer, T; None: half of the horizon
    budget: int | None = checked(None, optional(whole_number), at_least=1)
    delta: float = checked(1 / 3, probability)  #: allowed probability that an agent drops the best of its arms
    #: "random": an agent with several arms left, or a server without an arm of many votes, takes any of them, as the
    #: paper has it; "best": the one with the largest mean
    undecided: str = checked("random", one_of, choices=UNDECIDED)
    #: noise scale that the bounds assume; None: that of the problem
    sigma: float | None = checked(None, optional(real_number), at_least=0)

    def __post_init__(self) -> None:
        check_fields(self)

    def time(self, constants: Constants) -> int:
        """T, the pulls of an agent until it votes."""
        return max(constants.horizon // 2, 1) if self.budget is None else self.budget

    def num_drawn(self, constants: Constants) -> int:
        """How many arms an agent looks at: 6 K / sqrt(k), rounded up, at most K."""
        few = math.ceil(6 * constants.num_arms / math.sqrt(constants.num_agents) * JUST_WHOLE)
        return min(few, constants.num_arms)

    def agents(self, view: View) -> "OneRoundAgents":
        """Agents that vote."""
        return OneRoundAgents(self, view)

    def server(self, view: ServerView) -> "OneRoundServer":
        """A server that counts votes."""
        return OneRoundServer(self, view)


class OneRoundAgents(OwnElimination):
    """Agents of One-Round: they eliminate alone, measure what they have chosen, and vote."""

    def __init__(self, policy: OneRound, view: View):
        drawn = policy.num_drawn(view.constants)
        super().__init__(view, known_noise(policy.sigma, view.constants), policy.delta, drawn)
        self.policy = policy
        order = view.randomness.draws(0).uniforms(view.constants.num_arms).argsort(axis=1)
        np.put_along_axis(self.left, order[:, drawn:], values=False, axis=1)
        self.measuring = False
        self.measured: IntArray = np.zeros(len(view.agents), dtype=np.int64)  # pulls of the chosen arm for its mean
        self.measured_sums: FloatArray = np.zeros(len(view.agents))

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """A phase of elimination, then pulls of the chosen arm, and the answer to the end."""
        if down is not None:
            self.settle(down)
        num_arms, budget = self.left.shape[1], self.policy.time(self.view.constants)
        if self.answered:
            return Plan.play(self.best, num_arms, remaining)
        if self.spent < budget // 2:
            return self.phase_plan(budget // 2)
        if not self.measuring:
            self.best, self.measuring = self.choices(self.policy.undecided), True
        return Plan.play(self.best, num_arms, budget - budget // 2)

    def report(self, feedback: Feedback) -> Message | None:
        """The vote, once the chosen arm is measured: the arm and its mean."""
        if self.answered:
            return None
        if not self.measuring:
            self.learn_phase(feedback)
            return None
        self.measured += feedback.played
        self.measured_sums += feedback.played_sums
        mean = self.measured_sums / np.maximum(self.measured, 1)
        return Message("vote", {"arm": self.best, "mean": mean}, self.view.agents)


class OneRoundServer(ServerSide):
    """The server of One-Round."""

    def __init__(self, policy: OneRound, view: ServerView):
        self.policy, self.view = policy, view

    def refuses(self, up: Message) -> dict[int, str]:
        """Votes for arms that don't exist."""
        return strange_arms(up, self.view.constants.num_arms) | super().refuses(up)

    def answer(self, up: Message) -> Message:
        """The arm with the largest average of those with more than sqrt(k) votes; any arm if there are none."""
        constants = self.view.constants
        votes = np.bincount(up["arm"], minlength=constants.num_arms)
        averages = np.bincount(up["arm"], weights=up["mean"], minlength=constants.num_arms) / np.maximum(votes, 1)
        many = votes**2 > constants.num_agents
        rng = self.view.randomness.generator(0)
        if many.any():
            best = chosen_arm(averages, many, "best", rng)
        elif self.policy.undecided == "best":
            best = chosen_arm(averages, votes > 0, "best", rng)
        else:
            best = chosen_arm(averages, np.ones(len(votes), dtype=bool), "random", rng)
        return Message("answer", {"best": np.array([best])})
