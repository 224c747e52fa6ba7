"""The oracle against numbers worked out by hand."""

import math

import numpy as np
import pytest
import reference as ref


def uniform(c=1, n=2):
    def allocation(p, active):
        return ref.allocate(active / active.sum(axis=1, keepdims=True), active, c * n**p)

    return allocation


def truthful(theta, psi):
    return lambda i, a, p, index: float(np.dot(theta[a], psi[i][a]))


@pytest.mark.parametrize(("M", "value"), [(50, 4.908), (100, 5.047), (150, 5.127)])
def test_alpha1_of_the_paper(M, value):
    assert ref.alpha1(M, 10, 17, 0.1) == pytest.approx(value, abs=5e-4)


def test_k_and_alpha2_of_the_paper():
    assert ref.solve_k(10, 3, 17, 0.1) == pytest.approx(8.044, abs=5e-4)
    assert ref.alpha2(10, 3, 17, 0.1) == pytest.approx(4.912, abs=5e-4)
    assert ref.alpha(50, 10, 3, 17, 0.1) == ref.alpha1(50, 10, 17, 0.1)
    assert ref.alpha(100, 10, 3, 17, 0.1) == ref.alpha2(10, 3, 17, 0.1)


@pytest.mark.parametrize(("T", "n", "H"), [(1, 2, 1), (2, 2, 1), (3, 2, 2), (2**17, 2, 17), (9, 3, 2)])
def test_number_of_phases(T, n, H):
    assert ref.number_of_phases(T, n) == H


def test_width_is_infinite_outside_the_range_of_v():
    V = np.diag([2.0, 0.0])
    assert ref.norm_in(np.array([3.0, 0.0]), V) == pytest.approx(3 * math.sqrt(2))
    assert ref.norm_in(np.array([3.0, 1e-12]), V) == pytest.approx(3 * math.sqrt(2))
    assert ref.norm_in(np.array([3.0, 1e-3]), V) == math.inf
    assert ref.norm_in(np.array([3.0, 0.0]), np.zeros((2, 2))) == math.inf


def test_local_estimate_is_the_mean_reward_along_psi():
    np.testing.assert_allclose(ref.local_estimate([1.0, 3.0], np.array([0.5, 0.0])), [4.0, 0.0])
    np.testing.assert_allclose(ref.local_estimate([0.0], np.array([0.3, 0.4])), [0.3e-100, 0.4e-100])
    np.testing.assert_allclose(ref.local_estimate([5e-324], np.array([0.3, 0.4])), [0.3e-100, 0.4e-100])


def test_zero_estimate_counts_as_information_and_not_as_reward():
    # Agent 0 saw reward 0 along (1, 0), agent 1 saw 2 along (0, 1).
    theta, V = ref.aggregate([1, 4], [ref.local_estimate([0.0], np.array([0.7, 0.0])), np.array([0.0, 2.0])])
    np.testing.assert_allclose(V, np.diag([1, 0.25]), atol=1e-15)
    np.testing.assert_allclose(theta, [0, 2], atol=1e-15)


def test_aggregation_of_two_agents_by_hand():
    # Agent 0: psi = (.5, 0), mean reward 2; agent 1: psi = (.6, .6), mean reward 1.2; theta = (4, -2) explains both.
    # sum f e e^T = 3 (1,0)(1,0)^T + 2 (1,1)(1,1)^T / 2 = [[4, 1], [1, 1]]; sum f theta = (14, 2).
    sent = [ref.local_estimate([2.0], np.array([0.5, 0.0])), ref.local_estimate([1.2], np.array([0.6, 0.6]))]
    np.testing.assert_allclose(sent, [[4, 0], [1, 1]])
    theta, V = ref.aggregate([3, 2], sent)
    np.testing.assert_allclose(V, np.array([[1, -1], [-1, 4]]) / 3)
    np.testing.assert_allclose(theta, [4, -2])


def test_sign_of_an_estimate_cancels_in_v():
    _, V = ref.aggregate([1, 2], [np.array([1.0, 1.0]), np.array([1.0, 0.0])])
    _, W = ref.aggregate([1, 2], [np.array([-5.0, -5.0]), np.array([1.0, 0.0])])
    np.testing.assert_allclose(V, W)


PSI = [[[0.5, 0.0], [0.0, 1.0]], [[0.6, 0.6], [0.0, 0.8]]]  # M=2, K=2, d=2; arm 1 has rank 1
THETA = [[4.0, -2.0], [0.0, 1.0]]


def test_first_phase_of_two_agents_by_hand():
    trace = ref.fed_pecd(PSI, 12, reward=truthful(THETA, PSI), allocation=uniform(), ell=0.5, phases=4, w=2, sigma=0.1)
    first = trace.phases[1]
    # Arm 0: sum e e^T = [[1.5, .5], [.5, .5]]; arm 1: 2 (0,1)(0,1)^T.
    np.testing.assert_allclose(first.V, [[[1, -1], [-1, 3]], [[0, 0], [0, 0.5]]], atol=1e-12)
    np.testing.assert_allclose(first.theta, THETA, atol=1e-12)
    np.testing.assert_allclose(first.r, [[2, 1], [1.2, 0.8]])
    scale = 2 * 0.1 * ref.alpha(2, 2, 2, 4, 0.1) / 0.5
    norms = [[0.5, math.sqrt(0.5)], [0.6 * math.sqrt(2), 0.8 * math.sqrt(0.5)]]
    np.testing.assert_allclose(first.u, scale * np.array(norms))
    assert list(first.best) == [0, 0]
    np.testing.assert_allclose(first.best_margin, [1, 0.4])
    for i in range(2):
        margin = first.r[i, 1] + first.u[i, 1] - (first.r[i, 0] - first.u[i, 0])
        assert first.elimination_margin[i, 1] == pytest.approx(abs(margin))
        assert first.active[i, 1] == (margin >= 0)
    assert trace.closest_call(1) == pytest.approx(min(0.4, *first.elimination_margin[:, 1]))


def test_scalars_and_pulls_of_a_run_counted_by_hand():
    # Width 0: after the initialisation (2 steps) only arm 0 is left. Phase 1 takes 2 + 2 steps, phase 2 takes 4 + 2:
    # T = 12 is its end, where nothing more is sent.
    psi = [[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.0], [0.0, 1.0]]]
    theta = [[1.0, 0.0], [0.0, 0.0]]
    trace = ref.fed_pecd(psi, 12, reward=truthful(theta, psi), allocation=uniform(), sigma=0.0)
    assert [(x.scalars_up, x.scalars_down, x.steps, x.reported) for x in trace.phases] == [
        (2 * 2 * 2, 2 * 2 * (2 + 4), 2, True),
        (2 + 2 * 2, 2 + 2 * 1 * (2 + 4), 6, True),
        (2, 2, 12, False),
    ]
    assert (trace.scalars_up, trace.scalars_down) == (16, 40)
    np.testing.assert_array_equal(trace.pulls, [[11, 1], [11, 1]])
    np.testing.assert_array_equal(trace.phases[1].f, [[2, 0], [2, 0]])
    assert np.isnan(trace.phases[2].theta[1]).all()  # arm 1 was not broadcast


def test_an_arm_with_no_pulls_sends_nothing():
    psi = [[[1.0], [1.0]], [[1.0], [0.5]]]
    allocation = uniform()

    def sparse(p, active):
        return np.array([[2, 0], [0, 2]]) if p == 1 else allocation(p, active)

    trace = ref.fed_pecd(psi, 100, reward=lambda i, a, p, index: 1.0, allocation=sparse)
    assert trace.phases[1].active.all()
    assert trace.phases[1].scalars_up == 4 + 2 * 1
    assert trace.phases[1].scalars_down == 4 + 2 * 2 * 2
    np.testing.assert_array_equal(np.isnan(trace.phases[1].theta_local[:, :, 0]), [[False, True], [True, False]])
    np.testing.assert_allclose(trace.phases[2].V[:, 0, 0], [0.5, 0.5])


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("T", [1, 2, 5, 6, 7, 12, 13, 20, 21, 64])
def test_every_agent_pulls_exactly_t_times(T, c):
    rng = np.random.default_rng(T)
    psi = rng.normal(size=(3, 3, 2))
    trace = ref.fed_pecd(
        psi, T, reward=lambda i, a, p, index: rng.normal(), allocation=uniform(c), c=c, ell=0.5, sigma=0.1
    )
    np.testing.assert_array_equal(trace.pulls.sum(axis=1), T)
    assert [phase.reported for phase in trace.phases] == [True] * (len(trace.phases) - 1) + [False]


def test_the_last_phase_loses_its_padding_and_then_the_highest_arms():
    psi = np.ones((1, 3, 1))
    calls = []

    def reward(*pull):
        calls.append(pull)
        return 1.0

    # Phase 1 asks for one pull of each arm and 2 of padding; only 2 steps are left.
    trace = ref.fed_pecd(psi, 5, reward=reward, allocation=uniform())
    np.testing.assert_array_equal(trace.pulls, [[2, 2, 1]])
    assert calls == [(0, 0, 0, 0), (0, 1, 0, 0), (0, 2, 0, 0), (0, 0, 1, 0), (0, 1, 1, 0)]
    np.testing.assert_array_equal(ref.fed_pecd(psi, 7, reward=reward, allocation=uniform()).pulls, [[3, 2, 2]])
    np.testing.assert_array_equal(ref.fed_pecd(psi, 2, reward=reward, allocation=uniform()).pulls, [[1, 1, 0]])


def test_c_pulls_at_the_start_narrow_the_first_width_by_its_root():
    def run(c):
        return ref.fed_pecd(PSI, 60, reward=truthful(THETA, PSI), allocation=uniform(c), c=c, phases=5)

    once, four = run(1), run(4)
    np.testing.assert_array_equal(four.phases[0].pulls, np.full((2, 2), 4))
    np.testing.assert_allclose(four.phases[1].u, once.phases[1].u / 2)
    np.testing.assert_allclose(four.phases[1].theta, once.phases[1].theta)
    assert four.phases[1].f_p == 8


def test_noiseless_estimates_are_true_in_every_phase():
    rng = np.random.default_rng(0)
    psi, theta = rng.normal(size=(4, 3, 3)), rng.normal(size=(3, 3))
    means = np.einsum("ad,iad->ia", theta, psi)
    trace = ref.fed_pecd(psi, 300, reward=truthful(theta, psi), allocation=uniform(), sigma=0.1)
    assert len(trace.phases) > 5
    for phase in trace.phases[1:]:
        seen = ~np.isnan(phase.r)
        np.testing.assert_allclose(phase.r[seen], means[seen], atol=1e-9)
        np.testing.assert_array_equal(phase.best, means.argmax(axis=1))
        assert phase.active[np.arange(4), phase.best].all()
    assert not trace.phases[-1].active.all()


def test_infinite_width_keeps_every_arm():
    kept = ref.eliminate(np.eye(2), np.ones(2, dtype=bool), np.array([[9.0, 0], [0, 1]]), np.zeros((2, 2, 2)), 0.0)
    assert kept.active.all()
    assert kept.best == 0
    assert (kept.u == math.inf).all()


def test_ties_go_to_the_lowest_arm_and_are_reported():
    decision = ref.decide(np.array([1.0, 2.0, 2.0, 1.0]), np.array([0.5] * 4), np.array([True, True, True, False]))
    assert decision.best == 1
    assert decision.best_margin == 0
    assert list(decision.active) == [True, True, True, False]  # 1 + .5 >= 2 - .5, just
    np.testing.assert_array_equal(decision.elimination_margin, [0, math.inf, 1, math.nan])


ALL = np.ones((2, 2), dtype=bool)


def test_certificate_of_one_agent_and_two_arms():
    e = np.ones((1, 2, 1))
    assert ref.certificate(np.array([[0.5, 0.5]]), e, ALL[:1]) == pytest.approx((2, 2, 0, 2))
    assert ref.certificate(np.array([[0.25, 0.75]]), e, ALL[:1]) == pytest.approx((4, 2, 2, 2))
    assert ref.certificate(np.array([[0.0, 1.0]]), e, ALL[:1]).gap == math.inf


def test_certificate_of_orthogonal_and_of_collinear_agents():
    half = np.full((2, 2), 0.5)
    orthogonal = np.array([[[1.0, 0], [1, 0]], [[0, 1], [0, 1]]])
    assert ref.certificate(half, orthogonal, ALL) == pytest.approx((4, 4, 0, 4))
    collinear = np.array([[[1.0, 0], [0.6, 0.8]], [[-1, 0], [0.6, 0.8]]])
    assert ref.certificate(half, collinear, ALL) == pytest.approx((2, 2, 0, 2))


def test_certificate_of_a_sparse_optimum():
    # Agent 1 has arm 0 only, so ln(1 + x) + ln(1 - x) is largest at x = 0: agent 0 plays arm 1 alone.
    active = np.array([[True, True], [True, False]])
    assert ref.certificate(np.array([[0.0, 1], [1, 0]]), np.ones((2, 2, 1)), active) == pytest.approx((2, 2, 0, 2))
    assert ref.certificate(np.array([[0.5, 0.5], [1, 0]]), np.ones((2, 2, 1)), active) == pytest.approx(
        (2 + 2 / 3, 2, 2 / 3, 2)
    )


def test_certificate_of_the_shared_matrix():
    e = np.array([[[1.0, 0], [0, 1]]])
    assert ref.certificate(np.array([[0.5, 0.5]]), e, ALL[:1], shared=True) == pytest.approx((2, 2, 0, 2))


def test_allocation_rounds_up_and_ignores_dust():
    pi = np.array([[0.5, 0.5 - 1e-12, 1e-12, 0.0]])
    np.testing.assert_array_equal(ref.allocate(pi, np.ones((1, 4), dtype=bool), 5), [[3, 3, 0, 0]])
    np.testing.assert_array_equal(ref.allocate(pi, np.ones((1, 4), dtype=bool), 500), [[250, 250, 1, 0]])


def test_the_last_bits_of_a_share_decide_no_pull():
    halves = np.array([[np.nextafter(0.5, 1), np.nextafter(0.5, 0)]])
    np.testing.assert_array_equal(ref.allocate(halves, np.ones((1, 2), dtype=bool), 2**17), [[2**16, 2**16]])


def test_a_bad_allocation_or_design_is_refused():
    def run(**callbacks):
        return ref.fed_pecd(PSI, 30, reward=lambda *_: 1.0, **({"allocation": uniform()} | callbacks))

    with pytest.raises(AssertionError, match="lowered the rank"):
        run(allocation=lambda p, active: np.array([[1, 1], [0, 1]]))
    with pytest.raises(AssertionError, match="explores"):
        run(allocation=lambda p, active: np.array([[4, 1], [1, 1]]))
    with pytest.raises(AssertionError, match="gap"):
        run(design=lambda p, active: np.array([[0.9, 0.1], [0.1, 0.9]]))
    with pytest.raises(AssertionError, match="ceil"):
        run(
            allocation=lambda p, active: np.array([[1, 1], [1, 2]]),
            design=lambda p, active: ref.g_optimal_slsqp(PSI / np.linalg.norm(PSI, axis=2, keepdims=True), active).pi,
        )


def test_a_good_design_is_certified_in_every_phase():
    e = PSI / np.linalg.norm(PSI, axis=2, keepdims=True)

    def design(p, active):
        return ref.g_optimal_slsqp(e, active).pi

    trace = ref.fed_pecd(
        PSI, 60, reward=lambda *_: 1.0, design=design, allocation=lambda p, A: ref.allocate(design(p, A), A, 2**p)
    )
    for phase in trace.phases[1:]:
        assert phase.certificate.D == 3
        assert -1e-9 <= phase.certificate.gap <= 0.1


@pytest.mark.parametrize("seed", range(5))
def test_slsqp_design_is_feasible_and_close_to_optimal(seed):
    rng = np.random.default_rng(seed)
    e = rng.normal(size=(5, 4, 3))
    e /= np.linalg.norm(e, axis=2, keepdims=True)
    active = rng.random((5, 4)) < 0.7
    active[:, 0] = True
    pi, proof, sweeps = ref.g_optimal_slsqp(e, active, gap=1e-2, max_sweeps=200)
    np.testing.assert_allclose(pi.sum(axis=1), 1)
    assert (pi >= 0).all()
    assert (pi[~active] == 0).all()
    assert proof.sum_pi_g == pytest.approx(proof.D)
    assert proof.gap <= 1e-2
    assert sweeps >= 1
    assert ref.g_optimal_slsqp(e, active, gap=1e-9, max_sweeps=3).sweeps == 3


def test_enhanced_widths_of_two_phases_by_hand():
    # S starts at dK/M = 1; phase 1: S = 1 + 1 (.5/.5)^2 = 2, N = 1; phase 2: S = 2 + 4 (.25/.5)^2 = 3, N = 3.
    first = ref.enhanced_widths([0.4], [0.5], M=2, K=2, d=1, delta=0.1, ell=0.5)
    assert first == pytest.approx((0.4, math.sqrt(2 * math.log(2 * 1600))))
    second = ref.enhanced_widths([0.4, 0.7], [0.5, 0.25], M=2, K=2, d=1, delta=0.1, ell=0.5)
    assert second == pytest.approx((0.6, math.sqrt(3 * math.log(3 * 1600)) / 3))


def test_collaborative_and_shared_estimates_by_hand():
    # Mean reward 2 along (1, 0), 3 pulls; 3 along (1, 1), 2 pulls; theta = (2, 1) explains both.
    psi = [np.array([1.0, 0.0]), np.array([1.0, 1.0])]
    sent = [ref.local_estimate([2.0], psi[0]), ref.local_estimate([3.0], psi[1])]
    theta, V = ref.collaborative_estimate(psi, [3, 2], sent)
    np.testing.assert_allclose(V, np.array([[2, -2], [-2, 5]]) / 6)
    np.testing.assert_allclose(theta, [2, 1])

    local = np.full((2, 2, 2), math.nan)
    local[0, 0], local[1, 1] = sent
    theta, V = ref.shared_theta_estimate(np.array([[3, 0], [0, 2]]), local)
    np.testing.assert_allclose(V, np.array([[1, -1], [-1, 4]]) / 3)
    np.testing.assert_allclose(theta, [2, 1])


def test_local_ucb_by_hand():
    # Step 5: 1 + sqrt(5.271/3) = 2.326 > 2.296 = sqrt(5.271); step 6: 1 + sqrt(6.018/4) = 2.227 < 2.453 = sqrt(6.018).
    steps = ref.local_ucb(2, 2, 6, lambda i, a, t: float(a == i))
    np.testing.assert_array_equal(steps.arms, [[0, 1, 0, 0, 0, 1], [0, 1, 1, 1, 1, 0]])
    assert steps.margins[0, 4] == pytest.approx(2.3255 - 2.2959, abs=1e-3)
    assert (steps.margins[:, :2] == math.inf).all()


def test_kk_ucb_by_hand():
    # Exact, delta/K = .05. Unpulled: beta = sqrt(5.9915) + 1 = 3.4477.
    # Arm 0 gives 0: (sqrt(.6931 + 5.9915) + 1) / sqrt(2) = 2.5353 after one pull.
    # Arm 1 gives 2: 1 + 2.5353 after one pull, 4/3 + (sqrt(1.0986 + 5.9915) + 1) / sqrt(3) after two.
    steps = ref.kk_ucb(np.ones((1, 2, 1)), 4, lambda i, a, t: 2.0 * a, hidden=False)
    np.testing.assert_array_equal(steps.arms, [[0, 1, 1, 1]])
    np.testing.assert_allclose(steps.margins, [[0, 3.4477 - 2.5353, 1, 4 / 3 + 2.1147 - 2.5353]], atol=2e-4)
    hidden = ref.kk_ucb([[[1.0], [0.5]]], 1, lambda i, a, t: 0.0)
    assert hidden.margins[0, 0] == pytest.approx(0.5 * (math.sqrt(5) * math.sqrt(-2 * math.log(0.05)) + 1))


def test_dis_lin_ucb_synchronises_by_hand():
    # One arm, psi = 1, two agents, D = .5: ln(2/1) 1 after step 1; V = 3: ln(4/3) 1 = .29, then ln(5/3) 2 = 1.02;
    # V = 7: ln(8/7) 1 = .13, then ln(9/7) 2 = .503 after step 5, at which a run of 5 steps is over.
    psi = np.ones((2, 1, 1))
    steps = ref.dis_lin_ucb(psi, 6, lambda i, a, t: 1.0, D=0.5)
    assert steps.synchronisations == [1, 3, 5]
    assert steps.new_blocks == [2, 2, 2]
    assert (steps.scalars_up, steps.scalars_down) == (3 * 2 * 2, 3 * 2 * 2)
    statistics = np.log([2, 4 / 3, 5 / 3, 8 / 7, 9 / 7]) * [1, 1, 2, 1, 2]
    np.testing.assert_allclose(steps.sync_margins, abs(statistics - 0.5), atol=1e-12)
    assert ref.dis_lin_ucb(psi, 5, lambda i, a, t: 1.0, D=0.5).synchronisations == [1, 3]


def test_dis_lin_ucb_shares_what_the_other_agent_saw():
    # Agent 1 alone is paid by arm 1, and paid well; without a synchronisation agent 0 knows nothing of it.
    def reward(i, a, t):
        return 100.0 if (i, a) == (1, 1) else 0.0

    psi = np.ones((2, 2, 1))
    alone = ref.dis_lin_ucb(psi, 3, reward, D=math.inf)
    together = ref.dis_lin_ucb(psi, 3, reward, D=0.0)
    np.testing.assert_array_equal(alone.arms, [[0, 1, 0], [0, 1, 1]])
    np.testing.assert_array_equal(together.arms, [[0, 1, 1], [0, 1, 1]])
    # Step 1 without data: radius sqrt(5) sqrt(-2 ln .05) + 1 on both arms; agent 0's third step compares equal arms.
    assert alone.margins[0, 0] == alone.margins[0, 2] == 0
    assert together.margins[0, 2] == pytest.approx(100 / 3)
    unequal = ref.dis_lin_ucb([[[1.0], [0.5]]], 1, reward)
    assert unequal.margins[0, 0] == pytest.approx(0.5 * (math.sqrt(5) * math.sqrt(-2 * math.log(0.05)) + 1))
    known = ref.dis_lin_ucb([[[1.0], [0.5]]], 1, reward, v=0.0)
    assert known.margins[0, 0] == pytest.approx(0.5 * (math.sqrt(-2 * math.log(0.05)) + 1))


def test_naive_run_is_a_function_of_its_seed_and_beats_uniform_play():
    rng = np.random.default_rng(1)
    psi, theta = rng.uniform(0.3, 0.6, size=(3, 3, 2)), np.array([[1.0, 1.0], [0.0, 0.0], [-1.0, -1.0]])
    means = np.einsum("ad,iad->ia", theta, psi)
    regret = ref.naive_run(means, psi, 1000, seed=3, noise_std=0.1)
    assert regret.shape == (3,)
    assert (regret >= 0).all()
    assert regret.sum() < 0.5 * 1000 * (means.max(axis=1) - means.mean(axis=1)).sum()
    np.testing.assert_array_equal(regret, ref.naive_run(means, psi, 1000, seed=3, noise_std=0.1))
