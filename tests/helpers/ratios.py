"""Ratios of mean regrets over runs that meet the same problems."""

import numpy as np
from scipy.stats import t


def paired_ratio(ours, theirs):
    """The mean of `ours` over the mean of `theirs`, and half the width of its 95 % interval, to first order."""
    n, ratio = len(ours), ours.mean() / theirs.mean()
    return ratio, t.ppf(0.975, n - 1) * (ours - ratio * theirs).std(ddof=1) / np.sqrt(n) / theirs.mean()
