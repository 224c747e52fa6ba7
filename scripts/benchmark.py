#!/usr/bin/env python3
"""Measures how fast things are beside what they are measured against (for maintainers).

Each sub-command is a function that returns rows; the exit code is 1 when a goal is missed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import fedbandit_envs as fb
from fedbandit_envs.env import HiddenContextBandit
from fedbandit_envs.views import AgentsVectorEnv


class Row(NamedTuple):
    """One line of a benchmark's table; `ok` is None where there is no goal."""

    what: str
    goal: str
    measured: str
    ok: bool | None


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


def interleaved(tasks: Mapping[str, Callable[[int], Any]], calls: int, repeats: int) -> dict[str, list[float]]:
    """CPU seconds per call of each task in each repeat; the tasks take turns, so that all meet the same load."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for repeat in range(repeats + 1):
        for name, task in tasks.items():
            start = time.process_time()
            for call in range(calls):
                task(call)
            if repeat:  # the first one only warms up
                seconds[name].append((time.process_time() - start) / calls)
    return seconds


def step(options: argparse.Namespace) -> list[Row]:
    """Steps per second through PettingZoo's dicts, beside a null environment and the native vector environment."""
    agents, horizon = options.agents, 10**9
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
        calls=options.calls,
        repeats=options.repeats,
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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)

    command = commands.add_parser("step", help="PettingZoo's dicts beside a null environment and the native VectorEnv")
    command.add_argument("--agents", type=int, default=100)
    command.add_argument("--calls", type=int, default=100, help="steps in a repeat")
    command.add_argument("--repeats", type=int, default=301)
    command.set_defaults(run=step)

    options = parser.parse_args(arguments)
    rows = options.run(options)
    show(rows)
    return 0 if all(row.ok is not False for row in rows) else 1


def show(rows: list[Row]) -> None:
    """Prints the table."""
    verdicts = {True: "ok", False: "MISSED", None: ""}
    table = [("what", "goal", "measured", ""), *[(*row[:3], verdicts[row.ok]) for row in rows]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
