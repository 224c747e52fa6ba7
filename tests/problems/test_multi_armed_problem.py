"""Multi-armed bandits as bandits with hidden contexts, and the regrets of a group."""

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.cli.main import main
from fedbandit_envs.problems.generator import draw_instance

LOCAL = [[1.0, 0.0, 0.75], [0.0, 0.5, 0.75], [0.5, 0.25, 0.0]]  # averages 0.5, 0.25, 0.5


def game(**keywords):
    return draw_instance(fb.MultiArmed(local_means=LOCAL, local_std=0.4, **keywords), 0)


def test_the_local_deviation_is_the_hidden_context():
    instance = draw_instance(fb.MultiArmed(num_agents=4, means=[0.1, 0.9], local_std=0.3), seed=1)
    np.testing.assert_array_equal(instance.theta, [[0.1, 1.0], [0.9, 1.0]])
    np.testing.assert_array_equal(instance.psi, np.tile([1.0, 0.0], (4, 2, 1)))
    np.testing.assert_array_equal(instance.distribution_means, [[0.1, 0.9]] * 4)
    np.testing.assert_array_equal(instance.phi[..., 0], 1.0)
    np.testing.assert_allclose(instance.means, [0.1, 0.9] + instance.phi[..., 1])
    assert instance.phi[..., 1].all()


def test_deviations_have_the_standard_deviation_that_agents_are_told():
    # 20,000 normals: a standard deviation off by more than 5 standard errors has a false-alarm rate of 6e-7.
    instance = draw_instance(fb.MultiArmed(num_agents=2000, local_std=0.3), seed=0)
    deviations = instance.means - instance.distribution_means
    assert abs(deviations.std() / 0.3 - 1) < 5 / np.sqrt(2 * deviations.size)
    constants = instance.constants(horizon=10)
    assert (constants.ell, constants.L, constants.same_arms) == (1.0, 1.0, True)
    assert constants.context_proxy == pytest.approx(0.09)
    np.testing.assert_array_equal(instance.distribution.std, [[0.0, 0.3] * 10])


def test_deviations_that_are_drawn_anew_are_noise():
    # 20,000 agents pull once: a variance off by more than 5 standard errors has a false-alarm rate of 6e-7.
    env = fb.make(
        "fedbandit/MultiArmed-v0", num_agents=20_000, means=[0.5], local_std=0.6, noise_std=0.8, context="resampled"
    )
    env.reset(seed=0)
    rewards = env.pull(fb.Plan.explore_each(1, 20_000, 1)).sums()[:, 0]
    assert abs(rewards.var() - (0.6**2 + 0.8**2)) < 5 * np.sqrt(2 / 20_000)


def test_without_deviations_all_agents_play_the_same_bandit():
    instance = draw_instance(fb.MultiArmed(num_agents=3, num_arms=4), seed=2)
    assert instance.means.shape == (3, 4)
    assert (instance.means == instance.means[0]).all()
    assert 0 <= instance.means.min() < instance.means.max() <= 1
    np.testing.assert_array_equal(instance.gaps("group_regret"), instance.gaps("regret"))


def test_given_local_means_are_the_means_and_their_averages_the_common_ones():
    instance = game()
    np.testing.assert_allclose(instance.means, LOCAL, atol=1e-15)
    np.testing.assert_allclose(instance.distribution_means, [[0.5, 0.25, 0.5]] * 3)
    other = draw_instance(fb.MultiArmed(local_means=LOCAL, means=[0.4, 0.4, 0.4], local_std=0.4), 0)
    np.testing.assert_allclose(other.means, LOCAL, atol=1e-15)
    np.testing.assert_allclose(other.distribution_means, 0.4)


def test_bernoulli_rewards_are_zero_or_one_with_the_local_means():
    env = fb.make("fedbandit/MultiArmed-v0", local_means=LOCAL, local_std=0.4, rewards="bernoulli", max_cycles=30)
    env.reset(seed=0)
    for _ in range(20):
        _, rewards, *_ = env.step(dict.fromkeys(env.agents, 0))
        assert rewards["agent_0"] == 1
        assert rewards["agent_1"] == 0
        assert rewards["agent_2"] in (0, 1)


def test_group_and_mixed_gaps_by_hand():
    instance = game()
    np.testing.assert_allclose(instance.gaps("group_regret"), [[0, 0.25, 0]] * 3, atol=1e-15)
    # Half and half: agent 0 has the means 0.75, 0.125, 0.625, agent 1 has 0.25, 0.375, 0.625.
    mixed = instance.gaps("mixed_regret:0.5")
    np.testing.assert_allclose(mixed, [[0, 0.625, 0.125], [0.375, 0.25, 0], [0, 0.25, 0.25]], atol=1e-15)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9, 1.0])
def test_a_mixed_gap_is_the_best_mixed_mean_minus_the_own(share):
    instance = draw_instance(fb.MultiArmed(num_agents=7, local_std=0.5), seed=3)
    means = share * instance.means + (1 - share) * instance.means.mean(axis=0)
    expected = means.max(axis=1, keepdims=True) - means
    np.testing.assert_allclose(instance.gaps(f"mixed_regret:{share}"), expected, atol=1e-12)


def test_a_shard_compares_with_the_arm_of_all_agents():
    instance = game()
    for kind in ("group_regret", "mixed_regret:0.5"):
        np.testing.assert_array_equal(instance.rows(np.array([1])).gaps(kind), instance.gaps(kind)[[1]])


def test_a_history_knows_every_mixed_regret():
    env = fb.make("fedbandit/MultiArmed-v0", local_means=LOCAL, local_std=0.4, max_cycles=40)
    history = fb.play(env, fb.make_policy("Uniform"), seed=0)
    for kind in ("group_regret", "mixed_regret:0.5", "mixed_regret:0.3"):
        expected = (history.pulls[-1] * env.instance.gaps(kind)).sum(axis=1)
        np.testing.assert_allclose(history.regret(kind)[-1], expected)


@pytest.mark.parametrize("kind", ["mixed_regret", "mixed_regret:2", "mixed_regret:nan", "mixed_regret:a"])
def test_a_mixed_regret_needs_a_share(kind):
    with pytest.raises(ValueError, match="expected 'mixed_regret:SHARE' with a share from 0 to 1"):
        game().gaps(kind)


def test_an_unknown_kind_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'group_regret'"):
        game().gaps("groupregret")


def test_the_command_line_and_results_know_the_regrets_of_a_group(tmp_path, capsys):
    arguments = {"local_means": LOCAL, "local_std": 0.4, "max_cycles": 12}
    result = fb.run(fb.Experiment("fedbandit/MultiArmed-v0", ["Uniform"], arguments, trials=1), tmp_path, "processes:1")
    pulls = 12 / 3
    assert result.final("Uniform", "mean_group_regret") == pytest.approx([0.25 * pulls])
    assert result.final("Uniform", "mean_mixed_regret:0.5") == pytest.approx([1.875 / 3 * pulls])
    assert main(["compare", str(tmp_path), "--kind", "mixed_regret:0.5", "--columns", "regret", "--format", "csv"]) == 0
    assert float(capsys.readouterr().out.split()[1]) == pytest.approx(1.875 / 3 * pulls)
    assert fb.plotting.regret(result, kind="group_regret").axes[0].get_ylabel() == "group regret per agent"


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"local_means": LOCAL}, "local_std: expected more than 0"),
        ({"local_means": LOCAL, "local_std": 0.4, "num_agents": 4}, "num_agents: expected 3, the size of the given"),
        ({"means": [0.1, 0.2], "num_arms": 3}, "num_arms: expected 2, the size of the given means"),
        ({"local_means": LOCAL, "means": [0.1], "local_std": 1}, "local_means: expected"),
        ({"local_means": LOCAL, "local_std": 1, "context": "resampled"}, "local_means: expected none"),
        ({"rewards": "bernoulli", "local_std": 0.1}, "local_std: expected 0 for 'bernoulli' without local_means"),
        ({"rewards": "bernoulli", "means": [0.5, 1.5]}, "expected mean rewards in"),
        ({"local_std": -1}, "local_std"),
        ({"rewards": "poisson"}, "rewards: expected"),
        ({"num_arms": 0}, "num_arms"),
    ],
)
def test_problems_that_mean_nothing_are_refused(keywords, words):
    with pytest.raises(ValueError, match=words):
        fb.MultiArmed(**keywords)
