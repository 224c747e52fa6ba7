"""Problems from labelled tables: a row is an agent, a label is an arm, and some columns are hidden."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.finite import PointMass
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.problems.user_tables import FittedProblem, check_lengths, column, names_of, numbers, read_columns
from fedbandit_envs.validation import real_number, whole_number

_HELD_OUT = 0.2  # the part of the rows on which the model is tried
_RIDGE = 1.0  # the penalty of a squared coefficient, where a row's squared error counts once


@dataclass(frozen=True)
class ClassificationFit:
    """How well linear models explain rows that they were not learnt from.

    `from_classification` gives it as `report`. Look at it before you trust results: where the models explain little,
    the best arm of a row is hardly better than the others.
    R^2 is 1 minus the squared error divided by that of the mean: 1 is perfect, 0 is no better than the mean.

    >>> print(ClassificationFit(150, 30, 3, 0.8, 0.333, 0.55, 0.3, 0.71))
    150 rows, 3 labels
    on 30 held-out rows: the linear models choose the right label for 80 % (the most frequent one is right for 33 %)
    they explain R^2 = 0.550 of the rewards; the shown columns explain R^2 = 0.710 of the hidden ones
    """

    rows: int  #: the number of rows
    held_out: int  #: the number of rows on which the models were tried
    num_arms: int  #: the number of labels, K
    accuracy: float  #: the share of the rows whose label has the highest predicted reward
    accuracy_majority: float  #: the share of the rows with the label that is most frequent among the others
    r2: float  #: R^2 of the predicted rewards; a reward is 1 for the right label and 0 for the others
    rmse: float  #: root mean squared error of the predicted rewards
    r2_hidden: float | None  #: how well the shown columns predict the hidden ones; None: nothing is hidden

    def __str__(self) -> str:
        hidden = (
            "nothing is hidden"
            if self.r2_hidden is None
            else f"the shown columns explain R^2 = {self.r2_hidden:.3f} of the hidden ones"
        )
        return (
            f"{self.rows} rows, {self.num_arms} labels\n"
            f"on {self.held_out} held-out rows: the linear models choose the right label for "
            f"{100 * self.accuracy:.0f} % (the most frequent one is right for {100 * self.accuracy_majority:.0f} %)\n"
            f"they explain R^2 = {self.r2:.3f} of the rewards; {hidden}"
        )


def from_classification(
    table: Any,
    *,
    label: str,
    hide: Sequence[str] = (),
    features: Sequence[str] | None = None,
    num_agents: int | None = None,
    noise_std: float | None = None,
    seed: int = 0,
    delimiter: str | None = None,
) -> FittedProblem[ClassificationFit]:
    """A problem from a labelled table: each agent is a row, each arm a label, and some columns are hidden.

    The right label is worth 1 and every other one 0. What the environment pays is not this value itself but its linear
    model: for each label a ridge regression of the value on the columns, which are standardised and joined by a
    constant, gives theta_a, and a pull of arm a pays <theta_a, c> plus Gaussian noise, where c is the row. So rewards
    can lie outside [0, 1], and the best arm of a row need not be its label: the report says how often it is.

    The context of an agent is its whole row. Of the hidden columns the agents know a normal distribution: its mean is
    predicted from the shown columns by linear regression, and its covariance is that of the residuals, the same for
    all rows. The hidden truth is what the table holds, so it follows that distribution only as well as the data do.

    Args:
        table: The path of a csv file with a header, a mapping from names to columns, or any data frame.
        label: The name of the column of labels.
        hide: The names of the hidden columns; none: the agents know their rows.
        features: The names of the columns that make up a context, all of numbers; None: all but the label.
        num_agents: The number of agents, drawn from the rows; None: all rows.
        noise_std: The standard deviation of the rewards' noise; None: the root mean squared error of the linear models
            on held-out rows.
        seed: Draws the held-out rows and the agents.
        delimiter: What separates the fields of a csv file; None: found out from its header.

    Raises:
        ValueError: A column is unknown, has holes, or is no number; there are too few rows or labels.

    >>> rng = np.random.default_rng(0)
    >>> size, weight = rng.normal(size=(2, 300))
    >>> kind = np.where(size + weight > 0, "cat", "mouse")
    >>> table = {"size": size, "weight": weight, "kind": kind}
    >>> problem = from_classification(table, label="kind", hide=["weight"], num_agents=50)
    >>> problem.arms, problem.theta.shape, problem.report.accuracy > 0.9
    ((('cat',), ('mouse',)), (2, 3), True)
    """
    rng = np.random.default_rng(whole_number("seed", seed, at_least=0))
    columns = read_columns(table, delimiter)
    labels = [str(value) for value in column(columns, label, "label")]
    names = [str(name) for name in columns if name != label] if features is None else list(dict.fromkeys(features))
    x = _standardised(columns, label, names, hide)
    arms = names_of(labels)
    check_lengths({label: labels, names[0]: x[:, 1]})
    _check_enough(len(x), x.shape[1], arms)
    right = np.array([[one == arm for arm in arms] for one in labels], dtype=np.float64)  # (rows, K)
    hidden = np.array([1 + names.index(name) for name in dict.fromkeys(hide)], dtype=np.int64)
    report = _tried(x, right, hidden, rng)
    agents = _agents(len(x), num_agents, rng)
    return FittedProblem(
        theta=_ridge(x, right).T,
        contexts=_contexts(x, hidden, agents),
        noise_std=report.rmse if noise_std is None else real_number("noise_std", noise_std, at_least=0),
        arms=tuple((arm,) for arm in arms),
        report=report,
        true_contexts=x[agents],
    )


def _standardised(columns: Any, label: str, names: Sequence[str], hide: Sequence[str]) -> FloatArray:
    """(rows, 1 + columns) a constant 1 and the columns with mean 0 and standard deviation 1."""
    if isinstance(hide, str):
        raise ValueError(f"hide: expected a list of columns, got {hide!r}; use [{hide!r}]")
    for name in hide:
        if name not in names:
            raise ValueError(f"hide: expected columns among {', '.join(names)}, got {name!r}")
    if label in names:
        raise ValueError(f"features: expected columns without the label, got {label!r} among them")
    if not set(names) - set(hide):
        raise ValueError(f"hide: expected at least one column that is shown, got all of {', '.join(names) or 'none'}")
    shown = {name: numbers(columns, name, "features") for name in names}
    check_lengths(shown)
    for name, values in shown.items():
        if values.size and np.ptp(values) == 0:
            raise ValueError(f"column {name!r}: expected values that differ, got one value; leave the column out")
    x = np.stack(list(shown.values()), axis=1)
    if len(x):
        x = (x - x.mean(axis=0)) / x.std(axis=0)
    return np.hstack([np.ones((len(x), 1)), x])


def _check_enough(rows: int, dim: int, arms: Sequence[str]) -> None:
    if len(arms) < 2:
        raise ValueError(f"label: expected at least 2 different labels, got {', '.join(arms) or 'none'}")
    if rows < 2 * dim:
        raise ValueError(
            f"table: expected at least {2 * dim} rows, twice the number of columns and the constant, got {rows}"
        )


def _agents(rows: int, num_agents: int | None, rng: np.random.Generator) -> IntArray:
    """The rows that are agents, in their order: `num_agents` of them, or all."""
    if num_agents is None:
        return np.arange(rows)
    if whole_number("num_agents", num_agents, at_least=1) > rows:
        raise ValueError(f"num_agents: expected at most the {rows} rows there are, got {num_agents}")
    return np.sort(rng.permutation(rows)[:num_agents])


def _ridge(x: FloatArray, y: FloatArray) -> FloatArray:
    """(d, outputs) the coefficients of ridge regressions; the constant, column 0 of x, is not penalised."""
    penalty = np.full(x.shape[1], _RIDGE)
    penalty[0] = 0
    return np.asarray(np.linalg.solve(x.T @ x + np.diag(penalty), x.T @ y), dtype=np.float64)


def _hidden_given_shown(x: FloatArray, hidden: IntArray) -> FloatArray:
    """(d, h) what takes a row to the expected values of its hidden columns; it looks at the shown ones alone."""
    shown = np.delete(np.arange(x.shape[1]), hidden)
    coefficients = np.zeros((x.shape[1], len(hidden)))
    coefficients[shown] = _ridge(x[:, shown], x[:, hidden])
    return coefficients


def _contexts(x: FloatArray, hidden: IntArray, agents: IntArray) -> ContextDistribution:
    """mu of the rows `agents`, learnt from all rows."""
    if not hidden.size:
        return PointMass(x[agents])
    predicted = x @ _hidden_given_shown(x, hidden)
    residuals = x[:, hidden] - predicted
    mean = x.copy()
    mean[:, hidden] = predicted
    covariance = np.zeros((x.shape[1], x.shape[1]))
    covariance[np.ix_(hidden, hidden)] = residuals.T @ residuals / len(x)
    return Gaussian(mean[agents], covariance=covariance)


def _tried(x: FloatArray, right: FloatArray, hidden: IntArray, rng: np.random.Generator) -> ClassificationFit:
    """How well models of the other rows explain held-out rows."""
    order = rng.permutation(len(x))
    test, train = np.split(order, [max(1, round(_HELD_OUT * len(x)))])
    predicted = x[test] @ _ridge(x[train], right[train])
    truth = right[test].argmax(axis=1)
    majority = right[train].sum(axis=0).argmax()
    r2_hidden = None
    if hidden.size:
        guessed = x[test] @ _hidden_given_shown(x[train], hidden)
        r2_hidden = _r2(x[np.ix_(test, hidden)], guessed, x[np.ix_(train, hidden)].mean(axis=0))
    return ClassificationFit(
        rows=len(x),
        held_out=len(test),
        num_arms=right.shape[1],
        accuracy=float(np.mean(predicted.argmax(axis=1) == truth)),
        accuracy_majority=float(np.mean(truth == majority)),
        r2=_r2(right[test], predicted, right[train].mean(axis=0)),
        rmse=float(np.sqrt(np.mean((right[test] - predicted) ** 2))),
        r2_hidden=r2_hidden,
    )


def _r2(truth: FloatArray, predicted: FloatArray, mean: FloatArray) -> float:
    return float(1 - np.sum((truth - predicted) ** 2) / np.sum((truth - mean) ** 2))
