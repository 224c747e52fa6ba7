"""FedUCB after Dubey and Pentland, as it is cited: with its flaws, which `Private-FedLinUCB` repairs."""

import math
from dataclasses import dataclass, replace

import numpy as np

from fedbandit_agents.linear.noise import FedUCBNoise
from fedbandit_agents.linear.ridge import for_agents, from_sums
from fedbandit_agents.linear.triggers import fed_ucb_growth, fed_ucb_threshold, wants_to_synchronise
from fedbandit_agents.linear.widths import private_width
from fedbandit_agents.phased.plausibility import too_large
from fedbandit_agents.privacy import new_level, report_noise
from fedbandit_baselines.linear.agents import blocks_of
from fedbandit_baselines.linear.private import PrivateAgents, PrivatePolicy, largest_node, with_level
from fedbandit_baselines.linear.sharing import SharingTogether, check_new
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import ServerSide
from fedbandit_envs.validation import checked, optional, real_number


@dataclass(frozen=True)
class FedUCB(PrivatePolicy):
    """The first private federated linear bandit, as it is cited; its claim of privacy fails. Prefer Private-FedLinUCB.

    It is here because it is cited. The times of its messages depend on raw data, so there is no guarantee of privacy,
    which is why `history.privacy` is None. With the noise of the paper nothing is learnt at practical horizons;
    `noise_scale` and `width_scale` shrink noise and width to look at the rest of the algorithm.
    Nothing is promised here: Zhou and Chowdhury (2024) found flaws in its analysis of privacy, regret and
    communication.
    Reference: after Dubey and Pentland, Differentially-Private Federated Linear Bandits, NeurIPS 2020. The steps, the
    noise and the trigger are recalled, with ln(4 / delta) from Shariff and Sheffet (2018); the width is derived.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, context="streaming")
    >>> history = fb.play(env, fb.make_policy("FedUCB", noise_scale=1e-4, width_scale=0.1), seed=0)
    >>> history.ledger.rounds % 2, history.privacy
    (0, None)
    """

    #: D, how much an agent must have learnt before all synchronise; None takes 2 T d / (1 + ln(3 + T L^2 / (d rmin)))
    threshold: float | None = checked(None, optional(real_number), at_least=0)
    noise_scale: float = checked(1.0, real_number, at_least=0)  #: a factor of the noise; 1 is that of the paper
    width_scale: float = checked(1.0, real_number, above=0)  #: a factor of the width; 1 is what theory asks for

    def noise(self, constants: Constants) -> FedUCBNoise:
        """The noise of a node and what it does to the matrices. Without noise, V starts from the unit matrix."""
        epsilon = self.epsilon / self.noise_scale if self.noise_scale else math.inf
        levels = 1 + math.ceil(math.log2(constants.horizon))
        if epsilon == math.inf:
            return FedUCBNoise(levels, 0.0, 1 / constants.num_agents, 1 / constants.num_agents, 0.0)
        return FedUCBNoise.of(
            replace(self.budget, epsilon=epsilon),
            horizon=constants.horizon,
            dim=constants.dim,
            alpha=self.delta / blocks_of(constants),
            feature_bound=self.longest_feature(constants),
            reward_bound=self.reward_bound,
        )

    def agents(self, view: View) -> "FedUCBAgents":
        """Agents that report noisy sums of psi psi^T and psi y."""
        return FedUCBAgents(self, view)

    def server(self, view: ServerView) -> "LatestServer":
        """A server that adds up what each agent has sent last."""
        noise = self.noise(view.constants)
        std = math.sqrt(2 * noise.levels) * noise.std  # the sum of one node of each level has it
        most = largest_node(self, view.constants, std, noise.rmin + noise.rmax)
        return LatestServer(view.constants.num_agents, most["gram"], most["moments"])


class FedUCBAgents(PrivateAgents, SharingTogether):
    """Agents of FedUCB. Each keeps the noisy nodes of its tree, and reports their sum with a shift."""

    def __init__(self, policy: FedUCB, view: View):
        constants, noise = view.constants, policy.noise(view.constants)
        least = constants.num_agents * noise.rmin  # V starts from M rmin I
        super().__init__(policy, view, policy.settings(view, regularisation=least), noise.levels)
        self.std, self.rmin, self.rmax, self.kappa = noise.std, noise.rmin, noise.rmax, noise.kappa
        self.width_scale = policy.width_scale
        dim = self.moments.shape[2]
        self.threshold = policy.threshold
        if self.threshold is None:
            size = self.blocks * dim
            self.threshold = fed_ucb_threshold(constants.horizon, size, noise.rmin, noise.rmax, self.feature_bound)
        self.noisy_gram: FloatArray = np.zeros_like(self.exact_gram)  # the newest noisy node of each level
        self.noisy_moments: FloatArray = np.zeros_like(self.exact_moments)
        self.known: FloatArray = np.broadcast_to(least * np.eye(dim), (self.blocks, dim, dim)).copy()  # S

    def width(self) -> FloatArray:
        """How many lengths ||psi||_{V^-1} an estimate may be off, (n, B)."""
        return self.width_scale * private_width(
            self.growth,
            num_agents=self.view.constants.num_agents,
            scale=self.scale,
            alpha=self.delta / self.blocks,
            theta_bound=self.theta_bound,
            rmax=self.rmax,
            kappa=self.kappa,
        )

    def asks(self) -> BoolArray:
        """Those who have learnt enough, for the time that has passed, by their raw data."""
        M = self.view.constants.num_agents
        growth = fed_ucb_growth(self.known + self.new_gram, self.known, M, self.rmin, self.rmax).sum(axis=1)
        assert self.threshold is not None
        return wants_to_synchronise(growth, self.since, self.threshold)

    def news(self, rows: IntArray) -> Message:
        """All data of each agent: the sum of its noisy nodes, and the shift that keeps it positive."""
        draws, dim = self.view.randomness.draws(self.releases + 1), self.moments.shape[2]
        gram_noise, moment_noise = report_noise(draws, self.std, *self.moments.shape[1:])
        gram, moments = self.next_node(math.sqrt(2) * gram_noise, moment_noise)  # (Z + Z^T) / sqrt(2)
        level = new_level(self.releases)
        if level == self.noisy_gram.shape[1]:
            self.noisy_gram, self.noisy_moments = with_level(self.noisy_gram), with_level(self.noisy_moments)
        self.noisy_gram[:, level], self.noisy_moments[:, level] = gram, moments
        shift = (self.rmin + self.rmax) / 2 * np.eye(dim)
        used = [level for level in range(self.noisy_gram.shape[1]) if self.releases >> level & 1]
        total = sum((self.noisy_gram[:, level] for level in used), start=shift)
        return Message(
            "new",
            {"gram": total, "moments": sum((self.noisy_moments[:, level] for level in used), start=np.zeros(dim))},
            self.view.agents,
        )

    def start_from(self, gram: FloatArray, moments: FloatArray) -> None:
        """Go on from the noisy sums over all agents: of x x^T (B, d, d) and of x y (B, d)."""
        self.known = gram.copy()
        least = self.regularisation * np.eye(gram.shape[-1])
        common = from_sums((gram - least)[None], moments[None], self.regularisation)
        self.ridge = for_agents(common, len(self.grown))


class LatestServer(ServerSide):
    """A server that calls all agents when one asks, and answers with the sum of what each has sent last.

    Args:
        num_agents: M.
        most_gram: the largest entry that the sums of x x^T of an agent can have.
        most_moments: the largest entry that its sums of x y can have.
    """

    def __init__(self, num_agents: int, most_gram: float, most_moments: float):
        self.num_agents, self.most_gram, self.most_moments = num_agents, most_gram, most_moments
        self.gram: FloatArray | None = None  # (M, B, d, d) the last reports; None: nobody has reported yet
        self.moments: FloatArray | None = None  # (M, B, d)

    def refuses(self, up: Message) -> dict[int, str]:
        """Sums with entries that neither the data nor the noise can have."""
        if up.kind == "request":
            return super().refuses(up)
        return too_large(up, {"gram": self.most_gram, "moments": self.most_moments}) | super().refuses(up)

    def answer(self, up: Message) -> Message:
        """A call to all agents after a request; the sums after reports."""
        if up.kind == "request":
            return Message("call")
        check_new(up)
        if self.gram is None or self.moments is None:
            self.gram, self.moments = (np.zeros((self.num_agents, *up[name].shape[1:])) for name in ("gram", "moments"))
        self.gram[up.agents], self.moments[up.agents] = up["gram"], up["moments"]
        return Message("sums", {"gram": self.gram.sum(axis=0), "moments": self.moments.sum(axis=0)})
