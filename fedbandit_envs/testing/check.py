"""For authors of policies: `check_policy` plays a policy in every way the contract allows and names what is wrong.

All runs are on scripted environments: rewards follow a script, whatever the hidden truth says. So two runs that differ
in the truth alone, or in how the agents are split, or in how often they were stopped and resumed, must be the same.
"""

import copy
import gc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.distributions import Discrete
from fedbandit_envs.contexts.features import Identity
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.problems.generator import InstanceGenerator, draw_instance
from fedbandit_envs.problems.instance import OBSERVES, BanditInstance
from fedbandit_envs.problems.linear import Linear
from fedbandit_envs.problems.synthetic import Synthetic
from fedbandit_envs.protocol.messages import State
from fedbandit_envs.protocol.plans import Feedback, Plan, ProtocolError
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.rounds.history import Exchange
from fedbandit_envs.seeding import Stream, generator
from fedbandit_envs.testing.watching import Blocks, PolicyFault, Watch, WatchedRounds
from fedbandit_envs.validation import one_of, whole_number

__all__ = ["PolicyFault", "check_policy"]

_NOISE = 0.5  # standard deviation of a scripted reward
_EVERY_TURN, _THEN_EVERY = 20, 8  # when a run is stopped and resumed
_HORIZON, _LONG_HORIZON, _MANY_TURNS = 120, 2**14, 60


def check_policy(
    policy: Policy,
    *,
    problems: Mapping[str, InstanceGenerator] | None = None,
    horizon: int | None = None,
    seed: int = 0,
) -> str:
    """Play a policy on small problems, or on those given by name; raise the first PolicyFault, or return a summary.

    Checked: every plan and message; that nothing received or sent is changed; that a run repeats, also beside another
    one; that it is the same, bit for bit, however the agents are split; that it can be stopped after any round and
    resumed; and, unless the policy observes the "truth", that another truth behind the same view and rewards changes
    no decision. Without a `horizon`, policies whose plans are long get a long one.
    """
    if not isinstance(policy, Policy):
        raise ValueError(
            f"policy: expected a Policy, got {policy!r}; use fb.make_policy(name), or an instance of yours"
        )
    one_of(f"{type(policy).__name__}.observes", policy.observes, OBSERVES)
    if horizon is not None:
        whole_number("horizon", horizon, at_least=1)
    chosen = _default_problems(policy.observes) if problems is None else problems
    for number, (name, problem) in enumerate(chosen.items()):
        _Check(policy, problem, horizon, seed, name).all(thorough=number == 0)
    return f"{type(policy).__name__}: no fault found on {', '.join(chosen)}"


def _default_problems(observes: str) -> dict[str, InstanceGenerator]:
    rng = np.random.default_rng(0)
    people = Discrete(rng.uniform(0.2, 0.9, (3, 2, 2)), np.array([[0.5, 0.5], [0.3, 0.7], [1.0, 0.0]]))
    problems: dict[str, InstanceGenerator] = {
        "hidden contexts": Synthetic(num_agents=5, num_arms=4, context_std=0.1),
        "one agent, one arm": Synthetic(num_agents=1, num_arms=1, dim=2),
        "shared accounts": Linear(rng.uniform(0.0, 1.0, (3, 2)), contexts=people, feature_map=Identity(3, 2)),
    }
    if observes != "context":
        problems["resampled contexts"] = Synthetic(num_agents=3, num_arms=3, dim=2, context="resampled")
    return problems


# --- scripted environments -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Given:
    """A problem that is always the same instance."""

    given: BanditInstance

    @property
    def num_agents(self) -> int:
        return self.given.num_agents

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        return self.given


class _ScriptedBandit(HiddenContextBandit):
    """Shows the view of its instance, but pays by the script."""

    def __init__(self, instance: BanditInstance, script: FloatArray, horizon: int, observe: str):
        super().__init__(_Given(instance), max_cycles=horizon, observe=observe)
        self._script = script  # (M, K)

    def pull(self, plan: Plan) -> Feedback:
        """The script's means, and noise of its own for each plan."""
        number, (rows, num_arms) = self.episode.plans, plan.explore.shape
        noise = _NOISE * generator(self.episode_seed, Stream.PLANS, number, 2).standard_normal((rows, num_arms + 1))
        arm_means = self._script[np.arange(rows), plan.arm]
        played = plan.length - plan.explore.sum(axis=1)
        self.resume(self.episode.steps + plan.length, number + 1)
        return Feedback(
            explored=plan.explore,
            explored_sums=plan.explore * self._script + np.sqrt(plan.explore) * noise[:, :-1],
            arm=plan.arm,
            played=played,
            played_sums=played * arm_means + np.sqrt(played) * noise[:, -1],
        )


def _other_truth(instance: BanditInstance, observe: str, number: int) -> BanditInstance:
    """The same view, but the best arms are the worst (1), or everything hidden is drawn anew (2).

    What the problem guarantees is part of the view, so a new theta keeps it: the arms of a shared theta share the new
    one, and every theta_a keeps its length.
    """
    rng = np.random.default_rng(number)
    hidden = observe != "context" and instance.contexts is not None
    drawn = rng.standard_normal((1 if instance.shared_theta else instance.num_arms, instance.dim))
    lengths = np.linalg.norm(instance.theta, axis=1, keepdims=True)
    return replace(
        instance,
        theta=-instance.theta if number == 1 else lengths * drawn / np.linalg.norm(drawn, axis=1, keepdims=True),
        contexts=instance.distribution.sample(rng) if hidden else instance.contexts,
        rewards="gaussian",
        noise_std=instance.constants(1, observe).noise_std,
    )


# --- the runs of a check ---------------------------------------------------------------------------------------------


class _Check:
    """All checks of a policy on one problem."""

    def __init__(self, policy: Policy, problem: InstanceGenerator, horizon: int | None, seed: int, name: str):
        self.policy = copy.deepcopy(policy)  # as it was before any run
        self.problem, self.horizon, self.seed = problem, horizon or _HORIZON, seed
        self.may_grow = horizon is None
        self.observe = "context" if policy.observes == "context" else "distribution"
        self.shape = draw_instance(problem, seed).means.shape
        self.place = f"{name}: M = {self.shape[0]}, K = {self.shape[1]}"
        self.script: FloatArray = np.random.default_rng(seed).uniform(0, 1, self.shape)

    def all(self, thorough: bool) -> None:
        """The order matters: a fault of one kind can look like one of a later kind."""
        run = self._run()
        if self.may_grow and self._turns(_LONG_HORIZON) < _MANY_TURNS:  # arms, for example, are eliminated late
            self.horizon = _LONG_HORIZON
            run = self._run()
        if thorough:
            self._check_repeats(run)
        self._check_splits(run, _splits(self.shape[0])[: None if thorough else 1])
        if self.policy.observes != "truth":
            self._check_other_truths(run)
        self._check_resumed(run)

    def _rounds(
        self, *, truth: int = 0, blocks: Blocks | None = None, apart: bool = False, how: str = ""
    ) -> WatchedRounds:
        # Drawn anew for each run: a policy that searches the memory finds the truth of its own run or none.
        instance = draw_instance(self.problem, self.seed)
        if truth:
            instance = _other_truth(instance, self.observe, truth)
        env = _ScriptedBandit(instance, self.script, self.horizon, self.observe)
        place = f"{self.place}; {how}" if how else self.place
        return WatchedRounds(env, copy.deepcopy(self.policy), Watch(place), blocks, apart)

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
        rounds = self._rounds(**how)
        rounds.reset(seed=self.seed)
        while not rounds.done:
            rounds.advance()
        rounds._watch.still_as_sent()
        return rounds._exchanges

    def _check_repeats(self, run: list[Exchange]) -> None:
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
        for truth in (1, 2):
            gc.collect()  # or a policy that searches the memory finds the truth of an earlier run, which is the same
            self._compare(
                run,
                self._run(truth=truth, how="another truth"),
                "reads the truth",
                "shown the same view and the same rewards with another hidden truth",
                "decide from the view, the feedback and messages alone",
            )

    def _check_resumed(self, run: list[Exchange]) -> None:
        how = "stopped and resumed"
        rounds, done, turn = self._rounds(how=how), list[Exchange](), 0
        rounds.reset(seed=self.seed)
        while not rounds.done:
            rounds.advance()
            done += rounds._exchanges
            rounds._exchanges = []
            turn += 1
            if not rounds.done and (turn <= _EVERY_TURN or turn % _THEN_EVERY == 0):
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
        try:
            state = rounds.snapshot()
            return {name: _plain(f"state of {name}", part) for name, part in state.items()}
        except ProtocolError as error:
            raise PolicyFault("state is not plain", self.place, str(error)) from error

    def _compare(self, run: list[Exchange], other: list[Exchange], fault: str, how: str, advice: str) -> None:
        found = _first_difference(run, other)
        if found:
            raise PolicyFault(fault, self.place, f"expected the same run when {how}, got {found}; {advice}")


def _splits(num_agents: int) -> list[list[list[int]]]:
    """Alone, all in reverse, and in uneven blocks without order."""
    if num_agents == 1:
        return []
    backwards = list(range(num_agents))[::-1]
    return [
        [[agent] for agent in range(num_agents)],
        [backwards],
        [backwards[::2], *([agent] for agent in sorted(backwards[1::2]))],
    ]


def _plain(name: str, value: Any) -> Any:
    """A copy of plain state, as a file would give it back."""
    if isinstance(value, Mapping):
        return {key: _plain(f"{name}, {key}", part) for key, part in value.items()}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.copy()
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise ProtocolError(f"{name}: expected arrays, numbers, strings or None, got {kind}; convert it")


def _first_difference(run: list[Exchange], other: list[Exchange]) -> str | None:
    """Where two runs part, in words; None if they are the same bit for bit."""
    for turn, (one, two) in enumerate(zip(run, other, strict=False)):
        first, second = _flat(one.tree()), _flat(two.tree())
        for name in [*first, *(name for name in second if name not in first)]:
            found = _difference(first.get(name), second.get(name))
            if found:
                return f"{name} {found} in turn {turn}, after {one.step} steps"
    return f"{len(other)} turns in place of {len(run)}" if len(run) != len(other) else None


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def _difference(one: Any, two: Any) -> str | None:
    if not isinstance(one, np.ndarray) or not isinstance(two, np.ndarray):
        same = type(one) is type(two) and one == two
        return None if same else f"{two!r} in place of {one!r}"
    if one.shape != two.shape or one.dtype != two.dtype:
        return f"{two.dtype} of shape {two.shape} in place of {one.dtype} of shape {one.shape}"
    if one.tobytes() == two.tobytes():
        return None
    changed: IntArray = np.argwhere((one != two) & ~(np.isnan(one) & np.isnan(two)))
    if not len(changed):
        return "with other signs of zero"
    where = tuple(int(axis) for axis in changed[0])
    return f"{two[where]!s} in place of {one[where]!s} at {where}"
