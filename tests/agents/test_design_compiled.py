"""The compiled solver of the design: proves what it says as the other does, and agrees with it."""

import subprocess
import sys

import numpy as np
import pytest
from compiling import NEEDS_NUMBA
from designs import (
    KINDS,
    assert_proved,
    objective,
    random_problem,
    special_problem,
    synthetic_directions,
    unit,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbandit_envs as fb
from fedbandit_agents.phased.design import g_optimal, uniform
from fedbandit_agents.phased.design_climb import Climb, climb
from fedbandit_agents.phased.design_problem import log_det, whiten
from fedbandit_envs.testing.check import check_policy


def solve(*arguments, **options):
    return g_optimal(*arguments, compiled=True, **options)


@pytest.fixture
def no_numba(monkeypatch):
    monkeypatch.setattr("fedbandit_envs.validation.find_spec", lambda name: None)
    from fedbandit_agents.phased.design import _first_order

    _first_order.cache_clear()


REMEDY = r"compiled: expected numba.*got none; in a clone: pip install -e '\.\[compiled\]', or leave compiled out"


@pytest.mark.parametrize("name", ["Fed-PECD", "Fed-PE", "Shared-Theta-Fed-PE", "Local-UCB"])
def test_without_numba_a_policy_is_refused_before_it_plays(name, no_numba, tmp_path):
    env = fb.make("fedbandit/Synthetic-v0", num_agents=2, max_cycles=30, observe="context")
    with pytest.raises(ImportError, match=REMEDY):
        fb.play(env, fb.make_policy(name, compiled=True), seed=0)
    experiment = fb.Experiment("fedbandit/Synthetic-v0", [{"name": name, "parameters": {"compiled": True}}], trials=1)
    with pytest.raises(ImportError, match=REMEDY):
        fb.run(experiment, out=tmp_path / "out", executor="serial")
    assert not list(tmp_path.iterdir())
    assert not fb.make_policy(name).compiled


def test_without_numba_a_design_is_refused(no_numba):
    with pytest.raises(ImportError, match=REMEDY):
        solve(*random_problem(0))


def test_where_the_compiled_start_leads_nowhere_the_plain_climb_is_tried(monkeypatch):
    directions, active = random_problem(0)
    begun = uniform(active), 5.0, 12, 7, "iterations"

    def stalling(solver, pi, target, max_iterations, done=0):
        return Climb(pi, 5.0, done, "stalled") if done else climb(solver, pi, target, max_iterations)

    monkeypatch.setattr("fedbandit_agents.phased.design._first_order", lambda: lambda *_: begun)
    monkeypatch.setattr("fedbandit_agents.phased.design.climb", stalling)
    assert_proved(solve(directions, active), directions, active, 0.1)


@pytest.mark.parametrize("name", ["Fed-PECD", "Local-UCB"])
def test_compiled_is_true_or_false(name):
    with pytest.raises(ValueError, match="compiled: expected True or False, got 1"):
        fb.make_policy(name, compiled=1)


class TestCompiled:
    pytestmark = NEEDS_NUMBA

    @pytest.mark.parametrize("gap", [0.1, 1e-3, 1e-6])
    @pytest.mark.parametrize("seed", range(4))
    def test_certificate_recomputed_from_the_definition_is_the_one_reported(self, seed, gap):
        directions, active = random_problem(seed, m=20, k=5)
        assert_proved(solve(directions, active, gap=gap), directions, active, gap)

    @given(
        m=st.integers(1, 8),
        k=st.integers(1, 6),
        d=st.integers(1, 6),
        seed=st.integers(0, 10**6),
        kind=st.sampled_from(KINDS),
        gap=st.sampled_from([0.1, 1e-3, 1e-6]),
    )
    @settings(max_examples=200, deadline=None)
    def test_every_small_problem_reaches_its_gap(self, m, k, d, seed, kind, gap):
        directions, active, smaller = special_problem(kind, seed, m, k, d)
        design = solve(directions, active, gap=gap)
        assert_proved(design, directions, active, gap)
        assert_proved(solve(directions, smaller, gap=gap, start=design.pi), directions, smaller, gap)

    @given(
        m=st.integers(1, 6),
        k=st.integers(1, 5),
        d=st.integers(1, 6),
        seed=st.integers(0, 10**6),
        gap=st.sampled_from([0.1, 1e-3, 1e-6]),
    )
    @settings(max_examples=100, deadline=None)
    def test_zero_vectors_span_nothing(self, m, k, d, seed, gap):
        directions, active = random_problem(seed, m, k, d)
        rng = np.random.default_rng(seed)
        directions = directions * (rng.random((m, k, 1)) < 0.7)
        directions[:, rng.integers(k)] = 0
        assert_proved(solve(directions, active, gap=gap), directions, active, gap)

    @given(m=st.integers(1, 8), k=st.integers(1, 5), d=st.integers(1, 4), seed=st.integers(0, 10**6))
    @settings(max_examples=60, deadline=None)
    def test_shared_design_is_the_design_of_one_matrix(self, m, k, d, seed):
        directions, active = random_problem(seed, m, k, d)
        design = solve(directions, active, gap=1e-3, shared=True)
        # One arm whose agents are the pairs has the same matrix, and g of the same pairs.
        left, values, _ = np.linalg.svd(directions[active], full_matrices=False)
        x = left[:, values > 1e-6 * values[0]]
        v = np.einsum("n,ni,nj->ij", design.pi[active], x, x)
        g = np.full(active.shape, -np.inf)
        g[active] = np.einsum("ni,ij,nj->n", x, np.linalg.inv(v), x)
        assert design.dimension == x.shape[1]
        assert design.gap == pytest.approx(g.max(1).sum() - x.shape[1], abs=1e-8)
        assert design.gap <= 1e-3
        assert design.pi.sum(1) == pytest.approx(np.ones(m), abs=1e-12)

    @pytest.mark.parametrize("tilt", [0, 1e-9, 1e-7, 3e-6, 1e-5, 1e-4, 1e-2])
    def test_collinear_and_nearly_collinear_directions(self, tilt):
        rng = np.random.default_rng(1)
        directions = unit(np.array([1.0, 0, 0]) + tilt * rng.standard_normal((9, 4, 3)))
        active = np.ones((9, 4), bool)
        assert_proved(solve(directions, active, gap=1e-5), directions, active, 1e-5)

    def test_arms_active_for_nobody_and_for_one_agent(self):
        directions, active = random_problem(2, m=12, density=1)
        active[:, 2] = False
        active[1:, 0] = False
        design = solve(directions, active, gap=1e-6)
        assert_proved(design, directions, active, 1e-6)
        assert design.dimension == 7

    def test_nothing_to_choose_needs_no_iteration(self):
        directions, _ = random_problem(0)
        active = np.eye(6, 4, dtype=bool)
        active[4:, 1] = True
        design = solve(directions, active)
        assert (design.stopped, design.iterations, design.gap) == ("trivial", 0, 0.0)
        assert_proved(design, directions, active, 1e-9)

    @pytest.mark.parametrize("gap", [0.1, 1e-2, 1e-4])
    def test_optimum_is_the_other_solvers_within_the_gap(self, gap):
        for seed in range(5):
            directions, active = random_problem(seed, m=30, k=4, density=0.9)
            best = objective(directions, active, g_optimal(directions, active, gap=1e-8).pi)
            found = objective(directions, active, solve(directions, active, gap=gap).pi)
            assert best - gap <= found <= best + 1e-8

    @pytest.mark.parametrize("seed", range(4))
    def test_f_never_falls_from_one_iteration_to_the_next(self, seed):
        directions, active = random_problem(seed, m=15, k=4, d=3)
        problem, _, _ = whiten(directions, active)
        start = g_optimal(directions, np.ones_like(active), gap=1e-4).pi
        for warm in (None, start):
            designs = [solve(directions, active, gap=1e-9, max_iterations=n, start=warm) for n in range(40)]
            assert np.all(np.diff([log_det(problem.information(design.pi.T)) for design in designs]) >= -1e-11)
            assert [(design.stopped, design.iterations) for design in designs[:20]] == [
                ("iterations", n) for n in range(20)
            ]

    def test_second_order_steps_finish_what_first_order_ones_begin(self):
        directions, active = random_problem(1, m=20, k=5)
        design = solve(directions, active, gap=1e-7)
        assert_proved(design, directions, active, 1e-7)
        assert 201 < design.iterations < 230

    def test_first_order_steps_that_end_too_near_the_boundary_are_not_the_last_word(self):
        rng = np.random.default_rng(1403)
        m, k, d = rng.integers(1, 60), rng.integers(1, 12), rng.integers(1, 7)
        directions = rng.standard_normal((m, k, d))
        directions[..., d // 2 + 1 :] = 0
        active = rng.random((m, k)) < rng.uniform(0.2, 1)
        active[np.arange(m), rng.integers(k, size=m)] = True
        assert_proved(solve(directions, active, gap=1e-6), directions, active, 1e-6)

    def test_first_order_solver_for_large_problems_reaches_the_same_optimum(self, monkeypatch):
        directions, active = random_problem(1, m=20, k=5)
        monkeypatch.setattr("fedbandit_agents.phased.design._LARGEST_SYSTEM", 0)
        design = solve(directions, active, gap=1e-4)
        assert_proved(design, directions, active, 1e-4)
        assert design.iterations > 230

    @pytest.mark.parametrize("gap", [0.1, 0.01])
    def test_solutions_are_as_sparse(self, gap):
        everything = np.ones((100, 10), bool)
        for seed in range(3):
            directions = synthetic_directions(seed)
            ours, others = (
                np.count_nonzero(g_optimal(directions, everything, gap=gap, compiled=compiled).pi)
                for compiled in (True, False)
            )
            assert ours <= 1.1 * others

    def test_start_that_still_meets_the_gap_is_returned(self):
        directions, active = random_problem(0, m=30, k=6)
        first = solve(directions, active)
        again = solve(directions, active, start=first.pi)
        assert (again.iterations, again.stopped) == (0, "gap")
        assert again.pi == pytest.approx(first.pi, abs=1e-15)

    def test_start_without_rank_or_weight_is_repaired(self):
        directions = unit(np.random.default_rng(0).standard_normal((6, 2, 3)))
        active = np.ones((6, 2), bool)
        one_arm_each = np.eye(2)[[0, 0, 1, 1, 1, 1]]  # V_0 has rank 2 of 3
        for start in (one_arm_each, np.zeros((6, 2))):
            assert_proved(solve(directions, active, start=start, gap=1e-5), directions, active, 1e-5)

    def test_same_input_gives_the_same_bytes_however_it_lies_in_memory(self):
        directions, active = synthetic_directions(0), np.random.default_rng(0).random((100, 10)) < 0.8
        active[:, 0] = True
        first = solve(directions, active)
        shifted = np.empty(directions.size + 1)[1:].reshape(directions.shape)
        shifted[:] = directions
        frozen = active.copy()
        frozen.setflags(write=False)
        turned = np.asfortranarray(directions)
        for same in (directions, shifted, turned):
            again = solve(same, frozen)
            assert again.pi.tobytes() == first.pi.tobytes()
            assert (again.gap, again.iterations) == (first.gap, first.iterations)

    def test_numba_is_imported_by_the_first_design_only(self):
        program = """
import sys
import fedbandit_agents, fedbandit_baselines, fedbandit_envs as fb
policy = fb.make_policy("Fed-PECD", compiled=True)
assert "numba" not in sys.modules
fb.play(fb.make("fedbandit/Synthetic-v0", num_agents=2, max_cycles=30), policy, seed=0)
assert "numba" in sys.modules
"""
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_input_is_left_as_it_is(self):
        directions, active = random_problem(0)
        start = g_optimal(directions, active).pi
        before = [array.copy() for array in (directions, active, start)]
        solve(directions, active & (np.arange(4) != 1) | (np.arange(4) == 0), start=start)
        for array, copy in zip((directions, active, start), before, strict=True):
            np.testing.assert_array_equal(array, copy)

    def test_directions_of_any_length_give_the_same_design_when_an_arm_is_scaled(self):
        directions, active = random_problem(4)
        scaled = directions * np.array([1.0, 1e-3, 50.0, 7.0])[:, None]
        design = solve(scaled, active, gap=1e-6)
        assert_proved(design, scaled, active, 1e-6)
        assert design.pi == pytest.approx(solve(directions, active, gap=1e-6).pi, abs=1e-3)

    @pytest.mark.parametrize("name", ["Fed-PECD", "Fed-PE", "Shared-Theta-Fed-PE"])
    def test_check_policy_finds_no_fault(self, name):
        assert "no fault" in check_policy(fb.make_policy(name, compiled=True))

    def test_results_can_be_read_without_numba(self, tmp_path, monkeypatch):
        policies = [{"name": "Fed-PECD", "parameters": {"compiled": True}}]
        experiment = fb.Experiment("fedbandit/Synthetic-v0", policies, {"num_agents": 4, "max_cycles": 100}, trials=2)
        regret = fb.run(experiment, out=tmp_path, executor="serial").table("summary")["regret"]
        monkeypatch.setattr("fedbandit_envs.validation.find_spec", lambda name: None)
        assert fb.Result.load(tmp_path).table("summary")["regret"] == regret

    def test_regret_is_that_of_the_other_solver(self):
        env = fb.make("fedbandit/Synthetic-v0", num_agents=30, max_cycles=2**14)
        regrets = np.array(
            [
                [
                    fb.play(env, fb.make_policy("Fed-PECD", compiled=compiled), seed=seed).mean_regret()[-1]
                    for seed in range(10)
                ]
                for compiled in (False, True)
            ]
        )
        # Of designs with the same gap; single runs part ways where an arm goes a phase earlier.
        assert regrets[1].mean() == pytest.approx(regrets[0].mean(), rel=0.02)
