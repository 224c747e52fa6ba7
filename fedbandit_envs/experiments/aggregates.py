"""Policies over several problems: robust aggregates of normalised regret, with intervals.

Regrets of different problems have different sizes. So each regret is divided by the mean regret of a reference policy
on the same problem: 1 is as bad as the reference, 0 is perfect. The reference is "Uniform", or any policy you name.

The measures are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021),
turned round, because a low regret is good. Intervals are stratified bootstraps of 95 %: trials are drawn anew within
each problem. They say how the numbers vary with the trials, on these problems and with this reference; other problems
may differ. Where regrets have a gamma distribution of shape 4, such an interval of the interquartile mean holds the
truth in 91, 86 and 93 of 100 cases with five trials on each of 1, 2 and 5 problems, and in 94, 91 and 94 with ten. With
two trials it would be 50 to 80, so there are no intervals with fewer than five.

>>> from fedbandit_envs import Experiment, run
>>> def result(gap):
...     arguments = {"num_agents": 4, "num_arms": 3, "max_cycles": 256, "gap": gap}
...     experiment = Experiment("fedbandit/Synthetic-v0", ["Uniform", "Local-UCB"], arguments, trials=4)
...     return run(experiment, executor="serial")
>>> table = aggregate({"easy": result(0.4), "hard": result(0.2)})
>>> table["policy"], [round(value, 1) for value in table["regret"]]
(['Uniform', 'Local-UCB'], [1.0, 0.5])
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.statistics import LEVEL
from fedbandit_envs.experiments.text import Columns
from fedbandit_envs.seeding import generator
from fedbandit_envs.validation import one_of, real_array

DRAWS = 2000  # bootstrap samples
FEWEST = 5  # trials on each problem, without which there is no interval
THRESHOLDS = tuple(step / 20 for step in range(31))  # where a performance profile is read: 0 to 1.5 times the reference
_SEED = 20240229  # the same trials give the same intervals


def interquartile_mean(values: FloatArray) -> float:
    """The mean of the middle half of all values: a quarter is left out at either end, rounded down.

    One failed run does not decide it, as it does a mean, and it uses more of the runs than a median.

    >>> interquartile_mean([1.0, 2.0, 4.0, 100.0])
    3.0
    """
    ordered = np.sort(np.ravel(values))
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def performance_profile(values: FloatArray, thresholds: Sequence[float]) -> FloatArray:
    """The share of all values that are at most each threshold.

    >>> performance_profile([0.1, 0.4, 0.9, 1.0], [0.4, 2.0]).tolist()
    [0.5, 1.0]
    """
    return (np.ravel(values)[:, None] <= np.asarray(thresholds)).mean(axis=0)


def probability_of_improvement(first: FloatArray, second: FloatArray) -> float:
    """The probability that a run of the first policy has less regret than a run of the second, on a random problem.

    Every run of one is held against every run of the other on the same problem. A tie counts half.

    Args:
        first: (problems, trials) regrets of the first policy.
        second: (problems, trials) regrets of the second policy.

    >>> probability_of_improvement([[1.0, 2.0]], [[2.0, 3.0]])
    0.875
    """
    one, other = np.asarray(first)[:, :, None], np.asarray(second)[:, None, :]
    return float(((one < other) + 0.5 * (one == other)).mean())


def stratified_bootstrap(
    values: FloatArray, statistic: Callable[[FloatArray], FloatArray | float]
) -> tuple[FloatArray, FloatArray]:
    """The 95 % interval of a statistic by drawing trials anew, within each problem.

    Of n trials n - 1 are drawn, with replacement: a mean then varies as much as it should (Rao and Wu 1988), while n
    draws would give too narrow intervals when trials are few. With fewer than `FEWEST` trials both ends are NaN.

    Args:
        values: (problems, trials, ...); what belongs to one trial stays together.
        statistic: takes such an array and returns a number, or an array of numbers with an interval each.
    """
    problems, trials = values.shape[:2]
    if trials < FEWEST:
        missing = np.full(np.shape(statistic(values)), np.nan)
        return missing, missing
    drawn = generator(_SEED).integers(trials, size=(DRAWS, problems, trials - 1))
    rows = np.arange(problems)[:, None]
    sampled = np.array([statistic(values[rows, places]) for places in drawn])
    low, high = np.quantile(sampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high


def normalised(
    results: Mapping[str, Result], reference: str = "Uniform", kind: str = "regret"
) -> dict[str, FloatArray]:
    """(problems, trials) for each policy: final regret per agent over the reference's mean on the same problem.

    Args:
        results: a result for each problem, by its name. All have the same policies and the same number of trials.
        reference: the label of the policy to divide by; its mean regret must be positive.
        kind: which regret, a key of `REGRETS`.
    """
    if not results:
        raise ValueError("results: expected a result for each problem, got none")
    labels = next(iter(results.values())).labels
    if reference == "Uniform" and reference not in labels:  # the default, which the user may not have heard of
        raise ValueError(
            f"reference: expected one of {', '.join(labels)}, got 'Uniform'; add that policy, or name another"
        )
    one_of("reference", reference, labels)
    numbers = {problem: len(result.trials) for problem, result in results.items()}
    if len(set(numbers.values())) > 1:
        raise ValueError(f"results: expected equally many trials of each problem, got {numbers}; run the missing ones")
    rows: dict[str, list[FloatArray]] = {label: [] for label in labels}
    for problem, result in results.items():
        if set(result.labels) != set(labels):
            raise ValueError(f"results: expected {', '.join(labels)} on each problem, got {result.labels} on {problem}")
        scale = float(result.final(reference, f"mean_{kind}").mean())
        if not scale > 0:
            raise ValueError(
                f"reference: expected one with a positive mean regret, got {reference} with {scale:g} on {problem}"
            )
        for label in labels:
            rows[label].append(result.final(label, f"mean_{kind}") / scale)
    return {label: real_array(label, np.array(row), ("problems", "trials")) for label, row in rows.items()}


def aggregate(results: Mapping[str, Result], reference: str = "Uniform", kind: str = "regret") -> Columns:
    """The interquartile mean of normalised regret over all problems and trials, a row for each policy.

    The columns `regret_low` and `regret_high` are its stratified bootstrap interval.

    Args:
        results: a result for each problem, by its name. All have the same policies and the same number of trials.
        reference: the label of the policy whose mean regret on a problem counts as 1; it must be positive.
        kind: which regret, a key of `REGRETS`.

    >>> from fedbandit_envs import Experiment, run_all
    >>> small = {"num_agents": 5, "max_cycles": 500}
    >>> easy = Experiment("fedbandit/Synthetic-v0", ["Fed-CI", "Uniform"], small, trials=3)
    >>> results = run_all({"easy": easy, "noisy": easy.with_argument("noise_std", 2.0)}, executor="serial")
    >>> table = aggregate(results)
    >>> table["policy"], table["problems"], table["regret"][0] < table["regret"][1]
    (['Fed-CI', 'Uniform'], [2, 2], True)
    """
    columns: Columns = {name: [] for name in ("policy", "problems", "trials", "regret", "regret_low", "regret_high")}
    for label, values in normalised(results, reference, kind).items():
        low, high = stratified_bootstrap(values, interquartile_mean)
        _add(columns, label, *values.shape, interquartile_mean(values), float(low), float(high))
    return columns


def performance_profiles(
    results: Mapping[str, Result],
    reference: str = "Uniform",
    kind: str = "regret",
    thresholds: Sequence[float] = THRESHOLDS,
) -> Columns:
    """The performance profile of each policy: a row for each threshold of normalised regret.

    The column `share` is the share of runs at or below the threshold. The higher a policy's profile is, the better;
    where profiles cross, neither policy is better for all purposes.

    Args:
        results: a result for each problem, by its name. All have the same policies and the same number of trials.
        reference: the label of the policy whose mean regret on a problem counts as 1; it must be positive.
        kind: which regret, a key of `REGRETS`.
        thresholds: the values of normalised regret at which the profiles are read.

    >>> from fedbandit_envs import Experiment, run_all
    >>> small = {"num_agents": 5, "max_cycles": 500}
    >>> easy = Experiment("fedbandit/Synthetic-v0", ["Fed-CI", "Uniform"], small, trials=3)
    >>> results = run_all({"easy": easy, "noisy": easy.with_argument("noise_std", 2.0)}, executor="serial")
    >>> performance_profiles(results, thresholds=[0.0, 2.0])["share"]
    [0.0, 1.0, 0.0, 1.0]
    """
    columns: Columns = {name: [] for name in ("policy", "threshold", "share", "share_low", "share_high")}
    for label, values in normalised(results, reference, kind).items():
        share = performance_profile(values, thresholds)
        low, high = stratified_bootstrap(values, lambda sample: performance_profile(sample, thresholds))
        for place, threshold in enumerate(thresholds):
            _add(columns, label, float(threshold), float(share[place]), float(low[place]), float(high[place]))
    return columns


def improvements(results: Mapping[str, Result], reference: str = "Uniform", kind: str = "regret") -> Columns:
    """The probability that a policy has less regret than another, a row for each pair.

    Dividing by the reference does not change it. Where all runs agree the interval has no width: the bootstrap cannot
    know of runs that were never seen, so this does not mean that the next run will agree.

    Args:
        results: a result for each problem, by its name. All have the same policies and the same number of trials.
        reference: the label of the policy whose mean regret on a problem counts as 1; it must be positive.
        kind: which regret, a key of `REGRETS`.

    >>> from fedbandit_envs import Experiment, run_all
    >>> small = {"num_agents": 5, "max_cycles": 500}
    >>> easy = Experiment("fedbandit/Synthetic-v0", ["Fed-CI", "Uniform"], small, trials=3)
    >>> results = run_all({"easy": easy, "noisy": easy.with_argument("noise_std", 2.0)}, executor="serial")
    >>> improvements(results)["against"]
    ['Uniform']
    """
    columns: Columns = {name: [] for name in ("policy", "against", "probability", "low", "high")}
    for (first, one), (second, other) in combinations(normalised(results, reference, kind).items(), 2):
        both = np.stack([one, other], axis=2)  # the trials are the same instances for both, and are drawn together
        low, high = stratified_bootstrap(both, lambda pair: probability_of_improvement(pair[..., 0], pair[..., 1]))
        _add(columns, first, second, probability_of_improvement(one, other), float(low), float(high))
    return columns


def _add(columns: Columns, *row: str | int | float) -> None:
    for values, value in zip(columns.values(), row, strict=True):
        values.append(value)
