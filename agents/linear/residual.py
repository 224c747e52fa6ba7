"""Residuals: what an agent's own arms pay beyond the common model, for contexts that are hidden and stay.

The reward of an arm is <theta_a, psi> + r + noise, where the residual r_{a,i} = <theta_a, phi - psi> belongs to one
agent and one arm. While a hidden context stays the same, so does r, and no common model can learn it. The idea of a
common model with a residual of each agent's own is after Agarwal, Langford and Wei, Federated Residual Learning, 2020.
The estimates here are derived from it for linear bandits; they are not the published algorithm.
"""

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray


def residuals(
    pulls: IntArray | FloatArray,
    sums: FloatArray,
    features: FloatArray,
    theta: FloatArray,
    variance: FloatArray | float,
    noise_std: float,
) -> tuple[FloatArray, FloatArray]:
    """The estimated residuals of all arms and their standard deviations, (n, K) each, given theta.

    A residual has the prior N(0, variance), and each reward tells it with noise: its posterior mean is
    S / (N + noise_std^2 / variance), where S is the sum of the N rewards beyond the common model, and its posterior
    variance is noise_std^2 / (N + noise_std^2 / variance).

    Args:
        pulls: (n, K) N, how often each arm was pulled.
        sums: (n, K) the sums of its rewards.
        features: (n, K, d) the sums of its psi over these pulls.
        theta: (n or 1, B, d) the common model, with a block for each arm or one for all.
        variance: the prior variance of the residuals, a number or (n, K). Var(theta_a^T phi) under mu_i is natural; 0
            stands for a context that is known.
        noise_std: the standard deviation of one reward's noise, above 0.

    >>> theta, features = np.array([[[1.0]]]), np.array([[[1.5], [0.0]]])
    >>> residuals(np.array([[3, 0]]), np.array([[3.5, 0.0]]), features, theta, variance=1.0, noise_std=1.0)
    (array([[0.5, 0. ]]), array([[0.5, 1. ]]))
    """
    beyond = sums - np.einsum("nkd,nkd->nk", features, np.broadcast_to(theta, features.shape))
    total = noise_std**2 + pulls * variance
    return variance * beyond / total, noise_std * np.sqrt(variance / total)


def without_residuals(moments: FloatArray, features: FloatArray, estimate: FloatArray) -> FloatArray:
    """The moments sum psi y (n, K, d) of each arm, as if its rewards had no residual.

    From these the common model is estimated anew, then the residuals, and so on by turns.

    Args:
        moments: (n, K, d) the sums of psi y.
        features: (n, K, d) the sums of psi.
        estimate: (n, K) the residuals.

    >>> without_residuals(np.array([[[3.5]]]), np.array([[[3.0]]]), np.array([[0.5]]))
    array([[[2.]]])
    """
    return moments - estimate[..., None] * features
