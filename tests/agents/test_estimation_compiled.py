"""The compiled arithmetic of phased elimination beside numpy's: the same numbers, wherever they come from."""

import numpy as np
import pytest
from compiling import NEEDS_NUMBA
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit_agents.phased import estimation
from fedbandit_agents.phased.estimation import Estimates

pytestmark = NEEDS_NUMBA


@pytest.fixture(scope="module")
def compiled():
    from fedbandit_agents.phased import estimation_compiled

    return estimation_compiled


def drawn(seed, n, k, d, shared, degenerate):
    """Directions and features (n, K, d), and V and theta of each arm, or one for all; some V lack a dimension."""
    rng = np.random.default_rng(seed)
    groups = 1 if shared else k
    psi = rng.normal(size=(n, k, d))
    roots = rng.normal(size=(groups, d, d))
    if degenerate:
        roots[rng.integers(groups), :, -1] = 0
    V = roots @ roots.transpose(0, 2, 1)
    return rng, psi, rng.normal(size=(groups, d)), V


sizes = {
    "seed": st.integers(0, 10**6),
    "n": st.integers(1, 6),
    "k": st.integers(1, 5),
    "d": st.integers(1, 6),
    "shared": st.booleans(),
    "degenerate": st.booleans(),
}


@given(**sizes, scale=st.sampled_from([0.01, 0.3, 2.0]), heard=st.sampled_from([1.0, 0.6, 0.0]))
@settings(max_examples=300, deadline=None)
def test_the_same_arms_survive_and_the_same_are_best(compiled, seed, n, k, d, shared, degenerate, scale, heard):
    rng, psi, theta, V = drawn(seed, n, k, d, shared, degenerate)
    known = np.ones(1, bool) if shared else rng.random(k) < heard
    theta[~known], V[~known] = 0, 0  # as in messages
    active = rng.random((n, k)) < 0.7
    active[np.arange(n), rng.integers(k, size=n)] = True
    arguments = psi, Estimates(theta, V, known), scale, active, rng.integers(k, size=n)
    for ours, numpys in zip(compiled.eliminated(*arguments), estimation.eliminated(*arguments), strict=True):
        assert ours.tobytes() == numpys.tobytes()
        assert ours.dtype == numpys.dtype


@given(**sizes, off=st.sampled_from([0.0, 1e-6, 1e-3]), unit=st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_same_estimates_are_turned(compiled, seed, n, k, d, shared, degenerate, off, unit):
    rng, psi, _, _ = drawn(seed, n, k, d, shared, degenerate)
    squares = 1.0 if unit else estimation.inner_products(psi, psi)
    directions = estimation.unit_vectors(psi) if unit else psi
    theta = rng.normal(size=(n, k, 1)) * psi
    away = off * (rng.random((n, k)) < 0.5)
    theta += away[..., None] * np.abs(theta).max(axis=2, keepdims=True) * rng.normal(size=psi.shape)
    ours, numpys = (module.lengths_and_turns(theta, directions, squares) for module in (compiled, estimation))
    np.testing.assert_allclose(ours[0], numpys[0], rtol=1e-12)
    if off != 1e-6:  # which is so near the limit that the last bits decide
        np.testing.assert_array_equal(ours[1], numpys[1], strict=True)
    assert not ours[1][away == 0].any()


def test_an_estimate_that_overflows_is_no_fault_of_the_program(compiled):
    theta, directions = np.array([[[1e200, np.nan], [np.inf, 1.0]]]), np.full((1, 2, 2), np.sqrt(0.5))
    for module in (compiled, estimation):
        lengths, _ = module.lengths_and_turns(theta, directions)
        assert not np.isfinite(lengths).any()


@pytest.mark.parametrize("scale", [1e-12, 0.3])
def test_ties_are_decided_alike(compiled, scale):
    """Rewards are 0 or 1, and all arms have one psi: estimates tie, and random last bits decide for either arm."""
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        theta = rng.integers(0, 2, size=(4, 2)) * (1 + 1e-15 * rng.normal(size=(4, 2)))
        psi, V = np.tile(rng.random((3, 1, 2)), (1, 4, 1)), np.tile(np.eye(2), (4, 1, 1))
        estimates = Estimates(theta, V, np.ones(4, bool))
        arguments = psi, estimates, scale, rng.random((3, 4)) < 0.9, np.zeros(3, dtype=np.int64)
        ours, numpys = compiled.eliminated(*arguments), estimation.eliminated(*arguments)
        np.testing.assert_array_equal(ours[0], numpys[0])
        np.testing.assert_array_equal(ours[1], numpys[1])
        naive = np.where(arguments[3], estimation.predictions(psi, theta), -np.inf).argmax(axis=1)
        found.append((ours[1] != naive).any())
    assert sum(found) > 20  # there are ties


def test_an_arm_whose_width_is_infinite_survives(compiled):
    # Arm 0 was seen along the first axis only: agent 0 looks that way and knows it is bad, agent 1 knows nothing.
    psi = np.array([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
    theta, V = np.array([[-1.0, 0.0], [1.0, 0.0]]), np.array([np.diag([1e-4, 0.0]), 1e-4 * np.eye(2)])
    active, best = np.ones((2, 2), bool), np.zeros(2, dtype=np.int64)
    kept, found = compiled.eliminated(psi, Estimates(theta, V, np.ones(2, bool)), 1.0, active, best)
    assert kept.tolist() == [[False, True], [True, True]]
    assert found.tolist() == [1, 1]


@given(**sizes)
@settings(max_examples=100, deadline=None)
def test_local_estimates_are_the_same_bit_for_bit(compiled, seed, n, k, d, shared, degenerate):
    rng, psi, _, _ = drawn(seed, n, k, d, shared, degenerate)
    means = rng.normal(size=(n, k)) * (rng.random((n, k)) < 0.7)  # zeros keep a direction
    squares = estimation.inner_products(psi, psi)
    ours, numpys = (module.local_estimate(means, psi, squares) for module in (compiled, estimation))
    assert ours.tobytes() == numpys.tobytes()


@given(**sizes, unequal=st.booleans())
@settings(max_examples=300, deadline=None)
def test_aggregates_are_the_same_but_for_rounding(compiled, seed, n, k, d, shared, degenerate, unequal):
    rng, psi, _, _ = drawn(seed, n, k, d, shared, degenerate)
    if degenerate:
        psi[:, 0] = psi[0, 0]
    e = estimation.unit_vectors(psi)
    weights = rng.integers(0, 4, size=(n, k)) * (10.0 ** rng.integers(9, size=(n, k)) if unequal else 1.0)
    theta = estimation.local_estimate(rng.normal(size=(n, k)), psi, estimation.inner_products(psi, psi))
    for ours, numpys in zip(
        compiled.aggregate(theta, e, weights), estimation.aggregate(theta, e, weights), strict=True
    ):
        assert ours.shape == numpys.shape
        # Clearly regular means a ratio of eigenvalues up to 1e9: that much of the digits may go.
        for arm, expected in zip(ours, numpys, strict=True):
            np.testing.assert_allclose(arm, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_memory_may_lie_in_any_order_and_be_read_only(compiled):
    rng, psi, theta, V = drawn(0, 5, 4, 3, False, False)
    active, known, best = rng.random((5, 4)) < 0.9, np.ones(4, bool), np.zeros(5, dtype=np.int64)
    weights = rng.random((5, 4))

    def turned(array):
        other = np.asfortranarray(array)
        other.setflags(write=False)
        return other

    first = compiled.eliminated(psi, Estimates(theta, V, known), 1.0, active, best)
    estimates = Estimates(*map(turned, (theta, V, known)))
    again = compiled.eliminated(turned(psi), estimates, 1.0, turned(active), turned(best))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(
        compiled.aggregate(psi, psi, weights), compiled.aggregate(*map(turned, (psi, psi, weights))), strict=True
    ):
        assert one.tobytes() == other.tobytes()


def outcome(function, *arguments):
    """What comes of a call: arrays, or the kind of error."""
    try:
        found = function(*arguments)
    except (ValueError, IndexError, np.linalg.LinAlgError) as error:
        return type(error)
    return [array.tolist() for array in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("wrong", ["psi", "theta", "V", "active", "known", "best"])
@pytest.mark.parametrize(
    "change",
    [
        lambda array: array[:1],
        lambda array: array[..., :1],
        lambda array: np.concatenate([array, array]),
        lambda array: array.astype(np.float32) if array.dtype.kind == "f" else array.astype(np.int32),
        lambda array: array * np.nan if array.dtype.kind == "f" else array,
        lambda array: array + np.inf if array.dtype.kind == "f" else array,
        lambda array: array + 7 if array.dtype.kind == "i" else array,
    ],
)
def test_what_does_not_fit_is_left_to_numpy(compiled, wrong, change):
    rng, psi, theta, V = drawn(0, 5, 4, 3, False, False)
    known, active = np.array([True, False, False, False]), rng.random((5, 4)) < 0.5
    active[:, 0], active[0, 0], active[:, 1] = True, False, True  # agent 0 knows none of its arms
    given = {"psi": psi, "theta": theta, "V": V, "active": active, "known": known, "best": np.zeros(5, dtype=np.int64)}
    given[wrong] = change(given[wrong])
    estimates = Estimates(given["theta"], given["V"], given["known"])
    arguments = given["psi"], estimates, 1.0, given["active"], given["best"]
    with np.errstate(all="ignore"):
        assert outcome(compiled.eliminated, *arguments) == outcome(estimation.eliminated, *arguments)


@pytest.mark.parametrize("shape", [(5, 4, 1), (5, 1, 3), (5, 4, 5), (1, 4, 3), (6, 4, 3)])
def test_reports_that_do_not_fit_are_left_to_numpy(compiled, shape):
    rng, psi, _, _ = drawn(0, 5, 4, 3, False, False)
    weights, theta = rng.random((5, 4)), rng.normal(size=shape)
    assert outcome(compiled.aggregate, theta, psi, weights) == outcome(estimation.aggregate, theta, psi, weights)
    turns = (outcome(module.lengths_and_turns, theta, psi) for module in (compiled, estimation))
    assert next(turns) == next(turns)
    squares = estimation.inner_products(psi, psi)
    means = theta[..., 0]
    ours, numpys = (outcome(module.local_estimate, means, psi, squares) for module in (compiled, estimation))
    assert ours == numpys
