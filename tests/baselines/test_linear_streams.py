"""KK-UCB and DisLinUCB where contexts change: cases by hand, reductions, and the oracle, which shares no code."""

import numpy as np
import pytest
import reference as ref

import fedbandit_envs as fb
from fedbandit_agents.linear.ridge import predictions
from fedbandit_baselines import KKUCB, DisLinUCB, KKUCBObserved
from fedbandit_baselines.linear.agents import LinearAgents, LinearSettings


def side(settings):
    """One agent with the arms e1 and e2, as in the papers."""
    env = fb.make("fedbandit/Linear-v0", theta=np.eye(2), features=[[[1.0, 0.0], [0.0, 1.0]]])
    env.reset(seed=0)
    return LinearAgents(env.view(), settings)


def indices(agents):
    means, lengths = predictions(agents.ridge, agents.view.psi)
    return means + agents.width() * lengths


HIDDEN = LinearSettings(blocks=1, scale=np.sqrt(5), delta=0.1, theta_bound=1.0)
OBSERVED = LinearSettings(blocks=1, scale=1.0, delta=0.1, theta_bound=1.0, observed=True)


@pytest.mark.parametrize(("settings", "beta"), [(HIDDEN, 5.79853), (OBSERVED, 3.14597)])
def test_the_first_indices_by_hand(settings, beta):
    np.testing.assert_allclose(indices(side(settings)), [[beta, beta]], atol=5e-6)
    assert side(settings).choose().tolist() == [0]  # ties go to the first arm


def test_hidden_contexts_by_hand():
    agent = side(HIDDEN)
    agent.learn(fb.Outcome(np.array([0]), np.array([1]), np.array([1.0])))
    np.testing.assert_allclose(agent.ridge.theta(), [[[0.5, 0]]])
    np.testing.assert_allclose(indices(agent), [[4.84658, 6.14700]], atol=5e-6)
    assert agent.choose().tolist() == [1]


def test_observed_contexts_by_hand():
    agent = side(OBSERVED)
    agent.learn(fb.Outcome(np.array([0]), np.array([1]), np.array([1.0]), np.array([[0.6, 0.8]])))
    np.testing.assert_allclose(agent.ridge.theta(), [[[0.3, 0.4]]])
    np.testing.assert_allclose(indices(agent), [[3.28991, 3.12274]], atol=5e-6)
    assert agent.choose().tolist() == [0]


def test_pulls_of_one_outcome_count_as_often_as_they_were_made():
    once, thrice = side(HIDDEN), side(HIDDEN)
    for reward in (1.0, 0.5, 0.0):
        once.learn(fb.Outcome(np.array([0]), np.array([1]), np.array([reward])))
    thrice.learn(fb.Outcome(np.array([0]), np.array([3]), np.array([1.5])))
    np.testing.assert_allclose(indices(once), indices(thrice), rtol=1e-12)


def stream(M=3, K=4, d=2, T=60, seed=0, std=0.3, **more):
    rng = np.random.default_rng(seed)
    tables = rng.uniform(-1, 1, (T, M, K, d)) / np.sqrt(d)
    theta = rng.uniform(-1, 1, (K, d)) / np.sqrt(d)
    mus = [fb.Gaussian(table.reshape(M, -1), std=std) for table in tables]
    kept = {"contexts": mus, "feature_map": fb.Table(K, d)} if std else {"features": tables}
    more = {"noise_std": 0.3, "max_cycles": T, "context": "streaming", **more}
    return fb.make("fedbandit/Linear-v0", theta=theta, **kept, **more), tables


def recorded(env, policy):
    """The run, its arms (M, T), its rewards (M, T) and its revealed features, (M, T, d) or None."""
    history = fb.play(env, policy, seed=1, record=True)
    feedbacks = [exchange.feedback for exchange in history.exchanges if exchange.plan.length]
    features = None
    if feedbacks[0].features is not None:
        features = np.stack([feedback.features for feedback in feedbacks], axis=1)
    arms, rewards = (np.stack([getattr(one, name) for one in feedbacks], 1) for name in ("arm", "played_sums"))
    return history, arms, rewards, features


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_oracle_plays_kk_ucb(seed, shared):
    more = {}
    if shared:
        more = {"theta": np.tile([0.5, -0.3], (4, 1)), "shared_theta": True}
    env, tables = stream(seed=seed)
    if shared:
        mus = [fb.Gaussian(table.reshape(3, -1), std=0.3) for table in tables]
        more |= {"contexts": mus, "feature_map": fb.Table(4, 2), "context": "streaming", "max_cycles": 60}
        env = fb.make("fedbandit/Linear-v0", **more)
    _, arms, rewards, _ = recorded(env, KKUCB())
    steps = ref.linear_stream(tables, rewards, R=np.sqrt(5), delta=0.1, shared=shared)
    assert ((steps.arms == arms) | (steps.margins < 1e-9)).all()
    assert steps.margins.min() > 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_the_oracle_plays_kk_ucb_on_observed_contexts(seed):
    env, tables = stream(seed=seed, reveal="after")
    _, arms, rewards, features = recorded(env, KKUCBObserved())
    steps = ref.linear_stream(tables, rewards, R=1.0, delta=0.1, features=features)
    assert steps.margins.min() > 1e-9
    np.testing.assert_array_equal(steps.arms, arms)


@pytest.mark.parametrize("threshold", [0.0, 1.5, 8.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_oracle_plays_dis_lin_ucb(seed, threshold):
    env, tables = stream(seed=seed)
    history, arms, rewards, _ = recorded(env, DisLinUCB(threshold=threshold))
    steps = ref.linear_stream(tables, rewards, R=np.sqrt(5), delta=0.1, threshold=threshold)
    assert steps.margins.min() > 1e-9
    np.testing.assert_array_equal(steps.arms, arms)
    assert history.ledger.rounds == 2 * len(steps.synchronisations)
    if threshold == 0:
        assert len(steps.synchronisations) == 59  # at each step but the last, whose report nobody would use


@pytest.mark.parametrize("seed", range(3))
def test_the_oracle_plays_lin_delayed_with_a_theta_for_each_arm(seed):
    env, tables = stream(seed=seed, reveal="after")
    history, arms, rewards, features = recorded(env, fb.make_policy("Lin-Delayed", threshold=1.5))
    steps = ref.linear_stream(tables, rewards, R=1.0, delta=0.1, threshold=1.5, features=features)
    assert steps.margins.min() > 1e-9
    np.testing.assert_array_equal(steps.arms, arms)
    assert history.ledger.rounds == 2 * len(steps.synchronisations) > 0


def test_two_agents_of_dis_lin_ucb_synchronise_by_hand():
    # d = 1, x = 1: synchronisations after k (k + 1) steps.
    env = fb.make(
        "fedbandit/Linear-v0", theta=[[0.5]], features=np.ones((60, 2, 1, 1)), context="streaming", max_cycles=60
    )
    history = fb.play(env, DisLinUCB(threshold=2.0), seed=0, record=True)
    up = [exchange.step for exchange in history.exchanges if exchange.up is not None and exchange.up.kind == "new"]
    assert up == [2, 6, 12, 20, 30, 42, 56]
    sums = [
        exchange.down["gram"].item() + 1
        for exchange in history.exchanges
        if exchange.down is not None and exchange.down.kind == "sums"
    ]
    assert sums[:5] == [5, 13, 25, 41, 61]


def test_known_contexts_make_hidden_and_observed_the_same_run():
    env, tables = stream(std=0, reveal="after")
    hidden, observed = recorded(env, KKUCB()), recorded(env, KKUCBObserved())
    assert hidden[1].tobytes() == observed[1].tobytes()
    assert hidden[2].tobytes() == observed[2].tobytes()
    steps = ref.linear_stream(tables, hidden[2], R=1.0, delta=0.1)  # LinUCB with sigma = 1
    assert steps.margins.min() > 1e-9
    np.testing.assert_array_equal(steps.arms, hidden[1])


def test_one_agent_that_never_synchronises_plays_as_kk_ucb_does():
    env, _ = stream(M=1)
    alone, silent = recorded(env, KKUCB()), recorded(env, DisLinUCB(threshold=1e9))
    assert alone[1].tobytes() == silent[1].tobytes()
    assert silent[0].ledger.rounds == 0
