"""Where random numbers come from: independent streams, the same however the agents are split over processes.

Each stream is `SeedSequence(seed, spawn_key=(stream, number))`. Agents are numbered in groups of 4096, and each group
after the first has a stream of its own, `spawn_key=(stream, number, group)`. A block of agents draws the numbers of the
whole groups to which its agents belong, and keeps its own rows. So no result depends on who else is in the block, and a
process that holds some groups of a large problem draws for these groups alone. No generator lives longer than a plan,
so the state of a generator never needs to be saved.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.validation import whole_number

Size = int | tuple[int, ...]
GROUP = 4096  # how many agents get their random numbers from one generator


class Stream(IntEnum):
    """What random numbers are for; each purpose has streams of its own, so that none changes another's numbers."""

    INSTANCE = 0  #: the problem of an episode
    CONTEXTS = 1  #: what is hidden about the contexts
    PLANS = 2  #: the rewards of a whole plan
    STEPS = 3  #: the rewards of single steps
    POLICY = 4  #: the random numbers of a policy's agents
    EPISODE = 5  #: the seeds of the episodes after the first
    FAULTS = 6  #: which reports are lost
    SHORT_PLANS = 7  #: the rewards of plans of one step
    SERVER = 8  #: the random numbers of a policy's server
    ATTACKERS = 9  #: who reports falsely
    SEGMENTS = 10  #: what is shown of contexts that change
    SEGMENT_CONTEXTS = 11  #: what is hidden about contexts that change
    NETWORK = 12  #: random networks
    DELIVERIES = 13  #: which edges and neighbours a message takes, where that is random


def generator(seed: int, *key: int) -> np.random.Generator:
    """The generator of one stream; `key` is the stream and a running number.

    >>> generator(0, Stream.PLANS, 3).random() == generator(0, Stream.PLANS, 3).random()
    True
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def derived_seed(seed: int, *key: int) -> int:
    """A seed of 128 bits that depends on `seed` and `key`, and from which `seed` can't be found.

    >>> derived_seed(0, Stream.POLICY) == derived_seed(0, Stream.POLICY), derived_seed(0, 1) == derived_seed(1, 1)
    (True, False)
    """
    words = np.random.SeedSequence(seed, spawn_key=key).generate_state(4, np.uint32)
    return int(sum(int(word) << (32 * place) for place, word in enumerate(words)))


def fresh_seed() -> int:
    """A seed from the operating system."""
    return int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]


def checked_seed(seed: int | None) -> int | None:
    """The seed itself; refuses what is neither None nor a whole number of at least 0."""
    return None if seed is None else whole_number("seed", seed, at_least=0)


class RowDraws:
    """Random numbers of one plan for a block of n agents, one row each.

    Args:
        seed: the seed of the stream.
        key: the stream and a running number, as `generator` takes them.
        num_agents: the number of agents of the whole problem, M.
        rows: (n,) the numbers of the block's agents; None: all M, in order.

    >>> whole = RowDraws(0, (Stream.PLANS, 0), num_agents=5).normals(2)
    >>> block = RowDraws(0, (Stream.PLANS, 0), num_agents=5, rows=np.array([3])).normals(2)
    >>> whole.shape, bool((block == whole[[3]]).all())
    ((5, 2), True)
    """

    def __init__(self, seed: int, key: tuple[int, ...], num_agents: int, rows: IntArray | None = None):
        self._num_agents, self._rows = num_agents, rows
        if num_agents <= GROUP:
            groups = [0]
        elif rows is None:
            groups = list(range(-(-num_agents // GROUP)))
        else:
            groups = np.unique(rows // GROUP).tolist()
        self._generators = {group: generator(seed, *key, *([group] if group else [])) for group in groups}

    def normals(self, *shape: int) -> FloatArray:
        """The next standard normals, (n, *shape)."""
        return self._drawn(np.random.Generator.standard_normal, shape)

    def uniforms(self, *shape: int) -> FloatArray:
        """The next uniforms in [0, 1), (n, *shape)."""
        return self._drawn(np.random.Generator.random, shape)

    def _drawn(self, draw: Callable[..., FloatArray], shape: tuple[int, ...]) -> FloatArray:
        if self._num_agents <= GROUP:
            numbers = draw(self._generators[0], (self._num_agents, *shape))
            return numbers if self._rows is None else numbers[self._rows]
        own = np.empty((self._num_agents if self._rows is None else len(self._rows), *shape))
        for group, rng in self._generators.items():
            first = group * GROUP
            if self._rows is None:
                draw(rng, out=own[first : first + GROUP])
            else:
                numbers = draw(rng, (min(GROUP, self._num_agents - first), *shape))
                mine = self._rows // GROUP == group
                own[mine] = numbers[self._rows[mine] - first]
        return own


class RowsOfDraws:
    """A generator that draws rows for all M agents of a problem, and keeps those of some agents in a row.

    What a problem draws for n agents comes as arrays whose first axis is the agents. Made for n agents and given one of
    these, it draws the rows that these agents have among all M: the same numbers, and memory for n. The other rows are
    drawn too, a group at a time, and thrown away, because one generator draws all rows of an instance.

    Args:
        rng: draws the numbers of all agents.
        num_agents: the number of agents of the whole problem, M.
        first: the number of the first agent.
        last: the number after that of the last agent.

    >>> whole = np.random.default_rng(0).uniform(0.5, 1.0, size=(5, 2))
    >>> rows = RowsOfDraws(np.random.default_rng(0), num_agents=5, first=1, last=3).uniform(0.5, 1.0, size=(2, 2))
    >>> bool((rows == whole[1:3]).all())
    True
    """

    def __init__(self, rng: np.random.Generator, num_agents: int, first: int, last: int):
        self._rng, self._num_agents, self._first, self._last = rng, num_agents, first, last

    def integers(self, high: int, *, size: Size) -> IntArray:
        """Whole numbers below `high`."""
        return self._kept(lambda shape: self._rng.integers(high, size=shape), size)

    def uniform(self, low: float, high: float, *, size: Size) -> FloatArray:
        """Uniforms from `low` to `high`."""
        return self._kept(lambda shape: self._rng.uniform(low, high, size=shape), size)

    def random(self, size: Size) -> FloatArray:
        """Uniforms in [0, 1)."""
        return self._kept(self._rng.random, size)

    def standard_normal(self, size: Size) -> FloatArray:
        """Standard normals."""
        return self._kept(self._rng.standard_normal, size)

    def _kept(self, draw: Callable[[tuple[int, ...]], NDArray[Any]], size: Size) -> NDArray[Any]:
        rows, *rest = (size,) if isinstance(size, int) else size
        if rows != self._last - self._first:
            raise ValueError(f"size: expected {self._last - self._first} rows, one for each agent, got {rows}")
        for start in range(0, self._first, GROUP):
            draw((min(GROUP, self._first - start), *rest))
        own = draw((rows, *rest))
        for start in range(self._last, self._num_agents, GROUP):
            draw((min(GROUP, self._num_agents - start), *rest))
        return own


@dataclass(frozen=True, eq=False)
class Randomness:
    """The source of a block's random numbers: `draws(j)` gives those of its plan or step j.

    >>> randomness = Randomness(seed=0, stream=Stream.POLICY, num_agents=3)
    >>> randomness.draws(7).uniforms().shape
    (3,)
    """

    seed: int  #: the seed of the stream
    stream: Stream  #: what the numbers are for
    num_agents: int  #: the number of agents of the whole problem, M
    rows: IntArray | None = None  #: (n,) the numbers of the block's agents; None: all M, in order

    def draws(self, number: int) -> RowDraws:
        """The random numbers of plan or step `number`."""
        return RowDraws(self.seed, (self.stream, number), self.num_agents, self.rows)


@dataclass(frozen=True, eq=False)
class ServerRandomness:
    """The source of a server's random numbers: `generator(j)` for its j-th answer.

    >>> first = ServerRandomness(seed=0).generator(3).random()
    >>> first == ServerRandomness(seed=0).generator(3).random()
    True
    """

    seed: int

    def generator(self, number: int) -> np.random.Generator:
        """A new generator for answer `number`, the same each time it is asked for."""
        return generator(self.seed, Stream.SERVER, number)
