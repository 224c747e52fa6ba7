"""The two ways in which the context that is shown may differ from the true one: Berkson and classical error."""

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.problems.segments import CONTEXTS
from fedbandit_envs.validation import one_of, real_number

USUAL_STD = 0.05  #: the usual standard deviation of contexts; the paper gives none, and with it its statements hold


def check_hidden(context: str, error: str, context_std: float) -> None:
    """Refuse combinations of `context`, `error` and `context_std` that mean nothing."""
    one_of("context", context, CONTEXTS)
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
    """The distribution mu and the hidden contexts (M, n) of agents around given centres.

    Args:
        base: (M, n) the centres.
        context_std: the standard deviation of each number of a context.
        error: with "berkson" mu is centred at `base`, and the context is drawn from mu. With "classical" `base` is the
            context, and mu is centred at a noisy observation of it (the paper's "psi by adding an observation noise").
        context: "fixed", or "resampled": there are then no contexts, and None is returned for them.
        rng: the source of the hidden contexts or of the observation noise.

    >>> mu, contexts = around(np.zeros((2, 3)), 0.1, "classical", "fixed", np.random.default_rng(0))
    >>> contexts
    array([[0., 0., 0.],
           [0., 0., 0.]])
    >>> bool((mu.mean == 0).any())
    False
    """
    if error == "classical":
        return Gaussian(base + context_std * rng.standard_normal(base.shape), std=context_std), base
    distribution = Gaussian(base, std=context_std)
    return distribution, None if context == "resampled" else distribution.sample(rng)
