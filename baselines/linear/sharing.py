"""Linear agents that share what they have seen: what they have not sent yet, and how all synchronise."""

from dataclasses import dataclass, replace

import numpy as np

from fedbandit_agents.linear.ridge import for_agents, from_sums
from fedbandit_agents.linear.synchronised import SynchronisedAgents
from fedbandit_agents.linear.triggers import dis_lin_ucb_threshold, wants_to_synchronise
from fedbandit_agents.phased.plausibility import absurd_sums, impossible_grams, longest_moments
from fedbandit_baselines.linear.agents import LinearAgents, LinearPolicy, LinearSettings, StepData
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray, row_groups
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import ProtocolError
from fedbandit_envs.protocol.policy import ServerSide
from fedbandit_envs.validation import checked, optional, real_number


class SharingAgents(LinearAgents):
    """Linear agents that keep the sums of what they have not sent yet.

    A subclass says in `speak` when to send them, by `news`, and takes in what comes back in `hear`.
    """

    def __init__(self, view: View, settings: LinearSettings):
        super().__init__(view, settings)
        self.new_gram: FloatArray = np.zeros_like(self.inverse)  # (n, B, d, d) the sums of x x^T that were not sent
        self.new_moments: FloatArray = np.zeros_like(self.moments)  # (n, B, d) the sums of x y that were not sent
        self.grown: FloatArray = np.zeros(len(self.inverse))  # (n,) by how much ln det V has grown by them

    def add(self, seen: StepData) -> FloatArray:
        """Learn, and keep what is new."""
        growth = super().add(seen)
        rows, (block, x, weight, total) = np.arange(len(seen.x)), seen
        self.new_gram[rows, block] += weight[:, None, None] * (x[:, :, None] * x[:, None, :])
        self.new_moments[rows, block] += total[:, None] * x
        self.grown += growth
        return growth

    def news(self, rows: IntArray) -> Message:
        """The sums that these agents have not sent yet."""
        arrays = {"gram": self.new_gram[rows], "moments": self.new_moments[rows]}
        return Message.of_own("new", arrays, self.view.agents[rows])

    def rows_of(self, down: Message) -> IntArray:
        """The positions of the agents that a message is for."""
        assert down.agents is not None
        return np.flatnonzero(np.isin(self.view.agents, down.agents))

    def forget_news(self, rows: IntArray | slice) -> None:
        """These agents have sent all they knew."""
        self.new_gram[rows] = self.new_moments[rows] = self.grown[rows] = 0


class SharingTogether(SharingAgents, SynchronisedAgents):
    """Agents that all synchronise when one of them asks for it, and go on from the sums over all agents.

    A subclass says in `asks` who asks.
    """

    def add(self, seen: StepData) -> FloatArray:
        """Learn, keep what is new, and count the step."""
        self.since += 1
        return super().add(seen)

    def take_over(self, down: Message) -> None:
        """The sums of all agents, from which everybody goes on."""
        self.start_from(down["gram"], down["moments"])

    def start_from(self, gram: FloatArray, moments: FloatArray) -> None:
        """Go on from the sums over all agents: of x x^T (B, d, d) and of x y (B, d)."""
        self.ridge = for_agents(from_sums(gram[None], moments[None], self.regularisation), len(self.grown))
        self.forget_news(slice(None))


@dataclass(frozen=True)
class DeterminantPolicy(LinearPolicy):
    """The hyper-parameters of systems in which all synchronise when the determinant of one has grown enough."""

    #: D, how much an agent must have learnt before all synchronise; None takes T ln(MT) / (B d M) for B estimates
    threshold: float | None = checked(None, optional(real_number), at_least=0)

    def usual_threshold(self, constants: Constants, blocks: int) -> float:
        """The threshold D: the one given, or T ln(MT) / (B d M), where B is the number of estimates."""
        if self.threshold is not None:
            return self.threshold
        return dis_lin_ucb_threshold(constants.horizon, constants.num_agents, blocks * constants.dim)


class DeterminantAgents(SharingTogether):
    """Agents that ask for a synchronisation if ln(det V / det V_last) * (steps since the last time) > D."""

    def __init__(self, policy: DeterminantPolicy, view: View, settings: LinearSettings):
        super().__init__(view, settings)
        self.policy = policy
        self.threshold = policy.usual_threshold(view.constants, self.blocks)

    def asks(self) -> BoolArray:
        """Those who have learnt enough, for the time that has passed."""
        return wants_to_synchronise(self.grown, self.since, self.threshold)


def check_new(up: Message) -> None:
    """Refuse a message that is neither a request nor new sums."""
    if up.kind != "new":
        raise ProtocolError(f"message: expected 'request' or 'new', got {up.kind!r}")


class AddingServer(ServerSide):
    """A server that adds up what is new: it calls all agents when one asks, and answers with the sums of all.

    It refuses reports that can't be, as far as it knows: what bounds a sum are the norms of psi.

    Args:
        constants: the public constants.
        on_psi: whether the reported sums are plain sums of psi psi^T and psi y; else norms bound nothing.
        together: whether all agents report at the same time, so that each has pulled as often as the others since.
    """

    def __init__(self, constants: Constants, *, on_psi: bool = True, together: bool = True):
        self.constants = constants if on_psi else replace(constants, shortest=None, longest=None)
        self.together = together
        self.gram: FloatArray | None = None  # (B, d, d) the sums over all agents; None: nobody has reported yet
        self.moments: FloatArray | None = None  # (B, d)

    def refuses(self, up: Message) -> dict[int, str]:
        """Matrices that the pulls so far can't have summed up to, and moments that are too long for their matrix."""
        found = super().refuses(up)
        if up.kind == "request":
            return found
        assert up.agents is not None
        rows: IntArray | slice = slice(None)  # which copies nothing
        if found:
            rows = np.flatnonzero(~np.isin(up.agents, list(found)))
        gram, moments, agents = up["gram"][rows], up["moments"][rows], up.agents[rows]
        impossible: dict[int, str] = {}
        for group in row_groups(len(gram)):
            absurd = absurd_sums(gram[group], moments[group], self.constants)
            impossible |= {group.start + row: reason for row, reason in absurd.items()}
        impossible |= impossible_grams(gram, self.constants, together=self.together)
        found |= {int(agents[row]): reason for row, reason in impossible.items()}
        for group in row_groups(len(gram)):
            most = longest_moments(gram[group], self.constants)
            norms = np.sqrt(np.einsum("nad,nad->na", moments[group], moments[group]))
            for row, arm in np.argwhere(norms > most * (1 + 1e-9)):
                norm, bound = norms[row, arm], most[row, arm]
                reason = f"sent moments of norm {norm:.3g} for arm {arm}, at most {bound:.3g} can be"
                found.setdefault(int(agents[group][row]), reason)
        return found

    def answer(self, up: Message) -> Message | None:
        """A call to all agents after a request; the sums after new numbers."""
        if up.kind == "request":
            return Message("call")
        check_new(up)
        gram, moments = self.sums_with(up)
        return Message("sums", {"gram": gram, "moments": moments})

    def sums_with(self, up: Message) -> tuple[FloatArray, FloatArray]:
        """Add what is reported; gives the sums over all agents, of x x^T (B, d, d) and of x y (B, d)."""
        gram, moments = up["gram"].sum(axis=0), up["moments"].sum(axis=0)
        if self.gram is not None and self.moments is not None:
            gram, moments = self.gram + gram, self.moments + moments
        self.gram, self.moments = gram, moments
        return gram, moments
