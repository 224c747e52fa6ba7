"""How far the context that is shown may be from the true one: Berkson and classical error."""

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.validation import one_of, real_number

USUAL_STD = 0.05  # of contexts; the paper gives none, and with this one its statements hold


def check_hidden(context: str, error: str, context_std: float) -> None:
    """Refuse combinations of `context`, `error` and `context_std` that mean nothing."""
    one_of("context", context, ("fixed", "resampled"))
    one_of("error", error, ("berkson", "classical"))
    real_number("context_std", context_std, at_least=0)
    if error == "classical" and context == "resampled":
        raise ValueError(
            "error: expected 'berkson' with context='resampled', got 'classical'; a classical error is how what "
            "is shown deviates from one true context, and a resampled context has no such truth"
        )


def around(
    base: FloatArray, context_std: float, error: str, context: str, rng: np.random.Generator
) -> tuple[Gaussian, FloatArray | None]:
    """mu and the hidden contexts (M, n) for centres `base` (M, n).

    "berkson": mu is centred at `base` and the context is drawn from it. "classical": `base` is the context, and mu is
    centred at a noisy observation of it (the paper's "psi by adding an observation noise").
    """
    if error == "classical":
        return Gaussian(base + context_std * rng.standard_normal(base.shape), std=context_std), base
    distribution = Gaussian(base, std=context_std)
    return distribution, None if context == "resampled" else distribution.sample(rng)
