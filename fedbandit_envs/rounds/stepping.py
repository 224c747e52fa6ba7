"""Runs that go step by step: through the PettingZoo API, or by agents that decide at each step and never speak."""

from collections.abc import Callable
from typing import Any

import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from fedbandit_envs.arrays import IntArray, read_only
from fedbandit_envs.envs.parallel import HiddenContextBandit, Observation
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback
from fedbandit_envs.protocol.steps import StepAgents

_WHOLE = np.dtype(np.int64)


def pulls_throughout(env: ParallelEnv[str, Observation, int]) -> bool:
    """Whether every layer of the environment defines the bulk path itself."""
    layer: Any = env
    while isinstance(layer, BaseParallelWrapper):
        if not hasattr(type(layer), "pull"):
            return False
        layer = layer.env
    return True


def stepped(env: ParallelEnv[str, Observation, int], plan: CheckedPlan) -> Feedback:
    """Carry out the plan pull by pull through the PettingZoo API: exploration in the order of the arms, then `arm`."""
    agents = list(env.agents)
    rows = np.arange(len(agents))
    ends = plan.explore.cumsum(axis=1)
    explored_sums = np.zeros(plan.explore.shape)
    played_sums = np.zeros(len(agents))
    for step in range(plan.length):
        exploring = step < ends[:, -1]
        arms = np.where(exploring, (ends <= step).sum(axis=1).clip(max=ends.shape[1] - 1), plan.arm)
        _, rewards, *_ = env.step(dict(zip(agents, arms.tolist(), strict=True)))
        values = np.array([rewards[agent] for agent in agents])
        explored_sums[rows[exploring], arms[exploring]] += values[exploring]
        played_sums[~exploring] += values[~exploring]
    return Feedback.of(plan, explored_sums, played_sums)


def decides_by_steps(agents: object, bandit: HiddenContextBandit) -> bool:
    """Whether the steps of these agents can be played without turns: their class overrides neither verb.

    The environment's class must not override `pull`, and nobody may count its pulls. Classes decide, so a method that
    is put on a single object is not noticed.
    """
    return (
        isinstance(agents, StepAgents)
        and type(agents).plan is StepAgents.plan
        and type(agents).report is StepAgents.report
        and type(bandit).pull is HiddenContextBandit.pull
        and not bandit.tallies
    )


def play_on(bandit: HiddenContextBandit, agents: StepAgents, most: int, on_played: Callable[[IntArray], None]) -> None:
    """Play up to `most` plans of one step that `agents` choose.

    `on_played(arms)` is called once with the arms (steps, n) that were played, also when an agent raises: then with the
    steps before it, and the run can go on from there.

    Raises:
        ProtocolError: that names what is wrong with the chosen arms. It may be found late: the run is lost.
    """
    law, noise, uniforms = bandit.upcoming(most)
    n, num_arms = bandit.instance.means.shape
    arms = np.zeros((len(noise), n), dtype=np.int64)
    shown, once = read_only(arms.view()), read_only(np.ones(n, dtype=np.int64))
    choose, paid, learn, done = agents.choose, law.single, agents.learn, 0
    try:
        for row, arm, own_noise, own_uniforms in zip(arms, shown, noise, uniforms, strict=True):
            chosen = choose()
            if type(chosen) is not np.ndarray or chosen.dtype is not _WHOLE or chosen.shape != (n,):
                chosen = agents.checked(chosen)
            row[:] = chosen
            rewards = read_only(paid(arm, own_noise, own_uniforms))
            done += 1
            learn(arm, once, rewards)
    finally:
        if np.maximum.reduce(arms.view(np.uint64), axis=None) >= num_arms:  # what is below 0 becomes huge
            first = np.flatnonzero(((arms < 0) | (arms >= num_arms)).any(axis=1))[0]
            agents.checked(arms[first])
        bandit.skip(done)
        on_played(arms[:done])
