"""Beliefs and views for the tests of context inference."""

import numpy as np

from fedbandit_agents.inference.context_bias import average_belief, bias_of, prior_belief, without_own_share
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.seeding import Randomness, Stream


def view_of(distribution, feature_map):
    """What agents with these contexts know."""
    n, num_arms, d = distribution.num_agents, feature_map.num_arms, feature_map.dim
    constants = Constants(n, num_arms, d, 1000, 0.5, 1.0, 1.0, "fixed")
    psi = distribution.expected_features(feature_map)
    return View(constants, np.arange(n), distribution, feature_map, psi, Randomness(0, Stream.POLICY, n))


def others(view, theta, V):
    """An estimate to which the agents themselves have not contributed."""
    nothing = np.zeros(view.psi.shape[:2])
    return without_own_share(theta, V, view.psi, nothing, nothing)


def covariance(belief):
    """(n, K, K) of the whole mixture."""
    deviation = belief.mean - belief.expected_rewards()[:, None]
    within = np.einsum("nsaq,nsbq->nsab", belief.factors, belief.factors)
    arms = np.arange(belief.mean.shape[2])
    within[..., arms, arms] += belief.variance
    return np.einsum("ns,nsab->nab", belief.weights, within + np.einsum("nsa,nsb->nsab", deviation, deviation))


def prior_of(view, known):
    """What agents believe before any reward, given what the others know about theta, if the spread of mu is right."""
    bias, ones = bias_of(view, known.theta, known.V), np.ones((len(view.psi), 1))
    return prior_belief(view, known, average_belief(view, known), bias, ones)
