"""Policies whose indices went through linear algebra: the last bits decide nothing."""

import numpy as np

import fedbandit_envs as fb
from fedbandit_agents.inference.posterior import Belief


def agents_of(name, **parameters):
    policy = fb.make_policy(name, **parameters)
    seen = []

    class Watched(type(policy)):
        def agents(self, view):
            seen.append(super().agents(view))
            return seen[-1]

    env = fb.make("fedbandit/Synthetic-v0", num_agents=2, num_arms=3, max_cycles=20)
    fb.play(env, Watched(**parameters), seed=0)
    return seen[0]


def nudged(values):
    """The same numbers, of which the last is the largest by its last bits."""
    return values * (1 + np.array([0.0, -2e-16, 4e-16]))


def test_dis_lin_ucb_plays_the_first_of_equal_arms():
    agents = agents_of("DisLinUCB")
    agents.indices[:] = nudged(np.array([[2.0, 2.0, 2.0], [1.0, 2.0, 2.0]]))
    assert agents.indices.argmax(axis=1).tolist() == [2, 2]
    assert agents.choose().tolist() == [0, 1]


def test_context_inference_takes_the_first_of_equal_arms_for_the_best():
    agents = agents_of("Fed-CI")
    mean = nudged(np.array([[[0.3, 0.3, 0.3]], [[0.1, 0.3, 0.3]]]))
    belief = Belief(np.zeros((2, 1)), mean, np.ones(mean.shape), np.zeros((*mean.shape, 0)))
    agents.posterior = belief.rows
    assert agents.chosen(12, 12).arm.tolist() == [0, 1]
