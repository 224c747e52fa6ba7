"""Problem families: the ranges they promise, what is hidden and how, and streams that don't meddle."""

import dataclasses
import math

import numpy as np
import pytest
from refusals import assert_refused
from scipy.stats import chisquare, kstest, norm

from fedbandit_envs.contexts.features import FeatureFunction, Identity, Table
from fedbandit_envs.contexts.finite import Discrete, PointMass
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.problems.generator import draw_instance
from fedbandit_envs.problems.linear import Linear
from fedbandit_envs.problems.movielens.factors import ELL, L, eligible_users, load_factors
from fedbandit_envs.problems.movielens.problem import Household, MovieLens
from fedbandit_envs.problems.multi_armed import MultiArmed
from fedbandit_envs.problems.synthetic import Synthetic
from fedbandit_envs.seeding import Stream, generator

FAMILIES = {
    "synthetic, berkson": Synthetic(num_agents=6),
    "synthetic, classical": Synthetic(num_agents=6, error="classical"),
    "synthetic, resampled": Synthetic(num_agents=6, context="resampled"),
    "movielens": MovieLens(num_agents=6),
    "movielens, classical": MovieLens(num_agents=6, error="classical", factors="masked"),
    "movielens, resampled": MovieLens(num_agents=6, context="resampled", users="all"),
    "household": Household(num_agents=6),
    "household, resampled": Household(num_agents=6, factors="masked", context="resampled"),
    "linear": Linear(),
    "multi-armed": MultiArmed(num_agents=6, local_std=0.2),
    "multi-armed, resampled": MultiArmed(num_agents=6, local_std=0.2, context="resampled"),
}


def drawn(problem, instance_seed=0, context_seed=0):
    """An instance whose two streams have seeds of their own."""
    return problem.instance(generator(instance_seed, Stream.INSTANCE), generator(context_seed, Stream.CONTEXTS))


def parts(instance):
    """All that makes an instance, by name."""
    encoded = {f"mu.{name}": array for name, array in instance.distribution.encode().items()}
    return {"theta": instance.theta, "contexts": instance.contexts, "psi": instance.psi, "phi": instance.phi, **encoded}


# --- synthetic


@pytest.fixture(scope="module")
def thousand():
    """(1000, 20, 10, 3) features of a thousand instances of twenty agents, before anything is hidden."""
    problem = Synthetic(num_agents=20, context_std=0.0)
    return np.stack([draw_instance(problem, seed).phi for seed in range(1000)])


def test_a_thousand_synthetic_instances_keep_the_stated_gaps_and_norms(thousand):
    means = np.sort(thousand[..., 0], axis=-1)
    gaps = means[..., -1:] - means[..., :-1]
    assert (gaps.min(), gaps.max()) == pytest.approx((0.2, 0.4), abs=1e-3)
    assert gaps.min() >= 0.2 - 1e-12
    assert gaps.max() <= 0.4 + 1e-12
    assert means[..., -1].min() >= 0.8
    assert means[..., -1].max() <= 0.9
    norms = np.linalg.norm(thousand, axis=-1)
    assert (norms.min(), norms.max()) == pytest.approx((0.5, 1), abs=1e-3)
    assert norms.min() >= 0.5 - 1e-12
    assert norms.max() <= 1 + 1e-12


def test_every_arm_is_best_equally_often(thousand):
    # Chi-square over 20,000 agents, false alarm 1e-6; within an instance the agents' best arms are independent too.
    best = thousand[..., 0].argmax(axis=-1)
    assert chisquare(np.bincount(best.ravel(), minlength=10)).pvalue > 1e-6
    pairs = np.bincount((10 * best[:, 0::2] + best[:, 1::2]).ravel(), minlength=100)
    assert chisquare(pairs).pvalue > 1e-6


def test_gaps_best_means_and_directions_are_uniform(thousand):
    # Three Kolmogorov-Smirnov tests at 1e-6 / 3 each.
    first = thousand[..., 0]
    best = first.max(axis=-1)
    gaps = np.sort(best[..., None] - first, axis=-1)[..., 1:]
    angles = np.arctan2(thousand[..., 2], thousand[..., 1])
    assert kstest((best.ravel() - 0.8) / 0.1, "uniform").pvalue > 1e-6 / 3
    assert kstest((gaps.ravel() - 0.2) / 0.2, "uniform").pvalue > 1e-6 / 3
    assert kstest((angles.ravel() + np.pi) / (2 * np.pi), "uniform").pvalue > 1e-6 / 3


def test_the_radius_is_uniform_in_what_the_norms_allow(thousand):
    x, radius = thousand[..., 0].ravel(), np.linalg.norm(thousand[..., 1:], axis=-1).ravel()
    low, high = np.sqrt((0.25 - x**2).clip(min=0)), np.sqrt(1 - x**2)
    assert kstest((radius - low) / (high - low), "uniform").pvalue > 1e-6


def test_synthetic_arms_share_the_first_unit_vector_and_its_public_range_of_norms():
    instance = drawn(Synthetic(num_agents=5))
    np.testing.assert_array_equal(instance.theta, np.tile([1.0, 0, 0], (10, 1)))
    assert instance.feature_map == Table(10, 3)
    constants = instance.constants(100)
    assert (constants.ell, constants.L, constants.noise_std) == (0.5, 1.0, 1.0)


@pytest.mark.parametrize(("arms", "dim", "gap"), [(1, 2, 0.3), (2, 2, 0.0), (30, 5, (0.1, 1.5)), (4, 3, [0.2, 0.2])])
def test_synthetic_ranges_hold_for_other_sizes_and_gaps(arms, dim, gap):
    features = drawn(Synthetic(num_agents=200, num_arms=arms, dim=dim, gap=gap, context_std=0.0)).phi
    assert features.shape == (200, arms, dim)
    norms, means = np.linalg.norm(features, axis=-1), np.sort(features[..., 0], axis=-1)
    assert norms.min() >= 0.5 - 1e-12
    assert norms.max() <= 1 + 1e-12
    low, high = (gap, gap) if isinstance(gap, float) else gap
    gaps = means[:, -1:] - means[:, :-1]
    assert ((gaps >= low - 1e-12) & (gaps <= high + 1e-12)).all()


# --- what is hidden, and how

STD = 0.1
BASES = {
    "synthetic": lambda **changes: Synthetic(num_agents=400, context_std=STD, **changes),
    "movielens": lambda **changes: MovieLens(num_agents=400, context_std=STD, **changes),
}


def without_noise(problem):
    return drawn(dataclasses.replace(problem, context_std=0.0)).contexts


@pytest.mark.parametrize("family", BASES)
def test_berkson_contexts_scatter_around_the_centre_that_agents_see(family):
    problem = BASES[family](error="berkson")
    instance, base = drawn(problem), without_noise(problem)
    np.testing.assert_array_equal(instance.distribution.mean, base)
    np.testing.assert_array_equal(instance.psi, instance.feature_map(base))
    assert kstest(((instance.contexts - base) / STD).ravel(), "norm").pvalue > 1e-6


@pytest.mark.parametrize("family", BASES)
def test_classical_centres_scatter_around_the_true_context(family):
    problem = BASES[family](error="classical")
    instance, base = drawn(problem), without_noise(problem)
    np.testing.assert_array_equal(instance.contexts, base)
    np.testing.assert_array_equal(instance.phi, instance.feature_map(base))
    assert kstest(((instance.distribution.mean - base) / STD).ravel(), "norm").pvalue > 1e-6


@pytest.mark.parametrize("error", ["berkson", "classical"])
def test_the_error_is_uncorrelated_with_what_was_there_first(error):
    # Berkson: the error with psi; classical: the error with phi. 12,000 entries each, |z| at 1e-6.
    # With the other of the two it is correlated, by STD / sqrt(STD^2 + spread^2).
    instance = drawn(Synthetic(num_agents=400, context_std=STD, error=error))
    deviation = (instance.phi - instance.psi)[..., 1].ravel()  # along a coordinate that is centred at 0
    first, second = (instance.psi, instance.phi) if error == "berkson" else (instance.phi, instance.psi)
    size = len(deviation)
    limit = norm.isf(1e-6 / 2) / math.sqrt(size)
    assert abs(np.corrcoef(deviation, first[..., 1].ravel())[0, 1]) < limit
    spread = first[..., 1].std()
    expected = math.copysign(STD / math.hypot(STD, spread), 1 if error == "berkson" else -1)
    assert np.corrcoef(deviation, second[..., 1].ravel())[0, 1] == pytest.approx(expected, abs=limit)


@pytest.mark.parametrize("family", BASES)
@pytest.mark.parametrize("error", ["berkson", "classical"])
def test_agents_are_told_how_wide_the_error_is(family, error):
    assert (drawn(BASES[family](error=error)).distribution.encode()["std"] == STD).all()


@pytest.mark.parametrize("family", BASES)
@pytest.mark.parametrize("error", ["berkson", "classical"])
def test_without_context_noise_psi_is_phi(family, error):
    instance = drawn(dataclasses.replace(BASES[family](error=error), context_std=0.0))
    np.testing.assert_array_equal(instance.psi, instance.phi)


@pytest.mark.parametrize("family", BASES)
def test_resampled_contexts_have_no_single_truth(family):
    instance = drawn(BASES[family](context="resampled"))
    assert instance.contexts is None
    assert instance.context == "resampled"


# --- streams


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_seed_gives_the_same_instance_and_another_another(name):
    problem = FAMILIES[name]
    one, same, other = (parts(draw_instance(problem, seed)) for seed in (5, 5, 6))
    for part, array in one.items():
        np.testing.assert_array_equal(array, same[part])
    if name != "linear":
        told = "theta" if name.startswith("multi-armed") else "psi"
        assert not np.array_equal(one[told], other[told])


@pytest.mark.parametrize("name", [name for name in FAMILIES if "classical" not in name])
def test_the_stream_of_contexts_decides_the_hidden_context_alone(name):
    problem = FAMILIES[name]
    one, other = parts(drawn(problem, 1, context_seed=1)), parts(drawn(problem, 1, context_seed=2))
    for part in one:
        if part not in ("contexts", "phi"):
            np.testing.assert_array_equal(one[part], other[part])
    if "resampled" not in name:
        assert not np.array_equal(one["contexts"], other["contexts"])


@pytest.mark.parametrize("name", [name for name in FAMILIES if "classical" in name])
def test_the_stream_of_contexts_decides_a_classical_error_alone(name):
    problem = FAMILIES[name]
    one, other = parts(drawn(problem, 1, context_seed=1)), parts(drawn(problem, 1, context_seed=2))
    for part in ("theta", "contexts", "phi"):
        np.testing.assert_array_equal(one[part], other[part])
    assert not np.array_equal(one["psi"], other["psi"])


@pytest.mark.parametrize("name", ["synthetic, berkson", "synthetic, classical", "movielens", "movielens, classical"])
def test_the_stream_of_the_instance_leaves_the_error_alone(name):
    problem = FAMILIES[name]
    errors = []
    for seed in (1, 2):
        instance = drawn(problem, seed, context_seed=1)
        errors.append(instance.contexts - instance.distribution.mean)
    np.testing.assert_allclose(errors[0], errors[1], atol=1e-15)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_shapes_of_an_instance_do_not_depend_on_its_seed(name):
    one, other = (draw_instance(FAMILIES[name], seed) for seed in (0, 1))
    assert one.num_agents == other.num_agents == FAMILIES[name].num_agents
    assert one.distribution.space() == other.distribution.space()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_tells_the_shape_of_its_instances(name):
    problem, instance = FAMILIES[name], draw_instance(FAMILIES[name], 1)
    shape = problem.problem_shape()
    shape.check(instance)
    assert shape.num_agents == instance.num_agents
    assert (shape.feature_map.num_arms, shape.feature_map.dim) == instance.theta.shape
    assert shape.space("distribution") == instance.distribution.space()
    if instance.contexts is not None:
        assert shape.space("context") == PointMass(instance.contexts).space()
    else:
        assert_refused(lambda: shape.space("context"), "observe", "resampled")


@pytest.mark.parametrize("name", FAMILIES)
def test_making_an_environment_draws_no_instance(name, monkeypatch):
    problem = FAMILIES[name]

    def instance(*_):
        raise AssertionError("an instance was drawn")

    monkeypatch.setattr(type(problem), "instance", instance)
    env = HiddenContextBandit(problem)
    assert len(env.possible_agents) == problem.num_agents
    with pytest.raises(AssertionError, match="an instance was drawn"):
        env.reset(seed=0)


@dataclasses.dataclass(frozen=True)
class Own:
    """A generator of a user's own, which does not tell its shapes."""

    problem: Synthetic | Household
    num_agents: int = 6

    def instance(self, rng, context_rng):
        return self.problem.instance(rng, context_rng)


@pytest.mark.parametrize("name", ["synthetic, berkson", "household"])
def test_a_generator_that_does_not_tell_its_shapes_makes_the_same_environment(name):
    own, told = HiddenContextBandit(Own(FAMILIES[name])), HiddenContextBandit(FAMILIES[name])
    assert own.possible_agents == told.possible_agents
    assert own.observation_space("agent_0") == told.observation_space("agent_0")
    assert own.action_space("agent_0") == told.action_space("agent_0")
    assert (own.dim, own.exact, own.resampled) == (told.dim, told.exact, told.resampled)
    for env in (own, told):
        env.reset(seed=3)
    np.testing.assert_array_equal(own.instance.means, told.instance.means)


class Shared(Synthetic):
    """A family that draws another kind of instance than the one whose shapes it inherits."""

    def instance(self, rng, context_rng):
        return Household(num_agents=6).instance(rng, context_rng)


class Fewer(Synthetic):
    """A family with one agent less than it tells."""

    def instance(self, rng, context_rng):
        return dataclasses.replace(FAMILIES["synthetic, berkson"], num_agents=5).instance(rng, context_rng)


@pytest.mark.parametrize(
    ("family", "parts"),
    [(Shared, ("num_arms = 10", "got 30")), (Fewer, ("num_agents = 6", "got 5"))],
)
def test_an_instance_of_another_shape_than_the_told_one_is_refused(family, parts):
    assert_refused(lambda: HiddenContextBandit(family(num_agents=6)).reset(seed=0), *parts, "problem_shape()")


# --- MovieLens


@pytest.mark.parametrize("factors", ["completed", "masked"])
def test_movielens_agents_are_different_eligible_users(factors):
    instance = drawn(MovieLens(num_agents=100, factors=factors, context_std=0.0))
    shipped = load_factors(factors)
    same = (instance.contexts[:, None] == shipped.users).all(axis=-1)
    users = same.argmax(axis=1)
    assert same.any(axis=1).all()
    assert len(set(users)) == 100
    assert set(users) <= set(eligible_users(shipped))
    assert instance.feature_map == Identity(30, 3)
    np.testing.assert_array_equal(instance.theta, shipped.theta)
    constants = instance.constants(100)
    assert (constants.ell, constants.L, constants.noise_std) == (ELL, L, 1e-3)
    norms = np.linalg.norm(instance.phi, axis=-1)
    assert norms.min() >= ELL
    assert norms.max() <= L


@pytest.mark.parametrize(("factors", "eligible"), [("completed", 802), ("masked", 633)])
def test_all_users_can_be_agents_and_then_norms_are_theirs(factors, eligible):
    instance = drawn(MovieLens(num_agents=943, factors=factors, users="all", context_std=0.0))
    users = load_factors(factors).users
    np.testing.assert_array_equal(np.sort(instance.contexts, axis=0), np.sort(users, axis=0))
    norms = np.linalg.norm(users, axis=-1)
    constants = instance.constants(100)
    assert (constants.ell, constants.L) == pytest.approx((norms.min(), norms.max()))
    assert constants.ell < ELL
    assert drawn(MovieLens(num_agents=eligible, factors=factors)).num_agents == eligible
    assert_refused(
        lambda: MovieLens(num_agents=eligible + 1, factors=factors), "num_agents: ", f"at most the {eligible}", "'all'"
    )
    assert_refused(lambda: MovieLens(num_agents=944, factors=factors, users="all"), "num_agents: ", "943", "got 944")


# --- households


@pytest.mark.parametrize("factors", ["completed", "masked"])
@pytest.mark.parametrize("users", ["eligible", "all"])
def test_an_account_is_shared_by_two_to_four_different_users(factors, users):
    instance = drawn(Household(num_agents=300, factors=factors, users=users))
    mu = instance.distribution
    assert isinstance(mu, Discrete)
    shipped = load_factors(factors)
    allowed = shipped.users[eligible_users(shipped)] if users == "eligible" else shipped.users
    sizes = (mu.weights > 0).sum(axis=1)
    assert set(sizes) == {2, 3, 4}
    assert chisquare(np.bincount(sizes)[2:]).pvalue > 1e-6
    for agent in range(300):
        members = mu.support[agent, mu.weights[agent] > 0]
        weights = mu.weights[agent, : sizes[agent]]
        assert weights.sum() == pytest.approx(1, abs=1e-12)
        assert len(np.unique(members, axis=0)) == sizes[agent]
        assert all((member == allowed).all(axis=1).any() for member in members)
        assert (instance.contexts[agent] == members).all(axis=1).any()
        np.testing.assert_allclose(instance.psi[agent, 0], weights @ members, rtol=1e-12)


def test_the_weights_of_an_account_are_uniform_on_the_simplex():
    # The first of n weights that are uniform on the simplex is Beta(1, n - 1); 3 sizes at 1e-6 / 3 each.
    weights = drawn(Household(num_agents=6000)).distribution.weights
    sizes = (weights > 0).sum(axis=1)
    for size in (2, 3, 4):
        for place in (0, size - 1):
            assert kstest(weights[sizes == size, place], "beta", (1, size - 1)).pvalue > 1e-6 / 6


def test_each_member_is_behind_the_screen_by_its_weight():
    # Over 40 draws for 300 accounts; the sums of (seen - expected) have known variances: |z| at 1e-6 / 4.
    problem = Household(num_agents=300)
    seen = np.zeros((300, 4))
    for seed in range(40):
        instance = drawn(problem, 1, context_seed=seed)
        mu = instance.distribution
        seen[np.arange(300), (instance.contexts[:, None] == mu.support).all(axis=-1).argmax(axis=1)] += 1
    assert seen[mu.weights == 0].sum() == 0
    order = mu.weights.argsort(axis=1)  # the least likely members first
    excess = np.take_along_axis(seen - 40 * mu.weights, order, axis=1).sum(axis=0)
    variance = np.take_along_axis(40 * mu.weights * (1 - mu.weights), order, axis=1).sum(axis=0)
    assert (np.abs(excess) < norm.isf(1e-6 / 8) * np.sqrt(variance)).all()


def test_the_public_range_of_a_households_norms_is_that_of_the_mixtures():
    instance = drawn(Household(num_agents=300))
    norms = np.linalg.norm(instance.psi, axis=-1)
    constants = instance.constants(100)
    assert (constants.ell, constants.L) == (norms.min(), norms.max())


@pytest.mark.parametrize(("factors", "share"), [("completed", 0.20), ("masked", 0.30)])
def test_mu_misleads_about_as_many_accounts_as_published(factors, share):
    # 20,000 accounts: the standard error is 0.003; the shares were measured as "about".
    instance = drawn(Household(num_agents=20_000, factors=factors))
    wrong = instance.means.argmax(axis=1) != instance.distribution_means.argmax(axis=1)
    assert wrong.mean() == pytest.approx(share, abs=0.04)


def test_household_is_movielens_with_shared_accounts():
    one, other = drawn(Household(num_agents=5)), drawn(MovieLens(num_agents=5, hidden="household"))
    for part, array in parts(one).items():
        np.testing.assert_array_equal(array, parts(other)[part])


# --- your own arrays

THETA = np.array([[1.0, 0.5], [0.2, 0.8], [0.4, 0.4]])
FEATURES = np.random.default_rng(0).uniform(0.1, 1, (4, 3, 2))


def test_features_are_known_exactly():
    problem = Linear(theta=THETA, features=FEATURES)
    assert problem.num_agents == 4
    instance = drawn(problem)
    assert isinstance(instance.distribution, PointMass)
    np.testing.assert_array_equal(instance.phi, FEATURES)
    np.testing.assert_array_equal(instance.psi, FEATURES)


def test_contexts_of_a_distribution_are_drawn_at_each_instance_or_given():
    mu = Gaussian(np.full((4, 2), 0.5), std=0.1)
    hidden = Linear(theta=THETA, contexts=mu, feature_map=Identity(3, 2))
    assert not np.array_equal(drawn(hidden, 0, 1).contexts, drawn(hidden, 0, 2).contexts)
    known = dataclasses.replace(hidden, true_contexts=np.full((4, 2), 0.7))
    np.testing.assert_array_equal(drawn(known).contexts, np.full((4, 2), 0.7))
    resampled = dataclasses.replace(hidden, context="resampled")
    assert drawn(resampled).contexts is None


def test_a_problem_of_your_own_can_be_changed_like_any_other():
    problem = dataclasses.replace(Linear(theta=THETA, features=FEATURES), noise_std=0.5)
    assert drawn(problem).noise_std == 0.5
    np.testing.assert_array_equal(drawn(problem).phi, FEATURES)
    assert dataclasses.replace(Linear(num_agents=7), noise_std=0.5).num_agents == 7


def test_a_map_of_your_own_is_averaged_over_the_distribution():
    square = FeatureFunction(lambda c: np.stack([c**2, 1 + c], axis=-1), 1, 2, 1)
    problem = Linear(theta=[[1.0, 1.0]], contexts=Gaussian([[2.0]], std=3.0), feature_map=square)
    np.testing.assert_allclose(drawn(problem).psi, [[[13.0, 3.0]]], rtol=1e-12)


def test_without_arrays_there_is_a_small_example():
    assert Linear().num_agents == 4
    instance = drawn(Linear(num_agents=9))
    assert (instance.num_agents, instance.num_arms, instance.dim) == (9, 3, 2)
    assert len(set(instance.distribution_means.argmax(axis=1))) > 1


MU = Gaussian(np.full((4, 2), 0.5), std=0.1)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Synthetic(num_agents=0), ("num_agents: ", "at least 1", "got 0")),
        (lambda: Synthetic(num_arms=0), ("num_arms: ", "at least 1", "got 0")),
        (lambda: Synthetic(dim=1), ("dim: ", "at least 2", "got 1")),
        (lambda: Synthetic(noise_std=-1), ("noise_std: ", "at least 0", "-1")),
        (lambda: Synthetic(context_std=-0.1), ("context_std: ", "at least 0", "-0.1")),
        (lambda: Synthetic(context_std=math.inf), ("context_std: ", "finite", "inf")),
        (lambda: Synthetic(error="bergson"), ("error: ", "did you mean 'berkson'")),
        (lambda: Synthetic(context="resample"), ("context: ", "did you mean 'resampled'")),
        (lambda: Synthetic(error="classical", context="resampled"), ("error: ", "'berkson'", "'classical'")),
        (lambda: Synthetic(gap=(0.4, 0.2)), ("gap: ", "low <= high", "(0.4, 0.2)")),
        (lambda: Synthetic(gap=1.6), ("gap: ", "1.5", "1.6")),
        (lambda: Synthetic(gap=(0.1, 0.2, 0.3)), ("gap: ", "pair", "(0.1, 0.2, 0.3)")),
        (lambda: Synthetic(gap="wide"), ("gap: ", "'wide'")),
        (lambda: Synthetic(gap=(-0.1, 0.2)), ("gap: ", "at least 0", "-0.1")),
        (lambda: MovieLens(num_agents=0), ("num_agents: ", "at least 1", "got 0")),
        (lambda: MovieLens(factors="mask"), ("factors: ", "did you mean 'masked'")),
        (lambda: MovieLens(users="some"), ("users: ", "'eligible', 'all'", "'some'")),
        (lambda: MovieLens(hidden="house"), ("hidden: ", "'gaussian', 'household'", "'house'")),
        (lambda: MovieLens(noise_std=math.nan), ("noise_std: ", "nan")),
        (lambda: MovieLens(error="classical", context="resampled"), ("error: ", "'berkson'", "'classical'")),
        (lambda: MovieLens(hidden="household", error="classical"), ("hidden: ", "'classical'", "household")),
        (lambda: MovieLens(hidden="household", context_std=1.0), ("hidden: ", "context_std=1.0", "household")),
        (lambda: Linear(num_agents=0), ("num_agents: ", "at least 1", "got 0")),
        (lambda: Linear(features=FEATURES), ("theta: ", "(K, d)", "None")),
        (lambda: Linear(theta=THETA), ("either features", "neither")),
        (lambda: Linear(theta=THETA, features=FEATURES, contexts=MU), ("either features", "both")),
        (lambda: Linear(theta=THETA, features=FEATURES, feature_map=Table(3, 2)), ("feature_map: ", "got one")),
        (lambda: Linear(theta=THETA, contexts=MU), ("feature_map: ", "None", "Identity(K, d)")),
        (lambda: Linear(theta=THETA, contexts=MU, feature_map=np.tanh), ("feature_map: ", "tanh", "FeatureFunction(")),
        (lambda: Linear(theta=THETA, contexts=MU.mean, feature_map=Identity(3, 2)), ("distribution: ", "ndarray")),
        (lambda: Linear(theta=np.zeros((0, 2)), features=np.zeros((4, 0, 2))), ("theta: ", "(0, 2)")),
        (lambda: Linear(theta=THETA * np.inf, features=FEATURES), ("theta: ", "finite", "inf")),
        (lambda: Linear(theta=THETA, features=FEATURES[:0]), ("features: ", "(0, 3, 2)")),
        (lambda: Linear(theta=THETA, features=FEATURES[0]), ("features: ", "(agents, 3, 2)", "(3, 2)")),
        (lambda: Linear(theta=THETA, features=FEATURES * np.nan), ("features: ", "finite", "nan")),
        (lambda: Linear(theta=THETA, features=FEATURES * 0), ("psi, the expected features", "agent 0, arm 0")),
        (lambda: Linear(theta=THETA, features=FEATURES, num_agents=5), ("num_agents: ", "expected 4", "got 5")),
        (lambda: Linear(theta=THETA, features=FEATURES, noise_std=-1), ("noise_std: ", "-1")),
        (lambda: Linear(theta=9 * THETA, features=FEATURES, rewards="bernoulli"), ("rewards: ", "[0, 1]", "rescale")),
        (
            lambda: Linear(
                theta=THETA, contexts=MU, feature_map=Identity(3, 2), context="resampled", rewards="bernoulli"
            ),
            ("rewards: ", "'gaussian'", "'bernoulli'"),
        ),
        (
            lambda: Linear(
                theta=THETA, contexts=MU, feature_map=Identity(3, 2), context="resampled", true_contexts=MU.mean
            ),
            ("contexts: ", "expected none", "got some"),
        ),
    ],
)
def test_what_can_not_be_a_problem_is_refused_when_it_is_made(make, named):
    assert_refused(make, *named)


@pytest.mark.parametrize(("error", "proxy"), [("berkson", 0.01), ("classical", None)])
def test_synthetic_problems_guarantee_what_they_are_made_of(error, proxy):
    rng = np.random.default_rng(0)
    constants = Synthetic(num_agents=3, context_std=0.1, error=error).instance(rng, rng).constants(10)
    assert (constants.shared_theta, constants.same_arms, constants.theta_bound) == (True, False, 1.0)
    assert constants.context_proxy == pytest.approx(proxy)


def test_movielens_problems_guarantee_nothing_about_theta():
    rng = np.random.default_rng(0)
    constants = MovieLens(num_agents=3).instance(rng, rng).constants(10)
    assert (constants.shared_theta, constants.theta_bound, constants.context_proxy) == (False, None, None)
