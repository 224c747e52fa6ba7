"""Rewards: whole plans against stepping, for every combination that is allowed; rows that don't depend on each other.

A plan is drawn for thousands of copies of two agents at once, so each sum of rewards is a sample of its law.
"""

import itertools
import math

import numpy as np
import pytest
from refusals import assert_refused
from scipy.stats import binom, chi2_contingency, chisquare, ks_2samp, norm

from fedbandit_envs.contexts.features import FeatureFunction, Identity, Table
from fedbandit_envs.contexts.finite import Discrete, PointMass
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.contexts.rewards import (
    BernoulliRewards,
    GaussianRewards,
    MixtureRewards,
    SampledRewards,
    _binomial,
)
from fedbandit_envs.envs.episode import Episode
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.protocol.plans import Plan

COPIES = 3000  # so often each of two agents is there
THETA = np.array([[0.5, 0.1], [0.2, 0.4], [0.3, 0.3]])


def bent(c):
    """Three arms; both features from the same coordinate, or each from its own."""
    c = np.broadcast_to(c, (len(c), 2))
    return np.stack([c**2, np.cos(c), np.exp(-c)], axis=1) * [1, 0.8]


MAPS = {"table": Table(3, 2), "identity": Identity(3, 2), "function": FeatureFunction(bent, 3, 2, 1)}
PLANE = {"function of two": FeatureFunction(bent, 3, 2, 2)}
EXPLORE, LENGTH = np.array([[3, 0, 7], [1, 2, 1]]), 16  # exploitation: 6 pulls of arm 0, 12 of arm 2
ARM = np.array([0, 2])


def distribution(kind, feature_map):
    n = feature_map.context_dim
    rng = np.random.default_rng(n)
    mean = rng.uniform(0.3, 0.9, (2, n))
    if kind == "point":
        return PointMass(mean)
    if kind == "discrete":  # three points an agent, the second agent's last one of weight 0
        return Discrete(rng.uniform(0.1, 1, (2, 3, n)), [[0.5, 0.3, 0.2], [0.6, 0.4, 0.0]])
    factors = 0.3 * rng.standard_normal((2, n, n))
    return Gaussian(mean, covariance=factors @ factors.transpose(0, 2, 1) / n)


def make(kind, map_name, context, rewards, noise_std=0.4):
    """Two agents; fixed contexts are drawn once."""
    feature_map = (MAPS | PLANE)[map_name]
    mu = distribution(kind, feature_map)
    contexts = mu.sample(np.random.default_rng(3)).clip(0.05, 1) if context == "fixed" else None
    return BanditInstance(THETA, feature_map, mu, contexts, noise_std, rewards, context)


ALL = list(
    itertools.product(["point", "gaussian", "discrete"], MAPS, ["fixed", "resampled"], ["gaussian", "bernoulli"])
)
REFUSED = [case for case in ALL if case[0] == "gaussian" and case[2:] == ("resampled", "bernoulli")]
SAMPLED = ("gaussian", "function of two", "resampled", "gaussian")
ALLOWED = [*(case for case in ALL if case not in REFUSED), SAMPLED]
# 34 combinations, 7 sums (5 of exploration and 2 of exploitation), 5 tests each: a false alarm in 1e-3 of all seeds.
LEVEL = 1e-3 / (len(ALLOWED) * 7 * 5)


def copies(instance):
    """Rows 0, 2, 4, ... are copies of agent 0, the others of agent 1."""
    return instance.rows(np.tile(np.arange(2), COPIES))


def tiled(plan_part):
    return np.tile(plan_part, (COPIES,) + (1,) * (plan_part.ndim - 1))


PLAN = Plan(tiled(EXPLORE), tiled(ARM), LENGTH)


def stepped(instance, seed):
    """Explored sums (n, K) and played sums (n,) of the plan, step by step."""
    episode = Episode(instance, seed, instance.num_agents)
    rows, ends = np.arange(instance.num_agents), PLAN.explore.cumsum(axis=1)
    explored, played = np.zeros(PLAN.explore.shape), np.zeros(len(PLAN.arm))
    for step in range(LENGTH):
        exploring = step < ends[:, -1]
        arms = np.where(exploring, (ends <= step).sum(axis=1).clip(max=2), PLAN.arm)
        rewards = episode.step(arms)
        explored[rows[exploring], arms[exploring]] += rewards[exploring]
        played[~exploring] += rewards[~exploring]
    return explored, played


def pulled(instance, seed):
    feedback = Episode(instance, seed, instance.num_agents).pull(PLAN)
    np.testing.assert_array_equal(feedback.explored, PLAN.explore)
    np.testing.assert_array_equal(feedback.played, LENGTH - PLAN.explore.sum(axis=1))
    return feedback.explored_sums, feedback.played_sums


def variances(instance):
    """(2, K) of the reward of one pull, by hand."""
    if instance.rewards == "bernoulli":
        return instance.means * (1 - instance.means)
    if instance.context == "fixed":
        return np.full((2, 3), instance.noise_std**2)
    covariance = instance.distribution.reward_covariance(instance.feature_map, instance.theta)
    return np.diagonal(covariance, axis1=1, axis2=2) + instance.noise_std**2


def assert_mean_and_variance(sums, mean, variance):
    """z-tests of both; the second with the fourth moment of the sample."""
    size = len(sums)
    if variance < 1e-30:
        np.testing.assert_allclose(sums, mean, rtol=1e-12)
        return
    deviation = sums - mean
    limit = norm.isf(LEVEL / 2)
    assert abs(deviation.mean()) < limit * math.sqrt(variance / size)
    squares = deviation**2
    assert abs(squares.mean() - variance) < limit * squares.std() / math.sqrt(size) + 1e-12


def assert_same_law(one, other):
    """Kolmogorov-Smirnov where sums are continuous, chi-square where they take few values."""
    values = np.unique(np.round(np.concatenate([one, other]), 9))
    if len(values) > 200:
        assert ks_2samp(one, other, method="asymp").pvalue > LEVEL
        return
    table = np.stack([[np.isclose(sums, value, atol=1e-8).sum() for value in values] for sums in (one, other)])
    assert table.sum() == len(one) + len(other)
    rare = table.sum(axis=0) < 20
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] > 1:
        assert chi2_contingency(table).pvalue > LEVEL


@pytest.mark.parametrize(("kind", "map_name", "context", "rewards"), ALLOWED)
def test_a_plan_and_its_steps_have_the_same_law(kind, map_name, context, rewards, monkeypatch):
    monkeypatch.setattr("fedbandit_envs.contexts.rewards._CHUNK", 5)  # plans are then drawn in several chunks
    instance = make(kind, map_name, context, rewards)
    many = copies(instance)
    by_plan, by_step = pulled(many, seed=11), stepped(many, seed=12)
    variance = variances(instance)
    for agent in range(2):
        counted = [(arm, EXPLORE[agent, arm], 0) for arm in range(3)]
        counted.append((ARM[agent], LENGTH - EXPLORE[agent].sum(), 1))
        for arm, count, part in counted:
            plan_sums, step_sums = (
                (both[0][agent::2, arm] if part == 0 else both[1][agent::2]) for both in (by_plan, by_step)
            )
            for sums in (plan_sums, step_sums):
                assert_mean_and_variance(sums, count * instance.means[agent, arm], count * variance[agent, arm])
            assert_same_law(plan_sums, step_sums)


@pytest.mark.parametrize("context", ["fixed", "resampled"])
@pytest.mark.parametrize("map_name", MAPS)
@pytest.mark.parametrize("kind", ["point", "gaussian", "discrete"])
def test_without_noise_only_the_contexts_are_random(kind, map_name, context, monkeypatch):
    # Each of 7 sums by 3 tests, in 18 combinations: less than the family above, so LEVEL is strict enough.
    monkeypatch.setattr("fedbandit_envs.contexts.rewards._CHUNK", 5)
    instance = make(kind, map_name, context, "gaussian", noise_std=0.0)
    many = copies(instance)
    by_plan, by_step = pulled(many, seed=13), stepped(many, seed=14)
    variance = variances(instance)
    for agent in range(2):
        for arm, count in enumerate(EXPLORE[agent]):
            plan_sums, step_sums = by_plan[0][agent::2, arm], by_step[0][agent::2, arm]
            assert_mean_and_variance(plan_sums, count * instance.means[agent, arm], count * variance[agent, arm])
            assert_same_law(plan_sums, step_sums)


@pytest.mark.parametrize(("kind", "map_name", "context", "rewards"), REFUSED)
def test_zero_one_rewards_with_resampled_gaussian_contexts_are_refused(kind, map_name, context, rewards):
    assert_refused(lambda: make(kind, map_name, context, rewards), "rewards: ", "'gaussian'", "'bernoulli'")


LAWS = {
    "noise": (("gaussian", "identity", "fixed", "gaussian"), GaussianRewards),
    "noise and linear contexts": (("gaussian", "table", "resampled", "gaussian"), GaussianRewards),
    "known contexts, resampled": (("point", "function", "resampled", "gaussian"), GaussianRewards),
    "zero or one": (("discrete", "identity", "fixed", "bernoulli"), BernoulliRewards),
    "zero or one, resampled": (("discrete", "function", "resampled", "bernoulli"), BernoulliRewards),
    "mixture": (("discrete", "identity", "resampled", "gaussian"), MixtureRewards),
    "sampled": (SAMPLED, SampledRewards),
}


@pytest.mark.parametrize("name", LAWS)
def test_each_combination_gets_the_law_that_draws_it_at_once(name):
    case, law = LAWS[name]
    assert type(make(*case).reward_law()) is law


@pytest.mark.parametrize("name", LAWS)
def test_sums_are_uncorrelated_between_arms_parts_and_plans(name, monkeypatch):
    # 7 laws, 2 agents, at most 28 pairs each, at 1e-4 / 392: a false alarm in 1e-4 of all seeds.
    monkeypatch.setattr("fedbandit_envs.contexts.rewards._CHUNK", 5)
    case, _ = LAWS[name]
    many = copies(make(*case))
    episode = Episode(many, 15, many.num_agents)
    parts = []
    for _ in range(2):
        feedback = episode.pull(PLAN)
        parts.append(np.column_stack([feedback.explored_sums, feedback.played_sums]))
    sums = np.concatenate(parts, axis=1)
    for agent in range(2):
        own = sums[agent::2]
        correlations = np.corrcoef(own[:, own.std(axis=0) > 0].T)
        others = correlations[np.triu_indices(len(correlations), 1)]
        assert len(others) >= 15
        assert np.abs(others).max() < norm.isf(1e-4 / 392 / 2) / math.sqrt(COPIES)


def test_steps_are_uncorrelated_with_each_other_with_plans_and_across_blocks_of_steps():
    # 2 x 15 correlations, two-sided: a false alarm in 1e-6 of all seeds.
    many = copies(make("gaussian", "identity", "fixed", "gaussian"))
    episode = Episode(many, 16, many.num_agents)
    arms = np.zeros(many.num_agents, dtype=int)
    steps = [episode.step(arms) for _ in range(2)]
    plans = [episode.pull(Plan.play(arms, 3, length)).played_sums for length in (1, 1, 254)]
    later = episode.step(arms)
    for agent in range(2):
        correlations = np.corrcoef(np.stack([*steps, *plans, later])[:, agent::2])
        assert np.abs(correlations[np.triu_indices(6, 1)]).max() < norm.isf(1e-6 / 60) / math.sqrt(COPIES)


def test_a_long_plan_frees_the_numbers_of_single_steps_and_changes_none():
    instance = copies(make("gaussian", "identity", "fixed", "gaussian"))
    arms = np.zeros(instance.num_agents, dtype=int)

    def paid(between):
        episode = Episode(instance, 17, instance.num_agents)
        episode.pull(Plan.play(arms, 3, 1))
        block = episode._short_plan_noise
        held = block._noise.nbytes
        episode.pull(Plan.play(arms, 3, between))
        return held, block._noise.nbytes, episode.pull(Plan.play(arms, 3, 1)).played_sums

    first = Episode(instance, 17, instance.num_agents)._short_plan_noise.steps
    kept, released = paid(first), paid(first + 1)
    assert kept[0] == kept[1] == released[0] > 0
    assert released[1] == 0
    np.testing.assert_array_equal(kept[2], released[2])


@pytest.mark.parametrize("name", LAWS)
def test_plans_of_one_step_have_the_law_of_a_step(name):
    instance = make(*LAWS[name][0])
    many = copies(instance)
    explore = tiled(np.array([[0, 1, 0], [0, 0, 0]]))  # agent 0 explores arm 1, agent 1 plays arm 2
    feedback = Episode(many, 17, many.num_agents).pull(Plan(explore, tiled(ARM), 1))
    np.testing.assert_array_equal(feedback.explored, explore)
    np.testing.assert_array_equal(feedback.played, tiled(np.array([0, 1])))
    assert not feedback.explored_sums[explore == 0].any()
    assert not feedback.played_sums[0::2].any()
    steps = Episode(many, 18, many.num_agents).step(tiled(np.array([1, 2])))
    for agent, arm, sums in ((0, 1, feedback.explored_sums[0::2, 1]), (1, 2, feedback.played_sums[1::2])):
        assert_mean_and_variance(sums, instance.means[agent, arm], variances(instance)[agent, arm])
        assert_same_law(sums, steps[agent::2])


def fields(feedback):
    return (feedback.explored, feedback.explored_sums, feedback.arm, feedback.played, feedback.played_sums)


def seven_agents(name):
    case, _ = LAWS[name]
    return make(*case).rows(np.array([0, 1, 1, 0, 1, 0, 0]))


UNEVEN = Plan(  # from nothing, or single pulls, to several chunks
    np.array([[0, 0, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1], [40, 0, 7], [2500, 1, 3], [0, 1, 0]]),
    np.array([0, 1, 2, 0, 1, 2, 0]),
    2600,
)
SHORT = Plan(np.minimum(UNEVEN.explore, 1), UNEVEN.arm, 3)
ONCE = Plan(np.eye(3, dtype=int)[[0, 1, 2, 0, 1, 2, 0]] * [[0], [1], [0], [1], [1], [0], [0]], UNEVEN.arm, 1)
BLOCKS = [
    [[0], [1], [2], [3], [4], [5], [6]],
    [[0, 1, 2, 3], [4, 5, 6]],
    [[6, 0, 3], [2], [5, 1, 4]],
    [[6, 5, 4, 3, 2, 1, 0]],
]


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("name", LAWS)
def test_the_rewards_of_an_agent_are_the_same_to_the_last_bit_whoever_is_in_its_block(name, blocks):
    instance = seven_agents(name)
    whole = Episode(instance, 21, 7)
    asked = (SHORT, ONCE, UNEVEN, ONCE, SHORT)
    plans = [whole.pull(plan) for plan in asked]
    arms = np.random.default_rng(0).integers(3, size=(300, 7))  # more than one block of steps
    steps = np.stack([whole.step(row) for row in arms])
    for block in blocks:
        rows = np.array(block)
        episode = Episode(instance.rows(rows), 21, 7, rows)
        for plan, together in zip(asked, plans, strict=True):
            for own, all_rows in zip(fields(episode.pull(plan.rows(rows))), fields(together), strict=True):
                assert own.tobytes() == all_rows[rows].tobytes()
        own_steps = np.stack([episode.step(row[rows]) for row in arms])
        assert own_steps.tobytes() == steps[:, rows].tobytes()


def test_with_many_agents_fewer_pulls_are_drawn_ahead_whoever_is_in_the_block(monkeypatch):
    # Two pulls of 7 agents, with a normal and a uniform each.
    monkeypatch.setattr("fedbandit_envs.envs.step_noise._NUMBERS_PER_DRAW", 30)
    instance, rows = seven_agents("noise"), np.array([5, 2])
    whole, block = Episode(instance, 21, 7), Episode(instance.rows(rows), 21, 7, rows)
    for _ in range(5):
        together, own = whole.pull(ONCE), block.pull(ONCE.rows(rows))
        assert own.played_sums.tobytes() == together.played_sums[rows].tobytes()
        assert len(whole.upcoming(99).noise) == 2 - whole.plans % 2


def test_steps_and_short_plans_that_alternate_are_paid_as_if_they_came_alone():
    instance = seven_agents("noise")
    mixed, steps, plans = (Episode(instance, 4, 7) for _ in range(3))
    for _ in range(3):
        assert mixed.pull(ONCE).played_sums.tobytes() == plans.pull(ONCE).played_sums.tobytes()
        steps.skip(1)  # the number of a step counts the steps of plans too
        assert mixed.step(ONCE.arm).tobytes() == steps.step(ONCE.arm).tobytes()


def test_no_pulls_of_an_arm_with_negative_mean_are_the_same_zero_in_every_block():
    point = np.full((7, 1), -1.0)
    instance = BanditInstance(np.ones((3, 1)), Identity(3, 1), PointMass(point), point)
    whole = Episode(instance, 1, 7).pull(UNEVEN)
    for row in range(7):
        rows = np.array([row])
        alone = Episode(instance.rows(rows), 1, 7, rows).pull(UNEVEN.rows(rows))
        for own, all_rows in zip(fields(alone), fields(whole), strict=True):
            assert own.tobytes() == all_rows[rows].tobytes()


@pytest.mark.parametrize("name", LAWS)
def test_two_episodes_of_one_seed_are_equal_and_of_two_seeds_are_not(name):
    instance = seven_agents(name)
    one, same, other = (Episode(instance, seed, 7).pull(UNEVEN) for seed in (1, 1, 2))
    assert one.explored_sums.tobytes() == same.explored_sums.tobytes()
    assert one.played_sums.tobytes() == same.played_sums.tobytes()
    assert not np.array_equal(one.played_sums, other.played_sums)


@pytest.mark.parametrize("name", LAWS)
def test_no_pulls_bring_no_reward(name):
    feedback = Episode(seven_agents(name), 1, 7).pull(Plan.wait(7, 3))
    assert not feedback.explored_sums.any()
    assert not feedback.played_sums.any()
    explored = Episode(seven_agents(name), 1, 7).pull(UNEVEN).explored_sums
    assert (explored[UNEVEN.explore == 0] == 0).all()


def test_steps_and_plans_are_counted():
    episode = Episode(seven_agents("noise"), 1, 7)
    episode.step(np.zeros(7, dtype=int))
    episode.pull(UNEVEN)
    assert (episode.steps, episode.plans) == (2601, 1)


def test_each_plan_of_an_episode_has_new_noise():
    episode = Episode(seven_agents("noise"), 1, 7)
    assert not np.array_equal(episode.pull(UNEVEN).played_sums, episode.pull(UNEVEN).played_sums)


@pytest.mark.parametrize("count", [1, 2, 7, 40])
@pytest.mark.parametrize("probability", [0.0, 1e-3, 0.3, 0.97, 1.0])
def test_inverted_uniforms_are_binomial(count, probability):
    # Chi-square against the exact law, 20 cases at 1e-4 / 20.
    size = 20_000
    uniforms = np.random.default_rng(count).random(size)
    drawn = _binomial(uniforms, np.full(size, count), np.full(size, probability))
    seen = np.bincount(drawn.astype(int), minlength=count + 1)
    assert (drawn == np.round(drawn)).all()
    assert len(seen) == count + 1
    expected = size * binom.pmf(np.arange(count + 1), count, probability)
    often = expected >= 5
    if often.sum() == 1:
        assert seen[often][0] > size - 60
        return
    pooled_seen, pooled = np.append(seen[often], seen[~often].sum()), np.append(expected[often], expected[~often].sum())
    keep = pooled > 0.5
    assert pooled_seen[~keep].sum() <= 5
    assert chisquare(pooled_seen[keep], pooled[keep] * pooled_seen[keep].sum() / pooled[keep].sum()).pvalue > 1e-4 / 20


@pytest.mark.parametrize("count", [0, 1, 2, 131_072])
def test_certain_and_impossible_outcomes_are_so_for_the_extreme_uniforms(count):
    uniforms = np.array([0.0, 2.0**-53, 0.5, 1 - 2.0**-53])
    counts = np.full(4, count)
    np.testing.assert_array_equal(_binomial(uniforms, counts, np.ones(4)), counts)
    np.testing.assert_array_equal(_binomial(uniforms, counts, np.zeros(4)), np.zeros(4))


def test_a_single_trial_is_decided_alike_whatever_else_is_drawn_with_it():
    uniforms, probability = np.array([0.25, 0.5, 0.75, 0.3]), np.array([0.75, 0.5, 0.25, 0.5])  # three ties
    single = _binomial(uniforms[:3], np.ones(3, dtype=int), probability[:3])
    among_many = _binomial(uniforms, np.array([1, 1, 1, 50]), probability)
    np.testing.assert_array_equal(single, among_many[:3])


class Extreme:
    """Draws in which every uniform is the same, and there is no noise."""

    def __init__(self, uniform):
        self.uniform = uniform

    def normals(self, *shape):
        return np.zeros((1, *shape))

    def uniforms(self, *shape):
        return np.full((1, *shape), self.uniform)


@pytest.mark.parametrize("uniform", [0.0, 2.0**-53, 0.5, 1 - 2.0**-53])
@pytest.mark.parametrize("weights", [[1 / 3, 1 / 3, 1 / 3, 0.0], [0.3, 0.3, 0.4 - 5e-10, 0.0], [0.0, 0.1, 0.9, 0.0]])
def test_a_point_of_weight_zero_never_adds_to_a_sum(weights, uniform):
    mu = Discrete(np.array([[[0.1], [0.2], [0.3], [1e9]]]), [weights])
    instance = BanditInstance(np.ones((1, 1)), Identity(1, 1), mu, None, 0.0, context="resampled")
    sums = instance.reward_law().sums(np.zeros(1, dtype=int), np.array([[1000, 0]]), Extreme(uniform))
    assert 0.1 * 1000 - 1e-9 <= sums[0, 0] <= 0.3 * 1000 + 1e-9


def test_a_mean_that_rounding_takes_out_of_range_is_drawn_as_zero_or_one():
    point = np.array([[1.0 + 1e-12, -1e-12]])
    instance = BanditInstance(np.eye(2), Identity(2, 2), PointMass(point), point, rewards="bernoulli")
    feedback = Episode(instance, 0, 1).pull(Plan(np.array([[1000, 1000]]), np.array([0]), 2001))
    np.testing.assert_array_equal(feedback.explored_sums, [[1000, 0]])
    assert feedback.played_sums[0] == 1


@pytest.mark.parametrize("name", LAWS)
def test_long_plans_have_the_mean_and_variance_of_their_length(name):
    # The plan of a last phase; 7 laws, 2 agents, mean and variance: 28 z-tests at LEVEL or less.
    case, law = LAWS[name]
    length = 2**11 if law is SampledRewards else 2**17
    instance = make(*case)
    size = 60 if law is SampledRewards else COPIES
    many = instance.rows(np.tile(np.arange(2), size))
    plan = Plan.play(np.tile(ARM, size), 3, length)
    sums = Episode(many, 31, 2 * size).pull(plan).played_sums
    for agent in range(2):
        variance = length * variances(instance)[agent, ARM[agent]]
        assert_mean_and_variance(sums[agent::2], length * instance.means[agent, ARM[agent]], variance)
