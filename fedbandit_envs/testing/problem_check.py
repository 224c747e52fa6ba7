"""All runs by which a policy is checked on one problem.

All runs are on scripted environments: rewards follow a script, whatever the hidden truth says. So two runs that differ
in the truth alone, or in how the agents are split, or in how often they were stopped and resumed, must be the same.
"""

import copy
import gc
from typing import Any

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.envs.shared_arms import SharedArmsBandit
from fedbandit_envs.problems.generator import InstanceGenerator, draw_instance
from fedbandit_envs.problems.shared_arms import SharedArms
from fedbandit_envs.problems.streams import changes
from fedbandit_envs.protocol.messages import State
from fedbandit_envs.protocol.plans import ProtocolError
from fedbandit_envs.protocol.policy import Policy, hidden_for, observe_for
from fedbandit_envs.rounds.history import Exchange
from fedbandit_envs.storage import from_bytes, to_bytes
from fedbandit_envs.testing.comparing import first_difference
from fedbandit_envs.testing.scripted import Given, GivenStream, PaidByScript, other_truth
from fedbandit_envs.testing.watching import Blocks, PolicyFault, Watch, WatchedRounds

_HORIZON = 120  # the steps of a run on the first problem, for policies whose plans are short
_LATER_HORIZON = 60  # the same on the problems after it
_LONG_HORIZON = 2**14  # the steps of a run, for policies whose plans are long: they eliminate arms late, for example
_MANY_TURNS = 60  # a policy with fewer turns than this up to the long horizon has long plans
_EVERY_TURN = 20  # up to this turn, a run on the first problem is stopped and resumed at every turn
_LATER_EVERY_TURN = 6  # the same on the problems after it
_THEN_EVERY = 8  # afterwards, a run is stopped and resumed at every 8th turn


class ProblemCheck:
    """All checks of a policy on one problem.

    Args:
        policy: the policy; the check works on copies of it.
        problem: the problem, whose view the agents are shown.
        horizon: the number of steps; None: short, or long for a policy with long plans.
        seed: the seed of the instance and of the script.
        name: what the problem is called in a fault.
        thorough: whether runs are longer, repeated, split in more ways and stopped more often: on the first problem.
    """

    def __init__(
        self,
        policy: Policy,
        problem: InstanceGenerator | SharedArms,
        horizon: int | None,
        seed: int,
        name: str,
        thorough: bool,
    ):
        self.policy = copy.deepcopy(policy)  # a copy that no run has touched
        self.problem, self.seed, self.thorough = problem, seed, thorough
        self.horizon = horizon or (_HORIZON if thorough else _LATER_HORIZON)
        self.may_grow = horizon is None
        self.observe = observe_for(policy)
        self.truths: tuple[int, ...] = (1, 2)  # the other truths behind the same view and rewards
        self.shape: tuple[int, ...]
        if isinstance(problem, SharedArms):
            assert problem.num_arms is not None
            self.shape, self.truths, self.may_grow = (problem.num_agents, problem.num_arms), (), False
        else:
            self.shape = draw_instance(problem, seed).means.shape
        self.place = f"{name}: M = {self.shape[0]}, K = {self.shape[1]}"
        self.script: FloatArray = np.random.default_rng(seed).uniform(0, 1, self.shape)

    def all(self) -> None:
        """Raise the first fault. The order matters: a fault of one kind can look like one of a later kind."""
        run = self._run()
        if self.may_grow and self._turns(_LONG_HORIZON) < _MANY_TURNS:
            self.horizon = _LONG_HORIZON
            run = self._run()
        if self.thorough:
            self._check_repeats(run)
        self._check_splits(run, _splits(self.shape[0])[: None if self.thorough else 1])
        if hidden_for(self.policy) is None:
            self._check_other_truths(run)
        self._check_resumed(run)

    def _rounds(
        self, *, truth: int = 0, blocks: Blocks | None = None, apart: bool = False, how: str = ""
    ) -> WatchedRounds:
        """New rounds of the policy on a scripted environment; `how` says in a fault how they are played."""
        env = self._environment(truth)
        place = f"{self.place}; {how}" if how else self.place
        return WatchedRounds(env, copy.deepcopy(self.policy), Watch(place), blocks, apart)

    def _environment(self, truth: int) -> HiddenContextBandit | SharedArmsBandit:
        """What a run is played on; arms that agents share have no script, since loads decide what they pay."""
        if isinstance(self.problem, SharedArms):
            return SharedArmsBandit(self.problem, max_cycles=self.horizon)
        # Drawn anew for each run: a policy that searches the memory finds the truth of its own run or none.
        instance = draw_instance(self.problem, self.seed)
        if truth:
            instance = other_truth(instance, self.observe, truth)
        given = GivenStream(instance, self.problem) if changes(self.problem) else Given(instance)
        reveal = "after" if self.policy.observes == "delayed" else "never"
        return PaidByScript(given, self.script, self.horizon, self.observe, reveal)

    def _turns(self, horizon: int) -> int:
        """How many turns a run to that horizon takes, counted up to _MANY_TURNS."""
        short, self.horizon = self.horizon, horizon
        rounds = self._rounds()
        self.horizon = short
        rounds.reset(seed=self.seed)
        turns = 0
        while not rounds.done and turns < _MANY_TURNS:
            rounds.advance()
            turns += 1
        return turns

    def _run(self, **how: Any) -> list[Exchange]:
        """Play one run, and return its turns."""
        rounds = self._rounds(**how)
        rounds.reset(seed=self.seed)
        while not rounds.done:
            rounds.advance()
        rounds._watch.still_as_sent()
        return rounds._exchanges

    def _check_repeats(self, run: list[Exchange]) -> None:
        """Play the run again beside another one: it must be the same."""
        beside = self._rounds(how="another run beside it")
        beside.reset(seed=self.seed + 1)
        again = self._rounds(how="played again")
        again.reset(seed=self.seed)
        while not again.done:
            again.advance()
            if not beside.done:
                beside.advance()
        self._compare(
            run,
            again._exchanges,
            "does not repeat",
            "played again with the same seed, beside another run",
            "draw from view.randomness.draws(number of the plan or step), and keep no state outside the two sides",
        )

    def _check_splits(self, run: list[Exchange], splits: list[list[list[int]]]) -> None:
        """Play the run in other blocks of agents: it must be the same."""
        for blocks in splits:
            how = f"in blocks {blocks}"
            self._compare(
                run,
                self._run(blocks=blocks, apart=True, how=how),
                "mixes rows",
                f"played {how}",
                "row i may depend on row i alone and on messages: keep the agent axis first, never reduce over it or "
                "make it a matrix dimension, draw from view.randomness.draws(number of the plan or step) and from no "
                "generator of its own, and share no object between blocks or with the server",
            )

    def _check_other_truths(self, run: list[Exchange]) -> None:
        """Play the run with other hidden truths behind the same view and rewards: it must be the same."""
        for truth in self.truths:
            gc.collect()  # a policy that searches the memory must find no truth of an earlier run
            self._compare(
                run,
                self._run(truth=truth, how="another truth"),
                "reads the truth",
                "shown the same view and the same rewards with another hidden truth",
                "decide from the view, the feedback and messages alone",
            )

    def _check_resumed(self, run: list[Exchange]) -> None:
        """Stop and resume the run many times: it must be the same."""
        how = "stopped and resumed"
        rounds, done, turn = self._rounds(how=how), list[Exchange](), 0
        rounds.reset(seed=self.seed)
        every_turn = _EVERY_TURN if self.thorough else _LATER_EVERY_TURN
        while not rounds.done:
            rounds.advance()
            done += rounds._exchanges
            rounds._exchanges = []
            turn += 1
            if not rounds.done and (turn <= every_turn or turn % _THEN_EVERY == 0):
                state = self._snapshot(rounds)
                rounds = self._rounds(how=how)
                rounds.restore(state)
        self._compare(
            run,
            done,
            "loses state",
            "stopped after a round and resumed from its snapshot",
            "keep all state in attributes of the sides, as arrays, numbers, strings or None, or override snapshot() "
            "and restore(); two attributes must not share one array",
        )

    def _snapshot(self, rounds: WatchedRounds) -> State:
        """The state of a run, as a file gives it back."""
        try:
            state = rounds.snapshot()
        except ProtocolError as error:
            raise PolicyFault("state is not plain", self.place, str(error)) from error
        try:
            return from_bytes(to_bytes(state), "snapshot")
        except ValueError as error:
            raise PolicyFault("state is not plain", self.place, f"{error}; keep it as arrays or numbers") from error

    def _compare(self, run: list[Exchange], other: list[Exchange], fault: str, how: str, advice: str) -> None:
        """Raise a fault if two runs differ."""
        difference = first_difference(run, other)
        if difference:
            raise PolicyFault(fault, self.place, f"expected the same run when {how}, got {difference}; {advice}")


def _splits(num_agents: int) -> list[list[list[int]]]:
    """Ways to split the agents: each alone, all in reverse order, and in uneven blocks without order."""
    if num_agents == 1:
        return []
    backwards = list(range(num_agents))[::-1]
    return [
        [[agent] for agent in range(num_agents)],
        [backwards],
        [backwards[::2], *([agent] for agent in sorted(backwards[1::2]))],
    ]
