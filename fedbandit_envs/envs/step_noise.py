"""The random numbers of single pulls, drawn for many steps in one call."""

from typing import NamedTuple

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.rewards import RewardLaw
from fedbandit_envs.seeding import Randomness

_STEPS_PER_DRAW = 256  # steps whose random numbers are drawn in one call
_NUMBERS_PER_DRAW = 2**18  # a call never draws more numbers than this, to bound the memory


class UpcomingSteps(NamedTuple):
    """The random numbers of the next steps, and the law that makes rewards of them."""

    law: RewardLaw  #: the law of the rewards, whose `single` takes one step's numbers
    noise: FloatArray  #: (steps, n, ...) what `law.noise` made of the normals
    uniforms: FloatArray  #: (steps, n), or (steps, 0) if the law uses no uniforms


class StepNoise:
    """The random numbers of the pulls of one stream, read by the number of the pull.

    Drawing step by step would be slow, so a block of steps is drawn in one call and kept. The numbers of a pull depend
    on its number alone, and neither on the order in which pulls are read nor on the other agents of the block.

    Args:
        law: the law of the rewards of n agents.
        randomness: the stream from which the pulls of these agents draw.

    >>> from fedbandit_envs.contexts.rewards import GaussianRewards
    >>> from fedbandit_envs.seeding import Stream
    >>> law = GaussianRewards(means=np.zeros((2, 3)), stds=1.0)
    >>> numbers = StepNoise(law, Randomness(seed=0, stream=Stream.STEPS, num_agents=2))
    >>> noise, uniforms = numbers.at(5)
    >>> noise.shape, uniforms.shape
    ((2,), (0,))
    >>> law, many, _ = numbers.upcoming(5, most=3)
    >>> many.shape, bool((many[0] == noise).all())
    ((3, 2), True)
    """

    def __init__(self, law: RewardLaw, randomness: Randomness):
        self._law, self._randomness = law, randomness
        numbers_per_step = randomness.num_agents * (1 + law.normals_per_pull)  # the same for every block of agents
        #: how many steps are drawn in one call
        self.steps = max(1, min(_STEPS_PER_DRAW, _NUMBERS_PER_DRAW // numbers_per_step))
        self.release()

    def release(self) -> None:
        """Free the memory of the block at hand. If it is needed again, it is drawn anew."""
        self._block = -1  # the number of the block at hand; -1: there is none
        self._noise: FloatArray = np.empty(0)  # (steps, n, ...)
        self._uniforms: FloatArray = np.empty(0)  # (steps, n)

    def at(self, number: int) -> tuple[FloatArray, FloatArray]:
        """The noise (n, ...) and the uniforms (n,) of pull `number`, as `law.single` takes them."""
        place = self._place(number)
        return self._noise[place], self._uniforms[place]

    def upcoming(self, number: int, most: int) -> UpcomingSteps:
        """The numbers of pull `number` and of those after it: `most` pulls, or fewer at the end of a block."""
        place = self._place(number)
        return UpcomingSteps(self._law, self._noise[place : place + most], self._uniforms[place : place + most])

    def _place(self, number: int) -> int:
        """The place of pull `number` in the block at hand; draws its block if another one is at hand."""
        block, place = divmod(number, self.steps)
        if block != self._block:
            self._draw(block)
        return place

    def _draw(self, block: int) -> None:
        """Draw the numbers of all steps of a block."""
        law, draws = self._law, self._randomness.draws(block)
        self.release()  # the last block is not needed while the next one is drawn
        noise = law.noise(draws.normals(self.steps, law.normals_per_pull).swapaxes(0, 1))
        self._noise = np.ascontiguousarray(noise)
        uniforms = draws.uniforms(self.steps) if law.uniforms_per_pull else np.empty((0, self.steps))
        self._uniforms = np.ascontiguousarray(uniforms.T)
        self._block = block
