"""A client of a federation: the agent side of a policy for some agents, which plays when the server asks.

Server and clients count turns: a turn is a plan, its pulls and its report. A request carries the server's messages of
all turns that the client has not acknowledged yet. So a lost answer costs one report and nothing else: with the next
request the client catches up on the turns that it missed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedbandit_envs.federation.sources import RewardSource, SimulatedRewards
from fedbandit_envs.federation.wire import Packet, most_bytes, not_finite, pack, unpack
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.network import Network
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback, ProtocolError
from fedbandit_envs.protocol.policy import Policy, SilentServer, agents_of, server_of
from fedbandit_envs.rounds.blocks import AgentBlocks
from fedbandit_envs.rounds.checkpoints import Checkpoints
from fedbandit_envs.rounds.state import check_same_run
from fedbandit_envs.rounds.turn import idle_turns, play_turn
from fedbandit_envs.threads import one_thread
from fedbandit_envs.validation import whole_number

# The verbs of packets. PLAY: play this turn. HELLO: say for which agents you speak. MISSING is a client's reply, when
# the request does not hold all turns that the client has not played yet.
PLAY, HELLO, MISSING = "play", "hello", "missing"
SAME_SETTINGS = "policy, parameters, constants, environment and seed"  # runs with the same of these are one
_MOST_TURNS = 10_000  # the most turns on which a client catches up with one request


class Client:
    """The agents of one client: what they know, what they are paid, and what they have learnt.

    A client holds nothing of other agents. Flower ends the process after each answer, so the client is made anew from
    its `snapshot` for each request.

    Args:
        policy: what plays.
        constants: the public numbers of the problem.
        source: where the agents' knowledge and rewards come from.
        run: the hash of the run, `Settings.run`; a state of another run is refused.
        network: who can talk to whom, for a policy that talks to peers; None: it does not.

    >>> from fedbandit_envs.federation.settings import Settings
    >>> from fedbandit_envs.federation.sources import SimulatedRewards
    >>> arguments = {"num_agents": 3, "max_cycles": 20}
    >>> settings = Settings.simulated("Uniform", {}, "fedbandit/Synthetic-v0", arguments, seed=0)
    >>> source = SimulatedRewards(np.array([0, 2]), settings.source())
    >>> client = Client(settings.make_policy(), settings.constants, source, run=settings.run)
    >>> answer = client.answer(pack({"verb": PLAY, "turn": 0}, [None]))
    >>> answer["header"]
    '{"verb": "play", "turn": 0, "length": 20, "agents": [0, 2], "messages": [null]}'
    """

    def __init__(
        self,
        policy: Policy,
        constants: Constants,
        source: RewardSource,
        *,
        run: str,
        network: Network | None = None,
    ):
        self._source, self._constants, self._network = source, constants, network
        view = self._view(0)
        self.agents = view.agents
        rows = [np.arange(len(view.agents))]
        self._policy, self._run = policy, run
        self._blocks = AgentBlocks([agents_of(policy, view)], rows, constants.num_arms)
        # Agents without a server wait for no message, so they play to the horizon in one turn.
        silent = isinstance(server_of(policy, ServerView.of_run(constants, seed=0)), SilentServer)
        self._alone = silent and network is None
        heard = 0 if network is None else network.largest_degree  # a message has a column for each neighbour
        self._most_bytes = most_bytes(constants, len(self.agents)) * (1 + heard)
        self._checkpoints = Checkpoints(constants.horizon, len(self.agents), constants.num_arms)
        self._turn = self._step = self._plans = 0
        self._shown, self._valid = 0, view.valid  # the step of the last view, and for how many steps it holds
        self._last: tuple[int, Message | None] = (0, None)  # the length and the report of the last turn

    def answer(self, packet: Mapping[str, Any]) -> Packet:
        """The reply to a request of the server. Turns that the request adds are played first.

        Args:
            packet: the request, as bytes from outside.

        Raises:
            WireError: the packet is not a request.
            ProtocolError: the server asks for what no honest server asks for.
        """
        header, downs = unpack(packet, self._most_bytes, _MOST_TURNS)
        for down in downs:
            self._check(down)
        mine = {"agents": self.agents.tolist()}
        if header.get("verb") == HELLO:
            return pack({"verb": HELLO, **mine}, [])
        last = whole_number("turn", header.get("turn"), at_least=0, at_most=2**62)
        first = last - len(downs) + 1
        if not first <= self._turn <= last + 1:
            return pack({"verb": MISSING, "turn": self._turn, **mine}, [])
        for place in range(self._turn - first, len(downs)):
            self._last = self._play(downs[place])
        length, report = self._last  # a turn that was played already is not played again
        return pack({"verb": PLAY, "turn": last, "length": length, **mine}, [report])

    def _check(self, down: Message | None) -> None:
        """Refuse a message that no honest server sends, before the policy's agents see any of it."""
        if down is None:
            return
        if (name := not_finite(down)) is not None:
            raise ProtocolError(f"server: expected finite numbers in {name}, got NaN or infinity")
        if down.agents is not None and not np.isin(down.agents, self.agents).all():
            raise ProtocolError(f"server: expected rows for agents {self.agents.tolist()}, got rows for others")

    @one_thread
    def _play(self, down: Message | None) -> tuple[int, Message | None]:
        start, idle = self._step, 0
        report = self._one_turn(down)
        while self._alone and self._step < self._constants.horizon:
            before = self._step
            report = self._one_turn(None)
            idle = idle_turns(idle, self._step - before, self._policy)
        self._turn += 1
        return self._step - start, report

    def _one_turn(self, down: Message | None) -> Message | None:
        for_others = down is not None and down.agents is not None and not len(down.agents)
        if for_others and not self._blocks.sides[0].hears_of_others:
            down = None
        if self._valid is not None and self._step == self._shown + self._valid:
            self._show(self._step)
        valid = None if self._valid is None else self._shown + self._valid - self._step
        segment = self._source.segment if isinstance(self._source, SimulatedRewards) else None
        horizon = self._constants.horizon
        turn = play_turn(self._blocks, self._checkpoints, down, self._step, horizon, self._pull, segment, valid)
        self._step += turn.plan.length
        return None if self._step >= self._constants.horizon else self._blocks.report(turn.feedback)[0]

    def _view(self, step: int) -> View:
        """What the agents know at a step."""
        view = self._source.view(self._constants, step)
        return view if self._network is None else replace(view, network=self._network.around(view.agents))

    def _show(self, step: int) -> None:
        """Show the agents what holds from this step on."""
        view = self._view(step)
        self._shown, self._valid = step, view.valid
        self._blocks.observe(view)

    def _pull(self, plan: CheckedPlan) -> Feedback:
        self._check_arms(plan)
        feedback = self._source.pull(plan, self._plans)
        self._plans += 1
        return feedback

    def _check_arms(self, plan: CheckedPlan) -> None:
        """Refuse to pull arms that the agents have eliminated, whatever the server has allocated."""
        active = self._blocks.sides[0].active
        if active is None:
            return
        rows = np.arange(len(self.agents))
        asked = plan.explore > 0
        asked[rows, plan.arm] |= plan.explore.sum(axis=1) < plan.length
        if (wrong := np.argwhere(asked & ~active)).size:
            row, arm = wrong[0].tolist()
            raise ProtocolError(
                f"server: expected to be asked for arms that are still considered, got arm {arm} for agent "
                f"{self.agents[row]}, which has eliminated it"
            )

    def snapshot(self) -> State:
        """The state between two turns, with the record of all pulls, as a tree of plain arrays and numbers."""
        length, report = self._last
        return {
            "run": self._run,
            "agents": self.agents,
            "turn": self._turn,
            "step": self._step,
            "plans": self._plans,
            "shown": self._shown,
            "checkpoints": self._checkpoints.snapshot(),
            "uncounted": self._blocks.sides[0].uncounted,
            "length": length,
            "report": None if report is None else report.tree(),
            "side": self._blocks.snapshot(),
        }

    def restore(self, state: State) -> None:
        """Go on from a `snapshot` of the same agents in the same run."""
        check_same_run(self._run, state.get("run"), SAME_SETTINGS)
        if not np.array_equal(state["agents"], self.agents):
            raise ValueError(
                f"state: expected agents {self.agents.tolist()}, got {state['agents'].tolist()}; give each client a "
                "folder of its own"
            )
        self._turn, self._step, self._plans = state["turn"], state["step"], state["plans"]
        self._checkpoints.restore(state["checkpoints"])
        report = state["report"]
        self._last = (state["length"], None if report is None else Message.from_tree(report))
        self._blocks.restore(state.get("side", {}))
        if self._valid is not None:
            self._show(state["shown"])
