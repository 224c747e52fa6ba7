"""Beliefs about an agent's K mean rewards: mixtures of Gaussians with common factors, and what rewards teach them."""

from dataclasses import dataclass

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.roots import inverse_root
from fedbandit_envs.seeding import RowDraws

# At most about this many random numbers are held at a time.
_CHUNK = 2**20
# Samples of so many agents are made and compared together: what comes in between takes little memory.
_TOGETHER = 256
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Belief:
    """What n agents believe about their K mean rewards: for each agent a mixture of S Gaussians.

    In a component the mean rewards are r = mean + factors z + sqrt(variance) eps, where z (q,) and eps (K,) are
    standard normal. The factors carry what all arms share, which is the hidden context; the variance is what each arm
    has of its own. `given` leads from a belief to the belief after some rewards, and needs matrices of q x q only,
    never of K x K.

    >>> belief = Belief(np.zeros((1, 1)), np.zeros((1, 1, 2)), np.ones((1, 1, 2)), np.zeros((1, 1, 2, 0)))
    >>> after = belief.given(np.array([[3, 0]]), np.array([[4.0, 0.0]]), noise=np.ones((1, 2)))
    >>> after.expected_rewards()  # arm 0: precision 1 of the prior and 3 of the rewards, whose sum is 4
    array([[1., 0.]])
    >>> after.variance[0, 0]
    array([0.25, 1.  ])
    """

    log_weights: FloatArray  #: (n, S) logarithms of the components' weights, which sum to 1 for each agent
    mean: FloatArray  #: (n, S, K) the mean of each component
    variance: FloatArray  #: (n, S, K) the variance that each arm has of its own
    factors: FloatArray  #: (n, S, K, q) how the common z moves each arm

    @property
    def weights(self) -> FloatArray:
        """The probabilities of the components, (n, S)."""
        return np.exp(self.log_weights)

    def expected_rewards(self) -> FloatArray:
        """The mean of the mixture for each arm, (n, K)."""
        return np.einsum("ns,nsa->na", self.weights, self.mean)

    def given(self, pulls: IntArray, sums: FloatArray, noise: FloatArray) -> "Belief":
        """The belief after some rewards.

        Args:
            pulls: how often each arm was pulled, (n, K).
            sums: the sums of its rewards, (n, K).
            noise: the variance of one reward about its mean, (n, K).
        """
        residual, unexplained, information = self._residuals(pulls, sums, noise)
        weighted = information[..., None] * self.factors
        A = np.einsum("nsaq,nsap->nsqp", weighted, self.factors) + np.eye(self.factors.shape[3])  # precision of z
        root = inverse_root(A)  # A^-1 = root^T root
        z = np.einsum("nsqp,nsap,nsa->nsq", root, weighted, residual)  # mean of z, in units of its spread
        factors = unexplained[..., None] * np.einsum("nsap,nsqp->nsaq", self.factors, root)
        mean = self.mean + (1 - unexplained) * residual + np.einsum("nsaq,nsq->nsa", factors, z)
        fit = np.einsum("nsq,nsq->ns", z, z) - np.einsum("nsa,nsa,nsa->ns", information, residual, residual)
        log_det = np.log(unexplained).sum(axis=2) + 2 * np.log(np.einsum("nsqq->nsq", root)).sum(axis=2)
        log_weights = _normalised(self.log_weights + 0.5 * (fit + log_det))
        return Belief(log_weights, mean, self.variance * unexplained, factors)

    def factors_given_other_arms(
        self, pulls: IntArray, sums: FloatArray, noise: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The mean (n, S, K, q) and covariance (n, S, K, q, q) of z, for each arm given the rewards of all other arms.

        The arguments are those of `given`.
        """
        residual, _, information = self._residuals(pulls, sums, noise)
        n, components, num_arms, q = self.factors.shape
        weighted = information[..., None] * self.factors
        squares = (weighted[..., None] * self.factors[..., None, :]).reshape(n, components, num_arms, q * q)
        # The others are summed, not subtracted from the whole: the arm left out may outweigh all others by far.
        others = 1 - np.eye(num_arms)
        seen = np.einsum("ab,nsbx->nsax", others, squares).reshape(n, components, num_arms, q, q)
        root = inverse_root(seen + np.eye(q))
        covariance = np.einsum("nsaxq,nsaxp->nsaqp", root, root)
        moments = np.einsum("ab,nsbq->nsaq", others, weighted * residual[..., None])
        return np.einsum("nsaqp,nsap->nsaq", covariance, moments), covariance

    def _residuals(
        self, pulls: IntArray, sums: FloatArray, noise: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Residuals, the share of the own part that stays uncertain given z, and the precision of the residuals.

        Each is an array (n, S, K). The arguments are those of `given`.
        """
        precision = (pulls / noise)[:, None]  # precision of the mean reward that was seen
        residual = (sums / pulls.clip(min=1))[:, None] - self.mean
        unexplained = 1 / (1 + precision * self.variance)
        return residual, unexplained, precision * unexplained  # 1 / (variance + noise / pulls)

    def against(self, arm: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The mean of r_a - r_arm, its variance, and the mean of its positive part, (n, K) each, for `arm` (n,)."""
        weights, (mean, variance) = self.weights, self._differences(arm)
        average = np.einsum("ns,nsa->na", weights, mean)
        spread = np.einsum("ns,nsa->na", weights, variance + (mean - average[:, None]) ** 2)
        return average, spread, np.einsum("ns,nsa->na", weights, _positive_part(mean, np.sqrt(variance)))

    def _differences(self, arm: IntArray) -> tuple[FloatArray, FloatArray]:
        """The mean and variance of r_a - r_arm in each component, (n, S, K)."""
        rows = np.arange(len(arm))
        common = self.factors - self.factors[rows, :, arm][:, :, None]
        variance = self.variance + self.variance[rows, :, arm][:, :, None]
        variance += np.einsum("nsaq,nsaq->nsa", common, common)
        variance[rows, :, arm] = 0
        return self.mean - self.mean[rows, :, arm][:, :, None], variance

    def best_in_samples(self, number: int, draws: RowDraws, num_agents: int, rows: IntArray) -> IntArray:
        """How often each arm is best in samples of the belief, (len(rows), K).

        Samples come in pairs that are mirrored at the mean of their component. This takes half the random numbers, and
        the counts vary less.

        Args:
            number: how many samples are drawn.
            draws: random numbers for all agents of the belief.
            num_agents: M, the number of all agents of the problem.
            rows: the agents that are sampled, as rows of the belief.
        """
        num_arms, q = self.factors.shape[2:]
        # The size of a chunk depends on the number of all agents: it is the same however they are split into blocks.
        size = max(1, _CHUNK // (num_agents * (num_arms + q)))
        counts = np.zeros((len(rows), num_arms), dtype=np.int64)
        pairs = -(-number // 2)
        for start in range(0, pairs, size):
            drawn = min(size, pairs - start)
            mirrored = min(drawn, number - drawn - 2 * start)  # an odd number leaves one sample without its mirror
            self._count_best(counts, drawn, mirrored, draws, rows)
        return counts

    def _count_best(self, counts: IntArray, drawn: int, mirrored: int, draws: RowDraws, rows: IntArray) -> None:
        """Add how often each arm is best in so many new samples of these rows, and in the mirrors of the first ones."""
        num_arms, q = self.factors.shape[2:]
        own, z, uniforms = draws.normals(drawn, num_arms), draws.normals(drawn, q), draws.uniforms(drawn)
        for first in range(0, len(rows), _TOGETHER):
            few = rows[first : first + _TOGETHER]
            counts[first : first + _TOGETHER] += self.rows(few)._best(own[few], z[few], uniforms[few], mirrored)

    def _best(self, own: FloatArray, z: FloatArray, uniforms: FloatArray, mirrored: int) -> IntArray:
        """How often each arm is best, (n, K), in samples made of random numbers and in the first `mirrored` mirrors."""
        centre, deviation = self._samples(own, z, uniforms)
        best = [(centre + deviation).argmax(axis=2), (centre - deviation)[:, :mirrored].argmax(axis=2)]
        n, num_arms = len(own), own.shape[2]
        place = np.concatenate(best, axis=1) + num_arms * np.arange(n)[:, None]
        return np.bincount(place.ravel(), minlength=n * num_arms).reshape(n, num_arms)

    def rows(self, index: IntArray | slice) -> "Belief":
        """The belief of some of these agents."""
        return Belief(self.log_weights[index], self.mean[index], self.variance[index], self.factors[index])

    def _samples(self, own: FloatArray, z: FloatArray, uniforms: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Centres (n, k or 1, K) and deviations (n, k, K) of k samples.

        They are made of normals `own` (n, k, K) and `z` (n, k, q) and of uniforms (n, k), which choose the component.
        """
        components, q = len(self.factors[0]), self.factors.shape[3]
        first = own * np.sqrt(self.variance[:, :1])
        if q:
            first += np.einsum("nkq,naq->nka", z, self.factors[:, 0])
        if components == 1:
            return self.mean, first
        centre = np.repeat(self.mean[:, :1], own.shape[1], axis=1)
        chosen = (uniforms[..., None] >= self.weights.cumsum(axis=1)[:, None, :-1]).sum(axis=2)  # (n, k)
        for component in range(1, components):  # the samples of other components take the place of the first one's
            agent, sample = np.nonzero(chosen == component)
            centre[agent, sample] = self.mean[agent, component]
            deviation = own[agent, sample] * np.sqrt(self.variance[agent, component])
            if q:
                deviation += np.einsum("mq,maq->ma", z[agent, sample], self.factors[agent, component])
            first[agent, sample] = deviation
        return centre, first


def _normalised(log_weights: FloatArray) -> FloatArray:
    """Logarithms of weights, shifted so that the weights of each row sum to 1."""
    shifted = log_weights - log_weights.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _positive_part(mean: FloatArray, std: FloatArray) -> FloatArray:
    """E[max(x, 0)] for normal x with this mean and standard deviation."""
    from scipy.special import ndtr

    with np.errstate(over="ignore"):  # the ratio or its square may overflow; exp(-inf) is then 0, which is right
        ratio = mean / np.maximum(std, _TINY)
        density = np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    return std * density + mean * ndtr(ratio)
