"""Fed-CI: federated context inference, which pulls arms about as often as Thompson sampling would."""

from dataclasses import dataclass

import numpy as np

from fedbandit_agents.inference.context_inference import ContextInference
from fedbandit_agents.inference.inferring_agents import InferringAgents
from fedbandit_agents.inference.joint_agents import JointAgents, shares_context
from fedbandit_agents.inference.joint_server import JointServer
from fedbandit_agents.inference.posterior import Against, positive_part
from fedbandit_agents.inference.site_agents import SiteAgents, sends_sites
from fedbandit_agents.inference.stream import StreamAgents, is_stream
from fedbandit_agents.inference.stream_server import StreamServer
from fedbandit_agents.inference.sums import sum_along
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import ServerView, View
from fedbandit_envs.protocol.plans import Plan
from fedbandit_envs.protocol.policy import ServerSide
from fedbandit_envs.ties import first_largest
from fedbandit_envs.validation import checked, one_of

_LEAST = np.finfo(np.float64).eps  # of a probability by which odds are divided


@dataclass(frozen=True)
class FedCI(ContextInference):
    """Federated context inference: it infers hidden contexts, and plays nearly as Thompson sampling would.

    Use it when contexts are fixed but hidden: each agent infers from its own rewards what its context is, given the
    server's estimate of theta. It is as good as mu_i and the noise model are right. Where contexts are new at each
    step, mu_{i,t} says how noisy each reward is. The server is never told mu_i or a reward, but what it is told depends
    on both; with `server_knows="distributions"` it is told both, and believes every report that can be true.
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

    def agents(self, view: View) -> "FedCIAgents | StreamAgents":
        """Agents that infer their context, and pull by their posterior; on a stream they weigh what they see."""
        if is_stream(view.constants):
            return StreamAgents(self, view)
        if self.server_knows == "distributions" and shares_context(view):
            return FedCIJointAgents(self, view)
        return FedCISiteAgents(self, view) if sends_sites(view) else FedCIAgents(self, view)

    def server(self, view: ServerView) -> ServerSide:
        """A server that pools estimates, adds up sites or sums, or finds the joint posterior of all theta."""
        return (StreamServer if is_stream(view.constants) else JointServer)(self, view.constants)


class FedCIAgents(InferringAgents):
    """Agents of Fed-CI: in batches they pull the arms that are worth exploring, nearly as Thompson sampling would."""

    policy: FedCI

    def chosen(self, length: int, remaining: int) -> Plan:
        """A plan with shares of pulls near the probability that an arm is best, for arms that are worth exploring.

        In the first plan after a round some arms are pulled for all agents, too; see `_wanted_for_all`. All other pulls
        are of the arm with the largest expected reward. A plan of m steps that follows t others explores less than its
        first step would, by the factor (t / m) ln(1 + m / t): an agent that learns on its way pulls a wrong arm at a
        rate that falls as 1 / t.
        """
        elapsed = self.view.constants.horizon - remaining
        before = max(elapsed, 1)
        explored = before * np.log1p(length / before)
        after_a_round = self.told and elapsed == self.phase_start
        uniforms = self.view.randomness.draws(self.number).uniforms()
        explore, arm = np.empty(self.pulls.shape, dtype=np.int64), np.empty(len(self.pulls), dtype=np.int64)
        for rows in self.groups():
            belief = self.posterior(rows)
            best = arm[rows] = first_largest(np.ascontiguousarray(belief.expected_rewards()))
            better = belief.against(best)
            worth = self._worth_exploring(better, best, rows, remaining)
            wanted = np.where(worth, explored * shares(better.chance, best, worth), 0)
            if after_a_round:
                wanted = np.where(worth, wanted, self._wanted_for_all(better, best, rows, remaining))
                wanted *= np.minimum(1, length / np.maximum(sum_along(wanted, 1), 1))[:, None]
            explore[rows] = shared_out(wanted, length, uniforms[rows])
        return Plan(explore, arm, length)

    def _worth_exploring(self, better: Against, best: IntArray, rows: slice, remaining: int) -> BoolArray:
        """Whether an arm is worth exploring, (n, K): what it may gain is at least the price of finding out.

        It may gain E[(r_a - r_best)^+] at each step that remains. To find out takes as many pulls as halve the variance
        of r_a - r_best, and the price is what these pulls are expected to lose. The best arm itself does not count.
        """
        # Both sides are multiplied by the variance, which may be 0.
        price = -better.mean * np.maximum(better.variance, self.noise[rows])
        worth: BoolArray = remaining * better.hope * better.variance >= price
        worth[np.arange(len(best)), best] = False
        return worth

    def _wanted_for_all(self, better: Against, best: IntArray, rows: slice, remaining: int) -> FloatArray:
        """How often each agent shall pull an arm that it would not explore for itself, (n, K): at most once.

        An arm that is good for many agents can look so bad to each of them that none explores it for itself, but a pull
        teaches all. If the M - 1 others learn theta_a, they gain E[(r_a - r_best)^+] each, at every step that remains;
        of the variance only the part counts that is due to theta. The price is what as many pulls lose as halve the
        variance that is due to theta, each by another agent, because an agent's own bias stays in its rewards. Chance
        says which agents make these pulls.
        """
        num_agents, uncertain = self.view.constants.num_agents, self.uncertain[rows]
        of_best = np.take_along_axis(uncertain, best[:, None], axis=1)
        hope, _ = positive_part(better.mean, np.sqrt(np.minimum(uncertain + of_best, better.variance)))
        error = self.noise[rows] + self.tau2[rows] * (not self.resampled)  # the variance of one reward about theta
        pulls = np.maximum(error, uncertain)  # their number, times the variance that is due to theta
        worth = ((num_agents - 1) * remaining * hope * uncertain >= -better.mean * pulls) & (uncertain > 0)
        worth[np.arange(len(best)), best] = False
        wanted = np.zeros(worth.shape)
        wanted[worth] = np.minimum(1, pulls[worth] / (num_agents * uncertain[worth]))
        return wanted


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
    return odds / sum_along(odds, 1)[:, None]


def shared_out(wanted: FloatArray, most: int, uniforms: FloatArray) -> IntArray:
    """Whole numbers (n, K) with the expectations `wanted`, whose sum in a row is that of the wanted ones or next to it.

    Args:
        wanted: how often each arm shall be pulled, (n, K).
        most: the largest sum that a row may have; the wanted ones exceed it by rounding at most.
        uniforms: one random number in [0, 1) for each row, (n,).

    >>> shared_out(np.array([[2.5, 5.0, 2.5]]), 10, np.array([0.7]))
    array([[3, 5, 2]])
    """
    pulls, total, before = np.empty(wanted.shape, dtype=np.int64), uniforms, np.zeros(len(uniforms))
    for arm in range(wanted.shape[1]):
        total = total + wanted[:, arm]
        reached = np.minimum(np.floor(total), most)  # a uniform next to 1 is rounded to 1 when it is added
        pulls[:, arm] = reached - before
        before = reached
    return pulls
