"""The agents' part of a run that is spread over shards, as the driver sees it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.envs.planned import PlannedBandit
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.problems.streams import changes
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.network import Network
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback
from fedbandit_envs.protocol.policy import AgentSide, Policy, hidden_for, partner_of
from fedbandit_envs.rounds.checkpoints import Marks
from fedbandit_envs.rounds.count_tables import CountTables, StackedTables
from fedbandit_envs.rounds.part import Kept
from fedbandit_envs.rounds.state import in_order, numbered
from fedbandit_envs.rounds.turn import Turn
from fedbandit_envs.shards.bandit import GapTables, merged_constants
from fedbandit_envs.shards.hosts import HostKind
from fedbandit_envs.shards.keeper import Keeper
from fedbandit_envs.shards.packing import Border, messages_of, slim
from fedbandit_envs.shards.shard import Begun, Report, ShardTask

_STEPS_ALONE = 4096  # steps that agents who never speak play before the driver looks at them again


class ShardedPart:
    """Hands what arrives to the shards and gathers what they report; it holds no arrays of agents between turns.

    Each turn asks every shard for the length of its plan, then lets all pull for the longest of them. Where agents
    decide step by step the length is known, so a turn is one request. Where they never speak, one request is for many
    steps.

    Args:
        bandit: the environment of the run, of which only the problem and its settings are used.
        policy: what plays.
        seed: the seed of the episode.
        shards: the agents of each shard.
        kind: where the shards live.
        record: whether plans, feedback and the truth are gathered too.
        spread: whether the shards may hold their parts of the server.
    """

    def __init__(
        self,
        bandit: PlannedBandit,
        policy: Policy,
        seed: int,
        shards: Sequence[Border],
        kind: HostKind,
        record: bool,
        spread: bool,
    ):
        import cloudpickle

        first = ShardTask(
            bandit.problem,
            bandit.max_cycles,
            bandit.observe,
            bandit.reveal,
            policy,
            seed,
            record,
            (0, 0),
            dict(REGRETS),
            spread,
        )
        self._task, self._shards, self._record = first, list(shards), record
        self.keepers = [Keeper(kind, cloudpickle.dumps(replace(first, border=border))) for border in shards]
        self.sides: list[AgentSide] = []
        self.taken = 0
        self.last: Turn | None = None
        self._silent = partner_of(type(policy)) == "nobody"
        self._reports: list[Report] = []
        self.constants: Constants = merged_constants(self._looked("constants"), shards[-1][1])

    def _looked(self, verb: str) -> list[Any]:
        """What all shards answer to a request that changes nothing."""
        for keeper in self.keepers:
            keeper.look(verb)
        return [keeper.answer() for keeper in self.keepers]

    def begin(self, constants: Constants, network: Network | None) -> None:
        """Let all shards make their agent sides."""
        self._network = network
        for keeper in self.keepers:
            keeper.begin(constants, network)
        found: list[Begun] = [keeper.answer() for keeper in self.keepers]
        self.uncounted = int(found[0].uncounted)
        self._by_steps = all(begun.by_steps for begun in found)
        self.spread = all(begun.spread for begun in found)  #: whether the shards hold their parts of the server

    def turn(self, down: Message | None) -> int:
        """Let the agents of all shards plan, and pull what they planned; returns the steps it took."""
        if self._by_steps:
            self._hand("turn", down)
        else:
            self._hand("plan", down)
            longest = max(keeper.answer() for keeper in self.keepers)
            for keeper in self.keepers:
                keeper.ask("pull", longest)
        self._reports = [keeper.answer() for keeper in self.keepers]
        length = self._reports[0].length
        self.taken += length
        self.last = self._gathered() if self._record else None
        return length

    def _hand(self, verb: str, down: Message | None) -> None:
        """Ask every shard, with the rows of the message that are for its agents."""
        for keeper, border in zip(self.keepers, self._shards, strict=True):
            keeper.ask(verb, slim(down, border))

    def _gathered(self) -> Turn:
        """Plans and feedback of all shards as one."""
        turns = [report.turn for report in self._reports if report.turn is not None]
        plans, feedback = [turn.plan for turn in turns], [turn.feedback for turn in turns]
        explore, arm = (np.concatenate([getattr(plan, name) for plan in plans]) for name in ("explore", "arm"))
        plan = CheckedPlan(explore, arm, plans[0].length)
        names = ("explored", "explored_sums", "arm", "played", "played_sums")
        arrays: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in feedback]) for name in names}
        features = [one.features for one in feedback if one.features is not None]
        if features:
            arrays["features"] = np.concatenate(features)
        return Turn(plan, Feedback(**arrays).checked(plan))

    def reports(self) -> list[Message | None]:
        """What the agents of each shard say about the last turn."""
        reports, self._reports = self._reports, []
        return messages_of([report.message for report in reports])

    def alone(self) -> int:
        """How many steps the agents can play without turns: some where they never speak, else none."""
        return self.constants.horizon - self.taken if self._silent and self._by_steps else 0

    def play_on(self, most: int) -> list[Message | None]:
        """Play up to `most` steps of agents who never speak."""
        for keeper in self.keepers:
            keeper.ask("play_on", min(most, _STEPS_ALONE))
        (self.taken, *_) = [keeper.answer() for keeper in self.keepers]
        return []

    def kept(self) -> Kept:
        """What was kept of the run so far, shard after shard."""
        tables: list[CountTables] = []
        marks = [_Columns(self.constants.num_agents, np.int64) for _ in Marks._fields]
        summed: dict[str, _Columns] = {}
        steps: IntArray = np.empty(0, dtype=np.int64)
        for keeper, border in zip(self.keepers, self._shards, strict=True):
            keeper.look("kept")  # one shard after the other, because all answers at once would take much memory
            own: Kept = keeper.answer()
            steps = own.steps
            assert isinstance(own.tables, CountTables)
            tables.append(own.tables)
            for column, array in zip(marks, own.marks, strict=True):
                column.put(border, array)
            for kind, regret in own.summed.items():
                summed.setdefault(kind, _Columns(self.constants.num_agents, np.float64)).put(border, regret)
        gaps = {} if changes(self._task.problem) else GapTables(self._task.problem, self._task.seed, self._shards)
        regrets: dict[str, FloatArray] = {kind: column.whole for kind, column in summed.items()}
        stood = Marks(*(column.whole for column in marks))
        return Kept(steps, StackedTables(tables), stood, gaps, regrets)

    def truth(self) -> tuple[BanditInstance, View]:
        """The problem with its truth and what the agents were shown, drawn again in this process."""
        task = self._task
        bandit = PlannedBandit(task.problem, max_cycles=task.max_cycles, observe=task.observe, reveal=task.reveal)
        bandit.start(task.seed)
        view = bandit.view(hidden_for(task.policy))
        if self._network is not None:
            view = replace(view, network=self._network.around(view.agents))
        bandit.resume(self.taken, 0)
        return bandit.instance, view

    def snapshot(self) -> State:
        """The state as a tree of plain arrays."""
        return {"steps": self.taken, "shards": numbered([keeper.save() for keeper in self.keepers])}

    def restore(self, state: State) -> None:
        """Take over a state; the other side of `snapshot`."""
        self.taken = state["steps"]
        for keeper, own in zip(self.keepers, in_order(state["shards"]), strict=True):
            keeper.restore(own)

    def close(self) -> None:
        """End all shards."""
        for keeper in self.keepers:
            keeper.close()


class _Columns:
    """An array (C, M) that is filled shard by shard, so that only one shard's part is in memory twice."""

    def __init__(self, num_agents: int, dtype: type[np.generic]):
        self._num_agents, self._dtype = num_agents, dtype
        self.whole: Any = None

    def put(self, border: Border, own: Any) -> None:
        """Fill in the agents of a shard, (C, n)."""
        if self.whole is None:
            self.whole = np.empty((len(own), self._num_agents), dtype=self._dtype)
        self.whole[:, border[0] : border[1]] = own
