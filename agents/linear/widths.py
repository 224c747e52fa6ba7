"""Confidence widths of linear bandits: how many lengths ||x||_{V^-1} an estimate may be off.

Which formula is whose, and how sure it is that it is the published one, is said at each function. "After" means that
the formula was recalled or derived, and was not compared with the text of the paper.
"""

import math

import numpy as np

from fedbandit_envs.arrays import FloatArray


def hidden_scale(sigma: float, context_proxy: float = 4.0) -> float:
    """The noise scale of rewards whose context is hidden and drawn anew: sqrt(v + sigma^2).

    The reward is psi^T theta plus noise plus (phi - psi)^T theta, and v is a variance proxy of the last term. Kirschner
    and Krause (2019) take v = 4, since it lies in [-2, 2] for features and theta of norm 1; this agrees with their
    code. v = 1 is enough if |phi^T theta| <= 1, by Hoeffding's lemma. No scale helps where the context is hidden and
    fixed, because its bias does not average out.

    Args:
        sigma: the sub-Gaussian scale of the noise.
        context_proxy: v.

    >>> round(hidden_scale(1.0), 5)
    2.23607
    """
    return math.sqrt(context_proxy + sigma**2)


def ellipsoid_width(
    growth: FloatArray, *, scale: float, delta: float, regularisation: float, theta_bound: float
) -> FloatArray:
    """The width of the confidence ellipsoids of Abbasi-Yadkori, Pal and Szepesvari (2011), (n, B).

    It is R sqrt(2 ln(B / delta) + ln det V - ln det V_0) + sqrt(lambda) S: each of B blocks has an ellipsoid of its
    own, by its own determinant, which fails with probability delta / B. One ellipsoid for all stacked thetas would be
    wider: it takes the sum of the logarithms, and sqrt(B) S.

    Args:
        growth: (n, B) ln det V - ln det V_0 of each block.
        scale: R, the sub-Gaussian scale of a reward about its mean; see `hidden_scale`.
        delta: the probability that some bound may fail.
        regularisation: lambda.
        theta_bound: S, an upper bound on the norm of each theta.

    >>> ellipsoid_width(np.zeros((1, 1)), scale=1.0, delta=0.1, regularisation=1.0, theta_bound=1.0).round(5)
    array([[3.14597]])
    """
    failure = delta / growth.shape[1]
    return scale * np.sqrt(growth - 2 * math.log(failure)) + math.sqrt(regularisation) * theta_bound


def fed_lin_ucb_width(
    *,
    num_agents: int,
    horizon: int,
    dim: int,
    alpha: float,
    scale: float,
    delta: float,
    regularisation: float,
    theta_bound: float,
    feature_bound: float,
) -> float:
    """The width of FedLinUCB, after He, Wang, Min and Gu (2022); recalled from the paper, not verified.

    sqrt(lambda) S + (sqrt(1 + M alpha) + M sqrt(2 alpha)) (R sqrt(d ln((1 + T_tot L^2 / (min(alpha, 1) lambda)) /
    delta)) + sqrt(lambda) S), where T_tot = M T counts the steps of all agents. Their code has the constant 0.5.

    Args:
        num_agents: M.
        horizon: T, the steps of each agent.
        dim: the length of a regressor: d, or K d with a theta for each arm.
        alpha: how much an agent's determinant must grow before it uploads; the paper takes 1 / M^2.
        scale: R, the sub-Gaussian scale of a reward about its mean.
        delta: the probability that a bound may fail.
        regularisation: lambda.
        theta_bound: S, an upper bound on the norm of theta.
        feature_bound: L, an upper bound on the norms of regressors.

    >>> settings = dict(dim=1, alpha=1.0, scale=1.0, delta=0.5, regularisation=1.0, theta_bound=1.0, feature_bound=1.0)
    >>> round(fed_lin_ucb_width(num_agents=1, horizon=9, **settings), 5)  # 1 + 2 sqrt(2) (sqrt(ln 20) + 1)
    8.72392
    """
    radius = math.sqrt(regularisation) * theta_bound
    total = 1 + num_agents * horizon * feature_bound**2 / (min(alpha, 1.0) * regularisation)
    staleness = math.sqrt(1 + num_agents * alpha) + num_agents * math.sqrt(2 * alpha)
    return radius + staleness * (scale * math.sqrt(dim * math.log(total / delta)) + radius)


def private_width(
    growth: FloatArray, *, num_agents: int, scale: float, alpha: float, theta_bound: float, rmax: float, kappa: float
) -> FloatArray:
    """The width of FedUCB, after Dubey and Pentland (2020), in a form that can be proved.

    sigma sqrt(2 ln(2 / alpha) + ln det V - ln det(M rmin I)) + S sqrt(M rmax) + sqrt(M) kappa. The noise of M agents
    adds up, so its part of V is at most M rmax I, and its part of b at most sqrt(M) kappa. Which of 1, sqrt(M) and M
    the paper has here was not verified.

    Args:
        growth: (n,) ln det V - ln det(M rmin I).
        num_agents: M.
        scale: sigma, the sub-Gaussian scale of a reward about its mean.
        alpha: the probability that a bound may fail.
        theta_bound: S, an upper bound on the norm of theta.
        rmax: the largest eigenvalue of one agent's noise, with its shift.
        kappa: how long the noise of one agent's moments is, by the noise of its matrix.

    >>> private_width(
    ...     np.zeros(1), num_agents=10, scale=0.0, alpha=0.01, theta_bound=1.0, rmax=45940.0, kappa=0.0
    ... ).round(1)
    array([677.8])
    """
    noise = theta_bound * math.sqrt(num_agents * rmax) + math.sqrt(num_agents) * kappa
    return scale * np.sqrt(growth + 2 * math.log(2 / alpha)) + noise


def private_fed_lin_ucb_width(
    step: int,
    *,
    num_agents: int,
    dim: int,
    scale: float,
    alpha: float,
    theta_bound: float,
    feature_bound: float,
    shift: float,
) -> float:
    """The width of Private-FedLinUCB, as in the code of Zhou and Chowdhury (2024).

    sqrt(Lam) S + R sqrt(d ln(1 + t M L^2 / (d Lam)) + ln(1 / alpha)), where Lam is the `shift` that keeps the noisy
    matrices positive.

    Args:
        step: t, the steps of each agent up to now.
        num_agents: M.
        dim: the length of a regressor.
        scale: R, the sub-Gaussian scale of a reward about its mean.
        alpha: the probability that a bound may fail.
        theta_bound: S, an upper bound on the norm of theta.
        feature_bound: L, an upper bound on the norms of regressors.
        shift: Lam.

    >>> settings = dict(dim=1, scale=1.0, alpha=0.1, theta_bound=1.0, feature_bound=1.0, shift=4.0)
    >>> round(private_fed_lin_ucb_width(6, num_agents=2, **settings), 5)  # 2 + sqrt(ln 4 + ln 10)
    3.92065
    """
    growth = dim * math.log1p(step * num_agents * feature_bound**2 / (dim * shift))
    return math.sqrt(shift) * theta_bound + scale * math.sqrt(growth - math.log(alpha))
