"""Roots of small matrices, in elementwise steps alone, so that they have the same bits on every CPU."""

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray
from fedbandit_envs.ties import first_largest

_MOST_SWEEPS = 30  # Jacobi's rotations take 5 to 8 sweeps for matrices of usual size


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
    both = np.empty_like(matrices, shape=(*matrices.shape[:-1], 2 * q))  # in the same order of memory
    both[..., :q], both[..., q:] = matrices, np.eye(q)  # [A | I] becomes [L^T | R]
    for row in range(q):
        scale = np.sqrt(both[..., row, row])[..., None]
        factors = both[..., row + 1 :, row] / scale
        both[..., row, :] /= scale
        both[..., row + 1 :, :] -= factors[..., None] * both[..., None, row, :]
    return both[..., q:].copy(order="K")


def eigen(matrices: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The eigenvalues w (..., n) and eigenvectors Q (..., n, n) of symmetric matrices Q diag(w) Q^T, in no order.

    These are Jacobi's rotations. A matrix whose entries off the diagonal are rounding is left as it is, so that no
    matrix depends on how many rotations another one needs.

    >>> values, vectors = eigen(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> values.round(12)
    array([1., 3.])
    """
    n, left = matrices.shape[-1], matrices.copy()
    vectors = np.broadcast_to(np.eye(n), matrices.shape).copy()
    eps = np.finfo(np.float64).eps
    for _ in range(_MOST_SWEEPS):
        turned = False
        for p in range(n - 1):
            for q in range(p + 1, n):
                off, one, two = left[..., p, q], left[..., p, p], left[..., q, q]
                turn = np.abs(off) > eps * np.sqrt(np.abs(one)) * np.sqrt(np.abs(two))
                if not turn.any():
                    continue
                turned = True
                cosine, sine = _rotation(off, one, two, turn)
                for rows in (np.swapaxes(left, -1, -2), left, np.swapaxes(vectors, -1, -2)):
                    first, second = rows[..., p, :].copy(), rows[..., q, :].copy()
                    rows[..., p, :] = cosine * first - sine * second
                    rows[..., q, :] = sine * first + cosine * second
                left[..., p, q] = left[..., q, p] = np.where(turn, 0, left[..., p, q])
        if not turned:
            break
    return np.einsum("...ii->...i", left).copy(), vectors


def _rotation(off: FloatArray, one: FloatArray, two: FloatArray, turn: BoolArray) -> tuple[FloatArray, FloatArray]:
    """The cosine and sine (..., 1) of the rotation that brings an entry to 0; where none is to `turn`, 1 and 0."""
    half = np.where(turn, (two - one) / np.where(turn, 2 * off, 1), 0)
    tangent = np.where(half < 0, -1, 1) / (np.abs(half) + np.hypot(half, 1))
    tangent = np.where(turn, tangent, 0)
    cosine = 1 / np.sqrt(1 + tangent**2)
    return cosine[..., None], (tangent * cosine)[..., None]
