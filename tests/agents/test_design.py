"""The multi-agent G-optimal design: its certificate, its steps, its degenerate cases, and rounding."""

from __future__ import annotations

import cvxpy
import numpy as np
import pytest
from designs import KINDS, assert_proved, objective, random_problem, special_problem, synthetic_directions, unit
from first_order import block_sweep, multiplicative_step
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbandit_envs as fb
from fedbandit_agents.phased.design import allocate, g_optimal, uniform
from fedbandit_agents.phased.design_problem import gap_of, log_det, whiten


@pytest.mark.parametrize("gap", [0.1, 1e-3, 1e-7])
@pytest.mark.parametrize("seed", range(4))
def test_certificate_recomputed_from_the_definition_is_the_one_reported(seed, gap):
    directions, active = random_problem(seed, m=20, k=5)
    assert_proved(g_optimal(directions, active, gap=gap), directions, active, gap)


@pytest.mark.parametrize("seed", range(3))
def test_design_agrees_with_a_general_convex_solver(seed):
    directions, active = random_problem(seed, m=8, k=3, d=2, density=0.8)
    active[:3] = True
    weights = cvxpy.Variable(active.shape, nonneg=True)
    f = sum(
        cvxpy.log_det(directions[:, a].T @ cvxpy.diag(weights[:, a]) @ directions[:, a]) for a in range(active.shape[1])
    )
    constraints = [cvxpy.sum(weights, axis=1) == 1, weights[~active] == 0]
    problem = cvxpy.Problem(cvxpy.Maximize(f), constraints)
    problem.solve(solver="CLARABEL")
    ours = g_optimal(directions, active, gap=1e-7)
    assert objective(directions, active, ours.pi) == pytest.approx(problem.value, abs=1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_block_and_multiplicative_steps_agree_with_the_solver(seed):
    directions, active = random_problem(seed, m=8, k=3, d=2)
    problem, _, _ = whiten(directions, active)
    best = log_det(problem.information(g_optimal(directions, active, gap=1e-7).pi.T))
    start = uniform(active).T
    for step, repeats in ((block_sweep, 200), (multiplicative_step, 2000)):
        pi = start
        for _ in range(repeats):
            pi = step(problem, pi)
        assert log_det(problem.information(pi)) == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize("step", [block_sweep, multiplicative_step])
@given(seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_steps_keep_rows_on_the_simplex_and_never_lower_f(step, seed):
    directions, active = random_problem(seed, m=6, k=4, d=2)
    problem, _, _ = whiten(directions, active)
    pi = uniform(active).T
    for _ in range(5):
        after = step(problem, pi)
        assert after.sum(0) == pytest.approx(np.ones(6))
        assert np.all(after[~problem.active] == 0)
        assert np.all(after >= 0)
        assert log_det(problem.information(after)) >= log_det(problem.information(pi)) - 1e-12
        pi = after


def test_block_step_is_the_exact_maximiser_over_one_agent():
    # One agent free between two arms of which another agent holds 1 each: max log(1 + p) + log(1 + 1 - p) at p = 1/2,
    # and with 3 agents on the first arm, max log(3 + p) + log(1 + 1 - p) at p = 0.
    for holders, expected in ((1, 0.5), (3, 0.0)):
        active = np.array([[True, True]] + [[True, False]] * holders + [[False, True]])
        problem, _, _ = whiten(np.ones((len(active), 2, 1)), active)
        assert block_sweep(problem, uniform(active).T)[0, 0] == pytest.approx(expected)


def test_block_sweep_refuses_a_shared_matrix():
    problem, _, _ = whiten(np.ones((2, 2, 1)), np.ones((2, 2), bool), shared=True)
    with pytest.raises(ValueError, match="one matrix per arm"):
        block_sweep(problem, np.full((2, 2), 0.5))


@pytest.mark.parametrize("seed", range(4))
def test_f_never_falls_from_one_iteration_to_the_next(seed):
    directions, active = random_problem(seed, m=15, k=4, d=3)
    problem, _, _ = whiten(directions, active)
    start = g_optimal(directions, np.ones_like(active), gap=1e-4).pi
    for warm in (None, start):
        values = [
            log_det(problem.information(g_optimal(directions, active, gap=1e-6, max_iterations=n, start=warm).pi.T))
            for n in range(12)
        ]
        assert np.all(np.diff(values) >= -1e-11)


def test_iteration_limit_is_said():
    design = g_optimal(*random_problem(0), gap=1e-6, max_iterations=1)
    assert (design.stopped, design.iterations) == ("iterations", 1)
    assert design.gap > 1e-6


def test_first_order_solver_for_large_problems_reaches_the_same_optimum(monkeypatch):
    monkeypatch.setattr("fedbandit_agents.phased.design._LARGEST_SYSTEM", 0)
    directions, active = random_problem(1, m=20, k=5)
    design = g_optimal(directions, active, gap=1e-2)
    assert_proved(design, directions, active, 1e-2)
    assert design.iterations > 10


class TestDegenerate:
    """The degenerate cases that phases lead to, and worse ones."""

    def test_arm_active_for_one_agent_has_variance_one_over_its_weight(self):
        directions = unit(np.random.default_rng(0).standard_normal((3, 2, 2)))
        active = np.array([[True, True], [False, True], [False, True]])
        design = g_optimal(directions, active, gap=1e-7)
        assert_proved(design, directions, active, 1e-7)
        assert design.dimension == 3

    def test_agents_with_one_arm_give_it_all_their_weight(self):
        directions, active = random_problem(3)
        active[0] = [False, True, False, False]
        assert g_optimal(directions, active).pi[0].tolist() == [0.0, 1.0, 0.0, 0.0]

    def test_nothing_to_choose_needs_no_iteration(self):
        directions, _ = random_problem(0)
        active = np.eye(6, 4, dtype=bool)
        active[4:, 1] = True
        design = g_optimal(directions, active)
        assert (design.stopped, design.iterations, design.gap) == ("trivial", 0, 0.0)
        assert_proved(design, directions, active, 1e-9)

    def test_arm_active_for_nobody_is_left_out(self):
        directions, active = random_problem(2, density=1)
        active[:, 2] = False
        design = g_optimal(directions, active, gap=1e-6)
        assert_proved(design, directions, active, 1e-6)
        assert design.dimension == 9

    @pytest.mark.parametrize(("m", "k", "d"), [(1, 1, 1), (1, 4, 3), (5, 1, 3), (6, 4, 1), (2, 3, 7)])
    def test_smallest_sizes(self, m, k, d):
        directions, active = random_problem(0, m, k, d, density=1)
        design = g_optimal(directions, active, gap=1e-7)
        assert_proved(design, directions, active, 1e-7)
        assert design.dimension == k * min(m, d)

    def test_identical_directions_have_rank_one_and_are_solved_by_equal_totals(self):
        directions = np.tile(unit(np.ones(3)), (6, 3, 1))
        active = np.ones((6, 3), bool)
        design = g_optimal(directions, active, gap=1e-7)
        assert_proved(design, directions, active, 1e-7)
        assert design.dimension == 3
        assert design.pi.sum(0) == pytest.approx([2, 2, 2], abs=1e-3)

    @pytest.mark.parametrize("tilt", [0, 1e-9, 1e-7, 3e-6, 1e-5, 1e-4, 1e-2])
    def test_collinear_and_nearly_collinear_directions(self, tilt):
        rng = np.random.default_rng(1)
        directions = unit(np.array([1.0, 0, 0]) + tilt * rng.standard_normal((9, 4, 3)))
        active = np.ones((9, 4), bool)
        design = g_optimal(directions, active, gap=1e-5)
        assert_proved(design, directions, active, 1e-5)
        if tilt != 3e-6:  # at the tolerance itself either answer is right, as long as it is one answer
            assert design.dimension == (12 if tilt >= 1e-5 else 4)

    def test_directions_of_any_length_give_the_same_design_when_an_arm_is_scaled(self):
        directions, active = random_problem(4)
        scaled = directions * np.array([1.0, 1e-3, 50.0, 7.0])[:, None]
        assert g_optimal(scaled, active, gap=1e-6).pi == pytest.approx(
            g_optimal(directions, active, gap=1e-6).pi, abs=1e-5
        )

    @given(seed=st.integers(0, 10**6), m=st.integers(1, 20), k=st.integers(1, 6), d=st.integers(1, 5))
    @settings(max_examples=60, deadline=None)
    def test_zero_vectors_span_nothing(self, seed, m, k, d):
        directions, active = random_problem(seed, m, k, d)
        rng = np.random.default_rng(seed)
        directions = directions * (rng.random((m, k, 1)) < 0.7)
        directions[:, rng.integers(k)] = 0
        for gap in (0.1, 1e-3, 1e-6):
            assert_proved(g_optimal(directions, active, gap=gap), directions, active, gap)

    def test_nothing_but_zero_vectors(self):
        assert g_optimal(np.zeros((2, 2, 2)), np.ones((2, 2), bool)).dimension == 0


@given(
    m=st.integers(1, 6),
    k=st.integers(2, 6),
    d=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(KINDS),
    gap=st.sampled_from([0.1, 1e-3, 1e-6]),
)
@settings(max_examples=150, deadline=None)
def test_every_small_problem_reaches_its_gap(m, k, d, seed, kind, gap):
    directions, active, smaller = special_problem(kind, seed, m, k, d)
    design = g_optimal(directions, active, gap=gap)
    assert_proved(design, directions, active, gap)
    assert_proved(g_optimal(directions, smaller, gap=gap, start=design.pi), directions, smaller, gap)


class TestWarmStart:
    def test_same_problem_returns_the_same_design_at_once(self):
        directions, active = random_problem(0, m=30, k=6)
        first = g_optimal(directions, active)
        again = g_optimal(directions, active, start=first.pi)
        assert (again.iterations, again.stopped) == (0, "gap")
        assert again.pi == pytest.approx(first.pi, abs=1e-15)

    def test_start_without_rank_or_weight_is_repaired(self):
        rng = np.random.default_rng(0)
        directions = unit(rng.standard_normal((6, 2, 3)))
        active = np.ones((6, 2), bool)
        one_arm_each = np.eye(2)[[0, 0, 1, 1, 1, 1]]  # V_0 has rank 2 of 3
        assert_proved(g_optimal(directions, active, start=one_arm_each, gap=1e-5), directions, active, 1e-5)
        assert_proved(g_optimal(directions, active, start=np.zeros((6, 2)), gap=1e-5), directions, active, 1e-5)

    def test_start_from_before_an_elimination_needs_no_more_steps(self):
        directions, active = random_problem(1, m=60, k=8, density=1)
        before = g_optimal(directions, active, gap=1e-2)
        active = active.copy()
        active[:2, :3] = False
        cold = g_optimal(directions, active, gap=1e-2)
        warm = g_optimal(directions, active, gap=1e-2, start=before.pi)
        assert_proved(warm, directions, active, 1e-2)
        assert warm.iterations <= cold.iterations + 1


def test_solutions_are_sparse():
    directions = synthetic_directions(0)
    for gap in (0.1, 0.01, 1e-3):
        assert np.count_nonzero(g_optimal(directions, np.ones((100, 10), bool), gap=gap).pi) < 700


def test_second_order_steps_pay_little_for_a_small_gap():
    directions, active = random_problem(0, m=100, k=10, density=1)
    assert g_optimal(directions, active, gap=1e-6).iterations <= 25


@pytest.mark.parametrize("first_order", [False, True])
def test_shared_design_is_the_design_of_one_matrix(first_order, monkeypatch):
    if first_order:
        monkeypatch.setattr("fedbandit_agents.phased.design._LARGEST_SYSTEM", 0)
    gap = 1e-2 if first_order else 1e-6
    directions, active = random_problem(2, m=7, k=4, d=3)
    design = g_optimal(directions, active, gap=gap, shared=True)
    v = np.einsum("ma,mai,maj->ij", design.pi, directions, directions)
    g = np.where(active, np.einsum("mai,ij,maj->ma", directions, np.linalg.inv(v), directions), -np.inf)
    assert design.dimension == 3
    assert 0 <= g.max(1).sum() - 3 <= gap
    assert design.gap == pytest.approx(g.max(1).sum() - 3, abs=1e-9)


class TestAllocation:
    @given(seed=st.integers(0, 1000), budget=st.integers(0, 10**6))
    @settings(max_examples=40, deadline=None)
    def test_rounding_covers_the_design_within_the_phase(self, seed, budget):
        directions, active = random_problem(seed)
        pi = g_optimal(directions, active).pi
        pulls = allocate(pi, budget, directions)
        assert np.all(pulls >= pi * budget * (1 - 1e-9))
        assert np.all(pulls.sum(1) <= budget + active.sum(1))
        assert np.all(pulls[~active] == 0)

    @pytest.mark.parametrize("share", [0.5, 0.125, 0.7])
    def test_the_last_bits_of_a_share_decide_no_pull(self, share):
        directions, budget = np.ones((1, 2, 1)), 10 * 2**17
        for towards in (0, 1):
            pi = np.array([[np.nextafter(share, towards), np.nextafter(1 - share, towards)]])
            assert allocate(pi, budget, directions).tolist() == [[round(share * budget), round((1 - share) * budget)]]

    def test_rounding_never_lowers_the_rank(self):
        directions = np.zeros((3, 2, 2))
        directions[:, :, 0] = 1
        directions[0, 0] = [0, 1]  # the only one to see the second dimension of arm 0
        pi = np.array([[1e-12, 1 - 1e-12], [1 - 1e-12, 1e-12], [1.0, 0.0]])
        pulls = allocate(pi, 64, directions)
        assert pulls.tolist() == [[1, 64], [64, 0], [64, 0]]

    def test_negative_budget_is_refused(self):
        with pytest.raises(ValueError, match="0 pulls or more, got -1"):
            allocate(np.ones((1, 1)), -1, np.ones((1, 1, 1)))

    def test_uniform_spreads_over_the_active_arms(self):
        assert uniform(np.array([[True, True, False], [False, True, False]])).tolist() == [[0.5, 0.5, 0], [0, 1, 0]]


def test_gap_is_what_each_agent_could_gain():
    pi, g = np.array([[0.5, 1.0], [0.5, 0.0]]), np.array([[2.0, 1.0], [4.0, 3.0]])
    assert gap_of(pi, g) == (4 - 3) + (3 - 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"directions": np.ones((2, 3))}, r"shape \(agents, arms, dimensions\).*got \(2, 3\)"),
        (
            {"active": np.ones((2, 2), bool)},
            r"active: expected booleans of shape \(3, 2\).*got bool of shape \(2, 2\)",
        ),
        ({"active": np.ones((3, 2))}, "active: expected booleans.*got float64"),
        ({"active": np.array([[True, True], [False, False], [True, True]])}, "got none for agent 1"),
        ({"directions": np.full((3, 2, 2), np.nan)}, "directions: expected finite numbers"),
        ({"gap": 0.0}, "gap: expected a number above 0, got 0"),
        ({"start": np.ones((2, 2))}, r"start: expected weights >= 0 of shape \(3, 2\), got shape \(2, 2\)"),
        ({"start": -np.ones((3, 2))}, "least value -1"),
    ],
)
def test_bad_input_is_refused_with_what_was_expected_and_what_came(change, message):
    arguments = {"directions": np.ones((3, 2, 2)), "active": np.ones((3, 2), bool)} | change
    with pytest.raises(ValueError, match=message):
        g_optimal(arguments.pop("directions"), arguments.pop("active"), **arguments)


def test_no_weight_is_dropped_that_a_dimension_needs():
    """One agent and one matrix, and a gap so wide that all but one arm could go, if noise were taken for a proof."""
    for seed in range(300):
        directions = np.random.default_rng(seed).normal(size=(1, 5, 2))
        directions /= np.sqrt((directions**2).sum(axis=2, keepdims=True))
        design = g_optimal(directions, np.ones((1, 5), dtype=bool), gap=10.0, shared=True)
        assert np.count_nonzero(design.pi) >= 2


def test_a_design_that_misses_its_gap_is_used_with_a_word():
    env = fb.make("fedbandit/Synthetic-v0", num_agents=4, max_cycles=200)
    with pytest.warns(UserWarning, match="gap: expected a design within 1e-15 of the best, got .* in phase 1"):
        fb.play(env, fb.make_policy("Fed-PECD", gap=1e-15), seed=0)
