"""Fed-PE's theorem, checked on a recorded run of phased elimination: each bound beside what was measured.

The widths are recomputed here from what the server sent, not taken from the agents. The theorem holds when contexts are
known, and for resampled contexts with `distribution_regret` and wide enough widths. With fixed hidden contexts the bias
<theta, phi - psi> never averages out, so coverage and what follows from it is measured but not claimed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray, short_repr
from fedbandit_envs.protocol.claims import Claim, RecordedRun, RecordedTurn, Truth
from fedbandit_envs.protocol.knowledge import View

if TYPE_CHECKING:
    from fedbandit_agents.phased.elimination import PhasedElimination

_RANGE_TOLERANCE = 1e-6  # a direction with a larger share outside the range of V has an infinite width


@dataclass(frozen=True, eq=False)
class Phase:
    """One phase of phased elimination, as the messages of a run tell it; `phases` gives those of a run.

    It is for looking back at a recorded run: what the agents believed, what they eliminated, and what they pulled then.
    The audit of the paper's theorem is computed from the phases.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> first = phases(fb.play(env, fb.make_policy("Fed-PECD"), seed=0, record=True))[0]
    >>> first.number, bool(first.before.all())
    (1, True)
    """

    number: int  #: p, from 1
    estimates: FloatArray  #: (M, K) r, the predicted mean rewards, from what the server sent before the phase
    widths: FloatArray  #: (M, K) u, their widths
    before: BoolArray  #: (M, K) the arms that were active before the elimination
    active: BoolArray  #: (M, K) the arms that are active after it
    pulls: IntArray  #: (M, K) the pulls that the server allocated
    played: IntArray  #: (M, K) the pulls that were made, explored or played

    __repr__ = short_repr


@dataclass(frozen=True, eq=False)
class _Run:
    """A recorded run of a policy that the theorem is about."""

    policy: "PhasedElimination"
    history: RecordedRun
    turns: Sequence[RecordedTurn]
    truth: Truth
    view: View

    @property
    def ell(self) -> float:
        """The lower end of the norms that the widths assume."""
        return self.policy.ell or self.history.constants.ell

    @property
    def scale(self) -> float:
        """The factor w sigma alpha of all widths."""
        return self.policy.width * self.policy.sigma * self.policy.alpha(self.history.constants)

    def phases(self) -> list[Phase]:
        """The phases, read off the messages."""
        psi = self.view.psi
        made: list[Phase] = []
        active = before = np.ones(psi.shape[:2], dtype=bool)
        r = u = np.zeros(psi.shape[:2])
        for turn in self.turns:
            if turn.down is not None and turn.down.kind == "estimates" and turn.up is not None:
                r = np.einsum("mad,ad->ma", psi, turn.down["theta"])
                u = self.scale / self.ell * np.sqrt(_squared_norms(psi, turn.down["V"]))
                before, active = active, turn.up.present["arms"]
            elif turn.down is not None:
                pulls = turn.down["pulls"]
                made.append(Phase(len(made) + 1, r, u, before, active, pulls, turn.feedback.pulls()))
        return made

    def unless(self) -> str:
        """Why the theorem does not promise that estimates stay within their widths; empty: it does."""
        truth, policy = self.truth, self.policy
        exact = truth.context == "fixed" and np.array_equal(self.view.psi, truth.phi)
        if not exact and truth.context != "resampled":
            return "contexts are hidden and fixed, so their bias never averages out"
        proxy = 0.0 if exact else truth.distribution.reward_proxy(truth.feature_map, truth.theta)
        wanted = float(np.sqrt(self.history.constants.noise_std**2 + proxy))
        if not policy.sigma * policy.width >= wanted:
            cause = "the noise" if exact else "the noise and what resampled contexts add to it"
            return f"sigma * width = {policy.sigma * policy.width:.4g} is below {wanted:.4g}, {cause}"
        least = float(np.linalg.norm(self.view.psi, axis=-1).min())
        if not self.ell <= least * (1 + 1e-9):
            return f"ell = {self.ell:.4g} is above the smallest norm of a feature, {least:.4g}"
        return ""


def phases(history: RecordedRun) -> list[Phase]:
    """Active sets, estimates and widths of each phase of a recorded run of Fed-PECD or Fed-PE.

    Args:
        history: what `play(..., record=True)` returned; no report may have been lost.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> found = phases(fb.play(env, fb.make_policy("Fed-PECD"), seed=0, record=True))
    >>> [phase.pulls.shape for phase in found][:2]
    [(5, 10), (5, 10)]
    """
    from fedbandit_agents.phased.elimination import PhasedElimination  # here, because it imports this module

    policy = history.policy
    if not (isinstance(policy, PhasedElimination) and policy.theorem):
        raise ValueError(
            f"history: expected a run of Fed-PECD or Fed-PE, got one of {type(policy).__name__}; other policies have "
            "no phases, or other widths"
        )
    if history.faults:
        raise ValueError("history: expected a run in which every report arrived, got one with faults; play it without")
    return _run(policy, history).phases()


def claims(policy: "PhasedElimination", history: RecordedRun) -> Iterator[Claim]:
    """What Fed-PE's theorem says of a recorded run, which `audit` shows beside what was measured."""
    # The theorem is about runs in which every report arrives and counts in full.
    if not policy.theorem or history.faults or policy.aggregation != "mean":
        return
    run = _run(policy, history)
    stages = run.phases()
    coverage, unless = _coverage(run, stages)
    yield from coverage
    active = [np.ones(run.truth.means.shape, dtype=bool), *(phase.active for phase in stages)]
    dimensions = [_dimension(run.view.psi, arms) for arms in active]
    other_design = "" if policy.allocation == "g-optimal" else f"the allocation is {policy.allocation}, not g-optimal"
    yield from _design(run, stages, dimensions, other_design)
    yield from _regret(run, stages, dimensions, unless or other_design)
    M, K, d = run.truth.means.shape[0], run.truth.means.shape[1], run.view.psi.shape[2]
    bound = M * K * (d * d + 2 * d) + len(stages) * M * K * (d * d + 2 * d + 2)
    yield Claim("scalars sent, both ways", bound, history.ledger.scalars)


def _run(policy: "PhasedElimination", history: RecordedRun) -> _Run:
    if history.exchanges is None or history.instance is None or history.view is None:
        raise ValueError("history: expected one with its messages, got one without; use play(..., record=True)")
    return _Run(policy, history, history.exchanges, history.instance, history.view)


def _coverage(run: _Run, stages: list[Phase]) -> tuple[list[Claim], str]:
    """The claims about estimates, and why theory promises nothing that follows from them; empty: it does."""
    truth, unless = run.truth, run.unless()
    means = truth.distribution_means if truth.context == "resampled" else truth.means
    errors, lost = 0.0, 0
    for phase in stages:
        ratio = np.abs(phase.estimates - means) / np.where(phase.widths > 0, phase.widths, np.finfo(float).tiny)
        errors = max(errors, float(ratio[phase.before].max()))
        lost = int((~phase.active[np.arange(len(means)), means.argmax(axis=1)]).sum())
    error = Claim("largest error of an estimate, in widths", 1, errors, unless)
    unless = unless or ("" if errors < 1 else "an estimate left its width")
    return [error, Claim("agents that eliminated their best arm", 0, lost, unless)], unless


def _design(run: _Run, stages: list[Phase], dimensions: list[int], unless: str) -> Iterator[Claim]:
    """Rounding up only adds information, so the pulls must be as good as the design: f_p sum_i max_a g <= D + eps."""
    excess, over = 0.0, 0
    e = run.view.psi / np.linalg.norm(run.view.psi, axis=-1, keepdims=True)
    for phase, dimension in zip(stages, dimensions[1:], strict=True):
        budget = run.policy.budget(phase.number)
        information = np.einsum("ma,mad,mae->ade", phase.pulls.astype(np.float64), e, e)
        g = _squared_norms(e, np.linalg.pinv(information, rcond=1e-13, hermitian=True))
        excess = max(excess, budget * float(np.where(phase.active, g, 0).max(axis=1).sum()) - dimension)
        over = max(over, int(phase.pulls.sum(axis=1).max()) - budget)
    yield Claim("excess of the allocation over the optimal design", run.policy.gap * (1 + 1e-6), excess, unless)
    yield Claim("pulls allocated beyond f_p", run.view.constants.num_arms, over)


def _regret(run: _Run, stages: list[Phase], dimensions: list[int], unless: str) -> Iterator[Claim]:
    """The theorem's bounds on regret, of each phase and in total; measured is the largest share of the bound."""
    constants, policy, history = run.history.constants, run.policy, run.history
    M, K, d = constants.num_agents, constants.num_arms, constants.dim
    n, c, eps = policy.growth, policy.first, policy.gap
    norms = np.linalg.norm(run.view.psi, axis=-1)
    scale = run.scale * max(constants.L, float(norms.max())) / run.ell
    gaps = run.truth.gaps("distribution_regret" if run.truth.context == "resampled" else "regret")
    share = 0.0
    for phase, dimension in zip(stages, dimensions[:-1], strict=True):
        f, previous = policy.budget(phase.number), policy.budget(phase.number - 1)
        bound = 4 * scale * np.sqrt(M * (dimension + eps)) * (f + K) / np.sqrt(previous)
        share = max(share, float((phase.played * gaps).sum()) / bound)
    yield Claim("regret of a phase, as a share of its bound", 1, share, unless)
    root = np.sqrt(n)
    factor = np.sqrt(n * n - n) / (root - 1) * np.sqrt(history.steps) + K * root / (np.sqrt(c) * (root - 1))
    bounds = M * K * c * gaps.max() + 4 * scale * np.sqrt(M * (d * K + eps)) * factor
    total = np.einsum("cma,ma->c", history.pulls, gaps)
    yield Claim("total regret, as a share of its bound", 1, float((total / bounds).max()), unless)


def _squared_norms(psi: FloatArray, V: FloatArray) -> FloatArray:
    """||psi||_V^2 (M, K), infinite outside the range of V."""
    values, vectors = np.linalg.eigh(V)
    parts = np.einsum("ade,mad->mae", vectors, psi) ** 2
    inside = values > 1e-14 * values[:, -1:]  # off its range V is 0 but for rounding
    outside = (parts * ~inside).sum(axis=-1) > _RANGE_TOLERANCE**2 * parts.sum(axis=-1)
    return np.where(outside, np.inf, (parts * np.where(inside, values, 0)).sum(axis=-1))


def _dimension(psi: FloatArray, active: BoolArray) -> int:
    """D, the sum over arms of the rank of the features of the agents for whom the arm is active."""
    e = np.where(active[..., None], psi / np.linalg.norm(psi, axis=-1, keepdims=True), 0)
    singular = np.linalg.svd(e.transpose(1, 0, 2), compute_uv=False)  # (K, min(M, d))
    return int((singular > 1e-6 * singular.max(axis=1, keepdims=True)).sum())
