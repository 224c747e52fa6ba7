"""Where a client's knowledge and rewards come from: a simulation, or the real world."""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.envs.episode import Episode
from fedbandit_envs.envs.registration import split_keywords
from fedbandit_envs.problems.generator import draw_instance
from fedbandit_envs.problems.segments import Segment, Segments
from fedbandit_envs.problems.streams import changes
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback
from fedbandit_envs.seeding import Randomness, Stream, derived_seed


class RewardSource(Protocol):
    """The contract of a reward source: what a client's agents know, and what their pulls bring.

    To run a policy on real rewards, write a class with these two methods and name it in the SuperNode's configuration,
    as `rewards="my_package:MySource"`. It is made as `MySource(agents, settings)`, with the agents' numbers and a
    mapping of all settings. A client is a new process in each turn, so a source that must remember something has to
    store it.
    """

    def view(self, constants: Constants, step: int) -> View:
        """What these agents know: their mu_i and psi, the public constants, and a source of random numbers.

        Where contexts change, the view says in `valid` for how many steps it holds. It is then asked for again after
        these steps. A client that is made anew asks for the view of step 0, and then for the last one that it was
        shown.

        Args:
            constants: the public constants of the problem.
            step: the step from which on the view holds; 0 at the start.
        """

    def pull(self, plan: CheckedPlan, number: int) -> Feedback:
        """Carry out a plan of at least one step, and return what was pulled with the sums of the rewards.

        The rewards are those of the contexts of the last `view`, and no plan lasts longer than that view holds.

        Args:
            plan: what the agents do.
            number: the number of the plan in this run, from 0. A plan that failed is asked for again under its number.
        """


class SimulatedRewards:
    """The rewards of some agents of an environment: the same that they get in one process with all other agents.

    The whole instance is drawn from the seed, and only the rows of these agents are kept.

    Args:
        agents: the numbers of the agents.
        settings: the environment's id, its arguments, the seed and what the policy observes, as `Settings.source`
            gives them.

    >>> import numpy as np
    >>> from fedbandit_envs.federation.settings import Settings
    >>> problem = {"num_agents": 6, "max_cycles": 30}
    >>> settings = Settings.simulated("Uniform", {}, "fedbandit/Synthetic-v0", problem, seed=1)
    >>> SimulatedRewards(np.array([4, 1]), settings.source()).view(settings.constants, step=0).agents
    array([4, 1])
    """

    def __init__(self, agents: IntArray, settings: Mapping[str, Any]):
        problem, rest = split_keywords(str(settings["environment"]), dict(settings["arguments"]))
        seed, self._observes = int(settings["seed"]), settings["observes"]
        whole = draw_instance(problem, seed)
        num_agents, horizon = whole.num_agents, int(rest["max_cycles"])
        randomness = Randomness(derived_seed(seed, Stream.POLICY), Stream.POLICY, num_agents, agents)
        self._view = whole.rows(agents).view(horizon, randomness, self._observes)
        segments = Segments(problem, whole, seed, agents, horizon) if changes(problem) else None
        if segments is not None:
            self._view = replace(self._view, constants=segments.constants(self._view.constants))
        shard = replace(whole.rows(agents), population=None)
        reveal = rest.get("reveal") == "after"
        self._episode = Episode(shard, seed, num_agents, agents, segments, reveal)

    def view(self, constants: Constants, step: int) -> View:
        """What these agents know; refused if `constants` are not those of the simulated environment."""
        if self._view.constants != constants:
            raise ValueError(
                f"constants: expected those of the simulated environment, {self._view.constants}, got {constants}; "
                "start server and clients with the same settings"
            )
        self._episode.steps = step
        return self._episode.view(self._view, self._observes)

    @property
    def segment(self) -> Segment | None:
        """What the next pulls are compared with; None: contexts never change."""
        return self._episode.segment

    def pull(self, plan: CheckedPlan, number: int) -> Feedback:
        """The rewards of plan `number` in the episode of the seed."""
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
