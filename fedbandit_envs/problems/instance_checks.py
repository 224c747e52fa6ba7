"""What an instance refuses: features without a length, kinds that don't fit, contexts that can't be observed."""

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.distributions import ContextDistribution
from fedbandit_envs.contexts.features import is_feature_map
from fedbandit_envs.validation import one_of

OBSERVES = ("distribution", "context", "delayed", "truth", "theta")  #: what agents can be shown
_LARGEST_MEAN = 1e100  # squares and long sums of rewards with smaller means are far from overflow


def check_observed(observe: str, context: str) -> None:
    """Refuse an unknown `observe`, and "context" where each pull draws a new context."""
    one_of("observe", observe, OBSERVES)
    if observe == "context" and context == "resampled":
        raise ValueError(
            "observe: expected 'distribution' with resampled contexts, got 'context'; there is no single context to "
            "observe, so use context='fixed' or a policy that observes the distribution"
        )


def check_kinds(feature_map: object, distribution: object) -> None:
    """Refuse a feature map or a distribution that is none."""
    if not is_feature_map(feature_map):
        raise ValueError(
            f"feature_map: expected a Table, an Identity or a FeatureFunction, got {feature_map!r}; "
            "wrap a function as FeatureFunction(function, num_arms, dim, context_dim)"
        )
    if not isinstance(distribution, ContextDistribution):
        raise ValueError(
            f"distribution: expected a PointMass, Gaussian or Discrete, got a {type(distribution).__name__}; for "
            "contexts that are known exactly use PointMass(contexts)"
        )


def check_norms(name: str, features: FloatArray, theta: FloatArray) -> None:
    """Refuse features (M, K, d) of length 0, and those so long that a mean reward <theta_a, phi> could overflow."""
    with np.errstate(over="ignore"):
        squares = np.einsum("mad,mad->ma", features, features)
        largest = np.sqrt(squares.max()) * np.sqrt(np.einsum("ad,ad->a", theta, theta).max())
    if not largest <= _LARGEST_MEAN:  # NaN too
        raise ValueError(
            f"{name}: expected lengths whose product with the length of theta is at most {_LARGEST_MEAN:g}, got "
            f"{largest:g}; the sums and squares of such rewards can't be computed, so use other units"
        )
    if not squares.min() > 0:
        agent, arm = (int(axis) for axis in np.unravel_index(squares.argmin(), squares.shape))
        raise ValueError(
            f"{name}: expected vectors of positive length, got a zero vector for agent {agent}, arm {arm}; an arm "
            "without features can't be estimated: drop it or change its features"
        )
