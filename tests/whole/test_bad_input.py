"""What is wrong is refused with what was expected, what came and what to do; and nothing has changed by it."""

import copy

import gymnasium
import numpy as np
import pettingzoo
import pytest
from gymnasium.utils.env_checker import data_equivalence
from refusals import assert_refused

import fedbandit_envs as fb
from fedbandit_envs.envs.views import AgentsVectorEnv, JointView, OneAgentView

THETA, FEATURES = np.eye(2), np.full((3, 2, 2), 0.5)
MEANS = np.full((3, 2), 0.5)


def linear(**arrays):
    return fb.make("fedbandit/Linear-v0", **arrays)


def hidden(contexts=None, feature_map=None, **keywords):
    contexts = fb.Gaussian(MEANS, std=0.1) if contexts is None else contexts
    return linear(theta=THETA, contexts=contexts, feature_map=feature_map or fb.Identity(2, 2), **keywords)


def with_entry(array, value):
    changed = array.copy()
    changed.reshape(-1)[0] = value
    return changed


SPREAD = fb.Discrete(MEANS[:, None] * [[[0.5], [1.5]]], np.full((3, 2), 0.5))
ARGUMENTS = {
    "theta not finite": (lambda: linear(theta=with_entry(THETA, np.nan), features=FEATURES), "theta", "nan"),
    "theta of wrong shape": (lambda: linear(theta=np.ones(3), features=FEATURES), "theta", "(3,)"),
    "theta missing": (lambda: linear(features=FEATURES), "theta", "None"),
    "features not finite": (lambda: linear(theta=THETA, features=with_entry(FEATURES, np.inf)), "features", "inf"),
    "features of wrong shape": (lambda: linear(theta=THETA, features=np.ones((3, 2, 4))), "features", "(3, 2, 4)"),
    "features of no agent": (lambda: linear(theta=THETA, features=np.ones((0, 2, 2))), "features", "(0, 2, 2)"),
    "features of zero norm": (lambda: linear(theta=THETA, features=0 * FEATURES), "zero vector", "agent 0, arm 0"),
    "features and contexts": (lambda: hidden(features=FEATURES), "features", "both"),
    "neither features nor contexts": (lambda: linear(theta=THETA), "features", "neither"),
    "no feature map": (lambda: linear(theta=THETA, contexts=fb.PointMass(MEANS)), "feature_map", "None"),
    "feature map of wrong length": (lambda: hidden(feature_map=fb.Table(2, 2)), "length 4", "length 2"),
    "true contexts of wrong shape": (lambda: hidden(true_contexts=np.ones((3, 5))), "contexts", "(3, 5)"),
    "zero norm of the expected features": (lambda: hidden(fb.Gaussian(0 * MEANS, std=1)), "psi", "zero vector"),
    "mean not finite": (lambda: fb.Gaussian(with_entry(MEANS, np.nan), std=1), "mean", "nan"),
    "std negative": (lambda: fb.Gaussian(MEANS, std=-1), "std", "-1"),
    "std and covariance": (lambda: fb.Gaussian(MEANS, std=1, covariance=np.eye(2)), "std", "both"),
    "covariance not finite": (lambda: fb.Gaussian(MEANS, covariance=np.eye(2) * np.nan), "covariance", "nan"),
    "covariance of wrong shape": (lambda: fb.Gaussian(MEANS, covariance=np.eye(3)), "covariance", "(3, 3)"),
    "covariance not symmetric": (lambda: fb.Gaussian(MEANS, covariance=[[1, 2], [0, 1]]), "symmetric", "2"),
    "covariance not psd": (lambda: fb.Gaussian(MEANS, covariance=-np.eye(2)), "semi-definite", "-1"),
    "weights that don't sum to 1": (lambda: fb.Discrete(SPREAD.support, np.full((3, 2), 0.4)), "sum to 1", "0.8"),
    "weights negative": (lambda: fb.Discrete(SPREAD.support, np.tile([1.5, -0.5], (3, 1))), "non-negative", "-0.5"),
    "weights of wrong shape": (lambda: fb.Discrete(SPREAD.support, np.ones((3, 1))), "weights", "(3, 1)"),
    "no agents": (lambda: fb.make("fedbandit/Synthetic-v0", num_agents=0), "num_agents", "0"),
    "no agents of the example": (lambda: linear(num_agents=0), "num_agents", "0"),
    "half an agent": (lambda: fb.make("fedbandit/MovieLens-v0", num_agents=2.5), "num_agents", "2.5"),
    "more agents than users": (lambda: fb.make("fedbandit/MovieLens-v0", num_agents=900), "num_agents", "900"),
    "not the agents of the arrays": (lambda: linear(theta=THETA, features=FEATURES, num_agents=4), "num_agents", "4"),
    "no arms": (lambda: fb.make("fedbandit/Synthetic-v0", num_arms=0), "num_arms", "0"),
    "no arms in a map": (lambda: fb.Table(0, 2), "num_arms", "0"),
    "one dimension": (lambda: fb.make("fedbandit/Synthetic-v0", dim=1), "dim", "1"),
    "gap too wide": (lambda: fb.make("fedbandit/Synthetic-v0", gap=(0.4, 0.2)), "gap", "(0.4, 0.2)"),
    "negative noise": (lambda: fb.make("fedbandit/Synthetic-v0", noise_std=-1), "noise_std", "-1"),
    "noise that is no number": (lambda: linear(noise_std="loud"), "noise_std", "loud"),
    "negative context noise": (lambda: fb.make("fedbandit/MovieLens-v0", context_std=-0.1), "context_std", "-0.1"),
    "Bernoulli mean above 1": (
        lambda: linear(theta=4 * THETA, features=FEATURES, rewards="bernoulli"),
        "[0, 1]",
        "bernoulli",
    ),
    "Bernoulli mean above 1 at a point": (
        lambda: hidden(
            fb.Discrete(3 * SPREAD.support, SPREAD.weights), rewards="bernoulli", context="resampled", noise_std=0
        ),
        "[0, 1]",
        "bernoulli",
    ),
    "Bernoulli with resampled Gaussian contexts": (
        lambda: hidden(rewards="bernoulli", context="resampled"),
        "resampled contexts of a Gaussian",
        "bernoulli",
    ),
    "observed context that is resampled": (
        lambda: fb.make("fedbandit/Synthetic-v0", observe="context", context="resampled"),
        "observe",
        "context",
    ),
    "classical error that is resampled": (
        lambda: fb.make("fedbandit/Synthetic-v0", error="classical", context="resampled"),
        "berkson",
        "classical",
    ),
    "classical error of a household": (
        lambda: fb.make("fedbandit/MovieLens-v0", hidden="household", error="classical"),
        "no error",
        "classical",
    ),
    "unknown observe": (lambda: linear(observe="contexts"), "observe", "did you mean 'context'"),
    "unknown context": (lambda: linear(context="resample"), "context", "did you mean 'resampled'"),
    "unknown rewards": (lambda: linear(rewards="poisson"), "rewards", "poisson"),
    "unknown factors": (lambda: fb.make("fedbandit/MovieLens-v0", factors="mask"), "did you mean 'masked'"),
    "unknown render mode": (lambda: linear(render_mode="rgb"), "render_mode", "did you mean 'rgb_array'"),
    "no steps": (lambda: linear(max_cycles=0), "max_cycles", "0"),
    "more steps than can be counted": (
        lambda: linear(max_cycles=2**63),
        "max_cycles",
        "at most 9007199254740992",
        str(2**63),
    ),
    "more steps than are exact": (lambda: linear(max_cycles=2**63 - 1), "max_cycles", "at most 9007199254740992"),
    "theta and features whose products overflow": (
        lambda: fb.Linear(theta=1e154 * np.eye(2), features=np.full((3, 2, 2), 1e154)),
        "psi",
        "at most 1e+100",
    ),
    "minus one step": (lambda: linear(max_cycles=-1), "max_cycles", "-1"),
    "unknown id": (lambda: fb.make("fedbandit/Sinthetic-v0"), "Sinthetic", "did you mean 'fedbandit/Synthetic-v0'"),
    "unlike any id": (lambda: fb.make("CartPole"), "fedbandit/Linear-v0", "CartPole"),
    "unknown keyword": (
        lambda: fb.make("fedbandit/Synthetic-v0", number_agents=3),
        "number_agents",
        "did you mean 'num_agents'",
    ),
    "keyword unlike any other": (lambda: linear(xyz=1), "expected keywords among theta", "got 'xyz'"),
    "unknown keyword through PettingZoo": (
        lambda: pettingzoo.make("parallel", "fedbandit/Synthetic-v0", num_arm=3),
        "num_arm",
        "did you mean 'num_arms'",
    ),
    "unknown keyword through Gymnasium": (
        lambda: gymnasium.make("fedbandit/Synthetic-v0", observations="features"),
        "observations",
        "did you mean 'observation'",
    ),
    "unknown keyword through make_vec": (
        lambda: gymnasium.make_vec("fedbandit/Synthetic-Agent-v0", num_env=3),
        "num_env",
        "did you mean 'num_envs'",
    ),
    "unknown problem": (lambda: JointView("Synthetics"), "problem", "did you mean 'Synthetic'"),
    "unknown observation": (lambda: JointView("Linear", observation="feature"), "did you mean 'features'"),
    "agent too far": (lambda: OneAgentView("Linear", agent=4), "from 0 to 3", "4"),
    "agent below 0": (lambda: OneAgentView("Linear", agent=-1), "agent", "-1"),
    "rows and agents": (lambda: AgentsVectorEnv("Synthetic", num_envs=3, num_agents=4), "num_envs", "got 3"),
    "no rows": (lambda: AgentsVectorEnv("Synthetic", num_envs=0), "num_envs", "0"),
    "rows and arrays": (
        lambda: AgentsVectorEnv("Linear", num_envs=4, theta=THETA, features=FEATURES),
        "num_agents",
        "got 4",
    ),
}


@pytest.mark.parametrize(("call", "parts"), [(call, parts) for call, *parts in ARGUMENTS.values()], ids=ARGUMENTS)
def test_wrong_argument_is_refused(call, parts):
    given = [array.copy() for array in (THETA, FEATURES, MEANS)]
    assert_refused(call, *parts)
    assert all(np.array_equal(*pair) for pair in zip(given, (THETA, FEATURES, MEANS), strict=True))


def parallel():
    return fb.make("fedbandit/Linear-v0", num_agents=3, max_cycles=3, render_mode="ansi")


def joint():
    return JointView("Linear", num_agents=3, max_cycles=3, observation="statistics")


def one():
    return OneAgentView("Linear", agent=2, num_agents=3, max_cycles=3, observation="statistics")


def vector():
    return AgentsVectorEnv("Linear", num_envs=3, max_cycles=3, observation="statistics")


GOOD = {
    parallel: {"agent_0": 0, "agent_1": 1, "agent_2": 2},
    joint: np.array([0, 1, 2]),
    one: 2,
    vector: np.array([0, 1, 2]),
}
BAD_ACTIONS = {
    "arm too far": (parallel, {**GOOD[parallel], "agent_1": 3}, "from 0 to 2", "3 for agent_1"),
    "arm below 0": (parallel, {**GOOD[parallel], "agent_2": -1}, "from 0 to 2", "-1 for agent_2"),
    "half an arm": (parallel, {**GOOD[parallel], "agent_0": 0.5}, "whole numbers", "float64"),
    "no arm": (parallel, {**GOOD[parallel], "agent_0": None}, "whole numbers", "object"),
    "two arms for one": (parallel, {**GOOD[parallel], "agent_0": [0, 1]}, "whole numbers", "object"),
    "true and false": (parallel, dict.fromkeys(GOOD[parallel], True), "whole numbers", "bool"),
    "agent missing": (parallel, {"agent_0": 0, "agent_2": 2}, "each of the 3 agents", "agent_1"),
    "agent unknown": (parallel, {**GOOD[parallel], "agent_7": 0}, "agent_0 to agent_2", "agent_7"),
    "no actions": (parallel, {}, "agent_0"),
    "actions in a list": (parallel, [0, 1, 2], "dict", "list"),
    "actions of none": (parallel, None, "dict", "NoneType"),
    "joint arm too far": (joint, np.array([0, 3, 0]), "from 0 to 2", "3 for agent_1"),
    "joint arms of two": (joint, np.array([0, 1]), "3 whole numbers", "(2,)"),
    "joint arms in a matrix": (joint, np.zeros((3, 1), int), "3 whole numbers", "(3, 1)"),
    "joint floats": (joint, np.zeros(3), "3 whole numbers", "float64"),
    "one arm too far": (one, 3, "from 0 to 2", "3 for agent_2"),
    "one arm below 0": (one, -1, "from 0 to 2", "-1 for agent_2"),
    "one arm in an array": (one, np.array([1]), "whole numbers", "(1, 1)"),
    "one name": (one, "left", "whole numbers", "<U4"),
    "row's arm too far": (vector, np.array([0, 0, 9]), "from 0 to 2", "9 for agent_2"),
    "rows of two": (vector, np.array([0, 1]), "3 whole numbers", "(2,)"),
    "ragged rows": (vector, [[0], [1, 2], [0]], "3 whole numbers", "object"),
}


def outcome(env):
    """What a good step gives, and all that follows from the state it leaves."""
    action = next(action for make, action in GOOD.items() if type(make()) is type(env))
    return [env.step(action), env.steps, env.episode_seed, env.reset()]


@pytest.mark.parametrize(
    ("make", "action", "parts"),
    [(make, action, parts) for make, action, *parts in BAD_ACTIONS.values()],
    ids=BAD_ACTIONS,
)
def test_wrong_action_is_refused_and_changes_nothing(make, action, parts):
    env = make()
    env.reset(seed=1)
    env.step(GOOD[make])
    untouched = copy.deepcopy(env)
    assert_refused(lambda: env.step(action), *parts)
    assert data_equivalence(outcome(env), outcome(untouched), exact=True)


@pytest.mark.parametrize("make", GOOD)
@pytest.mark.parametrize("seed", [-1, 1.5, "1", True])
def test_wrong_seed_is_refused_and_changes_nothing(make, seed):
    env = make()
    env.reset(seed=1)
    untouched = copy.deepcopy(env)
    assert_refused(lambda: env.reset(seed=seed), "seed", repr(seed))
    assert data_equivalence(outcome(env), outcome(untouched), exact=True)


@pytest.mark.parametrize("make", GOOD)
def test_step_before_reset_is_refused(make):
    env = make()
    assert_refused(lambda: env.step(GOOD[make]), "reset()")
    env.reset(seed=1)
    env.step(GOOD[make])


@pytest.mark.parametrize("make", [parallel, joint, one])
def test_step_after_the_end_is_refused(make):
    env = make()
    env.reset(seed=1)
    for _ in range(3):
        env.step(GOOD[make])
    assert_refused(lambda: env.step(GOOD[make]), "running episode", "ended after 3 steps", "reset()")
    assert env.steps == 3
    env.reset()
    env.step(GOOD[make])


@pytest.mark.parametrize(
    ("seed", "parts"), [([1, 2], ["3", "2"]), ([1, 2, 3, 4], ["3", "4"]), ([1, -2, 3], ["seed", "-2"])]
)
def test_wrong_list_of_seeds_is_refused(seed, parts):
    env = vector()
    env.reset(seed=1)
    untouched = copy.deepcopy(env)
    assert_refused(lambda: env.reset(seed=seed), "seed", *parts)
    assert data_equivalence(outcome(env), outcome(untouched), exact=True)


def test_rows_that_share_a_problem_do_not_reset_alone():
    env = vector()
    env.reset(seed=1)
    untouched = copy.deepcopy(env)
    assert_refused(lambda: env.reset(options={"reset_mask": np.array([True, False, True])}), "reset_mask", "together")
    assert data_equivalence(outcome(env), outcome(untouched), exact=True)


PLANS = {
    "too long": (fb.Plan.play(np.zeros(3, int), 3, 4), "at most the 2 steps left", "got 4"),
    "more exploration than steps": (fb.Plan(np.ones((3, 3), int), np.zeros(3, int), 2), "explore", "got 3"),
    "of other agents": (fb.Plan.play(np.zeros(2, int), 3), "(3, 3)", "int64[2, 3]"),
    "arm too far": (fb.Plan.play(np.array([0, 3, 0]), 3), "from 0 to 2", "3"),
    "negative pulls": (fb.Plan(np.full((3, 3), -1), np.zeros(3, int), 2), "at least 0", "-1"),
    "floats": (fb.Plan(np.zeros((3, 3)), np.zeros(3, int), 2), "whole numbers", "float64"),
}


@pytest.mark.parametrize(("plan", "parts"), [(plan, parts) for plan, *parts in PLANS.values()], ids=PLANS)
def test_wrong_plan_is_refused_and_changes_nothing(plan, parts):
    env = parallel()
    env.reset(seed=1)
    env.step(GOOD[parallel])
    untouched = copy.deepcopy(env)
    with pytest.raises(ValueError, match="expected") as caught:
        env.pull(plan)
    assert all(part in str(caught.value) for part in parts)
    fine = fb.Plan.play(np.array([0, 1, 2]), 3)
    assert np.array_equal(env.pull(fine).sums(), untouched.pull(fine).sums())
    assert data_equivalence(outcome(env), outcome(untouched), exact=True)


def test_pull_before_reset_and_after_the_end_is_refused():
    env, plan = parallel(), fb.Plan.play(np.zeros(3, int), 3, 3)
    assert_refused(lambda: env.pull(plan), "reset()")
    env.reset(seed=1)
    env.pull(plan)
    assert_refused(lambda: env.pull(plan), "running episode", "reset()")
