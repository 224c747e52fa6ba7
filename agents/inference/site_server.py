"""The server of context inference that also adds up sites, and answers each agent with what all others say."""

import numpy as np

from fedbandit_agents.inference.context_inference import ContextInference
from fedbandit_agents.inference.expectation_propagation import Information, full, leave_one_out, upper_triangles
from fedbandit_agents.inference.weighted_server import (
    JUDGEMENTS,
    MEDIAN_OF_CHI_SQUARE,
    MOST_MEDIANS,
    TRUSTED,
    WeightedServer,
    medians,
)
from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.roots import eigen, inverse_root
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import ProtocolError
from fedbandit_envs.protocol.policy import ServerSide

# A negative eigenvalue of a precision is rounding if it is smaller than this share of the largest.
ROUNDING = 1e-6
# A site moves the mean also where it has no precision. It is judged as if it had this share of all precision there.
_BLUR = 0.1
# All sites together say at most this many times what the prior says: more could not be distinguished from rounding.
_MOST = 1e14


class SiteServer(WeightedServer):
    """A server for both kinds of reports; all agents of a problem send the same kind.

    Where contexts are one of finitely many, agents send sites. The server judges them as it judges estimates, by how
    far they are from what all say together, and an agent hears the sum of all other sites and the prior.
    """

    def __init__(self, policy: ContextInference, constants: Constants):
        super().__init__(policy, constants)
        shape = (constants.num_agents, constants.num_arms)
        # The last site of each agent and arm; there are none until agents send any.
        self.site_precision: FloatArray = np.zeros((*shape, 0, 0))
        self.site_shift: FloatArray = np.zeros((*shape, 0))

    def answer(self, up: Message) -> Message | None:
        """What all others say, to each agent, about the arms with news; other reports are answered as they were."""
        if up.kind != "sites":
            return super().answer(up)
        if not self.width:
            raise ProtocolError("message: expected 'first' before 'sites', got none")
        assert up.agents is not None
        M, num_arms, d = self.constants.num_agents, self.constants.num_arms, self.constants.dim
        if not self.site_shift.shape[2]:
            self.site_precision, self.site_shift = np.zeros((M, num_arms, d, d)), np.zeros((M, num_arms, d))
        new = up.present["precision"]
        rows, arms = np.nonzero(new)
        self.site_precision[up.agents[rows], arms] = _positive(full(up["precision"][rows, arms], d))
        self.site_shift[up.agents[rows], arms] = up["shift"][rows, arms]
        precision = np.eye(d) / self.width**2
        prior = Information(precision, self.centre / self.width**2)
        others = leave_one_out(prior, self._judged_sites(prior))
        heard = np.broadcast_to(new.any(axis=0), (M, num_arms))
        arrays = {"precision": upper_triangles(others.precision), "shift": others.shift}
        if self.policy.estimate_sigma:
            arrays["sigma"] = np.full((M, 1), self.told_sigma(up))
        return Message("cavities", arrays, np.arange(M), {"precision": heard, "shift": heard})

    def refuses(self, up: Message) -> dict[int, str]:
        """Reports with precisions that are not positive semi-definite, or with negative weights."""
        if up.kind != "sites":
            return super().refuses(up)
        found = ServerSide.refuses(self, up)
        assert up.agents is not None
        usable = ~np.isin(up.agents, list(found))
        values, _ = eigen(full(np.where(usable[:, None, None], up["precision"], 0), self.constants.dim))
        negative = (values.min(axis=2) < -ROUNDING * values.max(axis=2).clip(min=0)).any(axis=1)
        if "residuals" in up.arrays:
            negative |= up["residuals"][:, 1] < 0
        return dict.fromkeys(up.agents[negative].tolist(), "sent a negative weight") | found

    def _judged_sites(self, prior: Information) -> Information:
        """The sites, with less precision and shift for those that are far off what all say together.

        A site that is off by r standard deviations counts for at most `TRUSTED`^2 / r^2, times the typical scatter of
        its arm.
        """
        size = np.einsum("nadd->na", self.site_precision)
        length = np.sqrt(np.einsum("nad,nad->na", self.site_shift, self.site_shift))
        present = size + length > 0
        even = np.minimum(
            _share(MOST_MEDIANS * medians(size.T, size.T > 0), size),
            _share(MOST_MEDIANS * medians(length.T, length.T > 0), length),
        )
        trust: FloatArray = np.ones(size.shape)
        for _ in range(JUDGEMENTS + 1):  # by a fit in which nobody counts for much more than the others
            pooled = self._pooled(prior, np.minimum(even, trust))
            theta, _ = pooled.moments()
            root = inverse_root(self.site_precision + _BLUR * pooled.precision)
            off = self.site_shift - np.einsum("nade,ae->nad", self.site_precision, theta)
            squares = np.einsum("naxd,nad->nax", root, off)
            squares = np.einsum("nax,nax->na", squares, squares)
            typical = (medians(squares.T, present.T) / MEDIAN_OF_CHI_SQUARE).clip(min=1)
            trust = _share(TRUSTED**2 * typical, squares)
        return self._trusted(np.minimum(trust, _share(_MOST / len(size) / self.width**2, size)))

    def _trusted(self, trust: FloatArray) -> Information:
        """The sites, each times the share `trust` (M, K) to which it is believed."""
        return Information(trust[..., None, None] * self.site_precision, trust[..., None] * self.site_shift)

    def _pooled(self, prior: Information, trust: FloatArray) -> Information:
        """What the prior and all sites say together about each arm."""
        sites = self._trusted(trust)
        return Information(prior.precision + sites.precision.sum(axis=0), prior.shift + sites.shift.sum(axis=0))


def _share(most: FloatArray | float, values: FloatArray) -> FloatArray:
    """The factors, at most 1, by which values (M, K) become no larger than `most`."""
    return np.minimum(most, values) / np.where(values > 0, values, 1) + (values <= 0)


def _positive(matrices: FloatArray) -> FloatArray:
    """Symmetric matrices without their negative eigenvalues."""
    values, vectors = eigen(matrices)
    return np.einsum("mxk,myk->mxy", vectors * values.clip(min=0)[:, None], vectors)
