"""Stepping through PettingZoo, and step-by-step policies."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedbandit_envs as fb
from benchmarks.measure import Row, interleaved
from fedbandit_envs.env import HiddenContextBandit
from fedbandit_envs.views import AgentsVectorEnv

sys.path.append(str(Path(__file__).parents[2] / "tests"))
import reference


class NullEnvironment:
    """Reads the actions into an array and returns fresh copies of the same dicts: what PettingZoo's form costs."""

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
    """Step-by-step policies beside the same update agent by agent, and beside a loop over agents and arms.

    The first is the same code in blocks of one agent, the second the slow oracle of the tests. That oracle is plain
    arithmetic for Local-UCB, so two bounds are timed too: a policy that decides nothing, faster than which none can
    be that keeps to the contract, and the barest array step, which keeps to nothing.
    """
    agents = 100
    # Long enough that what a run costs at its start and end does not count; the other two loops take minutes by then.
    horizons = {"Local-UCB": 1024, "KK-UCB": 64 if quick else 256, "DisLinUCB": 64 if quick else 256}
    envs = {name: fb.make("fedbandit/Synthetic-v0", num_agents=agents, max_cycles=T) for name, T in horizons.items()}
    env = envs["Local-UCB"]
    env.reset(seed=0)
    psi = env.view().psi
    noise = np.random.default_rng(0).standard_normal((agents, max(horizons.values()) + 1)).tolist()
    means = env.instance.means.tolist()

    def reward(agent: int, arm: int, step: int) -> float:
        return means[agent][arm] + noise[agent][step]

    loops = {
        "Local-UCB": lambda _: reference.local_ucb(agents, env.num_arms, horizons["Local-UCB"], reward),
        "KK-UCB": lambda _: reference.kk_ucb(psi, horizons["KK-UCB"], reward),
        "DisLinUCB": lambda _: reference.dis_lin_ucb(psi, horizons["DisLinUCB"], reward),
    }
    same_arm = SameArm()
    bounds = {
        "a policy that decides nothing": lambda call: fb.play(env, same_arm, seed=call),
        "the barest array step": lambda _: _bare_local_ucb(env.instance.means, horizons["Local-UCB"]),
    }
    alone = [[agent] for agent in range(agents)]
    rows = []
    for name, loop in loops.items():
        policy, own = fb.make_policy(name), envs[name]
        tasks = {
            "together": lambda call, policy=policy, env=own: fb.play(env, policy, seed=call),
            "alone": lambda call, policy=policy, env=own: fb.play(env, policy, seed=call, blocks=alone),
            "loop": loop,
        }
        limits = bounds if name == "Local-UCB" else {}
        seconds = interleaved(tasks | limits, calls=1, repeats=1 if quick else 5)
        together, one, slow = (float(np.median(seconds[task])) for task in tasks)
        each, times = together / agents / horizons[name], slow / together
        rows += [
            Row(f"{name}, M = {agents}, per agent-step", "", f"{each * 1e6:.2f} us", None),
            Row(f"{name}, agent by agent over it", "at least 8", f"{one / together:.1f}", one / together >= 8),
            Row(f"{name}, loop over agents and arms over it", "at least 30", f"{times:.1f}", times >= 30),
        ]
        for limit in limits:
            rows.append(Row(f"{name}, that loop over {limit}", "", f"{slow / np.median(seconds[limit]):.1f}", None))
    return rows


@dataclass(frozen=True)
class SameArm(fb.Policy):
    """Plays arm 0 step by step, and learns nothing."""

    def agents(self, view: fb.View) -> "SameArmAgents":
        """One plan a step."""
        return SameArmAgents(view)


class SameArmAgents(fb.AgentSide):
    """What the contract costs a policy that costs nothing."""

    def __init__(self, view: fb.View):
        self.arm, self.num_arms = np.zeros(len(view.agents), dtype=np.int64), view.constants.num_arms

    def plan(self, down: fb.Message | None, remaining: int) -> fb.Plan:
        """The same arm once more."""
        return fb.Plan.play(self.arm, self.num_arms)

    def report(self, feedback: fb.Feedback) -> None:
        """Nothing to say."""


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
