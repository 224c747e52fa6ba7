"""The array core of every environment: an episode of one instance, stepped by arrays or by whole plans."""

from typing import NamedTuple

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.rewards import RewardLaw
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback, Plan, places
from fedbandit_envs.seeding import RowDraws, Stream

_STEPS_PER_DRAW = 256  # steps whose random numbers are drawn in one call
_NUMBERS_PER_DRAW = 2**18  # never more than this, to bound memory


class UpcomingSteps(NamedTuple):
    """The random numbers of the next steps, and the law that makes rewards of them."""

    law: RewardLaw
    noise: FloatArray  #: (steps, n, ...)
    uniforms: FloatArray  #: (steps, n)


class Episode:
    """Rewards of one episode for a block of agents. Two runs with the same seed and the same calls are identical."""

    def __init__(self, instance: BanditInstance, seed: int, num_agents: int, rows: IntArray | None = None):
        """`instance` holds the block's agents, `rows` their numbers among all `num_agents`; None: all of them."""
        self.instance = instance
        self.steps = 0
        self.plans = 0
        self._seed, self._num_agents, self._rows = seed, num_agents, rows
        self._law: RewardLaw = instance.reward_law()
        numbers = num_agents * (1 + self._law.normals_per_pull)  # of one pull, whatever the block
        self._ahead = max(1, min(_STEPS_PER_DRAW, _NUMBERS_PER_DRAW // numbers))
        self._drawn = (Stream.STEPS, -1)  # the stream and number of the block of single pulls at hand:
        self._noise: FloatArray = np.empty(0)  # (block, n, ...)
        self._uniforms: FloatArray = np.empty(0)  # (block, n)

    def step(self, arms: IntArray) -> FloatArray:
        """(n,) rewards of pulling `arms` (n,) once."""
        self.steps += 1
        return self._single(arms, Stream.STEPS, self.steps - 1)

    def _single(self, arms: IntArray, stream: Stream, number: int) -> FloatArray:
        """(n,) rewards of one pull, by its number in a stream of single pulls."""
        place = self._at_hand(stream, number)
        return self._law.single(arms, self._noise[place], self._uniforms[place])

    def _at_hand(self, stream: Stream, number: int) -> int:
        """The place of pull `number` in the buffered random numbers; refills the buffer when the pull is not in it."""
        block, place = divmod(number, self._ahead)
        if (stream, block) != self._drawn:
            draws, law = self._draws(stream, block), self._law
            normals = draws.normals(self._ahead, law.normals_per_pull)
            self._noise = np.ascontiguousarray(law.noise(normals.swapaxes(0, 1)))
            uniforms = draws.uniforms(self._ahead) if law.uniforms_per_pull else np.empty((0, self._ahead))
            self._uniforms = np.ascontiguousarray(uniforms.T)
            self._drawn = (stream, block)
        return place

    def upcoming(self, most: int) -> "UpcomingSteps":
        """The rewards of the next plans of one step, `most` of them or fewer; `skip` says how many were played."""
        place = self._at_hand(Stream.SHORT_PLANS, self.plans)
        return UpcomingSteps(self._law, self._noise[place : place + most], self._uniforms[place : place + most])

    def skip(self, steps: int) -> None:
        """Count `steps` plans of one step, whose rewards `upcoming` gave."""
        self.steps += steps
        self.plans += steps

    def pull(self, plan: CheckedPlan) -> Feedback:
        """The whole plan at once: the same in distribution as stepping through it."""
        if plan.length == 1:
            return self._pull_once(plan)
        counts = np.empty((len(plan.arm), plan.explore.shape[1] + 1))
        counts[:, :-1], counts[:, -1] = plan.explore, plan.length - plan.exploration
        sums = self._law.sums(plan.arm, counts, self._draws(Stream.PLANS, self.plans))
        self.steps += plan.length
        self.plans += 1
        return Feedback.of(plan, sums[:, :-1], sums[:, -1])

    def _pull_once(self, plan: CheckedPlan) -> Feedback:
        """A plan of one step: an agent either explores or plays its arm."""
        number = self.plans
        self.steps += 1
        self.plans += 1
        explored_sums = np.zeros(plan.explore.shape)
        if not plan.explores:
            rewards = self._single(plan.arm, Stream.SHORT_PLANS, number)
            return Feedback.of(plan, explored_sums, rewards)
        exploring = plan.explore.any(axis=1)
        arms = np.where(exploring, plan.explore.argmax(axis=1), plan.arm)
        rewards = self._single(arms, Stream.SHORT_PLANS, number)
        explored_sums[plan.explore > 0] = rewards[exploring]
        return Feedback.of(plan, explored_sums, np.where(exploring, 0.0, rewards))

    def _draws(self, *key: int) -> RowDraws:
        return RowDraws(self._seed, key, self._num_agents, self._rows)


class Tally:
    """What each of n agents has pulled in an episode, and what it was paid."""

    def __init__(self, num_agents: int, num_arms: int):
        self.steps = 0
        self.pulls: IntArray = np.zeros((num_agents, num_arms), dtype=np.int64)  # (n, K)
        self.sums: FloatArray = np.zeros((num_agents, num_arms))  # (n, K) of the rewards

    def add_step(self, arms: IntArray, rewards: FloatArray) -> None:
        """Count one pull per agent."""
        played = places(arms, self.pulls.shape[1])
        self.pulls.reshape(-1)[played] += 1
        self.sums.reshape(-1)[played] += rewards
        self.steps += 1

    def add_plan(self, plan: Plan, feedback: Feedback) -> None:
        """Count a whole plan."""
        self.pulls += feedback.pulls()
        self.sums += feedback.sums()
        self.steps += plan.length


def episode_regret(instance: BanditInstance, pulls: IntArray) -> dict[str, FloatArray]:
    """(n,) pseudo-regret of each agent after `pulls` (n, K), by its kind."""
    return {kind: np.einsum("mk,mk->m", pulls, instance.gaps(kind)) for kind in REGRETS}
