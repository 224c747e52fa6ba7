"""Private-FedLinUCB as the engine of `fedbandit_agents.linear` plays it, all agents at once, without an environment.

It takes the problems of `reference_linear` and gives what its oracle gives.
"""

import numpy as np
from reference_linear import Played

from fedbandit_agents.linear.ridge import choose, for_agents, from_sums, learn, start
from fedbandit_agents.linear.widths import private_fed_lin_ucb_width
from fedbandit_agents.privacy import noisy_node, running_sum


def add(gram, moments, block, x, y):
    rows = np.arange(len(x))
    gram[rows, block] += x[:, :, None] * x[:, None, :]
    moments[rows, block] += x * y[:, None]


def private_fed_lin_ucb(problem, noise, *, every, shift, scale, alpha, bound):
    """Private-FedLinUCB with one theta; `noise` is that of Gram matrices (k, M, d, d) and of moments (k, M, d)."""
    T, M, _, d = problem.shape
    rows, ones, levels = np.arange(M), np.ones(M), (T // every).bit_length()
    ridge, release = start(M, 1, d, shift), 0
    new = np.zeros((M, 1, d, d)), np.zeros((M, 1, d))
    held = np.zeros((levels, M, 1, d, d)), np.zeros((levels, M, 1, d))  # what agents hold
    nodes = np.zeros((levels, 1, 1, d, d)), np.zeros((levels, 1, 1, d))  # what the server holds, summed over agents
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
