"""The server of context inference, which the policies of this folder share."""

import math
from typing import TYPE_CHECKING

import numpy as np

from fedbandit_agents.inference.scale import LEAST_SIGMA, common_prior, notable, scale_of
from fedbandit_agents.phased.estimation import quadratic_forms, unit_vectors
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray, row_groups
from fedbandit_envs.contexts.roots import inverse_root
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.overflow import LARGEST_NUMBER
from fedbandit_envs.protocol.plans import ProtocolError
from fedbandit_envs.protocol.policy import ServerSide

if TYPE_CHECKING:
    from fedbandit_agents.inference.context_inference import ContextInference

# The weights in the reports of an arm count as this many degrees of freedom, beside those of the residuals.
_WORTH_OF_WEIGHTS = 10.0
# The fit that judges reports first takes no weight and no value for larger than this many medians of its arm.
MOST_MEDIANS = 4.0
# A report that is off by more than this many standard deviations loses weight, with the square of the excess.
TRUSTED = 3.0
# The scatter of an arm's reports counts as at least this share of what their weights say. Reports for inferred features
# lie closer to a common estimate than their errors do, because they are inferred from that estimate.
_LEAST_SCATTER = 0.7
# No agent counts for more than this many times what one of the `_HONEST` agents with the least weights counts for.
_MOST_SHARES = 4.0
_HONEST = 0.8
# How often all reports are weighted anew by how far they are from the fit before.
JUDGEMENTS = 2
MEDIAN_OF_CHI_SQUARE = 0.455  # the median with one degree of freedom
# No agent's residuals count for more than this many times the median of all agents.
_MOST_RESIDUALS = 20.0
# The weights of no report add up to more than this many times what T pulls, or the median of all agents, allow.
_MOST_WEIGHT = 10.0
# The spread of mu as it was told counts as this many residuals, beside those of the agents.
_WORTH_OF_MU = 5.0
# The least and the largest factor on the variances of mu.
_LEAST_FACTOR, _MOST_FACTOR = 0.04, 100.0


class WeightedServer(ServerSide):
    """The server of context inference: weighted least squares, arm by arm, on the last report of each agent.

    The correlation across arms that is left is ignored. The weights of reports say how far they should scatter. How far
    they do scatter corrects the weights of an arm, for two reasons: the first weights come from the prior of theta, and
    agents can mistake their context.
    """

    def __init__(self, policy: "ContextInference", constants: Constants):
        self.policy, self.constants = policy, constants
        shape = (constants.num_agents, constants.num_arms)
        # The last estimate of each agent and arm is a value along a direction.
        self.directions: FloatArray = np.zeros((*shape, constants.dim))
        self.values: FloatArray = np.zeros(shape)
        self.weights: FloatArray = np.zeros(shape)
        self.residuals: FloatArray = np.zeros((constants.num_agents, 2))
        self.misfits: FloatArray = np.zeros((constants.num_agents, 2))
        # What all theta_a are believed to be before they are seen, N(centre, width^2 I); width 0: not known yet.
        self.centre: FloatArray = np.zeros(constants.dim)
        self.width = 0.0

    def answer(self, up: Message) -> Message | None:
        """The prior of theta after the first rewards, and the estimates of the arms with news after all others.

        The estimates are theta_a = V_a (m / s^2 + sum_i w theta_{a,i}) with V_a = (I / s^2 + sum_i w e e^T)^-1, where
        theta_a ~ N(m, s^2 I) is the prior. The weights w are those of the reports, divided by the scatter of the arm.
        """
        assert up.agents is not None
        if up.kind == "first":
            sigma = self.policy.assumed_sigma(self.constants)
            self.centre, self.width = common_prior(up["theta"], up["weight"], sigma)
            return Message("prior", {"centre": self.centre, "width": np.array([self.width])})
        if up.kind != "estimates" or not self.width:
            raise ProtocolError(f"message: expected 'estimates' after a prior, or 'first', got {up.kind!r}")
        for group in row_groups(len(up.agents)):
            self._keep_reports(up, group)
        e, upper, new = self.directions, np.triu_indices(self.constants.dim), up.present["theta"]
        weights, values, theta, V = self._judged(e, self._believed())
        theta, V = self._fit(e, weights / self._scatter(e, weights, values, theta, V), values)
        heard: BoolArray = np.asarray(new.any(axis=0))
        arrays = {"theta": theta, "V": V[:, *upper]}
        if self.policy.estimate_sigma:
            arrays["sigma"] = self.told_sigma(up)
        if "misfit" in up.arrays:
            self.misfits[up.agents] = up["misfit"]
            arrays["spread"] = np.array([self._spread()])
        return Message("estimates", arrays, None, {"theta": heard, "V": heard})

    def _keep_reports(self, up: Message, group: slice) -> None:
        """Keep the estimates and weights of some rows of a message."""
        assert up.agents is not None
        rows, arms = np.nonzero(up.present["theta"][group])
        agents, theta = up.agents[group][rows], up["theta"][group][rows, arms]
        e = unit_vectors(theta)
        self.directions[agents, arms], self.values[agents, arms] = e, np.einsum("md,md->m", theta, e)
        self.weights[agents, arms] = up["weight"][group][rows, arms]

    def told_sigma(self, up: Message) -> FloatArray:
        """The noise scale (1,) by the residuals of all agents, after those of a message are kept."""
        self.residuals[up.agents] = up["residuals"]
        squares, freedom = bounded_residuals(self.residuals).sum(axis=0)[:, None]
        return self.policy.corrected_sigma(self.constants, squares, freedom)

    def _spread(self) -> float:
        """The factor on the standard deviations of mu: residuals may show that contexts lie further off, or nearer."""
        squares, weight = bounded_residuals(self.misfits).sum(axis=0)
        factor = (squares + _WORTH_OF_MU) / (weight + _WORTH_OF_MU)
        return float(np.sqrt(np.clip(factor, _LEAST_FACTOR, _MOST_FACTOR)))

    def refuses(self, up: Message) -> dict[int, str]:
        """Reports with negative weights or degrees of freedom, and with weights that no agent's pulls can have."""
        found = super().refuses(up)
        assert up.agents is not None
        sent = np.where(np.isfinite(up["weight"]), up["weight"], 0)
        negative = (sent < 0).any(axis=1)
        for sums in {"residuals", "misfit"} & set(up.arrays):
            negative |= up[sums][:, 1] < 0
        found = dict.fromkeys(up.agents[negative].tolist(), "sent a negative weight") | found
        totals, most = self._totals(up.kind, up.agents, np.clip(sent, 0, LARGEST_NUMBER), up.present["weight"])
        for row in np.flatnonzero(totals > most):
            reason = f"sent weights with the sum {totals[row]:.3g}, at most {most:.3g} can be"
            found.setdefault(int(up.agents[row]), reason)
        return found

    def _totals(self, kind: str, agents: IntArray, sent: FloatArray, present: BoolArray) -> tuple[FloatArray, float]:
        """The sums of the weights of these agents, with what they sent before, (n,), and the most that they can be.

        T pulls have at most the weight T L^2 / sigma^2. Where the assumed sigma is too large for that, all agents have
        larger weights, which shows in their median. An agent alone has nobody to be compared with.
        """
        constants, sigma = self.constants, 1.0
        if kind == "first":
            totals = others = np.where(present, sent, 0.0).sum(axis=1)
        else:
            weights = self.weights.copy()
            weights[agents] = np.where(present, sent, weights[agents])
            others = weights.sum(axis=1)
            totals, sigma = others[agents], LEAST_SIGMA * scale_of(self.centre, self.width)
            if np.count_nonzero(others) > 1:
                sigma = max(sigma, self.policy.assumed_sigma(constants))
        median = medians(others[:, None], others[:, None] > 0)[0] if np.count_nonzero(others) > 1 else 0.0
        longest = max(constants.L, constants.longest or 0.0)
        return totals, _MOST_WEIGHT * max(median, constants.horizon * (longest / sigma) ** 2)

    def _believed(self) -> FloatArray:
        """The weights of the reports (M, K), less for agents whose weights add up to far more than those of most."""
        totals = self.weights.sum(axis=1)
        heard = np.sort(totals[totals > 0])
        most = _MOST_SHARES * heard[math.ceil(_HONEST * len(heard)) - 1] if len(heard) else np.inf
        return self.weights * np.minimum(1, most / np.where(totals > 0, totals, 1))[:, None]

    def _judged(self, e: FloatArray, claimed: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """The weights of the reports (M, K), less for those far off, their values, and theta and V with these.

        A report of weight w that is off by r counts for at most `TRUSTED`^2 / r^2, however large w is, times the
        typical scatter of its arm.
        """
        present = claimed > 0
        weights = np.minimum(claimed, MOST_MEDIANS * medians(claimed, present))
        values = self.values
        most = MOST_MEDIANS * medians(np.abs(values), notable(values, present))
        theta, V = self._fit(e, weights, np.clip(values, -most, most))
        for _ in range(JUDGEMENTS):
            squares = claimed * (values - np.einsum("nad,ad->na", e, theta)) ** 2
            typical = (medians(squares, present) / MEDIAN_OF_CHI_SQUARE).clip(min=1)
            weights = claimed / (squares / (TRUSTED**2 * typical)).clip(min=1)
            theta, V = self._fit(e, weights, values)
        return weights, values, theta, V

    def _fit(self, e: FloatArray, weights: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The estimates theta (K, d) and V (K, d, d) from values along e (M, K, d) and their weights, (M, K) each."""
        weighted = weights[..., None] * e
        root = inverse_root(np.einsum("nad,nae->ade", weighted, e) + np.eye(e.shape[2]) / self.width**2)
        V = np.einsum("axd,axe->ade", root, root)
        sums = np.einsum("nad,na->ad", weighted, values) + self.centre / self.width**2
        return np.einsum("ade,ae->ad", V, sums), V

    def _scatter(
        self, e: FloatArray, weights: FloatArray, values: FloatArray, theta: FloatArray, V: FloatArray
    ) -> FloatArray:
        """The mean square of each arm's residuals over what the weights say it should be, drawn towards 1, (K,).

        Agents don't know the scatter. They take their own share out as w e^T V e, which must not reach 1: the scatter
        is bounded so that it does not.
        """
        residuals = values - np.einsum("nad,ad->na", e, theta)
        shares = weights * quadratic_forms(e, V)
        squares = np.einsum("na,na->a", weights, residuals**2)
        freedom = ((weights > 0) - shares).sum(axis=0)
        scatter = np.maximum(_LEAST_SCATTER, (squares + _WORTH_OF_WEIGHTS) / (freedom + _WORTH_OF_WEIGHTS))
        largest: FloatArray = 0.99 / shares.max(axis=0).clip(min=0.01)
        return np.minimum(scatter, largest.clip(min=1))


def medians(values: FloatArray, present: BoolArray) -> FloatArray:
    """The lower median of what is present in each column, (K,); infinity where nothing is."""
    order = np.sort(np.where(present, values, np.inf), axis=0)
    middle = (np.count_nonzero(present, axis=0) - 1).clip(min=0) // 2
    return order[middle, np.arange(values.shape[1])]


def bounded_residuals(residuals: FloatArray) -> FloatArray:
    """The residuals (M, 2) of agents, of whom none counts for much more than the others."""
    squares, freedom = residuals.T
    present = freedom > 0
    share = squares / np.where(present, freedom, 1)  # the degrees of freedom of misfits may be less than 1
    freedom = np.minimum(freedom, _MOST_RESIDUALS * medians(freedom[:, None], present[:, None])[0])
    weighty = freedom >= medians(freedom[:, None], present[:, None])[0]  # few residuals may be far off by chance
    most = _MOST_RESIDUALS * medians(np.abs(share)[:, None], (present & weighty)[:, None])[0]
    return np.stack([freedom * np.clip(share, -most, most), freedom], axis=1)
