import numpy as np
import pytest

from fedbandit_envs.contexts import quadrature
from fedbandit_envs.contexts.roots import eigen, inverse_root, matrix_root


def product(root):
    return np.einsum("mij,mkj->mik", root, root)


@pytest.mark.parametrize("rank", range(6))
def test_a_root_of_any_rank_gives_the_covariance_back_in_the_units_of_each_coordinate(rank):
    rng = np.random.default_rng(rank)
    vectors = rng.normal(size=(40, 5, rank)) * 10 ** rng.uniform(-4, 1, size=(40, 5, 1))  # std from 1e-4 to 10
    covariance = product(vectors)
    root = matrix_root(covariance)
    scale = np.sqrt(np.einsum("mii->mi", covariance))
    error = np.abs(product(root) - covariance)
    assert (error <= 1e-11 * scale[:, :, None] * scale[:, None]).all()
    assert not root[:, :, rank:].any()


def test_coordinates_that_are_almost_equal_do_not_spoil_the_others():
    vectors = np.array([[[1.0, 0.0], [1.0, 1e-7], [0.5, 1.0]]])  # without pivots the last variance is 1 % off
    np.testing.assert_allclose(product(matrix_root(product(vectors))), product(vectors), rtol=0, atol=1e-15)


def test_an_eigenvalue_below_zero_by_rounding_adds_no_more_than_rounding():
    covariance = np.array([[[1.0, 0.0, 0.0], [0.0, 1e-12, 1e-10], [0.0, 1e-10, 0.0]]])  # least eigenvalue -1e-10
    assert np.abs(product(matrix_root(covariance)) - covariance).max() <= 1.0001e-10


def test_variances_that_are_equal_but_for_rounding_are_taken_in_order():
    correlated = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.3], [0.2, 0.3, 1.0]])
    nudged = correlated + np.diag([0, 4e-16, 8e-16])
    np.testing.assert_allclose(matrix_root(nudged[None]), matrix_root(correlated[None]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("nodes", quadrature._NODES_PER_AXIS.values())
def test_the_hermite_rule_is_numpys(nodes):
    zeros, weights = quadrature._hermite_line(nodes)
    expected, unscaled = np.polynomial.hermite_e.hermegauss(nodes)
    np.testing.assert_allclose(zeros, expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(weights, unscaled / unscaled.sum(), rtol=1e-12)
    assert weights.sum() == pytest.approx(1, abs=1e-14)


def test_points_of_many_dimensions_have_covariance_one():
    points, weights = quadrature.standard_normal_rule(7)
    np.testing.assert_allclose(np.einsum("s,si,sj->ij", weights, points, points), np.eye(7), rtol=0, atol=1e-13)


@pytest.mark.parametrize("q", [0, 1, 2, 5])
def test_an_inverse_root_is_the_inverse_of_the_triangular_factor(q):
    vectors = np.random.default_rng(q).normal(size=(4, 3, q, q))
    matrices = np.eye(q) + np.einsum("...ij,...kj->...ik", vectors, vectors)
    kept, root = matrices.copy(), inverse_root(matrices)
    np.testing.assert_allclose(root, np.linalg.inv(np.linalg.cholesky(matrices)), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(matrices, kept)


@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_eigenvalues_and_vectors_are_right_and_those_of_one_matrix_do_not_depend_on_others(n):
    roots = np.random.default_rng(n).normal(size=(30, n, n))
    matrices = roots + roots.swapaxes(1, 2)
    matrices[0], matrices[1] = np.eye(n), 0
    values, vectors = eigen(matrices)
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(matrices), atol=1e-12)
    np.testing.assert_allclose(np.einsum("mik,mk,mjk->mij", vectors, values, vectors), matrices, atol=1e-12)
    np.testing.assert_allclose(np.einsum("mik,mjk->mij", vectors, vectors), np.tile(np.eye(n), (30, 1, 1)), atol=1e-12)
    for row in range(30):
        alone = eigen(matrices[row : row + 1])
        np.testing.assert_array_equal(alone[0][0], values[row])
        np.testing.assert_array_equal(alone[1][0], vectors[row])
