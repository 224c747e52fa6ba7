"""Feature maps: from contexts to one feature vector per arm."""

import numpy as np
import pytest
from refusals import assert_refused

from fedbandit_envs.contexts.features import FeatureFunction, FeatureMap, Identity, Table, is_feature_map, is_linear
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.contexts.rewards import GaussianRewards
from fedbandit_envs.problems.instance import BanditInstance

RNG = np.random.default_rng(0)
SQUARES = FeatureFunction(lambda c: np.stack([c, c**2], axis=1), num_arms=2, dim=3, context_dim=3)


@pytest.mark.parametrize("feature_map", [Table(2, 3), Identity(2, 3), SQUARES])
def test_every_map_is_a_feature_map_that_keeps_leading_axes(feature_map):
    assert isinstance(feature_map, FeatureMap)
    contexts = RNG.standard_normal((4, 5, feature_map.context_dim))
    features = feature_map(contexts)
    assert features.shape == (4, 5, 2, 3)
    np.testing.assert_array_equal(features[2, 3], feature_map(contexts[2, 3]))


def test_a_table_reads_the_context_row_by_row():
    np.testing.assert_array_equal(Table(2, 3)(np.arange(6.0)), [[0, 1, 2], [3, 4, 5]])


def test_identity_gives_the_context_to_every_arm():
    np.testing.assert_array_equal(Identity(2, 3)(np.arange(3.0)), [[0, 1, 2], [0, 1, 2]])


def test_a_function_of_the_user_sees_all_contexts_at_once():
    np.testing.assert_array_equal(SQUARES(np.array([[1.0, 2, 3]])), [[[1, 2, 3], [1, 4, 9]]])


@pytest.mark.parametrize("feature_map", [Table(4, 3), Identity(4, 3)])
def test_the_reward_matrix_takes_contexts_to_mean_rewards(feature_map):
    theta, context = RNG.standard_normal((4, 3)), RNG.standard_normal(feature_map.context_dim)
    by_hand = [theta[arm] @ feature_map(context)[arm] for arm in range(4)]
    np.testing.assert_allclose(feature_map.reward_matrix(theta) @ context, by_hand, rtol=1e-13)


@pytest.mark.parametrize("make", [Table, Identity, lambda k, d: FeatureFunction(np.sin, k, d, 2)])
def test_zero_arms_or_dimensions_are_refused(make):
    assert_refused(lambda: make(0, 2), "num_arms: ", "at least 1", "got 0")
    assert_refused(lambda: make(2, 0), "dim: ", "at least 1", "got 0")


def test_contexts_without_length_are_refused():
    assert_refused(lambda: FeatureFunction(np.sin, 2, 3, 0), "context_dim: ", "got 0")


def test_a_function_that_is_none_is_refused():
    assert_refused(lambda: FeatureFunction(None, 2, 3, 3), "function: ", "None")


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (lambda c: c, ("shape (5, 2, 3)", "got (5, 3)")),
        (lambda c: np.full((len(c), 2, 3), np.nan), ("finite", "NaN")),
        (lambda c: np.full((len(c), 2, 3), 1j), ("real", "complex128")),
        (lambda c: None, ("real", "object")),
        (lambda c: np.full((len(c), 2, 3), "1"), ("real", "<U1")),
    ],
)
def test_a_function_that_returns_no_finite_table_is_refused(function, parts):
    assert_refused(lambda: FeatureFunction(function, 2, 3, 3)(np.ones((5, 3))), "feature_map: ", *parts)


def test_features_are_not_the_memory_of_the_function():
    kept = np.ones((1, 1, 2))
    feature_map = FeatureFunction(lambda c: kept, 1, 2, 1)
    feature_map(np.ones((1, 1)))[...] = 5
    assert (kept == 1).all()


class Doubled(Identity):
    """A linear map of a user's own: phi(a, c) = 2 c."""

    def __call__(self, contexts):
        return 2 * super().__call__(contexts)

    def reward_matrix(self, theta):
        return 2 * theta


class Stretched:
    """A linear map that is no subclass of ours: phi(a, c) = (a + 1) c."""

    num_arms, dim, context_dim = 2, 3, 3

    def __call__(self, contexts):
        return contexts[..., None, :] * np.array([[1.0], [2.0]])

    def reward_matrix(self, theta):
        return theta * np.array([[1.0], [2.0]])


def test_a_map_with_a_reward_matrix_is_linear_whoever_wrote_it():
    assert is_linear(Doubled(2, 3))
    assert is_linear(Stretched())
    assert is_feature_map(Stretched())
    assert not is_feature_map(Stretched)
    assert not is_linear(FeatureFunction(np.cos, 2, 3, 3))


@pytest.mark.parametrize("own", [Doubled(2, 3), Stretched()])
def test_resampled_gaussian_contexts_under_a_linear_map_of_the_users_own_have_normal_rewards(own):
    theta, mu = np.arange(1.0, 7).reshape(2, 3), Gaussian([[1.0, 2.0, 3.0]], std=0.5)
    law = BanditInstance(theta, own, mu, None, 0.1, context="resampled").reward_law()
    assert isinstance(law, GaussianRewards)
    matrix = own.reward_matrix(theta)
    np.testing.assert_allclose(law.means[0], matrix @ mu.mean[0])
    np.testing.assert_allclose(law.stds[0] ** 2, 0.25 * (matrix**2).sum(axis=1) + 0.01)
