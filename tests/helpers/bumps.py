"""A problem whose features are bumps in a context on a line: not linear, so that the bias of a context is skewed."""

import numpy as np

CENTRES = np.array([0.92, 0.93, -0.97, -0.32, 0.63, 1.4])


def bumps(contexts):
    """exp(-6 (c - centre)^2) for each of six centres: the same features for all 8 arms."""
    heights = np.exp(-6 * (contexts - CENTRES) ** 2) + 1e-3
    return np.repeat(heights[:, None], 8, axis=1)
