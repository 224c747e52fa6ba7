"""Stepping through PettingZoo, and step-by-step policies."""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedbandit_envs as fb
from benchmarks.measure import NOT_COMPILED, Row, compiler, interleaved
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.envs.views import AgentsVectorEnv

sys.path.append(str(Path(__file__).parents[2] / "tests" / "helpers"))
import reference


class NullEnvironment:
    """Reads the actions into an array and returns fresh copies of the same dicts: the cost of the API itself."""

    def __init__(self, env: HiddenContextBandit, actions: Mapping[str, int]):
        self.agents = list(env.possible_agents)
        observations, *self.rest = env.step(actions)
        self.names = list(observations[self.agents[0]])
        self.batches = [np.stack([shown[name] for shown in observations.values()]) for name in self.names]

    def step(self, actions: Mapping[str, int]) -> tuple[Any, ...]:
        """One copy of each batch, sliced: the cheapest way to fresh arrays."""
        self.read = np.array([actions[agent] for agent in self.agents])
        first, second = self.names
        copies = [batch.copy() for batch in self.batches]
        observations = {
            agent: {first: one, second: other} for agent, one, other in zip(self.agents, *copies, strict=True)
        }
        rewards, terminations, truncations, infos = self.rest
        return (
            observations,
            rewards.copy(),
            terminations.copy(),
            truncations.copy(),
            {agent: info.copy() for agent, info in infos.items()},
        )


def step(quick: bool) -> list[Row]:
    """Steps per second through PettingZoo's dicts, beside a null environment and the native vector environment."""
    agents, horizon = 100, 10**9
    env = fb.make("fedbandit/Synthetic-v0", num_agents=agents, max_cycles=horizon)
    vector = AgentsVectorEnv("Synthetic", num_envs=agents, max_cycles=horizon)
    env.reset(seed=0)
    vector.reset(seed=0)
    arms = np.random.default_rng(0).integers(env.num_arms, size=(64, agents))
    actions = [dict(zip(env.agents, row, strict=True)) for row in arms.tolist()]
    null = NullEnvironment(env, actions[0])
    seconds = interleaved(
        {
            "dicts": lambda call: env.step(actions[call % 64]),
            "null": lambda call: null.step(actions[call % 64]),
            "vector": lambda call: vector.step(arms[call % 64]),
        },
        calls=100,
        repeats=41 if quick else 301,
    )
    dicts, empty, rows = (np.array(seconds[name]) for name in ("dicts", "null", "vector"))
    over_null, faster = float(np.median(dicts / empty)), float(np.median(dicts / rows))
    return [
        Row(f"PettingZoo, M = {agents}", "", f"{1 / np.median(dicts):,.0f} steps/s", None),
        Row("null environment", "", f"{1 / np.median(empty):,.0f} steps/s", None),
        Row("native VectorEnv", "", f"{1 / np.median(rows):,.0f} steps/s", None),
        Row("PettingZoo over null, time", "at most 1.5", f"{over_null:.2f}", over_null <= 1.5),
        Row("PettingZoo over VectorEnv, time", "at least 5", f"{faster:.2f}", faster >= 5),
    ]


def policies(quick: bool) -> list[Row]:
    """Step-by-step policies beside the same code agent by agent, and beside a loop over agents and arms.

    "Agent by agent" is the same code in blocks of one agent; the loop is the slow oracle of the tests. For Local-UCB
    two limits are timed too. No agents that keep to the contract can be faster than agents that decide nothing. The
    barest array step does the arithmetic alone, without the contract.
    """
    env = _synthetic(1)
    env.reset(seed=0)
    psi, means = env.view().psi, env.instance.means
    table, noise = means.tolist(), np.random.default_rng(0).standard_normal((AGENTS, 1025)).tolist()

    def reward(agent: int, arm: int, step: int) -> float:
        return table[agent][arm] + noise[agent][step]

    # Local-UCB plays to the environments' default horizon. The loop costs the same at every step, so it is timed on
    # fewer steps.
    local = {
        "it": _played(fb.make_policy("Local-UCB"), 2**13),
        "it, short": _played(fb.make_policy("Local-UCB"), 256),
        "alone": _played(fb.make_policy("Local-UCB"), 256, blocks=ALONE),
        "loop": Task(1024, lambda _: reference.local_ucb(AGENTS, env.num_arms, 1024, reward)),
        "agents that decide nothing": _played(SameArm(), 2**13),
        "the barest array step": Task(2**13, lambda _: _bare_local_ucb(means, 2**13)),
    }
    if compiler():
        compiled = fb.make_policy("Local-UCB", compiled=True)
        local |= {"it, compiled": _played(compiled, 2**13), "it, compiled, to T = 1024": _played(compiled, 1024)}
    times = _times_faster("loop", local, repeats=2 if quick else 11)
    name, over, goal = "Local-UCB, M = 100", "loop over agents and arms over", "at least 30"
    rows = [
        _agent_by_agent(name, times["it, short"] / times["alone"]),
        Row(f"{name}, {over} it", "compiled only", f"{times['it']:.1f}", None),
        _reached(f"{name}, {over} it, compiled", times.get("it, compiled"), goal),
    ]
    # At a shorter horizon the start and the checkpoints, which are at most 200, have a larger share of the time.
    others = "it, compiled, to T = 1024", "agents that decide nothing", "the barest array step"
    rows += [Row(f"{name}, {over} {other}", "", f"{times[other]:.1f}", None) for other in others if other in times]

    short = (
        32 if quick else 256
    )  # the loops of these policies take minutes at T = 1024; how often agents synchronise depends on T
    loops = {"KK-UCB": reference.kk_ucb, "DisLinUCB": reference.dis_lin_ucb}
    for policy, loop in loops.items():
        tasks = {
            "it": _played(fb.make_policy(policy), short),
            "alone": _played(fb.make_policy(policy), short, blocks=ALONE),
            "loop": Task(short, lambda _, loop=loop: loop(psi, short, reward)),
        }
        times = _times_faster("loop", tasks, repeats=1 if quick else 5)
        name = f"{policy}, M = 100"
        rows += [_agent_by_agent(name, times["it"] / times["alone"]), _reached(f"{name}, {over} it", times["it"], goal)]
    return rows


AGENTS = 100
ALONE = [[agent] for agent in range(AGENTS)]


class Task(NamedTuple):
    """Something that takes all agents a number of steps."""

    steps: int
    run: Callable[[int], Any]


def _synthetic(horizon: int) -> HiddenContextBandit:
    return fb.make("fedbandit/Synthetic-v0", num_agents=AGENTS, max_cycles=horizon)


def _played(policy: fb.Policy, horizon: int, **options: Any) -> Task:
    env = _synthetic(horizon)
    return Task(horizon, lambda call: fb.play(env, policy, seed=call, **options))


def _times_faster(slow: str, tasks: Mapping[str, Task], repeats: int) -> dict[str, float]:
    """For each task, the CPU time per step of the slow task over that of this task; the median over repeats."""
    seconds = interleaved({name: task.run for name, task in tasks.items()}, calls=1, repeats=repeats)
    each = {name: np.array(seconds[name]) / task.steps for name, task in tasks.items()}
    return {name: float(np.median(each[slow] / own)) for name, own in each.items()}


def _agent_by_agent(name: str, times: float) -> Row:
    return _reached(f"{name}, agent by agent over it", times, "at least 8")


def _reached(what: str, times: float | None, goal: str) -> Row:
    """A row whose goal is a text that ends with the least ratio, such as "at least 30"."""
    if times is None:
        return Row(what, goal, NOT_COMPILED, None)
    return Row(what, goal, f"{times:.1f}", times >= float(goal.split()[-1]))


@dataclass(frozen=True)
class SameArm(fb.Policy):
    """Plays arm 0 step by step, and learns nothing."""

    def agents(self, view: fb.View) -> "SameArmAgents":
        """Agents that cost nothing, so that what is timed is the cost of the contract."""
        return SameArmAgents(view)


class SameArmAgents(fb.StepAgents):
    """Agents that neither choose nor learn."""

    def __init__(self, view: fb.View):
        super().__init__(view)
        self.arm = np.zeros(len(view.agents), dtype=np.int64)

    def choose(self) -> np.ndarray:
        """The same arm once more."""
        return self.arm

    def learn(self, outcome: fb.Outcome) -> None:
        """Learn nothing."""


def _bare_local_ucb(means: np.ndarray, horizon: int) -> None:
    """Local-UCB with given noise, without plans, checks, feedback, checkpoints or rounds."""
    agents, arms = means.shape
    rng = np.random.default_rng(0)
    noise, flat = rng.standard_normal((horizon, agents)), means.ravel()
    sums, pulls = means + rng.standard_normal(means.shape), np.ones(means.shape)
    flat_sums, flat_pulls, starts = sums.reshape(-1), pulls.reshape(-1), np.arange(agents) * arms
    index, bonuses = np.empty(means.shape), np.empty(means.shape)
    for step in range(arms + 1, horizon + 1):
        np.divide(2 * math.log1p(step * math.log(step) ** 2), pulls, out=bonuses)
        np.sqrt(bonuses, out=bonuses)
        np.divide(sums, pulls, out=index)
        np.add(index, bonuses, out=index)
        places = starts + index.argmax(axis=1)
        flat_sums[places] += flat.take(places) + noise[step - 1]
        flat_pulls[places] += 1
