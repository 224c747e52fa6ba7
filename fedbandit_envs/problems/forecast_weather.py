"""The weather of the forecast problem: sites with correlated autoregressive weather, and forecasts of tomorrow.

Each of V variables at each site is stationary, standard normal and autoregressive:

    w_{t+1} = rho w_t + sqrt(1 - rho^2) e_{t+1}

with the persistence rho and standard normal shocks e, independent over steps and variables, whose correlation between
any two sites is `correlation`. So the weather of sites i and j at the steps t and t + k has the covariance
rho^k times the correlation (rho^k if i = j).

The forecaster knows today's weather and the part u of the shock e = sqrt(s) u + sqrt(1 - s) v, where s is its skill.
Tomorrow's weather given all that it knows has the mean rho w_t + sqrt((1 - rho^2) s) u and the standard deviation
sqrt((1 - rho^2) (1 - s)). This is the law that a site is shown. With an ensemble of S members, v_1, ..., v_S are drawn
instead of v, each makes a scenario for all sites together, and one scenario comes true, each with probability 1 / S:
the weather has the same law as before, and given the members it is one of them.

`dispersion` makes the forecast dishonest: what is shown has its spread multiplied by it, and the weather has not.
"""

from dataclasses import dataclass

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.finite import Discrete
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.seeding import Randomness, derived_seed, generator
from fedbandit_envs.validation import real_number, whole_number


@dataclass(frozen=True)
class Climate:
    """How the weather behaves, and how well it is foreseen.

    >>> climate = Climate(persistence=0.6, skill=0.75)
    >>> round(climate.spread, 6)  # sqrt((1 - 0.36) (1 - 0.75))
    0.4
    """

    variables: int = 3  #: V, how many numbers the weather of a site has
    persistence: float = 0.8  #: rho, the correlation of a site's weather with that of the day before
    correlation: float = 0.5  #: the correlation of the shocks of any two sites
    skill: float = 0.5  #: s, the share of a shock's variance that is foreseen: 0 knows today only, 1 knows tomorrow
    members: int | None = None  #: S, the number of members of an ensemble; None shows a Gaussian
    dispersion: float = 1.0  #: the spread of the forecast over the true one: 1 is honest, below 1 overconfident

    def __post_init__(self) -> None:
        whole_number("variables", self.variables, at_least=1)
        for name in ("persistence", "correlation", "skill"):
            value = real_number(name, getattr(self, name), at_least=0)
            if value > 1 or (name == "persistence" and value == 1):
                upper = "below 1" if name == "persistence" else "of at most 1"
                raise ValueError(f"{name}: expected a number of at least 0 and {upper}, got {value!r}")
        if self.members is not None:
            whole_number("members", self.members, at_least=2)
        real_number("dispersion", self.dispersion, above=0)

    @property
    def spread(self) -> float:
        """The standard deviation of tomorrow's weather, given what the forecaster knows."""
        return float(np.sqrt((1 - self.persistence**2) * (1 - self.skill)))

    @property
    def foreseen(self) -> float:
        """The standard deviation of the part of a shock that the forecaster knows, in units of the weather."""
        return float(np.sqrt((1 - self.persistence**2) * self.skill))

    def longest(self, forecasts: int, chance: float = 1e-6) -> float:
        """A norm that no expected weather exceeds in `forecasts` forecasts, except with a small probability.

        Weather has no bounds, and policies ask for one. By Laurent and Massart (2000), a chi-square number with V
        degrees of freedom exceeds V + 2 sqrt(V x) + 2 x with a probability of at most e^-x.

        Args:
            forecasts: how many forecasts there are: agents times steps.
            chance: the probability that any of them exceeds the norm.

        >>> round(Climate().longest(forecasts=10**6), 2)
        7.92
        """
        variance = self.persistence**2 + self.foreseen**2  # the variance of the mean, given what the forecaster knows
        if self.members is not None:
            variance += (self.dispersion * self.spread) ** 2 / self.members  # the members' mean scatters about it
        x = np.log(forecasts / chance)
        return float(np.sqrt(variance * (self.variables + 2 * np.sqrt(self.variables * x) + 2 * x)))


@dataclass(frozen=True, eq=False)
class WeatherBlock:
    """Some steps of the weather of n sites, and what was forecast for each of them.

    `forecast(t)` is the law mu_{i,t} that the sites are shown, and `weather[t]` is the hidden context c_{i,t}.
    """

    climate: Climate  #: how the weather behaves
    mean: FloatArray  #: (steps, n, V) the mean of the weather, given what the forecaster knows
    members: FloatArray | None  #: (steps, n, S, V) the members of the ensembles as shown; None: there are none
    weather: FloatArray  #: (steps, n, V) the weather that comes

    @property
    def psi(self) -> FloatArray:
        """The expected weather (steps, n, V) under the law that is shown, for all steps at once."""
        return self.mean if self.members is None else self.members.mean(axis=2)

    def forecast(self, step: int) -> ContextDistribution:
        """The law of the weather that all n sites are shown at a step of the block."""
        if self.members is None:
            return Gaussian(self.mean[step], std=self.climate.dispersion * self.climate.spread)
        n, members = self.members.shape[1:3]
        return Discrete(self.members[step], np.full((n, members), 1 / members))


class WeatherStream:
    """The weather of a block of sites, drawn in blocks of steps.

    Blocks are read by their number. To read them in order costs one draw each. To go back, or to skip some, draws the
    weather anew from the start, because each day depends on the day before: the numbers are the same. The sites of
    other blocks of agents are never drawn beyond their group of `fedbandit_envs.seeding`, and no number depends on how
    agents are split.

    Args:
        climate: how the weather behaves.
        randomness: the stream of these sites; it knows the number of all sites.
        steps: how many steps a block has, which bounds the memory. Blocks of another length have other weather.

    >>> from fedbandit_envs.seeding import Stream
    >>> stream = WeatherStream(Climate(), Randomness(seed=0, stream=Stream.CONTEXTS, num_agents=4), steps=256)
    >>> block = stream.block(0)
    >>> block.weather.shape, stream.place(300)
    ((256, 4, 3), (1, 44))
    """

    def __init__(self, climate: Climate, randomness: Randomness, steps: int):
        self.climate, self._randomness = climate, randomness
        self.steps = steps  #: how many steps a block has
        self._shared_seed = derived_seed(randomness.seed, randomness.stream)  # the seed of what all sites share
        self._next = 0  # the number of the block after the one at hand
        self._today = self._first_day()  # (n, V) the weather before that block

    def place(self, step: int) -> tuple[int, int]:
        """The number of the block that holds a step, and the step's place in it."""
        return divmod(step, self.steps)

    def block(self, number: int) -> WeatherBlock:
        """The steps number * steps, ..., (number + 1) * steps - 1."""
        if number < self._next:
            self._next, self._today = 0, self._first_day()
        while self._next < number:
            self._today = self._drawn(self._next).weather[-1]
            self._next += 1
        block = self._drawn(number)
        self._next, self._today = number + 1, block.weather[-1].copy()
        return block

    def _first_day(self) -> FloatArray:
        """The weather (n, V) before the first step, from the stationary law."""
        own = self._randomness.draws(0).normals(self.climate.variables)
        shared = generator(self._shared_seed, 0).standard_normal(self.climate.variables)
        return self._correlated(own, shared)

    def _correlated(self, own: FloatArray, shared: FloatArray) -> FloatArray:
        """Standard normals whose correlation between sites is the climate's, from independent ones."""
        share = self.climate.correlation
        return np.sqrt(share) * shared + np.sqrt(1 - share) * own

    def _drawn(self, number: int) -> WeatherBlock:
        """The block with this number, which begins after the day at hand."""
        climate, draws, shared = (
            self.climate,
            self._randomness.draws(number + 1),
            generator(self._shared_seed, number + 1),
        )
        scenarios, variables = climate.members or 1, climate.variables
        own = draws.normals(self.steps, 1 + scenarios, variables).swapaxes(0, 1)  # (steps, n, 1 + S, V)
        common = shared.standard_normal((self.steps, 1, 1 + scenarios, variables))
        true = shared.integers(scenarios, size=self.steps)  # the scenario that comes true at each step
        shocks = self._correlated(own, common)
        foreseen = climate.foreseen * shocks[:, :, 0]
        surprises = climate.spread * shocks[:, :, 1:]  # (steps, n, S, V)
        comes = surprises[np.arange(self.steps), :, true]
        mean, weather = np.empty(foreseen.shape), np.empty(foreseen.shape)
        today = self._today
        for step in range(self.steps):
            mean[step] = climate.persistence * today + foreseen[step]
            today = weather[step] = mean[step] + comes[step]
        members = None if climate.members is None else mean[:, :, None] + climate.dispersion * surprises
        return WeatherBlock(climate, mean, members, weather)
