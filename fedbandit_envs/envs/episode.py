"""The array core of every environment: an episode of one instance, stepped by arrays or by whole plans."""

from collections.abc import Callable

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.rewards import RewardLaw
from fedbandit_envs.problems.instance import REGRETS, BanditInstance
from fedbandit_envs.protocol.plans import Feedback, Plan, places
from fedbandit_envs.protocol.steps import StepAgents
from fedbandit_envs.seeding import RowDraws, Stream

_AHEAD = 256  # single pulls whose random numbers are drawn together, at most, and
_AT_ONCE = 1 << 18  # of these numbers, so that many agents need no more memory
_WHOLE = np.dtype(np.int64)


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
        self._ahead = max(1, min(_AHEAD, _AT_ONCE // numbers))
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
        """Draw the block of single pulls to which this one belongs, if it is not at hand, and say its place in it."""
        block, place = divmod(number, self._ahead)
        if (stream, block) != self._drawn:
            draws, law = self._draws(stream, block), self._law
            normals = draws.normals(self._ahead, law.normals_per_pull)
            self._noise = np.ascontiguousarray(law.noise(normals.swapaxes(0, 1)))
            uniforms = draws.uniforms(self._ahead) if law.uniforms_per_pull else np.empty((0, self._ahead))
            self._uniforms = np.ascontiguousarray(uniforms.T)
            self._drawn = (stream, block)
        return place

    def follow(self, agents: StepAgents, most: int, passed: Callable[[IntArray], None]) -> None:
        """`most` plans of one step or fewer, which `agents` choose on the way; `passed` is given their arms (steps, n).

        Also when the agents fail: then those of the steps before, from which the run can go on.

        Raises:
            ProtocolError: that names what is wrong with what they chose. It may be found late: the run is lost.
        """
        place = self._at_hand(Stream.SHORT_PLANS, self.plans)
        noise, uniforms = self._noise[place : place + most], self._uniforms[place : place + most]
        n, num_arms = self.instance.means.shape
        arms = np.zeros((len(noise), n), dtype=np.int64)
        shown, once = arms.view(), np.ones(n, dtype=np.int64)
        shown.setflags(write=False)
        once.setflags(write=False)
        choose, paid, learn, done = agents.choose, self._law.single, agents.learn, 0
        try:
            for row, arm, own_noise, own_uniforms in zip(arms, shown, noise, uniforms, strict=True):
                chosen = choose()
                if type(chosen) is not np.ndarray or chosen.dtype is not _WHOLE or chosen.shape != (n,):
                    chosen = agents.checked(chosen)
                row[:] = chosen
                rewards = paid(arm, own_noise, own_uniforms)
                rewards.setflags(write=False)
                done += 1
                learn(arm, once, rewards)
        finally:
            if np.maximum.reduce(arms.view(np.uint64), axis=None) >= num_arms:  # what is below 0 becomes huge
                first = np.flatnonzero(((arms < 0) | (arms >= num_arms)).any(axis=1))[0]
                agents.checked(arms[first])
            self.steps += done
            self.plans += done
            passed(arms[:done])

    def pull(self, plan: Plan) -> Feedback:
        """The whole plan at once: the same in distribution as stepping through it."""
        if plan.length == 1:
            return self._pull_once(plan)
        played = plan.length - plan.exploration
        counts = np.empty((len(played), plan.explore.shape[1] + 1))
        counts[:, :-1], counts[:, -1] = plan.explore, played
        sums = self._law.sums(plan.arm, counts, self._draws(Stream.PLANS, self.plans))
        self.steps += plan.length
        self.plans += 1
        return Feedback(plan.explore, sums[:, :-1], plan.arm, played, sums[:, -1])

    def _pull_once(self, plan: Plan) -> Feedback:
        """A plan of one step: an agent either explores or plays its arm."""
        number = self.plans
        self.steps += 1
        self.plans += 1
        explored_sums = np.zeros(plan.explore.shape)
        if not plan.explores:
            rewards = self._single(plan.arm, Stream.SHORT_PLANS, number)
            return Feedback(plan.explore, explored_sums, plan.arm, np.ones(len(rewards), dtype=np.int64), rewards)
        exploring = plan.explore.any(axis=1)
        arms = np.where(exploring, plan.explore.argmax(axis=1), plan.arm)
        rewards = self._single(arms, Stream.SHORT_PLANS, number)
        explored_sums[plan.explore > 0] = rewards[exploring]
        played = np.where(exploring, 0, 1)
        return Feedback(plan.explore, explored_sums, plan.arm, played, np.where(exploring, 0.0, rewards))

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
        feedback.add_pulls(self.pulls)
        self.sums += feedback.sums()
        self.steps += plan.length


def episode_regret(instance: BanditInstance, pulls: IntArray) -> dict[str, FloatArray]:
    """(n,) pseudo-regret of each agent after `pulls` (n, K), by its kind."""
    return {kind: np.einsum("mk,mk->m", pulls, instance.gaps(kind)) for kind in REGRETS}
