"""The server of context inference, which the policies of this folder share."""

import math
from typing import TYPE_CHECKING

import numpy as np

from fedbandit_agents.inference.scale import LEAST_SIGMA, common_prior, notable, scale_of
from fedbandit_agents.inference.sums import differences, groups_of, weighted_sums
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
        # The last estimate of each agent and arm is a value along a direction. The arrays stay empty until agents send
        # estimates. Agents come last, because the server adds up over them: numbers that are neighbours in memory are
        # added up fastest.
        self.directions: FloatArray = np.zeros((constants.num_arms, constants.dim, 0))
        self.values: FloatArray = np.zeros((constants.num_arms, 0))
        self.weights: FloatArray = np.zeros((constants.num_arms, 0))
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
            self.centre, self.width = common_prior(*self._read(up, *self._nothing()), sigma)
            return Message("prior", {"centre": self.centre, "width": np.array([self.width])})
        if up.kind != "estimates" or not self.width:
            raise ProtocolError(f"message: expected 'estimates' after a prior, or 'first', got {up.kind!r}")
        if not self.weights.size:
            self.directions, self.values, self.weights = self._nothing()
        self._read(up, self.directions, self.values, self.weights)
        upper, new = np.triu_indices(self.constants.dim), up.present["theta"]
        theta, V = self._estimates()
        heard: BoolArray = np.asarray(new.any(axis=0))
        arrays = {"theta": theta, "V": V[:, *upper]}
        if self.policy.estimate_sigma:
            arrays["sigma"] = self.told_sigma(up)
        if "misfit" in up.arrays:
            self.misfits[up.agents] = up["misfit"]
            arrays["spread"] = np.array([self._spread()])
        return Message("estimates", arrays, None, {"theta": heard, "V": heard})

    def _nothing(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The directions, values and weights of agents none of whom has reported anything."""
        M, num_arms = self.constants.num_agents, self.constants.num_arms
        return np.zeros((num_arms, self.constants.dim, M)), np.zeros((num_arms, M)), np.zeros((num_arms, M))

    def _read(
        self, up: Message, directions: FloatArray, values: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Write the estimates and weights of a message into the given arrays, and return them."""
        assert up.agents is not None
        for group in row_groups(len(up.agents)):
            rows, arms = np.nonzero(up.present["theta"][group])
            agents, theta = up.agents[group][rows], np.asfortranarray(up["theta"][group][rows, arms])
            e = unit_vectors(theta)
            directions[arms, :, agents], values[arms, agents] = e, np.einsum("md,md->m", theta, e)
            weights[arms, agents] = up["weight"][group][rows, arms]
        return directions, values, weights

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
        nothing = up.kind == "first" or not self.weights.size
        kept = np.zeros((self.constants.num_agents, 1)) if nothing else self.weights.T
        negative, totals = np.zeros(len(up.agents), dtype=np.bool_), np.empty(len(up.agents))
        for rows in groups_of(len(up.agents), self.constants.num_arms):
            sent = np.where(np.isfinite(up["weight"][rows]), up["weight"][rows], 0)
            negative[rows] = (sent < 0).any(axis=1)
            sent = np.where(up.present["weight"][rows], np.clip(sent, 0, LARGEST_NUMBER), kept[up.agents[rows]])
            totals[rows] = sent.sum(axis=1)
        for sums in {"residuals", "misfit"} & set(up.arrays):
            negative |= up[sums][:, 1] < 0
        found = dict.fromkeys(up.agents[negative].tolist(), "sent a negative weight") | found
        most = self._largest_total(up.kind, up.agents, totals)
        for row in np.flatnonzero(totals > most):
            reason = f"sent weights with the sum {totals[row]:.3g}, at most {most:.3g} can be"
            found.setdefault(int(up.agents[row]), reason)
        return found

    def _largest_total(self, kind: str, agents: IntArray, totals: FloatArray) -> float:
        """The most that the weights of an agent add up to, given the sums `totals` (n,) of these agents.

        T pulls have at most the weight T L^2 / sigma^2. Where the assumed sigma is too large for that, all agents have
        larger weights, which shows in their median. An agent alone has nobody to be compared with.
        """
        constants, sigma, others = self.constants, 1.0, totals
        if kind != "first":
            others = self.weights.sum(axis=0) if self.weights.size else np.zeros(constants.num_agents)
            others[agents] = totals
            sigma = LEAST_SIGMA * scale_of(self.centre, self.width)
            if np.count_nonzero(others) > 1:
                sigma = max(sigma, self.policy.assumed_sigma(constants))
        median = medians(others[None], others[None] > 0)[0] if np.count_nonzero(others) > 1 else 0.0
        longest = max(constants.L, constants.longest or 0.0)
        return float(_MOST_WEIGHT * max(median, constants.horizon * (longest / sigma) ** 2))

    def _estimates(self) -> tuple[FloatArray, FloatArray]:
        """The estimates theta (K, d) and V (K, d, d) from the last reports of all agents."""
        trust, (num_arms, d, M) = self._trust(), self.directions.shape
        theta, V = np.empty((num_arms, d)), np.empty((num_arms, d, d))
        for arms in groups_of(num_arms, M):
            e, values = self.directions[arms], self.values[arms]
            weights, *judged = self._judged(e, values, self.weights[arms] * trust)
            theta[arms], V[arms] = self._fit(e, weights / _scatter(e, values, weights, *judged), values)
        return theta, V

    def _trust(self) -> FloatArray:
        """The factor on all weights of an agent, (M,): below 1 if they add up to far more than those of most."""
        totals = self.weights.sum(axis=0)
        heard = np.sort(totals[totals > 0])
        most = _MOST_SHARES * heard[math.ceil(_HONEST * len(heard)) - 1] if len(heard) else np.inf
        return np.minimum(1, most / np.where(totals > 0, totals, 1))

    def _judged(
        self, e: FloatArray, values: FloatArray, claimed: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The weights of the reports (K, M), less for those far off, and theta and V with these weights.

        A report of weight w that is off by r counts for at most `TRUSTED`^2 / r^2, however large w is, times the
        typical scatter of its arm.
        """
        present = claimed > 0
        weights = np.minimum(claimed, MOST_MEDIANS * medians(claimed, present)[:, None])
        most = MOST_MEDIANS * medians(np.abs(values), notable(values, present))[:, None]
        theta, V = self._fit(e, weights, np.clip(values, -most, most))
        for _ in range(JUDGEMENTS):
            squares = claimed * differences(e, values, theta) ** 2
            typical = np.maximum(medians(squares, present) / MEDIAN_OF_CHI_SQUARE, 1)[:, None]
            weights = claimed / np.maximum(squares / (TRUSTED**2 * typical), 1)
            theta, V = self._fit(e, weights, values)
        return weights, theta, V

    def _fit(self, e: FloatArray, weights: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The estimates theta (K, d) and V (K, d, d) from values along e (K, d, M) and their weights, (K, M) each."""
        squares, sums = weighted_sums(e, weights, values)
        root = inverse_root(squares + np.eye(e.shape[1]) / self.width**2)
        V = np.einsum("axd,axe->ade", root, root)
        return np.einsum("ade,ae->ad", V, sums + self.centre / self.width**2), V


def _scatter(e: FloatArray, values: FloatArray, weights: FloatArray, theta: FloatArray, V: FloatArray) -> FloatArray:
    """The mean square of each arm's residuals over what the weights say it should be, drawn towards 1, (K, 1).

    Agents don't know the scatter. They take their own share out as w e^T V e, which must not reach 1: the scatter is
    bounded so that it does not.
    """
    shares = weights * quadratic_forms(e.transpose(2, 0, 1), V).T
    squares = np.einsum("an,an->a", weights, differences(e, values, theta) ** 2)
    freedom = ((weights > 0) - shares).sum(axis=1)
    scatter = np.maximum(_LEAST_SCATTER, (squares + _WORTH_OF_WEIGHTS) / (freedom + _WORTH_OF_WEIGHTS))
    largest: FloatArray = 0.99 / np.maximum(shares.max(axis=1), 0.01)
    return np.minimum(scatter, np.maximum(largest, 1))[:, None]


def medians(values: FloatArray, present: BoolArray) -> FloatArray:
    """The lower median of what is present in each row of values (K, M), (K,); infinity where nothing is."""
    order = np.sort(np.where(present, values, np.inf), axis=1)
    middle = (np.count_nonzero(present, axis=1) - 1).clip(min=0) // 2
    return order[np.arange(len(values)), middle]


def bounded_residuals(residuals: FloatArray) -> FloatArray:
    """The residuals (M, 2) of agents, of whom none counts for much more than the others."""
    squares, freedom = residuals.T
    present = freedom > 0
    share = squares / np.where(present, freedom, 1)  # the degrees of freedom of misfits may be less than 1
    freedom = np.minimum(freedom, _MOST_RESIDUALS * medians(freedom[None], present[None])[0])
    weighty = freedom >= medians(freedom[None], present[None])[0]  # few residuals may be far off by chance
    most = _MOST_RESIDUALS * medians(np.abs(share)[None], (present & weighty)[None])[0]
    return np.stack([freedom * np.clip(share, -most, most), freedom], axis=1)
