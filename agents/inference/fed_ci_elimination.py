"""Fed-CI-Elimination: elimination by own intervals, which mu_i and one round with the server make shorter."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedbandit_agents.inference import guarantee
from fedbandit_agents.inference.intervals import (
    Limits,
    Pooled,
    direction_factor,
    own_radius,
    spread_of_features,
)
from fedbandit_agents.inference.pull_counts import levelled, resting_pulls
from fedbandit_agents.phased.plausibility import absurd_length, absurd_reward, largest_mean, too_large
from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray
from fedbandit_envs.protocol.claims import Claim, RecordedRun
from fedbandit_envs.protocol.knowledge import Constants, ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide, Policy, ServerSide
from fedbandit_envs.ties import JUST_WHOLE, first_largest, rounding
from fedbandit_envs.validation import check_fields, checked, optional, probability, real_number, whole_number


@dataclass(frozen=True)
class FedCIElimination(Policy):
    """Federated context inference with a guarantee: an arm is eliminated only when another one is surely better.

    Use it in place of Fed-CI where a wrong elimination costs more than exploration. Agents talk in one round, after
    which mu_i and the server's estimate of theta give each of them intervals for its own mean rewards. How much this
    helps depends on the spread of mu_i: where the standard deviation of a mean reward is above a tenth of the gaps or
    so, own rewards decide.
    If mu_i, the noise and its scale are right, the best arm of every agent survives with probability 1 - delta, over
    noise and contexts and whatever theta is: the documentation has the proof. If the intervals contradict each other,
    mu_i is wrong, and the agent goes on with its own rewards alone. The policy belongs to this library.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> history = fb.play(env, fb.make_policy("Fed-CI-Elimination"), seed=0)
    >>> history.ledger.rounds
    1
    """

    delta: float = checked(0.1, probability)  #: allowed probability that some interval of a run fails
    #: sub-Gaussian scale of the noise; None takes the problem's public constant
    sigma: float | None = checked(None, optional(real_number), at_least=0)
    #: f_0, how often each agent pulls each arm before the round; None takes sqrt(d T / (K M)), rounded up. Where v, the
    #: context_proxy, is known it takes alpha times as many, and at most sigma^2 / v
    first: int | None = checked(None, optional(whole_number), at_least=1)
    #: variance proxy of <theta_a, phi(a, c) - psi_a>; None takes the problem's guarantee, and without one a bound from
    #: mu_i and the rewards
    context_proxy: float | None = checked(None, optional(real_number), at_least=0)

    def __post_init__(self) -> None:
        check_fields(self)

    def noise_proxy(self, constants: Constants) -> float:
        """sigma^2, the variance proxy of the noise of one reward."""
        return (constants.noise_std if self.sigma is None else self.sigma) ** 2

    def known_proxy(self, constants: Constants) -> float | None:
        """v, the variance proxy of the bias; None: it is bounded by what the rewards say about theta."""
        return constants.context_proxy if self.context_proxy is None else self.context_proxy

    def first_pulls(self, constants: Constants) -> int:
        """f_0, how often each agent pulls each arm before the round.

        >>> constants = Constants(100, 10, 3, 2**17, 0.5, 1.0, 1.0, "fixed")
        >>> FedCIElimination().first_pulls(constants), FedCIElimination(context_proxy=0.02).first_pulls(constants)
        (20, 50)
        """
        if self.first is not None:
            return self.first
        wanted = math.sqrt(constants.dim * constants.horizon / (constants.num_arms * constants.num_agents))
        proxy = self.known_proxy(constants)
        if proxy is not None:
            wanted *= self.direction_factor(constants)
            if proxy and constants.context == "fixed":
                wanted = min(wanted, self.noise_proxy(constants) / proxy)
        return max(math.ceil(wanted * JUST_WHOLE), 1)

    def own_failure(self, constants: Constants) -> float:
        """The probability with which the own intervals of one agent and arm may fail: all together, delta / 3."""
        return self.delta / (3 * constants.num_agents * constants.num_arms)

    def bias_factor(self, constants: Constants) -> float:
        """z, for which no bias exceeds z tau, for all agents and arms, with probability 1 - delta / 3."""
        return math.sqrt(2 * math.log(2 / self.own_failure(constants)))

    def direction_factor(self, constants: Constants) -> float:
        """alpha, the factor of the server's errors for all arms and directions, with probability 1 - delta / 3."""
        return direction_factor(constants.dim, self.delta / (3 * constants.num_arms))

    def steps_to_separate(self, constants: Constants, gap: float) -> int | None:
        """The steps in which an agent alone pulls all arms so often that own intervals are shorter than gap / 2."""
        if constants.context == "resampled":
            return None  # what the contexts add to the noise is not a constant of the problem
        proxy, failure = np.array(self.noise_proxy(constants)), self.own_failure(constants)
        pulls = guarantee.pulls_to_separate(
            lambda n: 4 * own_radius(n, proxy, failure), np.array([gap]), constants.horizon
        )
        return constants.num_arms * int(pulls[0])

    def agents(self, view: View) -> "EliminatingAgents":
        """Agents that eliminate arms by their own intervals and those from mu_i."""
        return EliminatingAgents(self, view)

    def server(self, view: ServerView) -> "PoolingServer":
        """The server: one least-squares estimate."""
        return PoolingServer(self, view.constants)

    def claims(self, history: RecordedRun) -> Iterable[Claim]:
        """The theorem of the documentation's page on the guarantee."""
        return guarantee.claims(self, history)


class EliminatingAgents(AgentSide):
    """Agents of Fed-CI-Elimination, each with two intervals for each of its mean rewards.

    Own intervals hold at all times at once. Those from mu_i hold from the server's answer on. An arm is possible until
    own intervals exclude it, and active until both together do. A possible arm that is not active rests: it is pulled
    t^(2/3) / K times by step t, so that a wrong mu_i can be found out.
    """

    def __init__(self, policy: FedCIElimination, view: View):
        self.policy, self.view = policy, view
        constants, shape = view.constants, view.psi.shape[:2]
        self.first = policy.first_pulls(constants)
        self.failure = policy.own_failure(constants)
        self.alpha = policy.direction_factor(constants)
        self.resampled = int(constants.context == "resampled")
        self.pulls: IntArray = np.zeros(shape, dtype=np.int64)
        self.sums: FloatArray = np.zeros(shape)
        self.elapsed = 0  # the steps so far, the same for all agents
        self.reported = 0  # whether the report has been sent
        # The ends of the intervals from mu_i, (n, K).
        self.low: FloatArray = np.full(shape, -np.inf)
        self.high: FloatArray = np.full(shape, np.inf)
        proxy = policy.known_proxy(constants)
        self.share = np.zeros(shape) if proxy is not None else self._spread()
        # The proxy of the bias, (n, K): infinite until theta is bounded.
        self.bias: FloatArray = np.full(shape, np.inf if proxy is None else proxy)
        self.trusting: BoolArray = np.ones(shape[0], dtype=bool)  # whether nothing contradicts mu_i so far
        self.possible: BoolArray = np.ones(shape, dtype=bool)
        self.active: BoolArray = np.ones(shape, dtype=bool)

    def _spread(self) -> FloatArray:
        """The proxies of the features; refuses contexts of which none is known."""
        view = self.view
        spread = spread_of_features(view.distribution, view.feature_map)
        if not np.isfinite(spread).all():
            raise ValueError(
                "Fed-CI-Elimination: expected Gaussian contexts with a linear map, contexts with finite support, or a "
                f"context_proxy, got a {type(view.distribution).__name__} with {type(view.feature_map).__name__} and "
                "no context_proxy; give the policy a variance proxy of <theta_a, phi(a, c) - psi_a>, or state one in "
                "the problem"
            )
        return spread

    def plan(self, down: Message | None, remaining: int) -> Plan:
        """First each arm equally often; then the active arms, as equally as can be, and resting ones now and then."""
        n, num_arms = self.pulls.shape
        if not self.elapsed:
            return Plan.explore_each(self.first, n, num_arms)
        if down is not None:
            self.predict(down)
        self.eliminate()
        length = min(-(-self.elapsed // num_arms), remaining)
        due = resting_pulls(self.elapsed + length, num_arms)
        resting = np.where(self.possible & ~self.active, (due - self.pulls).clip(min=0), 0)
        resting = np.diff(resting.cumsum(axis=1).clip(max=length), axis=1, prepend=0)
        explore = resting + levelled(self.pulls, self.active, length - resting.sum(axis=1))
        return Plan(explore, first_largest(np.where(self.active, self.means(), -np.inf)), length)

    def means(self) -> FloatArray:
        """The mean rewards so far, (n, K)."""
        return self.sums / np.maximum(self.pulls, 1)

    def radii(self) -> FloatArray:
        """The half-widths of the own intervals, (n, K)."""
        proxy = self.policy.noise_proxy(self.view.constants)
        # Contexts that are drawn anew at each pull are noise.
        variance = proxy + self.bias if self.resampled else np.full(self.pulls.shape, proxy)
        return own_radius(self.pulls, variance, self.failure)

    def predict(self, down: Message) -> None:
        """Compute the intervals from mu_i, with the server's estimate."""
        view, theta, known = self.view, down["theta"], down.present["theta"]
        upper, d = np.triu_indices(theta.shape[1]), theta.shape[1]
        V = np.zeros((len(theta), d, d))
        V[:, *upper] = V[:, upper[1], upper[0]] = down["V"]
        if self.policy.known_proxy(view.constants) is None:
            self.bias = np.where(known, self.share * down["norm"] ** 2, np.inf)
        if self.resampled or not view.distribution.finite_support:
            features, possible = view.psi[:, None], np.ones((len(view.psi), 1), dtype=bool)
        else:
            support, weights = view.distribution.nodes()
            features, possible = view.feature_map(support), weights > 0
        middle = np.einsum("nsad,ad->nsa", features, theta)
        squares = np.einsum("nsad,nsad->nsa", np.einsum("nsad,ade->nsae", features, V), features)
        widths = self.alpha * np.sqrt(squares.clip(min=0))
        if not (self.resampled or view.distribution.finite_support):
            widths = widths + self.policy.bias_factor(view.constants) * np.sqrt(self.bias)[:, None]
        self.low = np.where(known, np.where(possible[..., None], middle - widths, np.inf).min(axis=1), -np.inf)
        self.high = np.where(known, np.where(possible[..., None], middle + widths, -np.inf).max(axis=1), np.inf)

    def eliminate(self) -> None:
        """Drop arms whose upper end is below the lower end of another; give mu_i up where it is contradicted."""
        means, radii = self.means(), self.radii()
        equal = rounding(np.abs(means) + np.where(np.isfinite(radii), radii, 0))[:, None]
        lower, upper = means - radii, means + radii
        self.possible = _undominated(self.possible, lower, upper, equal)
        low, high = np.maximum(lower, self.low), np.minimum(upper, self.high)
        contradicted = (low > high + equal).any(axis=1) | ~(self.active & self.possible).any(axis=1)
        self.trusting = self.trusting & ~contradicted
        active = _undominated(self.active & self.possible, low, high, equal)
        self.active = np.where(self.trusting[:, None], active, self.possible)

    def report(self, feedback: Feedback) -> Message | None:
        """After the first plan: mean rewards and psi, and where no proxy is known the proxies of the features."""
        self.pulls = self.pulls + feedback.pulls()
        self.sums = self.sums + feedback.sums()
        self.elapsed += int(feedback.pulls()[0].sum())
        if self.reported:
            return None
        self.reported = 1
        arrays = {"means": self.means(), "psi": self.view.psi}
        if self.policy.known_proxy(self.view.constants) is None:
            arrays["spread"] = self.share
        return Message.of_own("means", arrays, self.view.agents)


def _undominated(among: BoolArray, low: FloatArray, high: FloatArray, equal: FloatArray) -> BoolArray:
    """Those of the arms `among` (n, K) that may be the best of them, up to the tolerance `equal` (n, 1)."""
    highest = np.where(among, low, -np.inf).max(axis=1, keepdims=True)
    undominated: BoolArray = among & (high >= highest - equal)
    return undominated


class PoolingServer(ServerSide):
    """The server of Fed-CI-Elimination: least squares over all reports, arm by arm, and the proxies of its errors."""

    def __init__(self, policy: FedCIElimination, constants: Constants):
        self.policy, self.constants = policy, constants

    def refuses(self, up: Message) -> dict[int, str]:
        """Means, features and proxies of features that can't be."""
        found = super().refuses(up)
        assert up.agents is not None
        largest, longest = largest_mean(self.constants), self.constants.longest or absurd_length(self.constants)
        mean = absurd_reward(self.constants)
        if largest is not None:
            mean = largest + 6 * math.sqrt(self.policy.noise_proxy(self.constants))
        most = {"means": mean, "psi": longest * (1 + 1e-9)}
        if "spread" in up.arrays:
            most["spread"] = absurd_length(self.constants) ** 2
            negative = up.agents[(up["spread"] < 0).any(axis=1)]
            found = dict.fromkeys(negative.tolist(), "sent a negative proxy in spread") | found
        return too_large(up, most) | found

    def answer(self, up: Message) -> Message | None:
        """theta, the upper triangle of V, and the bounds on ||theta_a|| where no proxy of the biases is known."""
        policy, constants = self.policy, self.constants
        first, proxy = policy.first_pulls(constants), policy.known_proxy(constants)
        # Contexts that are drawn anew at each pull average out with the noise.
        each = first if constants.context == "resampled" else 1
        limits = Limits(
            alpha=policy.direction_factor(constants),
            proxy=None if proxy is None else proxy / each,
            norm=math.inf if constants.theta_bound is None else constants.theta_bound,
        )
        spread = up["spread"] / each if proxy is None else np.zeros(up["means"].shape)
        pooled = Pooled.of(up["psi"], up["means"], policy.noise_proxy(constants) / first, spread, limits)
        if not pooled.known.any():
            return None
        arrays = {"theta": pooled.theta, "V": pooled.V[:, *np.triu_indices(constants.dim)]}
        if proxy is None:
            arrays["norm"] = np.where(pooled.known, pooled.norm, 0)
        return Message("estimate", arrays, None, dict.fromkeys(arrays, pooled.known))
