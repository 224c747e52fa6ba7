"""The slow oracle of Weighted-DisLinUCB, Residual-LinUCB and DELB: agent by agent, with dense matrices.

It shares no code with the packages and imports none of them.
"""

import math

import numpy as np
from reference_linear import TIE, Played, log_det

Array = np.ndarray


def first_best(means, bonuses) -> int:
    bounds = [m + w for m, w in zip(means, bonuses, strict=True)]
    tolerance = TIE * max(abs(m) + w for m, w in zip(means, bonuses, strict=True))
    return next(arm for arm, bound in enumerate(bounds) if bound >= max(bounds) - tolerance)


def weighted_dis_lin_ucb(psi, spreads, rewards, *, sigma, delta, bound, threshold) -> Played:
    """One theta for all arms; `spreads` (T, M, K, d) are the standard deviations of the features that are shown."""
    T, M, _, d = psi.shape
    W, U = np.eye(d), np.zeros(d)
    own_W, own_U = np.zeros((M, d, d)), np.zeros((M, d))
    played, since = Played(np.zeros((T, M), dtype=int)), 0
    for t in range(T):
        common = np.linalg.inv(W)
        theta, unknown = common @ U, sigma**2 * common
        since += 1
        asks = False
        for i in range(M):
            V = W + own_W[i]
            inverse = np.linalg.inv(V)
            estimate = inverse @ (U + own_U[i])
            width = sigma * math.sqrt(log_det(V) - 2 * math.log(delta)) + bound
            x = psi[t, i]
            arm = first_best([y @ estimate for y in x], [width * math.sqrt(y @ inverse @ y) for y in x])
            played.arms[t, i] = arm
            Sigma = np.diag(spreads[t, i, arm] ** 2)
            variance = theta @ Sigma @ theta + np.trace(unknown @ Sigma)
            weight = sigma**2 / (sigma**2 + variance)
            own_W[i] += weight * np.outer(x[arm], x[arm])
            own_U[i] += weight * x[arm] * rewards[t, i, arm]
            asks |= since * (log_det(W + own_W[i]) - log_det(W)) > threshold * (1 + TIE)
        if asks:
            W, U, since = W + own_W.sum(axis=0), U + own_U.sum(axis=0), 0
            own_W, own_U = np.zeros((M, d, d)), np.zeros((M, d))
            played.uploads += [(t + 1, i) for i in range(M)]
    return played


def residual_lin_ucb(psi, std, rewards, *, sigma, v, delta, bound, threshold) -> Played:
    """A theta for each arm; psi (M, K, d) never changes, and each feature has the standard deviation `std`."""
    M, K, d = psi.shape
    T, R = len(rewards), math.sqrt(v + sigma**2)
    W, U = np.stack([np.eye(d)] * K), np.zeros((K, d))
    V, b = np.stack([W] * M), np.zeros((M, K, d))
    pulls, sums, sent = np.zeros((M, K)), np.zeros((M, K)), np.zeros((M, K, d))
    own_W = np.zeros((M, K, d, d))
    theta = np.zeros((K, d))
    played, since = Played(np.zeros((T, M), dtype=int)), 0

    def residual(i, a):
        tau = std**2 * theta[a] @ theta[a]  # the prior variance; a posterior by precisions
        if tau == 0:
            return 0.0, 0.0
        precision = 1 / tau + pulls[i, a] / sigma**2
        return (sums[i, a] - pulls[i, a] * psi[i, a] @ theta[a]) / sigma**2 / precision, math.sqrt(1 / precision)

    for t in range(T):
        since += 1
        asks = False
        for i in range(M):
            means, bonuses = [], []
            for a in range(K):
                inverse = np.linalg.inv(V[i, a])
                own, deviation = residual(i, a)
                width = R * math.sqrt(log_det(V[i, a]) - 2 * math.log(delta / K)) + bound
                means.append(psi[i, a] @ inverse @ b[i, a] + own)
                bonus = width * math.sqrt(psi[i, a] @ inverse @ psi[i, a])
                bonuses.append(bonus + math.sqrt(2 * math.log(K / delta)) * deviation)
            arm = first_best(means, bonuses)
            played.arms[t, i] = arm
            pulls[i, arm] += 1
            sums[i, arm] += rewards[t, i, arm]
            x = psi[i, arm]
            V[i, arm] += np.outer(x, x)
            own_W[i, arm] += np.outer(x, x)
            b[i, arm] += x * (rewards[t, i, arm] - residual(i, arm)[0])
            grown = sum(log_det(V[i, a]) - log_det(W[a]) for a in range(K))
            asks |= since * grown > threshold * (1 + TIE)
        if asks:
            for i in range(M):
                for a in range(K):
                    clean = (sums[i, a] - pulls[i, a] * residual(i, a)[0]) * psi[i, a]
                    U[a] += clean - sent[i, a]
                    sent[i, a] = clean
            W, since = W + own_W.sum(axis=0), 0
            own_W = np.zeros((M, K, d, d))
            V, b = np.stack([W] * M), np.stack([U] * M)
            theta = np.stack([np.linalg.inv(W[a]) @ U[a] for a in range(K)])
            played.uploads += [(t + 1, i) for i in range(M)]
    return played


def delb_phases(arms: Array, pulls_of_phases, sums_of_phases):
    """The estimate of each phase from its pulls (K,) and sums of rewards (K,), and the arms that are left after it."""
    left, found = list(range(len(arms))), []
    for phase, (pulls, sums) in enumerate(zip(pulls_of_phases, sums_of_phases, strict=True), start=1):
        gram = sum(m * np.outer(x, x) for m, x in zip(pulls, arms, strict=True))
        theta = np.linalg.pinv(gram) @ sum(s * x for s, x in zip(sums, arms, strict=True))
        best = max(arms[a] @ theta for a in left)
        left = [a for a in left if best - arms[a] @ theta <= 2.0 ** (1 - phase)]
        found.append((theta, list(left)))
    return found
