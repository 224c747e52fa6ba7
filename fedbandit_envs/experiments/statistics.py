"""What trials can say: means and paired differences by Student's t, shares by Clopper and Pearson.

All intervals have 95 % confidence. Nothing here is random, so the same trials give the same numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.validation import real_array, whole_number

LEVEL = 0.95  # the confidence of every interval


@dataclass(frozen=True, eq=False)
class Band:
    """A mean over trials and where it lies with 95 % confidence, for each of C quantities."""

    mean: FloatArray  #: (C,)
    low: FloatArray  #: (C,) NaN with one trial, as `high`
    high: FloatArray  #: (C,)


def student_band(values: FloatArray) -> Band:
    """The mean over trials with Student's t interval, for each quantity.

    The interval covers the true mean in 95 % of all experiments if trials are normal, however few they are. It covers
    it in at least 90 % if they are as skewed as a gamma distribution of shape 2. One trial says nothing about the
    spread, so its interval is NaN.

    Args:
        values: (trials, C), a column for each quantity.

    >>> band = student_band([[1.0], [2.0], [3.0]])
    >>> band.mean[0].item(), round(band.low[0].item(), 3), round(band.high[0].item(), 3)
    (2.0, -0.484, 4.484)
    """
    values = real_array("values", values, ("trials", "quantities"))
    mean, error = _mean_and_error(values)
    half = _t_quantile(len(values)) * error
    return Band(mean, mean - half, mean + half)


def _mean_and_error(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The means over the first axis and their standard errors; an error is NaN with one trial."""
    trials = len(values)
    mean = values.mean(axis=0)
    if trials < 2:
        return mean, np.full_like(mean, np.nan)
    error = values.std(axis=0, ddof=1) / np.sqrt(trials)
    return mean, np.where((values == values[0]).all(axis=0), 0.0, error)  # rounding gives equal trials no spread


def _t_quantile(trials: int) -> float:
    """Half the width of an interval, in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(trials - 1, (1 + LEVEL) / 2)) if trials > 1 else np.nan


@dataclass(frozen=True)
class Difference:
    """A mean difference over trials, its confidence interval, and the two-sided p-value of "no difference"."""

    mean: float
    low: float  #: NaN with one trial, as `high` and `p_value`
    high: float
    p_value: float
    trials: int

    @property
    def verdict(self) -> str:
        """ "holds" if the difference is positive, "fails" if it is negative, else "undecided"."""
        return "holds" if self.low > 0 else "fails" if self.high < 0 else "undecided"


def paired_difference(first: FloatArray, second: FloatArray) -> Difference:
    """`first` - `second` over the same trials, by Student's t for pairs.

    Pairing removes what the trials share: the instance, the contexts, the noise of equal pulls. With one trial nothing
    can be said: the interval and the p-value are NaN, and the verdict is "undecided".
    """
    first = real_array("first", first, ("trials",))
    second = real_array("second", second, (len(first),))
    from scipy.special import stdtr

    trials = len(first)
    means, errors = _mean_and_error((first - second)[:, None])
    mean, error = float(means[0]), float(errors[0])
    half = _t_quantile(trials) * error
    if error == 0:  # without any spread the difference is certain
        p_value = float(mean == 0)
    else:
        p_value = float(2 * stdtr(trials - 1, -abs(mean) / error)) if trials > 1 else np.nan
    return Difference(mean, mean - half, mean + half, p_value, trials)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: each p-value such that rejecting below 5 % errs anywhere with probability at most 5 %.

    A NaN is a test that could not be made. It stays NaN and does not count.
    """
    made = int(np.isfinite(p_values).sum())
    order = np.argsort(p_values, kind="stable")  # NaN comes last
    corrected = np.full(len(p_values), np.nan)
    largest = 0.0
    for rank, place in enumerate(order[:made]):
        largest = max(largest, min(1.0, (made - rank) * p_values[place]))
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
