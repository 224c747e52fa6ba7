"""Fed-CI: federated context inference (ALGORITHMS.md section 9). Agents infer the bias that a hidden context causes."""

from dataclasses import dataclass

import numpy as np
from fedbandit_agents.context_bias import average_belief, bias_variances, prior_belief, without_own_share
from fedbandit_agents.estimation import local_estimate, unit_vectors
from fedbandit_agents.posterior import Belief

from fedbandit_envs.knowledge import Constants, View
from fedbandit_envs.protocol import AgentSide, Feedback, Message, Plan, Policy, ServerSide
from fedbandit_envs.validation import FloatArray, IntArray, real_number, whole_number

_LEAST_NOISE = 1e-6  # standard deviation, in units of theta_std: rewards without noise would divide by 0
_DOF0 = 1.0  # observations that the assumed noise scale is worth when it is estimated


@dataclass(frozen=True)
class FedCI(Policy):
    sigma: float | str | None = None  # noise scale; None: the problem's public constant; "estimated": from residuals
    theta_std: float = 1.0  # prior scale of each coordinate of theta_a
    growth: int = 2  # of the time between rounds
    batches: int = 4  # plans between two rounds
    samples: int = 64  # of the posterior, for each plan
    news: float = 0.1  # share by which the weight of a report must have changed to be sent again
    kappa: float = 3.0
    mixture: bool = True
    cost: float = 1.0
    cap: float = 0.0

    def first(self, constants: Constants) -> int:
        """Steps before the first round: enough that each arm is seen about 3 d times by all agents together."""
        if self.kappa == 0: return constants.num_arms
        pulls = self.kappa * constants.dim * constants.num_arms / constants.num_agents
        return int(min(constants.num_arms, np.ceil(pulls)))

    def agents(self, view: View) -> "FedCIAgents":
        return FedCIAgents(self, view)

    def server(self, constants: Constants) -> "FedCIServer":
        return FedCIServer(self, constants)

    def noise_std(self, constants: Constants) -> float:
        sigma = constants.noise_std if self.sigma is None or isinstance(self.sigma, str) else self.sigma
        return max(sigma, _LEAST_NOISE * self.theta_std)


class FedCIAgents(AgentSide):
    def __init__(self, policy: FedCI, view: View):
        self.policy, self.view = policy, view
        n, num_arms, d = view.psi.shape
        self.sigma = policy.noise_std(view.constants)
        self.theta: FloatArray = np.zeros((num_arms, d))
        self.V: FloatArray = np.broadcast_to(policy.theta_std**2 * np.eye(d), (num_arms, d, d)).copy()
        self.pulls: IntArray = np.zeros((n, num_arms), dtype=np.int64)  # N
        self.sums: FloatArray = np.zeros((n, num_arms))  # Y
        self.reported: FloatArray = np.zeros((n, num_arms))  # the mean rewards of the last reports
        self.precision: FloatArray = np.zeros((n, num_arms))  # and what they were worth
        self.squares = np.zeros((n, num_arms))
        self.groups = np.zeros((n, num_arms), dtype=np.int64)
        self.elapsed = 0
        self.phase_start = 0
        self.next_round = policy.first(view.constants)
        self.plans = 0
        self._refresh()

    def _refresh(self):
        self.tau2 = bias_variances(self.view, self.theta, self.V)

    def noise(self):
        if self.view.constants.context == "resampled":
            return self.sigma**2 + self.tau2
        return np.full(self.tau2.shape, self.sigma**2)

    def prior(self):
        others = without_own_share(self.theta, self.V, self.view.psi, self.reported, self.precision)
        if self.view.constants.context == "resampled":
            return average_belief(self.view, others)
        if not self.policy.mixture and not self.view.exact:
            from fedbandit_agents.context_bias import bias_factors, root_variances, _along
            b = average_belief(self.view, others)
            f, own = bias_factors(self.view.distribution, self.view.feature_map, self.theta)
            second = root_variances(self.view.distribution, self.view.feature_map, self.V) * (1 + others.gain * _along(self.view.psi, others.Vpsi))
            return Belief(b.log_weights, b.mean, b.variance + (own + second)[:, None], f[:, None])
        return prior_belief(self.view, others)

    def belief(self):
        return self.prior().given(self.pulls, self.sums, self.noise())

    def plan(self, down, remaining):
        if down is not None:
            known = down.present["theta"]
            self.theta = np.where(known[:, None], down["theta"], self.theta)
            d = self.theta.shape[1]
            i, j = np.triu_indices(d)
            full = np.zeros(self.V.shape)
            full[:, i, j] = down["V"]
            full[:, j, i] = down["V"]
            self.V = np.where(known[:, None, None], full, self.V)
            if "sigma" in down.arrays:
                self.sigma = float(down["sigma"][0])
            self._refresh()
        n, num_arms = self.pulls.shape
        self.elapsed = self.view.constants.horizon - remaining
        if self.elapsed == 0:
            first = self.next_round
            start = self.view.agents * first
            arms = (start[:, None] + np.arange(first)) % num_arms
            explore = np.zeros((n, num_arms), dtype=np.int64)
            np.put_along_axis(explore, arms, 1, axis=1)
            self.length = first
            return Plan(explore, arms[:, 0], first)
        while self.elapsed >= self.next_round:
            self.phase_start = self.next_round
            self.next_round *= self.policy.growth
        length = -(-(self.next_round - self.phase_start) // self.policy.batches)
        length = min(length, self.next_round - self.elapsed)
        belief = self.belief()
        samples = min(self.policy.samples, length)
        self.plans += 1
        counts = belief.sampled_best(samples, self.view.randomness.draws(self.plans), self.view.constants.num_agents)
        self.length = length
        best = belief.expected_rewards().argmax(axis=1)
        m, v, gain = belief.against(best)
        needed = np.maximum(1, self.noise() / np.maximum(v, 1e-300))
        worth = remaining * gain >= -m * self.policy.cost * needed
        explore = counts * worth * (length // samples)
        if self.policy.cap:
            explore = np.minimum(explore, np.ceil(self.policy.cap * np.minimum(needed, 1e9)).astype(np.int64))
        return Plan(explore, best, length)

    def report(self, feedback):
        pulls = feedback.pulls()
        self.pulls = self.pulls + pulls
        self.sums = self.sums + feedback.sums()
        for n, y in ((feedback.explored, feedback.explored_sums), (pulls - feedback.explored, feedback.sums() - feedback.explored_sums)):
            self.squares = self.squares + y**2 / n.clip(min=1)
            self.groups = self.groups + (n > 0)
        if self.elapsed + self.length < self.next_round:
            return None
        if self.view.constants.context == "resampled":
            variance = (self.sigma**2 + self.tau2) / self.pulls.clip(min=1)
        else:
            variance = self.sigma**2 / self.pulls.clip(min=1) + self.tau2
        precision = np.where(self.pulls > 0, 1 / variance, 0)
        news = np.abs(precision - self.precision) > self.policy.news * self.precision
        means = self.sums / self.pulls.clip(min=1)
        self.reported = np.where(news, means, self.reported)
        self.precision = np.where(news, precision, self.precision)
        spoken = np.flatnonzero(news.any(axis=1))
        if not len(spoken):
            return None
        norms = np.einsum("nad,nad->na", self.view.psi, self.view.psi)
        arrays = {"theta": local_estimate(means, self.view.psi), "weight": precision * norms}
        present = {"theta": news, "weight": news}
        if self.policy.sigma == "estimated":
            ss = self.squares - self.sums**2 / self.pulls.clip(min=1)
            dof = (self.groups - 1).clip(min=0)
            if self.view.constants.context == "resampled":
                ss = ss - dof * self.tau2
            arrays["residuals"] = np.stack([ss.sum(axis=1), dof.sum(axis=1)], axis=1)
        m = Message("estimates", arrays, self.view.agents, present)
        return m if len(spoken) == len(news) else m.rows(spoken)


class FedCIServer(ServerSide):
    def __init__(self, policy, constants):
        self.policy, self.constants = policy, constants
        shape = (constants.num_agents, constants.num_arms)
        self.estimates = np.zeros((*shape, constants.dim))
        self.weights = np.zeros(shape)
        self.residuals = np.zeros((constants.num_agents, 2))

    def answer(self, up):
        new = up.present["theta"]
        rows, arms = np.nonzero(new)
        agents = up.agents[rows]
        self.estimates[agents, arms] = up["theta"][rows, arms]
        self.weights[agents, arms] = up["weight"][rows, arms]
        heard = new.any(axis=0)
        e = unit_vectors(self.estimates)
        d = e.shape[2]
        precision = np.einsum("na,nad,nae->ade", self.weights, e, e) + np.eye(d) / self.policy.theta_std**2
        V = np.linalg.inv(precision)
        theta = np.einsum("ade,ae->ad", V, np.einsum("na,nad->ad", self.weights, self.estimates))
        i, j = np.triu_indices(d)
        arrays = {"theta": theta, "V": V[:, i, j]}
        present = {"theta": heard, "V": heard}
        if self.policy.sigma == "estimated":
            self.residuals[up.agents] = up["residuals"]
            ss, dof = self.residuals.sum(axis=0)
            s0 = self.policy.noise_std(self.constants)
            arrays["sigma"] = np.array([np.sqrt(max((ss + _DOF0*s0**2)/(dof+_DOF0), (_LEAST_NOISE*self.policy.theta_std)**2))])
        return Message("estimates", arrays, None, present)
