"""The agents of all linear systems: upper confidence bounds of a ridge regression, updated after each pull."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedbandit_agents.linear.ridge import Ridge, choose, learn, start
from fedbandit_agents.linear.widths import ellipsoid_width, hidden_scale
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.protocol.steps import Outcome, StepAgents
from fedbandit_envs.validation import check_fields, checked, probability, real_number

#: The variance proxy of a hidden context after Kirschner and Krause: <theta, phi - psi> lies in [-2, 2].
USUAL_PROXY = 4.0


@dataclass(frozen=True)
class LinearPolicy(Policy):
    """The hyper-parameters that linear systems have in common."""

    delta: float = checked(0.1, probability)  #: allowed probability that some confidence bound fails
    sigma: float = checked(1.0, real_number, above=0)  #: noise scale that the bounds assume
    theta_bound: float = checked(1.0, real_number, at_least=0)  #: S, an upper bound on ||theta_a||

    def __post_init__(self) -> None:
        check_fields(self)

    def settings(self, view: View, *, proxy: float | None = None, regularisation: float = 1.0) -> "LinearSettings":
        """The settings of a regression on psi; `proxy` as in `reward_scale`."""
        scale = reward_scale(view, self.sigma, proxy)
        return LinearSettings(blocks_of(view.constants), scale, self.delta, self.theta_bound, regularisation)

    def settings_of_revealed(self, view: View) -> "LinearSettings":
        """The settings of a regression on contexts that are revealed: only the noise is left."""
        return self.settings(view)._replace(scale=self.sigma, observed=True)


class LinearSettings(NamedTuple):
    """What a policy decides about its regression and its confidence bounds."""

    blocks: int  #: B, how many estimates there are: 1 where all arms have one theta, else K
    scale: float  #: R, the sub-Gaussian scale of a reward about its mean
    delta: float  #: the probability that some confidence bound fails
    theta_bound: float  #: S, an upper bound on ||theta_a||
    regularisation: float = 1.0  #: lambda: V starts as lambda times the identity
    observed: bool = False  #: whether the regressor is phi, which is revealed after each pull, else it is psi


def blocks_of(constants: Constants) -> int:
    """B, how many estimates there are: one if all arms are guaranteed to have one theta, else one for each arm.

    >>> blocks_of(Constants(3, 10, 2, 100, ell=0.5, L=1.0, noise_std=1.0, context="fixed"))
    10
    """
    return 1 if constants.shared_theta else constants.num_arms


def reward_scale(view: View, sigma: float, proxy: float | None = None) -> float:
    """R: the noise, and where contexts are hidden their spread, sqrt(v + sigma^2).

    Args:
        view: what the agents know.
        sigma: the sub-Gaussian scale of the noise.
        proxy: v; None takes what the problem guarantees, or 4 if it guarantees nothing.
    """
    if view.exact:
        return sigma
    if proxy is None:
        proxy = view.constants.context_proxy
    return hidden_scale(sigma, USUAL_PROXY if proxy is None else proxy)


class StepData(NamedTuple):
    """What a step adds to the regression of each of n agents."""

    block: IntArray  #: (n,) to which estimate it belongs
    x: FloatArray  #: (n, d) the regressor
    weight: IntArray | FloatArray  #: (n,) how often it was observed, or its weight
    sum: FloatArray  #: (n,) the sum of the rewards, with the same weight


class LinearAgents(StepAgents):
    """Agents that play the arm with the largest psi^T theta + width ||psi||_{V^-1}, and never communicate.

    V = lambda I + the sum of x x^T over their pulls, and theta = V^-1 times the sum of x y. The regressor x of a pull
    is phi of the arm pulled if the settings say that contexts are revealed, else psi. Nothing is precomputed from psi,
    so these agents play all problems, also those whose contexts change.
    """

    def __init__(self, view: View, settings: LinearSettings):
        super().__init__(view)
        self.blocks, self.scale, self.delta, self.theta_bound, self.regularisation, self.observed = settings
        n, _, dim = view.psi.shape
        self.inverse, self.moments, self.growth = start(n, self.blocks, dim, self.regularisation)

    @property
    def ridge(self) -> Ridge:
        """What the agents know; a change of its arrays is a change of what they know."""
        return Ridge(self.inverse, self.moments, self.growth)

    @ridge.setter
    def ridge(self, ridge: Ridge) -> None:
        self.inverse, self.moments, self.growth = ridge

    def observe(self, view: View) -> None:
        """Keep what is shown from now on."""
        self.view = view

    def width(self) -> FloatArray | float:
        """How many lengths ||psi||_{V^-1} an estimate may be off: one number, (n, 1) or (n, K)."""
        return ellipsoid_width(
            self.growth,
            scale=self.scale,
            delta=self.delta,
            regularisation=self.regularisation,
            theta_bound=self.theta_bound,
        )

    def choose(self) -> IntArray:
        """The arm with the largest upper confidence bound; bounds that are equal but for rounding go to the first."""
        return choose(self.ridge, self.view.psi, self.width())

    def observation(self, outcome: Outcome) -> StepData:
        """What a step adds to the regression."""
        arm = outcome.arm
        if self.observed:
            assert outcome.features is not None  # a run is refused where contexts are not revealed
            x = outcome.features
        else:
            x = self.view.psi[np.arange(len(arm)), arm]
        return StepData(self.block(arm), x, outcome.pulls, outcome.rewards)

    def block(self, arm: IntArray) -> IntArray:
        """The number (n,) of the estimate of an arm (n,)."""
        return np.zeros_like(arm) if self.blocks == 1 else arm

    def learn(self, outcome: Outcome) -> None:
        """Add the pulls to V and to the moments."""
        self.add(self.observation(outcome))

    def add(self, seen: StepData) -> FloatArray:
        """Add an observation to what the agents know; gives by how much ln det V has grown, (n,)."""
        return learn(self.ridge, *seen)
