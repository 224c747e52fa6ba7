"""Gossip-UCB whose agents keep their rewards private: Private-Gossip-UCB (Zhu and others' Fed_UCB)."""

import math
from dataclasses import dataclass

import numpy as np

from fedbandit_agents.privacy import laplace_noise, noisy_node, running_sum, tree_levels
from fedbandit_baselines.gossip_ucb import GossipUCB, GossipUCBAgents
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray, row_groups
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.validation import checked, real_number


def _budget(name: str, value: float) -> None:
    """Refuse what is neither positive nor infinite."""
    if value != math.inf:
        real_number(name, value, above=0)


@dataclass(frozen=True)
class PrivateGossipUCB(GossipUCB):
    """Gossip-UCB with noise, so that what an agent sends says little about any one of its rewards.

    Use it to see what privacy costs. Its constants are larger still than those of Gossip-UCB: it needs about 10^6
    steps, or a small `scale`. Rewards are clipped to [low, high], without which there is no privacy.
    All that an agent sends is epsilon-differentially private. The paper's bound on regret is for its own version, so
    regret comes with no promise here.
    Reference: Zhu, Zhu, Liu and Liu, Federated bandit: a gossiping approach, 2021 (Fed_UCB). Three details differ here,
    so that it is private from the first reward on.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/MultiArmed-v0", num_agents=5, num_arms=4, max_cycles=100)
    >>> history = fb.play(env, fb.make_policy("Private-Gossip-UCB", epsilon=2.0), seed=0, network="ring")
    >>> history.ledger.scalars_peer  # K (2 |E| + 2) in all steps but the start and the last
    4560
    """

    epsilon: float = checked(1.0, _budget)  #: the privacy budget of one reward; infinity: no noise
    low: float = checked(0.0, real_number)  #: rewards below count as this
    high: float = checked(1.0, real_number)  #: rewards above count as this

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise ValueError(f"high: expected a number above low = {self.low:g}, got {self.high:g}")

    @property
    def privacy(self) -> tuple[float, float] | None:
        """The budget (epsilon, 0) of what an agent sends, for one of its rewards; None without noise."""
        return None if self.epsilon == math.inf else (self.epsilon, 0.0)

    def agents(self, view: View) -> "PrivateGossipUCBAgents":
        """Agents that gossip over one edge at a time, with noise."""
        return PrivateGossipUCBAgents(self, view)


class PrivateGossipUCBAgents(GossipUCBAgents):
    """Agents of Private-Gossip-UCB.

    The newest node of each level is kept exact and noisy, and with the arms that were pulled in it.
    """

    policy: PrivateGossipUCB

    def __init__(self, policy: PrivateGossipUCB, view: View):
        super().__init__(policy, view)
        constants, shape = view.constants, view.psi.shape[:2]
        levels = tree_levels(max(constants.horizon - constants.num_arms + 1, 1))
        self.noise_scale = levels * (policy.high - policy.low) / policy.epsilon
        self.exact: FloatArray = np.zeros((levels, *shape))
        self.noisy: FloatArray = np.zeros((levels, *shape))
        self.counted: BoolArray = np.zeros((levels, *shape), dtype=np.bool_)
        self.samples: FloatArray = np.zeros(shape)  # X, from noisy sums

    def sample_means(self) -> FloatArray:
        """X (n, K), the means of the agent's own rewards with their noise; an arm keeps it until it is pulled."""
        return self.samples

    def take_in(self, pulls: IntArray, sums: FloatArray) -> None:
        """Close the block of this step: its sum is noisy for the arms that were pulled in it, and 0 for others."""
        release = self.steps - self.view.constants.num_arms + 1
        self.pulls += pulls
        clipped = np.clip(sums, self.policy.low * pulls, self.policy.high * pulls)
        seen = noisy_node(self.counted, release, pulls > 0, np.zeros(pulls.shape, dtype=np.bool_))
        draws = self.view.randomness.draws(self.view.constants.horizon + release)  # the choices take smaller numbers
        noise = np.where(seen, laplace_noise(draws, self.noise_scale, pulls.shape[1]), 0.0)
        node = noisy_node(self.exact, release, clipped, noise)
        groups = row_groups(len(node))
        total = np.concatenate([running_sum(self.noisy[:, rows], release, node[rows]) for rows in groups])
        self.samples = np.where(pulls > 0, total / np.maximum(self.pulls, 1), self.samples)

    def radii(self, t: int) -> FloatArray:
        """(n, K) what is added to the estimates at the t-th step after the start; the rewards' range is 1 there."""
        constants, policy, log = self.view.constants, self.policy, math.log(t)
        n = np.maximum(self.pulls, 1)
        private = 128 * constants.num_agents * math.log(constants.horizon) ** 2 * log / policy.epsilon**2
        square = 2 * constants.num_agents * log * (private * np.log1p(n) / n**2 + 1 / n)
        return (policy.high - policy.low) * policy.scale * np.sqrt(square)
