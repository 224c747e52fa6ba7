"""The noise of private linear bandits by the published formulas, and what it does to the matrices.

The noise that a budget really takes is `fedbandit_agents.privacy.noise_std`. The formulas here are for comparison with
the systems as cited: the one of FedUCB is far too large, and the one of Private-FedLinUCB's code is too small where
delta is small or epsilon is large. FedUCB here has the Gaussian noise; its other one, from Wishart matrices,
takes a shift that is about three times as large.
"""

import math
from dataclasses import dataclass

from fedbandit_agents.privacy import Budget, tree_levels


@dataclass(frozen=True)
class FedUCBNoise:
    """The Gaussian noise of FedUCB, after Dubey and Pentland (2020) and Shariff and Sheffet (2018); recalled.

    A node of the tree has the noise (Z + Z^T) / sqrt(2), where Z has independent entries of standard deviation `std`.
    Once in each release, 2 Ups I is added. With probability 1 - alpha the noisy part H of each release then lies
    between rmin I = Ups I and rmax I = 3 Ups I, and the noise h of its moments has ||h||_{H^-1} <= kappa.

    >>> noise = FedUCBNoise.of(
    ...     Budget(1.0, 0.1), horizon=1000, dim=5, alpha=0.01, feature_bound=1.0, reward_bound=1.0
    ... )
    >>> noise.levels, round(noise.std, 2), round(noise.rmin), round(noise.rmax), round(noise.kappa, 1)
    (11, 97.88, 15313, 45940, 18.8)
    """

    levels: int  #: m, the number of levels that the formula counts, 1 + ceil(log2 T)
    std: float  #: the standard deviation of the entries of Z
    rmin: float  #: the smallest eigenvalue of one agent's noise, with its shift
    rmax: float  #: the largest one
    kappa: float  #: how long the noise of one agent's moments is, by the noise of its matrix

    @classmethod
    def of(
        cls, budget: Budget, horizon: int, dim: int, alpha: float, feature_bound: float, reward_bound: float
    ) -> "FedUCBNoise":
        """The noise for a budget.

        s^2 = 16 m (L^2 + Y^2)^2 ln(4 / delta)^2 / epsilon^2, Ups = s sqrt(2 m) (4 sqrt(d) + 2 ln(2 T / alpha)) and
        kappa = s sqrt(m / Ups) (sqrt(d) + sqrt(2 ln(2 T / alpha))). Dubey and Pentland have ln(2 / delta); ln(4 /
        delta) is Shariff and Sheffet's.

        Args:
            budget: what may be spent; its epsilon is finite.
            horizon: T, the most releases that there can be.
            dim: the length of a regressor.
            alpha: the probability that a bound may fail.
            feature_bound: L, to which features are clipped.
            reward_bound: Y, to which rewards are clipped.
        """
        m = 1 + math.ceil(math.log2(horizon))
        bound = feature_bound**2 + reward_bound**2
        std = 4 * math.sqrt(m) * bound * math.log(4 / budget.delta) / budget.epsilon
        failure = math.log(2 * horizon / alpha)
        shift = std * math.sqrt(2 * m) * (4 * math.sqrt(dim) + 2 * failure)
        kappa = std * math.sqrt(m / shift) * (math.sqrt(dim) + math.sqrt(2 * failure))
        return cls(m, std, shift, 3 * shift, kappa)


def wishart_shift(
    budget: Budget, horizon: int, dim: int, alpha: float, feature_bound: float, reward_bound: float
) -> tuple[int, float]:
    """The degrees of freedom k of a Wishart node, and the smallest eigenvalue rmin of the noise after its shift.

    After Dubey and Pentland (2020); recalled. k = d + 1 + ceil(224 m ln(8 m / delta) ln(2 / delta) / epsilon^2) and
    rmin = 4 (L^2 + Y^2) sqrt(m k) (sqrt(d) + sqrt(2 ln(8 T / alpha))); the largest eigenvalue is twice that. The
    arguments are those of `FedUCBNoise.of`, whose Gaussian noise has a smaller rmin.

    >>> k, rmin = wishart_shift(Budget(1.0, 0.1), 1000, 5, alpha=0.01, feature_bound=1.0, reward_bound=1.0)
    >>> k, round(rmin)
    (50052, 44223)
    """
    m = 1 + math.ceil(math.log2(horizon))
    logs = math.log(8 * m / budget.delta) * math.log(2 / budget.delta)
    freedom = dim + 1 + math.ceil(224 * m * logs / budget.epsilon**2)
    radius = math.sqrt(dim) + math.sqrt(2 * math.log(8 * horizon / alpha))
    return freedom, 4 * (feature_bound**2 + reward_bound**2) * math.sqrt(m * freedom) * radius


def zhou_chowdhury_std(budget: Budget, releases: int, feature_bound: float) -> float:
    """The noise of a node in the code of Zhou and Chowdhury (2024): L sqrt(N (ln(1 / delta) + epsilon)) / epsilon.

    N is `tree_levels(releases)`. Where delta is small or epsilon is large this is less than the budget takes, by up to
    a factor of about 3 where L = Y = 1.

    >>> round(zhou_chowdhury_std(Budget(1.0, 0.1), releases=80, feature_bound=1.0), 3)  # sqrt(7 (ln 10 + 1))
    4.808
    """
    per_level = -math.log(budget.delta) + budget.epsilon
    return feature_bound * math.sqrt(tree_levels(releases) * per_level) / budget.epsilon


def private_shift(std: float, releases: int, num_agents: int, dim: int, alpha: float) -> float:
    """Lam, what Private-FedLinUCB adds to the noisy sum of all agents' matrices, so that it stays positive.

    sqrt(M N) s (sqrt(N + ln(1 / alpha)) + sqrt(d)), as in the code of Zhou and Chowdhury (2024); N is
    `tree_levels(releases)`. The noise of M agents with N nodes each has an operator norm that is larger with a
    probability below alpha. Without noise the shift is 0, and a policy regularises by a lambda of its own.

    Args:
        std: the standard deviation of each node's noise, as `report_noise` takes it.
        releases: how many releases there are in all.
        num_agents: M.
        dim: the length of a regressor.
        alpha: the probability that the shift may be too small.

    >>> std = zhou_chowdhury_std(Budget(1.0, 0.1), releases=80, feature_bound=1.0)
    >>> round(private_shift(std, releases=80, num_agents=50, dim=3, alpha=0.01))
    462
    """
    levels = tree_levels(releases)
    return math.sqrt(num_agents * levels) * std * (math.sqrt(levels - math.log(alpha)) + math.sqrt(dim))
