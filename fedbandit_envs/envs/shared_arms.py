"""The environment of shared arms: PettingZoo's parallel form, in which rewards depend on everybody's choice."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.features import Table
from fedbandit_envs.contexts.finite import PointMass
from fedbandit_envs.envs.bandit import EpisodeSeeds
from fedbandit_envs.envs.parallel import Observation
from fedbandit_envs.problems.segments import summed_regrets
from fedbandit_envs.problems.shared_arms import SharedArms, SharedArmsInstance
from fedbandit_envs.protocol.knowledge import LONGEST_HORIZON, Constants, View
from fedbandit_envs.seeding import Randomness, Stream, derived_seed, generator
from fedbandit_envs.validation import one_of, whole_number


class SharedEpisode:
    """One episode of shared arms, as the rounds see it: plans last for one step, because loads decide about rewards."""

    segments = None  #: contexts never change
    valid = 1  #: the number of steps of the longest plan

    def __init__(self, truth: SharedArmsInstance, seed: int):
        self.truth, self.seed = truth, seed
        self.steps = 0
        self.plans = 0

    @property
    def segment(self) -> "SharedEpisode":
        """Who says what the regret of a step is."""
        return self

    def regret(self, pulls: IntArray) -> FloatArray:
        """(kinds, M) the regret of one step with `pulls` (M, K): each agent carries the same part, by every kind."""
        share = float(self.truth.regret(pulls.sum(axis=0))) / len(pulls)
        return np.full((len(summed_regrets()), len(pulls)), share)

    def step(self, arms: IntArray) -> tuple[FloatArray, IntArray]:
        """What each arm pays in all (K,), and the agents on it (K,), if agents pull `arms` (M,)."""
        loads = np.bincount(arms, minlength=len(self.truth.means))
        drawn = generator(self.seed, Stream.STEPS, self.steps).random(len(loads)) < self.truth.means
        self.steps += 1
        return np.minimum(loads, self.truth.capacities) * drawn.astype(np.float64), loads


class SharedArmsBandit(ParallelEnv[str, Observation, int]):
    """M agents choose among K arms that pay by how many agents pull them; see `SharedArms`.

    An agent observes what its arm has paid in all ("total") and how many agents were on it ("load"); both are 0 at the
    start. Its reward is its part, total / load. `fb.make("fedbandit/SharedArms-v0")` makes one.

    Args:
        problem: the problem family of which each reset draws an instance.
        max_cycles: the horizon T, after which all agents are truncated.
        observe: "distribution" or "context", which are the same here: there are no hidden contexts.
        render_mode: "ansi" (a text) or None.

    >>> env = SharedArmsBandit(SharedArms(num_agents=2, means=[1.0, 0.5], capacities=[1, 1]))
    >>> observations, infos = env.reset(seed=0)
    >>> observations, rewards, *_ = env.step({"agent_0": 0, "agent_1": 0})
    >>> rewards, observations["agent_1"]
    ({'agent_0': 0.5, 'agent_1': 0.5}, {'total': array([1.]), 'load': array([2.])})
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as PettingZoo declares it: an instance may have its own
        "name": "sharedarms_v0",
        "render_modes": ["ansi"],
        "is_parallelizable": True,
    }
    exact, resampled, reveal, segment_steps, shared_arms = True, False, "never", None, True

    def __init__(
        self,
        problem: SharedArms,
        *,
        max_cycles: int = 2**13,
        observe: str = "distribution",
        reveal: str = "never",
        render_mode: str | None = None,
    ):
        self.problem = problem
        self.max_cycles = whole_number("max_cycles", max_cycles, at_least=1, at_most=LONGEST_HORIZON)
        one_of("observe", observe, ("distribution", "context"))
        one_of("reveal", reveal, ("never",))
        if render_mode is not None:
            one_of("render_mode", render_mode, ("ansi",))
        self.render_mode = render_mode
        assert problem.num_arms is not None
        self.num_arms = problem.num_arms  #: the number of arms, K
        self.possible_agents = [f"agent_{number}" for number in range(problem.num_agents)]
        self.agents: list[str] = []
        self._seeds = EpisodeSeeds()
        self._episode: SharedEpisode | None = None
        self._observation_spaces: dict[str, spaces.Dict] = {}
        self._action_spaces: dict[str, spaces.Discrete] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.problem!r}, max_cycles={self.max_cycles})"

    def observation_space(self, agent: str) -> spaces.Dict:
        """What an arm can have paid in all, and how many agents can have been on it."""
        if agent not in self._observation_spaces:
            most = float(len(self.possible_agents))
            parts = {name: spaces.Box(0.0, most, (1,), dtype=np.float64) for name in ("load", "total")}
            self._observation_spaces[agent] = spaces.Dict(parts)  # type: ignore[arg-type]
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        """The arms, numbered from 0."""
        if agent not in self._action_spaces:
            self._action_spaces[agent] = spaces.Discrete(self.num_arms)
        return self._action_spaces[agent]

    @property
    def episode(self) -> SharedEpisode:
        """The running episode, or the last one when it is over."""
        if self._episode is None:
            raise ValueError("env: expected reset() before this call, got an environment that was never reset")
        return self._episode

    @property
    def truth(self) -> SharedArmsInstance:
        """Means and capacities of the running episode; they are for recorders, never for policies."""
        return self.episode.truth

    instance = None  #: there is no instance with contexts; see `truth`

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Start an episode with a new instance, and return what agents are shown and empty infos."""
        self.episode_seed = self._seeds.next(seed)
        rngs = (generator(self.episode_seed, stream) for stream in (Stream.INSTANCE, Stream.CONTEXTS))
        self._episode = SharedEpisode(self.problem.instance(*rngs), self.episode_seed)
        self.agents = self.possible_agents[:]
        self._loads: IntArray = np.zeros(self.num_arms, dtype=np.int64)  # the agents on each arm in the last step
        return {agent: self._seen(0.0, 0.0) for agent in self.agents}, {agent: {} for agent in self.agents}

    def _seen(self, total: float, load: float) -> Observation:
        return {"total": np.array([total]), "load": np.array([load])}

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Every agent goes to an arm, and is paid its part of what the arm pays.

        Args:
            actions: an arm for each agent.

        Returns:
            Observations, rewards, terminations (always False), truncations (True at the horizon) and infos, by agent.
        """
        if not self.agents:
            raise ValueError("step: expected a running episode, got one that is over, or never began; call reset()")
        arms, agents = self._arms(actions), self.possible_agents
        totals, self._loads = self.episode.step(arms)
        over = self.episode.steps >= self.max_cycles
        pairs = [(agent, float(totals[arm]), float(self._loads[arm])) for agent, arm in zip(agents, arms, strict=True)]
        if over:
            self.agents = []
        return (
            {agent: self._seen(total, load) for agent, total, load in pairs},
            {agent: total / load for agent, total, load in pairs},
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, over),
            {agent: {} for agent in agents},
        )

    def _arms(self, actions: Mapping[str, int]) -> IntArray:
        """The actions as one array (M,); refuses what are no arms of all agents."""
        if not isinstance(actions, Mapping) or set(actions) != set(self.possible_agents):
            raise ValueError(
                f"actions: expected a dict with an arm for each of the {len(self.possible_agents)} agents, got "
                f"{actions!r}; all agents act at every step"
            )
        arms = np.array([actions[agent] for agent in self.possible_agents])
        if arms.ndim != 1 or arms.dtype.kind not in "iu" or arms.min() < 0 or arms.max() >= self.num_arms:
            raise ValueError(
                f"actions: expected arms from 0 to {self.num_arms - 1}, got {actions!r}; arms count from 0"
            )
        return arms.astype(np.int64)

    def view(self, observe: str | None = None) -> View:
        """What the agents know, for policies: all arms look alike.

        Args:
            observe: "truth" adds, for yardsticks, a 1 for the arm of each agent in the best assignment; others nothing.
        """
        num_agents, num_arms = len(self.possible_agents), self.num_arms
        feature_map, mu = Table(num_arms, 1), PointMass(np.ones((num_agents, num_arms)))
        constants = Constants(num_agents, num_arms, 1, self.max_cycles, 1.0, 1.0, 0.5, "fixed")
        randomness = Randomness(derived_seed(self.episode_seed, Stream.POLICY), Stream.POLICY, num_agents)
        psi = mu.expected_features(feature_map)
        place = np.repeat(np.arange(num_arms), self.truth.best_loads)  # an entry for each agent that finds room
        truth = np.eye(num_arms)[np.resize(place, num_agents)] if observe == "truth" else None
        return View(constants, np.arange(num_agents), mu, feature_map, psi, randomness, truth)

    def view_at(self, step: int, view: View) -> View:
        """What the agents know at a step: the same at every step."""
        return view

    def resume(self, steps: int, plans: int) -> None:
        """Go on, right after a reset, as if `steps` steps of this episode had been played."""
        self.episode.steps, self.episode.plans = steps, plans
        if steps >= self.max_cycles:
            self.agents = []

    def render(self) -> Any:
        """The agents on each arm in the last step, as a text."""
        if self.render_mode is None:
            raise ValueError("render: expected a render_mode of 'ansi', got None; pass it to make()")
        return f"step {self.episode.steps} of {self.max_cycles}: agents on the arms {self._loads.tolist()}"
