"""Fed-CI: federated context inference with Thompson sampling."""

from dataclasses import dataclass

import numpy as np

from fedbandit_agents.inference.context_inference import ContextInference
from fedbandit_agents.inference.inferring_agents import InferringAgents
from fedbandit_agents.inference.joint_agents import JointAgents, shares_context
from fedbandit_agents.inference.joint_server import JointServer
from fedbandit_agents.inference.posterior import Belief
from fedbandit_agents.inference.site_agents import SiteAgents, sends_sites
from fedbandit_agents.inference.stream import StreamAgents, is_stream
from fedbandit_agents.inference.stream_server import StreamServer
from fedbandit_envs.arrays import BoolArray, IntArray, row_groups
from fedbandit_envs.protocol.knowledge import ServerView, View
from fedbandit_envs.protocol.plans import Plan
from fedbandit_envs.protocol.policy import ServerSide
from fedbandit_envs.ties import first_largest
from fedbandit_envs.validation import checked, one_of, whole_number


@dataclass(frozen=True)
class FedCI(ContextInference):
    """Federated context inference: Thompson sampling on a posterior of the mean rewards, hidden context included.

    Use it when contexts are fixed but hidden: each agent infers from its own rewards what its context is, given the
    server's estimate of theta. It is as good as mu_i and the noise model are right. With known contexts it is federated
    Thompson sampling; where contexts are new at each step, mu_{i,t} says how noisy each reward is. The server is never
    told mu_i or a reward, but what it is told depends on both; with `server_knows="distributions"` it is told both, and
    believes every report that can be true.
    No guarantee is proved; Fed-CI-Elimination has one.
    The policy belongs to this library; see `ContextInference` for the parameters that it shares with its relatives.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Fed-CI"), seed=0)
    >>> history.ledger.rounds
    4
    """

    #: "reports": agents send estimates of theta_a with weights, or sites of expectation propagation where each context
    #: is one of finitely many. "distributions": where one Gaussian context moves all arms of an agent, agents send once
    #: mu_i, and in each round how often they pulled an arm and its mean reward; elsewhere reports
    server_knows: str = checked("reports", one_of, choices=("reports", "distributions"))
    samples: int = checked(64, whole_number, at_least=1)  #: samples of the posterior that are drawn for each plan

    def agents(self, view: View) -> "FedCIAgents | StreamAgents":
        """Agents that infer their context and play by Thompson sampling; on a stream they weigh what they see."""
        if is_stream(view.constants):
            return StreamAgents(self, view)
        if self.server_knows == "distributions" and shares_context(view):
            return FedCIJointAgents(self, view)
        return FedCISiteAgents(self, view) if sends_sites(view) else FedCIAgents(self, view)

    def server(self, view: ServerView) -> ServerSide:
        """A server that pools estimates, adds up sites or sums, or finds the joint posterior of all theta."""
        return (StreamServer if is_stream(view.constants) else JointServer)(self, view.constants)


class FedCIAgents(InferringAgents):
    """Agents of Fed-CI: Thompson sampling in batches, of the arms that are worth exploring."""

    policy: FedCI

    def chosen(self, belief: Belief, length: int, remaining: int) -> Plan:
        """A plan that pulls each arm as often as it is best in samples, if it is worth exploring; else the best arm."""
        best = first_largest(belief.expected_rewards())
        number = min(self.policy.samples, length)
        worth = self._worth_exploring(belief, best, remaining)
        unsettled = np.flatnonzero(worth.any(axis=1))
        explore = np.zeros(worth.shape, dtype=np.int64)
        if len(unsettled):
            draws, num_agents = self.view.randomness.draws(self.number), self.view.constants.num_agents
            counts = belief.best_in_samples(number, draws, num_agents, unsettled)
            explore[unsettled] = np.where(worth[unsettled], counts * (length // number), 0)
        return Plan(explore, best, length)

    def _worth_exploring(self, belief: Belief, best: IntArray, remaining: int) -> BoolArray:
        """Whether an arm is worth exploring, (n, K): what it may gain is at least the price of finding out.

        It may gain E[(r_a - r_best)^+] at each step that remains. To find out takes as many pulls as halve the variance
        of r_a - r_best, and the price is what these pulls are expected to lose.
        """
        worth: BoolArray = np.empty(self.noise.shape, dtype=bool)
        for rows in row_groups(len(best)):
            mean, variance, hope = belief.rows(rows).against(best[rows])
            # Both sides are multiplied by the variance, which may be 0.
            price = -mean * np.maximum(variance, self.noise[rows])
            worth[rows] = remaining * hope * variance >= price
        worth[np.arange(len(best)), best] = False
        return worth


class FedCISiteAgents(SiteAgents, FedCIAgents):
    """Agents of Fed-CI whose context is one of finitely many, and who report sites."""

    policy: FedCI


class FedCIJointAgents(JointAgents, FedCIAgents):
    """Agents of Fed-CI that tell the server their law of contexts and their mean rewards."""

    policy: FedCI
