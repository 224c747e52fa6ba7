"""Policies that talk to peers, agent by agent and edge by edge, as their papers write them: slow, and easy to check."""

import math

import numpy as np

import fedbandit_envs as fb
from fedbandit_baselines.dd_ucb import DDUCB, DDUCBAgents

TIE = 1e-9
NETWORKS = ["ring", "star", "path", "erdos-renyi:0.4", "complete"]
MEANS = [0.9, 0.6, 0.3, 0.5]
FAULTS = [None, fb.Faults(edge_dropout=0.3, dropout=0.1)]


def first_best(values):
    """The first of the largest values, those that differ by rounding counted as equal."""
    most = max(abs(value) for value in values)
    return next(place for place, value in enumerate(values) if value >= max(values) - TIE * most)


def averaged(rows, network):
    """P rows with P = I - Laplacian / (d_max + 1), from the list of edges."""
    mixed = [row.copy() for row in rows]
    for one, other in network.edges:
        flow = (rows[other] - rows[one]) / (network.largest_degree + 1)
        mixed[one] = mixed[one] + flow
        mixed[other] = mixed[other] - flow
    return mixed


class CoopOracle:
    """coop-UCB2 (ZOO_MAB section 5)."""

    def __init__(self, network, num_arms, sigma, gamma):
        self.network, self.num_arms, self.sigma, self.gamma = network, num_arms, sigma, gamma

    def begin(self, rewards):
        self.n = [np.ones(self.num_arms) for _ in rewards]
        self.s = averaged([np.array(row, dtype=float) for row in rewards], self.network)

    def choose(self, t):
        found, agents = [], self.network.num_agents
        for n, s in zip(self.n, self.s, strict=True):
            index = []
            for arm in range(self.num_arms):
                share = (n[arm] + math.sqrt(math.log(t))) / (agents * n[arm])
                index.append(s[arm] / n[arm] + self.sigma * math.sqrt(2 * self.gamma * share * math.log(t) / n[arm]))
            found.append(first_best(index))
        return found

    def learn(self, arms, rewards):
        for agent, (arm, reward) in enumerate(zip(arms, rewards, strict=True)):
            self.n[agent][arm] += 1
            self.s[agent][arm] += reward
        self.n, self.s = averaged(self.n, self.network), averaged(self.s, self.network)


class DDUCBOracle:
    """DDUCB (ZOO_MAB section 6), with the weights w of the Chebyshev polynomials themselves."""

    def __init__(self, network, num_arms, sigma, eta, epsilon=1 / 22):
        self.network, self.num_arms, self.sigma, self.eta = network, num_arms, sigma, eta
        self.agents, self.second = network.num_agents, network.second_eigenvalue
        self.stage = 1
        if self.second:
            rate = math.sqrt(2 * math.log(1 / self.second))
            self.stage = math.ceil(math.log(2 * self.agents / epsilon) / rate)

    def begin(self, rewards):
        self.beta = [np.array([row, np.ones(self.num_arms)]) for row in np.array(rewards, dtype=float)]
        self.alpha = [beta / self.agents for beta in self.beta]
        self.gamma = [np.zeros((2, self.num_arms)) for _ in rewards]
        self.delta = [np.zeros((2, self.num_arms)) for _ in rewards]
        self.last, self.r, self.s, self.w = self.beta, 0, self.num_arms, [1.0]
        self.t = self.num_arms

    def choose(self, t):
        found = []
        for alpha in self.alpha:
            pulls = np.maximum(alpha[1], 1e-9)
            bonus = np.sqrt(2 * self.eta * self.sigma**2 * math.log(self.s) / (self.agents * pulls))
            found.append(first_best(list(alpha[0] / pulls + bonus)))
        return found

    def learn(self, arms, rewards):
        self.t, self.s = self.t + 1, self.s + 1
        for agent, (arm, reward) in enumerate(zip(arms, rewards, strict=True)):
            self.gamma[agent][:, arm] += (reward, 1)
            self.alpha[agent][:, arm] += (reward / self.agents, 1 / self.agents)
        mixed = averaged(self.beta, self.network)
        if self.r == 0:
            after = mixed
            self.w = [1.0, 1 / self.second] if self.second else [1.0]
        else:
            self.w.append(2 * self.w[-1] / self.second - self.w[-2])
            ahead, back = 2 * self.w[-2] / (self.second * self.w[-1]), self.w[-3] / self.w[-1]
            after = [ahead * new - back * old for new, old in zip(mixed, self.last, strict=True)]
        self.last, self.beta, self.r = self.beta, after, self.r + 1
        if self.r == self.stage:
            self.delta = [delta + beta for delta, beta in zip(self.delta, self.beta, strict=True)]
            self.alpha = [delta.copy() for delta in self.delta]
            self.beta, self.gamma = self.gamma, [np.zeros((2, self.num_arms)) for _ in self.gamma]
            self.r, self.s = 0, (self.t - self.stage) * self.agents


def common_arms(means, num_agents, horizon, noise_std=1.0):
    """A problem in which all agents have the same plain arms."""
    return fb.make(
        "fedbandit/Linear-v0",
        theta=np.array(means)[:, None],
        features=np.ones((num_agents, len(means), 1)),
        noise_std=noise_std,
        max_cycles=horizon,
    )


def decisions(history):
    """The arms (T - K, M) of a recorded run after its start, the rewards of the start, and those of the steps."""
    first, *rest = history.exchanges
    arms = [exchange.feedback.arm for exchange in rest]
    return arms, first.feedback.sums(), [exchange.feedback.played_sums for exchange in rest]


def rounds_of(policy, network, faults=None, agents=7, horizon=150, **how):
    """Rounds of a policy on the common arms `MEANS`, at their start."""
    rounds = fb.CommunicationRounds(common_arms(MEANS, agents, horizon), policy, network=network, faults=faults, **how)
    rounds.start(seed=4)
    return rounds


def every_step(rounds):
    """The agents after each step but the last, once they have heard their neighbours, and the steps taken."""
    (side,) = rounds.sides
    while True:
        rounds.advance()
        if rounds.done:
            return
        if side.spoke:  # hear now what the next plan would hear first
            side.hear(rounds._pending)
            side.spoke = False
        yield side, rounds.taken


class LateDDUCB(DDUCB):
    """DDUCB whose agents don't use their own fresh samples before they are mixed."""

    def agents(self, view):
        return LateDDUCBAgents(self, view)


class LateDDUCBAgents(DDUCBAgents):
    def learn(self, pulls, sums):
        known, size = self.known.copy(), self.size
        message = super().learn(pulls, sums)
        self.known, self.size = known, size
        return message
