"""The joint posterior of all theta where one Gaussian context moves all arms of an agent.

Agent i has phi(a, c) = psi_a + A z with a standard normal z that all arms share. Its mean rewards are then normal, with
means <theta_a, psi_a> and covariance Theta A A^T Theta^T + the variances of the noise. Theta is found where prior and
likelihood of all rewards together are largest, by Fisher scoring. There theta is taken for normal, with the expected
information as its precision. Arms are not taken one by one: what one arm tells of z helps to read the others.
"""

from dataclasses import dataclass

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.roots import inverse_root, matrix_root

_MOST_STEPS = 20
_SHORTEST = 2.0**-10  # no step is made shorter than by this factor
_SETTLED = 0.01  # in standard deviations of theta: a shorter step is the last
# The bias is never explained wholly: this share of its variance counts as noise of each arm. A map that all theta share
# is else confirmed by rewards without end.
_NUGGET = 0.03**2


@dataclass(frozen=True, eq=False)
class MeanRewards:
    """What m agents tell the server: their law of features, and their mean rewards.

    >>> one = np.ones((1, 1, 1))  # psi = 1 and phi = 1 + z: a mean reward 2, with noise of variance 3
    >>> told = MeanRewards(one, one, np.array([[2.0]]), np.array([[3.0]]))
    >>> told.at(np.ones((1, 1))).score().round(3).item()  # slope of -(2 - t)^2 / 2v - log(v) / 2, v = 3 + t^2, at t = 1
    0.062
    """

    psi: FloatArray  #: (m, K, d) the expected features
    root: FloatArray  #: (m, d, q) A, with A A^T the covariance of the features, which all arms share
    means: FloatArray  #: (m, K) the mean rewards
    variance: FloatArray  #: (m, K) the variances of their noise, infinite where an arm was not pulled

    def rows(self, part: slice) -> "MeanRewards":
        """Those of some agents."""
        return MeanRewards(self.psi[part], self.root[part], self.means[part], self.variance[part])

    def at(self, theta: FloatArray) -> "Likelihood":
        """The likelihood near theta (K, d)."""
        factors = np.einsum("ad,mdq->maq", theta, self.root)
        precision = 1 / (self.variance + _NUGGET * np.einsum("maq,maq->ma", factors, factors))
        weighted = precision[..., None] * factors
        seen = np.einsum("map,maq->mpq", weighted, factors) + np.eye(factors.shape[2])
        inverse = inverse_root(seen)
        return Likelihood(
            self,
            self.means - np.einsum("mad,ad->ma", self.psi, theta),
            precision,
            np.einsum("map,mqp->maq", weighted, inverse),
            inverse,
        )


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The normal likelihood of the mean rewards at one theta, whose precision is diag(precision) - common common^T."""

    rewards: MeanRewards
    residual: FloatArray  #: (m, K) mean rewards less <theta_a, psi_a>
    precision: FloatArray  #: (m, K) the precision that the arms' own noise leaves
    common: FloatArray  #: (m, K, q) what all arms share: its square is taken off the precision
    inverse: FloatArray  #: (m, q, q) R, with R^T R the covariance of z given all rewards

    def log(self) -> float:
        """The logarithm of the likelihood of all agents together, but for a constant."""
        along = np.einsum("maq,ma->mq", self.common, self.residual)
        squares = np.einsum("ma,ma,ma->", self.precision, self.residual, self.residual)
        logs = np.log(np.where(self.precision > 0, self.precision, 1)).sum()
        return 0.5 * float(logs - squares + (along**2).sum()) + float(np.log(np.einsum("mqq->mq", self.inverse)).sum())

    def score(self) -> FloatArray:
        """The gradient of each agent's log likelihood by theta, (m, K, d)."""
        moved = self._moved()
        along = np.einsum("maq,ma->mq", self.common, self.residual)
        weighted = self.precision * self.residual - np.einsum("maq,mq->ma", self.common, along)
        shift = np.einsum("mad,ma->md", moved, self.residual)
        return weighted[..., None] * (self.rewards.psi + shift[:, None]) - moved

    def information(self) -> FloatArray:
        """Fisher's information of each agent, (m, K d, K d)."""
        m, num_arms, d = self.rewards.psi.shape
        root, moved = self.rewards.root, self._moved()
        half = np.einsum("mqp,mdp->mdq", self.inverse, root)
        explained = np.einsum("mdq,meq->mde", root, root) - np.einsum("mdq,meq->mde", half, half)
        W = -np.einsum("maq,mbq->mab", self.common, self.common)
        W[:, np.arange(num_arms), np.arange(num_arms)] += self.precision
        found = W[:, :, None, :, None] * explained[:, None, :, None, :]
        weighted = np.einsum("mab,mad->mabd", W, self.rewards.psi)
        found += np.swapaxes(weighted, 2, 3)[..., None] * self.rewards.psi[:, None, None]
        found += moved[:, :, None, None, :] * np.moveaxis(moved, 1, 2)[:, None, :, :, None]
        return found.reshape(m, num_arms * d, num_arms * d)

    def mean_rewards(self, theta: FloatArray, root: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The mean (m, K) and the covariance (m, K, K) of the agents' mean rewards.

        Given theta, z is normal, and so is the part of the bias that counts as noise. The mean moves with theta in two
        ways: directly, and because another theta suggests another z.

        Args:
            theta: where the likelihood was taken, (K, d).
            root: R (K d, K d) with R^T R the covariance of theta.
        """
        m, num_arms, d = self.rewards.psi.shape
        factors = np.einsum("ad,mdq->maq", theta, self.rewards.root)
        z = np.einsum("mpq,maq,ma->mp", np.swapaxes(self.inverse, 1, 2), self.common, self.residual)
        left = self.residual - np.einsum("maq,mq->ma", factors, z)
        x = self.rewards.psi + np.einsum("mdq,mq->md", self.rewards.root, z)[:, None]
        given = np.einsum("maq,mpq->map", factors, self.inverse)  # a root of the covariance given theta
        answer = np.einsum("map,mpq->maq", given, self.inverse)
        moved = np.einsum("mbq,mbd->mqbd", -self.precision[..., None] * factors, x)
        moved += np.einsum("mdq,mb->mqbd", self.rewards.root, self.precision * left)
        slope = np.einsum("maq,mqx->max", answer, moved.reshape(m, answer.shape[2], -1)).reshape(
            m, num_arms, num_arms, d
        )
        arms = np.arange(num_arms)
        slope[:, arms, arms] += x
        uncertain = np.einsum("may,xy->max", slope.reshape(m, num_arms, -1), root)
        covariance = np.einsum("map,mbp->mab", given, given) + np.einsum("max,mbx->mab", uncertain, uncertain)
        unexplained = _NUGGET * np.einsum("maq,maq->ma", factors, factors)
        share = unexplained * self.precision  # how much of what is left is bias, and not noise
        covariance *= (1 - share)[:, :, None] * (1 - share)[:, None]
        covariance[:, arms, arms] += unexplained * (1 - share)
        return np.einsum("mad,ad->ma", x, theta) + share * left, covariance

    def _moved(self) -> FloatArray:
        """W Theta A A^T, (m, K, d)."""
        return np.einsum("maq,mdq->mad", np.einsum("maq,mqp->map", self.common, self.inverse), self.rewards.root)


@dataclass(frozen=True, eq=False)
class JointPosterior:
    """The posterior of all theta: a prior of each theta_a, and the mean rewards of all agents."""

    rewards: MeanRewards
    precision: FloatArray  #: (d, d) the precision of each theta_a before any reward
    shift: FloatArray  #: (d,) the precision times the mean of each theta_a before any reward
    rows: int  #: the number of agents whose information is held in memory at a time

    def height(self, theta: FloatArray) -> float:
        """The logarithm of the posterior density at theta (K, d), but for a constant."""
        off = np.einsum("ad,ad->", np.einsum("ad,de->ae", theta, self.precision) / 2 - self.shift, theta)
        return self.rewards.at(theta).log() - float(off)

    def slope(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The gradient (K d,), and R (K d, K d) with R^T R the covariance of theta by the expected information."""
        num_arms = len(theta)
        score = self.shift - np.einsum("de,ae->ad", self.precision, theta)
        information = np.einsum("ab,de->adbe", np.eye(num_arms), self.precision).reshape(theta.size, theta.size)
        for start in range(0, len(self.rewards.means), self.rows):
            likelihood = self.rewards.rows(slice(start, start + self.rows)).at(theta)
            score = score + likelihood.score().sum(axis=0)
            information += likelihood.information().sum(axis=0)
        return score.ravel(), inverse_root(information)

    def highest(self, theta: FloatArray) -> FloatArray:
        """The theta (K, d) at which the posterior density is largest, by Fisher scoring from a first one."""
        now = self.height(theta)
        for _ in range(_MOST_STEPS):
            score, root = self.slope(theta)
            along = np.einsum("xy,y->x", root, score)
            step, length = np.einsum("xy,x->y", root, along).reshape(theta.shape), 1.0
            while (then := self.height(theta + length * step)) < now and length > _SHORTEST:
                length /= 2
            if then < now:
                break
            theta, now = theta + length * step, then
            if np.einsum("x,x->", along, along) < _SETTLED**2 * theta.size:
                break
        return theta

    def of_agents(self, theta: FloatArray, columns: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What all rewards say about the mean rewards of each agent.

        Args:
            theta: where the posterior density is largest, (K, d).
            columns: the number q of factors.

        Returns:
            The mean (m, K), the variance that each arm has of its own (m, K), and factors (m, K, q) that arms share.
        """
        _, root = self.slope(theta)
        parts = []
        for start in range(0, len(self.rewards.means), self.rows):
            mean, covariance = self.rewards.rows(slice(start, start + self.rows)).at(theta).mean_rewards(theta, root)
            factors = matrix_root(covariance)[..., :columns]
            own = np.einsum("maa->ma", covariance) - np.einsum("maq,maq->ma", factors, factors)
            parts.append((mean, own.clip(min=0), factors))
        means, own_variances, all_factors = zip(*parts, strict=True)
        return np.concatenate(means), np.concatenate(own_variances), np.concatenate(all_factors)
