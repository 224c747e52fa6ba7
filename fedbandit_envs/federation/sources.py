"""Where a client's knowledge and rewards come from: the simulation, or the world."""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.envs.bandit import draw_instance
from fedbandit_envs.envs.episode import Episode
from fedbandit_envs.envs.ids import problem_name
from fedbandit_envs.envs.registration import split_keywords
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback
from fedbandit_envs.seeding import Randomness, Stream, derived_seed


class RewardSource(Protocol):
    """What a client's agents know, and what their pulls bring. It is made as `Source(agents, settings)`.

    A client is a new process at each round, so a source that must remember something keeps it itself.
    """

    def view(self, constants: Constants) -> View:
        """What these agents know: their mu_i and psi, the public constants, a source of random numbers."""

    def pull(self, plan: CheckedPlan, number: int) -> Feedback:
        """Carry out a plan of at least one step, the `number`-th of the run (from 0), and give the sums of rewards."""


class SimulatedRewards:
    """The rows of some agents of an environment: the same rewards that they meet in one process with all others.

    `settings` holds the environment's id, its arguments, the seed and what the policy observes. Drawing the instance
    takes the seed of all; only these agents' rows are kept.
    """

    def __init__(self, agents: IntArray, settings: Mapping[str, Any]):
        problem, rest = split_keywords(problem_name(settings["environment"]), dict(settings["arguments"]))
        seed, self._observes = int(settings["seed"]), settings["observes"]
        whole = draw_instance(problem, seed)
        num_agents = whole.num_agents
        randomness = Randomness(derived_seed(seed, Stream.POLICY), Stream.POLICY, num_agents, agents)
        self._view = whole.rows(agents).view(int(rest["max_cycles"]), randomness, self._observes)
        shard = replace(whole.rows(agents), population=None)
        self._episode = Episode(shard, seed, num_agents, agents)

    def view(self, constants: Constants) -> View:
        """What these agents know."""
        if self._view.constants != constants:
            raise ValueError(
                f"constants: expected those of the simulated environment, {self._view.constants}, got {constants}; "
                "start server and clients with the same settings"
            )
        return self._view

    def pull(self, plan: CheckedPlan, number: int) -> Feedback:
        """The rewards of that plan in the episode of the seed."""
        self._episode.plans = number
        return self._episode.pull(plan)


def reward_source(agents: IntArray, settings: Mapping[str, Any], node: Mapping[str, Any]) -> RewardSource:
    """The reward source of a client: the one that the client itself names, or else the simulation.

    Args:
        agents: the numbers of the client's agents.
        settings: the settings of the simulation, from `Settings.source`. They come from the server, so they never
            decide which code runs.
        node: the client's own configuration. Its entry "rewards" names a class as "module:class", which is made with
            `agents` and with the entries of both mappings.
    """
    path = str(node.get("rewards", ""))
    if not path:
        return SimulatedRewards(agents, settings)
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)(agents, {**settings, **node})
