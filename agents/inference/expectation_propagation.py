"""Expectation propagation: what one agent's rewards say about theta when its context is one of finitely many.

Which context it is, is not known, so that the rewards of all arms together say it, and what they say about each theta_a
is a mixture of Gaussians. The mixture is replaced by one Gaussian with the same mean and covariance. An agent's site is
the factor by which that Gaussian differs from what all others say about theta_a, its cavity. The product of the prior
and the sites of all agents is the estimate of theta.

A mixture can be wider than the cavity in some direction. A site would then take away what others know. Here it takes
away nothing: in such directions it moves the mean and leaves the precision. All cavities are therefore proper.
"""

from dataclasses import dataclass

import numpy as np

from fedbandit_agents.inference.sums import sums_of_others
from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.roots import eigen, inverse_root

# A site says at most this many times what the cavity says. More could not be distinguished from rounding.
_MOST = 1e12


@dataclass(frozen=True, eq=False)
class Information:
    """What is known about vectors theta: factors exp(shift^T theta - theta^T precision theta / 2).

    Factors of independent sources multiply, so their precisions and shifts add up. Where the precision is positive
    definite the factor is a Gaussian.

    >>> known = Information(np.array([[4.0]]), np.array([2.0]))
    >>> mean, root = known.moments()
    >>> mean, root**2  # shift / precision, and the variance
    (array([0.5]), array([[0.25]]))
    """

    precision: FloatArray  #: (..., d, d) symmetric and positive semi-definite
    shift: FloatArray  #: (..., d) the precision times the mean

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """The mean (..., d), and R (..., d, d), lower triangular, with R^T R the covariance."""
        root = inverse_root(self.precision)
        return np.einsum("...xd,...x->...d", root, np.einsum("...xe,...e->...x", root, self.shift)), root

    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The mean and the variance (n, S, K) of <theta_a, features>, for features (n, S, K, d)."""
        mean, root = self.moments()
        spread = np.einsum("naxd,nsad->nsax", root, features)
        return np.einsum("nsad,nad->nsa", features, mean), np.einsum("nsax,nsax->nsa", spread, spread)


def site(
    cavity: Information,
    features: FloatArray,
    log_weights: FloatArray,
    means: FloatArray,
    precision: FloatArray,
    doubt: FloatArray | float = -np.inf,
) -> Information:
    """What the mean rewards of n agents say about each theta_a, given what all others say.

    Args:
        cavity: what the others say about theta_a, for each agent and arm (n, K).
        features: the features in each of the S contexts that are possible, (n, S, K, d).
        log_weights: the logarithms of their probabilities, (n, S).
        means: the mean rewards, (n, K).
        precision: the precision of the mean rewards about their truth, (n, K); 0 for arms that were not pulled.
        doubt: the logarithm of the probability that it is none of these contexts, times the density of the mean rewards
            in that case, (n,). Nothing is then said about theta. The density is divided by that of N(0, 1 / precision)
            at 0. Minus infinity: there is no doubt.

    >>> cavity = Information(np.ones((1, 1, 1, 1)), np.zeros((1, 1, 1)))  # theta ~ N(0, 1)
    >>> own = site(cavity, np.full((1, 1, 1, 1), 2.0), np.zeros((1, 1)), np.array([[3.0]]), np.array([[0.5]]))
    >>> own.precision.round(12).item(), own.shift.round(12).item()  # one context: 0.5 * 2^2 and 0.5 * 2 * 3
    (2.0, 3.0)
    """
    mean, root = cavity.moments()
    u = np.einsum("naxd,nsad->nsax", root, features)  # features in units in which the cavity is N(0, I)
    growth = 1 + precision[:, None] * np.einsum("nsax,nsax->nsa", u, u)
    residual = means[:, None] - np.einsum("nsad,nad->nsa", features, mean)
    expected = precision[:, None] / growth  # the precision of the mean reward before theta is known
    gain = expected * residual
    fit = log_weights - 0.5 * (gain * residual + np.log(growth)).sum(axis=2)  # (n, S)
    most = np.maximum(fit.max(axis=1), doubt)[:, None]
    chances = np.exp(fit - most)
    chances = (chances / (chances.sum(axis=1, keepdims=True) + np.exp(np.reshape(doubt, (-1, 1)) - most)))[..., None]
    # The covariance of the mixture is I - lost; `lost` has negative eigenvalues where it is wider than the cavity.
    centre = np.einsum("nsa,nsax->nax", chances * gain, u)
    weighted = (chances * (expected - gain**2))[..., None] * u
    lost = np.einsum("nsax,nsay->naxy", weighted, u) + centre[..., None] * centre[..., None, :]
    values, vectors = eigen(lost)
    left = np.maximum(1 - values.clip(min=0), 1 / _MOST)
    # The site in the same units: its precision is (I - lost)^-1 - I, its shift (I - lost)^-1 times the centre.
    gained = np.einsum("naxk,nak->naxk", vectors, (1 - left) / left)
    gained = np.einsum("naxk,nayk->naxy", gained, vectors)
    moved = np.einsum("naxk,nak->nax", vectors, np.einsum("naxk,nax->nak", vectors, centre) / left)
    back = _triangular_inverse(root)
    gained = np.einsum("nadx,naex->nade", np.einsum("nady,nayx->nadx", back, gained), back)
    gained = (gained + np.swapaxes(gained, -1, -2)) / 2
    shift = np.einsum("nadx,nax->nad", back, moved) + np.einsum("nade,nae->nad", gained, mean)
    return Information(gained, shift)


def leave_one_out(prior: Information, sites: Information) -> Information:
    """What is known without the site of each agent: the prior and the sites of all others, (M, K).

    >>> sites = Information(np.array([1.0, 2.0, 4.0]).reshape(3, 1, 1, 1), np.zeros((3, 1, 1)))
    >>> leave_one_out(Information(np.eye(1), np.zeros(1)), sites).precision.ravel()
    array([7., 6., 4.])
    """
    others = sums_of_others(sites.precision, 0), sums_of_others(sites.shift, 0)
    return Information(prior.precision + others[0], prior.shift + others[1])


def upper_triangles(matrices: FloatArray) -> FloatArray:
    """The upper triangles (..., d (d + 1) / 2) of symmetric matrices (..., d, d).

    >>> upper_triangles(np.array([[1.0, 2.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    """
    return matrices[..., *np.triu_indices(matrices.shape[-1])]


def full(triangles: FloatArray, d: int) -> FloatArray:
    """The symmetric matrices (..., d, d) with these upper triangles.

    >>> full(np.array([1.0, 2.0, 3.0]), 2)
    array([[1., 2.],
           [2., 3.]])
    """
    rows, columns = np.triu_indices(d)
    matrices = np.empty((*triangles.shape[:-1], d, d))
    matrices[..., rows, columns] = matrices[..., columns, rows] = triangles
    return matrices


def _triangular_inverse(root: FloatArray) -> FloatArray:
    """The inverses of lower triangular matrices (..., d, d), in elementwise steps."""
    d = root.shape[-1]
    inverse = np.zeros(root.shape)
    for row in range(d):
        inverse[..., row, :] = -np.einsum("...k,...kd->...d", root[..., row, :row], inverse[..., :row, :])
        inverse[..., row, row] += 1
        inverse[..., row, :] /= root[..., row, row, None]
    return inverse
