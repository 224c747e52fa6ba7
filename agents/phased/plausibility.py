"""Reports that can't be: bounds that every honest report keeps, as pure functions of arrays.

The bounds allow for six standard deviations of noise, which a sub-Gaussian number exceeds with a probability below
4e-8. They follow from what a problem guarantees in its `Constants`, and are off where it guarantees nothing.
"""

from collections.abc import Mapping

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.messages import Message

_DEVIATIONS = 6.0  # hidden contexts may be this many standard deviations away
# The most by which the total traces of honest agents, who all pull equally often, differ beyond (longest / shortest)^2.
_TRACE_SLACK = 2.0
_TOGETHER = 512  # the matrices of so many agents are checked together, since what comes in between takes memory
_ROUNDING = 1e-9  # what rounding may change in a matrix, as a share of its trace


# Regressors are not this many times as long as L, and rewards not this many times as large as the noise, or as 1,
# where nothing is guaranteed about them.
_ABSURD_LENGTH, _ABSURD_REWARD = 100.0, 1e9


def absurd_length(constants: Constants) -> float:
    """A norm that no regressor has, whatever is guaranteed, such as that of a revealed context.

    >>> sizes = {"num_agents": 3, "num_arms": 4, "dim": 2, "horizon": 100, "noise_std": 1.0, "context": "fixed"}
    >>> absurd_length(Constants(**sizes, ell=0.5, L=2.0))
    200.0
    """
    return _ABSURD_LENGTH * max(constants.L, constants.longest or 0.0)


def absurd_reward(constants: Constants) -> float:
    """A size that no reward has, whatever is guaranteed: a billion times the noise scale, or a billion.

    >>> sizes = {"num_agents": 3, "num_arms": 4, "dim": 2, "horizon": 100, "noise_std": 2.0, "context": "fixed"}
    >>> absurd_reward(Constants(**sizes, ell=0.5, L=1.0))
    2000000000.0
    """
    return _ABSURD_REWARD * max(constants.noise_std, 1.0)


def absurd_sums(gram: FloatArray, moments: FloatArray, constants: Constants) -> dict[int, str]:
    """The rows of sums of x x^T (n, B, d, d) and x y (n, B, d) that T pulls can't have by far, and the reason.

    The bounds are so wide that they hold where nothing is guaranteed. They keep sums of all agents in a range in which
    linear algebra works.

    >>> sizes = {"num_agents": 2, "num_arms": 1, "dim": 1, "horizon": 100, "noise_std": 1.0, "context": "fixed"}
    >>> constants = Constants(**sizes, ell=0.5, L=1.0)
    >>> absurd_sums(np.array([[[[4.0]]], [[[1e20]]]]), np.ones((2, 1, 1)), constants)
    {1: 'sent matrices of trace 1e+20 in gram, at most 1e+06 can be'}
    """
    with np.errstate(over="ignore", invalid="ignore"):
        totals = np.abs(gram.trace(axis1=2, axis2=3)).sum(axis=1)
        norms = np.sqrt(np.einsum("nad,nad->na", moments, moments)).max(axis=1)
    most = constants.horizon * absurd_length(constants) ** 2
    longest = constants.horizon * absurd_length(constants) * absurd_reward(constants)
    found = {
        int(row): f"sent matrices of trace {totals[row]:.3g} in gram, at most {most:.3g} can be"
        for row in np.flatnonzero(~(totals <= most))
    }
    for row in np.flatnonzero(~(norms <= longest)):
        found.setdefault(int(row), f"sent moments of norm {norms[row]:.3g}, at most {longest:.3g} can be")
    return found


def too_large(up: Message, most: Mapping[str, float]) -> dict[int, str]:
    """The agents that sent an entry of these arrays beyond its bound, and the reason.

    >>> too_large(Message("sums", {"gram": np.array([[1.0], [-7.0]])}, np.array([3, 5])), {"gram": 6.0})
    {5: 'sent a number of size 7 in gram, at most 6 can be'}
    """
    found: dict[int, str] = {}
    assert up.agents is not None
    for name, bound in most.items():
        largest = np.abs(up[name]).reshape(len(up.agents), -1).max(axis=1)
        for row in np.flatnonzero(~(largest <= bound)):
            reason = f"sent a number of size {largest[row]:.3g} in {name}, at most {bound:.3g} can be"
            found.setdefault(int(up.agents[row]), reason)
    return found


def largest_mean(constants: Constants) -> float | None:
    """A bound on every mean reward: |psi| S, and six standard deviations for hidden contexts; None where there is none.

    It needs a bound S of the norms of theta, one of the norms of psi, and the variance proxy of the contexts.

    >>> sizes = {"num_agents": 3, "num_arms": 4, "dim": 2, "horizon": 100, "noise_std": 1.0, "context": "fixed"}
    >>> largest_mean(Constants(**sizes, ell=0.5, L=1.0, theta_bound=1.0, context_proxy=0.01, shortest=0.5, longest=1.0))
    1.6
    """
    if constants.theta_bound is None or constants.context_proxy is None or constants.longest is None:
        return None
    return constants.longest * constants.theta_bound + _DEVIATIONS * float(np.sqrt(constants.context_proxy))


def longest_estimates(constants: Constants, pulls: IntArray, norms: FloatArray | None = None) -> FloatArray | None:
    """(largest mean + 6 sigma / sqrt(n)) / |psi|, the norms that estimates from n pulls can have; None: any norm.

    Args:
        constants: the public constants of the problem.
        pulls: n, of any shape.
        norms: ||psi||, of the same shape, for a server that knows them; else the shortest counts.

    >>> sizes = {"num_agents": 3, "num_arms": 4, "dim": 2, "horizon": 100, "noise_std": 1.0, "context": "fixed"}
    >>> constants = Constants(**sizes, ell=0.5, L=1.0, theta_bound=1.0, context_proxy=0.0, shortest=0.5, longest=1.0)
    >>> longest_estimates(constants, np.array([1, 36]))  # (1 + 6) / 0.5 and (1 + 1) / 0.5
    array([14.,  4.])
    """
    largest = largest_mean(constants)
    least = constants.shortest if norms is None else norms
    if largest is None or least is None or not np.all(least):
        return None
    noise = _DEVIATIONS * constants.noise_std / np.sqrt(np.maximum(pulls, 1))
    return np.asarray((largest + noise) / least)


def impossible_grams(gram: FloatArray, constants: Constants, *, together: bool = True) -> dict[int, str]:
    """The rows of sums of psi psi^T (n, K, d, d) that can't be, and the reason.

    Such sums are symmetric and have no negative eigenvalue, and n pulls give a trace of at most n |psi|^2. Agents that
    report together have pulled equally often, so that the trace of one also tells about the others: no total trace is
    much more than the square of the longest psi over the shortest times the median. An arm that was pulled has at least
    the trace of one pull. Traces are bounded only where the norms of psi are.

    Args:
        gram: the sums, (n, K, d, d), or (n, 1, d, d) if all arms have one theta.
        constants: the public constants of the problem.
        together: whether the agents last reported at the same time.

    >>> sizes = {"num_agents": 2, "num_arms": 1, "dim": 1, "horizon": 100, "noise_std": 1.0, "context": "fixed"}
    >>> impossible_grams(np.array([[[[3.0]]], [[[-1.0]]]]), Constants(**sizes, ell=1.0, L=1.0))
    {1: 'sent a matrix with a negative eigenvalue in gram'}
    """
    traces = gram.trace(axis1=2, axis2=3)
    found: dict[int, str] = {}
    for first in range(0, len(gram), _TOGETHER):
        rows = slice(first, first + _TOGETHER)
        found |= {first + row: reason for row, reason in _no_sums(gram[rows], traces[rows]).items()}
    if constants.shortest is None or constants.longest is None:
        return found
    short = (traces != 0) & (traces < (1 - _ROUNDING) * constants.shortest**2)
    for row, arm in np.argwhere(short):
        found.setdefault(
            int(row), f"sent a matrix of trace {traces[row, arm]:.3g} for arm {arm} in gram, less than a pull"
        )
    totals = traces.sum(axis=1)
    most = (1 + _ROUNDING) * constants.longest**2 * constants.horizon
    if together and len(totals) > 2 and constants.shortest:
        most = min(most, _TRACE_SLACK * (constants.longest / constants.shortest) ** 2 * float(np.median(totals)))
    for row in np.flatnonzero(totals > most):
        found.setdefault(int(row), f"sent matrices of trace {totals[row]:.3g} in gram, at most {most:.3g} can be")
    return found


def _no_sums(gram: FloatArray, traces: FloatArray) -> dict[int, str]:
    """The rows of matrices (n, K, d, d), with these traces, that are not symmetric or have a negative eigenvalue."""
    small = (_ROUNDING * np.abs(traces) + np.finfo(np.float64).tiny)[..., None, None]
    skew = (np.abs(gram - gram.swapaxes(2, 3)) > small).any(axis=(1, 2, 3))
    found = {int(row): "sent a matrix that is not symmetric in gram" for row in np.flatnonzero(skew)}
    lifted = gram + small * np.eye(gram.shape[2])
    for row in np.flatnonzero(~skew) if not _positive(lifted[~skew] if found else lifted) else ():
        if not _positive(lifted[row]):
            found[int(row)] = "sent a matrix with a negative eigenvalue in gram"
    return found


def _positive(matrices: FloatArray) -> bool:
    """Whether none of these symmetric matrices has a negative eigenvalue."""
    try:
        np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        return False
    return True


def longest_moments(gram: FloatArray, constants: Constants) -> FloatArray:
    """The norms that sums of psi y can have, (n, K), given sums of psi psi^T (n, K, d, d); infinite: any norm.

    With t = tr G a sum of rewards gives at most t (largest mean) / |psi|, and its noise 6 sigma sqrt(t).

    >>> sizes = {"num_agents": 2, "num_arms": 1, "dim": 1, "horizon": 100, "noise_std": 1.0, "context": "fixed"}
    >>> constants = Constants(**sizes, ell=0.5, L=1.0, theta_bound=1.0, context_proxy=0.0, shortest=0.5, longest=1.0)
    >>> longest_moments(np.array([[[[4.0]]]]), constants)  # 4 * 1 / 0.5 + 6 * 2
    array([[20.]])
    """
    largest = largest_mean(constants)
    if largest is None or not constants.shortest:
        return np.full(gram.shape[:2], np.inf)
    traces = np.maximum(gram.trace(axis1=2, axis2=3), 0)
    return np.asarray(traces * largest / constants.shortest + _DEVIATIONS * constants.noise_std * np.sqrt(traces))
