"""The confidence factor of phased elimination: how many standard deviations its widths have."""

import math


def number_of_phases(horizon: int, growth: int) -> int:
    """H = ceil(log_n T), but at least 1: how many phases fit into T steps when each is n times as long as the last.

    It is computed in whole numbers, so that rounding can't change it.

    Args:
        horizon: T.
        growth: n.

    >>> number_of_phases(horizon=1024, growth=2), number_of_phases(horizon=1025, growth=2)
    (10, 11)
    """
    phases = 0
    while growth**phases < horizon:
        phases += 1
    return max(phases, 1)


def confidence(num_agents: int, num_arms: int, dim: int, phases: int, delta: float) -> float:
    """alpha = min(alpha1, alpha2), the number of standard deviations that all estimates of a run stay within.

    alpha1 is a union bound over agents, arms and phases. alpha2 = sqrt(k d) is a bound over directions, arms and
    phases, where k d = 2 ln(KH/delta) + d ln(k e), so that k = -W_{-1}(-exp(-1 - (2/d) ln(KH/delta))).

    Args:
        num_agents: M.
        num_arms: K.
        dim: d.
        phases: H, the number of phases that the bounds allow for.
        delta: the allowed probability that some estimate of the run is further off.

    >>> round(confidence(num_agents=100, num_arms=10, dim=3, phases=17, delta=0.1), 3)
    4.912
    """
    alpha1 = math.sqrt(2 * math.log(2 * num_agents * num_arms * phases / delta))
    return min(alpha1, math.sqrt(covering_factor(num_arms, dim, phases, delta) * dim))


def covering_factor(num_arms: int, dim: int, phases: int, delta: float) -> float:
    """k of alpha2, the larger root of k - 1 - ln k = (2/d) ln(KH/delta), by Newton's method from its right side.

    >>> k = covering_factor(num_arms=10, dim=2, phases=10, delta=0.1)
    >>> round(k - 1 - math.log(k) - math.log(1000), 12)
    0.0
    """
    target = 1 + 2 / dim * math.log(num_arms * phases / delta)
    k = 2 * target + 1
    for _ in range(100):
        step = (k - math.log(k) - target) / (1 - 1 / k)
        k -= step
        if abs(step) < 1e-14 * k:
            break
    return k
