"""Environments whose rewards follow a script, whatever their hidden truth is."""

from dataclasses import dataclass, replace

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.streams import ChangingGenerator, ContextStream
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.seeding import Stream, generator

_NOISE = 0.5  # the standard deviation of a scripted reward


@dataclass(frozen=True)
class Given:
    """A problem that is always the same instance."""

    given: BanditInstance  #: the instance of every episode

    @property
    def num_agents(self) -> int:
        """The number of agents, M."""
        return self.given.num_agents

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """The given instance, whatever the random numbers are."""
        return self.given


@dataclass(frozen=True)
class GivenStream(Given):
    """A problem that always has the same theta, and whose contexts change as those of another problem do."""

    problem: ChangingGenerator  #: where the contexts come from

    @property
    def segment_steps(self) -> int | None:
        """The length of a segment in steps."""
        return self.problem.segment_steps

    def context_stream(self, instance: BanditInstance, seed: int, segments: int) -> ContextStream:
        """The contexts of an episode, drawn by the other problem."""
        return self.problem.context_stream(instance, seed, segments)


class PaidByScript(HiddenContextBandit):
    """An environment that shows the view of its problem but pays by a script.

    Args:
        given: what the agents are shown, and a truth that has no influence on their rewards.
        script: (M, K) the mean reward of each arm for each agent.
        horizon: the number of steps, T.
        observe: "distribution" or "context", as of every environment.
        reveal: "never" or "after", as of every environment.
    """

    def __init__(self, given: Given, script: FloatArray, horizon: int, observe: str, reveal: str = "never"):
        super().__init__(given, max_cycles=horizon, observe=observe, reveal=reveal)
        self._script = script

    def pull(self, plan: Plan) -> Feedback:
        """Pay the means of the script, and noise that depends on the number of the plan."""
        number, (rows, num_arms) = self.episode.plans, plan.explore.shape
        noise = _NOISE * generator(self.episode_seed, Stream.PLANS, number, 2).standard_normal((rows, num_arms + 1))
        feedback, arm_means = super().pull(plan), self._script[np.arange(rows), plan.arm]
        explored, played = feedback.explored, feedback.played
        return replace(
            feedback,
            explored_sums=explored * self._script + np.sqrt(explored) * noise[:, :-1],
            played_sums=played * arm_means + np.sqrt(played) * noise[:, -1],
        )


def other_truth(instance: BanditInstance, observe: str, number: int) -> BanditInstance:
    """An instance with the same view and another truth: 1 makes the best arms the worst, 2 draws the truth anew.

    What the problem guarantees is part of the view, so a new theta keeps it: the arms of a shared theta share the new
    one, and every theta_a keeps its length.
    """
    rng = np.random.default_rng(number)
    hidden = observe != "context" and instance.contexts is not None
    drawn = rng.standard_normal((1 if instance.shared_theta else instance.num_arms, instance.dim))
    lengths = np.linalg.norm(instance.theta, axis=1, keepdims=True)
    return replace(
        instance,
        theta=-instance.theta if number == 1 else lengths * drawn / np.linalg.norm(drawn, axis=1, keepdims=True),
        contexts=instance.distribution.sample(rng) if hidden else instance.contexts,
        rewards="gaussian",
        noise_std=instance.constants(1, observe).noise_std,
    )
