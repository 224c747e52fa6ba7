"""What the communication rounds need of an environment, whatever its class."""

from typing import Any, Protocol

from fedbandit_envs.protocol.knowledge import View


class PlayableBlock(Protocol):
    """The agents of an environment, or a block of them, as the agents' part of a run needs them."""

    max_cycles: int  #: the horizon T
    episode_seed: int  #: the seed of the running episode

    @property
    def exact(self) -> bool:
        """Whether agents are shown their true contexts."""

    @property
    def resampled(self) -> bool:
        """Whether each pull draws a new context."""

    @property
    def reveal(self) -> str:
        """ "after" if contexts are revealed once an arm is pulled, else "never"."""

    @property
    def segment_steps(self) -> int | None:
        """The number of steps after which contexts change; None: never."""

    @property
    def shared_arms(self) -> bool:
        """Whether rewards depend on how many agents pull an arm."""

    @property
    def episode(self) -> Any:
        """The running episode: its `segments`, `valid`, `plans`, and the `segment` that tells the regret of pulls."""

    @property
    def instance(self) -> Any:
        """The truth, from which regret follows where the episode has no segment; None: there is none."""

    def view(self, observe: str | None = None) -> View:
        """What the agents know."""

    def view_at(self, step: int, view: View) -> View:
        """What the agents know at a step, where contexts change, given any other view of the same agents."""

    def resume(self, steps: int, plans: int) -> None:
        """Go on, right after a reset, as if `steps` steps and `plans` plans had been played."""


class PlayableBandit(PlayableBlock, Protocol):
    """An environment that the communication rounds can play, step by step through PettingZoo's `step` at least.

    `HiddenContextBandit` and `SharedArmsBandit` are such. One that also defines `pull(plan)` is asked for whole plans.
    """

    possible_agents: list[str]  #: the names of all agents
