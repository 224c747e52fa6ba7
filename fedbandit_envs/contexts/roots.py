"""Roots of small matrices, in elementwise steps alone, so that they have the same bits on every CPU."""

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.ties import first_largest


def matrix_root(covariance: FloatArray) -> FloatArray:
    """A (m, n, n) with A A^T = covariance (m, n, n), which is positive semi-definite but for rounding.

    This is Cholesky's factorisation with pivots: each column takes the coordinate with the largest variance that is
    left. Singular matrices, too, are factorised without loss. The rows of A keep the order of the coordinates, so A is
    not triangular.

    >>> matrix_root(np.array([[[1.0, 2.0], [2.0, 4.0]]]))
    array([[[1., 0.],
            [2., 0.]]])
    """
    matrices, n, _ = covariance.shape
    rows, root, left = np.arange(matrices), np.zeros(covariance.shape), covariance.copy()
    nothing = n * np.finfo(np.float64).eps * np.einsum("mii->mi", covariance).max(axis=1)  # variance that is rounding
    for column in range(n):
        variances = np.einsum("mii->mi", left)
        pivot = first_largest(variances)
        largest = variances[rows, pivot]
        divisor = np.sqrt(np.where(largest > nothing, largest, np.inf))[:, None]
        # No covariance exceeds the product of the standard deviations, except by rounding.
        most = np.sqrt(variances.clip(min=0))
        entries = np.clip(left[rows, :, pivot] / divisor, -most, most)
        root[:, :, column] = entries
        left -= entries[:, :, None] * entries[:, None, :]
        left[rows, pivot] = left[rows, :, pivot] = 0
    return root


def inverse_root(matrices: FloatArray) -> FloatArray:
    """R (..., q, q), lower triangular, with R^T R = A^-1 for positive definite matrices A (..., q, q).

    R is the inverse of Cholesky's factor of A.

    >>> inverse_root(np.array([[4.0, 2.0], [2.0, 2.0]]))
    array([[ 0.5,  0. ],
           [-0.5,  1. ]])
    """
    q = matrices.shape[-1]
    left, root = matrices.copy(), np.broadcast_to(np.eye(q), matrices.shape).copy()
    for row in range(q):
        scale = np.sqrt(left[..., row, row])[..., None]
        factors = (left[..., row + 1 :, row] / scale)[..., None]
        for side in (left, root):
            side[..., row, :] /= scale
            side[..., row + 1 :, :] -= factors * side[..., None, row, :]
    return root
