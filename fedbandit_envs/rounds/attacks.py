"""Agents whose reports are false: simulated attackers, the same for every policy."""

from dataclasses import dataclass

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.seeding import Stream, generator
from fedbandit_envs.validation import one_of, real_number, whole_number

ATTACKS = ("sign-flip", "scale", "constant", "collude")


@dataclass(frozen=True)
class Attackers:
    """Some agents whose reports are changed on their way to the server; give it to `Faults(attackers=...)`.

    The attackers play like everybody else, and only what they report is false. All numbers with a fractional part in
    their reports are changed, whatever they mean to the policy; whole numbers, such as the arms of an active set, are
    not. `kind` says how they are changed.
    Who attacks is drawn from the seed of the run, so it is the same for all policies that are compared, and the
    attackers of a smaller share are among those of a larger one.

    >>> import fedbandit_envs as fb
    >>> faults = fb.Faults(attackers=fb.Attackers("scale", share=0.4, factor=-100))
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0, faults=faults)
    >>> sorted({fault.agent for fault in history.faults}), faults.attackers.agents(seed=0, num_agents=5)
    ([2, 3], array([2, 3]))
    """

    #: "sign-flip": every number times -1. "scale": every number times `factor`. "constant": every number is replaced by
    #: `value`. "collude": every number about `arm` is replaced by `value`, and the rest stays true; that applies to
    #: arrays with an axis of arms after the axis of agents
    kind: str
    share: float = 0.1  #: the share of the agents that attack, rounded to whole agents
    start: int = 0  #: the first round with false reports
    factor: float = 10.0  #: what "scale" multiplies with
    value: float = 1.0  #: what "constant" and "collude" report
    arm: int = 0  #: the arm that "collude" pushes

    def __post_init__(self) -> None:
        one_of("attack", self.kind, ATTACKS)
        object.__setattr__(self, "share", real_number("attackers", self.share, at_least=0))
        if self.share > 1:
            raise ValueError(f"attackers: expected a share from 0 to 1, got {self.share!r}; 0.1 is 10 %")
        whole_number("start", self.start, at_least=0)
        real_number("factor", self.factor)
        real_number("value", self.value)
        whole_number("arm", self.arm, at_least=0)

    def agents(self, seed: int, num_agents: int) -> IntArray:
        """The numbers of the attackers in the episode of that seed, in rising order."""
        order = generator(seed, Stream.ATTACKERS).permutation(num_agents)
        return np.sort(order[: round(self.share * num_agents)])

    def changed(self, report: Message, liars: IntArray, num_arms: int) -> Message:
        """The report as it arrives when the agents `liars` change their rows of it.

        Args:
            report: what agents send.
            liars: the numbers of the attackers.
            num_arms: the number of arms, K.
        """
        rows = np.zeros(0, dtype=bool) if report.agents is None else np.isin(report.agents, liars)
        if not rows.any():
            return report
        arrays = {
            name: self._false(array, rows, num_arms) if array.dtype.kind == "f" else array
            for name, array in report.arrays.items()
        }
        return Message(report.kind, arrays, report.agents, report.present)

    def _false(self, array: FloatArray, rows: BoolArray, num_arms: int) -> FloatArray:
        """A copy of an array with false numbers in these rows."""
        false = array.copy()
        if self.kind == "sign-flip":
            false[rows] *= -1
        elif self.kind == "scale":
            false[rows] *= self.factor
        elif self.kind == "constant":
            false[rows] = self.value
        elif array.ndim > 1 and array.shape[1] == num_arms:
            false[rows, self.arm] = self.value
        return false
