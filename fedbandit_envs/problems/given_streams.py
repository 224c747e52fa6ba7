"""Streams of the user's own: contexts of each segment from arrays, from a list of distributions or from a function."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.finite import PointMass
from fedbandit_envs.seeding import Stream, generator
from fedbandit_envs.validation import real_array, real_numbers


@dataclass(frozen=True, eq=False)
class GivenStream:
    """The distributions of the segments, one by one.

    >>> stream = GivenStream.of_features(np.ones((5, 2, 3, 4)), (3, 4))
    >>> stream.count, stream.at(4).num_agents
    (5, 2)
    """

    at: Callable[[int], ContextDistribution]  #: mu of all agents in the segment with this number
    count: int | None  #: how many segments there are; None: any number

    @classmethod
    def of_features(cls, features: Any, shape: tuple[int, ...]) -> "GivenStream":
        """Known features: an array (segments, M, K, d), or a function of the segment that returns (M, K, d)."""
        if callable(features):

            def law(number: int) -> ContextDistribution:
                table = real_array(f"features({number})", features(number), ("agents", *shape))
                return PointMass(table.reshape(len(table), -1))

            return cls(law, None)
        array = real_numbers("features", features, "of shape (segments, agents, arms, dim)")
        if array.ndim != 4 or array.shape[2:] != shape or not array.size:
            expected = ", ".join(map(str, shape))
            raise ValueError(
                f"features: expected shape (segments, agents, {expected}) for contexts that change, got {array.shape}"
            )
        _check_finite("features", array)
        return cls(lambda number: PointMass(array[number].reshape(array.shape[1], -1)), len(array))

    @classmethod
    def of_distributions(cls, contexts: Any) -> "GivenStream":
        """Hidden contexts: a list of distributions, one per segment, or a function that returns them."""
        if callable(contexts):

            def law(number: int) -> ContextDistribution:
                try:
                    made = contexts(number)
                except ValueError as error:  # the function may make a distribution of numbers that are none
                    raise ValueError(f"contexts({number}): {error}") from error
                return _checked_distribution(f"contexts({number})", made)

            return cls(law, None)
        if not isinstance(contexts, Sequence) or not len(contexts):
            raise ValueError(
                "contexts: expected a list of distributions, one per segment, or a function of the segment's number, "
                f"where contexts change, got {contexts!r:.80}"
            )
        listed = [_checked_distribution(f"contexts[{number}]", one) for number, one in enumerate(contexts)]
        return cls(listed.__getitem__, len(listed))


@dataclass(frozen=True, eq=False)
class GivenContexts:
    """The stream of one episode: mu is given, and the hidden contexts too or drawn from it."""

    given: GivenStream  #: mu of each segment
    segments: int  #: how many segments the episode has
    seed: int  #: the seed of the episode
    true_contexts: FloatArray | None  #: (segments, M, n) the hidden contexts; None: drawn

    def block(self, number: int, size: int) -> tuple[ContextDistribution, FloatArray]:
        """mu and the hidden contexts of `size` segments; after the last segment it comes again, to fill the block."""
        numbers = [min(number * size + place, self.segments - 1) for place in range(size)]
        distribution = stacked([self.given.at(one) for one in numbers], first=numbers[0])
        if self.true_contexts is None:
            return distribution, distribution.sample(generator(self.seed, Stream.SEGMENT_CONTEXTS, number))
        return distribution, self.true_contexts[numbers].reshape(-1, self.true_contexts.shape[-1])


def stacked(parts: Sequence[ContextDistribution], first: int = 0) -> ContextDistribution:
    """The rows of several distributions of one class as one, one after the other.

    Args:
        parts: the distributions, all with arrays of the same shapes.
        first: the number of the first segment, for an error.

    >>> stacked([PointMass([[1.0]]), PointMass([[2.0]])]).points
    array([[1.],
           [2.]])
    """
    encoded = [part.encode() for part in parts]
    shapes = [{name: rows.shape for name, rows in one.items()} for one in encoded]
    for place, (part, shape) in enumerate(zip(parts, shapes, strict=True)):
        if type(part) is not type(parts[0]) or shape != shapes[0]:
            raise ValueError(
                f"contexts: expected a {type(parts[0]).__name__} with arrays {shapes[0]} in each segment, got a "
                f"{type(part).__name__} with {shape} in segment {first + place}"
            )
    return type(parts[0]).stacked(parts)


def _checked_distribution(name: str, value: object) -> ContextDistribution:
    if not isinstance(value, ContextDistribution):
        raise ValueError(f"{name}: expected a distribution such as a Gaussian or a Discrete, got {value!r:.80}")
    return value


def checked_contexts(value: Any, shape: tuple[int | str, ...]) -> FloatArray:
    """The hidden contexts (segments, M, n) of a stream."""
    array = real_numbers("true_contexts", value, "of shape (segments, agents, context)")
    _check_finite("true_contexts", array)
    return real_array("true_contexts", array, shape)


def _check_finite(name: str, array: FloatArray) -> None:
    """Refuse NaN and infinity, and name the segment."""
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = tuple(bad[0].tolist())
        raise ValueError(
            f"{name}: expected finite numbers, got {array[where]} in segment {where[0]} (a step, if contexts are "
            f"streaming), at index {where}"
        )
