"""Contexts that change within an episode: how segments are drawn, and which streams are refused."""

import tracemalloc

import numpy as np
import pytest
from refusals import assert_refused
from scipy import stats

import fedbandit_envs as fb
from fedbandit_envs.problems.forecast import Forecast
from fedbandit_envs.problems.generator import draw_instance
from fedbandit_envs.problems.linear import Linear
from fedbandit_envs.problems.movielens.problem import Household, MovieLens
from fedbandit_envs.problems.segments import Segments
from fedbandit_envs.problems.synthetic import Synthetic

STREAMS = {
    "Synthetic": Synthetic(num_agents=5, num_arms=4, context="streaming"),
    "classical": Synthetic(num_agents=5, num_arms=4, context="streaming", error="classical"),
    "pieces": Synthetic(num_agents=5, num_arms=4, change_every=7),
    "MovieLens": MovieLens(num_agents=5, context="streaming"),
    "Household": Household(num_agents=5, context="streaming"),
    "Linear": Linear(num_agents=5, context="streaming"),
}
THETA = np.eye(2)


def segments(problem, rows=None, steps=2000, seed=3):
    return Segments(problem, draw_instance(problem, seed), seed, rows, steps)


@pytest.mark.parametrize("name", STREAMS)
def test_a_segment_does_not_depend_on_the_other_agents_or_on_what_was_read_before(name):
    whole, part = segments(STREAMS[name]), segments(STREAMS[name], np.array([3, 1]))
    numbers = (0, 1, 255, 256, 280)
    read = {number: whole.at(number) for number in numbers}
    for number in reversed(numbers):
        one, other = read[number], part.at(number)
        for of in ("psi", "phi", "means", "contexts"):
            assert getattr(one, of)[[3, 1]].tobytes() == getattr(other, of).tobytes()
        assert one.gaps[:, [3, 1]].tobytes() == other.gaps.tobytes()


def test_a_block_bounds_the_memory():
    many = segments(Synthetic(num_agents=20_000, context="streaming"))
    many.at(0)
    assert many._block.psi.size <= 2 * 20_000 * 10 * 3


def test_a_block_bounds_the_memory_of_what_is_shown_too():
    # An ensemble is a hundred times as large as psi.
    many = segments(Forecast(num_agents=250, num_arms=2, variables=1, members=100))
    tracemalloc.start()
    many.at(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 8 * 2**19  # ten arrays of the largest block


def test_gaps_of_two_segments_by_hand():
    features = np.array([[[[1.0, 0.0], [0.0, 0.6]]], [[[0.2, 0.0], [0.0, 0.5]]]])  # (segments, agents, arms, dim)
    two = segments(Linear(theta=THETA, features=features, context="streaming"), steps=2)
    np.testing.assert_allclose(two.at(0).gaps[0], [[0, 0.4]])
    np.testing.assert_allclose(two.at(1).gaps[0], [[0.3, 0]])


def hidden(**arguments):
    """One agent, two arms: mu prefers arm 0 by 0.2, the true context prefers arm 1 by 0.5."""
    mu = fb.Gaussian([[0.6, 0.4]], std=1.0)
    return Linear(theta=THETA, contexts=[mu], feature_map=fb.Identity(2, 2), true_contexts=[[[0.1, 0.6]]], **arguments)


def test_regret_of_a_single_step_compares_under_mu_and_the_papers_is_paid_at_the_context():
    regret, distribution_regret, paper_regret = segments(hidden(context="streaming"), steps=1).at(0).gaps
    np.testing.assert_allclose(regret, [[0, 0.2]])
    np.testing.assert_allclose(distribution_regret, [[0, 0.2]])
    np.testing.assert_allclose(paper_regret, [[0, -0.5]])


def test_regret_of_a_longer_segment_compares_at_the_true_context():
    regret, distribution_regret, _ = segments(hidden(change_every=2), steps=2).at(0).gaps
    np.testing.assert_allclose(regret, [[0.5, 0]])
    np.testing.assert_allclose(distribution_regret, [[0, 0.2]])


def test_a_context_has_the_law_that_was_shown():
    # False alarms: 1e-4 by Kolmogorov and Smirnov, with a fixed seed.
    drawn = segments(STREAMS["Synthetic"])
    deviations = [(drawn.at(t).contexts - drawn.at(t).observed("distribution")[0].mean) / 0.05 for t in range(300)]
    assert stats.kstest(np.concatenate(deviations).ravel(), "norm").pvalue > 1e-4
    assert stats.kstest(0.5 * np.concatenate(deviations).ravel(), "norm").pvalue < 1e-4


def test_features_are_fresh_at_each_step_and_keep_their_ranges():
    drawn = segments(STREAMS["Synthetic"])
    psi = np.stack([drawn.at(t).psi for t in range(300)])
    norms, gaps = np.linalg.norm(psi, axis=-1), np.sort(psi[..., 0].max(axis=-1, keepdims=True) - psi[..., 0], axis=-1)
    assert len(np.unique(psi)) == psi.size
    assert 0.5 - 1e-12 <= norms.min() <= norms.max() <= 1 + 1e-12
    assert 0.2 - 1e-12 <= gaps[..., 1:].min() <= gaps.max() <= 0.4 + 1e-12


def test_an_account_stays_and_its_members_take_turns():
    drawn = segments(STREAMS["Household"])
    mu = drawn.at(0).observed("distribution")[0]
    contexts = np.stack([drawn.at(t).contexts for t in range(400)])
    for i in range(5):
        assert (drawn.at(399).observed("distribution")[0].support[i] == mu.support[i]).all()
        seen = [(contexts[:, i] == member).all(axis=1).sum() for member in mu.support[i][mu.weights[i] > 0]]
        assert sum(seen) == 400
        # False alarms: 5 accounts, 1e-4 each.
        assert stats.chisquare(seen, 400 * mu.weights[i][mu.weights[i] > 0]).pvalue > 1e-4


def test_another_user_visits_at_each_step_within_the_public_norms():
    everyone = MovieLens(num_agents=5, users="all", context="streaming", context_std=0.0)
    env = fb.HiddenContextBandit(everyone, max_cycles=500)
    env.reset(seed=0)
    constants, drawn = env.view().constants, segments(everyone)
    norms = np.linalg.norm(np.stack([drawn.at(t).psi[:, 0] for t in range(500)]), axis=-1)
    assert constants.ell <= norms.min() < norms.max() <= constants.L
    assert len(np.unique(norms)) > 500


def test_arrays_and_functions_make_the_same_stream():
    means = np.random.default_rng(0).random((9, 3, 2)) + 0.5
    rest = {"theta": THETA, "feature_map": fb.Identity(2, 2), "context": "streaming", "ell": 0.1, "L": 3.0}
    listed = Linear(contexts=[fb.Gaussian(mean, std=0.1) for mean in means], **rest)
    told = Linear(contexts=lambda t: fb.Gaussian(means[t], std=0.1), **rest)
    for number in range(9):
        one, other = segments(listed, steps=9).at(number), segments(told, steps=9).at(number)
        assert one.contexts.tobytes() == other.contexts.tobytes()
        np.testing.assert_array_equal(one.psi[:, 0], means[number])


def test_wrong_streams_are_refused():
    features = np.ones((9000, 1, 2, 2))
    features[7000, 0, 1, 0] = np.nan
    streaming = {"theta": THETA, "context": "streaming"}
    assert_refused(lambda: Linear(features=features, **streaming), "features: ", "nan in segment 7000")
    assert_refused(lambda: Linear(features=np.ones((3, 2, 2)), **streaming), "(segments, agents, 2, 2)", "(3, 2, 2)")
    assert_refused(lambda: Linear(features=lambda t: np.ones((3, 2)), ell=1, L=2, **streaming), "features(0): ")
    assert_refused(lambda: Linear(features=lambda t: np.ones((3, 2, 2)), **streaming), "ell, L: ")
    mu = fb.Gaussian(np.ones((3, 2)), std=0.1)
    mapped = {**streaming, "feature_map": fb.Identity(2, 2)}
    assert_refused(lambda: Linear(contexts=mu, **mapped), "contexts: ", "a list of distributions")
    assert_refused(lambda: Linear(contexts=[mu, 3], **mapped), "contexts[1]: ")
    mixed = Linear(contexts=[mu, fb.PointMass(np.ones((3, 2)))], **mapped)
    assert_refused(lambda: segments(mixed, steps=2).at(0), "Gaussian", "PointMass", "in segment 1")
    few = fb.make("fedbandit/Linear-v0", features=np.ones((5, 1, 2, 2)), max_cycles=6, **streaming)
    assert_refused(lambda: few.reset(seed=0), "at least 6 segments", "got 5")
    for shape in [(3, 2), (4, 3, 5)]:
        given = {"contexts": [mu] * 4, "true_contexts": np.ones(shape), **mapped}
        assert_refused(lambda given=given: Linear(**given), "true_contexts: ", "(segments, 3, 2)", str(shape))
    short = Linear(contexts=[mu] * 4, true_contexts=np.ones((3, 3, 2)), **mapped)
    assert_refused(lambda: segments(short, steps=4), "true_contexts: ", "at least 4 segments", "got 3")


def test_arguments_that_mean_nothing_are_refused():
    assert_refused(lambda: Synthetic(context="stream"), "context: ", "did you mean 'streaming'")
    assert_refused(lambda: Synthetic(change_every=0), "change_every: ")
    assert_refused(lambda: Synthetic(context="streaming", change_every=5), "change_every: ")
    assert_refused(lambda: MovieLens(context="resampled", change_every=5), "change_every: ", "context='fixed'")
    assert_refused(lambda: fb.make("fedbandit/Synthetic-v0", reveal="after"), "reveal: ", "context='streaming'")
    assert_refused(lambda: fb.make("fedbandit/Synthetic-v0", reveal="after", change_every=5), "reveal: ")
    assert_refused(lambda: fb.make("fedbandit/Synthetic-v0", reveal="later"), "reveal: ")
    assert_refused(lambda: fb.make("fedbandit/File-v0", context="streaming"), "context: ")
