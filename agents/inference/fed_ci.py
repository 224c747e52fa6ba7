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
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import ServerView, View
from fedbandit_envs.protocol.plans import Plan
from fedbandit_envs.protocol.policy import ServerSide
from fedbandit_envs.ties import first_largest
from fedbandit_envs.validation import checked, one_of

_LEAST = np.finfo(np.float64).eps  # of a probability by which odds are divided


@dataclass(frozen=True)
class FedCI(ContextInference):
    """Federated context inference: Thompson sampling on a posterior of the mean rewards, hidden context included.

    Use it when contexts are fixed but hidden: each agent infers from its own rewards what its context is, given the
    server's estimate of theta. It is a Bayesian method without a proved guarantee, and as good as mu_i and the noise
    model are right. With known contexts it is federated Thompson sampling. Agents send, in rounds that become rarer,
    estimates of theta_a with weights for the arms about which they have learnt something new. If each context is one of
    finitely many, they send sites of expectation propagation: what their rewards say about theta_a, whichever context
    they have. The server is never told mu_i or a reward, but what it is told depends on both.

    With `server_knows="distributions"` the server is told both, where one Gaussian context moves all arms of an agent.
    It then finds the joint posterior of all theta, which takes ten times as long. It refuses reports that can't be, and
    takes all others at their word: false ones within what is possible mislead all agents. This policy belongs to this
    library; see `ContextInference` for the parameters that it shares with its relatives.

    Where contexts are new at each step (`context="streaming"`) there is no lasting context to infer, but mu_{i,t} says
    how noisy each reward is. Agents then decide at each step by a Bayesian regression that weighs rewards by it, and
    synchronise by the rule of DisLinUCB. Where contexts are revealed after the pull, the regression uses them. Of the
    parameters only those of the noise scale matter there. Problems whose contexts stay for some steps are refused.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Fed-CI"), seed=0)
    >>> history.ledger.rounds
    4
    """

    #: "reports": estimates or sites, as above. "distributions": where one Gaussian context moves all arms of an agent,
    #: agents send once mu_i, and in each round how often they pulled an arm and its mean reward; elsewhere reports
    server_knows: str = checked("reports", one_of, choices=("reports", "distributions"))

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
        """A plan that pulls each arm in proportion to the probability that it is best, if it is worth exploring.

        All other pulls are of the arm with the largest expected reward.
        """
        best = first_largest(belief.expected_rewards())
        worth, chance = self._worth_exploring(belief, best, remaining)
        explore = np.zeros(worth.shape, dtype=np.int64)
        if worth.any():
            uniforms = self.view.randomness.draws(self.number).uniforms()
            explore = np.where(worth, shared_out(length, shares(chance, best, worth), uniforms), 0)
        return Plan(explore, best, length)

    def _worth_exploring(self, belief: Belief, best: IntArray, remaining: int) -> tuple[BoolArray, FloatArray]:
        """Whether an arm is worth exploring, and the probability that r_a > r_best, (n, K) each.

        It is if what it may gain is at least the price of finding out. It may gain E[(r_a - r_best)^+] at each step
        that remains. To find out takes as many pulls as halve the variance of r_a - r_best, and the price is what these
        pulls are expected to lose.
        """
        mean, variance, hope, chance = belief.against(best)
        price = -mean * np.maximum(variance, self.noise)  # both sides are multiplied by the variance, which may be 0
        worth: BoolArray = remaining * hope * variance >= price
        worth[np.arange(len(best)), best] = False
        return worth, chance


class FedCISiteAgents(SiteAgents, FedCIAgents):
    """Agents of Fed-CI whose context is one of finitely many, and who report sites."""

    policy: FedCI


class FedCIJointAgents(JointAgents, FedCIAgents):
    """Agents of Fed-CI that tell the server their law of contexts and their mean rewards."""

    policy: FedCI


def shares(chance: FloatArray, best: IntArray, among: BoolArray) -> FloatArray:
    """About the probability that each arm is the best of those considered, (n, K), each row of which sums to 1.

    The odds against `best` decide, as in the choice model of Bradley, Terry and Luce. They are raised to the power
    1.125: the odds themselves explore up to a tenth too often where many arms are nearly as good, and larger powers
    explore unlikely arms too rarely, on which an agent with a wrong belief depends.

    Args:
        chance: the probability that r_a > r_best, (n, K).
        best: the arm with the largest expected reward, (n,).
        among: the arms that are considered beside `best`, (n, K).

    >>> shares(np.array([[0.5, 0.5, 0.9]]), np.array([0]), np.array([[False, True, False]]))
    array([[0.5, 0.5, 0. ]])
    """
    odds = np.where(among, chance / np.maximum(1 - chance, _LEAST), 0)
    odds *= np.sqrt(np.sqrt(np.sqrt(odds)))  # odds^1.125, with the same bits on every CPU
    odds[np.arange(len(best)), best] = 1
    return odds / odds.sum(axis=1, keepdims=True)


def shared_out(length: int, share: FloatArray, uniforms: FloatArray) -> IntArray:
    """Whole numbers (n, K) that sum to `length` in each row, and whose expectations are `length` times the shares.

    Args:
        length: how many pulls are shared out.
        share: the share of each arm, (n, K).
        uniforms: one random number in [0, 1) for each row, (n,).

    >>> shared_out(10, np.array([[0.25, 0.5, 0.25]]), np.array([0.7]))
    array([[3, 5, 2]])
    """
    reached = length * share.cumsum(axis=1)
    reached[:, -1] = length  # whatever the sum was rounded to
    pulls: IntArray = np.floor(reached + uniforms[:, None]).astype(np.int64)
    pulls[:, 1:] -= pulls[:, :-1].copy()
    return pulls
