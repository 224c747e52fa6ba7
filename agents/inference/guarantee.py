"""What is proved of Fed-CI-Elimination, checked on a recorded run: each bound beside what was measured.

The theorem and its proof are on the page "A guarantee under hidden contexts" of the documentation. An audit replays the
agents on what the run recorded, so that their intervals can be compared with the truth.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbandit_agents.inference.intervals import own_radius
from fedbandit_agents.inference.pull_counts import resting_pulls
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.claims import Claim, RecordedRun, Truth
from fedbandit_envs.ties import rounding

if TYPE_CHECKING:
    from fedbandit_agents.inference.fed_ci_elimination import EliminatingAgents, FedCIElimination


@dataclass(frozen=True, eq=False)
class _Replay:
    """What the agents of a run believed, beside the truth."""

    means: FloatArray  #: (M, K) the true mean rewards
    gaps: FloatArray  #: (M, K) what they lack to the best of their agent
    side: "EliminatingAgents"  #: the agents after the run
    own: float  #: the largest error of an own mean reward, in half-widths
    predicted: float  #: the largest distance of a mean reward from the middle of its interval from mu_i, in half-widths
    contradicted: int  #: the number of agents that gave mu_i up
    lost: int  #: the largest number of agents whose best arm was not active at some time
    starts: IntArray  #: (P,) the steps at which the plans after the first one began
    lengths: IntArray  #: (P,) their lengths


def claims(policy: "FedCIElimination", history: RecordedRun) -> Iterator[Claim]:
    """What the theorem says of a recorded run, which `audit` shows beside what was measured."""
    if history.faults or history.instance is None or history.exchanges is None:
        return  # the theorem is about runs in which every report arrives
    truth, run = history.instance, _replay(policy, history)
    unless = _unless(policy, history, truth)
    yield Claim("largest error of an own mean, in widths", 1, run.own, unless)
    yield Claim("largest error of a prediction from mu, in widths", 1, run.predicted, unless)
    own = unless or ("" if run.own <= 1 else "an own mean left its width")
    both = own or ("" if run.predicted <= 1 else "a prediction left its width")
    yield Claim("agents whose rewards contradict mu", 0, run.contradicted, both)
    yield Claim("agents that eliminated their best arm", 0, run.lost, both)
    regret = np.einsum("cma,ma->c", history.pulls, run.gaps)
    yield Claim("total regret, as a share of its bound", 1, _share(regret, _bounds(policy, run, history)), both)
    if truth.context == "fixed":  # with resampled contexts own intervals, too, depend on mu
        bounds = _bounds_whatever_mu_is(policy, run, history)
        yield Claim("total regret, as a share of its bound whatever mu is", 1, _share(regret, bounds), own)
    M, K, d = run.means.shape[0], run.means.shape[1], history.constants.dim
    yield Claim("scalars sent, both ways", M * K * (2 * d + 3 + d * (d + 1) // 2), history.ledger.scalars)


def regret_bounds(policy: "FedCIElimination", history: RecordedRun) -> FloatArray:
    """The theorem's bounds (C,) of the total regret of all agents at the checkpoints of a recorded run.

    Args:
        policy: what played.
        history: what `play(..., record=True)` returned.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> policy = fb.make_policy("Fed-CI-Elimination")
    >>> history = fb.play(env, policy, seed=0, record=True)
    >>> bool((history.regret().sum(axis=1) <= regret_bounds(policy, history)).all())
    True
    """
    return _bounds(policy, _replay(policy, history), history)


def pulls_to_separate(lengths: Callable[[IntArray], FloatArray], gaps: FloatArray, horizon: int) -> IntArray:
    """The least n from 1 for which two intervals after n pulls are shorter together than the gap; horizon + 1: none.

    Args:
        lengths: the summed lengths of two intervals after n pulls, which fall with n; n comes in the shape of `gaps`.
        gaps: the gaps, in any shape.
        horizon: the largest n of interest.

    >>> pulls_to_separate(lambda n: 1 / n, np.array([0.3, 0.1, 1e-9]), horizon=100)
    array([  4,  11, 101])
    """
    low = np.ones(gaps.shape, dtype=np.int64)  # the answer is at least low and at most high
    high = np.full(gaps.shape, horizon + 1)
    while (low < high).any():
        middle = (low + high) // 2
        enough = (lengths(middle) < gaps) | (middle > horizon)
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    return low


def regret_bound(gaps: FloatArray, most: FloatArray, steps: int) -> float:
    """The largest regret of all agents in `steps` steps, if arm a of agent i is pulled at most `most` times.

    Args:
        gaps: (M, K) the gaps.
        most: (M, K) the largest numbers of pulls; those of best arms don't matter.
        steps: the number of steps.

    >>> regret_bound(np.array([[0.0, 0.5, 1.0]]), np.array([[9.0, 4.0, 2.0]]), steps=5)  # 2 * 1 + 3 * 0.5
    3.5
    """
    order = np.argsort(-gaps, axis=1, kind="stable")
    gaps, most = np.take_along_axis(gaps, order, axis=1), np.take_along_axis(most, order, axis=1)
    before = np.minimum(np.cumsum(most, axis=1) - most, steps)
    return float((gaps * np.minimum(most, steps - before)).sum())


def _share(regret: FloatArray, bounds: FloatArray) -> float:
    """The largest regret as a share of its bound."""
    return float(np.divide(regret, bounds, out=np.zeros_like(regret), where=bounds > 0).max())


def _unless(policy: "FedCIElimination", history: RecordedRun, truth: Truth) -> str:
    """Why the theorem promises nothing for a run; empty: it does."""
    sigma, noise = float(np.sqrt(policy.noise_proxy(history.constants))), history.constants.noise_std
    if sigma < noise:
        return f"sigma = {sigma:.4g} is below the scale of the noise, {noise:.4g}"
    proxy, wanted = policy.context_proxy, truth.distribution.reward_proxy(truth.feature_map, truth.theta)
    if proxy is not None and wanted > proxy * (1 + 1e-9) and np.isfinite(wanted):
        return f"context_proxy = {proxy:.4g} is below {wanted:.4g}, that of the contexts"
    return ""


def _replay(policy: "FedCIElimination", history: RecordedRun) -> _Replay:
    """Let the agents of a run see again what they saw."""
    assert history.view is not None
    assert history.instance is not None
    assert history.exchanges is not None
    truth = history.instance
    means, kind = truth.means, "regret"
    if truth.context == "resampled":
        means, kind = truth.distribution_means, "distribution_regret"
    side, best, agents = policy.agents(history.view), means.argmax(axis=1), np.arange(len(means))
    own, predicted, lost = 0.0, 0.0, 0
    starts, lengths = [], []
    for turn in history.exchanges:
        start = side.elapsed
        side.plan(turn.down, history.constants.horizon - start)
        if start:
            starts.append(start)
            lengths.append(turn.plan.length)
            radii = side.radii()
            equal = rounding(np.abs(side.means()) + np.where(np.isfinite(radii), radii, 0))[:, None]
            own = max(own, _ratio(np.abs(side.means() - means) - equal, radii))
            lost = max(lost, int((~side.active[agents, best]).sum()))
        if start and turn.down is not None:
            middle, half = (side.high + side.low) / 2, (side.high - side.low) / 2
            bounded = np.isfinite(half)
            distance = np.abs(means - np.where(bounded, middle, means))
            predicted = max(predicted, _ratio(distance - rounding(distance + np.abs(means))[:, None], half))
        side.report(turn.feedback)
    gaps, contradicted = truth.gaps(kind), int((~side.trusting).sum())
    stretches = np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64)
    return _Replay(means, gaps, side, own, predicted, contradicted, lost, *stretches)


def _ratio(errors: FloatArray, widths: FloatArray) -> float:
    """The largest error in widths; an error of 0 is 0 widths, whatever the width."""
    return float((errors.clip(min=0) / np.maximum(widths, np.finfo(float).tiny)).max())


def _most_pulls(policy: "FedCIElimination", run: _Replay, history: RecordedRun) -> FloatArray:
    """How often a covered run pulls each arm at most, (M, K)."""
    side, constants = run.side, history.constants
    noise = np.full(run.gaps.shape, policy.noise_proxy(constants)) + (side.bias if side.resampled else 0)
    best = run.means.argmax(axis=1)[:, None]
    from_mu = side.high - side.low
    best_noise, best_from_mu = (np.take_along_axis(part, best, axis=1) for part in (noise, from_mu))

    def lengths(n: IntArray) -> FloatArray:
        this = np.minimum(2 * own_radius(n, noise, side.failure), from_mu)
        other = np.minimum(2 * own_radius(n, best_noise, side.failure), best_from_mu)
        return this + other

    pulls = pulls_to_separate(lengths, run.gaps, constants.horizon)
    least = max(side.first, resting_pulls(constants.horizon, constants.num_arms))
    return np.maximum(least, 1.5 * pulls + 0.5)


def _bounds(policy: "FedCIElimination", run: _Replay, history: RecordedRun) -> FloatArray:
    """The bounds (C,) of the total regret at the checkpoints, on covered runs."""
    most = _most_pulls(policy, run, history)
    return np.array([regret_bound(run.gaps, most, int(t)) for t in history.steps])


def _bounds_whatever_mu_is(policy: "FedCIElimination", run: _Replay, history: RecordedRun) -> FloatArray:
    """The bounds (C,) of the total regret at the checkpoints, for own intervals that hold and any mu."""
    constants, worst = history.constants, run.gaps.max(axis=1)
    K, T = constants.num_arms, constants.horizon
    proxy = np.array(policy.noise_proxy(constants))
    # From step K^3 on every plan has room for all pulls that are due.
    before = np.concatenate([[0], run.starts])[:-1]
    due = [resting_pulls(int(t), K) if b >= K**3 else 0 for b, t in zip(before, run.starts, strict=True)]
    radii = own_radius(np.array(due, dtype=np.int64), proxy, run.side.failure)
    loss = np.minimum(4 * radii, worst[:, None])  # (M, P) of one step
    inside = (history.steps[:, None] - run.starts).clip(0, run.lengths)  # (C, P) the steps of each plan so far
    first = np.minimum(history.steps, run.side.first * K) + K * resting_pulls(T, K)
    return np.einsum("cp,mp->c", inside, loss) + first * worst.sum()
