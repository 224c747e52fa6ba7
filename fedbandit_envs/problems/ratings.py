"""Problems from any table of ratings: users are contexts, clusters of items are arms."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.problems.context_error import USUAL_STD
from fedbandit_envs.problems.factorisation import balanced, k_means, masked_nmf
from fedbandit_envs.problems.households import households
from fedbandit_envs.problems.user_tables import (
    FittedProblem,
    check_lengths,
    column,
    names_of,
    numbers,
    place_of,
    read_columns,
    refuse,
)
from fedbandit_envs.validation import one_of, real_number, whole_number

_HELD_OUT = 0.1  # the part of the ratings on which the model is tried


@dataclass(frozen=True)
class RatingsFit:
    """How well products of rank d explain ratings that they were not learnt from.

    `from_ratings` gives it as `report`. Compare `rmse` with `rmse_mean`: where they are close, the products explain
    little, and the users of the problem are more alike than those who rated.
    R^2 is 1 minus the squared error divided by that of the mean rating: 1 is perfect, 0 is no better than the mean.

    >>> print(RatingsFit(943, 1682, 100_000, 10_000, 3, 30, 0, 1.115, 0.918, 0.947, 0.2))
    100000 ratings of 1682 items by 943 users
    on 10000 held-out ratings: RMSE 0.918 by rank 3 (R^2 = 0.322), 0.947 by 30 arms (R^2 = 0.279), 1.115 by the mean
    rewards are ratings times 0.2
    """

    users: int  #: the number of users
    items: int  #: the number of items
    ratings: int  #: the number of ratings
    held_out: int  #: the number of ratings on which the model was tried
    dim: int  #: the rank d
    num_arms: int  #: the number of arms, K
    left_out: int  #: users who rated everything 0; they have no context and are no agents
    rmse_mean: float  #: root mean squared error of the mean rating, in the units of the ratings
    rmse: float  #: root mean squared error of the products of rank d
    rmse_arms: float  #: root mean squared error of the arms: each item is rated as the centre of its cluster
    reward_per_rating: float  #: the expected reward of a rating of 1: rewards are rescaled so that none is above 1

    @property
    def r2(self) -> float:
        """R^2 of the products of rank d."""
        return 1 - (self.rmse / self.rmse_mean) ** 2

    @property
    def r2_arms(self) -> float:
        """R^2 of the arms."""
        return 1 - (self.rmse_arms / self.rmse_mean) ** 2

    def __str__(self) -> str:
        gave = "user gave nothing but 0 and is" if self.left_out == 1 else "users gave nothing but 0 and are"
        left_out = f"; {self.left_out} {gave} left out" if self.left_out else ""
        return (
            f"{self.ratings} ratings of {self.items} items by {self.users} users{left_out}\n"
            f"on {self.held_out} held-out ratings: RMSE {self.rmse:.3f} by rank {self.dim} (R^2 = {self.r2:.3f}), "
            f"{self.rmse_arms:.3f} by {self.num_arms} arms (R^2 = {self.r2_arms:.3f}), {self.rmse_mean:.3f} by the mean"
            f"\nrewards are ratings times {self.reward_per_rating:.3g}"
        )


def from_ratings(
    table: Any,
    *,
    user: str,
    item: str,
    rating: str,
    num_arms: int = 30,
    dim: int = 3,
    num_agents: int | None = None,
    hidden: str = "gaussian",
    context_std: float = USUAL_STD,
    noise_std: float | None = None,
    seed: int = 0,
    delimiter: str | None = None,
) -> FittedProblem[RatingsFit]:
    """A problem from a table of ratings, made as the "masked" MovieLens problem is made.

    The ratings, divided by the highest one, are approximated by products of non-negative vectors of length `dim`, one
    for each user and one for each item, learnt from the observed cells alone. The items are clustered by k-means; the
    centres are the arms, and the reward of an arm for a user is the product of their vectors. A user's vector is the
    context that is hidden. The report says how well such products predict ratings that were held out; the problem
    itself is learnt from all ratings. A million ratings take about a minute.

    Args:
        table: The path of a csv file with a header, a mapping from names to columns, or any data frame.
        user: The name of the column of users.
        item: The name of the column of items.
        rating: The name of the column of ratings, which are numbers of at least 0; higher is better.
        num_arms: The number of arms, K.
        dim: The length of the vectors, d.
        num_agents: The number of agents, drawn from the users; None: all users, or as many accounts as users.
        hidden: "gaussian": an agent's context is normal about a user's vector. "household": an agent is an account
            that 2 to 4 users share, and its context is the vector of one of them.
        context_std: The standard deviation of each number of a "gaussian" context. Half of the users have vectors with
            a squared norm below 0.57, whatever the ratings are.
        noise_std: The standard deviation of the rewards' noise; None: how far held-out ratings are from their arm's
            prediction.
        seed: Draws the held-out ratings, the starts of k-means, and the agents.
        delimiter: What separates the fields of a csv file; None: found out from its header.

    Raises:
        ValueError: A column is unknown or has holes, a rating is no number or below 0, a user rated an item twice, or
            there are too few ratings or items.

    >>> rng = np.random.default_rng(0)
    >>> user, item = np.divmod(rng.permutation(2000)[:1500], 40)
    >>> stars = 1 + (user % 2 == item % 2) * 3 + rng.integers(2, size=1500)
    >>> table = {"user": user, "film": item, "stars": stars}
    >>> problem = from_ratings(table, user="user", item="film", rating="stars", num_arms=2, dim=2)
    >>> problem.theta.shape, problem.contexts.num_agents, problem.report.r2 > 0.8
    ((2, 2), 50, True)
    """
    whole_number("num_arms", num_arms, at_least=2)
    whole_number("dim", dim, at_least=1)
    one_of("hidden", hidden, ("gaussian", "household"))
    real_number("context_std", context_std, at_least=0)
    rng = np.random.default_rng(whole_number("seed", seed, at_least=0))
    cells = _cells(read_columns(table, delimiter), user, item, rating)
    _check_enough(cells, num_arms, dim)
    users, items = balanced(*cells.factors(dim, np.ones(len(cells.rating), dtype=bool)))
    errors = _held_out_errors(cells, num_arms, dim, rng)
    theta, cluster = k_means(items.T, _enough_items(items.T, num_arms), rng)
    present = np.flatnonzero(users.any(axis=1))
    scale = max(1.0, (users @ theta.T).max())
    report = _report(cells, num_arms, dim, len(users) - len(present), errors, scale)
    usual_noise = report.rmse_arms / cells.highest / scale
    return FittedProblem(
        theta / scale,
        _contexts(users[present], hidden, context_std, num_agents, rng),
        usual_noise if noise_std is None else real_number("noise_std", noise_std, at_least=0),
        tuple(tuple(cells.items[i] for i in np.flatnonzero(cluster == arm)) for arm in range(num_arms)),
        report,
    )


@dataclass(frozen=True, eq=False)
class _Cells:
    """The observed cells of the matrix of ratings."""

    users: list[str]
    items: list[str]
    user: IntArray  # (n,) the number of the user of each rating
    item: IntArray  # (n,)
    rating: FloatArray  # (n,)

    @property
    def highest(self) -> float:
        return float(self.rating.max())

    def factors(self, dim: int, learnt: BoolArray) -> tuple[FloatArray, FloatArray]:
        """The factors of users (users, d) and items (d, items) of the ratings that `learnt` (n,) selects."""
        from scipy.sparse import csr_array

        places = (self.user[learnt], self.item[learnt])
        shape = (len(self.users), len(self.items))
        return masked_nmf(csr_array((self.rating[learnt] / self.highest, places), shape=shape), dim)


def _cells(columns: Any, user: str, item: str, rating: str) -> _Cells:
    """The cells of a table, each of them once."""
    named = {"user": user, "item": item, "rating": rating}
    found = {meaning: column(columns, name, meaning) for meaning, name in named.items()}
    check_lengths({name: found[meaning] for meaning, name in named.items()})
    values = numbers(columns, rating, "rating")
    if values.size == 0:
        raise ValueError("table: expected ratings, got no rows")
    negative = [
        (int(row) + 1, f"expected a rating of at least 0, got {values[row]:g}") for row in np.flatnonzero(values < 0)
    ]
    refuse(columns, f"column {rating!r}", negative, remedy="subtract the lowest rating first")
    if values.max() == values.min():
        raise ValueError(f"column {rating!r}: expected ratings that differ, got {values.max():g} everywhere")
    users, items = names_of(found["user"]), names_of(found["item"])
    row, place = ({name: number for number, name in enumerate(names)} for names in (users, items))
    seen: dict[tuple[str, str], int] = {}
    again = []
    for number, pair in enumerate(zip(map(str, found["user"]), map(str, found["item"]), strict=True), start=1):
        if seen.setdefault(pair, number) != number:
            got = f"another for user {pair[0]!r}, item {pair[1]!r} of {place_of(columns, seen[pair])}"
            again.append((number, f"expected one rating for each user and item, got {got}"))
    refuse(columns, "table", again, remedy="keep one, or their mean")
    user_numbers, item_numbers = np.array([(row[one], place[other]) for one, other in seen]).T
    return _Cells(users, items, user_numbers, item_numbers, values)


def _check_enough(cells: _Cells, num_arms: int, dim: int) -> None:
    if len(cells.items) < num_arms:
        raise ValueError(f"num_arms: expected at most the {len(cells.items)} items there are, got {num_arms}")
    unknowns = dim * (len(cells.users) + len(cells.items))
    if len(cells.rating) < unknowns:
        raise ValueError(
            f"table: expected at least {unknowns} ratings, which is dim times the number of users and items, got "
            f"{len(cells.rating)}; lower dim, or drop users and items with few ratings"
        )


def _enough_items(items: FloatArray, num_arms: int) -> int:
    """`num_arms`, if the items have at least that many different vectors."""
    different = len(np.unique(items, axis=0))
    if different < num_arms:
        raise ValueError(f"num_arms: expected at most {different}, as many as items that differ, got {num_arms}")
    return num_arms


def _num_held_out(cells: _Cells) -> int:
    return max(1, round(_HELD_OUT * len(cells.rating)))


def _held_out_errors(cells: _Cells, num_arms: int, dim: int, rng: np.random.Generator) -> tuple[float, float, float]:
    """Root mean squared errors on held-out ratings: of the mean, of products of rank d, and of the arms."""
    held_out = np.zeros(len(cells.rating), dtype=bool)
    held_out[rng.permutation(len(cells.rating))[: _num_held_out(cells)]] = True
    users, items = cells.factors(dim, ~held_out)
    centres, cluster = k_means(items.T, min(num_arms, len(np.unique(items, axis=1).T)), rng)
    user, item, truth = cells.user[held_out], cells.item[held_out], cells.rating[held_out]
    mean = cells.rating[~held_out].mean()
    # Nothing is known of a user or an item whose ratings are all held out: there the mean is predicted.
    unseen = ~np.isin(user, cells.user[~held_out]) | ~np.isin(item, cells.item[~held_out])

    def rmse(predicted: FloatArray | float) -> float:
        return float(np.sqrt(np.mean((truth - np.where(unseen, mean, predicted)) ** 2)))

    of_items = cells.highest * (users[user] * items.T[item]).sum(axis=1)
    of_arms = cells.highest * (users[user] * centres[cluster[item]]).sum(axis=1)
    return rmse(mean), rmse(of_items), rmse(of_arms)


def _report(
    cells: _Cells, num_arms: int, dim: int, left_out: int, errors: tuple[float, float, float], scale: float
) -> RatingsFit:
    """The report; `errors` are those of `_held_out_errors`, and rewards are divided by `scale`."""
    rmse_mean, rmse, rmse_arms = errors
    return RatingsFit(
        users=len(cells.users),
        items=len(cells.items),
        ratings=len(cells.rating),
        held_out=_num_held_out(cells),
        dim=dim,
        num_arms=num_arms,
        left_out=left_out,
        rmse_mean=rmse_mean,
        rmse=rmse,
        rmse_arms=rmse_arms,
        reward_per_rating=1 / cells.highest / scale,
    )


def _contexts(
    users: FloatArray, hidden: str, context_std: float, num_agents: int | None, rng: np.random.Generator
) -> ContextDistribution:
    agents = len(users) if num_agents is None else whole_number("num_agents", num_agents, at_least=1)
    if hidden == "household":
        if len(users) < 4:
            raise ValueError(f"hidden: expected at least 4 users for 'household', got {len(users)}")
        return households(users, agents, rng)
    if agents > len(users):
        raise ValueError(f"num_agents: expected at most the {len(users)} users there are, got {num_agents}")
    chosen = np.arange(len(users)) if num_agents is None else np.sort(rng.permutation(len(users))[:agents])
    return Gaussian(users[chosen], std=context_std)
