"""Context distributions: psi and reward covariances against Monte Carlo and closed forms, and what they refuse."""

import math
from dataclasses import replace

import numpy as np
import pytest
from refusals import assert_refused
from scipy.stats import chisquare, kstest, norm

from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import FeatureFunction, Identity, Table
from fedbandit_envs.contexts.finite import Discrete, PointMass
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.seeding import Stream, generator

AGENTS, ARMS = 3, 2
SAMPLES = 20_000
# Each Monte Carlo test makes fewer than 100 comparisons at 1e-6 / 100 each: a false alarm in 1e-6 of seeds.
LIMIT = float(norm.isf(1e-8 / 2))


def covariances(n, agents, rank=None):
    """(agents, n, n) of the given rank, with standard deviations around 0.3."""
    factors = 0.3 * np.random.default_rng(n).standard_normal((agents, n, rank or n)) / np.sqrt(rank or n)
    return factors @ factors.transpose(0, 2, 1)


def distributions(n):
    rng = np.random.default_rng(100 + n)
    mean = rng.uniform(-1, 1, (AGENTS, n))
    weights = rng.random((AGENTS, 5))
    weights[:, 3] = 0
    return {
        "point": PointMass(mean),
        "std": Gaussian(mean, std=0.3),
        "std (n,)": Gaussian(mean, std=rng.uniform(0, 0.5, n)),
        "std (M, 1)": Gaussian(mean, std=rng.uniform(0, 0.5, (AGENTS, 1))),
        "std (M, n)": Gaussian(mean, std=rng.uniform(0, 0.5, (AGENTS, n))),
        "shared covariance": Gaussian(mean, covariance=covariances(n, 1)[0]),
        "covariance": Gaussian(mean, covariance=covariances(n, AGENTS)),
        "shared singular covariance": Gaussian(mean, covariance=covariances(n, 1, rank=max(1, n - 1))[0]),
        "singular covariance": Gaussian(mean, covariance=covariances(n, AGENTS, rank=1)),
        "discrete": Discrete(rng.standard_normal((AGENTS, 5, n)), weights / weights.sum(axis=1, keepdims=True)),
    }


KINDS = list(distributions(1))


def waves(n):
    """phi(a, c) = (exp(u_a . c), cos(v_a . c)), whose Gaussian expectations have a closed form."""
    rng = np.random.default_rng(200 + n)
    u, v = rng.uniform(-1, 1, (2, ARMS, n)) / np.sqrt(n)

    def function(c):
        return np.stack([np.exp((c[:, None] * u).sum(-1)), np.cos((c[:, None] * v).sum(-1))], axis=-1)

    return FeatureFunction(function, ARMS, 2, n), u, v


MAPS = {
    "table": Table(ARMS, 3),
    "identity": Identity(ARMS, 3),
    **{f"waves of {n}": waves(n)[0] for n in (1, 2, 3, 4, 6, 12)},
}


def full_covariance(distribution):
    """(M, n, n), whatever it was given as."""
    shown = distribution.encode()
    if "std" in shown:
        return np.stack([np.diag(row**2) for row in shown["std"]])
    return shown["covariance"]


def samples(distribution, agent, seed=0):
    """(SAMPLES, n) contexts of one agent."""
    alone = distribution.rows(np.array([agent]))
    return alone.rows(np.zeros(SAMPLES, dtype=int)).sample(np.random.default_rng(seed))


def z_scores(values, expected, rounding=1e-8):
    """Of the means over the first axis; `rounding` is an error that is always allowed."""
    error = np.abs(values.mean(axis=0) - expected)
    return (error - rounding).clip(min=0) / (values.std(axis=0) / np.sqrt(len(values)) + 1e-300)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MAPS)
def test_psi_is_the_mean_feature_of_sampled_contexts(name, kind):
    feature_map = MAPS[name]
    distribution = distributions(feature_map.context_dim)[kind]
    psi = distribution.expected_features(feature_map)
    assert psi.shape == (AGENTS, ARMS, feature_map.dim)
    for agent in range(AGENTS):
        features = feature_map(samples(distribution, agent))
        assert z_scores(features, psi[agent]).max() < LIMIT


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MAPS)
def test_reward_covariance_is_that_of_sampled_contexts(name, kind):
    feature_map = MAPS[name]
    distribution = distributions(feature_map.context_dim)[kind]
    theta = np.random.default_rng(1).standard_normal((ARMS, feature_map.dim))
    covariance = distribution.reward_covariance(feature_map, theta)
    assert covariance.shape == (AGENTS, ARMS, ARMS)
    psi = distribution.expected_features(feature_map)
    for agent in range(AGENTS):
        rewards = (feature_map(samples(distribution, agent)) * theta).sum(-1)
        deviation = rewards - (psi[agent] * theta).sum(-1)
        products = deviation[:, :, None] * deviation[:, None, :]
        # The quadrature of psi is off by up to 1e-4 here for n > 4, which enters the products.
        rounding = 1e-8 if feature_map.context_dim <= 4 else 1e-4 * np.abs(products).max() ** 0.5
        assert z_scores(products, covariance[agent], rounding).max() < LIMIT


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "std" in kind or "covariance" in kind])
@pytest.mark.parametrize("name", ["table", "identity"])
def test_linear_maps_of_gaussians_are_exact(name, kind):
    feature_map = MAPS[name]
    distribution = distributions(feature_map.context_dim)[kind]
    theta = np.random.default_rng(1).standard_normal((ARMS, 3))
    np.testing.assert_array_equal(distribution.expected_features(feature_map), feature_map(distribution.mean))
    for agent, sigma in enumerate(full_covariance(distribution)):
        by_hand = np.empty((ARMS, ARMS))
        for a in range(ARMS):
            for b in range(ARMS):
                block = sigma if name == "identity" else sigma[3 * a : 3 * a + 3, 3 * b : 3 * b + 3]
                by_hand[a, b] = theta[a] @ block @ theta[b]
        computed = distribution.reward_covariance(feature_map, theta)[agent]
        np.testing.assert_allclose(computed, by_hand, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", ["table", "identity", "waves of 3"])
def test_moments_of_discrete_distributions_are_the_weighted_sums(name):
    feature_map = MAPS[name]
    distribution = distributions(feature_map.context_dim)["discrete"]
    theta = np.random.default_rng(1).standard_normal((ARMS, feature_map.dim))
    psi = distribution.expected_features(feature_map)
    covariance = distribution.reward_covariance(feature_map, theta)
    for agent in range(AGENTS):
        features = [feature_map(point) for point in distribution.support[agent]]
        weights = distribution.weights[agent]
        mean = sum(weight * feature for weight, feature in zip(weights, features, strict=True))
        np.testing.assert_allclose(psi[agent], mean, rtol=1e-12)
        rewards = [np.array([theta[a] @ (feature - mean)[a] for a in range(ARMS)]) for feature in features]
        by_hand = sum(weight * np.outer(reward, reward) for weight, reward in zip(weights, rewards, strict=True))
        np.testing.assert_allclose(covariance[agent], by_hand, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", MAPS)
def test_a_point_mass_has_the_features_of_its_point_and_no_covariance(name):
    feature_map = MAPS[name]
    distribution = distributions(feature_map.context_dim)["point"]
    np.testing.assert_allclose(
        distribution.expected_features(feature_map), feature_map(distribution.points), rtol=1e-14
    )
    theta = np.ones((ARMS, feature_map.dim))
    np.testing.assert_array_equal(distribution.reward_covariance(feature_map, theta), np.zeros((AGENTS, ARMS, ARMS)))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "std" in kind or "covariance" in kind])
@pytest.mark.parametrize(("n", "tolerance"), [(1, 1e-12), (2, 1e-12), (3, 1e-12), (4, 1e-9), (6, 1e-3), (12, 1e-3)])
def test_quadrature_finds_the_closed_forms_of_exponentials_and_cosines(n, tolerance, kind):
    feature_map, u, v = waves(n)
    distribution = distributions(n)[kind]
    psi = distribution.expected_features(feature_map)
    covariance = distribution.reward_covariance(feature_map, np.tile([1.0, 0.0], (ARMS, 1)))  # for the exponentials
    for agent, (mean, sigma) in enumerate(zip(distribution.mean, full_covariance(distribution), strict=True)):
        exponentials = np.exp(u @ mean + np.einsum("ai,ij,aj->a", u, sigma, u) / 2)
        cosines = np.cos(v @ mean) * np.exp(-np.einsum("ai,ij,aj->a", v, sigma, v) / 2)
        np.testing.assert_allclose(psi[agent], np.stack([exponentials, cosines], axis=-1), rtol=0.1 * tolerance)
        by_hand = np.outer(exponentials, exponentials) * np.expm1(u @ sigma @ u.T)
        np.testing.assert_allclose(covariance[agent], by_hand, rtol=10 * tolerance, atol=tolerance)


def expectations(values_of, n):
    """The rule's expectations of (N, k) functions of a standard normal in n dimensions, and their number of points."""
    rule = Gaussian(np.zeros((1, n)), std=1.0)
    outputs = values_of(np.zeros((1, n))).shape[1]
    feature_map = FeatureFunction(lambda c: values_of(c)[:, None], 1, outputs, n)
    return rule.expected_features(feature_map)[0, 0]


@pytest.mark.parametrize(("n", "degree"), [(1, 129), (2, 65), (3, 33), (4, 17)])
def test_gauss_hermite_is_exact_up_to_its_stated_degree(n, degree):
    even = np.arange(0, degree + 1, 2)
    moments = np.array([math.prod(range(power - 1, 0, -2)) for power in even], dtype=float)
    for axis in range(n):
        computed = expectations(lambda z, axis=axis: z[:, [axis]] ** even / moments, n)
        np.testing.assert_allclose(computed, 1, rtol=1e-9)
        odd = even[1:] - 1
        computed = expectations(lambda z, axis=axis, odd=odd: z[:, [axis]] ** odd / moments[1:], n)
        np.testing.assert_allclose(computed, 0, atol=1e-9)


def test_gauss_hermite_is_exact_no_further_than_stated():
    for n, degree in ((3, 34), (4, 18)):
        moment = math.prod(range(degree - 1, 0, -2))
        assert expectations(lambda z, degree=degree: z[:, :1] ** degree, n)[0] / moment < 1 - 1e-6


@pytest.mark.parametrize(("n", "scale"), [(1, 3.0), (2, 3.0), (3, 2.0), (4, 1.0)])
def test_gauss_hermite_has_its_stated_error_for_exponentials(n, scale):
    assert expectations(lambda z: np.exp(scale * z), n) == pytest.approx(math.exp(scale**2 / 2), rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_kinks_and_jumps_cost_gauss_hermite_no_more_than_stated(n):
    at = np.linspace(-2, 2, 81)
    kinks = norm.pdf(at) - at * norm.sf(at)
    std = math.sqrt(0.5 - 0.5 / math.pi)  # the standard deviation of max(z, 0)
    assert np.abs(expectations(lambda z: (z[:, :1] - at).clip(min=0), n) - kinks).max() < std / 15
    assert np.abs(expectations(lambda z: (z[:, :1] > at).astype(float), n) - norm.sf(at)).max() < 0.21


@pytest.mark.parametrize("n", [5, 6, 10, 30, 50])
def test_mirrored_points_are_exact_to_degree_three_and_for_odd_functions(n):
    rng = np.random.default_rng(n)
    a, b, c = rng.standard_normal((3, n, 20))
    products = expectations(lambda z: (z @ a) * (z @ b), n)
    np.testing.assert_allclose(products, (a * b).sum(axis=0), atol=1e-10)
    np.testing.assert_allclose(expectations(lambda z: (z @ a) * (z @ b) * (z @ c), n), 0, atol=1e-9)
    np.testing.assert_allclose(expectations(lambda z: np.tanh(z @ a) ** 3 + np.sin(z @ b), n), 0, atol=1e-12)


@pytest.mark.parametrize("n", [5, 6, 10, 20, 30, 50])
def test_mirrored_points_have_their_stated_error(n):
    rng = np.random.default_rng(n)
    u, v = rng.standard_normal((2, n, 300))
    u /= np.linalg.norm(u, axis=0)
    v -= u * (u * v).sum(axis=0)  # orthogonal to u, so that the two signs below are independent

    def relative_error(values_of, mean, std):
        return float(np.sqrt(np.mean((expectations(values_of, n) - mean) ** 2)) / std)

    for scale, stated in ((0.3, 1500), (1.0, 150)):
        mean = math.exp(-(scale**2) / 2)
        std = math.sqrt((1 + math.exp(-2 * scale**2)) / 2 - mean**2)
        assert relative_error(lambda z, scale=scale: np.cos(scale * z @ u), mean, std) < 1 / stated
    tail = norm.sf(1)
    assert relative_error(lambda z: (z @ u > 1).astype(float), tail, math.sqrt(tail * (1 - tail))) < 1 / 100
    assert relative_error(lambda z: np.sign(z @ u) * np.sign(z @ v), 0, 1) < 1 / 45


@pytest.mark.slow
def test_mirrored_points_stay_exact_in_more_dimensions_than_they_number_by_default():
    n = 2100
    directions = np.random.default_rng(0).standard_normal((n, 3)) / math.sqrt(n)
    squares = expectations(lambda z: (z @ directions) ** 2, n)
    np.testing.assert_allclose(squares, (directions**2).sum(axis=0), rtol=1e-8)


def test_the_quadrature_does_not_depend_on_how_many_agents_are_done_at_a_time(monkeypatch):
    feature_map, distribution = MAPS["waves of 6"], distributions(6)["covariance"]
    theta = np.ones((ARMS, 2))
    psi, covariance = distribution.expected_features(feature_map), distribution.reward_covariance(feature_map, theta)
    monkeypatch.setattr("fedbandit_envs.contexts.distributions._CHUNK", 1)
    np.testing.assert_array_equal(distribution.expected_features(feature_map), psi)
    np.testing.assert_array_equal(distribution.reward_covariance(feature_map, theta), covariance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [[0], [2, 0], [1, 1, 2], [0, 1, 2]])
@pytest.mark.parametrize("name", ["table", "identity", "waves of 3", "waves of 6"])
def test_rows_of_a_distribution_are_slices_of_all_it_says(name, index, kind):
    feature_map, index = MAPS[name], np.array(index)
    distribution = distributions(feature_map.context_dim)[kind]
    part = distribution.rows(index)
    assert type(part) is type(distribution)
    assert (part.num_agents, part.dim) == (len(index), distribution.dim)
    for which, array in distribution.encode().items():
        np.testing.assert_array_equal(part.encode()[which], array[index])
    for computed, whole in zip(part.nodes(), distribution.nodes(), strict=True):
        assert np.ascontiguousarray(computed).tobytes() == np.ascontiguousarray(whole[index]).tobytes()
    theta = np.random.default_rng(3).standard_normal((ARMS, feature_map.dim))
    psi, covariance = distribution.expected_features(feature_map), distribution.reward_covariance(feature_map, theta)
    assert part.expected_features(feature_map).tobytes() == psi[index].tobytes()
    assert part.reward_covariance(feature_map, theta).tobytes() == covariance[index].tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_an_observation_lies_in_the_space_and_carries_the_distribution(kind):
    distribution = distributions(3)[kind]
    encoded = distribution.encode()
    for agent in range(AGENTS):
        observation = {name: np.ascontiguousarray(rows[agent]) for name, rows in encoded.items()}
        assert distribution.space().contains(observation)
    rebuilt = {"context": PointMass, "support": Discrete, "mean": Gaussian}[next(iter(encoded))]
    names = {"context": "points"}
    again = rebuilt(**{names.get(name, name): rows for name, rows in encoded.items()})
    theta = np.ones((ARMS, 3))
    for feature_map in (Identity(ARMS, 3),):
        np.testing.assert_array_equal(again.expected_features(feature_map), distribution.expected_features(feature_map))
        np.testing.assert_allclose(
            again.reward_covariance(feature_map, theta), distribution.reward_covariance(feature_map, theta), rtol=1e-13
        )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "std" in kind or "covariance" in kind])
def test_gaussian_contexts_are_normal_in_every_direction(kind):
    # Kolmogorov-Smirnov in 5 directions for 3 agents, at 1e-6 / 15 each.
    distribution = distributions(3)[kind]
    for agent, sigma in enumerate(full_covariance(distribution)):
        contexts = samples(distribution, agent, seed=5)
        for direction in np.random.default_rng(6).standard_normal((5, 3)):
            std = math.sqrt(direction @ sigma @ direction)
            standardised = (contexts - distribution.mean[agent]) @ direction / std
            assert kstest(standardised, "norm").pvalue > 1e-6 / 15


def test_contexts_of_a_singular_covariance_stay_in_its_range():
    distribution = distributions(4)["singular covariance"]
    for agent, sigma in enumerate(full_covariance(distribution)):
        null = np.linalg.eigh(sigma)[1][:, :-1]
        assert np.abs((samples(distribution, agent) - distribution.mean[agent]) @ null).max() < 1e-14


def test_agents_draw_their_contexts_independently():
    # 3 correlations of 20,000 numbers; 0.04 is beyond 5.6 standard errors: false alarm below 1e-7.
    mean = np.zeros((AGENTS * 20_000, 1))
    drawn = Gaussian(mean, std=1.0).sample(generator(0, Stream.CONTEXTS)).reshape(-1, AGENTS)
    assert np.abs(np.corrcoef(drawn.T)[np.triu_indices(AGENTS, 1)]).max() < 0.04


def test_points_of_a_discrete_distribution_occur_by_their_weights():
    # Chi-square for 3 agents at 1e-6 / 3 each.
    distribution = distributions(2)["discrete"]
    for agent in range(AGENTS):
        contexts = samples(distribution, agent)
        same = (contexts[:, None] == distribution.support[agent]).all(axis=-1)
        assert (same.sum(axis=1) == 1).all()
        weights = distribution.weights[agent]
        assert same[:, weights == 0].sum() == 0
        assert chisquare(same.sum(axis=0)[weights > 0], SAMPLES * weights[weights > 0]).pvalue > 1e-6 / 3


@pytest.mark.parametrize("spread", [{"std": 0.3}, {"std": [[0.1, 0.2]]}, {"covariance": np.eye(2) / 4}])
def test_a_spread_is_accepted_as_it_is_kept(spread):
    first = Gaussian(np.zeros((3, 2)), **spread)
    again = replace(first, mean=np.ones((3, 2)))
    for kept, before in ((again.std, first.std), (again.covariance, first.covariance)):
        assert (kept is None and before is None) or np.array_equal(kept, before)
    np.testing.assert_array_equal(again.encode()[next(iter(spread))], first.encode()[next(iter(spread))])


@pytest.mark.parametrize("weights", [[0.3, 0.7, 0.0], [0.0, 1.0, 0.0], [1 / 3 - 5e-10, 2 / 3, 0.0], [0.0, 0.0, 1.0]])
def test_the_extreme_uniforms_never_choose_a_point_of_weight_zero(weights):
    distribution = Discrete(np.zeros((1, 3, 1)), [weights])
    for uniform in (0.0, 2.0**-53, 0.5, 1 - 2.0**-53):
        assert weights[int(distribution.choose(np.array([uniform]))[0])] > 0


def test_choose_takes_any_number_of_uniforms_per_agent():
    distribution = Discrete(np.zeros((2, 3, 1)), [[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]])
    chosen = distribution.choose(np.array([[0.1, 0.3, 0.6], [0.1, 0.6, 0.9]]))
    np.testing.assert_array_equal(chosen, [[0, 1, 2], [0, 1, 2]])


def test_a_distribution_keeps_its_own_read_only_arrays():
    mean, sigma = np.zeros((2, 2)), np.eye(2)
    distribution = Gaussian(mean, covariance=sigma)
    mean[:], sigma[:] = 7, 7
    assert (distribution.mean == 0).all()
    assert (distribution.covariance == np.eye(2)).all()
    for name, array in distribution.encode().items():
        assert not array.flags.writeable, name
    point = PointMass(np.zeros((1, 2)))
    point.sample(np.random.default_rng())[...] = 5  # a sample is the caller's own
    assert (point.points == 0).all()


def test_a_distribution_of_the_users_own_needs_only_nodes():
    class Coin(ContextDistribution):
        """1 or -1, for every agent."""

        num_agents, dim = 2, 1

        def rows(self, index):
            part = Coin()
            part.num_agents = len(index)
            return part

        def sample(self, rng):
            return rng.choice([-1.0, 1.0], (self.num_agents, 1))

        def encode(self):
            return {"support": np.tile([[-1.0], [1.0]], (self.num_agents, 1, 1))}

        def nodes(self):
            return self.encode()["support"], np.full((self.num_agents, 2), 0.5)

    square = FeatureFunction(lambda c: (c**2)[:, :, None], 1, 1, 1)
    np.testing.assert_array_equal(Coin().expected_features(square), np.ones((2, 1, 1)))
    np.testing.assert_array_equal(Coin().reward_covariance(Identity(1, 1), np.ones((1, 1))), np.ones((2, 1, 1)))


MEAN = np.zeros((2, 3))


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: PointMass(np.zeros((0, 2))), ("points: ", "(0, 2)")),
        (lambda: PointMass([[np.nan]]), ("points: ", "nan")),
        (lambda: Gaussian(np.zeros((0, 3)), std=1.0), ("mean: ", "(0, 3)")),
        (lambda: Gaussian(MEAN), ("either std or covariance", "got neither")),
        (lambda: Gaussian(MEAN, std=1.0, covariance=np.eye(3)), ("either std or covariance", "both")),
        (lambda: Gaussian(MEAN, std=-0.1), ("std: ", "at least 0", "-0.1")),
        (lambda: Gaussian(MEAN, std=np.nan), ("std: ", "finite", "nan")),
        (lambda: Gaussian(MEAN, std=[1.0, 1.0]), ("std: ", "(n,), (1, n), (M, 1) or (M, n)", "(2,)")),
        (lambda: Gaussian(MEAN, std=np.ones((3, 3))), ("std: ", "(3, 3)", "covariance=")),
        (lambda: Gaussian(MEAN, std=[[1.0], [1.0, 2.0]]), ("std: ", "real numbers")),
        (lambda: Gaussian(MEAN, std="wide"), ("std: ", "'wide'")),
        (lambda: Gaussian(MEAN, covariance=np.eye(2)), ("covariance: ", "(3, 3)", "(2, 2)")),
        (lambda: Gaussian(MEAN, covariance=np.ones((3, 3, 3))), ("covariance: ", "(2, 3, 3)", "(3, 3, 3)")),
        (lambda: Gaussian(MEAN, covariance=np.full((3, 3), np.inf)), ("covariance: ", "finite", "inf")),
        (lambda: Gaussian(MEAN, covariance=np.eye(3) + np.triu(np.ones((3, 3)), 1)), ("symmetric", "by 1;")),
        (lambda: Gaussian(MEAN, covariance=np.diag([1.0, 1.0, -0.5])), ("positive semi-definite", "-0.5")),
        (
            lambda: Gaussian(MEAN, covariance=np.stack([1e9 * np.eye(3), np.diag([1.0, 1.0, -0.5])])),
            ("positive semi-definite", "-0.5"),
        ),
        (lambda: Discrete(np.zeros((1, 0, 2)), np.zeros((1, 0))), ("support: ", "(1, 0, 2)")),
        (lambda: Discrete(np.zeros((1, 2, 2)), np.ones((1, 3)) / 3), ("weights: ", "(1, 2)", "(1, 3)")),
        (lambda: Discrete(np.zeros((1, 2, 2)), [[0.5, 0.4]]), ("weights: ", "sum to 1", "0.9")),
        (lambda: Discrete(np.zeros((1, 2, 2)), [[1.5, -0.5]]), ("weights: ", "non-negative", "-0.5")),
        (lambda: Discrete(np.zeros((1, 2, 2)), [[np.nan, 1.0]]), ("weights: ", "finite", "nan")),
    ],
)
def test_what_is_no_distribution_is_refused(make, parts):
    assert_refused(make, *parts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_of_contexts_of_another_length_is_refused(kind):
    distribution = distributions(4)[kind]
    for ask in (
        lambda: distribution.expected_features(Identity(2, 3)),
        lambda: distribution.reward_covariance(Identity(2, 3), np.ones((2, 3))),
    ):
        assert_refused(ask, "feature_map: ", "length 3", "length 4")
