"""Runs that go step by step: through the PettingZoo API, or by agents that decide at each step."""

from collections.abc import Callable
from typing import Any

import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from fedbandit_envs.arrays import FloatArray, IntArray, read_only
from fedbandit_envs.contexts.features import FeatureMap
from fedbandit_envs.envs.parallel import Observation
from fedbandit_envs.envs.planned import PlannedBandit
from fedbandit_envs.envs.playable import PlayableBlock
from fedbandit_envs.problems.segments import summed_regrets
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback
from fedbandit_envs.protocol.steps import Outcome, StepAgents

_WHOLE = np.dtype(np.int64)


def pulls_throughout(env: ParallelEnv[str, Observation, int]) -> bool:
    """Whether every layer of the environment defines the bulk path itself."""
    layer: Any = env
    while isinstance(layer, BaseParallelWrapper):
        if not hasattr(type(layer), "pull"):
            return False
        layer = layer.env
    return hasattr(type(layer), "pull")


def stepped(
    env: ParallelEnv[str, Observation, int], plan: CheckedPlan, feature_map: FeatureMap | None = None
) -> Feedback:
    """Carry out the plan pull by pull through the PettingZoo API: exploration in the order of the arms, then `arm`.

    With a `feature_map` the infos reveal the contexts, and a plan of one step has the features of the arms pulled.
    """
    agents = list(env.agents)
    rows = np.arange(len(agents))
    ends = plan.explore.cumsum(axis=1)
    explored_sums = np.zeros(plan.explore.shape)
    played_sums = np.zeros(len(agents))
    for step in range(plan.length):
        exploring = step < ends[:, -1]
        arms = np.where(exploring, (ends <= step).sum(axis=1).clip(max=ends.shape[1] - 1), plan.arm)
        _, rewards, _, _, infos = env.step(dict(zip(agents, arms.tolist(), strict=True)))
        values = np.array([rewards[agent] for agent in agents])
        explored_sums[rows[exploring], arms[exploring]] += values[exploring]
        played_sums[~exploring] += values[~exploring]
    features = None
    if plan.length == 1 and feature_map is not None:
        contexts = np.array([infos[agent]["context"] for agent in agents])
        features = feature_map(contexts)[rows, arms]
    return Feedback.of(plan, explored_sums, played_sums, features)


def decides_by_steps(agents: object, bandit: PlayableBlock) -> bool:
    """Whether the steps of these agents can be played without turns: their class overrides neither verb.

    The environment's class must not override `pull`, and nobody may count its pulls. Classes decide, so a method that
    is put on a single object is not noticed.
    """
    return (
        isinstance(agents, StepAgents)
        and type(agents).plan is StepAgents.plan
        and type(agents).report is StepAgents.report
        and isinstance(bandit, PlannedBandit)
        and type(bandit).pull is PlannedBandit.pull
        and not bandit.tallies
    )


def play_on(
    bandit: PlannedBandit,
    agents: StepAgents,
    most: int,
    on_played: Callable[[IntArray, FloatArray | None], None],
) -> Message | None:
    """Play up to `most` plans of one step that `agents` choose, until they speak; returns what they say.

    `on_played(arms, costs)` is called once with the arms (steps, n) that were played, and with what they add to the
    regret (steps, kinds, n) if contexts change. It is called also when an agent raises: then with the steps before it,
    and the run can go on from there.

    Raises:
        ProtocolError: that names what is wrong with the chosen arms. It may be found late: the run is lost.
    """
    law, noise, uniforms = bandit.upcoming(most)
    n, num_arms = bandit.block_size, bandit.num_arms
    arms = np.zeros((len(noise), n), dtype=np.int64)
    shown, once = read_only(arms.view()), read_only(np.ones(n, dtype=np.int64))
    paid, done, said = law.single, 0, None
    segments, features = bandit.episode.segments, None
    costs = None if segments is None else np.zeros((len(noise), len(summed_regrets()), n))
    first, rows = bandit.steps, np.arange(n)
    try:
        for row, arm, own_noise, own_uniforms in zip(arms, shown, noise, uniforms, strict=True):
            if segments is not None and (first + done) % segments.length == 0 and done:
                agents.observe(bandit.view_at(first + done, agents.view))
            chosen = agents.choose()
            if type(chosen) is not np.ndarray or chosen.dtype is not _WHOLE or chosen.shape != (n,):
                chosen = agents.checked(chosen)
            row[:] = chosen
            if segments is not None:
                agents.checked(chosen)
                segment = segments.at(segments.place(first + done))
                paid = segment.reward_law().single
                assert costs is not None
                costs[done] = segment.gaps[:, rows, arm]
                features = read_only(segment.phi[rows, arm]) if bandit.reveal == "after" else None
            rewards = read_only(paid(arm, own_noise, own_uniforms))
            done += 1
            agents.learn(Outcome(arm, once, rewards, features))
            said = agents.speak()
            if said is not None:
                break
    finally:
        if np.maximum.reduce(arms.view(np.uint64), axis=None) >= num_arms:  # what is below 0 becomes huge
            wrong = np.flatnonzero(((arms < 0) | (arms >= num_arms)).any(axis=1))[0]
            agents.checked(arms[wrong])
        bandit.skip(done)
        on_played(arms[:done], None if costs is None else costs[:done])
    return said
