"""The slow oracle of linear bandits: each system agent by agent and step by step, with dense matrices throughout.

It shares no code with the packages and imports none of them. A problem is three arrays: `psi` (T, M, K, d), what is
shown; `phi` (T, M, K, d), the features that came; and `rewards` (T, M, K), what each arm would pay. A theta for each
arm is the case of one theta of K d numbers, with features that are 0 but for the arm's own d numbers.
"""

import math
from dataclasses import dataclass, field

import numpy as np

Array = np.ndarray
TIE = 1e-9  # numbers that differ by less than TIE times the largest magnitude count as equal; the first arm wins


@dataclass
class Problem:
    psi: Array
    phi: Array
    rewards: Array

    @property
    def shape(self):
        return self.psi.shape  # T, M, K, d


@dataclass
class Played:
    arms: Array  # (T, M)
    uploads: list = field(default_factory=list)  # pairs (t, agent); steps count from 1
    downloads: list = field(default_factory=list)


def for_each_arm(problem: Problem) -> Problem:
    """The same problem with one theta of K d numbers in place of a theta of d numbers for each arm."""

    def spread(features):
        T, M, K, d = features.shape
        out = np.zeros((T, M, K, K * d))
        for arm in range(K):
            out[:, :, arm, arm * d : (arm + 1) * d] = features[:, :, arm]
        return out

    return Problem(spread(problem.psi), spread(problem.phi), problem.rewards)


def log_det(V: Array) -> float:
    return float(np.linalg.slogdet(V)[1])


def oful_width(V: Array, scale: float, delta: float, lam: float, bound: float) -> float:
    d = len(V)
    return scale * math.sqrt(2 * math.log(1 / delta) + log_det(V) - d * math.log(lam)) + math.sqrt(lam) * bound


def best_arm(psi: Array, V: Array, b: Array, width) -> int:
    """The arm of psi (K, d) with the largest upper confidence bound; `width` is a number, or one for each arm."""
    inverse = np.linalg.inv(V)
    theta = inverse @ b
    means = [x @ theta for x in psi]
    bonuses = [w * math.sqrt(x @ inverse @ x) for w, x in zip(np.broadcast_to(width, len(psi)), psi, strict=True)]
    bounds = [m + w for m, w in zip(means, bonuses, strict=True)]
    tolerance = TIE * max(abs(m) + w for m, w in zip(means, bonuses, strict=True))
    return next(arm for arm, bound in enumerate(bounds) if bound >= max(bounds) - tolerance)


def dis_lin_ucb(problem, *, delayed, scale, delta, lam, bound, threshold) -> Played:
    """DisLinUCB on psi; `delayed` regresses on the features that came. An infinite threshold is KK-UCB."""
    T, M, _, d = problem.shape
    W, U = np.zeros((d, d)), np.zeros(d)
    own_W, own_U = [np.zeros((d, d)) for _ in range(M)], [np.zeros(d) for _ in range(M)]
    played, since = Played(np.zeros((T, M), dtype=int)), 0
    for t in range(T):
        since += 1
        asks = False
        for i in range(M):
            V = lam * np.eye(d) + W + own_W[i]
            arm = best_arm(problem.psi[t, i], V, U + own_U[i], oful_width(V, scale, delta, lam, bound))
            played.arms[t, i] = arm
            x = (problem.phi if delayed else problem.psi)[t, i, arm]
            own_W[i] += np.outer(x, x)
            own_U[i] += x * problem.rewards[t, i, arm]
            growth = log_det(lam * np.eye(d) + W + own_W[i]) - log_det(lam * np.eye(d) + W)
            asks |= since * growth > threshold * (1 + TIE)
        if asks:
            W, U = W + sum(own_W), U + sum(own_U)
            own_W, own_U = [np.zeros((d, d)) for _ in range(M)], [np.zeros(d) for _ in range(M)]
            played.uploads += [(t + 1, i) for i in range(M)]
            played.downloads += [(t + 1, i) for i in range(M)]
            since = 0
    return played


def fed_lin_ucb(problem, *, width, lam, alpha) -> Played:
    """FedLinUCB: the index sees the last download only; those who have learnt enough upload, then download."""
    T, M, _, d = problem.shape
    server, server_b = lam * np.eye(d), np.zeros(d)
    V, b = [server.copy() for _ in range(M)], [np.zeros(d) for _ in range(M)]
    new, new_b = [np.zeros((d, d)) for _ in range(M)], [np.zeros(d) for _ in range(M)]
    played = Played(np.zeros((T, M), dtype=int))
    for t in range(T):
        speaking = []
        for i in range(M):
            arm = best_arm(problem.psi[t, i], V[i], b[i], width)
            played.arms[t, i] = arm
            x = problem.psi[t, i, arm]
            new[i] += np.outer(x, x)
            new_b[i] += x * problem.rewards[t, i, arm]
            if log_det(V[i] + new[i]) - log_det(V[i]) > math.log(1 + alpha) * (1 + TIE):
                speaking.append(i)
        for i in speaking:
            server, server_b = server + new[i], server_b + new_b[i]
        for i in speaking:
            V[i], b[i], new[i], new_b[i] = server, server_b, np.zeros((d, d)), np.zeros(d)
        played.uploads += [(t + 1, i) for i in speaking]
        played.downloads += [(t + 1, i) for i in speaking]
    return played


def async_lin_ucb(problem, *, width, lam, up, down, one_by_one=False, in_turn=False) -> Played:
    """Async-LinUCB: uploads and downloads have tests of their own; the server keeps what each agent misses.

    All agents act, those who have learnt enough upload, then the server answers. With `in_turn` all act, then the first
    of those who have learnt enough uploads, the server answers, and so on. With `one_by_one` the server answers after
    each agent's act, as in the paper, where one agent acts at a time.
    """
    T, M, _, d = problem.shape

    def nothing():
        return [np.zeros((d, d)) for _ in range(M)], [np.zeros(d) for _ in range(M)]

    (V, b), (new, new_b), (missing, missing_b) = nothing(), nothing(), nothing()
    total, ridge = np.zeros((d, d)), lam * np.eye(d)
    played = Played(np.zeros((T, M), dtype=int))

    def has_learnt(i):
        return log_det(V[i] + ridge) - log_det(V[i] - new[i] + ridge) > math.log(up) * (1 + TIE)

    def exchange(speaking, t, total):
        for i in speaking:
            total = total + new[i]
            for j in range(M):
                if j != i:
                    missing[j], missing_b[j] = missing[j] + new[i], missing_b[j] + new_b[i]
            new[i], new_b[i] = np.zeros((d, d)), np.zeros(d)
            played.uploads.append((t + 1, i))
        for j in range(M):
            if log_det(total + ridge) - log_det(total - missing[j] + ridge) > math.log(down) * (1 + TIE):
                V[j], b[j] = V[j] + missing[j], b[j] + missing_b[j]
                missing[j], missing_b[j] = np.zeros((d, d)), np.zeros(d)
                played.downloads.append((t + 1, j))
        return total

    turns = [[i] for i in range(M)] if one_by_one else [list(range(M))]
    for t, acting in ((t, acting) for t in range(T) for acting in turns):
        for i in acting:
            arm = best_arm(problem.psi[t, i], V[i] + ridge, b[i], width)
            played.arms[t, i] = arm
            x = problem.psi[t, i, arm]
            for matrices, vectors in ((V, b), (new, new_b)):
                matrices[i] = matrices[i] + np.outer(x, x)
                vectors[i] = vectors[i] + x * problem.rewards[t, i, arm]
        while speaking := [i for i in acting if has_learnt(i)]:
            total = exchange(speaking[:1] if in_turn else speaking, t, total)
            if not in_turn:
                break
    return played


def private_fed_lin_ucb(problem, noise, *, every, shift, scale, alpha, bound, blocks=1) -> Played:
    """Private-FedLinUCB: each agent's share of a release is a sum over dyadic blocks of batches, each noisy once.

    With a theta for each arm there are K `blocks` of d numbers each: every one has a width of its own, all the same.
    """
    T, M, _, d = problem.shape
    dim, alpha = d // blocks, alpha / blocks
    batches = [[] for _ in range(M)]  # pairs of a Gram matrix and moments, one for each release
    new = [[np.zeros((d, d)), np.zeros(d)] for _ in range(M)]
    W, U = np.zeros((d, d)), np.zeros(d)
    played = Played(np.zeros((T, M), dtype=int))
    for t in range(T):
        growth = dim * math.log(1 + t * M / (dim * shift))
        width = math.sqrt(shift) * bound + scale * math.sqrt(growth + math.log(1 / alpha))
        for i in range(M):
            V = shift * np.eye(d) + W + new[i][0]
            arm = best_arm(problem.psi[t, i], V, U + new[i][1], width)
            played.arms[t, i] = arm
            x = problem.psi[t, i, arm]
            new[i] = [new[i][0] + np.outer(x, x), new[i][1] + x * problem.rewards[t, i, arm]]
        if (t + 1) % every:
            continue
        W, U = np.zeros((d, d)), np.zeros(d)
        for i in range(M):
            batches[i].append(new[i])
            new[i] = [np.zeros((d, d)), np.zeros(d)]
            end = 0
            for size in dyadic_sizes(len(batches[i])):
                end += size  # the node of release `end` holds the batches end - size + 1, ..., end
                W = W + sum(gram for gram, _ in batches[i][end - size : end]) + noise[0][end - 1, i]
                U = U + sum(moments for _, moments in batches[i][end - size : end]) + noise[1][end - 1, i]
        played.uploads += [(t + 1, i) for i in range(M)]
    return played


def dyadic_sizes(number: int) -> list[int]:
    """The powers of 2 that add up to a number, the largest first."""
    return [1 << bit for bit in reversed(range(number.bit_length())) if number >> bit & 1]


def fed_ucb(problem, noise, *, rmin, rmax, kappa, scale, alpha, bound, factor, threshold, blocks=1) -> Played:
    """FedUCB: noisy sums of all data, with a shift, whenever somebody has learnt enough; `factor` scales the width.

    With a theta for each arm there are K `blocks` of d numbers each, and every arm has the width of its own block.
    """
    T, M, _, d = problem.shape
    dim = d // blocks
    batches = [[] for _ in range(M)]
    new = [[np.zeros((d, d)), np.zeros(d)] for _ in range(M)]
    S, s = M * rmin * np.eye(d), np.zeros(d)
    played, since = Played(np.zeros((T, M), dtype=int)), 0
    for t in range(T):
        since += 1
        asks = False
        for i in range(M):
            V, widths = S + new[i][0], []
            for own in (slice(block * dim, (block + 1) * dim) for block in range(blocks)):
                grown = log_det(V[own, own]) - dim * math.log(M * rmin)
                spread = math.sqrt(2 * math.log(2 * blocks / alpha) + grown)
                widths.append(factor * (scale * spread + bound * math.sqrt(M * rmax) + math.sqrt(M) * kappa))
            arm = best_arm(problem.psi[t, i], V, s + new[i][1], widths[0] if blocks == 1 else widths)
            played.arms[t, i] = arm
            x = problem.psi[t, i, arm]
            new[i] = [new[i][0] + np.outer(x, x), new[i][1] + x * problem.rewards[t, i, arm]]
            growth = log_det(S + new[i][0] + M * (rmax - rmin) * np.eye(d)) - log_det(S)
            asks |= since * growth > threshold * (1 + TIE)
        if not asks:
            continue
        since, S, s = 0, np.zeros((d, d)), np.zeros(d)
        for i in range(M):
            batches[i].append(new[i])
            new[i] = [np.zeros((d, d)), np.zeros(d)]
            S = S + sum(gram for gram, _ in batches[i]) + (rmin + rmax) / 2 * np.eye(d)
            s = s + sum(moments for _, moments in batches[i])
            end = 0
            for size in dyadic_sizes(len(batches[i])):
                end += size
                S, s = S + noise[0][end - 1, i], s + noise[1][end - 1, i]
        played.uploads += [(t + 1, i) for i in range(M)]
    return played
