"""Fed-CI plays with any context distribution, also with one that the library does not know."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from beliefs import others, prior_of, view_of

import fedbandit_envs as fb
from fedbandit_agents.inference.posterior import Belief
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.testing import check_policy


@dataclass(frozen=True, eq=False)
class Square(ContextDistribution):
    """Contexts that are uniform in a square around each centre, integrated by Gauss and Legendre."""

    centres: FloatArray  # (M, 2)
    half: float = 0.4

    @property
    def num_agents(self) -> int:
        return len(self.centres)

    @property
    def dim(self) -> int:
        return 2

    def rows(self, index: IntArray) -> "Square":
        return Square(self.centres[index], self.half)

    def sample(self, rng: np.random.Generator) -> FloatArray:
        return self.centres + rng.uniform(-self.half, self.half, self.centres.shape)

    def encode(self) -> dict[str, FloatArray]:
        return {"centre": self.centres}

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        line, weight = np.polynomial.legendre.leggauss(5)
        offsets = self.half * np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
        weights = (np.outer(weight, weight) / 4).ravel()
        return self.centres[:, None] + offsets, np.broadcast_to(weights, (self.num_agents, len(weights)))


@dataclass(frozen=True, eq=False)
class Coin(Square):
    """One of two opposite corners of the square."""

    finite_support: ClassVar[bool] = True

    def rows(self, index: IntArray) -> "Coin":
        return Coin(self.centres[index], self.half)

    def sample(self, rng: np.random.Generator) -> FloatArray:
        return self.centres + self.half * rng.choice([-1.0, 1.0], (self.num_agents, 1))

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        corners = self.half * np.array([[-1.0, -1.0], [1.0, 1.0]])
        return self.centres[:, None] + corners, np.full((self.num_agents, 2), 0.5)


CENTRES = np.random.default_rng(0).uniform(0.3, 1.0, (6, 2))
THETA = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])


def prior(distribution: ContextDistribution) -> Belief:
    """The prior belief of agents for whom theta is known."""
    view = view_of(distribution, fb.Identity(3, 2))
    return prior_of(view, others(view, THETA, np.zeros((3, 2, 2))))


def test_the_prior_of_an_own_distribution_has_the_moments_of_its_rewards() -> None:
    # A coordinate that is uniform on an interval of half length h has variance h^2 / 3, here 0.16 / 3.
    belief = prior(Square(CENTRES))
    np.testing.assert_allclose(belief.expected_rewards(), CENTRES @ THETA.T)
    found = belief.factors[:, 0] @ belief.factors[:, 0].transpose(0, 2, 1)
    np.testing.assert_allclose(found, np.broadcast_to(THETA @ THETA.T * 0.16 / 3, found.shape), atol=1e-12)
    np.testing.assert_allclose(belief.variance, 0, atol=1e-12)


def test_the_prior_of_an_own_distribution_with_finite_support_is_exact() -> None:
    coin = Coin(CENTRES)
    own, known = prior(coin), prior(fb.Discrete(*coin.nodes()))
    assert own.variance.shape == (6, 2, 3)
    for name in ("log_weights", "mean", "variance", "factors"):
        np.testing.assert_array_equal(getattr(own, name), getattr(known, name))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Square, Coin])
@pytest.mark.parametrize("name", ["Fed-CI", "Fed-CI-Elimination", "Local-Thompson"])
def test_policies_that_infer_the_context_play_with_an_own_distribution(kind: type[Square], name: str) -> None:
    # <theta_a, c - centre> lies within 0.4 * (0.6 + 0.6), which is a proxy of 0.48^2.
    problem = fb.Linear(THETA, contexts=kind(CENTRES), feature_map=fb.Identity(3, 2), noise_std=0.3, context_proxy=0.24)
    check_policy(fb.make_policy(name), problems={"own": problem})
    played, uniform = (
        fb.play(fb.HiddenContextBandit(problem, max_cycles=2000), fb.make_policy(policy), seed=1)
        for policy in (name, "Uniform")
    )
    assert played.mean_regret()[-1] < 0.5 * uniform.mean_regret()[-1]
