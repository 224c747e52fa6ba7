"""The learnt MovieLens-100K factors that ship with the package: users as contexts, film clusters as arms.

A user's context c is a row of `users`; the reward of arm a is <theta_a, c>, at most 1. The factors were learnt by
`fedbandit_envs.problems.movielens.learning` from ratings that may not be redistributed; README.md beside it has the
citation.

The published ranges (norms, gaps) hold for `eligible_users`, that is by selection, not for all 943 users.
"""

import io
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import FloatArray, IntArray, read_only
from fedbandit_envs.validation import one_of

NUM_USERS, NUM_ARMS, DIM = 943, 30, 3
FACTORS = ("completed", "masked")

NORM_SQUARED_RANGE = (0.4, 0.8)
SMALLEST_GAP = 0.01  # between the best and the second-best arm
LARGEST_GAP = 0.8  # between the best and the worst arm
ELL, L = (math.sqrt(bound) for bound in NORM_SQUARED_RANGE)  # what selection guarantees about ||c||


@dataclass(frozen=True, eq=False)
class MovieLensFactors:
    """Non-negative factors of the rating matrix of MovieLens-100K.

    The expected reward of an arm for a user is the product of their rows, at most 1. `load_factors` gives the factors
    that ship with the package; `eligible_users` selects the users in the ranges of the paper.

    >>> factors = load_factors("masked")
    >>> (factors.users @ factors.theta.T).shape
    (943, 30)
    """

    users: FloatArray  #: (943, d) a context per user
    theta: FloatArray  #: (K, d) the centre of a cluster of films per arm


def load_factors(factors: str = "completed") -> MovieLensFactors:
    """The shipped factors: "completed" (missing ratings filled first) or "masked" (observed ratings only).

    Completed factors have 2 different optimal arms among the eligible users; masked ones are more heterogeneous.
    The arrays are shared between calls, and read-only.
    """
    return _shipped()[one_of("factors", factors, FACTORS)]


def eligible_users(factors: MovieLensFactors) -> IntArray:
    """Indices, in increasing order, of the users inside the paper's ranges of norms and gaps.

    ||c||^2 in [0.4, 0.8], best-to-second gap at least 0.01, best-to-worst gap at most 0.8.
    """
    norm_squared = np.sum(factors.users**2, axis=1)
    rewards = np.sort(factors.users @ factors.theta.T, axis=1)  # (users, K), best last
    low, high = NORM_SQUARED_RANGE
    return np.flatnonzero(
        (low <= norm_squared)
        & (norm_squared <= high)
        & (rewards[:, -1] - rewards[:, -2] >= SMALLEST_GAP)
        & (rewards[:, -1] - rewards[:, 0] <= LARGEST_GAP)
    )


def decode_factors(content: bytes, source: str) -> dict[str, MovieLensFactors]:
    """Both variants from the bytes of an .npz file; `source` names it in errors."""
    from zipfile import BadZipFile

    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {
                name: MovieLensFactors(
                    users=_checked(archive[f"{name}_users"], (NUM_USERS, DIM)),
                    theta=_checked(archive[f"{name}_theta"], (NUM_ARMS, DIM)),
                )
                for name in FACTORS
            }
    except (ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ValueError(
            f"{source}: expected a file of MovieLens factors, got another ({error}); reinstall fedbandit-envs, "
            "or rebuild it with scripts/build_movielens.py"
        ) from error


def encode_factors(factors: dict[str, MovieLensFactors]) -> bytes:
    """The bytes of an .npz file of both variants; equal factors give equal bytes."""
    arrays = {f"{name}_{part}": getattr(factors[name], part) for name in FACTORS for part in ("users", "theta")}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


@lru_cache(maxsize=1)
def _shipped() -> dict[str, MovieLensFactors]:
    file = resources.files(__package__) / "factors.npz"
    return decode_factors(file.read_bytes(), str(file))


def _checked(array: NDArray[np.generic], shape: tuple[int, int]) -> FloatArray:
    if array.dtype != np.float64 or array.shape != shape:
        raise ValueError(f"expected float64 of shape {shape}, got {array.dtype} of shape {array.shape}")
    values = array.astype(np.float64)
    wrong = values[~(np.isfinite(values) & (values >= 0))]
    if wrong.size:
        raise ValueError(f"expected finite factors of at least 0, got {wrong[0]:g}")
    return read_only(values)
