"""Where random numbers come from: independent streams, the same however the agents are split over processes.

Each stream is `SeedSequence(seed, spawn_key=(stream, number))`. For a block of agents the numbers of *all* agents are
drawn and the block keeps its rows, so no result depends on who else is in the block. No generator outlives a plan, so
nothing of it needs to be saved.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np

from fedbandit_envs.validation import FloatArray, IntArray, whole_number

_LARGEST_WORD = 2**32 - 1


class Stream(IntEnum):
    """What the random numbers are for."""

    INSTANCE = 0
    CONTEXTS = 1
    PLANS = 2  # the rewards of a whole plan
    STEPS = 3  # the rewards of single steps
    POLICY = 4
    EPISODE = 5
    FAULTS = 6
    SHORT_PLANS = 7  # the rewards of plans of one step


def generator(seed: int, *key: int) -> np.random.Generator:
    """The generator of one stream, `key` being the stream and a running number."""
    if key and max(key) <= _LARGEST_WORD:
        # What SeedSequence(seed, spawn_key=key) makes of its numbers, which takes it as long as all the rest.
        sequence = np.random.SeedSequence(np.array(_words(seed) + key, dtype=np.uint32))
    else:
        sequence = np.random.SeedSequence(seed, spawn_key=key)
    return np.random.Generator(np.random.PCG64(sequence))


@lru_cache(maxsize=8)
def _words(seed: int) -> tuple[int, ...]:
    """The seed in words of 32 bits, the lowest first, and four at least, as SeedSequence has it before a key."""
    count = max(4, -(-seed.bit_length() // 32))
    return tuple(seed >> 32 * place & _LARGEST_WORD for place in range(count))


def derived_seed(seed: int, *key: int) -> int:
    """A seed that depends on `seed` and `key`, and from which `seed` can't be found."""
    words = np.random.SeedSequence(seed, spawn_key=key).generate_state(4, np.uint32)
    return int(sum(int(word) << (32 * place) for place, word in enumerate(words)))


def fresh_seed() -> int:
    """A seed from the operating system."""
    return int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]


def checked_seed(seed: int | None) -> int | None:
    """`seed` if it is one."""
    return None if seed is None else whole_number("seed", seed, at_least=0)


class RowDraws:
    """Random numbers of one plan for a block of agents, one row each."""

    def __init__(self, rng: np.random.Generator, num_agents: int, rows: IntArray | None):
        self._rng, self._num_agents, self._rows = rng, num_agents, rows

    def normals(self, *shape: int) -> FloatArray:
        """Standard normals, (n, *shape)."""
        return self._keep(self._rng.standard_normal((self._num_agents, *shape)))

    def uniforms(self, *shape: int) -> FloatArray:
        """Uniforms in [0, 1), (n, *shape)."""
        return self._keep(self._rng.random((self._num_agents, *shape)))

    def _keep(self, numbers: FloatArray) -> FloatArray:
        return numbers if self._rows is None else numbers[self._rows]


@dataclass(frozen=True, eq=False)
class Randomness:
    """The source of a block's random numbers: `draws(j)` for its j-th plan."""

    seed: int
    stream: Stream
    num_agents: int  # of the whole problem, M
    rows: IntArray | None = None  # (n,) the block's agents; None: all, in order

    def draws(self, number: int) -> RowDraws:
        """The numbers of plan `number`."""
        return RowDraws(generator(self.seed, self.stream, number), self.num_agents, self.rows)
