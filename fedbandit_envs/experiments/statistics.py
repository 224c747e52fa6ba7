"""What trials can say: means with bootstrap bands, paired differences, proportions; all with fixed seeds or none."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.seeding import generator
from fedbandit_envs.validation import real_array, whole_number

LEVEL = 0.95  # the confidence of every interval
DRAWS = 2000  # bootstrap samples: the ends of a 95 % band are then good to about a twentieth of its width
_BOOTSTRAP_SEED = 20240229


@dataclass(frozen=True, eq=False)
class Band:
    """A mean over trials and where it lies with 95 % confidence, for each of C quantities."""

    mean: FloatArray  # (C,)
    low: FloatArray  # (C,)
    high: FloatArray  # (C,)


def bootstrap_band(values: FloatArray, draws: int = DRAWS) -> Band:
    """The mean over trials of `values` (trials, C) with its percentile bootstrap band.

    The same trials give the same band: the bootstrap's seed is fixed. One trial gives a band without width.
    """
    values = real_array("values", values, ("trials", "quantities"))
    tail = (1 - LEVEL) / 2
    trials = len(values)
    equal_chance = np.full(trials, 1 / trials)
    counts = generator(_BOOTSTRAP_SEED).multinomial(trials, equal_chance, size=whole_number("draws", draws, at_least=1))
    centre = values.mean(axis=0)  # resampling deviations keeps equal trials equal to the last bit
    means = centre + counts @ (values - centre) / trials  # (draws, C)
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return Band(centre, low, high)


@dataclass(frozen=True)
class Difference:
    """A mean difference over trials, its confidence interval, and the two-sided p-value of "no difference"."""

    mean: float
    low: float
    high: float
    p_value: float
    trials: int

    @property
    def verdict(self) -> str:
        """ "holds" if the difference is positive, "fails" if it is negative, else "undecided"."""
        return "holds" if self.low > 0 else "fails" if self.high < 0 else "undecided"


def paired_difference(first: FloatArray, second: FloatArray) -> Difference:
    """`first` - `second` over the same trials, by Student's t for pairs.

    Pairing removes what the trials share: the instance, the contexts, the noise of equal pulls. With fewer than two
    trials nothing can be said: the interval is the whole line and the p-value 1.
    """
    first = real_array("first", first, ("trials",))
    second = real_array("second", second, (len(first),))
    from scipy.special import stdtr, stdtrit

    difference, trials = first - second, len(first)
    mean = float(difference.mean())
    if trials < 2:
        return Difference(mean, -np.inf, np.inf, 1.0, trials)
    error = float(difference.std(ddof=1)) / np.sqrt(trials)
    half = float(stdtrit(trials - 1, (1 + LEVEL) / 2)) * error
    if error == 0:  # without any spread the difference is certain
        return Difference(mean, mean, mean, float(mean == 0), trials)
    p_value = float(2 * stdtr(trials - 1, -abs(mean) / error))
    return Difference(mean, mean - half, mean + half, p_value, trials)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: each p-value such that rejecting below 5 % errs anywhere with probability at most 5 %."""
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return [float(value) for value in corrected]


@dataclass(frozen=True)
class Proportion:
    """A share of trials and its exact (Clopper-Pearson) confidence interval."""

    share: float
    low: float
    high: float
    trials: int


def proportion(successes: int, trials: int) -> Proportion:
    """The share of `successes` in `trials`, with its interval."""
    trials = whole_number("trials", trials, at_least=1)
    if not 0 <= successes <= trials:
        raise ValueError(f"successes: expected 0 to {trials}, the trials, got {successes}; count them again")
    from scipy.special import betaincinv

    tail = (1 - LEVEL) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))
    high = 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, 1 - tail))
    return Proportion(successes / trials, low, high, trials)
