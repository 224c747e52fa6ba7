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


def weighted_dis_lin_ucb(psi, spreads, rewards, *, sigma, delta, bound, threshold, shared=True) -> Played:
    """One theta for all arms, or one for each; `spreads` (T, M, K, d) are the standard deviations of the features."""
    T, M, K, d = psi.shape
    B = 1 if shared else K  # the number of estimates
    W, U = np.stack([np.eye(d)] * B), np.zeros((B, d))
    own_W, own_U = np.zeros((M, B, d, d)), np.zeros((M, B, d))
    played, since = Played(np.zeros((T, M), dtype=int)), 0
    for t in range(T):
        common = [np.linalg.inv(one) for one in W]
        since += 1
        asks = False
        for i in range(M):
            means, bonuses = [], []
            for a in range(K):
                block = 0 if shared else a
                V, x = W[block] + own_W[i, block], psi[t, i, a]
                inverse = np.linalg.inv(V)
                width = sigma * math.sqrt(log_det(V) - 2 * math.log(delta / B)) + bound
                means.append(x @ inverse @ (U[block] + own_U[i, block]))
                bonuses.append(width * math.sqrt(x @ inverse @ x))
            arm = first_best(means, bonuses)
            played.arms[t, i] = arm
            block, x = 0 if shared else arm, psi[t, i, arm]
            theta = common[block] @ U[block]
            Sigma = np.diag(spreads[t, i, arm] ** 2)
            variance = theta @ Sigma @ theta + np.trace(sigma**2 * common[block] @ Sigma)
            weight = sigma**2 / (sigma**2 + variance)
            own_W[i, block] += weight * np.outer(x, x)
            own_U[i, block] += weight * x * rewards[t, i, arm]
            grown = sum(log_det(W[b] + own_W[i, b]) - log_det(W[b]) for b in range(B))
            asks |= since * grown > threshold * (1 + TIE)
        if asks:
            W, U, since = W + own_W.sum(axis=0), U + own_U.sum(axis=0), 0
            own_W, own_U = np.zeros((M, B, d, d)), np.zeros((M, B, d))
            played.uploads += [(t + 1, i) for i in range(M)]
    return played


def residual_lin_ucb(psi, std, rewards, *, sigma, v, delta, bound, threshold, shared=False) -> Played:
    """A theta for each arm, or one for all.

    psi (M, K, d) never changes, and each feature has the standard deviation `std`.
    """
    M, K, d = psi.shape
    T, R = len(rewards), math.sqrt(v + sigma**2)
    B = 1 if shared else K  # the number of estimates
    block = [0] * K if shared else list(range(K))
    W, U = np.stack([np.eye(d)] * B), np.zeros((B, d))
    V, b = np.stack([W] * M), np.zeros((M, B, d))
    pulls, sums, sent = np.zeros((M, K)), np.zeros((M, K)), np.zeros((M, K, d))
    own_W = np.zeros((M, B, d, d))
    theta = np.zeros((B, d))
    played, since = Played(np.zeros((T, M), dtype=int)), 0

    def residual(i, a):
        tau = std**2 * theta[block[a]] @ theta[block[a]]  # the prior variance; a posterior by precisions
        if tau == 0:
            return 0.0, 0.0
        precision = 1 / tau + pulls[i, a] / sigma**2
        return (sums[i, a] - pulls[i, a] * psi[i, a] @ theta[block[a]]) / sigma**2 / precision, math.sqrt(1 / precision)

    for t in range(T):
        since += 1
        asks = False
        for i in range(M):
            means, bonuses = [], []
            for a in range(K):
                inverse = np.linalg.inv(V[i, block[a]])
                own, deviation = residual(i, a)
                width = R * math.sqrt(log_det(V[i, block[a]]) - 2 * math.log(delta / B)) + bound
                means.append(psi[i, a] @ inverse @ b[i, block[a]] + own)
                bonus = width * math.sqrt(psi[i, a] @ inverse @ psi[i, a])
                bonuses.append(bonus + math.sqrt(2 * math.log(K / delta)) * deviation)
            arm = first_best(means, bonuses)
            played.arms[t, i] = arm
            pulls[i, arm] += 1
            sums[i, arm] += rewards[t, i, arm]
            x = psi[i, arm]
            V[i, block[arm]] += np.outer(x, x)
            own_W[i, block[arm]] += np.outer(x, x)
            b[i, block[arm]] += x * (rewards[t, i, arm] - residual(i, arm)[0])
            grown = sum(log_det(V[i, a]) - log_det(W[a]) for a in range(B))
            asks |= since * grown > threshold * (1 + TIE)
        if asks:
            for i in range(M):
                for a in range(K):
                    clean = (sums[i, a] - pulls[i, a] * residual(i, a)[0]) * psi[i, a]
                    U[block[a]] += clean - sent[i, a]
                    sent[i, a] = clean
            W, since = W + own_W.sum(axis=0), 0
            own_W = np.zeros((M, B, d, d))
            V, b = np.stack([W] * M), np.stack([U] * M)
            theta = np.stack([np.linalg.inv(W[a]) @ U[a] for a in range(B)])
            played.uploads += [(t + 1, i) for i in range(M)]
    return played


def delb_design(arms: Array) -> tuple[Array, int]:
    """The shares pi of the arms (K, d), whose widths are at most 2 r, and r, the dimensions that the arms span.

    It starts on arms that are each farthest from the span of those before, and gives the arm with the largest width
    some weight until no width is above 2 r.
    """
    first, basis = [], np.zeros((0, arms.shape[1]))
    while len(first) < arms.shape[1]:
        off = [np.linalg.norm(x - basis.T @ (basis @ x)) for x in arms]
        farthest = next(a for a, length in enumerate(off) if length >= max(off) * (1 - TIE))
        if off[farthest] <= 1e-6 * max(np.linalg.norm(x) for x in arms):
            break
        first.append(farthest)
        basis = np.linalg.qr(arms[first].T)[0].T
    pi, r = np.zeros(len(arms)), len(first)
    pi[first] = 1 / r
    while True:
        inverse = np.linalg.pinv(sum(share * np.outer(x, x) for share, x in zip(pi, arms, strict=True)), rcond=1e-12)
        widths = [x @ inverse @ x for x in arms]
        widest = next(a for a, width in enumerate(widths) if width >= max(widths) * (1 - TIE))
        if widths[widest] <= 2 * r * (1 + TIE):
            return pi, r
        step = (widths[widest] / r - 1) / (widths[widest] - 1)
        pi = (1 - step) * pi
        pi[widest] += step


def delb_phases(arms: Array, num_agents: int, horizon: int, constant: float, sums_of_phases):
    """Of each phase the pulls (M, K), the estimate, and the arms that are left after it.

    `sums_of_phases` has the sums of rewards (K,) of each phase. After the last of them come the pulls of the next
    phase, if more than one arm is left.
    """
    left, found = list(range(len(arms))), []
    for phase in range(1, len(sums_of_phases) + 2):
        if len(left) == 1:
            break
        pi, r = delb_design(arms[left])
        per_arm = constant * 4**phase * r**2 * math.log(num_agents * horizon)
        row = [arm for arm, share in zip(left, pi, strict=True) for _ in range(math.ceil(per_arm * share * (1 - 1e-9)))]
        length = math.ceil(len(row) / num_agents)
        pieces = [row[i * length : (i + 1) * length] for i in range(num_agents)]
        pulls = np.array([[piece.count(arm) for arm in range(len(arms))] for piece in pieces])
        if phase > len(sums_of_phases):
            found.append((pulls, None, list(left)))
            break
        gram = sum(m * np.outer(x, x) for m, x in zip(pulls.sum(axis=0), arms, strict=True))
        theta = np.linalg.pinv(gram) @ sum(s * x for s, x in zip(sums_of_phases[phase - 1], arms, strict=True))
        best = max(arms[a] @ theta for a in left)
        left = [a for a in left if best - arms[a] @ theta <= 2.0 ** (1 - phase)]
        found.append((pulls, theta, list(left)))
    return found
