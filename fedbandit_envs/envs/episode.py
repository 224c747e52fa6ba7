"""An episode of one instance in arrays, the core of every environment: stepped by arrays or by whole plans."""

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.rewards import RewardLaw
from fedbandit_envs.envs.step_noise import StepNoise, UpcomingSteps
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback, Plan, places
from fedbandit_envs.seeding import Randomness, Stream


class Episode:
    """The rewards of one episode for a block of n agents. Equal seeds and equal calls give equal rewards.

    Args:
        instance: the problem of the block's agents.
        seed: the seed of the episode.
        num_agents: the number of agents of the whole problem, M.
        rows: (n,) the numbers of the block's agents among all M; None: the block is all of them, in order.

    >>> from fedbandit_envs.problems.synthetic import Synthetic
    >>> rng = np.random.default_rng(0)
    >>> instance = Synthetic(num_agents=3, num_arms=2, noise_std=0.0).instance(rng, rng)
    >>> episode = Episode(instance, seed=0, num_agents=3)
    >>> bool((episode.step(np.array([0, 1, 0])) == instance.means[[0, 1, 2], [0, 1, 0]]).all())
    True
    >>> episode.steps
    1
    """

    def __init__(self, instance: BanditInstance, seed: int, num_agents: int, rows: IntArray | None = None):
        self.instance = instance
        self.steps = 0
        self.plans = 0
        self._law: RewardLaw = instance.reward_law()

        def stream(kind: Stream) -> Randomness:
            return Randomness(seed, kind, num_agents, rows)

        self._plan_randomness = stream(Stream.PLANS)
        self._step_noise = StepNoise(self._law, stream(Stream.STEPS))
        self._short_plan_noise = StepNoise(self._law, stream(Stream.SHORT_PLANS))

    def step(self, arms: IntArray) -> FloatArray:
        """The rewards (n,) of pulling `arms` (n,) once."""
        self.steps += 1
        return self._law.single(arms, *self._step_noise.at(self.steps - 1))

    def upcoming(self, most: int) -> UpcomingSteps:
        """The random numbers of the next plans of one step: `most` plans or fewer.

        Nothing is counted: the caller plays some of these plans, and then says with `skip` how many.
        """
        return self._short_plan_noise.upcoming(self.plans, most)

    def skip(self, steps: int) -> None:
        """Count `steps` plans of one step, which were played with the numbers of `upcoming`."""
        self.steps += steps
        self.plans += steps

    def pull(self, plan: CheckedPlan) -> Feedback:
        """Carry out a whole plan at once: the same in distribution as stepping through it."""
        if plan.length == 1:
            return self._pull_once(plan)
        counts = np.empty((len(plan.arm), plan.explore.shape[1] + 1))
        counts[:, :-1], counts[:, -1] = plan.explore, plan.length - plan.exploration
        sums = self._law.sums(plan.arm, counts, self._plan_randomness.draws(self.plans))
        self.steps += plan.length
        self.plans += 1
        return Feedback.of(plan, sums[:, :-1], sums[:, -1])

    def _pull_once(self, plan: CheckedPlan) -> Feedback:
        """Carry out a plan of one step, in which an agent either explores or plays its arm."""
        numbers = self._short_plan_noise.at(self.plans)
        self.steps += 1
        self.plans += 1
        explored_sums = np.zeros(plan.explore.shape)
        if not plan.explores:
            return Feedback.of(plan, explored_sums, self._law.single(plan.arm, *numbers))
        exploring = plan.explore.any(axis=1)
        arms = np.where(exploring, plan.explore.argmax(axis=1), plan.arm)
        rewards = self._law.single(arms, *numbers)
        explored_sums[plan.explore > 0] = rewards[exploring]
        return Feedback.of(plan, explored_sums, np.where(exploring, 0.0, rewards))


class Tally:
    """What each of n agents has pulled in an episode, and what it was paid.

    >>> tally = Tally(num_agents=2, num_arms=3)
    >>> tally.add_step(np.array([0, 2]), np.array([0.5, 1.5]))
    >>> tally.pulls
    array([[1, 0, 0],
           [0, 0, 1]])
    """

    def __init__(self, num_agents: int, num_arms: int):
        self.steps = 0  #: the number of steps that were counted
        self.pulls: IntArray = np.zeros((num_agents, num_arms), dtype=np.int64)  #: (n, K) pulls of each arm
        self.sums: FloatArray = np.zeros((num_agents, num_arms))  #: (n, K) sums of the rewards of these pulls

    def add_step(self, arms: IntArray, rewards: FloatArray) -> None:
        """Count one pull per agent: of `arms` (n,), for `rewards` (n,)."""
        played = places(arms, self.pulls.shape[1])
        self.pulls.reshape(-1)[played] += 1
        self.sums.reshape(-1)[played] += rewards
        self.steps += 1

    def add_plan(self, plan: Plan, feedback: Feedback) -> None:
        """Count a whole plan by its feedback."""
        self.pulls += feedback.pulls()
        self.sums += feedback.sums()
        self.steps += plan.length


def episode_regret(instance: BanditInstance, pulls: IntArray) -> dict[str, FloatArray]:
    """The pseudo-regret (n,) of each agent after `pulls` (n, K), by the kind of regret.

    >>> from fedbandit_envs.problems.linear import Linear
    >>> rng = np.random.default_rng(0)
    >>> instance = Linear(theta=np.eye(2), features=[[[1.0, 0.0], [0.0, 0.6]]]).instance(rng, rng)
    >>> episode_regret(instance, np.array([[7, 5]]))["regret"]
    array([2.])
    """
    return {kind: np.einsum("mk,mk->m", pulls, instance.gaps(kind)) for kind in REGRETS}
