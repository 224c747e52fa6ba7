"""Beliefs of many agents are formed group by group, in any order of memory: no bit depends on either."""

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_agents.inference import believing_agents, inferring_agents, sums
from fedbandit_agents.inference.posterior import Belief
from fedbandit_agents.inference.sums import groups_of, sum_along, sums_of_others, weighted_sums
from fedbandit_envs.arrays import row_groups

T = 400


def identity(contexts, **keywords):
    """Seven agents with four arms, whose contexts are the features."""
    theta = np.random.default_rng(1).normal(size=(4, 2))
    return fb.make("Linear", theta=theta, contexts=contexts, feature_map=fb.Identity(4, 2), max_cycles=T, **keywords)


MEAN = np.random.default_rng(2).normal(size=(7, 2))
COVARIANCE = np.eye(2) * np.arange(1, 8)[:, None, None]
PROBLEMS = {
    "tables": lambda: fb.make("Synthetic", num_agents=7, max_cycles=T, context_std=0.1),
    "contexts known": lambda: fb.make("Synthetic", num_agents=7, max_cycles=T, context_std=0.0),
    "resampled": lambda: fb.make("Synthetic", num_agents=7, max_cycles=T, context_std=0.1, context="resampled"),
    "one context for all arms": lambda: identity(fb.Gaussian(MEAN, std=0.3)),
    "each its own covariance": lambda: identity(fb.Gaussian(MEAN, covariance=COVARIANCE)),
    "few contexts": lambda: identity(fb.Discrete(MEAN[:, None] + [[0.0, 0.5], [0.5, 0.0]], np.full((7, 2), 0.5))),
    "a function": lambda: fb.make(
        "Linear",
        theta=np.random.default_rng(3).normal(size=(4, 3)),
        contexts=fb.Gaussian(MEAN[:, :1], std=0.4),
        feature_map=fb.FeatureFunction(lambda c: np.stack([c, c**2, np.cos(c)], axis=-1).repeat(4, axis=1), 4, 3, 1),
        max_cycles=T,
    ),
}
POLICIES = {
    "Fed-CI": fb.make_policy("Fed-CI"),
    "joint": fb.make_policy("Fed-CI", server_knows="distributions"),
    "Federated-Thompson": fb.make_policy("Federated-Thompson"),
    "Local-Thompson": fb.make_policy("Local-Thompson"),
}


def flat(tree, path=""):
    """The arrays and numbers of a state, by their places."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{path}/{name}")
        else:
            yield f"{path}/{name}", np.asarray(value)


def end_state(problem, policy):
    """All that agents and history hold at the end of a run."""
    rounds = fb.CommunicationRounds(PROBLEMS[problem](), POLICIES[policy])
    rounds.start(seed=0)
    rounds.finish()
    return dict(flat(rounds.snapshot()["agents"])) | {"pulls": rounds.history().pulls[-1]}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("size", [1, 3])
def test_however_large_the_groups_of_agents_are_every_bit_is_the_same(problem, policy, size, monkeypatch):
    whole = end_state(problem, policy)
    for module in (believing_agents, inferring_agents):
        monkeypatch.setattr(module, "groups_of", lambda number, *rest, **least: row_groups(number, size))
    grouped = end_state(problem, policy)
    assert whole.keys() == grouped.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(grouped[name], array, err_msg=name, strict=True)


def test_groups_are_neither_too_large_nor_too_small():
    # 20,000 numbers: 1,000 agents with 20 each, and 256 agents at least however many numbers each has.
    assert groups_of(2500, entries=20, least=256) == [slice(0, 1000), slice(1000, 2000), slice(2000, 2500)]
    assert groups_of(300, entries=1280, least=256) == [slice(0, 256), slice(256, 300)]


@pytest.mark.parametrize("together", [1, 20, 60])
def test_the_server_s_groups_of_arms_change_no_more_than_rounding(together, monkeypatch):
    rng = np.random.default_rng(4)
    e, weights, values = rng.normal(size=(5, 3, 20)), rng.random((5, 20)), rng.normal(size=(5, 20))
    monkeypatch.setattr(sums, "TOGETHER", together)
    squares, moments = weighted_sums(e, weights, values)
    np.testing.assert_allclose(squares, np.einsum("an,adn,aen->ade", weights, e, e))
    np.testing.assert_allclose(moments, np.einsum("an,an,adn->ad", weights, values, e))


def test_the_server_refuses_the_same_reports_in_groups(monkeypatch):
    def refused():
        env = fb.make("Synthetic", num_agents=9, max_cycles=100)
        lies = fb.Faults(attackers=fb.Attackers("scale", share=0.4, factor=1e12, start=1), quorum=0.1)
        rounds = fb.CommunicationRounds(env, fb.make_policy("Fed-CI"), faults=lies)
        rounds.start(seed=0)
        rounds.finish()
        return [(fault.agent, fault.round, fault.reason) for fault in rounds.history().faults]

    whole = refused()
    monkeypatch.setattr(sums, "TOGETHER", 10)
    assert whole
    assert refused() == whole


# --- the order in memory ---------------------------------------------------------------------------------------------


def beliefs(order, n=9, components=3, num_arms=11, q=2):
    """A belief of n agents and what they saw, in this order of memory."""
    rng = np.random.default_rng(5)
    arrays = [
        np.log(rng.dirichlet(np.ones(components), size=n)),
        rng.normal(size=(n, components, num_arms)),
        rng.uniform(0.05, 0.5, size=(n, components, num_arms)),
        0.5 * rng.normal(size=(n, components, num_arms, q)),
    ]
    pulls = rng.integers(0, 4, size=(n, num_arms))
    seen = [pulls, rng.normal(size=pulls.shape) * pulls, rng.uniform(0.5, 2, size=pulls.shape)]
    return Belief(*(np.array(array, order=order) for array in arrays)), [np.array(each, order=order) for each in seen]


def outcome(belief, seen):
    """What follows from a belief, as arrays."""
    after = belief.given(*seen)
    return [
        *(after.log_weights, after.mean, after.variance, after.factors, after.expected_rewards()),
        *after.against(np.arange(len(after.mean)) % after.mean.shape[2]),
        *(belief.factors_given_other_arms(*seen) if belief.factors.shape[3] else ()),
    ]


@pytest.mark.parametrize("q", [0, 2])
def test_a_belief_is_the_same_bit_for_bit_in_both_orders_of_memory(q):
    for one, other in zip(outcome(*beliefs("C", q=q)), outcome(*beliefs("F", q=q)), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("q", [0, 2])
def test_an_agent_alone_believes_the_same_bit_for_bit(order, q):
    whole, seen = beliefs(order, q=q)
    together = outcome(whole, seen)
    for agent in range(9):  # agent i is compared with arm i, as in `outcome`
        row = slice(agent, agent + 1)
        after, everybody = whole.rows(row).given(*(each[row] for each in seen)), whole.given(*seen)
        for name in ("log_weights", "mean", "variance", "factors"):
            np.testing.assert_array_equal(getattr(after, name), getattr(everybody, name)[row], strict=True)
        for one, all_of_them in zip(after.against(np.array([agent % 11])), together[5:9], strict=True):
            np.testing.assert_array_equal(one, all_of_them[row], strict=True)


def test_sums_run_term_by_term():
    values = np.random.default_rng(6).normal(size=(4, 3, 50)) * 1e8
    by_hand = np.zeros((4, 3))
    for place in range(50):
        by_hand += values[..., place]
    for order in "CF":
        np.testing.assert_array_equal(sum_along(np.array(values, order=order), 2), by_hand)
        np.testing.assert_array_equal(sum_along(np.array(values[:1, :1], order=order), 2), by_hand[:1, :1])


def test_the_sum_of_others_does_not_subtract():
    values = np.array([[1e30, 1.0, 2.0, 4.0]])
    np.testing.assert_array_equal(sums_of_others(values, 1), [[7.0, 1e30, 1e30, 1e30]])
    np.testing.assert_array_equal(sums_of_others(values.T, 0), [[7.0], [1e30], [1e30], [1e30]])
