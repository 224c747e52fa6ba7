"""Private policies: what their reports carry, what they tell, what they cost, and what they are without noise."""

import math

import numpy as np
import pytest
import reference_linear as oracle
from linear_problems import recorded, stream
from refusals import assert_refused

import fedbandit_envs as fb
from fedbandit_agents.privacy import Budget, noise_std, report_noise, sensitivity
from fedbandit_baselines import DisLinUCB, FedUCB, PrivateFedLinUCB
from fedbandit_envs.experiments import tables
from fedbandit_envs.protocol.steps import Outcome

SETTINGS = {"sigma": 0.3, "delta": 0.1, "feature_bound": 1.0}


def exact(seed=0, **more):
    """A stream of known contexts, three agents, four arms of norm 1 at most and one theta; and psi (T, M, K, d)."""
    return stream(seed, std=0, **more)


def noises(std, history, releases):
    """The noise of all releases from 1 on: of Gram matrices (releases, M, D, D), and of moments (releases, M, D).

    D is d, or K d with a theta for each arm: then the matrices are 0 but for K blocks on their diagonal.
    """
    constants, randomness = history.constants, history.view.randomness
    blocks, dim = 1 if constants.shared_theta else constants.num_arms, constants.dim
    drawn = [report_noise(randomness.draws(number), std, blocks, dim) for number in range(1, releases + 1)]
    gram, moments = (np.stack(part) for part in zip(*drawn, strict=True))  # (releases, M, B, d, d) and (..., B, d)
    whole = np.zeros((*gram.shape[:2], blocks * dim, blocks * dim))
    for block in range(blocks):
        own = slice(block * dim, (block + 1) * dim)
        whole[..., own, own] = gram[:, :, block]
    return whole, moments.reshape(*moments.shape[:2], blocks * dim)


def as_the_oracle_plays_it(psi, rewards, shared):
    """The problem with clipped rewards, and the number of its blocks."""
    problem = oracle.Problem(psi, psi, np.clip(rewards, -1, 1))
    return (problem, 1) if shared else (oracle.for_each_arm(problem), psi.shape[2])


def of_kind(history, kind):
    return [one.up for one in history.exchanges if one.up is not None and one.up.kind.startswith(kind)]


def answers(history):
    return [one.down for one in history.exchanges if one.down is not None and one.down.kind == "sums"]


def test_a_level_of_the_tree_takes_memory_from_its_first_node_on():
    env = fb.make("fedbandit/Synthetic-v0", num_agents=3, max_cycles=300)
    rounds = fb.CommunicationRounds(env, fb.make_policy("Private-FedLinUCB", every=60))
    rounds.start(seed=0)
    (side,) = rounds.sides
    assert side.exact_gram.size == side.exact_moments.size == 0
    rounds.finish()
    assert side.releases == 4  # 1, 10, 11 and 100 in bits
    assert side.exact_gram.shape[:2] == side.exact_moments.shape[:2] == (3, 3)


# --- Private-FedLinUCB ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("epsilon", [1.0, 20.0, math.inf])
def test_the_oracle_plays_private_fed_lin_ucb(epsilon, shared, seed):
    env, psi = exact(seed, shared=shared)
    policy = PrivateFedLinUCB(epsilon=epsilon, privacy_delta=0.1, every=7, regularisation=0.5, **SETTINGS)
    history, arms, rewards = recorded(env, policy)
    noise = noises(policy.node_std(history.constants), history, releases=8)
    problem, blocks = as_the_oracle_plays_it(psi, rewards, shared)
    how = {"every": 7, "shift": policy.shift(history.constants), "scale": 0.3, "alpha": 0.1, "bound": 1.0}
    slow = oracle.private_fed_lin_ucb(problem, noise, **how, blocks=blocks)
    np.testing.assert_array_equal(arms, slow.arms)
    uploads = [(7 * number, i) for number in range(1, 9) for i in range(3)]
    assert [pair for pair in slow.uploads if pair[0] < len(arms)] == uploads
    assert [message.kind for message in of_kind(history, "node")] == [f"node {number}" for number in range(1, 9)]
    assert history.ledger.scalars == 8 * 2 * 3 * blocks * (2 * 2 + 2)  # 2 M s for each release


def test_answer_k_carries_the_noise_of_popcount_k_nodes_of_each_agent():
    env, psi = exact(T=64)
    policy = PrivateFedLinUCB(epsilon=3.0, every=4, **SETTINGS)
    history, arms, rewards = recorded(env, policy)
    std = policy.node_std(history.constants)
    gram_noise, moment_noise = (part.sum(axis=1) for part in noises(std, history, releases=15))
    x = np.take_along_axis(psi, arms[:, :, None, None], axis=2)[:, :, 0]
    y = np.clip(np.take_along_axis(rewards, arms[..., None], axis=2)[..., 0], -1, 1)
    for release, sums in enumerate(answers(history), start=1):
        carried = [(release >> bit << bit) - 1 for bit in range(4) if release >> bit & 1]
        assert len(carried) == release.bit_count()
        seen = 4 * release
        np.testing.assert_allclose(
            sums["gram"][0], np.einsum("tid,tie->de", x[:seen], x[:seen]) + gram_noise[carried].sum(axis=0)
        )
        np.testing.assert_allclose(
            sums["moments"][0], np.einsum("tid,ti->d", x[:seen], y[:seen]) + moment_noise[carried].sum(axis=0)
        )
    assert release == 15


@pytest.mark.parametrize(("shared", "bounds"), [(True, (1.0, 1.0)), (False, (1.0, 1.0)), (True, (0.5, 2.0))])
def test_no_observation_moves_a_report_by_more_than_the_noise_is_made_for(shared, bounds):
    """One of three observations is replaced by another, with any features and rewards, and with the same noise."""
    L, Y = bounds
    env, _ = exact(T=20, shared=shared)
    rng, most, moved = np.random.default_rng(0), sensitivity(L, Y), []
    policy = PrivateFedLinUCB(every=3, feature_bound=L, reward_bound=Y)
    rounds = fb.CommunicationRounds(env, policy)
    rounds.start(seed=0)
    view, once = rounds.sides[0].view, np.ones(3, dtype=np.int64)
    assert policy.node_std(view.constants) == noise_std(Budget(1.0, 1e-5), 3, most)
    for _ in range(150):
        psi, arms = 2 * rng.normal(size=(4, 3, 4, 2)), rng.integers(4, size=(4, 3))
        paid = rng.choice([-1e6, -Y, 0.0, Y, 1e6], size=(4, 3))
        reports = []
        for last in (2, 3):
            side = policy.agents(view)
            for step in (0, 1, last):
                side.observe(view.__class__(**{**vars(view), "psi": psi[step]}))
                side.learn(Outcome(arms[step], once, paid[step]))
            said = side.speak()
            reports.append(np.concatenate([said["gram"].reshape(3, -1), said["moments"].reshape(3, -1)], axis=1))
        moved.append(np.linalg.norm(reports[0] - reports[1], axis=1).max())
    assert 0.8 * most < max(moved) <= most * (1 + 1e-9)


def test_the_times_of_reports_do_not_depend_on_the_data():
    for seed in range(3):
        env, _ = exact(seed)
        history = fb.play(env, PrivateFedLinUCB(every=11, **SETTINGS), seed=seed)
        assert history.ledger.per_round[:, 0].tolist() == [11, 22, 33, 44, 55]


def test_after_the_last_step_there_is_no_report_and_a_short_run_has_none():
    env, _ = exact(T=22)
    assert fb.play(env, PrivateFedLinUCB(every=11), seed=0).ledger.rounds == 1
    assert fb.play(env, PrivateFedLinUCB(every=50), seed=0).ledger.rounds == 0


def test_a_lost_node_is_made_good_by_the_next_node_that_holds_its_data():
    env, _ = exact()
    policy = PrivateFedLinUCB(epsilon=math.inf, every=7, **SETTINGS)
    whole = fb.play(env, policy, seed=0, record=True)
    lost = fb.play(env, policy, seed=0, record=True, faults=fb.Faults(schedule={1: [0]}))
    first, second = answers(lost)[:2]
    assert first["gram"].trace(axis1=1, axis2=2) < answers(whole)[0]["gram"].trace(axis1=1, axis2=2)
    exchanges = [one for one in lost.exchanges if one.plan.length][:14]
    x = np.stack([one.feedback.arm for one in exchanges])
    _, psi = exact()
    x = np.take_along_axis(psi[:14], x[:, :, None, None], axis=2)[:, :, 0]
    np.testing.assert_allclose(second["gram"][0], np.einsum("tid,tie->de", x, x))


@pytest.mark.slow
def test_regret_falls_with_epsilon():
    """M = 50, K = 8, d = 3, T = 1,000, a report every 25 steps: in each of 3 runs, which have the same problem."""
    for seed in range(3):
        env, _ = exact(seed, T=1000, M=50, K=8, d=3)
        regrets = []
        for epsilon in (math.inf, 1.0, 0.2):
            policy = PrivateFedLinUCB(epsilon=epsilon, privacy_delta=0.1, **{**SETTINGS, "delta": 0.01})
            regrets.append(fb.play(env, policy, seed=seed).mean_regret()[-1])
        assert regrets == sorted(regrets)
        assert regrets[-1] < 0.5 * fb.play(env, fb.make_policy("Uniform"), seed=seed).mean_regret()[-1]


# --- FedUCB -----------------------------------------------------------------------------------------------------------


def constants(**more):
    sizes = {"num_agents": 10, "num_arms": 10, "dim": 5, "horizon": 1000, "ell": 0.5, "L": 1.0}
    return fb.Constants(**{**sizes, "noise_std": 1.0, "context": "streaming", "shared_theta": True, **more})


def test_the_noise_of_fed_ucb_by_hand():
    noise = FedUCB(epsilon=1.0, privacy_delta=0.1, delta=0.01).noise(constants())
    assert noise.levels == 11
    assert noise.std == pytest.approx(97.88, abs=5e-3)
    assert (noise.rmin, noise.rmax) == pytest.approx((15_313.4, 45_940), abs=0.5)
    smaller = FedUCB(epsilon=1.0, privacy_delta=0.1, delta=0.01, noise_scale=0.01).noise(constants())
    assert (smaller.std, smaller.rmin) == pytest.approx((0.9788, 153.134), abs=1e-3)


def test_as_published_fed_ucb_is_so_wide_that_it_can_not_learn():
    env, _ = exact(M=10, d=5, T=1000)
    rounds = fb.CommunicationRounds(env, FedUCB(privacy_delta=0.1, delta=0.01, feature_bound=1.0))
    rounds.start(seed=0)
    assert rounds.sides[0].width().min() > 678


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("how", [{"epsilon": math.inf}, {"noise_scale": 0.0}])
def test_without_noise_fed_ucb_is_dis_lin_ucb(how, shared):
    """Its width has ln(2 / alpha) where that of DisLinUCB has ln(1 / delta), so alpha is twice delta."""
    env, _ = exact(shared=shared)
    private = FedUCB(**how, delta=0.2, sigma=0.3, threshold=3.0, reward_bound=1e6)
    plain = DisLinUCB(delta=0.1, sigma=0.3, threshold=3.0)
    one, other = recorded(env, private), recorded(env, plain)
    assert one[1].tobytes() == other[1].tobytes()
    np.testing.assert_array_equal(one[0].ledger.per_round, other[0].ledger.per_round)
    assert one[0].ledger.rounds > 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("noise_scale", [1e-4, 1e-2])
def test_the_oracle_plays_fed_ucb(noise_scale, shared, seed):
    env, psi = exact(seed, shared=shared)
    policy = FedUCB(noise_scale=noise_scale, width_scale=0.1, threshold=15.0, **SETTINGS)
    history, arms, rewards = recorded(env, policy)
    noise = policy.noise(history.constants)
    gram, moments = noises(noise.std, history, releases=len(psi))
    problem, blocks = as_the_oracle_plays_it(psi, rewards, shared)
    slow = oracle.fed_ucb(
        problem,
        (math.sqrt(2) * gram, moments),
        rmin=noise.rmin,
        rmax=noise.rmax,
        kappa=noise.kappa,
        scale=0.3,
        alpha=0.1,
        bound=1.0,
        factor=0.1,
        threshold=15.0,
        blocks=blocks,
    )
    np.testing.assert_array_equal(arms, slow.arms)
    talked = [one.step + one.plan.length for one in history.exchanges if one.up is not None and one.up.kind == "new"]
    assert talked == sorted({t for t, _ in slow.uploads if t < len(psi)}) != []


def test_release_k_of_fed_ucb_carries_popcount_k_noises_and_one_shift():
    env, psi = exact(T=40)
    policy = FedUCB(noise_scale=1e-3, threshold=0.0, **SETTINGS)  # a release after each step
    history, arms, _ = recorded(env, policy)
    noise = policy.noise(history.constants)
    x = np.take_along_axis(psi, arms[:, :, None, None], axis=2)[:, :, 0]
    releases = of_kind(history, "new")
    assert len(releases) == 39
    drawn = [math.sqrt(2) * report_noise(history.view.randomness.draws(k), noise.std, 1, 2)[0] for k in range(1, 40)]
    for release, message in enumerate(releases, start=1):
        carried = [(release >> bit << bit) - 1 for bit in range(6) if release >> bit & 1]
        gram = np.einsum("tid,tie->ide", x[:release], x[:release]) + sum(drawn[place][:, 0] for place in carried)
        np.testing.assert_allclose(message["gram"][:, 0], gram + 2 * noise.rmin * np.eye(2))


def test_with_less_noise_fed_ucb_learns():
    env, _ = exact(T=300, M=20)
    regret = {
        scale: fb.play(env, FedUCB(noise_scale=scale, width_scale=0.1, **SETTINGS), seed=0).mean_regret()[-1]
        for scale in (1e-4, 1.0)
    }
    assert regret[1e-4] < 0.5 * regret[1.0]


# --- what is said of privacy ------------------------------------------------------------------------------------------


def test_a_history_says_what_was_promised():
    env, _ = exact(T=30)
    history = fb.play(env, PrivateFedLinUCB(epsilon=2.0), seed=0)
    assert history.privacy == (2.0, 1e-5)
    assert "2, 1e-05-private" in repr(history)
    for policy in (PrivateFedLinUCB(epsilon=math.inf), FedUCB(), DisLinUCB()):
        assert fb.play(env, policy, seed=0).privacy is None


def test_tables_show_budgets_where_a_policy_has_one(tmp_path):
    problem = {"num_agents": 3, "max_cycles": 30, "context": "streaming"}
    policies = [fb.PolicySpec("Private-FedLinUCB", {"epsilon": 0.5}), "FedUCB", "Uniform"]
    experiment = fb.Experiment("fedbandit/Synthetic-v0", policies, problem, trials=2)
    fb.run(experiment, out=tmp_path, executor="serial")
    read = fb.Result.load(tmp_path)
    table = read.table()
    for name, budget in {"epsilon": 0.5, "privacy_delta": 1e-5}.items():
        np.testing.assert_array_equal(table[name], [budget, np.nan, np.nan])
    assert read.privacy(read.labels[0]) == (0.5, 1e-5)
    assert "the budget of differential privacy" in tables.note("summary", list(table), num_trials=2)
    others = fb.run(fb.Experiment("fedbandit/Synthetic-v0", ["Uniform"], problem, trials=1), executor="serial")
    assert "epsilon" not in others.table()


@pytest.mark.parametrize(
    ("name", "value"),
    [("epsilon", 0.0), ("epsilon", math.nan), ("epsilon", "all"), ("privacy_delta", 0.0), ("reward_bound", 0.0)],
)
@pytest.mark.parametrize("policy", [PrivateFedLinUCB, FedUCB])
def test_what_is_no_budget_is_refused(policy, name, value):
    assert_refused(lambda: policy(**{name: value}), f"{name}: ", repr(value))
