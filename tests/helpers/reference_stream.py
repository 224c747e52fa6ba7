"""The slow oracle of Fed-CI on streams: agent by agent, with lists of what was seen and dense matrices.

It shares no code with the packages and imports none of them. It adds up reports plainly, as the server does where there
are fewer than two reports for each coefficient.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from reference_linear import TIE, Played, log_det

SWEEPS, WORTH_OF_SIGMA = 8, 5.0


def scale(sums, noise):
    """s^2 by empirical Bayes, from pairs (gram, moments) of the estimates about which something is known."""
    d = len(sums[0][1])
    s2 = max(d * (m @ m / np.trace(G) + noise) / np.trace(G) for G, m in sums)
    for _ in range(SWEEPS):
        found = []
        for G, m in sums:
            inverse = np.linalg.inv(G + noise / s2 * np.eye(d))
            theta = inverse @ m
            found.append((theta @ theta + noise * np.trace(inverse)) / d)
        s2 = max(found)
    return s2


@dataclass
class Agent:
    """One agent: its own sums for each estimate, the sums it started from last, and what came since."""

    blocks: int
    d: int
    sigma: float
    s2: float = 0.0
    residuals: list = field(default_factory=lambda: [0.0, 0.0])
    own: dict = field(default_factory=dict)  # block: [gram, moments]
    start: dict = field(default_factory=dict)
    V: dict = field(default_factory=dict)  # block: V, b
    fresh: set = field(default_factory=set)  # the blocks that changed since the last report

    def begin(self, sums):
        ratio = self.sigma**2 / self.s2
        nothing = [np.zeros((self.d, self.d)), np.zeros(self.d)]
        self.V = {}
        for block in range(self.blocks):
            G, m = sums.get(block, nothing)
            self.V[block] = [G + ratio * np.eye(self.d), m.copy()]
        self.start = {block: V.copy() for block, (V, _) in self.V.items()}

    def grown(self):
        return sum(log_det(self.V[block][0]) - log_det(self.start[block]) for block in range(self.blocks))

    def judge_alone(self):
        squares, freedom = self.residuals
        assumed = self.assumed**2
        self.sigma = math.sqrt(max((squares + WORTH_OF_SIGMA * assumed) / (freedom + WORTH_OF_SIGMA), 0))
        self.s2 = scale(list(self.own.values()), self.sigma**2)
        self.begin(self.own)

    def __post_init__(self):
        self.assumed = self.sigma


def fed_ci_stream(psi, spreads, rewards, *, sigma, shared, alone=False, features=None) -> Played:
    """`spreads` (T, M, K, d) are the standard deviations of the features; `features` (T, M, K, d) what was revealed."""
    T, M, K, d = psi.shape
    blocks = 1 if shared else K
    size = 1 if alone else M
    first = min(blocks, math.ceil(d * blocks / size))
    threshold = T * math.log(M * T) / (blocks * d * M)
    agents = [Agent(blocks, d, sigma) for _ in range(M)]
    reported = [{} for _ in range(M)]
    reported_residuals = [[0.0, 0.0] for _ in range(M)]
    played = Played(np.zeros((T, M), dtype=int))
    played.margins, played.numbers = [], 0
    common = None  # theta and V of each block at the last synchronisation
    since = 0
    for t in range(T):
        since += 1
        for i, agent in enumerate(agents):
            arm = (first * i + t) % K
            if t >= first:
                arm = best(agent, psi[t, i], shared, math.sqrt(math.log(1 + t)), played.margins)
            played.arms[t, i] = arm
            learn(agent, t, first, arm, psi[t, i], spreads[t, i], rewards[t, i], shared, common, features, i)
            if t + 1 == first or (common is None and t + 1 > first and math.log2(t + 1).is_integer()):
                agent.judge_alone()
        asks = False
        if not alone and t + 1 < T:
            asks = t + 1 >= first if common is None else False
            if common is not None:
                worth = min(since, T - t - 1)
                asks = any(worth * agent.grown() > threshold * (1 + TIE) for agent in agents)
        if asks:
            heard = set().union(*(agent.fresh for agent in agents))
            for i, agent in enumerate(agents):
                for block in agent.fresh:
                    reported[i][block] = [part.copy() for part in agent.own[block]]
                reported_residuals[i] = list(agent.residuals)
                played.numbers += len(agent.fresh) * (d * (d + 1) // 2 + d) + 2
                played.numbers += len(heard) * (d * (d + 1) // 2 + d) + 1
                agent.fresh = set()
            common = synchronise(agents, reported, reported_residuals)
            since = 0
            played.uploads += [(t + 1, i) for i in range(M)]
    return played


def best(agent, shown, shared, width, margins):
    means, bonuses = [], []
    for a, x in enumerate(shown):
        V, b = agent.V[0 if shared else a]
        inverse = np.linalg.inv(V)
        means.append(x @ inverse @ b)
        bonuses.append(width * agent.sigma * math.sqrt(x @ inverse @ x))
    bounds = np.add(means, bonuses)
    if len(bounds) > 1:
        margins.append(np.sort(bounds)[-1] - np.sort(bounds)[-2])
    return int(np.argmax(bounds))


def learn(agent, t, first, arm, shown, spreads, rewards, shared, common, features, i):
    block, y, d = 0 if shared else arm, rewards[arm], agent.d
    if features is not None:
        x, tau2 = features[t, i, arm], 0.0
    else:
        x, Sigma = shown[arm], np.diag(spreads[arm] ** 2)
        if common is None:
            tau2 = np.trace(Sigma)  # in units of s^2
        else:
            theta, V = common[block]
            tau2 = theta @ Sigma @ theta + np.trace(V @ Sigma)
    if t < first:
        agent.s2 = max(agent.s2, max(y**2, (0.1 * agent.sigma) ** 2) / (x @ x + tau2))
    if common is None:
        tau2 = tau2 * agent.s2
    weight = agent.assumed**2 / (agent.assumed**2 + tau2)
    if t >= first:
        V, b = agent.V[block]
        inverse = np.linalg.inv(V)
        unknown = x @ inverse @ x  # in units of the variance of a reward of weight 1, which itself has 1 / weight
        share = (1 / weight) / (1 / weight + unknown)
        agent.residuals[0] += share * (y - x @ inverse @ b) ** 2 / (1 / weight + unknown)
        agent.residuals[1] += share
        agent.V[block] = [V + weight * np.outer(x, x), b + weight * y * x]
    G, m = agent.own.get(block, [np.zeros((d, d)), np.zeros(d)])
    agent.own[block] = [G + weight * np.outer(x, x), m + weight * y * x]
    agent.fresh.add(block)


def synchronise(agents, reported, residuals):
    """All go on from the sums of all reports; gives theta and V of each estimate."""
    sums = {}
    for report in reported:
        for block, (G, m) in report.items():
            old = sums.get(block, [0.0, 0.0])
            sums[block] = [old[0] + G, old[1] + m]
    assumed = agents[0].assumed ** 2
    squares, freedom = np.sum(residuals, axis=0)
    sigma = math.sqrt(max((squares + WORTH_OF_SIGMA * assumed) / (freedom + WORTH_OF_SIGMA), 0))
    s2 = scale(list(sums.values()), sigma**2)
    for agent in agents:
        agent.sigma, agent.s2 = sigma, s2
        agent.begin(sums)
    common = {}
    for block, (V, b) in agents[0].V.items():
        inverse = np.linalg.inv(V)
        common[block] = (inverse @ b, sigma**2 * inverse)
    return common
