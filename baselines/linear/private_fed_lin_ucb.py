"""Private-FedLinUCB: agents share private sums at fixed times, after Zhou and Chowdhury."""

from dataclasses import dataclass

import numpy as np

from fedbandit_agents.linear.noise import private_shift
from fedbandit_agents.linear.ridge import for_agents, from_sums
from fedbandit_agents.linear.widths import private_fed_lin_ucb_width
from fedbandit_agents.phased.plausibility import too_large
from fedbandit_agents.privacy import noise_std, report_noise, running_sum, sensitivity, tree_levels
from fedbandit_baselines.linear.agents import StepData, blocks_of
from fedbandit_baselines.linear.private import PrivateAgents, PrivatePolicy, largest_node
from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import ServerSide
from fedbandit_envs.validation import checked, real_number, whole_number


@dataclass(frozen=True)
class PrivateFedLinUCB(PrivatePolicy):
    """A linear bandit whose reports tell little about any single observation: they are differentially private.

    Use it where what agents have seen must not leave them. All agents report every B steps, with noise that they add
    themselves: no one has to be trusted. All reports of an agent together are (epsilon, privacy_delta)-private towards
    everybody else, the server included. With an infinite epsilon there is no noise and no privacy.
    The paper proves group regret of the order M^(3/4) sqrt(T / epsilon), up to logarithms, for one theta and known
    contexts. Hidden contexts are not covered.
    Reference: Zhou and Chowdhury, On Differentially Private Federated Linear Contextual Bandits, ICLR 2024. The steps
    agree with the authors' code; the noise is computed more exactly.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, context="streaming")
    >>> history = fb.play(env, fb.make_policy("Private-FedLinUCB", epsilon=2.0), seed=0)
    >>> history.ledger.rounds, history.privacy
    (7, (2.0, 1e-05))
    """

    every: int = checked(25, whole_number, at_least=1)  #: B, the steps between two reports
    #: lambda: V starts as lambda times the identity, or as the shift if that is more
    regularisation: float = checked(1.0, real_number, above=0)
    width_scale: float = checked(1.0, real_number, above=0)  #: a factor of the width; the authors also use 0.1

    @property
    def privacy(self) -> tuple[float, float] | None:
        """The budget (epsilon, delta) of each agent's reports; None without noise."""
        return None if self.epsilon == np.inf else (self.epsilon, self.privacy_delta)

    def releases(self, constants: Constants) -> int:
        """How many reports an agent makes: after the last step there is none. At least 1, for the tree."""
        return max(1, (constants.horizon - 1) // self.every)

    def node_std(self, constants: Constants) -> float:
        """The standard deviation of a node's noise."""
        moved = sensitivity(self.longest_feature(constants), self.reward_bound)
        return noise_std(self.budget, tree_levels(self.releases(constants)), moved)

    def shift(self, constants: Constants) -> float:
        """Lambda, which is added to the noisy sums of all agents so that they stay positive."""
        failure = self.delta / blocks_of(constants)
        releases, std = self.releases(constants), self.node_std(constants)
        return max(self.regularisation, private_shift(std, releases, constants.num_agents, constants.dim, failure))

    def agents(self, view: View) -> "PrivateFedLinUCBAgents":
        """Agents that report noisy sums of psi psi^T and psi y."""
        return PrivateFedLinUCBAgents(self, view)

    def server(self, view: ServerView) -> "TreeServer":
        """A server that adds up the nodes of the agents' trees."""
        most = largest_node(self, view.constants, self.node_std(view.constants))
        return TreeServer(tree_levels(self.releases(view.constants)), most["gram"], most["moments"])


class PrivateFedLinUCBAgents(PrivateAgents):
    """Agents of Private-FedLinUCB."""

    def __init__(self, policy: PrivateFedLinUCB, view: View):
        constants = view.constants
        settings = policy.settings(view, regularisation=policy.shift(constants))
        super().__init__(policy, view, settings, tree_levels(policy.releases(constants)))
        self.every, self.width_scale, self.std = policy.every, policy.width_scale, policy.node_std(constants)
        self.steps = 0  # the steps so far
        self.due = False  # whether a report is due

    def add(self, seen: StepData) -> FloatArray:
        """Learn, and count the step."""
        self.steps += 1
        self.due = self.steps % self.every == 0
        return super().add(seen)

    def width(self) -> float:
        """How many lengths ||psi||_{V^-1} an estimate may be off."""
        constants = self.view.constants
        return self.width_scale * private_fed_lin_ucb_width(
            self.steps,
            num_agents=constants.num_agents,
            dim=constants.dim,
            scale=self.scale,
            alpha=self.delta / self.blocks,
            theta_bound=self.theta_bound,
            feature_bound=self.feature_bound,
            shift=self.regularisation,
        )

    def speak(self) -> Message | None:
        """The new node of each agent's tree, when a report is due. The kind of the message counts the reports."""
        if not self.due:
            return None
        self.due = False
        draws = self.view.randomness.draws(self.releases + 1)
        gram, moments = self.next_node(*report_noise(draws, self.std, *self.moments.shape[1:]))
        return Message(f"node {self.releases}", {"gram": gram, "moments": moments}, self.view.agents)

    def hear(self, down: Message) -> None:
        """The noisy sums of all agents, from which everybody goes on."""
        common = from_sums(down["gram"][None], down["moments"][None], self.regularisation)
        self.ridge = for_agents(common, len(self.grown))


class TreeServer(ServerSide):
    """A server that keeps the newest node of each level, summed over agents, and answers with the sum of all data.

    A node that was lost is missing until a later node holds its data too.

    Args:
        levels: m, the number of levels of the agents' trees.
        most_gram: the largest entry that a node of x x^T can have.
        most_moments: the largest entry that a node of x y can have.
    """

    def __init__(self, levels: int, most_gram: float, most_moments: float):
        self.levels, self.most_gram, self.most_moments = levels, most_gram, most_moments
        self.gram: FloatArray | None = None  # (m, B, d, d) the nodes; None: nobody has reported yet
        self.moments: FloatArray | None = None  # (m, B, d)

    def refuses(self, up: Message) -> dict[int, str]:
        """Nodes with entries that neither the data nor the noise can have."""
        return too_large(up, {"gram": self.most_gram, "moments": self.most_moments}) | super().refuses(up)

    def answer(self, up: Message) -> Message:
        """The noisy sums over all agents: of popcount(k) nodes of each, in report k."""
        release = int(up.kind.removeprefix("node "))
        if self.gram is None or self.moments is None:
            self.gram, self.moments = (np.zeros((self.levels, *up[name].shape[1:])) for name in ("gram", "moments"))
        gram = running_sum(self.gram, release, up["gram"].sum(axis=0))
        return Message("sums", {"gram": gram, "moments": running_sum(self.moments, release, up["moments"].sum(axis=0))})
