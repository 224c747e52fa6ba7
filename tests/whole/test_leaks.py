"""Nothing that agents are given reveals theta or the hidden contexts: observations, infos and views are walked."""

from dataclasses import replace

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.envs.views import AgentsVectorEnv, JointView, OneAgentView

RNG = np.random.default_rng(0)
ARRAYS = {
    "theta": RNG.normal(size=(4, 2)),
    "contexts": fb.Gaussian(RNG.normal(size=(3, 2)), covariance=np.array([[0.2, 0.1], [0.1, 0.3]])),
    "feature_map": fb.Identity(4, 2),
}
PROBLEMS = {
    "synthetic": ("Synthetic", {}),
    "classical": ("Synthetic", {"error": "classical"}),
    "resampled": ("Synthetic", {"context": "resampled"}),
    "movielens": ("MovieLens", {}),
    "household": ("Household", {}),
    "multi-armed": ("MultiArmed", {"local_std": 0.3}),
    "linear": ("Linear", ARRAYS),
    "linear resampled": ("Linear", {**ARRAYS, "context": "resampled"}),
}
problems = pytest.mark.parametrize(("name", "keywords"), PROBLEMS.values(), ids=PROBLEMS)


def walk(thing, path="", seen=None):
    """Every number and array that can be reached from `thing`, with where it was found; private attributes too."""
    seen = {} if seen is None else seen
    if id(thing) in seen or thing is None or isinstance(thing, str | bytes | type):
        return
    seen[id(thing)] = thing  # kept alive, so that no id is used twice
    if isinstance(thing, np.ndarray):
        yield path, thing
        yield from walk(thing.base, f"{path}.base", seen)
    elif isinstance(thing, int | float | np.generic):
        yield path, np.asarray(thing)
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield from walk(value, f"{path}[{key!r}]", seen)
    elif isinstance(thing, list | tuple | set | frozenset):
        if all(isinstance(item, int | float | np.generic) for item in thing):
            yield path, np.array(list(thing))
        for place, item in enumerate(thing):
            yield from walk(item, f"{path}[{place}]", seen)
    else:
        for name in [*getattr(thing, "__dict__", {}), *getattr(type(thing), "__slots__", ())]:
            yield from walk(getattr(thing, name, None), f"{path}.{name}", seen)


def secrets(instance, seed):
    """What nobody may find: theta, the contexts and what follows from them, by name; each a vector."""
    found = {"seed": np.array([float(seed)])}
    found |= {f"theta[{arm}]": row for arm, row in enumerate(instance.theta)}
    if instance.contexts is not None:
        found |= {f"context[{agent}]": row for agent, row in enumerate(instance.contexts)}
    if (instance.theta != instance.theta[0]).any() or instance.contexts is not None:
        # With Synthetic's theta = e_1 the means under mu are the first coordinates of psi: not secret by themselves.
        found |= {f"means[{agent}]": row for agent, row in enumerate(instance.means)}
    return found


def leaks(thing, instance, seed):
    """Which secrets appear, in full and in order, in which of the arrays that can be reached."""
    found, hidden = [], secrets(instance, seed)
    for path, array in walk(thing):
        # One of the points of a household's support is the context; the question is which, and that must not be said.
        if array.dtype.kind not in "iuf" or "support" in path:
            continue
        forms = [array.reshape(-1).astype(np.float64)] + [array.T.reshape(-1).astype(np.float64)] * (array.ndim > 1)
        for numbers in forms:
            for name, secret in hidden.items():
                starts = numbers[: max(0, len(numbers) - len(secret) + 1)]
                begins = np.flatnonzero(np.abs(starts - secret[0]) < 1e-6)
                if any(np.allclose(numbers[at : at + len(secret)], secret, rtol=0, atol=1e-6) for at in begins):
                    found.append(f"{name} in {path}")
    return found


def given(env, seed=123456789):  # a number that can only be the seed
    """All that agents are given in some steps of a run, and what they know at its start."""
    things = [env.reset(seed=seed)]
    if isinstance(env.unwrapped, HiddenContextBandit):
        view = env.unwrapped.view()
        things += [view, view.rows(np.array([1]))]
        things += [env.step(dict.fromkeys(env.agents, arm)) for arm in (0, 1)]
    else:
        env.action_space.seed(0)
        things += [env.step(env.action_space.sample()) for _ in range(3)]
    return things


@problems
def test_nothing_hidden_reaches_the_agents(name, keywords):
    env = fb.make(f"fedbandit/{name}-v0", num_agents=3, **keywords)
    assert leaks(given(env), env.instance, env.episode_seed) == []


@problems
def test_nothing_hidden_reaches_the_agents_through_views_and_wrappers(name, keywords):
    keywords = {"num_agents": 3, **keywords}
    shells = [fb.PullStatistics(fb.make(f"fedbandit/{name}-v0", **keywords))]
    shells += [fb.PullStatistics(fb.ExpectedFeatures(fb.make(f"fedbandit/{name}-v0", **keywords)))]
    for view in (JointView, OneAgentView, AgentsVectorEnv):
        shells += [view(name, observation=kind, **keywords) for kind in ("features", "distribution", "statistics")]
    for shell in shells:
        things = given(shell)
        bandit = shell.unwrapped
        assert leaks(things, bandit.instance, bandit.episode_seed) == []


def test_place_of_the_true_context_in_a_household_says_nothing():
    env = fb.make("fedbandit/Household-v0", num_agents=200)
    env.reset(seed=0)
    support, weights = env.instance.distribution.support, env.instance.distribution.weights
    place = (support == env.instance.contexts[:, None]).all(axis=2).argmax(axis=1)
    for size in (2, 3, 4):
        counts = np.bincount(place[(weights > 0).sum(axis=1) == size], minlength=size)
        assert counts.min() > counts.sum() / size / 2  # equally likely; fails by chance with probability below 0.002


class LeakyInfo(HiddenContextBandit):
    def step(self, actions):
        *outcome, infos = super().step(actions)
        infos["agent_1"]["debug"] = {"context": self.instance.contexts[1].tolist()}
        return (*outcome, infos)


class LeakyObservation(HiddenContextBandit):
    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        observations["agent_2"]["mean"] = self.instance.phi[2].reshape(-1)
        return observations, infos


class LeakyBase(HiddenContextBandit):
    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        both = np.concatenate([observations["agent_0"]["mean"], self.instance.contexts[0]])
        observations["agent_0"]["mean"] = both[: len(both) // 2]
        return observations, infos


class LeakyView(HiddenContextBandit):
    def view(self, observe=None):
        view = super().view(observe)
        object.__setattr__(view.distribution, "_parameters", (self.instance.theta.T,))
        return view


class LeakyTruth(HiddenContextBandit):
    def view(self, observe=None):
        return replace(super().view(observe), truth=self.instance.means)


class LeakySeed(HiddenContextBandit):
    def step(self, actions):
        *outcome, infos = super().step(actions)
        infos["agent_0"]["seed"] = self.episode_seed
        return (*outcome, infos)


@pytest.mark.parametrize(
    ("leaky", "said"),
    [
        (LeakyInfo, "context[1] in [3][4]['agent_1']['debug']['context']"),
        (LeakyObservation, "context[2] in [0][0]['agent_2']['mean']"),
        (LeakyBase, "context[0] in [0][0]['agent_0']['mean'].base"),
        (LeakyView, "theta[0] in [1].distribution._parameters[0]"),
        (LeakyTruth, "means[1] in [1].truth"),
        (LeakySeed, "seed in [3][4]['agent_0']['seed']"),
    ],
)
def test_a_leak_is_found(leaky, said):
    env = leaky(fb.Synthetic(num_agents=3))
    found = leaks(given(env), env.instance, env.episode_seed)
    assert said in found
