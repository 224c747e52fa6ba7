"""The linear policies on real environments: cases by hand, reductions to one another, and the slow oracle."""

import numpy as np
import pytest
import reference_linear as oracle
import reference_weights
from linear_problems import as_problem, before, drawn, recorded, stream, talked

import fedbandit_envs as fb
from fedbandit_agents.linear.ridge import predictions

# --- Kirschner and Krause, by hand ------------------------------------------------------------------------------------

E1, E2 = np.eye(2)


def one_agent(theta, came, policy, **shown):
    """The agents of a policy after one pull; the arms are shown as e_1 and e_2, and the features `came`."""
    shown = {"context": "streaming", "noise_std": 0.0, "shared_theta": True, "max_cycles": 3, **shown}
    mu = [fb.Gaussian([[*E1, *E2]], std=0.1)] * 3
    true = np.tile([*came, *E2], (3, 1, 1))
    env = fb.make(
        "fedbandit/Linear-v0", theta=[theta] * 2, contexts=mu, feature_map=fb.Table(2, 2), true_contexts=true, **shown
    )
    rounds = fb.CommunicationRounds(env, policy, record=True)
    rounds.start(seed=0)
    first = indices(rounds.sides[0])
    rounds.advance()
    return first, rounds.sides[0]


def indices(agents):
    means, lengths = predictions(agents.ridge, agents.view.psi)
    return (means + agents.width() * lengths)[0]


@pytest.mark.parametrize("policy", [fb.make_policy("KK-UCB"), fb.make_policy("Lin-Hidden", threshold=1e9)])
def test_hidden_contexts_by_hand(policy):
    first, agents = one_agent(E1, E1, policy)  # it pulls e_1 and is paid 1
    np.testing.assert_allclose(first, [5.79853, 5.79853], atol=5e-6)
    np.testing.assert_allclose(agents.ridge.theta()[0, 0], [0.5, 0])
    np.testing.assert_allclose(indices(agents), [4.84658, 6.14700], atol=5e-6)
    assert agents.choose().tolist() == [1]


@pytest.mark.parametrize(
    "policy", [fb.make_policy("KK-UCB-Observed"), fb.make_policy("Lin-Delayed", threshold=1e9)], ids=["KK", "Lin"]
)
def test_revealed_contexts_by_hand(policy):
    first, agents = one_agent([0.6, 0.8], [0.6, 0.8], policy, reveal="after")
    np.testing.assert_allclose(first, [3.14597, 3.14597], atol=5e-6)
    np.testing.assert_allclose(agents.ridge.theta()[0, 0], [0.3, 0.4])
    np.testing.assert_allclose(indices(agents), [3.28991, 3.12274], atol=5e-6)
    assert agents.choose().tolist() == [0]


# --- communication where d = 1 and x = 1, by hand ---------------------------------------------------------------------


def ones(M, T):
    return fb.make(
        "fedbandit/Linear-v0", theta=[[0.5]], features=np.ones((T, M, 1, 1)), context="streaming", max_cycles=T
    )


@pytest.mark.parametrize("name", ["DisLinUCB", "Lin-Hidden", "Weighted-DisLinUCB"])
def test_two_agents_synchronise_at_k_times_k_plus_one(name):
    history, _, _ = recorded(ones(2, 60), fb.make_policy(name, threshold=2.0))
    assert talked(history).uploads == [(t, i) for t in (2, 6, 12, 20, 30, 42, 56) for i in (0, 1)]
    sums = [one.down["gram"].item() + 1 for one in history.exchanges if one.down is not None and one.down.arrays]
    assert sums == [5, 13, 25, 41, 61, 85, 113]


def test_the_closed_form_on_fixed_contexts_synchronises_at_the_same_steps():
    env = fb.make("fedbandit/Linear-v0", theta=[[0.5]], features=np.ones((2, 1, 1)), max_cycles=60)
    history, _, _ = recorded(env, fb.make_policy("DisLinUCB", threshold=2.0))
    assert talked(history).uploads == [(t, i) for t in (2, 6, 12, 20, 30, 42, 56) for i in (0, 1)]


@pytest.mark.parametrize("name", ["DisLinUCB", "Lin-Hidden", "Weighted-DisLinUCB"])
def test_threshold_0_synchronises_at_each_step(name):
    history, _, _ = recorded(ones(3, 20), fb.make_policy(name, threshold=0.0))
    assert talked(history).uploads == [(t, i) for t in range(1, 20) for i in range(3)]
    sums = [one.down["gram"].item() for one in history.exchanges if one.down is not None and one.down.arrays]
    assert sums == [3 * t for t in range(1, 20)]  # what one agent would know of three times as many pulls


@pytest.mark.parametrize(("M", "steps"), [(1, [2, 6, 14, 30]), (2, [2, 8, 26, 80]), (3, [2, 10, 42])])
def test_fed_lin_ucb_uploads_when_its_determinant_has_doubled(M, steps):
    history, _, _ = recorded(ones(M, steps[-1] + 1), fb.make_policy("FedLinUCB", alpha=1.0))
    found = talked(history)
    assert found.uploads == found.downloads == [(t, i) for t in steps for i in range(M)]
    assert history.ledger.messages == 2 * len(found.uploads)
    assert history.ledger.scalars == 2 * 2 * len(found.uploads)  # a Gram matrix of 1 number, and a moment
    last = history.exchanges[-1].down if history.exchanges[-1].down is not None else history.exchanges[-2].down
    assert last["gram"][0].item() + 1 == 2 * (M + 1) ** len(steps) - 1


def test_async_lin_ucb_with_two_agents_uploads_and_never_downloads():
    history, _, _ = recorded(ones(2, 31), fb.make_policy("Async-LinUCB"))
    found = talked(history)
    assert found.uploads == [(t, i) for t in (2, 6, 14, 30) for i in (0, 1)]
    assert found.downloads == []


def test_async_lin_ucb_with_three_agents_uploads_and_downloads_together():
    history, _, _ = recorded(ones(3, 11), fb.make_policy("Async-LinUCB"))
    found = talked(history)
    assert found.uploads == found.downloads == [(t, i) for t in (2, 10) for i in range(3)]


def test_in_turn_the_first_upload_spares_the_others_theirs():
    # After step 2 all three want to upload. With the first upload V_g + 1 = 3, which is more than 1.5 times what the
    # others know of it, 1: they receive it, and 5 is no more than twice 3, what they would know without their news.
    history, _, _ = recorded(ones(3, 4), fb.make_policy("Async-LinUCB", download=1.5, one_by_one=True))
    found = talked(history)
    assert found.uploads == [(2, 0)]
    assert found.downloads == [(2, 1), (2, 2)]
    assert history.ledger.messages_up == 3 + 1  # requests, and the upload
    assert history.ledger.messages_down == 1 + 3  # a turn; then all are told, two of them with numbers
    assert history.ledger.scalars == 2 * 3


# --- reductions -------------------------------------------------------------------------------------------------------

LINEAR = {"sigma": 0.3, "delta": 0.1}


@pytest.mark.parametrize("shared", [True, False])
def test_where_contexts_are_known_all_ways_to_learn_are_one(shared):
    env, _ = stream(std=0, M=3, shared=shared, reveal="after")
    names = ["DisLinUCB", "Lin-Hidden", "Lin-Delayed", "Weighted-DisLinUCB"]
    runs = [recorded(env, fb.make_policy(name, threshold=4.0, **LINEAR)) for name in names]
    for history, arms, _ in runs[1:]:
        assert arms.tobytes() == runs[0][1].tobytes()
        assert talked(history).uploads == talked(runs[0][0]).uploads != []


@pytest.mark.parametrize(
    ("name", "alone"),
    [
        ("Lin-Hidden", "KK-UCB"),
        ("DisLinUCB", "KK-UCB"),
        ("Async-LinUCB", "KK-UCB"),
        ("Lin-Delayed", "KK-UCB-Observed"),
    ],
)
@pytest.mark.parametrize("shared", [True, False])
def test_one_agent_that_never_speaks_is_kk_ucb(name, alone, shared):
    env, _ = stream(M=1, shared=shared, reveal="after")
    silent = {"upload": 1e300} if name == "Async-LinUCB" else {"threshold": 1e300}
    history, arms, _ = recorded(env, fb.make_policy(name, **silent, **LINEAR))
    assert arms.tobytes() == recorded(env, fb.make_policy(alone, **LINEAR))[1].tobytes()
    assert history.ledger.rounds == 0


@pytest.mark.parametrize("shared", [True, False])
def test_whoever_shares_everything_at_each_step_decides_alike(shared):
    """With gammas of 1 and with an alpha that any new observation exceeds, all know the same after each step."""
    env, _ = stream(M=3, shared=shared)
    all_at_once, expected, _ = recorded(env, fb.make_policy("DisLinUCB", threshold=0.0, **LINEAR))
    history, arms, _ = recorded(env, fb.make_policy("Async-LinUCB", upload=1.0, download=1.0, **LINEAR))
    np.testing.assert_array_equal(arms, expected)
    assert talked(history).uploads == talked(all_at_once).uploads == [(t, i) for t in range(1, 60) for i in range(3)]
    constant = {"width": 0.5, **LINEAR}
    runs = [
        recorded(env, fb.make_policy(name, **constant, **how))
        for name, how in (("FedLinUCB", {"alpha": 1e-12}), ("Async-LinUCB", {"upload": 1.0, "download": 1.0}))
    ]
    np.testing.assert_array_equal(runs[0][1], runs[1][1])
    assert talked(runs[0][0]).uploads == talked(runs[1][0]).uploads


def test_without_a_guarantee_dis_lin_ucb_is_lin_hidden_and_with_one_its_bounds_are_narrower():
    env, _ = stream()
    arms = [recorded(env, fb.make_policy(name))[1].tobytes() for name in ("DisLinUCB", "Lin-Hidden")]
    assert arms[0] == arms[1]
    env, _ = stream(context_proxy=0.5)
    rounds = fb.CommunicationRounds(env, fb.make_policy("DisLinUCB", sigma=0.5))
    rounds.start(seed=0)
    assert rounds.sides[0].scale == pytest.approx(np.sqrt(0.5 + 0.25))


def stays(M, seed=0, T=150):
    """Hidden contexts that stay the same, a theta for each arm, and nothing guaranteed."""
    rng = np.random.default_rng(seed)
    mu = fb.Gaussian(rng.uniform(-0.7, 0.7, (M, 8)), std=0.2)
    return fb.make(
        "fedbandit/Linear-v0", theta=rng.normal(size=(4, 2)), contexts=mu, feature_map=fb.Table(4, 2), max_cycles=T
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_closed_form_on_fixed_contexts_decides_as_the_general_engine(seed):
    closed, general = (
        recorded(stays(3, seed), fb.make_policy(name, threshold=5.0)) for name in ("DisLinUCB", "Lin-Hidden")
    )
    np.testing.assert_array_equal(closed[1], general[1])
    assert talked(closed[0]).uploads == talked(general[0]).uploads != []


def test_on_fixed_contexts_too_one_agent_that_never_speaks_is_kk_ucb():
    arms = [recorded(stays(1), fb.make_policy(name))[1] for name in ("KK-UCB", "Local-UCB")]
    for name in ("DisLinUCB", "Lin-Hidden"):
        np.testing.assert_array_equal(recorded(stays(1), fb.make_policy(name, threshold=1e300))[1], arms[0])
    assert not np.array_equal(*arms)


def test_on_fixed_contexts_with_one_theta_only_lin_hidden_shares_an_estimate_among_arms():
    mu = fb.Gaussian(np.random.default_rng(0).uniform(-0.7, 0.7, (1, 8)), std=0.2)
    shown = {"contexts": mu, "feature_map": fb.Table(4, 2), "shared_theta": True}
    env = fb.make("fedbandit/Linear-v0", theta=np.tile([0.8, 0.3], (4, 1)), max_cycles=150, **shown)
    never = {"threshold": 1e300}
    closed, alone, general = (
        recorded(env, fb.make_policy(name, **settings))[1]
        for name, settings in (("DisLinUCB", never), ("KK-UCB", {}), ("Lin-Hidden", never))
    )
    np.testing.assert_array_equal(closed, alone)
    assert not np.array_equal(closed, general)


# --- the oracle -------------------------------------------------------------------------------------------------------

HIDDEN, REVEALED = {"delayed": False, "scale": np.sqrt(4 + 0.09)}, {"delayed": True, "scale": 0.3}
DETERMINANT = {"delta": 0.1, "bound": 1.0}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("threshold", [0.0, 3.0])
@pytest.mark.parametrize(("name", "how"), [("Lin-Hidden", HIDDEN), ("Lin-Delayed", REVEALED), ("DisLinUCB", HIDDEN)])
def test_the_oracle_plays_those_that_synchronise(name, how, threshold, seed):
    env, psi = stream(seed, reveal="after")
    history, arms, rewards = recorded(env, fb.make_policy(name, threshold=threshold, **LINEAR))
    problem = as_problem(history, psi, arms, rewards)
    slow = oracle.dis_lin_ucb(problem, lam=1.0, threshold=threshold, **how, **DETERMINANT)
    np.testing.assert_array_equal(arms, slow.arms)
    assert talked(history).uploads == before(slow.uploads, len(arms)) != []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("FedLinUCB", {"alpha": 0.5}),
        ("Async-LinUCB", {"upload": 1.5, "download": 1.2}),
        ("Async-LinUCB", {"upload": 1.0, "download": 1.0}),
    ],
)
def test_the_oracle_plays_those_that_talk_one_by_one(name, settings, shared, seed):
    env, psi = stream(seed, shared=shared)
    history, arms, rewards = recorded(env, fb.make_policy(name, width=0.5, regularisation=0.7, **settings))
    problem = as_problem(history, psi, arms, rewards)
    problem = problem if shared else oracle.for_each_arm(problem)
    if name == "FedLinUCB":
        slow = oracle.fed_lin_ucb(problem, width=0.5, lam=0.7, alpha=0.5)
    else:
        slow = oracle.async_lin_ucb(
            problem, width=0.5, lam=0.7, up=settings["upload"], down=settings["download"], one_by_one=False
        )
    np.testing.assert_array_equal(arms, slow.arms)
    found = talked(history)
    assert found.uploads == before(slow.uploads, len(arms)) != []
    assert found.downloads == before(slow.downloads, len(arms)) != []


@pytest.mark.parametrize("seed", range(3))
def test_the_oracle_plays_uploads_in_turn(seed):
    env, psi = stream(seed, M=4)
    policy = fb.make_policy("Async-LinUCB", width=0.5, upload=1.5, download=1.2, one_by_one=True)
    history, arms, rewards = recorded(env, policy)
    problem = as_problem(history, psi, arms, rewards)
    slow = oracle.async_lin_ucb(problem, width=0.5, lam=1.0, up=1.5, down=1.2, in_turn=True)
    np.testing.assert_array_equal(arms, slow.arms)
    found = talked(history)
    assert found.uploads == before(slow.uploads, len(arms)) != []
    assert found.downloads == before(slow.downloads, len(arms)) != []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("threshold", [0.0, 3.0])
@pytest.mark.parametrize("shared", [True, False])
def test_the_oracle_plays_weighted_dis_lin_ucb(seed, threshold, shared):
    env, psi = stream(seed, shared=shared)
    history, arms, rewards = recorded(env, fb.make_policy("Weighted-DisLinUCB", threshold=threshold, **LINEAR))
    *_, spreads = drawn(seed, shared=shared)
    slow = reference_weights.weighted_dis_lin_ucb(
        psi, spreads, rewards, sigma=0.3, delta=0.1, bound=1.0, threshold=threshold, shared=shared
    )
    np.testing.assert_array_equal(arms, slow.arms)
    assert talked(history).uploads == before(slow.uploads, len(arms)) != []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shared", [True, False])
def test_the_oracle_plays_residual_lin_ucb(seed, shared):
    rng = np.random.default_rng(seed)
    psi, theta = rng.uniform(-0.7, 0.7, (3, 4, 2)), rng.normal(size=(1 if shared else 4, 2))
    mu = fb.Gaussian(psi.reshape(3, -1), std=0.3)
    shown = {"contexts": mu, "feature_map": fb.Table(4, 2), "shared_theta": shared}
    theta = np.tile(theta, (4 if shared else 1, 1))
    env = fb.make("fedbandit/Linear-v0", theta=theta, noise_std=0.3, max_cycles=80, **shown)
    history, arms, rewards = recorded(env, fb.make_policy("Residual-LinUCB", threshold=3.0, **LINEAR))
    how = {"sigma": 0.3, "v": 4.0, "delta": 0.1, "bound": 1.0, "threshold": 3.0, "shared": shared}
    slow = reference_weights.residual_lin_ucb(psi, 0.3, rewards, **how)
    np.testing.assert_array_equal(arms, slow.arms)
    assert talked(history).uploads == before(slow.uploads, len(arms)) != []
