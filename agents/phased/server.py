"""The server of phased elimination: the paper's Algorithm 2, and what its relatives share."""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from warnings import warn

import numpy as np

from fedbandit_agents.phased.aggregation import lasting_bias, report_weights
from fedbandit_agents.phased.design import Design, allocate_jointly, g_optimal, g_optimal_jointly, uniform
from fedbandit_agents.phased.estimation import aggregate_jointly, unit_vectors
from fedbandit_agents.phased.plausibility import longest_estimates
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray, row_groups
from fedbandit_envs.joint import Joint, Jointly
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import ProtocolError
from fedbandit_envs.protocol.spread import SpreadServer

if TYPE_CHECKING:
    from fedbandit_agents.phased.elimination import PhasedElimination


class PhasedServer(SpreadServer):
    """Algorithm 2. It knows an agent's direction e_{a,i} from the first estimate that the agent sends of the arm."""

    def __init__(self, policy: "PhasedElimination", constants: Constants):
        self.policy, self.constants = policy, constants
        shape = (constants.num_agents, constants.num_arms)
        self.phase = 0
        self.directions: FloatArray = np.zeros((*shape, constants.dim))
        self.known: BoolArray = np.zeros(shape, dtype=bool)
        self.pulls: IntArray = np.full(shape, policy.first, dtype=np.int64)
        self.acquainted = False  # whether all directions are known
        self.pi: FloatArray = np.zeros(shape)  # the last design, from which the next one starts
        self.designed: BoolArray | None = None  # (M, K) the active sets it was made for; None: there is none yet

    def answering(self, up: Message) -> Jointly[Message]:
        """An allocation for active sets, aggregated estimates for estimates."""
        if up.kind == "active":
            return (yield from self._allocation(up))
        if up.kind != "estimates":
            raise ProtocolError(f"message: expected 'active' or 'estimates', got {up.kind!r}")
        return (yield from self._estimates(up))

    def can_spread(self, up: Message) -> bool:
        """Robust weights need all reports, compiled sums are made at once, and directions must be known or arrive."""
        if self.policy.compiled or self.policy.aggregation != "mean":
            return False
        return self.acquainted or (up.kind == "estimates" and bool(up.present["theta"].all()))

    def refuses(self, up: Message) -> dict[int, str]:
        """Empty active sets, and estimates that are too long or have another direction than the first of the agent."""
        refused = super().refuses(up)
        assert up.agents is not None
        if up.kind == "active":
            empty = up.agents[~up.present["arms"].any(axis=1)]
            return refused | dict.fromkeys(empty.tolist(), "sent an active set without arms")
        for group in row_groups(len(up.agents)):
            self._refuse_estimates(up, group, refused)
        return refused

    def _refuse_estimates(self, up: Message, group: slice, refused: dict[int, str]) -> None:
        """Add what is wrong with the estimates in some rows of a report, where nothing else is refused already."""
        assert up.agents is not None
        theta, present, agents = up["theta"][group], up.present["theta"][group], up.agents[group]
        rows = group if len(up.agents) == len(self.known) else agents
        most = longest_estimates(self.constants, self.pulls[rows], self.feature_norms(rows, up, group))
        compare = self.policy.arithmetic.lengths_and_turns
        squares, turned = compare(theta, self.directions[rows], self.squared_lengths(rows))
        turned = turned & present & self.known[rows]
        for row, arm in np.argwhere(turned) if turned.any() else ():
            refused.setdefault(int(agents[row]), f"sent an estimate of arm {arm} in another direction than its first")
        if most is None:
            return
        norms = np.sqrt(squares)
        too_long = present & (norms > most)
        for row, arm in np.argwhere(too_long) if too_long.any() else ():
            reason = (
                f"sent an estimate of norm {norms[row, arm]:.3g} for arm {arm}, at most {most[row, arm]:.3g} can be"
            )
            refused.setdefault(int(agents[row]), reason)

    def feature_norms(self, rows: "IntArray | slice", up: Message, group: slice) -> FloatArray | None:
        """||psi|| (n, K) of the agents in some rows of a report, for a server that knows them; None: it does not."""
        return None

    def squared_lengths(self, rows: "IntArray | slice") -> FloatArray | float:
        """||e||^2 (n, K) of the known directions of some agents; 1 if they are unit vectors, as here."""
        return 1.0

    def _rows(self, agents: IntArray | None) -> "IntArray | slice":
        """Where these agents are among all: a slice, so that nothing is copied, when they are all of them."""
        assert agents is not None
        return slice(None) if len(agents) == len(self.known) else agents

    def _allocation(self, up: Message) -> Jointly[Message]:
        """Line 6: the design over the active sets, rounded up."""
        self.phase += 1
        active, rows = up.present["arms"], self._rows(up.agents)
        pulls = yield from self._designed(rows, active)
        if len(pulls) < len(self.pulls):
            self.pulls[:] = 0
        self.pulls[rows] = pulls
        return Message("allocation", {"pulls": pulls}, up.agents, {"pulls": active})

    def _designed(self, agents: "IntArray | slice", active: BoolArray) -> Jointly[IntArray]:
        budget, directions = self.policy.budget(self.phase), self.directions[agents]
        members = self._acquaintances(agents, active)
        if self.policy.allocation == "uniform" or not self.known[agents][members].size:
            return (yield from allocate_jointly(uniform(active), budget, directions))
        wanted = active
        if len(active) < len(self.known):
            wanted = np.zeros(self.known.shape, dtype=bool)
            wanted[agents] = active
        changed = self.designed is None or bool(np.count_nonzero(self.designed != wanted))
        if (yield Joint(any, iter([changed]))):
            start = None if self.designed is None else self.pi[agents][members]
            design = yield from self._design(directions[members], active[members], start)
            pi = design.pi
            if len(pi) < len(active):
                evenly = uniform(active)
                evenly[members] = pi
                pi = evenly
            self.pi[agents] = pi
            self.designed = wanted
        return (yield from allocate_jointly(self.pi[agents], budget, directions))

    def _design(self, directions: FloatArray, active: BoolArray, start: FloatArray | None) -> Jointly[Design]:
        """The design of agents with known directions; a warning where it is not as good as was asked for."""
        gap = self.policy.gap
        if self.policy.compiled:
            design = g_optimal(directions, active, gap=gap, start=start, shared=self.shared, compiled=True)
        else:
            design = yield from g_optimal_jointly(directions, active, gap, start, self.shared)
        if design.gap > gap:
            yield Joint(_warn_of_gap, iter(()), (gap, design.gap, self.phase))
        return design

    def _acquaintances(self, agents: "IntArray | slice", active: BoolArray) -> "IntArray | slice":
        """Which of these agents have a design; those with unknown directions (a lost first report) explore evenly."""
        if self.acquainted:
            return slice(None)
        return np.flatnonzero((self.known[agents] | ~active).all(axis=1))

    shared = False  # whether all arms share one theta

    def _estimates(self, up: Message) -> Jointly[Message]:
        """Lines 4 and 8: V_a = (sum_i f e e^T)^+ and theta_a = V_a sum_i f theta_{a,i}, to all agents."""
        rows, present = self._rows(up.agents), up.present["theta"]
        if not self.acquainted:
            present = self._get_acquainted(rows, present, up)
        weights = np.where(present, self.pulls[rows], 0.0)
        theta, V = yield from self.aggregated(up["theta"], self.directions[rows], weights)
        heard = self.heard(V)
        return Message("estimates", {"theta": theta, "V": V}, None, {"theta": heard, "V": heard})

    def _get_acquainted(self, rows: "IntArray | slice", present: BoolArray, up: Message) -> BoolArray:
        """Learn new directions; returns which estimates can be used, because theirs are known."""
        new = present & ~self.known[rows]
        if new.any():
            self.learn_directions(rows, new, up)
            self.acquainted = bool(self.known.all())
            self.designed = None
        return present & self.known[rows]

    def learn_directions(self, rows: "IntArray | slice", new: BoolArray, up: Message) -> None:
        """Keep the directions of estimates that came for the first time."""
        for group in row_groups(len(new)):
            own = group if isinstance(rows, slice) else rows[group]
            self.keep_directions(own, new[group], unit_vectors(up["theta"][group]))

    def keep_directions(self, rows: "IntArray | slice", new: BoolArray, directions: FloatArray) -> None:
        """Know these directions (n, K, d) from now on where they are `new` (n, K)."""
        self.directions[rows] = np.where(new[..., None], directions, self.directions[rows])
        self.known[rows] |= new

    def aggregated(
        self, theta: FloatArray, directions: FloatArray, weights: FloatArray
    ) -> Jointly[tuple[FloatArray, FloatArray]]:
        """theta_a (K, d) and V_a (K, d, d), from the estimates as far as the server believes them."""
        if self.policy.aggregation != "mean":
            weights = weights * self._believed(theta, directions, weights)
        if self.policy.compiled:
            found: tuple[FloatArray, FloatArray] = self.policy.arithmetic.aggregate(theta, directions, weights)
            return found
        return (yield from aggregate_jointly(theta, directions, weights))

    def _believed(self, theta: FloatArray, directions: FloatArray, weights: FloatArray) -> FloatArray:
        """How far each estimate is believed, (n, K)."""
        gram = np.einsum("na,nad,nae->nade", weights, directions, directions)
        moments = weights[..., None] * theta
        # The noise of an estimate is sigma / ||psi||, or sigma where the features stand in for directions.
        least_scale = self.constants.noise_std / max(self.constants.L, 1.0)
        bias = lasting_bias(self.constants)
        return report_weights(gram, moments, self.policy.aggregation, least_scale, bias)

    def heard(self, V: FloatArray) -> BoolArray:
        """(K,) the arms of A^p: those with any exploration behind them, whose V is not 0."""
        return np.asarray(V.trace(axis1=1, axis2=2) > 0)


def _warn_of_gap(parts: Iterable[None], wanted: float, found: float, phase: int) -> None:
    """Warn, once for all shards, of a design that misses the gap."""
    warn(
        f"gap: expected a design within {wanted:g} of the best, got {found:.3g} in phase {phase}; it is used as it is, "
        "a larger gap is easier to reach",
        stacklevel=2,
    )
