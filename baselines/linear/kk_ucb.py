"""KK-UCB and KK-UCB-Observed: linear bandits of agents that play alone, on contexts that are hidden or seen later."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_baselines.linear.agents import USUAL_PROXY, LinearAgents, LinearPolicy, reward_scale
from fedbandit_baselines.ucb import IndexAgents
from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.pull_tables import places
from fedbandit_envs.protocol.steps import Outcome, StepAgents


@dataclass(frozen=True)
class KKUCB(LinearPolicy):
    """Linear upper confidence bounds on psi, the expected features, for each agent alone.

    Use it when agents can't communicate and contexts are drawn anew at each pull, for which its guarantee is proved;
    where contexts are fixed, their bias stays in its estimates. The bounds count the spread of the hidden context as
    additional noise. Where contexts change within an episode and all arms are guaranteed to have one theta, as in the
    reference, the arms share one estimate; else each arm has its own. Nothing is sent.
    Reference: after Kirschner and Krause, Stochastic Bandits with Context Distributions, NeurIPS 2019. The width agrees
    with the default of the authors' code; their figures replace it by constants. Their theorem, as recalled, takes
    delta / 2 where this takes delta. The ellipsoid for each arm, with delta / K, is an addition of this package.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("KK-UCB"), seed=0)
    >>> history.ledger.messages
    0
    """

    def agents(self, view: View) -> StepAgents:
        """Agents that never communicate; where psi never changes, they compute in closed form."""
        if view.valid is None:
            return KKUCBAgents(self, view)
        return LinearAgents(view, self.settings(view, proxy=USUAL_PROXY))


@dataclass(frozen=True)
class KKUCBObserved(KKUCB):
    """KK-UCB for contexts that are revealed after each pull: it regresses on phi(a, c) and chooses by psi.

    Use it where contexts are new at each step and seen afterwards (`context="streaming"`, `reveal="after"`): a reward
    then has no more noise than its own, so the bounds are tighter than those of KK-UCB. Nothing is sent.
    The paper proves regret of the order d sqrt(T), up to logarithms.
    Reference: after Kirschner and Krause, Stochastic Bandits with Context Distributions, NeurIPS 2019. The regression,
    the choice and the width agree with the authors' code; their theorem, as recalled, takes delta / 3.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, context="streaming", reveal="after")
    >>> fb.play(env, fb.make_policy("KK-UCB-Observed"), seed=0).ledger.messages
    0
    """

    observes: ClassVar[str] = "delayed"

    def agents(self, view: View) -> StepAgents:
        """Agents that never communicate."""
        return LinearAgents(view, self.settings_of_revealed(view))


class KKUCBAgents(IndexAgents):
    """Agents of KK-UCB, with the index psi^T theta + beta ||psi||_{V^-1} and V = I + N psi psi^T.

    An agent's psi of an arm never changes, so V has one direction and everything is in closed form: with x = 1 + N
    ||psi||^2, det V = x, ||psi||^2_{V^-1} = ||psi||^2 / x and psi^T theta = ||psi||^2 Y / x for Y the sum of rewards.
    """

    def __init__(self, policy: KKUCB, view: View):
        super().__init__(view)
        self.policy = policy
        self.confidence = float(2 * np.log(policy.delta / view.constants.num_arms))
        self.scale = reward_scale(view, policy.sigma, USUAL_PROXY)
        self.squares: FloatArray = np.einsum("nad,nad->na", view.psi, view.psi)
        self.indices = self._indices(self.squares, self.pulls, self.sums)

    def _indices(self, squares: FloatArray, pulls: FloatArray, sums: FloatArray) -> FloatArray:
        """The upper confidence bounds, for arrays of one shape."""
        x = 1 + pulls * squares
        beta = self.scale * np.sqrt(np.log(x) - self.confidence)
        return squares * sums / x + (beta + self.policy.theta_bound) * np.sqrt(squares / x)

    def learn(self, outcome: Outcome) -> None:
        """Count the rewards; only the arm that was played has a new index."""
        where = places(outcome.arm, self.view.constants.num_arms)
        self.count(where, outcome)
        played = (table.take(where) for table in (self.squares, self.pulls, self.sums))
        self.indices.put(where, self._indices(*played))
