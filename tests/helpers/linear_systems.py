"""The linear systems as the engine of `fedbandit_agents.linear` plays them, all agents at once, without an environment.

They take the problems of `reference_linear` and give what its oracle gives.
"""

import numpy as np
from reference_linear import Played

from fedbandit_agents.linear.ridge import Ridge, choose, for_agents, from_sums, learn, start
from fedbandit_agents.linear.triggers import has_learnt, out_of_date, wants_to_synchronise
from fedbandit_agents.linear.widths import ellipsoid_width, private_fed_lin_ucb_width
from fedbandit_agents.privacy import noisy_node, running_sum


def blocks_of(arm, blocks):
    return arm if blocks > 1 else np.zeros_like(arm)


def add(gram, moments, block, x, y):
    rows = np.arange(len(x))
    gram[rows, block] += x[:, :, None] * x[:, None, :]
    moments[rows, block] += x * y[:, None]


def dis_lin_ucb(problem, *, delayed, scale, delta, lam, bound, threshold, blocks=1, stacked=False):
    T, M, _, d = problem.shape
    rows, ones, since = np.arange(M), np.ones(M), 0
    ridge, growth = start(M, blocks, d, lam), np.zeros(M)
    sums = np.zeros((1, blocks, d, d)), np.zeros((1, blocks, d))
    new = np.zeros((M, blocks, d, d)), np.zeros((M, blocks, d))
    played = Played(np.zeros((T, M), dtype=int))
    for t in range(T):
        width = ellipsoid_width(
            ridge.growth, scale=scale, delta=delta, regularisation=lam, theta_bound=bound, stacked=stacked
        )
        arm = played.arms[t] = choose(ridge, problem.psi[t], width)
        x = (problem.phi if delayed else problem.psi)[t][rows, arm]
        y, block = problem.rewards[t][rows, arm], blocks_of(arm, blocks)
        growth += learn(ridge, block, x, ones, y)
        add(*new, block, x, y)
        since += 1
        if wants_to_synchronise(growth, since, threshold).any():
            sums = tuple(old + part.sum(axis=0) for old, part in zip(sums, new, strict=True))
            ridge = for_agents(from_sums(*sums, lam), M)
            growth[:], since = 0, 0
            for part in new:
                part[:] = 0
            played.uploads += [(t + 1, i) for i in range(M)]
            played.downloads += [(t + 1, i) for i in range(M)]
    return played


def fed_lin_ucb(problem, *, width, lam, alpha, blocks=1):
    T, M, _, d = problem.shape
    rows, ones = np.arange(M), np.ones(M)
    seen, index = start(M, blocks, d, lam), start(M, blocks, d, lam)  # with and without what is new
    growth = np.zeros(M)
    sums = np.zeros((1, blocks, d, d)), np.zeros((1, blocks, d))
    new = np.zeros((M, blocks, d, d)), np.zeros((M, blocks, d))
    played = Played(np.zeros((T, M), dtype=int))
    for t in range(T):
        arm = played.arms[t] = choose(index, problem.psi[t], width)
        x, y, block = problem.psi[t][rows, arm], problem.rewards[t][rows, arm], blocks_of(arm, blocks)
        growth += learn(seen, block, x, ones, y)
        add(*new, block, x, y)
        speaking = np.flatnonzero(has_learnt(growth, 1 + alpha))
        if len(speaking):
            sums = tuple(old + part[speaking].sum(axis=0) for old, part in zip(sums, new, strict=True))
            for known in (seen, index):
                for array, common in zip(known, from_sums(*sums, lam), strict=True):
                    array[speaking] = common
            growth[speaking] = new[0][speaking] = new[1][speaking] = 0
            played.uploads += [(t + 1, int(i)) for i in speaking]
            played.downloads += [(t + 1, int(i)) for i in speaking]
    return played


def async_lin_ucb(problem, *, width, lam, up, down, blocks=1):
    T, M, _, d = problem.shape
    rows, ones = np.arange(M), np.ones(M)
    ridge, growth = start(M, blocks, d, lam), np.zeros(M)

    def nothing():
        return np.zeros((M, blocks, d, d)), np.zeros((M, blocks, d))

    known, new, missing = nothing(), nothing(), nothing()
    total = np.zeros((blocks, d, d))
    played = Played(np.zeros((T, M), dtype=int))
    for t in range(T):
        arm = played.arms[t] = choose(ridge, problem.psi[t], width)
        x, y, block = problem.psi[t][rows, arm], problem.rewards[t][rows, arm], blocks_of(arm, blocks)
        growth += learn(ridge, block, x, ones, y)
        add(*known, block, x, y)
        add(*new, block, x, y)
        speaking = np.flatnonzero(has_learnt(growth, up))
        if not len(speaking):
            continue
        total = total + new[0][speaking].sum(axis=0)
        for buffer, part in zip(missing, new, strict=True):
            buffer += part[speaking].sum(axis=0)
            buffer[speaking] -= part[speaking]
            part[speaking] = 0
        hearing = np.flatnonzero(out_of_date(total, missing[0], lam, down))
        for array, buffer in zip(known, missing, strict=True):
            array[hearing] += buffer[hearing]
            buffer[hearing] = 0
        whole, old = from_sums(*known, lam), from_sums(known[0] - new[0], known[1], lam)
        changed = np.union1d(speaking, hearing)
        ridge = Ridge(*(np.where(_mask(changed, M, a), b, a) for a, b in zip(ridge, whole, strict=True)))
        growth[changed] = (whole.growth - old.growth).sum(axis=1)[changed]
        played.uploads += [(t + 1, int(i)) for i in speaking]
        played.downloads += [(t + 1, int(j)) for j in hearing]
    return played


def private_fed_lin_ucb(problem, noise, *, every, shift, scale, alpha, bound):
    """Private-FedLinUCB with one theta; `noise` is that of Gram matrices (k, M, d, d) and of moments (k, M, d)."""
    T, M, _, d = problem.shape
    rows, ones, levels = np.arange(M), np.ones(M), (T // every).bit_length()
    ridge, release = start(M, 1, d, shift), 0
    new = np.zeros((M, 1, d, d)), np.zeros((M, 1, d))
    held = np.zeros((levels, M, 1, d, d)), np.zeros((levels, M, 1, d))  # by agents
    nodes = np.zeros((levels, 1, 1, d, d)), np.zeros((levels, 1, 1, d))  # by the server, summed over agents
    played = Played(np.zeros((T, M), dtype=int))
    for t in range(T):
        settings = {"num_agents": M, "dim": d, "scale": scale, "alpha": alpha, "theta_bound": bound}
        width = private_fed_lin_ucb_width(t, shift=shift, feature_bound=1.0, **settings)
        arm = played.arms[t] = choose(ridge, problem.psi[t], width)
        x, y, block = problem.psi[t][rows, arm], problem.rewards[t][rows, arm], np.zeros(M, dtype=int)
        learn(ridge, block, x, ones, y)
        add(*new, block, x, y)
        if (t + 1) % every == 0:
            release += 1
            sums = []
            for sides, received, batch, fresh in zip(held, nodes, new, noise, strict=True):
                sent = noisy_node(sides, release, batch, fresh[release - 1][:, None])
                sums.append(running_sum(received, release, sent.sum(axis=0, keepdims=True)))
                batch[:] = 0
            ridge = for_agents(from_sums(*sums, shift), M)
            played.uploads += [(t + 1, i) for i in range(M)]
    return played


def _mask(rows, n, like):
    mask = np.zeros(n, dtype=bool)
    mask[rows] = True
    return mask.reshape(n, *[1] * (like.ndim - 1))


def cut_into_rows(problem, rows):
    """The same problem for some of its agents."""
    return type(problem)(problem.psi[:, rows], problem.phi[:, rows], problem.rewards[:, rows])


def steps_of(pairs):
    """The steps at which anybody spoke, in order."""
    return sorted({t for t, _ in pairs})
