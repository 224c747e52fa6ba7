"""Linear upper confidence bounds on features that change at each step: ridge regression, one update per pull."""

from typing import NamedTuple

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.steps import Outcome, StepAgents


class RidgeSettings(NamedTuple):
    """What a policy decides about its confidence bounds."""

    shared: bool  #: whether all arms have one estimate, else each has its own
    scale: float  #: R, the sub-Gaussian scale of a reward around its estimate
    delta: float  #: the probability that one ellipsoid fails
    theta_bound: float  #: B, an upper bound on ||theta_a||
    observed: bool = False  #: whether rewards are explained by phi, which is revealed after each pull, else by psi

    @classmethod
    def of_hidden(
        cls, delta: float, sigma: float, theta_bound: float, view: View, shared: bool | None = None
    ) -> "RidgeSettings":
        """For regression on psi: a hidden context adds 4 to the variance proxy (Kirschner and Krause).

        With `shared=None` all arms have one estimate if the problem guarantees one theta.
        """
        shared = view.constants.shared_theta if shared is None else shared
        scale = sigma if view.exact else float(np.sqrt(4 + sigma**2))
        return cls(shared, scale, delta / (1 if shared else view.constants.num_arms), theta_bound)

    @classmethod
    def of_observed(cls, delta: float, sigma: float, theta_bound: float, view: View) -> "RidgeSettings":
        """For regression on phi, the features of contexts that were revealed: only the noise is left."""
        return cls.of_hidden(delta, sigma, theta_bound, view)._replace(scale=sigma, observed=True)


def radius(log_det: FloatArray, scale: float, delta: float, theta_bound: float) -> FloatArray:
    """R sqrt(ln det V - 2 ln delta) + B, for V that starts from the unit matrix.

    >>> radius(np.array([0.0]), scale=1.0, delta=0.1, theta_bound=1.0).round(5)
    array([3.14597])
    """
    return scale * np.sqrt(log_det - 2 * np.log(delta)) + theta_bound


class LinearAgents(StepAgents):
    """Agents with the index psi^T theta + radius ||psi||_{V^-1}, where V = I + the sum of x x^T over their pulls.

    The regressor x is phi of the arm pulled where contexts are revealed, else psi. Each of the G ellipsoids, one per
    arm or one for all, is updated by the formula of Sherman and Morrison, so no step solves a system.
    """

    def __init__(self, view: View, settings: RidgeSettings):
        super().__init__(view)
        n, num_arms, dim = view.psi.shape
        self.shared, self.scale, self.delta, self.theta_bound, self.observed = settings
        blocks = 1 if self.shared else num_arms
        self.inverse: FloatArray = np.tile(np.eye(dim), (n, blocks, 1, 1))  # V^-1, (n, G, d, d)
        self.moments: FloatArray = np.zeros((n, blocks, dim))  # the sums of x y
        self.theta: FloatArray = np.zeros((n, blocks, dim))  # V^-1 times the moments
        self.log_det: FloatArray = np.zeros((n, blocks))  # ln det V

    def observe(self, view: View) -> None:
        """Keep what is shown from now on."""
        self.view = view

    def start_from(self, gram: FloatArray, moments: FloatArray) -> None:
        """Start anew from the sums over all agents: of x x^T (G, d, d) and of x y (G, d)."""
        V = np.eye(gram.shape[-1]) + gram
        inverse = np.linalg.inv(V)
        self.inverse[:] = inverse
        self.moments[:] = moments
        self.theta[:] = (inverse @ moments[..., None])[..., 0]
        self.log_det[:] = np.linalg.slogdet(V)[1]

    def indices(self) -> FloatArray:
        """(n, K) the upper confidence bounds."""
        psi = self.view.psi
        # With one estimate for all arms the axis of the blocks has length 1, and is stretched over the arms.
        directions = np.matmul(self.inverse, psi[..., None])[..., 0]
        squares = np.maximum(np.vecdot(directions, psi), 0)
        width = radius(self.log_det, self.scale, self.delta, self.theta_bound)
        return np.vecdot(psi, self.theta) + width * np.sqrt(squares)

    def choose(self) -> IntArray:
        """The arm with the largest index; ties go to the first arm."""
        return self.indices().argmax(axis=1)

    def regressor(self, outcome: Outcome) -> FloatArray:
        """(n, d) the features that explain the rewards."""
        if self.observed:
            assert outcome.features is not None  # a run is refused where contexts are not revealed
            return outcome.features
        return self.view.psi[np.arange(len(outcome.arm)), outcome.arm]

    def learn(self, outcome: Outcome) -> None:
        """Add the pulls to V, to its inverse and to the moments."""
        rows, x = np.arange(len(outcome.arm)), self.regressor(outcome)
        block = np.zeros_like(outcome.arm) if self.shared else outcome.arm
        inverse = self.inverse[rows, block]
        u = np.matmul(inverse, x[..., None])[..., 0]
        growth = 1 + outcome.pulls * np.vecdot(x, u)
        inverse -= (outcome.pulls / growth)[:, None, None] * (u[:, :, None] * u[:, None, :])
        moments = self.moments[rows, block] + outcome.rewards[:, None] * x
        self.inverse[rows, block], self.moments[rows, block] = inverse, moments
        self.theta[rows, block] = np.matmul(inverse, moments[..., None])[..., 0]
        self.log_det[rows, block] += np.log(growth)
