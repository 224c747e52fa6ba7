"""The problem of a shard: an episode of some agents, drawn without the others where the problem permits."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.envs.episode import Episode
from fedbandit_envs.envs.planned import PlannedBandit
from fedbandit_envs.problems.generator import InstanceGenerator, draw_instance, draw_rows
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.problems.segments import Segments
from fedbandit_envs.problems.streams import changes
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.seeding import GROUP
from fedbandit_envs.shards.packing import Border
from fedbandit_envs.validation import whole_number


def borders(num_agents: int, shards: int) -> list[Border]:
    """The agents of each shard, as the number of its first agent and the number after that of its last.

    Random numbers are drawn for groups of agents. Where there are at least as many groups as shards, no group is cut.

    >>> borders(7, 3), borders(3 * 4096, 2)
    ([(0, 2), (2, 4), (4, 7)], [(0, 4096), (4096, 12288)])
    """
    whole_number("shards", shards, at_least=1)
    if shards > num_agents:
        raise ValueError(f"shards: expected at most {num_agents}, one for each agent, got {shards}")
    groups = -(-num_agents // GROUP)
    size, parts = (GROUP, groups) if groups >= shards else (1, num_agents)
    ends = [min(number * parts // shards * size, num_agents) for number in range(shards + 1)]
    return list(itertools.pairwise(ends))


class ShardBandit(PlannedBandit):
    """The bandit of one shard's agents: their rewards are those that they get in a run with all agents.

    Args:
        problem: the problem family of all agents.
        border: the first agent, and the one after the last.
        max_cycles: the horizon T.
        observe: what agents are shown, as `EpisodicBandit` takes it.
        reveal: what is revealed after a step, as `EpisodicBandit` takes it.
    """

    def __init__(self, problem: InstanceGenerator, border: Border, max_cycles: int, observe: str, reveal: str):
        super().__init__(problem, rows=np.arange(*border), max_cycles=max_cycles, observe=observe, reveal=reveal)
        self._border = border

    def _restart(self, seed: int | None) -> None:
        self.episode_seed = self._seeds.next(seed)
        whole = segments = None
        problem = self.problem
        if changes(problem):  # contexts that change are made from the instance of all agents
            whole = draw_instance(self.problem, self.episode_seed)
            segments = Segments(problem, whole, self.episode_seed, self._rows, self.max_cycles)
        own = draw_rows(self.problem, self.episode_seed, *self._border, whole)
        reveal = self.reveal == "after"
        self._episode = Episode(own, self.episode_seed, self._shape.num_agents, self._rows, segments, reveal)
        self.over = False


def merged_constants(parts: Sequence[Constants], num_agents: int) -> Constants:
    """The public constants of all agents, from those that the shards find for their own.

    >>> own = Constants(2, 3, 2, 100, ell=0.5, L=1.0, noise_std=1.0, context="fixed", shortest=0.4, longest=1.1)
    >>> other = Constants(1, 3, 2, 100, ell=0.6, L=1.2, noise_std=1.0, context="fixed", shortest=0.6, longest=1.2)
    >>> found = merged_constants([own, other], 3)
    >>> found.num_agents, found.ell, found.L, found.shortest, found.longest
    (3, 0.5, 1.2, 0.4, 1.2)
    """
    shortest = [part.shortest for part in parts if part.shortest is not None]
    longest = [part.longest for part in parts if part.longest is not None]
    return replace(
        parts[0],
        num_agents=num_agents,
        ell=min(part.ell for part in parts),
        L=max(part.L for part in parts),
        shortest=min(shortest) if shortest else None,
        longest=max(longest) if longest else None,
    )


class GapTables(Mapping[str, FloatArray]):
    """What one pull of each arm costs each agent, (M, K), by the kind of regret; a table is made when it is asked for.

    Tables are drawn again from the seed, so no shard has to send its truth. Kinds whose rows depend on their
    agent alone are drawn shard by shard, others from the whole instance.

    Args:
        problem: the problem family.
        seed: the seed of the episode.
        shards: the agents of each shard.

    >>> from fedbandit_envs.problems.synthetic import Synthetic
    >>> tables = GapTables(Synthetic(num_agents=5), seed=0, shards=borders(5, 2))
    >>> bool((tables["regret"] == draw_instance(Synthetic(num_agents=5), 0).gaps("regret")).all())
    True
    """

    def __init__(self, problem: InstanceGenerator, seed: int, shards: Sequence[Border]):
        self._problem, self._seed, self._shards = problem, seed, shards
        self._kinds = dict(REGRETS)
        self._found: dict[str, FloatArray] = {}

    def __getitem__(self, kind: str) -> FloatArray:
        if kind not in self._found:
            regret = self._kinds[kind]
            if regret.by_agent and getattr(type(self._problem), "draws_by_rows", False):
                parts = [draw_rows(self._problem, self._seed, *border).gaps(kind) for border in self._shards]
                self._found[kind] = np.concatenate(parts)
            else:
                self._found[kind] = draw_instance(self._problem, self._seed).gaps(kind)
        return self._found[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)
