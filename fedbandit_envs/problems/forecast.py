"""The forecast problem: sites act on the forecast of tomorrow's weather, and are paid by the weather that comes.

The parameters theta_a are drawn uniformly from the unit sphere, and the same for all sites. How the weather behaves is
in `forecast_weather`. An agent observes `mean` and `std` of a Gaussian law, or `support` and `weights` of an ensemble.
"""

from dataclasses import dataclass, field

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import Identity
from fedbandit_envs.contexts.finite import Discrete
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.problems.forecast_weather import Climate, WeatherStream
from fedbandit_envs.problems.generator import ProblemShape
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.seeding import Randomness, Stream
from fedbandit_envs.validation import real_number, whole_number

_FORECASTS = 10**9  # the chance that any of this many forecasts exceeds the largest norm L is one in a million


@dataclass(frozen=True)
class Forecast:
    """Sites that choose an action by the forecast of tomorrow's weather.

    Each agent is a site. At each step it is shown the predictive law of its weather w, chooses one of K actions, and is
    paid <theta_a, (1, w)> for the weather that comes, plus noise: an action has a base payoff and an effect of each
    weather variable, which all sites share. Contexts are new at each step, and hidden unless the environment is made
    with `reveal="after"`: everybody sees tomorrow's weather tomorrow.
    The law that is shown is Gaussian, or an ensemble of `members` equally likely scenarios. With `dispersion=1` it is
    exactly the law of the weather, given what the forecaster knows; below 1 the forecast is overconfident.

    >>> rng = np.random.default_rng(0)
    >>> instance = Forecast(num_agents=4, num_arms=3).instance(rng, rng)
    >>> instance.psi.shape, instance.psi[:, :, 0].min()  # the first feature is 1
    ((4, 3, 4), np.float64(1.0))
    """

    num_agents: int = 20  #: the number of sites, M
    num_arms: int = 5  #: the number of actions, K
    variables: int = 3  #: how many numbers the weather of a site has; features have one more
    persistence: float = 0.8  #: the correlation of a site's weather with that of the day before
    correlation: float = 0.5  #: the correlation of the shocks of any two sites
    skill: float = 0.5  #: the share of a shock's variance that is foreseen: 0 knows today only, 1 knows tomorrow
    members: int | None = None  #: the number of members of an ensemble; None shows a Gaussian law
    dispersion: float = 1.0  #: the spread of the forecast over the true one: 1 is honest, below 1 overconfident
    noise_std: float = 0.5  #: standard deviation of the rewards' noise

    #: the length of a segment: contexts are new at each step
    segment_steps: int = field(default=1, init=False, repr=False)

    def __post_init__(self) -> None:
        whole_number("num_agents", self.num_agents, at_least=1)
        whole_number("num_arms", self.num_arms, at_least=1)
        real_number("noise_std", self.noise_std, at_least=0)
        self.climate()

    def climate(self) -> Climate:
        """How the weather behaves, and how well it is foreseen."""
        return Climate(self.variables, self.persistence, self.correlation, self.skill, self.members, self.dispersion)

    def _features(self) -> Identity:
        return Identity(self.num_arms, 1 + self.variables)

    def _law(self, mean: FloatArray, members: FloatArray | None) -> ContextDistribution:
        """The law of (1, w) that is shown, for means (rows, V) or members (rows, S, V)."""
        if members is not None:
            rows, number = members.shape[:2]
            return Discrete(_with_one(members), np.full((rows, number), 1 / number))
        climate = self.climate()
        return Gaussian(_with_one(mean), std=climate.dispersion * climate.spread * np.r_[0.0, np.ones(self.variables)])

    def problem_shape(self) -> ProblemShape:
        """The shape of all instances, found without drawing one."""
        scenarios = None if self.members is None else np.zeros((1, self.members, self.variables))
        return ProblemShape(
            self.num_agents, self._features(), self._law(np.zeros((1, self.variables)), scenarios), "fixed"
        )

    def instance(self, rng: np.random.Generator, context_rng: np.random.Generator) -> BanditInstance:
        """Draw theta, and a first day; `context_stream` draws the weather of the episode."""
        climate = self.climate()
        theta = rng.standard_normal((self.num_arms, 1 + self.variables))
        theta /= np.linalg.norm(theta, axis=1, keepdims=True)
        mean = rng.standard_normal((self.num_agents, self.variables))
        members = None
        if self.members is not None:
            shape = (self.num_agents, self.members, self.variables)
            members = mean[:, None] + climate.dispersion * climate.spread * rng.standard_normal(shape)
        law = self._law(mean, members)
        honest = self.members is None and self.dispersion == 1
        return BanditInstance(
            theta,
            self._features(),
            law,
            law.sample(context_rng),
            self.noise_std,
            ell=1.0,
            L=float(np.hypot(1.0, climate.longest(_FORECASTS))),
            theta_bound=1.0,
            context_proxy=climate.spread**2 if honest else None,
        )

    def context_stream(self, instance: BanditInstance, seed: int, segments: int) -> "ForecastStream":
        """The forecasts and the weather of an episode."""
        return ForecastStream(self, seed)


@dataclass(eq=False)
class ForecastStream:
    """The weather of an episode in the form that `Segments` reads: many steps, as rows step after step."""

    problem: Forecast  #: whose weather it is
    seed: int  #: the seed of the episode
    _weather: WeatherStream | None = field(default=None, init=False)

    def block(self, number: int, size: int) -> tuple[ContextDistribution, FloatArray]:
        """mu and the hidden contexts of `size` steps."""
        if self._weather is None or self._weather.steps != size:
            sites = Randomness(self.seed, Stream.SEGMENTS, self.problem.num_agents)
            self._weather = WeatherStream(self.problem.climate(), sites, steps=size)
        drawn = self._weather.block(number)
        members = None if drawn.members is None else drawn.members.reshape(-1, *drawn.members.shape[2:])
        mean = drawn.mean.reshape(-1, self.problem.variables)
        return self.problem._law(mean, members), _with_one(drawn.weather.reshape(-1, self.problem.variables))


def _with_one(weather: FloatArray) -> FloatArray:
    """(..., 1 + V) the weather (..., V) with a leading 1."""
    return np.concatenate([np.ones((*weather.shape[:-1], 1)), weather], axis=-1)
