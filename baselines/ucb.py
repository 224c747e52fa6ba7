"""Step-by-step policies without a server: Local-UCB and KK-UCB."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_baselines.ridge import LinearAgents, RidgeSettings
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.protocol.pull_tables import places
from fedbandit_envs.protocol.steps import Outcome, StepAgents
from fedbandit_envs.validation import check_fields, checked, needs, probability, real_number, true_or_false

# Stands for the pulls of an arm that was never pulled: its radius is then huge, and after one pull it is exactly 1.
_NEVER = 1e-300


@dataclass(frozen=True)
class LocalUCB(Policy):
    """Upper confidence bounds for each agent alone, blind to features.

    At step n an agent plays the arm with the largest mean + sqrt(2 ln(1 + n ln^2 n) / t), where t is how often it has
    pulled the arm; every arm is pulled once first. Use it as the baseline that needs no model: it is never misled by a
    hidden context, and gains nothing from other agents. Nothing is sent.
    Reference: Lattimore and Szepesvari, Bandit Algorithms, 2020, chapter 8 (asymptotically optimal UCB).

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Local-UCB"), seed=0)
    >>> history.ledger.messages
    0
    """

    #: whether agents decide and learn in code compiled by numba, the extra "compiled"; the run is the same
    compiled: bool = checked(False, true_or_false)

    def __post_init__(self) -> None:
        check_fields(self)

    def check_installed(self) -> None:
        """Compiled code needs numba."""
        if self.compiled:
            needs("numba", extra="compiled", instead="leave compiled out")

    def agents(self, view: View) -> "LocalUCBAgents":
        """Agents that never communicate."""
        if self.compiled:
            self.check_installed()
            from fedbandit_baselines.ucb_compiled import CompiledAgents  # numba takes long to import, then to compile

            return CompiledAgents(view)
        return LocalUCBAgents(view)


class LocalUCBAgents(StepAgents):
    """Agents of Local-UCB.

    All indices change at each step, but an agent's means and radii change for one arm only: these are kept.
    """

    def __init__(self, view: View):
        super().__init__(view)
        size = view.psi.shape[0] * view.psi.shape[1]  # flattened tables (n, K)
        self.pulls: FloatArray = np.full(size, _NEVER)
        self.sums: FloatArray = np.zeros(size)  # the sums of the rewards
        self.means: FloatArray = np.zeros(size)
        self.radii: FloatArray = 1 / np.sqrt(self.pulls)
        self.step = 1  # n, the number of the next step

    def observe(self, view: View) -> None:
        """Keep what is shown from now on."""
        self.view = view

    def choose(self) -> IntArray:
        """The arm with the largest index; ties go to the first arm, also among arms that were never pulled."""
        index = self.radii * self.bonus()
        index += self.means
        return index.reshape(self.view.psi.shape[:2]).argmax(axis=1)

    def bonus(self) -> float:
        """The factor on a radius in an index: sqrt(2 ln(1 + n ln^2 n))."""
        return math.sqrt(2 * math.log1p(self.step * math.log(self.step) ** 2))

    def learn(self, outcome: Outcome) -> None:
        """Count the rewards, and update the mean and radius of the arm that was played."""
        where = places(outcome.arm, self.view.constants.num_arms)
        t = self.pulls[where]
        t += outcome.pulls
        total = self.sums[where]
        total += outcome.rewards
        self.pulls[where], self.sums[where] = t, total
        self.means[where] = total / t
        self.radii[where] = np.reciprocal(np.sqrt(t))
        self.step += 1


class IndexAgents(StepAgents):
    """Agents that play the arm with the largest index; at a step, only the index of the arm played changes.

    A subclass fills in `indices`, and updates them in `learn`.
    """

    indices: FloatArray  #: (n, K) the index of each arm

    def __init__(self, view: View):
        super().__init__(view)
        shape = view.psi.shape[:2]
        self.pulls: FloatArray = np.zeros(shape)
        self.sums: FloatArray = np.zeros(shape)  # the sums of the rewards

    def choose(self) -> IntArray:
        """The arm with the largest index; ties go to the first arm."""
        return self.indices.argmax(axis=1)

    def count(self, where: IntArray, outcome: Outcome) -> None:
        """Count pulls and rewards, at the places `where` (n,) of the flattened tables."""
        self.pulls.reshape(-1)[where] += outcome.pulls
        self.sums.reshape(-1)[where] += outcome.rewards


@dataclass(frozen=True)
class KKUCB(Policy):
    """Linear upper confidence bounds on psi, the expected features, for each agent alone.

    Use it when agents can't communicate and contexts are drawn anew at each pull, for which its guarantee is proved;
    where contexts are fixed, their bias stays in its estimates. The bounds count the spread of the hidden context as
    additional noise. Where contexts change within an episode and all arms are guaranteed to have one theta, as in the
    reference, the arms share one estimate; else each arm has its own. Nothing is sent.
    Reference: Kirschner and Krause, Stochastic Bandits with Context Distributions, NeurIPS 2019.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("KK-UCB"), seed=0)
    >>> history.ledger.messages
    0
    """

    delta: float = checked(0.1, probability)  #: allowed probability that some confidence bound fails
    sigma: float = checked(1.0, real_number, above=0)  #: noise scale that the bounds assume
    theta_bound: float = checked(1.0, real_number, at_least=0)  #: B, an upper bound on ||theta_a||

    def __post_init__(self) -> None:
        check_fields(self)

    def agents(self, view: View) -> StepAgents:
        """Agents that never communicate; where psi never changes, they compute in closed form."""
        if view.valid is None:
            return KKUCBAgents(self, view)
        return LinearAgents(view, RidgeSettings.of_hidden(self.delta, self.sigma, self.theta_bound, view))


@dataclass(frozen=True)
class KKUCBObserved(KKUCB):
    """KK-UCB for contexts that are revealed after each pull: it regresses on phi(a, c) and chooses by psi.

    Use it where contexts are new at each step and seen afterwards (`context="streaming"`, `reveal="after"`): a reward
    then has no more noise than its own, so the bounds are tighter than those of KK-UCB. Nothing is sent.
    Reference: Kirschner and Krause, Stochastic Bandits with Context Distributions, NeurIPS 2019.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, context="streaming", reveal="after")
    >>> fb.play(env, fb.make_policy("KK-UCB-Observed"), seed=0).ledger.messages
    0
    """

    observes: ClassVar[str] = "delayed"

    def agents(self, view: View) -> StepAgents:
        """Agents that never communicate."""
        return LinearAgents(view, RidgeSettings.of_observed(self.delta, self.sigma, self.theta_bound, view))


class KKUCBAgents(IndexAgents):
    """Agents of KK-UCB, with the index psi^T theta + beta ||psi||_{V^-1} and V = I + N psi psi^T.

    An agent's psi of an arm never changes, so V has one direction and everything is in closed form: with x = 1 + N
    ||psi||^2, det V = x, ||psi||^2_{V^-1} = ||psi||^2 / x and psi^T theta = ||psi||^2 Y / x for Y the sum of rewards.
    """

    def __init__(self, policy: KKUCB, view: View):
        super().__init__(view)
        self.policy = policy
        self.confidence = float(2 * np.log(policy.delta / view.constants.num_arms))
        self.scale = policy.sigma if view.exact else float(np.sqrt(4 + policy.sigma**2))
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
