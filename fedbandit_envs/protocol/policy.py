"""The contract between policies and the world: the two sides of a policy.

Four verbs in one direction: `server.answer(up) -> down`, `agents.plan(down, remaining) -> plan`,
`env.pull(plan) -> feedback`, `agents.report(feedback) -> up`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from fedbandit_envs.arrays import BoolArray, IntArray
from fedbandit_envs.protocol.claims import Claim, RecordedRun
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.overflow import overflowing
from fedbandit_envs.protocol.plans import Feedback, Plan, ProtocolError
from fedbandit_envs.storage import plain_value
from fedbandit_envs.validation import one_of


class Side:
    """What both sides of a policy have in common: a state that can be saved and restored.

    The state is every attribute that is an array, a number, a string or None. A view, the constants and the policy are
    left out, because the constructor is given them. Override both methods to keep anything else.
    """

    def snapshot(self) -> State:
        """The state as plain arrays and numbers."""
        state: State = {}
        for name, value in vars(self).items():
            if isinstance(value, (View, ServerView, Constants, Policy)):
                continue
            try:
                plain = plain_value(f"{type(self).__name__}.{name}", value)
            except ValueError as error:
                raise ProtocolError(f"{error}; keep it as arrays, or override snapshot() and restore()") from error
            state[name] = plain.copy(order="K") if isinstance(plain, np.ndarray) else plain
        return state

    def restore(self, state: State) -> None:
        """Take over a state; the other side of `snapshot`."""
        for name, value in state.items():
            setattr(self, name, value.copy(order="K") if isinstance(value, np.ndarray) else value)


class AgentSide(Side, ABC):
    """The agents' side of a policy, for a block of n agents: it plans, and it reports what came of the plan.

    Row i of every array belongs to agent i of the block and must depend on row i alone, so that agents can be split
    over processes in any way. That holds if the agent axis comes first and is never a matrix dimension of a product.
    Elementwise operations, sums over other axes, plain `einsum`, stacked `matmul`, `solve` and `eigh` are safe;
    `(n, d) @ (d, d)`, `tensordot` and `einsum(optimize=True)` are not.

    >>> class Counting(AgentSide):
    ...     def __init__(self, view):
    ...         self.view = view
    ...
    ...     def plan(self, down, remaining):  # every arm once, then again
    ...         return Plan.explore_each(1, len(self.view.agents), self.view.constants.num_arms)
    ...
    ...     def report(self, feedback):
    ...         return Message("sums", {"sums": feedback.sums()}, self.view.agents)
    """

    active: BoolArray | None = None  #: (n, K) the arms still considered; None: the policy eliminates no arms
    admitted: BoolArray | None = None  #: (n,) the agents that take part so far; None: all do from the start
    recommended: IntArray | None = None  #: (n,) the arm that each takes for the best, -1: none yet; None: never any
    #: whether a message for other agents alone reaches these too, without rows, so that all wait together
    hears_of_others: bool = False
    #: How many steps of the first plan the history leaves out; all blocks must agree. It stands here, and not in one
    #: policy, because only the agents know when a first plan serves to start, as in a paper that does not count it.
    uncounted: int = 0

    @abstractmethod
    def plan(self, down: Message | None, remaining: int) -> Plan:
        """What to do next, given the server's message; None when nothing arrived, also at the start."""

    @abstractmethod
    def report(self, feedback: Feedback) -> Message | None:
        """What to tell the server about the last plan; agents with nothing to say are left out."""

    def observe(self, view: View) -> None:
        """What is shown from now on, where contexts change within an episode.

        The constructor is given the first view; this is called at each change, before the next plan, and once after
        `restore`, so calling it twice with one view must do no harm. Only mu, psi and `valid` differ from the view
        before. The default refuses: a class without an `observe` of its own plays problems that never change.
        """
        raise ProtocolError(
            f"{type(self).__name__}.observe: expected a class that says what it does when contexts change, got none; "
            "define observe(view)"
        )


class ServerSide(Side, ABC):
    """The server's side of a policy: it answers what the agents report.

    It may hear from any subset of the agents, because reports can be lost. Rows come sorted by the agents' numbers.
    What it answers must be finite.

    >>> class Averaging(ServerSide):
    ...     def answer(self, up):
    ...         return Message("mean", {"mean": up["sums"].mean(axis=0)})  # to all: it names no agents
    >>> Averaging().answer(Message("sums", {"sums": np.eye(2)}, np.arange(2)))["mean"]
    array([0.5, 0.5])
    """

    def refuses(self, up: Message) -> dict[int, str]:
        """The agents whose reports can't be, each with the reason in words; they are left out before `answer`.

        An agent can send anything, by mistake or on purpose. Whoever knows what the numbers of a message mean knows
        which of them no honest agent sends: override this to say so, and begin with what `super().refuses(up)` finds.
        The default finds numbers that are not finite, or so large that their sums and squares overflow. It must not
        change the state of the server. Each refused report becomes a `Fault`.

        Args:
            up: what arrived, all agents as one; its `agents` are the numbers of those who sent the rows.
        """
        return overflowing(up)

    @abstractmethod
    def answer(self, up: Message) -> Message | None:
        """The reply: to all agents (a message without `agents`), to some of them, or None."""


class Policy(ABC):
    """A bandit algorithm: its hyper-parameters, and the two sides that are built from them.

    A subclass is a frozen dataclass whose fields are the hyper-parameters. It defines `agents`, and `server` if its
    agents report anything. A policy without a server whose agents hear each other says `talks_to = "peers"`: what they
    report reaches their neighbours in the network of the run, see `Neighbourhood`. `register_policy` makes a policy
    known by name, `testing.check_policy` says what is wrong with it.

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import fedbandit_envs as fb
    >>> class Stubborn(fb.StepAgents):
    ...     def choose(self):
    ...         return np.zeros(len(self.view.agents), dtype=np.int64)
    ...
    ...     def learn(self, outcome):
    ...         pass
    >>> @dataclass(frozen=True)
    ... class FirstArm(fb.Policy):
    ...     def agents(self, view):
    ...         return Stubborn(view)
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=2, num_arms=3, max_cycles=10)
    >>> fb.play(env, FirstArm(), seed=0).pulls[-1]
    array([[10,  0,  0],
           [10,  0,  0]])
    """

    #: what the agents must be shown: "distribution", "context" (the exact setting), "delayed" (the distribution, and
    #: the context after each pull), or a name in `HIDDEN`, which no learner may see
    observes: ClassVar[str] = "distribution"
    #: "server", "peers" or "nobody"; None: "server" if the class defines `server`, else "nobody". See `partner_of`.
    talks_to: ClassVar[str | None] = None
    #: whether it is made for arms that pay by how many agents pull them: it plays no other problems then
    shares_arms: ClassVar[bool] = False
    #: for policies that talk to peers, how an array of this name travels: a name in `DELIVERIES`, else "neighbours"
    delivery: ClassVar[Mapping[str, str]] = {}

    @property
    def privacy(self) -> tuple[float, float] | None:
        """The budget (epsilon, delta) of differential privacy that each agent's reports keep; None: they promise none.

        Override it only if all reports of an agent together keep the budget, towards everybody who can read them.
        Histories and tables show it.
        """
        return None

    @abstractmethod
    def agents(self, view: View) -> AgentSide:
        """A new agent side for the agents of `view`."""

    def server(self, view: ServerView) -> ServerSide:
        """A new server side; the default is for policies that never send anything."""
        return SilentServer()

    def refuses(self, up: Message, constants: Constants) -> dict[int, str]:
        """For policies that talk to peers: the agents whose reports can't be, each with the reason in words.

        A refused agent is cut off in that round, as if it had failed, and becomes a `Fault`; its neighbours never see
        what it sent. The default finds numbers that are not finite, or so large that sums and squares overflow. For
        servers there is `ServerSide.refuses`.

        Args:
            up: the reports of all agents who speak, as one; its `agents` are their numbers.
            constants: the public constants of the problem.
        """
        return overflowing(up)

    def claims(self, history: RecordedRun) -> Iterable[Claim]:
        """What theory promises of this recorded run of the policy, for `audit`; the default is nothing."""
        return ()

    def check_installed(self) -> None:
        """Raise an ImportError before a run that needs what is not installed. Results can be read without it."""
        return

    def check_problem(self, constants: Constants) -> None:
        """Raise a ValueError if this policy can't play a problem with these constants; the default plays all.

        It is called when the sides of a run are made. Override it in a policy that needs what not every problem
        guarantees, for example that all agents have the same arms, and say in the error what would be needed.
        """
        return

    def steps_to_separate(self, constants: Constants, gap: float) -> int | None:
        """About how many steps it takes to rule out an arm whose mean is `gap` below the best; None: it can't be said.

        Override it in a policy that eliminates arms: users are then told when a run was too short for it.
        """
        return None


#: What only yardsticks observe, beside the distribution: the true mean rewards, or theta.
HIDDEN = ("truth", "theta")
#: How an array can travel between peers: to all neighbours; or, drawn anew in each round, each agent hears one of its
#: neighbours; the ends of one edge hear each other; or agents hear each other by a permutation along edges.
DELIVERIES = ("neighbours", "one-neighbour", "one-edge", "permutation")
PARTNERS = ("server", "peers", "nobody")


def partner_of(policy: type[Policy]) -> str:
    """Whom the agents of a policy talk to: "server", "peers" or "nobody".

    >>> class Alone(Policy):
    ...     def agents(self, view):
    ...         raise NotImplementedError
    >>> partner_of(Alone)
    'nobody'
    """
    if policy.talks_to is not None:
        return one_of(f"{policy.__name__}.talks_to", policy.talks_to, PARTNERS)
    return "nobody" if policy.server is Policy.server else "server"


def agents_of(policy: Policy, view: View) -> AgentSide:
    """A new agent side of a policy; what is none is refused, and so is a problem that the policy can't play."""
    policy.check_problem(view.constants)
    side = policy.agents(view)
    if not isinstance(side, AgentSide):
        raise ProtocolError(f"{type(policy).__name__}.agents: expected an AgentSide, got {side!r}; return one")
    return side


def server_of(policy: Policy, view: ServerView) -> ServerSide:
    """A new server side of a policy; what is none is refused, and so is a problem that the policy can't play."""
    policy.check_problem(view.constants)
    side = policy.server(view)
    if not isinstance(side, ServerSide):
        raise ProtocolError(f"{type(policy).__name__}.server: expected a ServerSide, got {side!r}; return one")
    return side


def observe_for(policy: Policy) -> str:
    """The `observe` of an environment that shows agents what this policy must see: "context" or "distribution".

    A policy that observes what is `HIDDEN` is given it beside the distribution, which its environment shows.

    >>> class Exact(Policy):
    ...     observes = "context"
    ...
    ...     def agents(self, view):
    ...         raise NotImplementedError
    >>> observe_for(Exact())
    'context'
    """
    return "context" if policy.observes == "context" else "distribution"


def hidden_for(policy: Policy) -> str | None:
    """What of the hidden truth a policy is given in its view, a name in `HIDDEN`; None for all but yardsticks.

    >>> class Perfect(Policy):
    ...     observes = "theta"
    ...
    ...     def agents(self, view):
    ...         raise NotImplementedError
    >>> hidden_for(Perfect())
    'theta'
    """
    return policy.observes if policy.observes in HIDDEN else None


class SilentServer(ServerSide):
    """Nobody is expected to speak to it."""

    def answer(self, up: Message) -> Message | None:
        """Refuse: an agent side that reports needs a server."""
        raise ProtocolError(
            f"report: expected None from a policy without a server, got a message {up.kind!r}; define Policy.server()"
        )
