"""The server of context inference on streams: it adds up weighted sums, false reports with little weight."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedbandit_agents.inference.expectation_propagation import full, upper_triangles
from fedbandit_agents.inference.weighted_server import bounded_residuals
from fedbandit_agents.phased.aggregation import report_weights
from fedbandit_agents.phased.plausibility import impossible_grams
from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import ServerSide

if TYPE_CHECKING:
    from fedbandit_agents.inference.context_inference import ContextInference


class StreamServer(ServerSide):
    """A server that calls all agents when one asks, and answers with the sums over the last reports of all.

    Reports count with weights from 0 to 1 by how well they agree with those of the others (Huber's loss), so that a few
    agents that report falsely can't move the sums far. It answers for the estimates about which something was reported.
    """

    def __init__(self, policy: "ContextInference", constants: Constants):
        self.policy, self.constants = policy, constants
        blocks = 1 if constants.shared_theta else constants.num_arms
        # The last report of each agent: its sums of x x^T and of x y, and its residuals.
        self.gram: FloatArray = np.zeros((constants.num_agents, blocks, constants.dim, constants.dim))
        self.moments: FloatArray = np.zeros((constants.num_agents, blocks, constants.dim))
        self.residuals: FloatArray = np.zeros((constants.num_agents, 2))

    def refuses(self, up: Message) -> dict[int, str]:
        """Reports with matrices that are no sums of x x^T, or with negative degrees of freedom."""
        found = super().refuses(up)
        if up.kind == "request":
            return found
        assert up.agents is not None
        rows = np.flatnonzero(~np.isin(up.agents, list(found)))
        # Weights bound the sums from above only, and features can be longer than psi where they are revealed.
        unbounded = replace(self.constants, shortest=None, longest=None)
        impossible = impossible_grams(full(up["gram"][rows], self.constants.dim), unbounded)
        found |= {int(up.agents[rows[row]]): reason for row, reason in impossible.items()}
        if "residuals" in up.arrays:
            for agent in up.agents[up["residuals"][:, 1] < 0].tolist():
                found.setdefault(agent, "sent negative degrees of freedom")
        return found

    def answer(self, up: Message) -> Message | None:
        """A call to all agents after a request; the sums after reports."""
        if up.kind == "request":
            return Message("call")
        assert up.agents is not None
        new = up.present["gram"]
        rows, blocks = np.nonzero(new)
        self.gram[up.agents[rows], blocks] = full(up["gram"][rows, blocks], self.constants.dim)
        self.moments[up.agents[rows], blocks] = up["moments"][rows, blocks]
        heard = np.asarray(new.any(axis=0))
        weights = report_weights(self.gram, self.moments, "huber", self.policy.assumed_sigma(self.constants))
        arrays = {
            "gram": upper_triangles(np.einsum("na,nade->ade", weights, self.gram)),
            "moments": np.einsum("na,nad->ad", weights, self.moments),
        }
        if self.policy.estimate_sigma:
            self.residuals[up.agents] = up["residuals"]
            squares, freedom = bounded_residuals(self.residuals).sum(axis=0)[:, None]
            arrays["sigma"] = self.policy.corrected_sigma(self.constants, squares, freedom)
        return Message("sums", arrays, None, {"gram": heard, "moments": heard})
