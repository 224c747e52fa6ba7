"""What theory promises of a run: a claim, and what a policy may look at to make one.

An audit looks back at a finished run with the truth at hand, so it may see what no agent ever sees.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import FeatureMap
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan


@dataclass(frozen=True)
class Claim:
    """One line of an audit: a number of the run, and the bound that theory gives for it.

    `Policy.claims` gives them for a recorded run, and `audit` shows them. A policy whose theory does not apply to a run
    says why in `unless`: the number is then shown all the same, but a run that exceeds the bound does not fail.

    >>> Claim("agents that eliminated their best arm", 0, 2).verdict
    'FAILS'
    >>> Claim("agents that eliminated their best arm", 0, 2, unless="the widths are too small").verdict
    'not so, not claimed: the widths are too small'
    """

    claim: str  #: what is measured, in words
    bound: float  #: the largest value that theory allows
    measured: float  #: the value of this run
    unless: str = ""  #: why theory promises nothing for this run; empty: it does

    @property
    def claimed(self) -> bool:
        """Whether theory promises the bound for this run."""
        return not self.unless

    @property
    def holds(self) -> bool:
        """Whether the measured value respects the bound."""
        return bool(self.measured <= self.bound)

    @property
    def verdict(self) -> str:
        """Whether the claim holds, in words."""
        if self.claimed:
            return "holds" if self.holds else "FAILS"
        return f"{'true' if self.holds else 'not so'}, not claimed: {self.unless}"


class RecordedTurn(Protocol):
    """One turn of a recorded run."""

    @property
    def down(self) -> Message | None:
        """What had arrived from the server before the turn."""

    @property
    def plan(self) -> Plan:
        """What the agents asked for."""

    @property
    def feedback(self) -> Feedback:
        """What was pulled."""

    @property
    def up(self) -> Message | None:
        """What arrived at the server after the turn."""


class Truth(Protocol):
    """What is hidden from the agents while they play."""

    @property
    def context(self) -> str:
        """How contexts behave within a segment, "fixed" or "resampled"; streaming ones are fixed within each step."""

    @property
    def theta(self) -> FloatArray:
        """(K, d) the arm parameters."""

    @property
    def distribution(self) -> ContextDistribution:
        """The distributions that the contexts are drawn from."""

    @property
    def feature_map(self) -> FeatureMap:
        """The map from contexts to features."""

    @property
    def phi(self) -> FloatArray:
        """(M, K, d) the features of the true contexts."""

    @property
    def means(self) -> FloatArray:
        """(M, K) the mean rewards for the true contexts."""

    @property
    def distribution_means(self) -> FloatArray:
        """(M, K) the mean rewards under mu_i."""

    def gaps(self, kind: str = "regret") -> FloatArray:
        """(M, K) what one pull of each arm adds to a kind of regret."""


class Communication(Protocol):
    """What crossed between agents and server."""

    @property
    def scalars(self) -> int:
        """The scalars that were sent, both ways."""


class RecordedRun(Protocol):
    """A run as `Policy.claims` sees it: what `play(..., record=True)` returns has all of this."""

    @property
    def policy(self) -> object:
        """What played."""

    @property
    def constants(self) -> Constants:
        """The public constants of the problem."""

    @property
    def steps(self) -> IntArray:
        """(C,) steps taken at each checkpoint."""

    @property
    def pulls(self) -> IntArray:
        """(C, M, K) cumulative pulls at each checkpoint."""

    @property
    def ledger(self) -> Communication:
        """What crossed."""

    @property
    def faults(self) -> Sequence[object]:
        """The reports that were lost."""

    @property
    def exchanges(self) -> Sequence[RecordedTurn] | None:
        """The turns of the run; None: they were not recorded."""

    @property
    def instance(self) -> Truth | None:
        """The truth; None: it was not recorded."""

    @property
    def view(self) -> View | None:
        """What the agents were shown; None: it was not recorded."""
