"""How far a reward scatters because its context is hidden: its variance under mu, given what is known of theta."""

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.roots import matrix_root
from fedbandit_envs.protocol.knowledge import View


def spanning(theta: FloatArray, covariance: FloatArray, num_arms: int) -> FloatArray:
    """The 1 + d vectors (1 + d, K, d) whose squares add up to E[theta_a theta_a^T].

    The first is theta, and the others are the columns of a root of its covariance.

    Args:
        theta: the estimates, (B, d), one for each arm or one for all.
        covariance: what is not known of them, (B, d, d).
        num_arms: K.

    >>> spanning(np.array([[1.0]]), np.array([[[4.0]]]), num_arms=2).tolist()
    [[[1.0], [1.0]], [[2.0], [2.0]]]
    """
    vectors = np.concatenate([theta[None], np.moveaxis(matrix_root(covariance), 2, 0)])
    return np.broadcast_to(vectors, (len(vectors), num_arms, theta.shape[1])).copy()


def hidden_variances(view: View, vectors: FloatArray) -> FloatArray:
    """The mean of <theta_a, phi - psi>^2 under mu_i, (n, K), for vectors as of `spanning`; 0 for known contexts.

    Args:
        view: what the agents are shown.
        vectors: (S, K, d) vectors whose squares add up to E[theta_a theta_a^T].
    """
    if view.exact:
        return np.zeros(view.psi.shape[:2])
    return np.add.reduce([view.distribution.reward_variances(view.feature_map, vector) for vector in vectors])
