"""Fed-CI whose server knows the distributions: the joint posterior by hand, and what it tells, refuses and costs."""

import numpy as np
import pytest
from scipy import stats
from units import in_units

import fedbandit_envs as fb
from fedbandit_agents import FedCI
from fedbandit_agents.inference import joint_posterior
from fedbandit_agents.inference.joint_posterior import JointPosterior, MeanRewards
from fedbandit_agents.inference.joint_server import JointServer
from fedbandit_envs.testing.check import check_policy

JOINT = FedCI(server_knows="distributions")
RNG = np.random.default_rng(0)
SKEWED = fb.Linear(
    RNG.normal(size=(4, 2)),
    contexts=fb.Gaussian(RNG.normal(size=(6, 2)), covariance=[[0.02, 0.01], [0.01, 0.02]]),
    feature_map=fb.Identity(4, 2),
)
PEOPLE = fb.MovieLens(num_agents=12, context_std=0.2, noise_std=0.1)
M, K, D = 5, 4, 2


@pytest.fixture
def exact(monkeypatch):
    """Without the part of the bias that counts as noise, the likelihood is known in closed form."""
    monkeypatch.setattr(joint_posterior, "_NUGGET", 0.0)


def told(seed=1):
    """Mean rewards of some agents, theta, and the covariances (M, K, K) of the rewards at any theta."""
    rng = np.random.default_rng(seed)
    root = 0.4 * rng.normal(size=(M, D, D))
    rewards = MeanRewards(rng.normal(size=(M, K, D)), root, rng.normal(size=(M, K)), rng.exponential(size=(M, K)))

    def covariance(theta):
        bias = np.einsum("ad,mdq->maq", theta, root)
        return np.einsum("maq,mbq->mab", bias, bias) + rewards.variance[:, None] * np.eye(K)

    return rewards, rng.normal(size=(K, D)), covariance


def derivative(function, theta):
    """Central differences (K d, ...) of a function of theta."""
    steps = 1e-5 * np.eye(theta.size).reshape(-1, *theta.shape)
    return np.array([(function(theta + step) - function(theta - step)) / 2e-5 for step in steps])


def test_the_likelihood_is_that_of_the_normal_law_up_to_a_constant(exact):
    rewards, theta, covariance = told()

    def log(theta):
        means, laws = np.einsum("mad,ad->ma", rewards.psi, theta), covariance(theta)
        return sum(stats.multivariate_normal.logpdf(rewards.means[i], means[i], laws[i]) for i in range(M))

    constant = log(theta) - rewards.at(theta).log()
    assert log(2 * theta) - rewards.at(2 * theta).log() == pytest.approx(constant)


def test_score_and_information_are_those_of_numerical_derivatives(exact):
    rewards, theta, covariance = told()
    score = derivative(lambda at: rewards.at(at).log(), theta)
    np.testing.assert_allclose(rewards.at(theta).score().sum(axis=0).ravel(), score, rtol=1e-6)
    # Fisher's information of a normal law is dm' W dm + tr(W dC W dC) / 2.
    moved, spread = (
        derivative(lambda at: np.einsum("mad,ad->ma", rewards.psi, at), theta),
        derivative(covariance, theta),
    )
    W = np.linalg.inv(covariance(theta))
    expected = np.einsum("xma,mab,ymb->mxy", moved, W, moved)
    expected += np.einsum("mab,xmbc,mcd,ymda->mxy", W, spread, W, spread) / 2
    np.testing.assert_allclose(rewards.at(theta).information(), expected, rtol=1e-6, atol=1e-8)


def test_arms_without_pulls_tell_nothing(exact):
    rewards, theta, _ = told()
    rewards.variance[:, 1] = np.inf
    fewer = MeanRewards(*(each[:, [0, 2, 3]] if each.shape[1] == K else each for each in vars(rewards).values()))
    assert rewards.at(theta).log() == pytest.approx(fewer.at(theta[[0, 2, 3]]).log())
    assert not rewards.at(theta).score()[:, 1].any()


def test_given_theta_the_mean_rewards_follow_by_conditioning(exact):
    rewards, theta, covariance = told()
    mean, law = rewards.at(theta).mean_rewards(theta, np.zeros((K * D, K * D)))
    for i in range(M):
        bias = theta @ rewards.root[i] @ rewards.root[i].T @ theta.T
        before = rewards.psi[i] @ theta.T
        before = before[np.arange(K), np.arange(K)]
        gain = bias @ np.linalg.inv(covariance(theta)[i])
        np.testing.assert_allclose(mean[i], before + gain @ (rewards.means[i] - before))
        np.testing.assert_allclose(law[i], bias - gain @ bias, atol=1e-12)


def test_what_theta_adds_to_their_covariance_follows_from_how_their_means_move(exact):
    rewards, theta, _ = told()
    known, certain = np.linalg.cholesky(np.eye(K * D)), np.zeros((K * D, K * D))
    moved = derivative(lambda at: rewards.at(at).mean_rewards(at, certain)[0], theta)  # (K d, M, K)
    law, given = (rewards.at(theta).mean_rewards(theta, root)[1] for root in (known, certain))
    np.testing.assert_allclose(law - given, np.einsum("xma,xmb->mab", moved, moved), rtol=1e-5, atol=1e-8)


def test_fisher_scoring_finds_the_highest_point_and_agents_are_held_some_at_a_time():
    rewards, theta, _ = told()
    found = [JointPosterior(rewards, np.eye(D), np.zeros(D), rows).highest(theta) for rows in (2, 100)]
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)
    posterior = JointPosterior(rewards, np.eye(D), np.zeros(D), 100)
    for step in 0.05 * np.random.default_rng(0).normal(size=(20, K, D)):
        assert posterior.height(found[1] + step) < posterior.height(found[1])


# --- the policy ------------------------------------------------------------------------------------------------------


def play(problem, policy=JOINT, horizon=2**12, seed=0, **keywords):
    return fb.play(fb.HiddenContextBandit(problem, max_cycles=horizon), policy, seed=seed, **keywords)


@pytest.mark.slow
def test_the_contract_holds():
    assert "no fault" in check_policy(JOINT, problems={"covariance": SKEWED, "movielens": PEOPLE}, horizon=100)


def test_one_block_or_many_give_the_same_run():
    whole, split = (play(PEOPLE, blocks=blocks) for blocks in (None, [[3, 0, 7], [1], [2, 4, 5, 6, 8, 9, 10, 11]]))
    np.testing.assert_array_equal(whole.pulls, split.pulls)
    np.testing.assert_array_equal(whole.ledger.per_round, split.ledger.per_round)


def test_rewards_in_other_units_give_the_same_pulls():
    plain = play(PEOPLE, horizon=600).pulls
    for factor in (2.0**-10, 8.0):
        np.testing.assert_array_equal(play(in_units(PEOPLE, factor), horizon=600).pulls, plain)


def test_communication_is_what_the_formula_says():
    # Up: 2 for each arm with news and 2 residuals; K d + d(d+1)/2 for mu, once. Down to each who spoke: K (2 + q) for
    # its posterior, with q = 2 d factors, and the noise scale. Before that, d + 1 for each arm pulled, and d + 1 down.
    history, up, down, first = play(PEOPLE, record=True), 0, 0, True
    num_arms, d = history.constants.num_arms, 3
    for turn in history.exchanges:
        if turn.up is None:
            continue
        if turn.up.kind == "first":
            up += (d + 1) * int(turn.up.present["theta"].sum())
            down += PEOPLE.num_agents * (d + 1)
            continue
        n = len(turn.up.agents)
        up += 2 * int(turn.up.present["pulls"].sum()) + 2 * n + n * first * (num_arms * d + d * (d + 1) // 2)
        down += n * (num_arms * (2 + 2 * d) + 1)
        first = False
    assert (history.ledger.scalars_up, history.ledger.scalars_down) == (up, down)


@pytest.mark.parametrize("problem", [fb.Household(num_agents=12, noise_std=0.1), fb.Synthetic(num_agents=12)])
def test_where_contexts_are_not_shared_normals_the_option_changes_nothing(problem):
    ours, usual = (play(problem, policy, 2**10) for policy in (JOINT, FedCI()))
    np.testing.assert_array_equal(ours.pulls, usual.pulls)
    np.testing.assert_array_equal(ours.ledger.per_round, usual.ledger.per_round)


@pytest.mark.parametrize("dropout", [0.3, 0.9])
def test_lost_reports_cost_little(dropout):
    problem = fb.MovieLens(num_agents=20, context_std=0.2, noise_std=0.1)
    whole, lossy = (
        np.mean([play(problem, JOINT, 2**10, seed, faults=faults).mean_regret()[-1] for seed in range(3)])
        for faults in (None, fb.Faults(dropout=dropout))
    )
    assert lossy < 6 * whole  # as for the other reports


@pytest.mark.parametrize("noise_std", [0.0, 1.0])
@pytest.mark.parametrize("num_agents", [1, 2])
def test_few_agents_and_no_noise_are_no_trouble(num_agents, noise_std):
    problem = fb.MovieLens(num_agents=num_agents, context_std=0.1, noise_std=noise_std)
    assert np.isfinite(play(problem).mean_regret()[-1])


def test_reports_that_can_not_be_are_refused():
    server = JointServer(JOINT, fb.Constants(6, 1, 2, 100, 1.0, 2.0, 1.0, "fixed", longest=2.0))
    arrays = {
        "pulls": np.array([[1], [-1], [2], [3], [101], [4]]),
        "means": np.ones((6, 1)),
        "psi": np.array([1, 1, 1, 1, 1, 3.0]).reshape(6, 1, 1) * [1, 1],
        "covariance": np.array([[1.0, 0, 1], [1, 0, 1], [1, 2, 1], [1, 1, 1], [1, 0, 1], [1, 0, 1]]),
        "residuals": np.ones((6, 2)),
    }
    assert sorted(server.refuses(fb.Message("rewards", arrays, np.arange(6)))) == [1, 2, 4, 5]


def test_words_for_what_the_server_knows_are_checked():
    with pytest.raises(ValueError, match=r"^server_knows: expected .*reports"):
        FedCI(server_knows="all")


@pytest.mark.slow
def test_where_one_context_moves_many_arms_the_joint_posterior_pays():
    # The whole paired interval of 95 % of the difference to reports lies below 0.
    problem = fb.MovieLens(num_agents=100, context_std=0.2, noise_std=0.1)
    ours, usual = (
        np.array([play(problem, policy, 2**15, seed).mean_regret()[-1] for seed in range(8)])
        for policy in (JOINT, FedCI())
    )
    difference = ours - usual
    assert difference.mean() + 2.36 * difference.std(ddof=1) / np.sqrt(8) < 0, (ours, usual)
