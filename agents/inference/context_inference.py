"""Federated context inference: the policy that Fed-CI and its relatives share; `inferring_agents` has its agents.

When a context is fixed but hidden, <theta_a, phi(a, c_i) - psi_{a,i}> is a bias that never averages out. But agent i
knows the law of its context, mu_i, and its rewards carry the bias: with the server's estimate of theta the bias can be
inferred. No guarantee is proved. The method is Bayesian, and as good as mu_i, the Gaussian noise and its scale are
right.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.validation import check_fields, checked, optional, real_number, true_or_false, whole_number

# Before the first round all agents together pull an arm this often for each of the d unknowns of its theta.
_SEEN_PER_COEFFICIENT = 10
# The assumed noise scale counts as this many degrees of freedom, beside those of the residuals.
_WORTH_OF_SIGMA = 5.0


@dataclass(frozen=True)
class ContextInference(Policy):
    """Federated context inference: the parameters that Fed-CI and the Thompson baselines share.

    Each round comes `growth` times later than the one before; in between, agents make `batches` plans and learn on
    their own. The noise scale is estimated by default: this costs next to nothing when `sigma` is right, and a wrong
    scale costs much. On streams only the noise scale matters: agents decide at each step, and talk when they have
    learnt enough. Subclasses say in `agents` how the posterior is played.
    """

    #: assumed standard deviation of the noise; None takes the problem's public constant
    sigma: float | None = checked(None, optional(real_number), above=0)
    estimate_sigma: bool = checked(True, true_or_false)  #: whether the residuals of the rewards correct `sigma`
    growth: int = checked(4, whole_number, at_least=2)  #: how many times later each round comes than the one before
    batches: int = checked(6, whole_number, at_least=1)  #: number of plans that agents make between two rounds

    def __post_init__(self) -> None:
        check_fields(self)

    def first_plan(self, constants: Constants) -> int:
        """The number of steps before the first round.

        All agents together then see each arm often enough, and no agent sees an arm more than once.

        >>> from fedbandit_agents import FedCI
        >>> FedCI().first_plan(Constants(100, 10, 3, 1000, 0.5, 1.0, 1.0, "fixed"))  # 10 * 3 * 10 / 100
        3
        """
        wanted = _SEEN_PER_COEFFICIENT * constants.dim * constants.num_arms / constants.num_agents
        return min(constants.num_arms, math.ceil(wanted))

    def assumed_sigma(self, constants: Constants) -> float:
        """The noise scale before any residual is seen."""
        return constants.noise_std if self.sigma is None else self.sigma

    def corrected_sigma(self, constants: Constants, squares: FloatArray, freedom: FloatArray) -> FloatArray:
        """The noise scale given residuals.

        Args:
            constants: the public constants of the problem.
            squares: sums of squared residuals.
            freedom: their degrees of freedom, in the same shape.
        """
        assumed = self.assumed_sigma(constants) ** 2
        variance = (squares + _WORTH_OF_SIGMA * assumed) / (freedom + _WORTH_OF_SIGMA)
        return np.sqrt(variance.clip(min=0))
