"""The communication-round wrapper: the one loop through which every policy meets an environment."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from fedbandit_envs.envs.parallel import HiddenContextBandit, Observation
from fedbandit_envs.protocol.knowledge import ServerView, View
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.network import Network
from fedbandit_envs.protocol.plans import ProtocolError
from fedbandit_envs.protocol.policy import AgentSide, Policy, ServerSide, agents_of, partner_of, server_of
from fedbandit_envs.rounds.blocks import checked_rows
from fedbandit_envs.rounds.carrier import Carrier, Delivery, ViaServer
from fedbandit_envs.rounds.checks import check_faults, check_network, check_plays, checked_environment
from fedbandit_envs.rounds.faults import Faults
from fedbandit_envs.rounds.history import Exchange, History
from fedbandit_envs.rounds.part import AgentsPart, PartHere
from fedbandit_envs.rounds.relay import ViaGraph
from fedbandit_envs.rounds.state import check_same_form, check_same_run, in_order, numbered, run_fingerprint
from fedbandit_envs.rounds.stepping import pulls_throughout
from fedbandit_envs.rounds.turn import idle_turns


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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.policy).__name__} on {self.env!r})"

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
        self._part = self._make_part()
        self.constants = self._part.constants
        self.network = self._make_network()  #: who can talk to whom; None: the policy does not talk to peers
        self._part.begin(self.constants, self.network)
        self.carrier = self._make_carrier()
        self._pending: Message | None = None
        self._idle = 0
        self._exchanges: list[Exchange] = []
        self._started = True

    def _make_part(self) -> AgentsPart:
        """The agents of the run: here, in this process."""
        alone = not (self._record or self._stepwise) and self.env is self.bandit
        without_turns = alone and type(self).advance is CommunicationRounds.advance
        here = self.env, self.bandit, self.policy, self._blocks, self._agent_side
        return PartHere(*here, stepwise=self._stepwise, without_turns=without_turns)

    def _agent_side(self, view: View) -> AgentSide:
        return agents_of(self.policy, view)

    def _make_network(self) -> Network | None:
        if partner_of(type(self.policy)) != "peers":
            return None
        return Network.of(self._given_network, self.constants.num_agents, self.seed)

    def _make_carrier(self) -> Carrier:
        """Who carries the reports of the agents and brings the answers: the one place that knows of a server."""
        seed = self.seed
        if self.network is not None:
            refuses = partial(self.policy.refuses, constants=self.constants)
            return ViaGraph(self.network, self.policy.delivery, self.constants, self._faults, seed, refuses)
        server = self._server_side(ServerView.of_run(self.constants, seed))
        return ViaServer(server, self.constants, self._faults, seed)

    def _server_side(self, view: ServerView) -> ServerSide:
        return server_of(self.policy, view)

    @property
    def sides(self) -> list[AgentSide]:
        """The agent sides, one for each block."""
        self._check_started()
        return self._part.sides

    @property
    def seed(self) -> int:
        """The seed of the episode."""
        return self.bandit.episode_seed

    @property
    def done(self) -> bool:
        """Whether the horizon is reached."""
        self._check_started()
        return self.taken >= self.constants.horizon

    @property
    def taken(self) -> int:
        """The number of steps that the run has taken so far."""
        self._check_started()
        return self._part.taken

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
        step, down, horizon = self._part.taken, self._pending, self.constants.horizon
        if step >= horizon:
            raise ValueError("advance: expected a run before its horizon, got one that is over; call reset()")
        length = self._part.turn(down)
        if not self._record:
            down = self._pending = None  # it can be as large as all that agents know, and nobody needs it any more
        self._idle = idle_turns(self._idle, length, self.policy)
        turn = self._part.last if self._record else None
        delivery = Delivery()
        if self._part.taken < horizon:  # after the last step nothing is reported or charged: nobody would use it
            delivery = self.carrier.exchange(self._part.reports(), self._part.taken)
            self._pending = delivery.down
        if turn is not None:
            self._exchanges.append(Exchange(step, down, *turn, delivery.up))
        if delivery.shortage is not None:
            raise delivery.shortage

    def finish(self) -> None:
        """Play to the horizon: `advance`, in fewer turns where agents decide step by step."""
        while not self.done:
            self.go_on()

    def go_on(self) -> None:
        """Play a turn, or several steps without one where agents decide step by step."""
        self._check_started()
        alone = self._part.alone() if self._pending is None else 0
        if alone:
            self._play_on(alone)
        else:
            self.advance()

    def _play_on(self, most: int) -> None:
        """Let the agents play without turns, for `most` steps or fewer."""
        before = self._part.taken
        try:
            said = self._part.play_on(most)
        except ProtocolError:
            self._started = False  # the agents may have learnt from invalid arms: this run cannot go on
            raise
        if self._part.taken > before:
            self._idle = 0
        if any(message is not None for message in said):
            delivery = self.carrier.exchange(said, self._part.taken)
            self._pending = delivery.down
            if delivery.shortage is not None:
                raise delivery.shortage

    def history(self) -> History:
        """What the run has left so far."""
        self._check_started()
        kept = self._part.kept()
        instance, view = self._part.truth() if self._record else (None, None)
        history = History(
            policy=self.policy,
            constants=self.constants,
            steps=kept.steps,
            tables=kept.tables,
            **kept.marks._asdict(),
            gaps=kept.gaps,
            ledger=self.carrier.ledger.copy(),
            faults=tuple(self.carrier.lost),
            exchanges=tuple(self._exchanges) if self._record else None,
            instance=instance,
            view=view,
            summed=kept.summed,
        )
        return history.counted_from(self._part.uncounted) if len(kept.steps) else history

    def _fingerprint(self) -> str:
        return run_fingerprint(self.policy, self.constants, self.network, self._faults)

    def snapshot(self) -> State:
        """The state of the run as a tree of plain arrays and numbers, for `storage.save` and `restore`."""
        self._check_started()
        return {
            "run": self._fingerprint(),
            "seed": str(self.seed),
            "idle": self._idle,
            "carrier": self.carrier.snapshot(),
            "pending": None if self._pending is None else self._pending.tree(),
            "blocks": numbered(self._blocks),
            **self._part.snapshot(),
            "exchanges": numbered([exchange.tree() for exchange in self._exchanges]),
            "recorded": self._record,
        }

    def restore(self, state: State) -> None:
        """Go on from a `snapshot` of a run of the same policy, environment, faults and blocks."""
        check_same_form(state, self._blocks, self._record)
        self.start(seed=int(state["seed"]))
        what = "the policy, its parameters, the constants of the environment, the network and the faults"
        check_same_run(self._fingerprint(), state.get("run"), what)
        self._part.restore(state)
        self._idle = state["idle"]
        self.carrier.restore(state["carrier"])
        self._pending = None if state["pending"] is None else Message.from_tree(state["pending"])
        if self._record:
            self._exchanges = [Exchange.from_tree(turn) for turn in in_order(state["exchanges"])]
