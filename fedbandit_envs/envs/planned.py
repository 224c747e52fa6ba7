"""The environment that carries out whole plans, for all agents or for a block of them: what policies are played on."""

from dataclasses import replace

from fedbandit_envs.envs.bandit import EpisodicBandit
from fedbandit_envs.envs.step_noise import UpcomingSteps
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.seeding import Randomness, Stream, derived_seed
from fedbandit_envs.validation import whole_number


class PlannedBandit(EpisodicBandit):
    """A block of agents whose plans are carried out at once.

    `HiddenContextBandit` is one of all agents, with PettingZoo's form around it; a shard of a run has one of its own
    agents. Its arguments are those of `EpisodicBandit`.

    >>> import numpy as np
    >>> from fedbandit_envs.problems.synthetic import Synthetic
    >>> block = PlannedBandit(Synthetic(num_agents=5, num_arms=3), rows=np.array([1, 4]), max_cycles=100)
    >>> block.start(seed=0)
    >>> block.view().agents, block.pull(Plan.explore_each(2, 2, 3)).explored
    (array([1, 4]), array([[2, 2, 2],
           [2, 2, 2]]))
    """

    @property
    def block_size(self) -> int:
        """The number of agents, n."""
        return self._block_size

    def start(self, seed: int | None = None) -> None:
        """Start an episode with a new instance: of the given seed, or of the one that follows from the seeds before."""
        self._restart(seed)
        self._views: dict[str, View] = {}  # what does not change of the views, by what agents observe

    def view(self, observe: str | None = None) -> View:
        """What the agents know, in arrays, for policies.

        Args:
            observe: "distribution", "context", "truth" or "theta"; None: what the environment shows.
        """
        episode, observe = self.episode, observe or self.observe
        if observe not in self._views:
            seed = derived_seed(self.episode_seed, Stream.POLICY)
            randomness = Randomness(seed, Stream.POLICY, self._shape.num_agents, self._rows)
            view = episode.lasting.view(self.max_cycles, randomness, observe)
            if episode.segments is not None:
                view = replace(view, constants=episode.segments.constants(view.constants))
            self._views[observe] = view
        return episode.view(self._views[observe], self.observe)

    def view_at(self, step: int, view: View) -> View:
        """The view of step `step`, where contexts change, given any other view of the same agents."""
        return self.episode.view_at(step, view, self.observe)

    def pull(self, plan: Plan) -> Feedback:
        """Carry out a whole plan at once: the same in distribution as stepping, and much faster if it is long.

        Args:
            plan: what all agents do, for at most the number of steps that are left.
        """
        episode = self._running()
        plan = plan.checked(self.block_size, self.num_arms)
        left = self.max_cycles - episode.steps
        if plan.length > left:
            raise ValueError(
                f"plan.length: expected at most the {left} steps left, got {plan.length}; use plan.cut({left})"
            )
        if episode.valid is not None and plan.length > episode.valid:
            raise ValueError(
                f"plan.length: expected at most the {episode.valid} steps until the contexts change, got {plan.length}"
            )
        segment = episode.segment if self._tally is not None else None
        feedback = episode.pull(plan)
        if self._tally is not None:
            self._tally.add_plan(plan, feedback, segment)
        if episode.steps >= self.max_cycles:
            self._end()
        return feedback

    @property
    def tallies(self) -> bool:
        """Whether this episode keeps a tally of pulls and rewards; every plan must then go through `pull`."""
        return self._tally is not None

    def upcoming(self, most: int) -> UpcomingSteps:
        """The random numbers of the next plans of one step: `most` plans or fewer.

        Nothing is counted: the caller plays some of these plans, and then says with `skip` how many.
        """
        episode = self._running()
        whole_number("most", most, at_least=1)
        return episode.upcoming(min(most, self.max_cycles - episode.steps))

    def skip(self, steps: int) -> None:
        """Count `steps` plans of one step, which were played with the numbers of `upcoming`."""
        self.episode.skip(steps)
        if self.episode.steps >= self.max_cycles:
            self._end()

    def resume(self, steps: int, plans: int) -> None:
        """Go on, right after a reset, as if `steps` steps and `plans` plans of this episode had been played."""
        self.episode.steps, self.episode.plans = steps, plans
        if steps >= self.max_cycles:
            self._end()
