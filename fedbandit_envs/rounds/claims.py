"""What a run can prove about itself: each claim of the theory beside what was measured from messages and truth.

The widths are recomputed here from what the server sent, not taken from the policy. The theorem of Fed-PE holds in the
exact setting, and for resampled contexts with `distribution_regret` and wide enough widths. With fixed hidden contexts
the bias <theta, phi - psi> never averages out, so coverage and what follows from it is measured but not claimed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from fedbandit_envs.arrays import BoolArray, FloatArray, IntArray, short_repr
from fedbandit_envs.contexts.distributions import Discrete
from fedbandit_envs.contexts.features import is_linear
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.problems.instance import BanditInstance
from fedbandit_envs.protocol.knowledge import Constants, View
from fedbandit_envs.rounds.history import History

_RANGE_TOLERANCE = 1e-6


@runtime_checkable
class TheoremPolicy(Protocol):
    """What a policy must tell for Fed-PE's theorem to be checked on its runs."""

    theorem: bool  # whether the theorem is claimed for it
    width: float
    sigma: float
    ell: float | None
    first: int
    growth: int
    gap: float
    allocation: str

    def alpha(self, constants: Constants) -> float:
        """The confidence factor of its widths."""

    def budget(self, phase: int) -> int:
        """f_p."""


@dataclass(frozen=True)
class Claim:
    """One line of an audit; it holds if `measured` is at most `bound`."""

    claim: str
    bound: float
    measured: float
    claimed: bool = True  # whether theory promises it for this run

    @property
    def holds(self) -> bool:
        """Whether the measured value respects the bound."""
        return bool(self.measured <= self.bound)

    @property
    def verdict(self) -> str:
        """In words."""
        return (
            ("holds" if self.holds else "FAILS")
            if self.claimed
            else f"{'true' if self.holds else 'not so'}, not claimed"
        )


@dataclass(frozen=True)
class Audit:
    """The claims of a run."""

    claims: tuple[Claim, ...]

    @property
    def ok(self) -> bool:
        """Whether everything that theory promises for the run holds."""
        return all(claim.holds for claim in self.claims if claim.claimed)

    def __getitem__(self, claim: str) -> Claim:
        return next(row for row in self.claims if row.claim == claim)

    def __str__(self) -> str:
        size = max(len(row.claim) for row in self.claims)
        lines = [f"{'claim':<{size}}  {'bound':>12}  {'measured':>12}  verdict"]
        lines += [
            f"{row.claim:<{size}}  {row.bound:>12.6g}  {row.measured:>12.6g}  {row.verdict}" for row in self.claims
        ]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Phase:
    """One phase of phased elimination, as the messages tell it."""

    number: int
    estimates: FloatArray  # (M, K) r, from what the server sent before it
    widths: FloatArray  # (M, K) u
    before: BoolArray  # (M, K) active before the elimination
    active: BoolArray  # (M, K) active after it
    pulls: IntArray  # (M, K) allocated
    played: IntArray  # (M, K) really pulled, of both kinds

    __repr__ = short_repr


def audit(history: History) -> Audit:
    """Check a run that was recorded (`play(..., record=True)`)."""
    _check_recorded(history)
    assert history.instance is not None
    assert history.view is not None
    claims = [*_accounts(history)]
    policy = history.policy
    # The theorem is about runs in which every report arrives.
    if isinstance(policy, TheoremPolicy) and policy.theorem and not history.faults:
        claims += _theorem(history, policy, history.instance, history.view, phases(history))
    return Audit(tuple(claims))


def _check_recorded(history: History) -> None:
    if not isinstance(history, History):
        raise ValueError(f"history: expected a History, got {type(history).__name__}; use play(..., record=True)")
    if history.exchanges is None or history.instance is None or history.view is None:
        raise ValueError("history: expected one with its messages, got one without; use play(..., record=True)")


def _accounts(history: History) -> Iterator[Claim]:
    """What holds for every policy."""
    constants = history.constants
    assert history.exchanges is not None
    pulls = np.sum([exchange.feedback.pulls() for exchange in history.exchanges], axis=0).sum(axis=1)
    yield Claim("pulls of each agent differ from T by", 0, float(np.abs(pulls - constants.horizon).max()))
    sent = sum(int(exchange.up.scalars().sum()) for exchange in history.exchanges if exchange.up is not None)
    yield Claim("scalars up in the ledger differ from the messages by", 0, abs(sent - history.ledger.scalars_up))


def phases(history: History) -> list[Phase]:
    """Active sets, estimates and widths of each phase of a recorded run of Fed-PECD or Fed-PE."""
    _check_recorded(history)
    policy = history.policy
    if not (isinstance(policy, TheoremPolicy) and policy.theorem):
        raise ValueError(
            f"history: expected a run of Fed-PECD or Fed-PE, got one of {type(policy).__name__}; other policies have "
            "no phases, or other widths"
        )
    if history.faults:
        raise ValueError("history: expected a run in which every report arrived, got one with faults; play it without")
    assert history.exchanges is not None
    assert history.view is not None
    psi = history.view.psi
    scale = policy.width * policy.sigma * policy.alpha(history.constants) / (policy.ell or history.constants.ell)
    found: list[Phase] = []
    active = before = np.ones(psi.shape[:2], dtype=bool)
    r = u = np.zeros(psi.shape[:2])
    for exchange in history.exchanges:
        if exchange.down is not None and exchange.down.kind == "estimates" and exchange.up is not None:
            r = np.einsum("mad,ad->ma", psi, exchange.down["theta"])
            u = scale * np.sqrt(_squared_norms(psi, exchange.down["V"]))
            before, active = active, exchange.up.present["arms"]
        elif exchange.down is not None:
            pulls = exchange.down["pulls"]
            found.append(Phase(len(found) + 1, r, u, before, active, pulls, exchange.feedback.pulls()))
    return found


def _theorem(
    history: History, policy: TheoremPolicy, instance: BanditInstance, view: View, stages: list[Phase]
) -> Iterator[Claim]:
    constants = history.constants
    exact = instance.context == "fixed" and np.array_equal(view.psi, instance.phi)
    norms = np.linalg.norm(view.psi, axis=-1)
    claimed = _is_claimed(policy, instance, exact) and (policy.ell or constants.ell) <= norms.min() * (1 + 1e-9)
    means = instance.distribution_means if instance.context == "resampled" else instance.means
    gaps = instance.gaps("distribution_regret" if instance.context == "resampled" else "regret")
    scale = policy.width * policy.sigma * policy.alpha(constants)
    ell = policy.ell or constants.ell

    errors, lost = 0.0, 0
    for phase in stages:
        ratio = np.abs(phase.estimates - means) / np.where(phase.widths > 0, phase.widths, np.finfo(float).tiny)
        errors = max(errors, float(ratio[phase.before].max()))
        lost = int((~phase.active[np.arange(len(means)), means.argmax(axis=1)]).sum())
    covered = errors < 1
    yield Claim("largest error of an estimate, in widths", 1, errors, claimed)
    yield Claim("agents that eliminated their best arm", 0, lost, claimed and covered)

    dimensions = [_dimension(view.psi, np.ones(means.shape, dtype=bool))]
    dimensions += [_dimension(view.psi, phase.active) for phase in stages]
    designed = policy.allocation == "g-optimal"
    yield from _design(policy, view, stages, dimensions, designed)
    claimed = claimed and covered and designed
    yield from _regret(
        history, policy, stages, dimensions, gaps, scale * max(constants.L, float(norms.max())) / ell, claimed
    )
    M, K, d = constants.num_agents, constants.num_arms, constants.dim
    bound = M * K * (d * d + 2 * d) + len(stages) * M * K * (d * d + 2 * d + 2)
    yield Claim("scalars sent, both ways", bound, history.ledger.scalars)


def _is_claimed(policy: TheoremPolicy, instance: BanditInstance, exact: bool) -> bool:
    """Whether the widths are honest: they cover the noise, and for resampled contexts what these add to it."""
    proxy = 0.0 if exact else _context_proxy(instance)
    return bool(policy.sigma * policy.width >= np.sqrt(instance.constants(1).noise_std ** 2 + proxy))


def _context_proxy(instance: BanditInstance) -> float:
    """The variance proxy v of <theta, phi - psi> for which it is sub-Gaussian; infinite where none is known."""
    distribution, feature_map, theta = instance.distribution, instance.feature_map, instance.theta
    if instance.context != "resampled":
        return np.inf  # a bias, which no width covers
    if isinstance(distribution, Discrete):  # bounded, so half the range squared
        rewards = np.einsum("msad,ad->msa", feature_map(distribution.support), theta)
        possible = distribution.weights[..., None] > 0
        highest, lowest = np.where(possible, rewards, -np.inf).max(1), np.where(possible, rewards, np.inf).min(1)
        return float(((highest - lowest) / 2).max() ** 2)
    if isinstance(distribution, Gaussian) and is_linear(feature_map):
        return float(np.diagonal(distribution.reward_covariance(feature_map, theta), axis1=1, axis2=2).max())
    return np.inf


def _design(
    policy: TheoremPolicy, view: View, stages: list[Phase], dimensions: list[int], claimed: bool
) -> Iterator[Claim]:
    """Rounding up only adds information, so the pulls must be as good as the design: f_p sum_i max_a g <= D + eps."""
    excess, over = 0.0, 0
    e = view.psi / np.linalg.norm(view.psi, axis=-1, keepdims=True)
    for phase, dimension in zip(stages, dimensions[1:], strict=True):
        budget = policy.budget(phase.number)
        information = np.einsum("ma,mad,mae->ade", phase.pulls.astype(np.float64), e, e)
        g = _squared_norms(e, np.linalg.pinv(information, rcond=1e-13, hermitian=True))
        excess = max(excess, budget * float(np.where(phase.active, g, 0).max(axis=1).sum()) - dimension)
        over = max(over, int(phase.pulls.sum(axis=1).max()) - budget)
    yield Claim("excess of the allocation over the optimal design", policy.gap * (1 + 1e-6), excess, claimed)
    yield Claim("pulls allocated beyond f_p", view.constants.num_arms, over)


def _regret(
    history: History,
    policy: TheoremPolicy,
    stages: list[Phase],
    dimensions: list[int],
    gaps: FloatArray,
    scale: float,
    claimed: bool,
) -> Iterator[Claim]:
    """The theorem's bounds, of each phase and in total; measured is the largest share of the bound."""
    M, K, d = history.constants.num_agents, history.constants.num_arms, history.constants.dim
    n, c, eps = policy.growth, policy.first, policy.gap
    share = 0.0
    for phase, dimension in zip(stages, dimensions[:-1], strict=True):
        f, previous = policy.budget(phase.number), policy.budget(phase.number - 1)
        bound = 4 * scale * np.sqrt(M * (dimension + eps)) * (f + K) / np.sqrt(previous)
        share = max(share, float((phase.played * gaps).sum()) / bound)
    yield Claim("regret of a phase, as a share of its bound", 1, share, claimed)
    root = np.sqrt(n)
    factor = np.sqrt(n * n - n) / (root - 1) * np.sqrt(history.steps) + K * root / (np.sqrt(c) * (root - 1))
    bounds = M * K * c * gaps.max() + 4 * scale * np.sqrt(M * (d * K + eps)) * factor
    total = np.einsum("cma,ma->c", history.pulls, gaps)
    yield Claim("total regret, as a share of its bound", 1, float((total / bounds).max()), claimed)


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
