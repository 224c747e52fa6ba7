"""The communication-round wrapper: the one loop through which every policy meets an environment."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.envs.parallel import HiddenContextBandit, Observation
from fedbandit_envs.problems.regrets import all_gaps
from fedbandit_envs.protocol.knowledge import ServerView, View
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.network import Network
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback, ProtocolError
from fedbandit_envs.protocol.policy import AgentSide, Policy, ServerSide, agents_of, partner_of, server_of
from fedbandit_envs.protocol.steps import StepAgents
from fedbandit_envs.rounds.blocks import AgentBlocks, checked_rows
from fedbandit_envs.rounds.carrier import Carrier, Delivery, ViaServer
from fedbandit_envs.rounds.checkpoints import Checkpoints
from fedbandit_envs.rounds.checks import (
    check_changes,
    check_counted_steps,
    check_faults,
    check_network,
    check_plays,
    checked_environment,
)
from fedbandit_envs.rounds.faults import Faults
from fedbandit_envs.rounds.history import Exchange, History
from fedbandit_envs.rounds.relay import ViaGraph
from fedbandit_envs.rounds.state import check_same_form, check_same_run, in_order, numbered, run_fingerprint
from fedbandit_envs.rounds.stepping import decides_by_steps, play_on, pulls_throughout, stepped
from fedbandit_envs.rounds.turn import idle_turns, play_turn


class CommunicationRounds(BaseParallelWrapper[str, Observation, int]):
    """Plays a policy on an environment, round by round.

    It is a PettingZoo wrapper, so it stacks with others. `play` is the short way to a whole run; use this class to stop
    in the middle, to save the state of a run, or to look at the sides of the policy.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> rounds = fb.CommunicationRounds(env, fb.make_policy("Fed-PECD"))
    >>> rounds.start(seed=0)
    >>> while not rounds.done:
    ...     rounds.advance()
    >>> rounds.history().steps[-1]
    np.int64(200)

    Args:
        env: a HiddenContextBandit or a SharedArmsBandit, wrapped or not.
        policy: what plays.
        blocks: how the agents are split, as lists of agent numbers; the run is the same bit for bit however they are.
        stepwise: step pull by pull through the PettingZoo API instead of drawing whole plans. It is also done when
            `env` has a wrapper that does not define `pull` itself, because that wrapper must see each step.
        record: keep every message, plan and feedback, and the truth.
        faults: reports that are lost, or changed, on their way; None: none.
        network: who can talk to whom, for policies that talk to peers: what `Network.of` takes. A random network is
            drawn from the seed of the episode. Other policies do without it.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Observation, int],
        policy: Policy,
        *,
        blocks: Sequence[Sequence[int]] | None = None,
        stepwise: bool = False,
        record: bool = False,
        faults: Faults | None = None,
        network: Any = None,
    ):
        bandit = checked_environment(env)
        super().__init__(env)
        check_plays(policy, bandit)
        self.bandit, self.policy = bandit, policy
        self._blocks = checked_rows(blocks, len(bandit.possible_agents))
        self._stepwise = stepwise or not pulls_throughout(env)
        self._record = record
        check_faults(faults, policy, len(bandit.possible_agents))
        check_network(policy, network, len(bandit.possible_agents))
        self._faults, self._given_network = faults, network
        self._started = False

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """A new run."""
        first = self.env.reset(seed=seed, options=options)
        self._begin()
        return first

    def start(self, seed: int | None = None) -> None:
        """A new run, as `reset`, without the observations, which no policy looks at."""
        # Observations can be left out only if nobody overrides reset().
        if type(self).reset is CommunicationRounds.reset and type(self.env).reset is HiddenContextBandit.reset:
            self.env.start(seed)
            self._begin()
        else:
            self.reset(seed=seed)

    def _begin(self) -> None:
        observes = self.policy.observes
        view = self.bandit.view("truth" if observes == "truth" else None)
        self.constants = view.constants
        self.network = self._make_network()  #: who can talk to whom; None: the policy does not talk to peers
        if self.network is not None:
            view = replace(view, network=self.network.around(view.agents))
        self._view = view
        one_block = np.array_equal(self._blocks[0], view.agents)
        views = [view] if one_block else [view.rows(rows) for rows in self._blocks]
        self._agents = AgentBlocks([self._agent_side(own) for own in views], self._blocks, self.constants.num_arms)
        check_counted_steps(self.policy, self._agents.sides[0].uncounted, self.constants.horizon)
        self.carrier = self._make_carrier()
        self._pending: Message | None = None
        self._taken = 0
        self._idle = 0
        self._checkpoints = Checkpoints(self.constants.horizon, self.constants.num_agents, self.constants.num_arms)
        self._exchanges: list[Exchange] = []
        self._playing_on = self._step_agents()
        self._segments = self.bandit.episode.segments
        self._summing = self.bandit.episode.segment is not None  # whether regret is summed up step by step
        self._shown = 0  # the number of the segment that the agents have been shown
        check_changes(self.policy, self._agents.sides[0], self.bandit)
        self._started = True

    def _agent_side(self, view: View) -> AgentSide:
        return agents_of(self.policy, view)

    def _make_network(self) -> Network | None:
        if partner_of(type(self.policy)) != "peers":
            return None
        return Network.of(self._given_network, self.constants.num_agents, self.bandit.episode_seed)

    def _make_carrier(self) -> Carrier:
        """Who carries the reports of the agents and brings the answers: the one place that knows of a server."""
        seed = self.bandit.episode_seed
        if self.network is not None:
            return ViaGraph(self.network, self.policy.delivery, self.constants, self._faults, seed)
        server = self._server_side(ServerView.of_run(self.constants, seed))
        return ViaServer(server, self.constants, self._faults, seed)

    def _server_side(self, view: ServerView) -> ServerSide:
        return server_of(self.policy, view)

    @property
    def sides(self) -> list[AgentSide]:
        """The agent sides, one for each block."""
        self._check_started()
        return self._agents.sides

    def _step_agents(self) -> StepAgents | None:
        """The agents, if their steps can be played without turns: one block of StepAgents, no wrapper, no recording."""
        side, seen = self._agents.sides[0], self._record or self._stepwise or self.env is not self.bandit
        if seen or not self._agents.together or type(self).advance is not CommunicationRounds.advance:
            return None
        return side if isinstance(side, StepAgents) and decides_by_steps(side, self.bandit) else None

    @property
    def done(self) -> bool:
        """Whether the horizon is reached."""
        self._check_started()
        return self._taken >= self.constants.horizon

    def _check_started(self) -> None:
        if not self._started:
            raise ValueError(
                "expected reset() before this call, got rounds that were never reset, or whose agents failed; call "
                "reset()"
            )

    def advance(self) -> None:
        """One turn: the agents plan and pull, report, and the server or their neighbours answer.

        Raises:
            QuorumLost: when too few agents were heard: the round is lost for all, and another call goes on after it.
        """
        self._check_started()
        step, down, horizon = self._taken, self._pending, self.constants.horizon
        if step >= horizon:
            raise ValueError("advance: expected a run before its horizon, got one that is over; call reset()")
        self._show()
        segment, valid = self.bandit.episode.segment, self.bandit.episode.valid
        turn = play_turn(self._agents, self._checkpoints, down, step, horizon, self._pull, segment, valid)
        self._taken += turn.plan.length
        self._idle = idle_turns(self._idle, turn.plan.length, self.policy)
        delivery = Delivery()
        if self._taken < horizon:  # after the last step nothing is reported or charged: nobody would use it
            delivery = self.carrier.exchange(self._agents.report(turn.feedback), self._taken)
            self._pending = delivery.down
        if self._record:
            self._exchanges.append(Exchange(step, down, turn.plan, turn.feedback, delivery.up))
        if delivery.shortage is not None:
            raise delivery.shortage

    def finish(self) -> None:
        """Play to the horizon: `advance`, in fewer turns where agents decide step by step."""
        self._check_started()
        while self._taken < self.constants.horizon:
            # A checkpoint records `active` before the agents learn, so the step that reaches it is played as a turn.
            alone = self._checkpoints.next_time - 1 - self._taken
            if self._playing_on is None or not alone or self._pending is not None:
                self.advance()
            else:
                self._play_on(self._playing_on, alone)

    def _play_on(self, agents: StepAgents, most: int) -> None:
        """Let the agents play without turns, for `most` steps or fewer."""
        self._show()
        try:
            assert isinstance(self.bandit, HiddenContextBandit)  # others have no such steps
            said = play_on(self.bandit, agents, most, self._count_steps)
        except ProtocolError:
            self._started = False  # the agents may have learnt from invalid arms: this run cannot go on
            raise
        if said is not None:
            delivery = self.carrier.exchange([said], self._taken)
            self._pending = delivery.down
            if delivery.shortage is not None:
                raise delivery.shortage

    def _show(self) -> None:
        """Show the agents what holds now, if they have not seen it yet."""
        if self._segments is not None and self._shown != self._segments.place(self._taken):
            self._shown = self._segments.place(self._taken)
            self._agents.observe(self.bandit.view_at(self._taken, self._view))

    def _count_steps(self, arms: IntArray, costs: FloatArray | None) -> None:
        self._checkpoints.add_arms(arms, costs)
        self._taken += len(arms)
        self._idle = 0
        if self._segments is not None and len(arms):
            self._shown = self._segments.place(self._taken - 1)

    def _pull(self, plan: CheckedPlan) -> Feedback:
        revealed = self._view.feature_map if self.bandit.reveal == "after" else None
        feedback: Feedback = stepped(self.env, plan, revealed) if self._stepwise else self.env.pull(plan)
        return feedback

    def history(self) -> History:
        """What the run has left so far."""
        self._check_started()
        steps, pulls, marks = self._checkpoints.arrays()
        history = History(
            policy=self.policy,
            constants=self.constants,
            steps=steps,
            pulls=pulls,
            **marks._asdict(),
            gaps={} if self._summing else all_gaps(self.bandit.instance),
            ledger=self.carrier.ledger.copy(),
            faults=tuple(self.carrier.lost),
            exchanges=tuple(self._exchanges) if self._record else None,
            instance=self.bandit.instance if self._record else None,
            view=self._view if self._record else None,
            summed=self._checkpoints.summed() if self._summing else {},
        )
        return history.counted_from(self._agents.sides[0].uncounted) if len(steps) else history

    def snapshot(self) -> State:
        """The state of the run as a tree of plain arrays and numbers, for `storage.save` and `restore`."""
        self._check_started()
        return {
            "run": run_fingerprint(self.policy, self.constants, self.network),
            "seed": str(self.bandit.episode_seed),
            "steps": self._taken,
            "plans": self.bandit.episode.plans,
            "idle": self._idle,
            "checkpoints": self._checkpoints.snapshot(),
            "carrier": self.carrier.snapshot(),
            "pending": None if self._pending is None else self._pending.tree(),
            "blocks": numbered(self._blocks),
            "agents": self._agents.snapshot(),
            "exchanges": numbered([exchange.tree() for exchange in self._exchanges]),
            "recorded": self._record,
        }

    def restore(self, state: State) -> None:
        """Go on from a `snapshot` of a run of the same policy, environment and blocks."""
        check_same_form(state, self._blocks, self._record)
        self.start(seed=int(state["seed"]))
        what = "the policy, its parameters, the constants of the environment and the network"
        check_same_run(run_fingerprint(self.policy, self.constants, self.network), state.get("run"), what)
        self.bandit.resume(steps=state["steps"], plans=state["plans"])
        self._taken, self._idle = state["steps"], state["idle"]
        self._checkpoints.restore(state["checkpoints"])
        self.carrier.restore(state["carrier"])
        self._pending = None if state["pending"] is None else Message.from_tree(state["pending"])
        self._agents.restore(state["agents"])
        if self._segments is not None and not self.done:
            self._shown = self._segments.place(self._taken)
            self._agents.observe(self.bandit.view_at(self._taken, self._view))
        if self._record:
            self._exchanges = [Exchange.from_tree(turn) for turn in in_order(state["exchanges"])]
