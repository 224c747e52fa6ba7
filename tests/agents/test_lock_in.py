"""Agents who all give an arm up at once would never find out that many of them need it: a run is then locked."""

import numpy as np
import pytest
from families import Family, shared, tables

import fedbandit_envs as fb
from fedbandit_agents import FedCI
from fedbandit_agents.inference.fed_ci import FedCIAgents

PROBLEMS = {
    "synthetic": fb.Synthetic(num_agents=100, context_std=0.05),
    "household": fb.Household(num_agents=100, noise_std=0.1, factors="masked"),
    "movielens": fb.MovieLens(num_agents=100, context_std=0.1, noise_std=0.1),
    "shared": Family(shared(4, 2, 0.1), num_agents=100, noise_std=1.0),
    "tables": Family(tables(4, 2, 0.05), num_agents=100, noise_std=1.0),
}


def is_locked(pulls, needed):
    """Whether an arm that at least a quarter of the agents need has no pull.

    Args:
        pulls: the pulls in the last part of a run, (M, K).
        needed: the best arm of each agent, (M,).
    """
    agents = np.bincount(needed, minlength=pulls.shape[1])
    return bool(((pulls.sum(axis=0) == 0) & (agents >= len(needed) / 4)).any())


def locked_runs(problem, seeds, horizon=2**10):
    """How many runs are locked."""
    env, count = fb.HiddenContextBandit(problem, max_cycles=horizon), 0
    for seed in seeds:
        history = fb.play(env, FedCI(), seed=seed)
        half = np.searchsorted(history.steps, horizon // 2)
        count += is_locked(history.pulls[-1] - history.pulls[half], env.instance.means.argmax(axis=1))
    return count


def test_a_locked_run_by_hand():
    pulls = np.array([[5, 0], [5, 0], [5, 0], [5, 0]])
    assert is_locked(pulls, np.array([0, 0, 0, 1]))  # a quarter needs arm 1
    assert not is_locked(pulls, np.array([0, 0, 0, 0]))
    assert not is_locked(pulls + np.array([0, 1]), np.array([0, 0, 0, 1]))


def test_pulls_for_all_find_an_arm_that_nobody_would_explore_for_itself(monkeypatch):
    # The only one of 300 runs that is locked if agents explore for themselves alone, found by search. 30 of its 100
    # agents need an arm of which all are wrongly sure that it is bad.
    env = fb.HiddenContextBandit(fb.Linear(num_agents=100, noise_std=1.0), max_cycles=2**17)

    def played():
        history = fb.play(env, FedCI(), seed=90139)
        half = np.searchsorted(history.steps, 2**13)
        needed = env.instance.means.argmax(axis=1)
        return history.mean_regret()[-1], is_locked(history.pulls[-1] - history.pulls[half], needed)

    regret, locked = played()
    assert not locked
    assert regret < 200
    monkeypatch.setattr(FedCIAgents, "_wanted_for_all", lambda self, better, *rest: np.zeros(better.mean.shape))
    regret, locked = played()
    assert locked
    assert regret > 2_000


@pytest.mark.slow
@pytest.mark.parametrize("label", PROBLEMS)
def test_few_short_runs_are_not_locked(label):
    assert locked_runs(PROBLEMS[label], range(40)) == 0


@pytest.mark.study
@pytest.mark.parametrize("label", PROBLEMS)
def test_of_ten_thousand_short_runs_none_is_locked(label):
    assert locked_runs(PROBLEMS[label], range(2_000)) == 0  # 2,000 with each of five problems
