"""Async-LinUCB: uploads and downloads have tests of their own, after Li and Wang."""

from dataclasses import dataclass

import numpy as np

from fedbandit_agents.linear.ridge import from_sums
from fedbandit_agents.linear.triggers import has_learnt, out_of_date
from fedbandit_baselines.linear.agents import LinearPolicy, StepData
from fedbandit_baselines.linear.sharing import AddingServer, SharingAgents, check_new
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.validation import checked, optional, real_number, true_or_false

_MOST_IN_TURN = 400  # agents that can take turns within one step: each takes two rounds


@dataclass(frozen=True)
class AsyncLinUCB(LinearPolicy):
    """A linear bandit whose agents send when they have learnt enough, and receive when they miss enough.

    Use it where agents should receive only what matters to them. With `one_by_one`, agents that want to send after the
    same step take turns, as in the reference; without it they send at once, in fewer messages.
    The paper, as recalled, proves regret of the order d sqrt(n), up to logarithms and a factor of the gammas, for n
    pulls of all agents, one agent at a time, and known contexts. Agents that act together or hidden contexts are not
    covered.
    Reference: after Li and Wang, Asynchronous Upper Confidence Bound Algorithms for Federated Linear Bandits, AISTATS
    2022. The steps agree with the authors' code; the width is recalled from the paper.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, context="streaming")
    >>> history = fb.play(env, fb.make_policy("Async-LinUCB"), seed=0)
    >>> history.ledger.messages_up, history.ledger.messages_down
    (24, 30)
    """

    upload: float = checked(2.0, real_number, at_least=1)  #: gamma_U; 1 sends at each step
    download: float = checked(2.0, real_number, at_least=1)  #: gamma_D; 1 sends everybody everything
    regularisation: float = checked(1.0, real_number, above=0)  #: lambda: V starts as lambda times the identity
    #: the confidence width; None takes that of the theory
    width: float | None = checked(None, optional(real_number), at_least=0)
    one_by_one: bool = checked(False, true_or_false)  #: whether agents take turns to send within a step

    def check_problem(self, constants: Constants) -> None:
        """Too many agents would take too long in turn."""
        if self.one_by_one and constants.num_agents > _MOST_IN_TURN:
            raise ValueError(
                f"one_by_one: expected at most {_MOST_IN_TURN} agents, which take turns within a step, got "
                f"{constants.num_agents}; leave it out, so that all send at once"
            )

    def agents(self, view: View) -> "AsyncLinUCBAgents":
        """Agents that share sums of psi psi^T and psi y."""
        return AsyncLinUCBAgents(self, view)

    def server(self, view: ServerView) -> "AsyncLinUCBServer":
        """A server that keeps what each agent misses."""
        return AsyncLinUCBServer(self, view.constants)


class AsyncLinUCBAgents(SharingAgents):
    """Agents of Async-LinUCB."""

    def __init__(self, policy: AsyncLinUCB, view: View):
        super().__init__(view, policy.settings(view, regularisation=policy.regularisation))
        self.policy = policy
        self.gram: FloatArray = np.zeros_like(self.new_gram)  # (n, B, d, d) all that is known, without lambda I
        n = len(self.gram)
        self.waiting: BoolArray = np.zeros(n, dtype=bool)  # who has asked for a turn and was not answered yet
        self.turn: BoolArray = np.zeros(n, dtype=bool)  # the agent whose turn it is

    def width(self) -> FloatArray | float:
        """The width that was given, or that of the ellipsoids."""
        return super().width() if self.policy.width is None else self.policy.width

    def add(self, seen: StepData) -> FloatArray:
        """Learn; whoever waited for a turn asks again."""
        self.waiting[:] = self.turn[:] = False
        rows, (block, x, weight, _) = np.arange(len(seen.x)), seen
        self.gram[rows, block] += weight[:, None, None] * (x[:, :, None] * x[:, None, :])
        return super().add(seen)

    def speak(self) -> Message | None:
        """What is new, from the agents that have learnt enough; or that they want to send it."""
        if self.turn.any():
            return self.sent(np.flatnonzero(self.turn))
        asking = np.flatnonzero(has_learnt(self.grown, self.policy.upload) & ~self.waiting)
        if not len(asking):
            return None
        if self.policy.one_by_one:
            self.waiting[asking] = True
            return Message("request", {}, self.view.agents[asking])
        return self.sent(asking)

    def sent(self, rows: IntArray) -> Message:
        """What is new to these agents, which is no longer new."""
        news = self.news(rows)
        self.forget_news(rows)
        self.turn[rows] = self.waiting[rows] = False
        return news

    def hear(self, down: Message) -> None:
        """A turn to send, or what was missed."""
        rows = self.rows_of(down)
        if down.kind == "call":
            self.turn[rows] = True
            return
        self.waiting[rows] = False
        heard = down.present["gram"] if "gram" in down.present else np.ones(len(rows), dtype=bool)
        rows, gram, moments = rows[heard], down["gram"][heard], down["moments"][heard]
        self.gram[rows] += gram
        whole = from_sums(self.gram[rows], self.moments[rows] + moments, self.regularisation)
        before = from_sums(self.gram[rows] - self.new_gram[rows], moments, self.regularisation)
        for array, part in zip(self.ridge, whole, strict=True):
            array[rows] = part
        self.grown[rows] = (whole.growth - before.growth).sum(axis=1)


class AsyncLinUCBServer(AddingServer):
    """The server of Async-LinUCB: it keeps the sum of all uploads, and for each agent what it misses of it."""

    def __init__(self, policy: AsyncLinUCB, constants: Constants):
        super().__init__(constants, together=False)
        self.policy = policy
        self.missing_gram: FloatArray | None = None  # (M, B, d, d); None: nobody has sent anything yet
        self.missing_moments: FloatArray | None = None  # (M, B, d)
        self.waiting: BoolArray = np.zeros(constants.num_agents, dtype=bool)  # who was asked to wait for a turn

    def answer(self, up: Message) -> Message | None:
        """A turn for the first that asked; or, after uploads, what those miss who miss enough."""
        assert up.agents is not None
        if up.kind == "request":
            self.waiting[:] = False
            self.waiting[up.agents[1:]] = True
            return Message("call", {}, up.agents[:1])
        check_new(up)
        gram, moments = self._missing_with(up)
        total, _ = self.sums_with(up)
        due = out_of_date(total, gram, self.policy.regularisation, self.policy.download)
        answered = due.copy()
        if self.policy.one_by_one:  # whoever may want a turn is told that one is over
            answered[up.agents] = True
            answered |= self.waiting
            self.waiting[:] = False
        if not answered.any():
            return None
        agents = np.flatnonzero(answered)
        arrays = {"gram": gram[agents], "moments": moments[agents]}
        gram[due] = moments[due] = 0
        return Message("missing", arrays, agents, dict.fromkeys(arrays, due[agents]))

    def _missing_with(self, up: Message) -> tuple[FloatArray, FloatArray]:
        """What each agent misses, with what others have just uploaded."""
        M = self.constants.num_agents
        if self.missing_gram is None or self.missing_moments is None:
            self.missing_gram, self.missing_moments = (
                np.zeros((M, *up[name].shape[1:])) for name in ("gram", "moments")
            )
        for missing, new in ((self.missing_gram, up["gram"]), (self.missing_moments, up["moments"])):
            missing += new.sum(axis=0)
            missing[up.agents] -= new
        return self.missing_gram, self.missing_moments
