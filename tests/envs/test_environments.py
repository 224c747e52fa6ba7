"""Every registered id, found in the registries themselves, keeps the contracts of PettingZoo and Gymnasium."""

import math
from itertools import pairwise

import gymnasium
import numpy as np
import pettingzoo
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.utils.conversions import parallel_to_aec
from refusals import assert_refused

import fedbandit_envs as fb
from fedbandit_envs.envs.episode import Episode
from fedbandit_envs.envs.ids import COUPLED, short_name


def ours(registry):
    return sorted(name for name in registry if name.startswith("fedbandit/"))


PARALLEL_IDS, AEC_IDS, GYMNASIUM_IDS = map(
    ours, (pettingzoo.parallel_registry, pettingzoo.aec_registry, gymnasium.registry)
)
AGENT_IDS = [name for name in GYMNASIUM_IDS if "-Agent-" in name]
OBSERVE = ("distribution", "context")
OBSERVATIONS = ("features", "distribution", "statistics")
SMALL = {"num_agents": 3, "max_cycles": 40}
GIVEN = ("fedbandit/Linear-v0", "fedbandit/File-v0", "fedbandit/MultiArmed-v0")  # their mu_i do not depend on the seed
SAME_START = (*GIVEN, "fedbandit/SharedArms-v0")  # their first observations do not depend on the seed


def test_each_environment_is_in_each_registry():
    assert ours(fb.environment_ids()) == PARALLEL_IDS == AEC_IDS
    apart = [name for name in PARALLEL_IDS if name not in COUPLED]  # their agents can be played one by one
    assert sorted([*apart, *AGENT_IDS]) == GYMNASIUM_IDS
    assert [name.replace("-Agent", "") for name in AGENT_IDS] == apart


@pytest.mark.parametrize("observe", OBSERVE)
@pytest.mark.parametrize("name", PARALLEL_IDS)
def test_parallel_environment_passes_the_checks_of_pettingzoo(name, observe):
    parallel_api_test(pettingzoo.make("parallel", name, observe=observe, **SMALL), num_cycles=100)
    parallel_seed_test(lambda: fb.make(name, observe=observe, **SMALL), num_cycles=20)


@pytest.mark.parametrize("observe", OBSERVE)
@pytest.mark.parametrize("name", AEC_IDS)
def test_aec_environment_passes_the_checks_of_pettingzoo(name, observe):
    api_test(pettingzoo.make("aec", name, observe=observe, **SMALL), num_cycles=100)
    api_test(parallel_to_aec(fb.make(name, observe=observe, **SMALL)), num_cycles=100)
    seed_test(lambda: pettingzoo.make("aec", name, observe=observe, **SMALL), num_cycles=50)


@pytest.mark.parametrize("module", [f"{short_name(name).lower()}_v0" for name in PARALLEL_IDS])
def test_module_form_makes_the_same_environments(module):
    forms = __import__(f"fedbandit_envs.{module}", fromlist=["env"])
    parallel, aec = forms.parallel_env(**SMALL), forms.env(**SMALL)
    assert parallel.metadata["name"] == aec.metadata["name"] == module
    assert isinstance(parallel, pettingzoo.ParallelEnv)
    assert isinstance(aec, pettingzoo.AECEnv)


def rollout(env, seed, steps):
    """All outputs of `steps` steps, the observations checked against their spaces."""
    outputs = [env.reset(seed=seed)]
    rng = np.random.default_rng(0)
    for _ in range(steps):
        for agent, observation in outputs[-1][0].items():
            assert env.observation_space(agent).contains(observation), (agent, observation)
        if not env.agents:
            outputs.append(env.reset())
            continue
        outputs.append(env.step({agent: int(rng.integers(env.action_space(agent).n)) for agent in env.agents}))
    return outputs


@pytest.mark.parametrize("observe", OBSERVE)
@pytest.mark.parametrize("name", PARALLEL_IDS)
def test_same_seed_gives_the_same_rollout_and_another_seed_another_one(name, observe):
    # 40 steps an episode: the 200 steps go through several episodes, whose instances follow from the first seed.
    first, again, other = (rollout(fb.make(name, observe=observe, **SMALL), seed=seed, steps=200) for seed in (7, 7, 8))
    assert data_equivalence(first, again, exact=True)
    assert not data_equivalence(first[0], other[0]) or name in SAME_START
    assert not data_equivalence([step[1] for step in first], [step[1] for step in other])


@pytest.mark.parametrize("name", PARALLEL_IDS)
def test_reset_without_a_seed_goes_on_to_a_new_instance(name):
    env = fb.make(name, **SMALL)

    def means(seed=None):
        env.reset(seed=seed)
        truth = env.truth if name in COUPLED else env.instance
        return truth.means

    first, second = means(seed=1), means()
    assert np.array_equal(means(seed=1), first)
    assert not np.array_equal(second, first)
    assert np.array_equal(means(), second)


def test_noise_does_not_depend_on_what_is_pulled_and_instance_not_on_the_noise():
    env = fb.make("fedbandit/Synthetic-v0", **SMALL)
    noise = []
    for arm in (0, 1):
        env.reset(seed=3)
        _, rewards, *_ = env.step(dict.fromkeys(env.agents, arm))
        noise.append(np.array(list(rewards.values())) - env.instance.means[:, arm])
    assert np.allclose(*noise)
    louder = fb.make("fedbandit/Synthetic-v0", noise_std=2.0, **SMALL)
    louder.reset(seed=3)
    assert np.array_equal(louder.instance.contexts, env.instance.contexts)


@pytest.mark.parametrize("length", [1, 300])
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.uint64])
def test_a_plan_in_any_type_of_whole_numbers_is_pulled_alike(kind, length):
    explore, arm, found = np.array([[0, 1, 0], [0, 0, 0]]), np.array([2, 1]), []
    for dtype in (np.int64, kind):
        env = fb.make("fedbandit/Synthetic-v0", num_agents=2, num_arms=3, max_cycles=300)
        env.reset(seed=0)
        found.append(env.pull(fb.Plan(explore.astype(dtype), arm.astype(dtype), length)))
    plain, other = found
    np.testing.assert_array_equal(other.sums(), plain.sums())
    np.testing.assert_array_equal(other.pulls(), [[0, 1, length - 1], [0, length, 0]])


def test_all_agents_are_truncated_together_at_the_horizon():
    env = fb.make("fedbandit/Synthetic-v0", num_agents=2, max_cycles=3)
    env.reset(seed=0)
    for last in (False, False, True):
        assert env.agents == ["agent_0", "agent_1"]
        _, _, terminations, truncations, _ = env.step(dict.fromkeys(env.agents, 0))
        assert terminations == {"agent_0": False, "agent_1": False}
        assert truncations == {"agent_0": last, "agent_1": last}
    assert env.agents == []
    assert env.max_num_agents == 2


@pytest.mark.parametrize("actions", [np.zeros(3), np.zeros(3, dtype=int), [0, 0, 0], 0, None, "000"])
@pytest.mark.parametrize("agents", [1, 3])
def test_actions_without_names_are_refused_in_words(actions, agents):
    env = fb.make("fedbandit/Synthetic-v0", num_agents=agents)
    env.reset(seed=0)
    assert_refused(lambda: env.step(actions), "expected a dict from agent to arm", type(actions).__name__)


def test_the_reward_of_the_joint_view_is_the_sum_of_all_agents():
    joint, env = gymnasium.make("fedbandit/Synthetic-v0", **SMALL), fb.make("fedbandit/Synthetic-v0", **SMALL)
    joint.reset(seed=2)
    env.reset(seed=2)
    paid = env.step(dict.fromkeys(env.agents, 1))[1]
    assert joint.step(np.ones(3, dtype=int))[1] == pytest.approx(sum(paid.values()), rel=1e-12)


def test_outputs_of_one_step_are_not_changed_by_the_next():
    env = fb.make("fedbandit/Synthetic-v0", **SMALL)
    outputs = rollout(env, seed=0, steps=2)
    for earlier, later in pairwise(outputs):
        for agent in earlier[0]:
            for name, array in earlier[0][agent].items():
                assert not np.shares_memory(array, later[0][agent][name])
                array[:] = np.nan  # what a caller does to its own arrays is its own business
    observations = env.step(dict.fromkeys(env.agents, 0))[0]
    assert all(np.isfinite(array).all() for shown in observations.values() for array in shown.values())


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("observe", OBSERVE)
@pytest.mark.parametrize("name", GYMNASIUM_IDS)
def test_view_passes_the_check_of_gymnasium(name, observe, observation):
    env = gymnasium.make(f"fedbandit_envs:{name}", observe=observe, observation=observation, **SMALL)
    pictures = observe == "distribution" and observation == "features"
    check_env(env.unwrapped, skip_render_check=not pictures)
    env.reset(seed=0)  # through the passive checker too
    for _ in range(3):
        env.step(env.action_space.sample())
    env.close()


FORMS = [(name, mode) for name in GYMNASIUM_IDS for mode in ("sync", "async")]
FORMS += [(name, "vector_entry_point") for name in AGENT_IDS]  # all agents as one have no rows


@pytest.mark.parametrize(("name", "mode"), FORMS)
def test_make_vec_in_every_form(name, mode):
    arguments = {"max_cycles": 4} if mode == "vector_entry_point" else {"num_agents": 3, "max_cycles": 4}
    envs = gymnasium.make_vec(f"fedbandit_envs:{name}", num_envs=3, vectorization_mode=mode, **arguments)
    try:
        assert envs.num_envs == 3
        assert isinstance(envs.metadata["autoreset_mode"], AutoresetMode)
        observations, _ = envs.reset(seed=5)
        envs.action_space.seed(0)
        for step in range(1, 8):
            assert envs.observation_space.contains(observations)
            observations, rewards, terminations, truncations, _ = envs.step(envs.action_space.sample())
            assert rewards.shape == terminations.shape == truncations.shape == (3,)
            assert not terminations.any()
            assert truncations.tolist() == [step == 4] * 3
            assert (rewards == 0).all() == (step == 5), "the step after the last one only resets"
    finally:
        envs.close()


@pytest.mark.parametrize("name", AGENT_IDS)
def test_native_vector_form_is_the_default_of_agent_ids(name):
    envs = gymnasium.make_vec(f"fedbandit_envs:{name}", num_envs=3)
    assert type(envs).__name__ == "AgentsVectorEnv"
    remade = gymnasium.make_vec(envs.spec)
    assert remade.num_envs == 3


class TwoBumps(fb.ContextDistribution):
    """A distribution of a user's own: a normal of `std` around -1 or around 1, told in three arrays."""

    def __init__(self, right, dim=2):
        self.right, self.num_agents, self.dim = np.asarray(right), len(right), dim
        self.normals_per_context = dim + 1

    num_agents = dim = normals_per_context = 0

    def rows(self, index):
        return TwoBumps(self.right[index])

    def sample(self, rng):
        return self.from_normals(rng.standard_normal((self.num_agents, 1, self.dim + 1)))[:, 0]

    def from_normals(self, normals):
        return np.where(normals[..., :1] < self.right[:, None, None], 1.0, -1.0) + 0.1 * normals[..., 1:]

    def encode(self):
        right = self.right[:, None]
        return {"right": right, "centres": np.tile([-1.0, 1.0], (self.num_agents, 1)), "std": np.full_like(right, 0.1)}

    def bounds(self):
        return {"std": (0.0, 1.0)}

    def nodes(self):
        right = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in self.right])
        return np.tile([[[-1.0], [1.0]]], (self.num_agents, 1, self.dim)), np.stack([1 - right, right], axis=1)


@pytest.mark.parametrize("context", ["fixed", "resampled"])
def test_a_distribution_of_the_users_own_with_three_arrays_is_played_and_observed(context):
    mu = TwoBumps([0.5, 1.0, -0.5])
    problem = fb.Linear(np.eye(2), contexts=mu, feature_map=fb.Identity(2, 2), context=context, noise_std=0.1)
    env = fb.HiddenContextBandit(problem, max_cycles=50)
    observations, _ = env.reset(seed=0)
    for shown in (observations, env.step(dict.fromkeys(env.possible_agents, 0))[0]):
        for row, agent in enumerate(env.possible_agents):
            assert env.observation_space(agent).contains(shown[agent])
            assert list(shown[agent]) == ["right", "centres", "std"]
            assert shown[agent]["right"] == mu.right[row]
    assert env.observation_space("agent_0")["std"].high == 1
    assert env.observation_space("agent_0")["right"].low == -np.inf
    assert fb.play(env, fb.make_policy("Fed-PECD"), seed=0).steps[-1] == 50


@pytest.mark.parametrize("context", ["fixed", "resampled"])
def test_the_views_of_gymnasium_show_a_distribution_with_three_arrays(context):
    mu = TwoBumps([0.5, 1.0, -0.5])
    problem = {"theta": np.eye(2), "contexts": mu, "feature_map": fb.Identity(2, 2), "context": context}
    keywords = {**problem, "observation": "distribution", "max_cycles": 5}
    joint = gymnasium.make("fedbandit/Linear-v0", **keywords)
    one = gymnasium.make("fedbandit/Linear-Agent-v0", agent=2, **keywords)
    rows = gymnasium.make_vec("fedbandit/Linear-Agent-v0", **keywords)
    for env, right in ((joint, mu.right[:, None]), (one, mu.right[2:]), (rows, mu.right[:, None])):
        shown, _ = env.reset(seed=0)
        for observation in (shown, env.step(0 * env.action_space.sample())[0]):
            assert sorted(observation) == sorted(env.observation_space) == ["centres", "right", "std"]
            assert env.observation_space.contains(observation)
            np.testing.assert_array_equal(observation["right"], right)


@pytest.mark.parametrize("change_every", [1, 4])
def test_contexts_that_change_are_shown_as_distributions_of_the_users_own(change_every):
    right = np.random.default_rng(0).normal(size=(12 // change_every, 3))
    given = {"contexts": [TwoBumps(row) for row in right], "feature_map": fb.Identity(2, 2)}
    how = {"context": "streaming"} if change_every == 1 else {"change_every": change_every}
    env = fb.HiddenContextBandit(fb.Linear(np.eye(2), **given, **how), max_cycles=12)
    shown, _ = env.reset(seed=0)
    for step in range(12):
        for row, agent in enumerate(env.possible_agents):
            assert shown[agent]["right"] == right[step // change_every, row]
        shown, *_ = env.step(dict.fromkeys(env.possible_agents, 0))
    policy = fb.make_policy("DisLinUCB")
    together, apart = (fb.play(env, policy, seed=0, blocks=blocks) for blocks in (None, [[2, 0], [1]]))
    assert together.regret().tobytes() == apart.regret().tobytes()


class OwnGaussian(fb.Gaussian):
    """A subclass, whose objects are kept one by one where contexts change."""


def test_distributions_that_are_kept_one_by_one_give_the_run_of_their_arrays():
    def played(kind):
        centres = np.random.default_rng(1).normal(size=(12, 4, 2))
        given = {"contexts": [kind(centre, std=0.3) for centre in centres], "feature_map": fb.Identity(3, 2)}
        problem = fb.Linear(np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), **given, change_every=10)
        env = fb.HiddenContextBandit(problem, max_cycles=120)
        return fb.play(env, fb.make_policy("DisLinUCB"), seed=0).regret()

    assert played(OwnGaussian).tobytes() == played(fb.Gaussian).tobytes()


def test_an_own_distribution_that_knows_its_contexts_makes_the_exact_setting():
    class Known(TwoBumps):
        known = np.array([[1.0, -1.0], [1.0, 1.0]])

        def rows(self, index):
            part = Known(self.right[index])
            part.known = self.known[index]
            return part

        def sample(self, rng):
            return self.known

    problem = fb.Linear(np.eye(2), contexts=Known([9.0, 9.0]), feature_map=fb.Identity(2, 2))
    assert fb.HiddenContextBandit(problem, max_cycles=50).exact
    env = fb.HiddenContextBandit(problem, max_cycles=50)
    assert fb.play(env, fb.make_policy("Fed-PE"), seed=0).steps[-1] == 50  # Fed-PE needs to be shown the contexts


def test_resampled_rewards_of_a_distribution_of_the_users_own_have_its_mean_and_variance():
    mu = TwoBumps(np.full(500, 0.5))
    instance = fb.BanditInstance(np.eye(2), fb.Identity(2, 2), mu, None, 0.1, context="resampled")
    sums = Episode(instance, 0, 500).pull(fb.Plan(np.zeros((500, 2), dtype=int), np.zeros(500, dtype=int), 4))
    right = mu.nodes()[1][0, 1]
    mean, variance = 2 * right - 1, 4 * right * (1 - right) + 0.02
    deviation = sums.played_sums - 4 * mean
    assert abs(deviation.mean()) < 4 * math.sqrt(4 * variance / 500)  # a false alarm in 1e-4 of all seeds
    assert abs((deviation**2).mean() / (4 * variance) - 1) < 0.3


@pytest.mark.parametrize(
    ("keyword", "meant"),
    [("T", "max_cycles"), ("horizon", "max_cycles"), ("M", "num_agents"), ("K", "num_arms"), ("d", "dim")],
)
def test_symbols_of_the_paper_are_answered_with_the_keyword(keyword: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"got '{keyword}'; did you mean '{meant}'"):
        fb.make("fedbandit/Synthetic-v0", **{keyword: 5})


def test_a_keyword_that_the_data_decides_is_not_answered_with_another() -> None:
    with pytest.raises(ValueError, match="got 'K'; the data decides it"):
        fb.make("fedbandit/MovieLens-v0", K=5)


def test_a_whole_number_can_be_written_as_a_float() -> None:
    env = fb.make("fedbandit/Synthetic-v0", num_agents=1e1, max_cycles=1e4)
    assert (env.max_cycles, len(env.possible_agents)) == (10_000, 10)
    with pytest.raises(ValueError, match="max_cycles: expected a whole number of at least 1, got"):
        fb.make("fedbandit/Synthetic-v0", max_cycles=1.5)
    with pytest.raises(ValueError, match="num_agents: expected a whole number"):
        fb.make("fedbandit/Synthetic-v0", num_agents=1.5)
