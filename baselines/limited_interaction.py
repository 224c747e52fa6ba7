"""Limited-Interaction: best-arm identification in a given time and a given number of rounds."""

import math
from dataclasses import dataclass

import numpy as np

from fedbandit_baselines.multi_armed_ucb import known_noise, strange_arms
from fedbandit_baselines.own_elimination import UNDECIDED, OwnElimination, chosen_arm
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import Policy, ServerSide
from fedbandit_envs.ties import rounding
from fedbandit_envs.validation import check_fields, checked, one_of, optional, probability, real_number, whole_number


@dataclass(frozen=True)
class LimitedInteraction(Policy):
    """Best-arm identification in a fixed time with R rounds: a server deals out the arms that are left.

    In each round an agent pulls one of the arms that are left. More rounds help where gaps differ, and only cost where
    all are alike. It is judged by the recommended arm, as Multi-Round is.
    The paper proves that the answer is right with probability 0.99 if `budget` is large enough for the gaps, all agents
    have the same means, and an agent alone does what the paper's does. Nobody knows the gaps beforehand, so no given
    budget comes with a promise, and neither does regret.
    Reference: Tao, Zhang and Zhou, Collaborative Learning with Limited Interaction: Tight Bounds for Distributed
    Exploration in Multi-Armed Bandits, FOCS 2019, after the first author's program but for agents alone.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/MultiArmed-v0", num_agents=32, means=[0.9, 0.5, 0.4, 0.3], noise_std=0.5)
    >>> history = fb.play(env, fb.make_policy("Limited-Interaction", budget=900), seed=0)
    >>> history.ledger.rounds, set(history.recommended[-1].tolist())
    (2, {0})
    """

    #: the pulls of an agent until the answer, T; None: half of the horizon
    budget: int | None = checked(None, optional(whole_number), at_least=1)
    rounds: int = checked(3, whole_number, at_least=1)  #: R, how often all agents report what they have found
    delta: float = checked(0.01, probability)  #: allowed probability that an agent drops the best of its own arms
    #: "random": with several arms left at the end an agent or the server takes any of them, as the paper has it;
    #: "best": the one with the largest mean
    undecided: str = checked("random", one_of, choices=UNDECIDED)
    #: noise scale that the bounds assume; None: that of the problem
    sigma: float | None = checked(None, optional(real_number), at_least=0)

    def __post_init__(self) -> None:
        check_fields(self)

    def time(self, constants: Constants) -> int:
        """T, the pulls of an agent until the answer."""
        return max(constants.horizon // 2, 1) if self.budget is None else self.budget

    def time_alone(self, constants: Constants) -> int:
        """The pulls of an agent among its own arms: half of T with more arms than agents, else none."""
        return self.time(constants) // 2 if constants.num_arms > constants.num_agents else 0

    def round_pulls(self, constants: Constants) -> int:
        """The pulls of an agent in each of the R rounds."""
        return max((self.time(constants) - self.time_alone(constants)) // self.rounds, 1)

    def margin(self, num_left: int, constants: Constants) -> float:
        """How far below the best an arm may be that stays, if `num_left` arms were dealt out."""
        agents, time = constants.num_agents, self.time(constants)
        variance = self.rounds * math.log(200 * agents * self.rounds) / (time * max(1.0, agents / num_left))
        return 2 * 2 * known_noise(self.sigma, constants) * math.sqrt(variance)

    def agents(self, view: View) -> "LimitedInteractionAgents":
        """Agents that pull what they are given."""
        return LimitedInteractionAgents(self, view)

    def server(self, view: ServerView) -> "LimitedInteractionServer":
        """A server that deals out arms."""
        return LimitedInteractionServer(self, view)


class LimitedInteractionAgents(OwnElimination):
    """Agents of Limited-Interaction. Their task is to "ask", to look "alone", to "measure" one arm, or nothing more."""

    def __init__(self, policy: LimitedInteraction, view: View):
        constants = view.constants
        most = -(-constants.num_arms // constants.num_agents)
        super().__init__(view, known_noise(policy.sigma, constants), policy.delta, most)
        self.policy = policy
        self.task = "ask"
        self.asked = False  # whether a call for arms is on its way
        self.best = view.agents % constants.num_arms

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """What the server asks for; without news the same again, after a step on the best arm so far."""
        if down is not None:
            self._take_over(down)
        constants, num_arms = self.view.constants, self.left.shape[1]
        if self.answered:
            return Plan.play(self.best, num_arms, remaining)
        if self.task == "ask" and not self.asked:
            self.asked = True
            return Plan.wait(*self.left.shape)
        if self.task == "alone" and self.spent < self.policy.time_alone(constants):
            return self.phase_plan(self.policy.time_alone(constants))
        if self.task in ("ask", "alone"):  # the call, or the choice, has been lost on its way
            return Plan.play(self.best, num_arms)
        return Plan.play(self.best, num_arms, self.policy.round_pulls(constants))

    def _take_over(self, down: Message) -> None:
        if down.kind == "answer":
            self.settle(down)
        elif down.kind == "arms":
            self.left = down.present["arms"].copy()
            self.task = "alone"
        else:
            self.best = down["arm"].copy()
            self.task = "measure"

    def report(self, feedback: Feedback) -> Message | None:
        """A call for arms, the arm that was chosen alone, or the mean of the arm that was given."""
        agents = self.view.agents
        if self.answered:
            return None
        if self.task == "ask":
            return Message("ask", {}, agents)
        if self.task == "measure":
            mean = feedback.played_sums / np.maximum(feedback.played, 1)
            return Message("mean", {"mean": mean, "pulls": feedback.played}, agents)
        alone = self.policy.time_alone(self.view.constants)
        if self.spent < alone:
            self.learn_phase(feedback)
        if self.spent < alone:
            return None
        return Message("choice", {"arm": self.choices(self.policy.undecided)}, agents)


class LimitedInteractionServer(ServerSide):
    """The server of Limited-Interaction."""

    def __init__(self, policy: LimitedInteraction, view: ServerView):
        self.policy, self.view = policy, view
        constants = view.constants
        self.round = 0
        self.left: BoolArray = np.ones(constants.num_arms, dtype=bool)
        self.means: FloatArray = np.zeros(constants.num_arms)  # the means that the last round found

    def refuses(self, up: Message) -> dict[int, str]:
        """Reports about arms that don't exist, and numbers of pulls that can't be."""
        refused = super().refuses(up)
        if up.kind == "choice":
            refused = strange_arms(up, self.view.constants.num_arms) | refused
        if up.kind == "mean" and up.agents is not None:
            for agent in up.agents[up["pulls"] < 0].tolist():
                refused.setdefault(agent, "sent a negative number of pulls")
        return refused

    def answer(self, up: Message) -> Message:
        """The arms that agents shall look at alone, the arm that each shall pull, or the best arm."""
        constants = self.view.constants
        if up.kind == "ask" and self.policy.time_alone(constants) > 0:
            return self._dealt()
        if up.kind == "choice":
            self.left = np.bincount(up["arm"], minlength=constants.num_arms) > 0
        if up.kind == "mean":
            self._pool(up)
        if self.left.sum() == 1 or self.round >= self.policy.rounds:
            rng = self.view.randomness.generator(1)
            best = chosen_arm(self.means, self.left, self.policy.undecided, rng)
            return Message("answer", {"best": np.array([best])})
        return Message("arm", {"arm": self._given()}, np.arange(constants.num_agents))

    def _given(self) -> IntArray:
        """(M,) the arm that each agent shall pull: those that are left, in turn."""
        arms = np.flatnonzero(self.left)
        return arms[np.arange(self.view.constants.num_agents) % len(arms)]

    def _dealt(self) -> Message:
        """Every arm at random to one agent, as evenly as it can be."""
        num_agents, num_arms = self.view.constants.num_agents, self.view.constants.num_arms
        given = np.zeros((num_agents, num_arms), dtype=bool)
        given[np.arange(num_arms) % num_agents, self.view.randomness.generator(0).permutation(num_arms)] = True
        arms = np.broadcast_to(np.arange(num_arms), given.shape)
        return Message("arms", {"arms": arms}, np.arange(num_agents), {"arms": given})

    def _pool(self, up: Message) -> None:
        """Pool the means of this round by their pulls, and drop what is far below the best; unheard arms stay."""
        self.round += 1
        num_arms = self.view.constants.num_arms
        given = self._given()[up.agents]
        pulls = np.bincount(given, weights=up["pulls"], minlength=num_arms)
        sums = np.bincount(given, weights=up["pulls"] * up["mean"], minlength=num_arms)
        heard = self.left & (pulls > 0)
        if not heard.any():
            return
        self.means = sums / np.maximum(pulls, 1)
        margin = self.policy.margin(int(self.left.sum()), self.view.constants)
        best = float(self.means[heard].max())
        equal = float(rounding(np.where(heard, np.abs(self.means) + margin, 0.0)[None])[0])
        self.left = self.left & ~(heard & (self.means < best - margin - equal))
