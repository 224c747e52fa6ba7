"""Ridge regression of many agents at once: the statistics, their updates, and the choice of an arm.

Theta may be common to all arms or not. With a theta for each arm everything has a block for each arm, B = K; with a
common theta there is one block, B = 1, to which all arms belong. All arrays have agents as their first axis, and no row
depends on another.
"""

from typing import NamedTuple

import numpy as np

from fedbandit_envs.arrays import ROWS, FloatArray, IntArray, row_groups
from fedbandit_envs.contexts.roots import inverse_root
from fedbandit_envs.ties import first_largest, rounding


class Ridge(NamedTuple):
    """What n agents know: V = lambda I + sum x x^T and b = sum x y, for each block.

    V is kept as its inverse and the logarithm of its determinant, which rank-one updates change without any
    decomposition. The estimate is theta = V^-1 b.

    >>> ridge = start(num_agents=1, blocks=1, dim=2, regularisation=1.0)
    >>> growth = learn(ridge, np.array([0]), np.array([[1.0, 0.0]]), np.array([1]), np.array([1.0]))
    >>> ridge.theta()[0, 0], float(np.exp(growth)[0])
    (array([0.5, 0. ]), 2.0)
    """

    inverse: FloatArray  #: (n, B, d, d) V^-1
    moments: FloatArray  #: (n, B, d) b
    growth: FloatArray  #: (n, B) ln det V - ln det(lambda I)

    def theta(self) -> FloatArray:
        """The estimates V^-1 b, (n, B, d)."""
        return np.einsum("nbde,nbe->nbd", self.inverse, self.moments)


def start(num_agents: int, blocks: int, dim: int, regularisation: float) -> Ridge:
    """What agents know who have seen nothing: V = lambda I and b = 0.

    >>> start(num_agents=2, blocks=3, dim=4, regularisation=1.0).inverse.shape
    (2, 3, 4, 4)
    """
    inverse = np.broadcast_to(np.eye(dim) / regularisation, (num_agents, blocks, dim, dim)).copy()
    return Ridge(inverse, np.zeros((num_agents, blocks, dim)), np.zeros((num_agents, blocks)))


def from_sums(gram: FloatArray, moments: FloatArray, regularisation: float) -> Ridge:
    """What agents know who have these sums of x x^T (n, B, d, d) and of x y (n, B, d).

    Sums that are common to all agents may have n = 1; `for_agents` gives each agent a copy. Where V = lambda I + sum is
    not positive definite, which takes noise or false reports, its eigenvalues below lambda are taken for lambda.

    >>> from_sums(np.array([[[[3.0]]]]), np.array([[[2.0]]]), regularisation=1.0).theta()
    array([[[0.5]]])
    """
    dim = gram.shape[-1]
    V = gram + regularisation * np.eye(dim)
    try:
        np.linalg.cholesky(V)
        inverse = np.asarray(np.linalg.inv(V), dtype=np.float64)
    except np.linalg.LinAlgError:
        V = _lifted(V, regularisation)
        inverse = np.asarray(np.linalg.inv(V), dtype=np.float64)
    growth = np.linalg.slogdet(V)[1] - dim * np.log(regularisation)
    return Ridge((inverse + inverse.swapaxes(-1, -2)) / 2, moments.copy(), growth)


def _lifted(V: FloatArray, least: float) -> FloatArray:
    """The matrices (n, B, d, d), where those that are not positive definite have no eigenvalue below `least`.

    No eigenvalue is below a tiny part of the largest either, so that each has an inverse.
    """
    lifted = V.copy()
    for place in np.ndindex(V.shape[:2]):
        try:
            np.linalg.cholesky(V[place])
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh((V[place] + V[place].T) / 2)
            values = np.maximum(values, max(least, 1e-12 * float(np.abs(values).max())))
            lifted[place] = np.einsum("ij,j,kj->ik", vectors, values, vectors)
    return lifted


def from_scaled_sums(gram: FloatArray, ratio: FloatArray) -> FloatArray:
    """(G + ratio I)^-1 for sums G (n, B, d, d), with a ratio (n, 1) for each agent, in elementwise steps alone.

    >>> from_scaled_sums(np.array([[[[3.0]]]]), np.array([[1.0]]))
    array([[[[0.25]]]])
    """
    root = inverse_root(gram + ratio[..., None, None] * np.eye(gram.shape[-1]))
    return np.einsum("nbxd,nbxe->nbde", root, root)


def for_agents(ridge: Ridge, num_agents: int) -> Ridge:
    """A copy of what is common (n = 1) for each of `num_agents` agents.

    >>> for_agents(start(1, blocks=1, dim=2, regularisation=1.0), 5).moments.shape
    (5, 1, 2)
    """
    return Ridge(*(np.repeat(array, num_agents, axis=0) for array in ridge))


def learn(
    ridge: Ridge, block: IntArray, x: FloatArray, pulls: IntArray | FloatArray, rewards: FloatArray
) -> FloatArray:
    """Add observations to what each agent knows, in place; gives by how much ln det V has grown, (n,).

    It is the update of Sherman and Morrison: V^-1 -= u u^T / (1 + q) with u = V^-1 x and q = x^T u.

    Args:
        ridge: what the agents know.
        block: (n,) the block of each agent's regressor: the arm that it pulled, or 0 where theta is common.
        x: (n, d) the regressors.
        pulls: (n,) how many observations have this regressor; or their total weight, in a weighted regression.
        rewards: (n,) the sum of these observations, with the same weights.
    """
    rows = np.arange(len(x))
    inverse = ridge.inverse[rows, block]
    u = np.einsum("nde,ne->nd", inverse, x)
    q = pulls * np.einsum("nd,nd->n", x, u)
    inverse -= (pulls / (1 + q))[:, None, None] * (u[:, :, None] * u[:, None, :])
    ridge.inverse[rows, block] = inverse
    ridge.moments[rows, block] += x * rewards[:, None]
    growth = np.log1p(q)
    ridge.growth[rows, block] += growth
    return growth


def predictions(ridge: Ridge, psi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The expected rewards psi^T theta and the lengths ||psi||_{V^-1} of all arms, (n, K) each, for psi (n, K, d).

    >>> ridge = start(num_agents=1, blocks=1, dim=2, regularisation=4.0)
    >>> predictions(ridge, np.array([[[3.0, 4.0], [0.0, 2.0]]]))[1]
    array([[2.5, 1. ]])
    """
    means = np.einsum("nkd,nkd->nk", psi, np.broadcast_to(ridge.theta(), psi.shape))
    common = ridge.inverse.shape[1] == 1  # then there is one product for each agent, which is faster
    u = psi @ ridge.inverse[:, 0] if common else np.einsum("nkde,nke->nkd", ridge.inverse, psi)
    return means, np.sqrt(np.maximum(np.einsum("nkd,nkd->nk", psi, u), 0))


def choose(ridge: Ridge, psi: FloatArray, width: FloatArray | float) -> IntArray:
    """The arm with the largest upper confidence bound psi^T theta + width ||psi||_{V^-1}, (n,).

    Bounds that are equal but for rounding go to the first arm.

    Args:
        ridge: what the agents know.
        psi: (n, K, d) the expected features of the arms, also where the regressors were revealed ones.
        width: the confidence width: a number, (n, 1) or (n, K).

    >>> ridge = start(num_agents=1, blocks=1, dim=2, regularisation=1.0)
    >>> choose(ridge, np.array([[[0.5, 0.0], [0.0, 0.5], [1.0, 0.0]]]), 2.0)
    array([2])
    """
    if len(psi) <= ROWS:
        return _chosen(ridge, psi, width)
    widths = np.broadcast_to(width, psi.shape[:2])
    groups = row_groups(len(psi))
    return np.concatenate([_chosen(Ridge(*(part[rows] for part in ridge)), psi[rows], widths[rows]) for rows in groups])


def _chosen(ridge: Ridge, psi: FloatArray, width: FloatArray | float) -> IntArray:
    """`choose` for all agents at once, which takes more memory than psi."""
    means, lengths = predictions(ridge, psi)
    bonus = width * lengths
    return first_largest(means + bonus, rounding(np.abs(means) + bonus))
