"""One problem with its truth: the three regrets, shards, views, and what can't be an instance."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from refusals import assert_refused

import fedbandit_envs as fb
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import FeatureFunction, Identity, Table
from fedbandit_envs.contexts.finite import Discrete, PointMass
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.problems.instance_checks import OBSERVES
from fedbandit_envs.problems.regrets import REGRETS, Regret
from fedbandit_envs.seeding import Randomness, Stream

RNG = np.random.default_rng(0)
MEAN = RNG.uniform(0.2, 0.9, (5, 2))
THETA = RNG.uniform(0.1, 0.6, (3, 2))
TANH = FeatureFunction(lambda c: np.stack([np.tanh(c), c**2, np.cos(c)], axis=1), 3, 2, 2)
FULL = np.array([[0.02, 0.01], [0.01, 0.03]])
DISTRIBUTIONS = {
    "point": PointMass(MEAN),
    "gaussian": Gaussian(MEAN, std=0.1),
    "gaussian, per agent": Gaussian(MEAN, covariance=FULL * np.arange(1, 6)[:, None, None]),
    "discrete": Discrete(RNG.uniform(0.2, 0.9, (5, 3, 2)), np.tile([0.5, 0.3, 0.2], (5, 1))),
}
MAPS = {"identity": Identity(3, 2), "function": TANH}


def make(distribution="gaussian", feature_map="identity", context="fixed", **changes):
    """An instance of 5 agents, 3 arms and 2 dimensions."""
    mu = DISTRIBUTIONS[distribution]
    contexts = mu.sample(np.random.default_rng(1)) if context == "fixed" else None
    return BanditInstance(THETA, MAPS[feature_map], mu, contexts, context=context, **changes)


def two_by_two(**changes):
    """Two agents, two arms, theta = 1: the context is the pair of mean rewards."""
    return BanditInstance(
        theta=np.eye(2),
        feature_map=Identity(2, 2),
        distribution=Gaussian([[0.6, 0.5], [0.2, 0.9]], std=0.2),
        contexts=np.array([[0.4, 0.7], [0.3, 0.8]]),
        **changes,
    )


def test_the_three_regrets_of_two_agents_and_two_arms():
    instance = two_by_two()
    np.testing.assert_allclose(instance.gaps("regret"), [[0.3, 0], [0.5, 0]])
    np.testing.assert_allclose(instance.gaps("distribution_regret"), [[0, 0.1], [0.7, 0]])
    np.testing.assert_allclose(instance.gaps("paper_regret"), [[0, -0.3], [0.5, 0]])
    np.testing.assert_array_equal(instance.gaps(), instance.gaps("regret"))


def test_means_are_those_of_the_true_context_and_of_the_distribution():
    instance = two_by_two()
    np.testing.assert_array_equal(instance.means, [[0.4, 0.7], [0.3, 0.8]])
    np.testing.assert_array_equal(instance.distribution_means, [[0.6, 0.5], [0.2, 0.9]])


def test_paper_regret_is_negative_where_the_arm_best_under_mu_is_not_best():
    assert two_by_two().gaps("paper_regret").min() < 0


@given(
    theta=arrays(float, (3, 2), elements=st.floats(-2, 2)),
    mean=arrays(float, (4, 2), elements=st.floats(0.1, 2)),
    shift=arrays(float, (4, 2), elements=st.floats(0, 1)),
)
def test_regrets_are_never_negative_but_the_papers_which_is_shifted_by_one_number_per_agent(theta, mean, shift):
    instance = BanditInstance(theta, Identity(3, 2), Gaussian(mean, std=1.0), mean + shift)
    for kind in ("regret", "distribution_regret"):
        assert instance.gaps(kind).min() >= 0
        assert (instance.gaps(kind).min(axis=1) == 0).all()
    best_under_mu = instance.distribution_means.argmax(axis=1)
    own = instance.gaps("regret")[np.arange(4), best_under_mu][:, None]
    np.testing.assert_allclose(instance.gaps("paper_regret"), instance.gaps("regret") - own, atol=1e-12)


@pytest.mark.parametrize("feature_map", MAPS)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_with_resampled_contexts_the_three_regrets_are_one(distribution, feature_map):
    instance = make(distribution, feature_map, "resampled")
    for kind in ("regret", "distribution_regret", "paper_regret"):
        np.testing.assert_array_equal(instance.gaps(kind), instance.gaps("distribution_regret"))
    np.testing.assert_array_equal(instance.phi, instance.psi)


def test_with_known_contexts_the_three_regrets_are_one():
    instance = make("point")
    for kind in ("regret", "distribution_regret", "paper_regret"):
        np.testing.assert_allclose(instance.gaps(kind), instance.gaps("regret"), atol=1e-15)


def test_an_unknown_regret_is_refused():
    assert_refused(lambda: two_by_two().gaps("papers_regret"), "kind: ", "did you mean 'paper_regret'")


@pytest.mark.parametrize("index", [[0], [4], [3, 1], [2, 0, 4, 1, 3], [1, 1]])
@pytest.mark.parametrize("context", ["fixed", "resampled"])
@pytest.mark.parametrize("feature_map", MAPS)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_shard_is_a_slice_of_the_whole_to_the_last_bit(distribution, feature_map, context, index):
    whole, index = make(distribution, feature_map, context), np.array(index)
    shard = whole.rows(index)
    assert (shard.num_agents, shard.num_arms, shard.dim) == (len(index), 3, 2)
    for name in ("psi", "phi", "means", "distribution_means"):
        assert getattr(shard, name).tobytes() == getattr(whole, name)[index].tobytes(), name
    for kind in REGRETS:
        assert shard.gaps(kind).tobytes() == whole.gaps(kind)[index].tobytes()
    if context == "fixed":
        np.testing.assert_array_equal(shard.contexts, whole.contexts[index])


@pytest.mark.parametrize("observe", OBSERVES)
@pytest.mark.parametrize("changes", [{}, {"ell": 0.1, "L": 3.0}, {"rewards": "bernoulli"}])
def test_the_constants_of_a_shard_are_those_of_the_whole(observe, changes):
    whole = make("discrete", **changes)
    for index in ([0], [3, 1], [4, 2, 0]):
        shard = whole.rows(np.array(index))
        assert shard.constants(100, observe) == whole.constants(100, observe)
        assert shard.rows(np.array([0])).constants(100, observe) == whole.constants(100, observe)
    assert whole.constants(100, observe).num_agents == 5


def test_the_constants_are_the_range_of_the_norms_that_agents_are_shown():
    instance = make()
    for observe, features in (("distribution", instance.psi), ("truth", instance.psi), ("context", instance.phi)):
        norms = np.linalg.norm(features, axis=-1)
        constants = instance.constants(100, observe)
        assert (constants.ell, constants.L) == (norms.min(), norms.max())
    assert (constants.num_arms, constants.dim, constants.horizon, constants.context) == (3, 2, 100, "fixed")


def test_the_noise_scale_of_zero_one_rewards_is_one_half():
    assert make("discrete", rewards="bernoulli", noise_std=7.0).constants(1).noise_std == 0.5
    assert make(noise_std=7.0).constants(1).noise_std == 7.0


def randomness(rows=None):
    return Randomness(3, Stream.POLICY, 5, rows)


def test_a_view_of_the_distribution_shows_mu_and_psi_but_no_truth():
    instance = make()
    view = instance.view(100, randomness())
    assert view.distribution is instance.distribution
    assert view.psi is instance.psi
    assert view.truth is None
    assert not view.exact
    np.testing.assert_array_equal(view.agents, np.arange(5))
    assert view.constants == instance.constants(100)


def test_a_view_of_the_context_is_exact():
    instance = make()
    view = instance.view(100, randomness(), observe="context")
    assert view.exact
    np.testing.assert_array_equal(view.distribution.points, instance.contexts)
    np.testing.assert_array_equal(view.psi, instance.phi)
    assert view.truth is None


def test_only_a_view_of_the_truth_has_the_true_means():
    instance = make()
    np.testing.assert_array_equal(instance.view(100, randomness(), observe="truth").truth, instance.means)


@pytest.mark.parametrize("observe", OBSERVES)
def test_the_rows_of_a_view_are_the_view_of_a_shard(observe):
    whole, rows = make(), np.array([3, 0])
    part = whole.view(100, randomness(), observe).rows(rows)
    shard = whole.rows(rows).view(100, randomness(rows), observe)
    assert part.constants == shard.constants
    for name in ("agents", "psi", "truth"):
        np.testing.assert_array_equal(getattr(part, name), getattr(shard, name))
    for name, array in part.distribution.encode().items():
        np.testing.assert_array_equal(array, shard.distribution.encode()[name])
    np.testing.assert_array_equal(part.randomness.draws(2).normals(3), shard.randomness.draws(2).normals(3))
    np.testing.assert_array_equal(part.randomness.draws(2).normals(3), randomness().draws(2).normals(3)[rows])
    nested = part.rows(np.array([1]))
    np.testing.assert_array_equal(nested.agents, [0])
    np.testing.assert_array_equal(nested.psi, part.psi[1:])


@pytest.mark.parametrize(
    ("context", "observe"), [*(("fixed", observe) for observe in OBSERVES), ("resampled", "distribution")]
)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_nothing_that_a_view_shares_with_the_truth_can_be_written_to(distribution, context, observe):
    instance = make(distribution, context=context)
    view = instance.view(100, randomness(), observe)
    shown = [view.psi, view.truth, *view.distribution.encode().values()]
    kept = [instance.theta, instance.contexts, instance.means, instance.phi, instance.distribution_means]
    for array in shown + kept:
        assert array is None or not array.flags.writeable


def test_an_instance_does_not_follow_the_arrays_it_was_made_from():
    theta, contexts = np.eye(2), np.array([[0.4, 0.7]])
    instance = BanditInstance(theta, Identity(2, 2), PointMass(contexts), contexts)
    theta[:], contexts[:] = 9, 9
    np.testing.assert_array_equal(instance.theta, np.eye(2))
    np.testing.assert_array_equal(instance.contexts, [[0.4, 0.7]])


def test_numbers_are_kept_as_floats():
    instance = make(noise_std=np.float32(0.5), ell=np.int64(1), L=np.array(2))
    assert [type(value) for value in (instance.noise_std, instance.ell, instance.L)] == [float] * 3


CONTEXTS = np.full((5, 2), 0.5)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"theta": THETA * np.nan}, ("theta: ", "finite", "nan at index (0, 0)")),
        ({"theta": THETA[:2]}, ("theta: ", "(3, 2)", "(2, 2)")),
        ({"theta": THETA[0]}, ("theta: ", "(3, 2)", "(2,)")),
        ({"feature_map": np.tanh}, ("feature_map: ", "ufunc 'tanh'", "FeatureFunction(")),
        ({"feature_map": Identity}, ("feature_map: ", "Identity")),
        ({"feature_map": Identity(3, 5), "theta": np.ones((3, 5))}, ("feature_map: ", "length 5", "length 2")),
        ({"distribution": MEAN}, ("distribution: ", "ndarray", "PointMass(")),
        ({"contexts": None}, ("contexts: ", "one per agent", "got none")),
        ({"contexts": CONTEXTS[:4]}, ("contexts: ", "(5, 2)", "(4, 2)")),
        ({"contexts": CONTEXTS * np.inf}, ("contexts: ", "finite", "inf")),
        ({"context": "resampled"}, ("contexts: ", "expected none", "got some")),
        ({"context": "fix"}, ("context: ", "'fixed', 'resampled'", "'fix'")),
        ({"rewards": "poisson"}, ("rewards: ", "'gaussian', 'bernoulli'", "'poisson'")),
        ({"noise_std": -1.0}, ("noise_std: ", "at least 0", "-1.0")),
        ({"noise_std": np.nan}, ("noise_std: ", "finite", "nan")),
        ({"ell": 0.0}, ("ell: ", "above 0", "0.0")),
        ({"L": -1}, ("L: ", "above 0", "-1")),
        ({"ell": 2.0, "L": 1.0}, ("ell: ", "at most L = 1.0", "2.0")),
        ({"contexts": 1e120 * CONTEXTS}, ("phi, the true features", "at most 1e+100", "units")),
        (
            {"theta": 1e155 * THETA, "distribution": PointMass(1e155 * CONTEXTS), "contexts": 1e155 * CONTEXTS},
            ("psi, the expected features", "got inf"),
        ),
        ({"contexts": CONTEXTS * [[1], [1], [0], [1], [1]]}, ("phi, the true features", "agent 2, arm 0")),
        (
            {"distribution": PointMass(CONTEXTS * [[1], [0], [1], [1], [1]])},
            ("psi, the expected features", "agent 1, arm 0"),
        ),
        ({"rewards": "bernoulli", "theta": 2 * np.ones((3, 2))}, ("rewards: ", "[0, 1]", "2 to 2", "rescale")),
        ({"rewards": "bernoulli", "theta": -THETA}, ("rewards: ", "[0, 1]", "rescale")),
        ({"rewards": "bernoulli", "context": "resampled", "contexts": None}, ("rewards: ", "'bernoulli'", "Discrete")),
    ],
)
def test_what_can_not_be_an_instance_is_refused(changes, parts):
    fields = {"theta": THETA, "feature_map": Identity(3, 2), "distribution": DISTRIBUTIONS["gaussian"]}
    assert_refused(lambda: BanditInstance(**{**fields, "contexts": CONTEXTS, **changes}), *parts)


def test_observing_the_context_is_refused_when_it_is_resampled():
    instance = make(context="resampled")
    for ask in (lambda: instance.observed("context"), lambda: instance.view(10, randomness(), "context")):
        assert_refused(ask, "observe: ", "'distribution'", "'context'", "context='fixed'")


def test_an_unknown_way_to_observe_is_refused():
    assert_refused(lambda: make().observed("contexts"), "observe: ", "did you mean 'context'")


def test_a_horizon_whose_counts_are_not_exact_is_refused():
    make().constants(2**53)
    for horizon in (2**53 + 1, 2**63):
        assert_refused(
            lambda horizon=horizon: make().constants(horizon),
            "horizon",
            str(2**53),
        )


@pytest.mark.parametrize("horizon", [0, -1, 2.5, None])
def test_a_horizon_below_one_step_is_refused(horizon):
    assert_refused(lambda: make().constants(horizon), "horizon: ", "at least 1", repr(horizon))


def test_zero_one_rewards_of_resampled_points_need_means_in_range_at_every_point_that_occurs():
    support = np.array([[[0.5, 0.5], [1.0, 1.0], [3.0, 3.0]]])

    def instance(weights):
        mu = Discrete(support, [weights])
        return BanditInstance(np.full((1, 2), 0.5), Identity(1, 2), mu, None, rewards="bernoulli", context="resampled")

    assert_refused(lambda: instance([0.5, 0.4, 0.1]), "rewards: ", "[0, 1]", "0.5 to 3")
    assert instance([0.5, 0.5, 0.0]).means[0, 0] == 0.75


def test_a_mean_that_rounding_takes_beyond_one_is_no_reason_to_refuse_zero_one_rewards():
    point = np.array([[1.0 + 1e-12]])
    instance = BanditInstance(np.ones((1, 1)), Identity(1, 1), PointMass(point), point, rewards="bernoulli")
    assert instance.means[0, 0] > 1


def test_a_distribution_of_the_users_own_without_from_normals_can_be_fixed_but_not_resampled():
    class Own(ContextDistribution):
        num_agents, dim = 1, 1

        def rows(self, index):
            return self

        def sample(self, rng):
            return np.ones((1, 1))

        def encode(self):
            return {"context": np.ones((1, 1))}

        def nodes(self):
            return np.ones((1, 1, 1)), np.ones((1, 1))

    fixed = BanditInstance(np.ones((2, 1)), Identity(2, 1), Own(), np.ones((1, 1)))
    assert_refused(
        lambda: dataclasses.replace(fixed, contexts=None, context="resampled"),
        "distribution: ",
        "Own.from_normals(normals)",
        "'fixed'",
    )


def test_a_table_of_features_is_an_instance_too():
    features = RNG.uniform(0.1, 1, (4, 3, 2))
    points = features.reshape(4, -1)
    instance = BanditInstance(THETA, Table(3, 2), PointMass(points), points)
    np.testing.assert_array_equal(instance.phi, features)
    np.testing.assert_allclose(instance.means, (features * THETA).sum(axis=-1))


def against_the_common_arm(instance):
    """A kind of regret of a user's own."""
    whole = instance.population or instance
    return instance.means[:, [whole.means.mean(axis=0).argmax()]] - instance.means


def test_a_kind_of_regret_of_the_users_own_is_recorded_by_a_run(monkeypatch):
    monkeypatch.setitem(REGRETS, "group_regret", Regret(against_the_common_arm, "group regret", "against one arm"))
    history = fb.play(fb.make("fedbandit/Linear-v0", max_cycles=20), fb.make_policy("Uniform"), seed=0, record=True)
    common = history.instance.means.mean(axis=0).argmax()
    lost = history.instance.means[:, common] * 20 - (history.pulls[-1] * history.instance.means).sum(axis=1)
    np.testing.assert_allclose(history.regret("group_regret")[-1], lost)


def test_gaps_of_another_shape_are_refused(monkeypatch):
    monkeypatch.setitem(REGRETS, "short", Regret(lambda instance: instance.means[:, :1], "short", "one arm only"))
    assert_refused(lambda: make().gaps("short"), "short: ", "(agents, arms)")


def test_nothing_is_guaranteed_that_nobody_stated():
    constants = make().constants(10)
    assert (constants.shared_theta, constants.same_arms) == (False, False)
    assert (constants.theta_bound, constants.context_proxy) == (None, None)


def test_what_is_guaranteed_is_public_also_in_a_shard():
    points = np.full((3, 2), 0.5)
    mu = Gaussian(points, std=0.1)
    stated = {"shared_theta": True, "same_arms": True, "theta_bound": 2.0, "context_proxy": 0.04}
    instance = BanditInstance(np.ones((2, 2)), Identity(2, 2), mu, points + np.array([[0.1], [0.2], [0.3]]), **stated)
    for part in (instance, instance.rows(np.array([1]))):
        assert stated.items() <= dataclasses.asdict(part.constants(10)).items()
        shown = part.constants(10, "context")  # the agents are shown different contexts, and know them exactly
        assert (shown.same_arms, shown.context_proxy) == (False, 0.0)


@pytest.mark.parametrize(
    ("stated", "part"),
    [
        ({"shared_theta": True}, "rows that differ"),
        ({"same_arms": True}, "agents that differ"),
        ({"theta_bound": 1e-3}, "largest norm of theta"),
        ({"context_proxy": -1.0}, "at least 0"),
        ({"same_arms": "yes"}, "True or False"),
    ],
)
def test_a_guarantee_that_does_not_hold_is_refused(stated, part):
    assert_refused(lambda: dataclasses.replace(make(), **stated), next(iter(stated)), part)
