"""An episode of one instance in arrays, the core of every environment: stepped by arrays or by whole plans."""

from dataclasses import replace

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.rewards import RewardLaw
from fedbandit_envs.envs.step_noise import StepNoise, UpcomingSteps
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.regrets import all_gaps
from fedbandit_envs.problems.segments import Segment, Segments, summed_regrets
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback, Plan
from fedbandit_envs.protocol.pull_tables import places
from fedbandit_envs.seeding import Randomness, Stream


class Episode:
    """The rewards of one episode for a block of n agents. Equal seeds and equal calls give equal rewards.

    Args:
        instance: the problem of the block's agents.
        seed: the seed of the episode.
        num_agents: the number of agents of the whole problem, M.
        rows: (n,) the numbers of the block's agents among all M; None: the block is all of them, in order.
        segments: the contexts of the block's agents, if they change; `instance` then has what stays. None: they don't.
        reveal: whether the context of a step is revealed once the arm is pulled.

    >>> from fedbandit_envs.problems.synthetic import Synthetic
    >>> rng = np.random.default_rng(0)
    >>> instance = Synthetic(num_agents=3, num_arms=2, noise_std=0.0).instance(rng, rng)
    >>> episode = Episode(instance, seed=0, num_agents=3)
    >>> bool((episode.step(np.array([0, 1, 0])) == instance.means[[0, 1, 2], [0, 1, 0]]).all())
    True
    >>> episode.steps
    1
    """

    def __init__(
        self,
        instance: BanditInstance,
        seed: int,
        num_agents: int,
        rows: IntArray | None = None,
        segments: Segments | None = None,
        reveal: bool = False,
    ):
        self.lasting = instance  #: what stays for the whole episode
        self.segments = segments
        self.steps = 0
        self.plans = 0
        self._reveal = reveal
        self._fixed_law: RewardLaw = instance.reward_law()

        def stream(kind: Stream) -> Randomness:
            return Randomness(seed, kind, num_agents, rows)

        self._plan_randomness = stream(Stream.PLANS)
        self._step_noise = StepNoise(self._fixed_law, stream(Stream.STEPS))
        self._short_plan_noise = StepNoise(self._fixed_law, stream(Stream.SHORT_PLANS))
        if segments is not None and segments.length == 1:
            self._short_plan_noise = self._step_noise  # every plan is one step: stepping gives the same rewards

    @property
    def segment(self) -> Segment | None:
        """The segment of the next step; None: contexts never change."""
        return None if self.segments is None else self.segments.at(self.segments.place(self.steps))

    @property
    def instance(self) -> BanditInstance:
        """The problem with its truth; where contexts change, the one of the next step."""
        segment = self.segment
        return self.lasting if segment is None else segment.instance()

    def observed(self, observe: str) -> tuple[ContextDistribution, FloatArray]:
        """The distribution that agents are shown now, and its expected features (n, K, d); see `BanditInstance`."""
        segment = self.segment
        return self.lasting.observed(observe) if segment is None else segment.observed(observe)

    def view(self, view: View, observe: str) -> View:
        """What the agents are shown now, given any other view of the same agents.

        Args:
            view: the other view; where contexts never change, it is returned as it is.
            observe: what they observe: "distribution", "context" or "truth".
        """
        return view if self.segments is None else self.view_at(self.steps, view, observe)

    def view_at(self, step: int, view: View, observe: str) -> View:
        """The view of step `step`, where contexts change, given any other view of the same agents."""
        assert self.segments is not None
        number = self.segments.place(step)
        segment = self.segments.at(number)
        distribution, psi = segment.observed(observe)
        truth = None if view.truth is None else segment.compared_means
        valid = self.segments.valid(number * self.segments.length)
        return replace(view, distribution=distribution, psi=psi, truth=truth, valid=valid)

    @property
    def valid(self) -> int | None:
        """The number of steps for which what is shown holds; None: to the horizon."""
        return None if self.segments is None else self.segments.valid(self.steps)

    @property
    def _law(self) -> RewardLaw:
        """The law of the rewards of the next step."""
        segment = self.segment
        return self._fixed_law if segment is None else segment.reward_law()

    def revealed(self) -> FloatArray | None:
        """The contexts (n, context) of the last step, if they are revealed."""
        if not self._reveal or self.segments is None:
            return None
        return self.segments.at(self.segments.place(self.steps - 1)).contexts.copy()

    def _revealed_features(self, arms: IntArray) -> FloatArray | None:
        """The features (n, d) of `arms` in the contexts of the next step, if they are revealed."""
        segment = self.segment
        return None if segment is None or not self._reveal else segment.phi[np.arange(len(arms)), arms]

    def step(self, arms: IntArray) -> FloatArray:
        """The rewards (n,) of pulling `arms` (n,) once."""
        rewards = self._law.single(arms, *self._step_noise.at(self.steps))
        self.steps += 1
        return rewards

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
        if plan.length > self._short_plan_noise.steps:  # plans of one step are not expected any more
            self._short_plan_noise.release()
        counts = np.empty((len(plan.arm), plan.explore.shape[1] + 1))
        counts[:, :-1], counts[:, -1] = plan.explore, plan.length - plan.exploration
        sums = self._law.sums(plan.arm, counts, self._plan_randomness.draws(self.plans))
        self.steps += plan.length
        self.plans += 1
        return Feedback.of(plan, sums[:, :-1], sums[:, -1])

    def _pull_once(self, plan: CheckedPlan) -> Feedback:
        """Carry out a plan of one step, in which an agent either explores or plays its arm."""
        exploring = plan.explore.any(axis=1) if plan.explores else None
        arms = plan.arm if exploring is None else np.where(exploring, plan.explore.argmax(axis=1), plan.arm)
        rewards = self._law.single(arms, *self._short_plan_noise.at(self.plans))
        features = self._revealed_features(arms)
        self.steps += 1
        self.plans += 1
        explored_sums = np.zeros(plan.explore.shape)
        if exploring is None:
            return Feedback.of(plan, explored_sums, rewards, features)
        explored_sums[plan.explore > 0] = rewards[exploring]
        return Feedback.of(plan, explored_sums, np.where(exploring, 0.0, rewards), features)


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
        self.regret: FloatArray = np.zeros((len(summed_regrets()), num_agents))  #: (kinds, n), where contexts change

    def add_step(self, arms: IntArray, rewards: FloatArray, segment: Segment | None = None) -> None:
        """Count one pull per agent: of `arms` (n,), for `rewards` (n,), in `segment` if contexts change."""
        played = places(arms, self.pulls.shape[1])
        if segment is not None:
            self.regret += segment.gaps[:, np.arange(len(arms)), arms]
        self.pulls.reshape(-1)[played] += 1
        self.sums.reshape(-1)[played] += rewards
        self.steps += 1

    def add_plan(self, plan: Plan, feedback: Feedback, segment: Segment | None = None) -> None:
        """Count a whole plan by its feedback, in `segment` if contexts change."""
        self.pulls += feedback.pulls()
        if segment is not None:
            self.regret += segment.regret(feedback.pulls())
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
    return {kind: np.einsum("mk,mk->m", pulls, gaps) for kind, gaps in all_gaps(instance).items()}
