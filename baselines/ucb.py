"""Step-by-step play without a server: Local-UCB, and agents whose index changes for one arm at a step."""

import math
from dataclasses import dataclass

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.protocol.pull_tables import places
from fedbandit_envs.protocol.steps import Outcome, StepAgents
from fedbandit_envs.validation import check_fields, checked, needs, true_or_false

# Stands for the pulls of an arm that was never pulled: its radius is then huge, and after one pull it is exactly 1.
_NEVER = 1e-300


@dataclass(frozen=True)
class LocalUCB(Policy):
    """Upper confidence bounds for each agent alone, blind to features.

    At step n an agent plays the arm with the largest mean + sqrt(2 ln(1 + n ln^2 n) / t), where t is how often it has
    pulled the arm; every arm is pulled once first. Use it as the baseline that needs no model: it is never misled by a
    hidden context, and gains nothing from other agents. Nothing is sent.
    The book proves that its regret is the least possible for large T, up to lower orders, for noise that is Gaussian
    with standard deviation 1, and a bound of the order ln T for noise that is smaller.
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
