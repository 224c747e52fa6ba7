"""Contexts that change within an episode: a sequence of segments, each with one mu_i per agent.

Theta stays the same. With segments of one step (`context="streaming"`) agent i is shown mu_{i,t} at step t, and its
hidden context is drawn from it. Segments are drawn in blocks, for all M agents, so memory is bounded by a block, and an
agent meets the same contexts whoever else is played in the process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray, read_only
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.rewards import RewardLaw
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.problems.streams import ChangingGenerator
from fedbandit_envs.protocol.knowledge import Constants

_SEGMENTS_PER_BLOCK = 256  # segments that are drawn in one call
_NUMBERS_PER_BLOCK = 2**19  # a block never has an array of many more numbers than this, to bound the memory


class Segments:
    """The segments of one episode for a block of n agents, read by their number.

    Args:
        problem: a problem whose contexts change.
        whole: the instance of the episode for all M agents; it has theta and all that stays.
        seed: the seed of the episode.
        rows: (n,) the numbers of the block's agents; None: all M, in order.
        steps: the number of steps of the episode.

    >>> from fedbandit_envs.problems.synthetic import Synthetic
    >>> from fedbandit_envs.problems.generator import draw_instance
    >>> problem = Synthetic(num_agents=3, context="streaming")
    >>> segments = Segments(problem, draw_instance(problem, 0), seed=0, rows=None, steps=100)
    >>> segments.at(7).psi.shape
    (3, 10, 3)
    """

    def __init__(self, problem: ChangingGenerator, whole: BanditInstance, seed: int, rows: IntArray | None, steps: int):
        assert problem.segment_steps is not None
        self.length, self.steps = problem.segment_steps, steps
        self._whole, self._rows = whole, rows
        self._stream = problem.context_stream(whole, seed, -(-steps // self.length))
        features = whole.num_agents * whole.num_arms * whole.dim
        numbers = max(1, features, *(rows.size for rows in whole.distribution.encode().values()))
        # The size does not depend on the rows, so that all processes draw the same blocks.
        self._size = max(1, min(_SEGMENTS_PER_BLOCK, _NUMBERS_PER_BLOCK // numbers))
        self._number = -1  # the block at hand; -1: none was drawn yet
        self._block: SegmentBlock | None = None

    def place(self, step: int) -> int:
        """The number of the segment of step `step`; after the last step that of the last."""
        return min(step, self.steps - 1) // self.length

    def valid(self, step: int) -> int:
        """The steps from `step` on for which what is shown holds."""
        return min(self.length - step % self.length, self.steps - step)

    def constants(self, constants: Constants) -> Constants:
        """The public constants of the episode, from those of the instance that has what stays.

        The norms of psi in its first segment guarantee nothing for the others.
        """
        context = "streaming" if self.length == 1 else constants.context
        return replace(constants, context=context, shortest=None, longest=None)

    def at(self, number: int) -> "Segment":
        """The segment with this number."""
        block, place = divmod(number, self._size)
        if self._block is None or block != self._number:
            self._block, self._number = self._drawn(block), block
        return Segment(self._block, place)

    def _drawn(self, number: int) -> "SegmentBlock":
        size, agents = self._size, self._whole.num_agents
        distribution, contexts = self._stream.block(number, size)
        if distribution.num_agents != size * agents or len(contexts) != size * agents:
            raise ValueError(
                f"context_stream: expected {size} segments of {agents} agents, {size * agents} rows, got "
                f"{distribution.num_agents} of mu and {len(contexts)} contexts"
            )
        if self._rows is not None:
            rows = (np.arange(size)[:, None] * agents + self._rows).ravel()
            distribution, contexts = distribution.rows(rows), contexts[rows]
            agents = len(self._rows)
        # All segments of a block as one instance of many agents: it is checked once, and its arrays are made at once.
        whole = self._whole
        try:
            instance = replace(whole, distribution=distribution, contexts=contexts, same_arms=False, population=whole)
        except ValueError as error:
            error.add_note(f"agents are counted on from segment to segment here, from segment {number * size} on")
            raise
        if whole.same_arms and np.ptp(instance.psi.reshape(size, agents, *instance.psi.shape[1:]), axis=1).max() > 1e-9:
            raise ValueError("same_arms: expected one psi for all agents in each segment, got agents that differ")
        return SegmentBlock(instance, agents, self.length == 1)


@dataclass(frozen=True, eq=False)
class SegmentBlock:
    """Several segments in arrays (segments, n, ...)."""

    instance: BanditInstance  #: all segments as one instance of many agents, segment after segment
    num_agents: int  #: n, the agents of one segment
    single_steps: bool  #: whether each segment is one step

    def _split(self, rows: FloatArray) -> FloatArray:
        return rows.reshape(-1, self.num_agents, *rows.shape[1:])

    @cached_property
    def psi(self) -> FloatArray:
        """(segments, n, K, d) the expected features under mu."""
        return read_only(self._split(self.instance.psi))

    @cached_property
    def phi(self) -> FloatArray:
        """(segments, n, K, d) the features of the true contexts."""
        return read_only(self._split(self.instance.phi))

    @cached_property
    def means(self) -> FloatArray:
        """(segments, n, K) the mean rewards for the true contexts."""
        return read_only(self._split(self.instance.means))

    @cached_property
    def gaps(self) -> FloatArray:
        """(kinds, segments, n, K) what one pull of each arm adds to each kind of `summed_regrets`."""
        kinds = []
        for kind in summed_regrets():
            # Nobody can compete with the best arm for a hidden context of a single step.
            own = "distribution_regret" if self.single_steps and kind == "regret" else kind
            kinds.append(self._split(self.instance.gaps(own)))
        return np.stack(kinds)

    @cached_property
    def shown(self) -> Mapping[str, tuple[ContextDistribution, FloatArray]]:
        """What is shown, mu of all segments and psi (segments, n, K, d), by what agents observe."""
        return {
            observe: (self.instance.observed(observe)[0], self._split(self.instance.observed(observe)[1]))
            for observe in ("distribution", "context")
        }

    @cached_property
    def encoded(self) -> Mapping[str, Mapping[str, FloatArray]]:
        """The arrays (segments, n, ...) of what is shown by name, by what agents observe."""
        return {
            observe: {name: self._split(np.ascontiguousarray(rows)) for name, rows in mu.encode().items()}
            for observe, (mu, _) in self.shown.items()
        }


@dataclass(frozen=True, eq=False)
class Segment:
    """One segment: a thin slice of a block."""

    block: SegmentBlock  #: the segments that were drawn together
    place: int  #: its place among them

    @property
    def psi(self) -> FloatArray:
        """(n, K, d) the expected features under mu."""
        return self.block.psi[self.place]

    @property
    def phi(self) -> FloatArray:
        """(n, K, d) the features of the true contexts."""
        return self.block.phi[self.place]

    @property
    def means(self) -> FloatArray:
        """(n, K) the mean rewards for the true contexts."""
        return self.block.means[self.place]

    @property
    def compared_means(self) -> FloatArray:
        """(n, K) the mean rewards whose best arm `regret` compares with: under mu if the segment is one step."""
        if not self.block.single_steps:
            return self.means
        return self.block.instance.distribution_means[self.rows]

    @property
    def gaps(self) -> FloatArray:
        """(kinds, n, K) what one pull of each arm adds to each kind of `summed_regrets`."""
        return self.block.gaps[:, self.place]

    def regret(self, pulls: IntArray) -> FloatArray:
        """(kinds, n) what `pulls` (n, K) add to each kind of `summed_regrets`."""
        return np.einsum("cmk,mk->cm", self.gaps, pulls)

    @property
    def rows(self) -> slice:
        """Where its rows are among those of the block."""
        n = self.block.num_agents
        return slice(self.place * n, (self.place + 1) * n)

    @property
    def contexts(self) -> FloatArray:
        """(n, context) the hidden contexts."""
        contexts = self.block.instance.contexts
        assert contexts is not None
        return contexts[self.rows]

    def observed(self, observe: str) -> tuple[ContextDistribution, FloatArray]:
        """The distribution that agents are shown, and its expected features (n, K, d); see `BanditInstance`."""
        mu, psi = self.block.shown["context" if observe == "context" else "distribution"]
        return mu.rows(self.rows), psi[self.place]

    def encoded(self, observe: str) -> dict[str, FloatArray]:
        """The arrays (n, ...) of what agents are shown, by name."""
        return {name: rows[self.place] for name, rows in self.block.encoded[observe].items()}

    def reward_law(self) -> RewardLaw:
        """The law of the rewards."""
        return self.block.instance.law_of(self.means)

    def instance(self) -> BanditInstance:
        """The segment as an instance of its own, with its truth."""
        whole = self.block.instance
        mu = whole.distribution.rows(self.rows)
        return replace(whole, distribution=mu, contexts=self.contexts)


def summed_regrets() -> list[str]:
    """The kinds of regret that can be summed over segments, in the order of `REGRETS`."""
    return [kind for kind, regret in REGRETS.items() if regret.by_agent]
