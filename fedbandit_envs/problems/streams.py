"""Where contexts that change within an episode come from: what a problem offers, and independent draws.

`Segments` reads them. With segments of one step (`context="streaming"`) a stream gives another mu_i at each step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeGuard

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.seeding import Stream, generator
from fedbandit_envs.validation import one_of, whole_number

CONTEXTS = ("fixed", "resampled", "streaming")  #: how contexts can behave within an episode


class ContextStream(Protocol):
    """The contexts of one episode, drawn block by block.

    Blocks are asked for in any order, and a block must not depend on which were asked for before.
    """

    def block(self, number: int, size: int) -> tuple[ContextDistribution, FloatArray]:
        """mu and the hidden contexts of the segments from number * size on, `size` of them.

        Both have size * M rows, segment after segment. `size` is the same at each call.
        """


class ChangingGenerator(Protocol):
    """A problem family whose contexts can change within an episode.

    Besides `instance`, which draws theta and all that stays, it has these two.
    """

    @property
    def segment_steps(self) -> int | None:
        """The length of a segment in steps; None: contexts never change."""

    def context_stream(self, instance: BanditInstance, seed: int, segments: int) -> ContextStream:
        """The contexts of one episode.

        Args:
            instance: what stays for the whole episode: theta, the feature map, and the mu that `instance` drew.
            seed: the seed of the episode.
            segments: how many segments the episode has; blocks may reach beyond the last one.
        """


def changes(problem: object) -> TypeGuard[ChangingGenerator]:
    """Whether the contexts of the problem change within an episode.

    >>> from fedbandit_envs.problems.synthetic import Synthetic
    >>> changes(Synthetic()), changes(Synthetic(change_every=100))
    (False, True)
    """
    return getattr(problem, "segment_steps", None) is not None


def segment_length(context: str, change_every: int | None) -> int | None:
    """The length of a segment for a problem with these arguments, None if nothing changes; refuses wrong ones.

    >>> segment_length("streaming", None), segment_length("fixed", 100), segment_length("fixed", None)
    (1, 100, None)
    """
    one_of("context", context, CONTEXTS)
    if change_every is not None:
        whole_number("change_every", change_every, at_least=1)
        if context == "resampled":
            raise ValueError(
                f"change_every: expected none with context='resampled', got {change_every}; use context='fixed', whose "
                "contexts then change every so many steps"
            )
    if context != "streaming":
        return change_every
    if change_every not in (None, 1):
        raise ValueError(
            f"change_every: expected none with context='streaming', whose contexts are new at each step, got "
            f"{change_every}; use context='fixed' for longer segments"
        )
    return 1


def within_segment(context: str) -> str:
    """How contexts behave within a segment: "fixed" or "resampled"."""
    return "fixed" if context == "streaming" else context


@dataclass(frozen=True, eq=False)
class DrawnAnew:
    """A stream whose segments are independent: each block has generators of its own."""

    seed: int  #: the seed of the episode
    #: draws mu and the contexts of a number of segments, from two generators: for mu and for what is hidden
    draw: Callable[[int, np.random.Generator, np.random.Generator], tuple[ContextDistribution, FloatArray | None]]

    def block(self, number: int, size: int) -> tuple[ContextDistribution, FloatArray]:
        """mu and the hidden contexts of `size` segments."""
        distribution, contexts = self.draw(
            size, generator(self.seed, Stream.SEGMENTS, number), generator(self.seed, Stream.SEGMENT_CONTEXTS, number)
        )
        assert contexts is not None  # contexts that change are fixed within a segment
        return distribution, contexts
