"""The slow oracle: Algorithms 1 and 2 and their kin, agent by agent and pull by pull, to be read beside the pseudocode.

It shares no code with the packages and imports none of them. "Item" is one of the numbered choices in
docs/results/open-points.md, "line" a line of the paper's Algorithm 1 (agent) or 2 (server). Arms and agents count from
0, phases and steps from 1; phase 0 is the initialisation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray
TOL = 1e-9  # a direction is outside the range of V when ||(I - V V^+) psi|| > TOL ||psi||
RCOND = 1e-10  # eigenvalues below RCOND times the largest count as zero
TIE = 1e-9  # numbers that differ by less than TIE times the largest magnitude count as equal; the first arm wins
NOTHING = 1e-100  # item 6: what is sent for theta_{a,i} = 0, in units of psi


# --- alpha ---------------------------------------------------------------------------------------------


def alpha1(M: int, K: int, H: int, delta: float) -> float:
    return math.sqrt(2 * math.log(2 * M * K * H / delta))


def solve_k(K: int, d: int, H: int, delta: float) -> float:
    """The root k > 1 of k d = 2 ln(KH/delta) + d ln(k e), by bisection."""

    def excess(k: float) -> float:  # increasing for k > 1, negative at 1
        return k * d - 2 * math.log(K * H / delta) - d * math.log(k * math.e)

    low, high = 1.0, 2.0
    while excess(high) < 0:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if excess(middle) < 0:
            low = middle
        else:
            high = middle
    return high


def alpha2(K: int, d: int, H: int, delta: float) -> float:
    return math.sqrt(solve_k(K, d, H, delta) * d)


def alpha(M: int, K: int, d: int, H: int, delta: float) -> float:
    return min(alpha1(M, K, H, delta), alpha2(K, d, H, delta))


def number_of_phases(T: int, n: int = 2) -> int:
    """H = ceil(log_n T), at least 1, in integers."""
    H = 0
    while n**H < T:
        H += 1
    return max(H, 1)


# --- linear algebra on a span (items 6 and 7) ----------------------------------------------------------------------


def unit(vector: Array) -> Array:
    """e = v / ||v||; hypot does not underflow where a sum of squares would."""
    return np.array([x / math.hypot(*vector) for x in vector])


def pinv(S: Array, rcond: float = RCOND) -> Array:
    return np.linalg.pinv(S, rcond=rcond, hermitian=True)


def rank_of(vectors: Sequence[Array], rcond: float = RCOND) -> int:
    S = sum(np.outer(unit(v), unit(v)) for v in vectors)
    return int(np.linalg.matrix_rank(S, rtol=rcond, hermitian=True)) if len(vectors) else 0


def norm_in(psi: Array, V: Array, tol: float = TOL, rcond: float = RCOND) -> float:
    """||psi||_V, infinite when psi has a part outside the range of V (item 7)."""
    eigenvalues, vectors = np.linalg.eigh(V)
    inside = np.zeros(len(psi))  # V V^+ psi, written with the eigenvectors that V does not map to zero
    for j in range(len(psi)):
        if eigenvalues[j] > rcond * max(eigenvalues):
            inside += (vectors[:, j] @ psi) * vectors[:, j]
    if math.hypot(*(psi - inside)) > tol * math.hypot(*psi):
        return math.inf
    return math.sqrt(max(0.0, psi @ V @ psi))


# --- the multi-agent G-optimal design ------------------------------------------------------------------


class Certificate(NamedTuple):
    G: float  # sum_i max_{a in A_i} g_{a,i}
    D: int  # sum_a rank_a
    gap: float  # G - D, the bound on F* - F
    sum_pi_g: float  # equals D for every feasible pi that spans


def certificate(
    pi: Array,  # (M, K)
    directions: Array,  # (M, K, d), any length: e for Fed-PECD, psi for Collaborative
    active: Array,  # (M, K) bool
    shared: bool = False,  # shared theta: one matrix over all arms
    tol: float = TOL,
    rcond: float = RCOND,
) -> Certificate:
    M, K, d = np.shape(directions)
    if shared:
        groups = [[(i, a) for i in range(M) for a in range(K) if active[i][a]]]
    else:
        groups = [[(i, a) for i in range(M) if active[i][a]] for a in range(K)]

    g: dict[tuple[int, int], float] = {}
    D = 0
    for pairs in groups:
        S = np.zeros((d, d))
        for i, a in pairs:
            S += pi[i][a] * np.outer(directions[i][a], directions[i][a])
        V = pinv(S, rcond)
        for i, a in pairs:
            g[i, a] = norm_in(directions[i][a], V, tol, rcond) ** 2
        D += rank_of([directions[i][a] for i, a in pairs], rcond)

    G = 0.0
    for i in range(M):
        G += max(g[i, a] for a in range(K) if active[i][a])
    sum_pi_g = sum(pi[i][a] * g[i, a] for i, a in g if pi[i][a] > 0)
    return Certificate(G, D, G - D, sum_pi_g)


def allocate(pi: Array, active: Array, f_p: int) -> Array:
    """f_{a,i} = ceil(pi_{a,i} f_p (1 - 1e-9)), 0 where pi f_p < 1e-10."""
    M, K = np.shape(pi)
    f = np.zeros((M, K), dtype=int)
    for i in range(M):
        for a in range(K):
            if active[i][a] and pi[i][a] * f_p >= 1e-10:
                f[i, a] = math.ceil(pi[i][a] * f_p * (1 - 1e-9))
    return f


def check_allocation(f: Array, psi: Array, active: Array, f_p: int, rcond: float = RCOND) -> None:
    M, K, _ = np.shape(psi)
    for i in range(M):
        for a in range(K):
            assert f[i, a] >= 0, f"f[{i},{a}] = {f[i, a]} is negative"
            assert active[i][a] or f[i, a] == 0, f"agent {i} is told to pull arm {a}, which it has eliminated"
        assert sum(f[i]) <= f_p + K, f"agent {i} explores {sum(f[i])} > f_p + K = {f_p + K} steps"
    for a in range(K):
        spanned = rank_of([psi[i][a] for i in range(M) if active[i][a]], rcond)
        kept = rank_of([psi[i][a] for i in range(M) if f[i, a] > 0], rcond)
        assert kept == spanned, f"arm {a}: rounding lowered the rank from {spanned} to {kept}"


def check_design(
    pi: Array, f: Array, psi: Array, active: Array, f_p: int, gap: float, tol: float, rcond: float
) -> Certificate:
    """The certificate of pi on the directions e, after checking that it proves the gap and that f is pi rounded."""
    M, K, _ = np.shape(psi)
    e = np.array([[unit(psi[i][a]) for a in range(K)] for i in range(M)])
    proof = certificate(pi, e, active, tol=tol, rcond=rcond)
    for i in range(M):
        assert min(pi[i]) >= 0, f"agent {i}: pi = {pi[i]}"
        assert abs(sum(pi[i][a] for a in range(K) if active[i][a]) - 1) < 1e-9, f"agent {i}: pi = {pi[i]}"
    assert abs(proof.sum_pi_g - proof.D) <= 1e-6 * proof.D, proof
    assert -1e-6 * proof.D <= proof.gap <= gap + 1e-9, proof
    assert np.array_equal(f, allocate(pi, active, f_p)), "f is not ceil(pi f_p)"
    return proof


# --- Algorithm 1: the agent ----------------------------------------------------------------------------------------


def local_estimate(rewards: Sequence[float], psi: Array) -> Array:
    """theta_{a,i} = (mean reward of the phase) psi / ||psi||^2 (line 3, item 3); 1e-100 psi for zero (item 6)."""
    theta = np.array(sum(rewards) / len(rewards) * psi / (psi @ psi))
    if math.hypot(*theta) <= NOTHING * math.hypot(*psi):  # zero, or so small that its direction is lost to underflow
        theta = NOTHING * psi
    return theta


@dataclass
class Decision:
    """Lines 6 to 9 for one agent; NaN for arms outside A_i^{p-1}."""

    r: Array  # (K,)
    u: Array  # (K,)
    best: int
    active: Array  # (K,) bool: A_i^p
    elimination_margin: Array  # (K,) |r_a + u_a - (r_best - u_best)|, infinite for `best`, which always stays
    best_margin: float  # the distance of r_best to the largest other r, infinite when there is none


def decide(r: Array, u: Array, candidates: Array) -> Decision:
    """Line 9: the best arm (lowest number in a tie) and the arms that survive; what ties with the bound survives."""
    K = len(r)
    arms = [a for a in range(K) if candidates[a]]
    tie = TIE * max(abs(r[a]) + (u[a] if u[a] < math.inf else 0) for a in arms)
    best = min(a for a in arms if r[a] >= max(r[b] for b in arms) - tie)
    active = np.zeros(K, dtype=bool)
    margin = np.full(K, math.nan)
    second = -math.inf
    for a in range(K):
        if candidates[a]:
            active[a] = r[a] + u[a] >= r[best] - u[best] - tie
            margin[a] = abs(r[a] + u[a] - (r[best] - u[best])) if a != best else math.inf
            if a != best:
                second = max(second, r[a])
    return Decision(r, u, best, active, margin, abs(r[best] - second))


def eliminate(
    psi: Array,  # (K, d), of one agent
    candidates: Array,  # (K,) bool: A_i^{p-1}
    theta: Array,  # (K, d)
    V: Array,  # (K, d, d)
    scale: float,  # w sigma alpha / ell
    tol: float = TOL,
    rcond: float = RCOND,
) -> Decision:
    K = len(psi)
    r, u = np.full(K, math.nan), np.full(K, math.nan)
    for a in range(K):  # lines 6 to 8
        if candidates[a]:
            r[a] = psi[a] @ theta[a]
            norm = norm_in(psi[a], V[a], tol, rcond)
            u[a] = scale * norm if norm < math.inf else math.inf  # also for scale = 0
    return decide(r, u, candidates)


# --- Algorithm 2: the server ---------------------------------------------------------------------------------------


def aggregate(f_a: Sequence[int], theta_a: Sequence[Array], rcond: float = RCOND) -> tuple[Array, Array]:
    """(theta_a, V_a) of one arm from the pulls and estimates of those who sent one (lines 1 and 8, item 1).

    The server never sees psi: e is theta_{a,i} / ||theta_{a,i}||, whose sign cancels.
    """
    d = len(theta_a[0])
    S, total = np.zeros((d, d)), np.zeros(d)
    for f, theta in zip(f_a, theta_a, strict=True):
        S += f * np.outer(unit(theta), unit(theta))
        total += f * theta
    V = pinv(S, rcond)
    return V @ total, V


# --- Fed-PECD ------------------------------------------------------------------------------------------------------


@dataclass
class Phase:
    """One phase as the paper's superscripts have it: theta^p and V^p are what the agents hold when phase p begins.

    Arms outside A^{p-1} are NaN in theta and V. In phase 0 there is no theta, V, r, u or best, and f = c.
    """

    p: int
    f_p: int
    theta: Array  # (K, d)
    V: Array  # (K, d, d)
    r: Array  # (M, K), NaN outside A_i^{p-1}
    u: Array  # (M, K), likewise, infinite outside the range of V_a
    best: Array  # (M,)
    active: Array  # (M, K) bool: A_i^p
    elimination_margin: Array  # (M, K)
    best_margin: Array  # (M,)
    f: Array  # (M, K) as allocated; the last phase may pull less
    theta_local: Array  # (M, K, d) what was sent up at the end of the phase, NaN where nothing was
    pulls: Array  # (M, K) cumulative, at the end of the phase
    steps: int  # cumulative, at the end of the phase
    scalars_up: int = 0
    scalars_down: int = 0
    reported: bool = False  # False for the phase in which step T falls
    certificate: Certificate | None = None


@dataclass
class Trace:
    alpha: float
    ell: float
    phases: list[Phase] = field(default_factory=list)  # phases[p] is phase p

    @property
    def pulls(self) -> Array:
        return self.phases[-1].pulls

    @property
    def scalars_up(self) -> int:
        return sum(phase.scalars_up for phase in self.phases)

    @property
    def scalars_down(self) -> int:
        return sum(phase.scalars_down for phase in self.phases)

    def closest_call(self, p: int) -> float:
        """The smallest margin of any decision in phases 1..p; below 1e-9 another right reading may differ."""
        margins = [math.inf]
        for phase in self.phases[1 : p + 1]:
            margins += [m for m in phase.elimination_margin.flat if not math.isnan(m)]
            margins += list(phase.best_margin)
        return min(margins)


Reward = Callable[[int, int, int, int], float]  # (agent, arm, phase, index of this exploration pull) -> y


def play_plan(
    i: int,
    p: int,
    exploration: Sequence[int],  # (K,)
    best: int,
    length: int,
    reward: Reward,
    exploit: Callable[[int, int, int], object],
    pulls: Array,  # (M, K), updated
) -> list[list[float]]:
    """Agent i's pulls in phase p: exploration in arm order, then `best` until `length` steps have passed.

    A `length` below the plan's own (item 8) thus cuts the padding first and then the highest-numbered arms.
    """
    rewards: list[list[float]] = [[] for _ in exploration]
    steps = 0
    for a, count in enumerate(exploration):  # lines 12 to 14
        for index in range(count):
            if steps < length:
                rewards[a].append(reward(i, a, p, index))
                pulls[i, a] += 1
                steps += 1
    while steps < length:  # line 15: rewards that nobody uses
        exploit(i, best, p)
        pulls[i, best] += 1
        steps += 1
    return rewards


def fed_pecd(
    psi: Any,  # (M, K, d)
    T: int,
    *,
    reward: Reward,
    allocation: Callable[[int, Array], Any],  # (phase, active (M, K) bool) -> f (M, K), or None to stop here
    design: Callable[[int, Array], Any] | None = None,  # (phase, active) -> pi (M, K), checked by its certificate
    gap: float = 0.1,
    delta: float = 0.1,
    ell: float | None = None,
    c: int = 1,
    n: int = 2,
    w: float = 1.0,
    sigma: float = 1.0,
    phases: int | None = None,
    exploit: Callable[[int, int, int], object] = lambda agent, arm, phase: None,
    tol: float = TOL,
    rcond: float = RCOND,
) -> Trace:
    psi = np.array(psi, dtype=float)
    M, K, d = psi.shape
    if ell is None:
        ell = min(math.hypot(*psi[i, a]) for i in range(M) for a in range(K))
    H = number_of_phases(T, n) if phases is None else phases
    trace = Trace(alpha(M, K, d, H, delta), ell)
    scale = w * sigma * trace.alpha / ell
    pulls = np.zeros((M, K), dtype=int)

    def new_phase(p: int, f: Array, decisions: list[Decision], theta: Array, V: Array) -> Phase:
        return Phase(
            p,
            c * n**p,
            theta,
            V,
            r=np.array([x.r for x in decisions]),
            u=np.array([x.u for x in decisions]),
            best=np.array([x.best for x in decisions]),
            active=np.array([x.active for x in decisions]),
            elimination_margin=np.array([x.elimination_margin for x in decisions]),
            best_margin=np.array([x.best_margin for x in decisions]),
            f=f,
            theta_local=np.full((M, K, d), math.nan),
            pulls=pulls.copy(),
            steps=0,
        )

    def play_and_aggregate(phase: Phase, length: int, start: int) -> tuple[Array, Array]:
        """Lines 12 to 15 of every agent, then lines 6 to 10 of the server; sets what `phase` knows at its end."""
        rewards = [
            play_plan(i, phase.p, phase.f[i], phase.best[i], min(length, T - start), reward, exploit, pulls)
            for i in range(M)
        ]
        phase.steps = start + min(length, T - start)
        phase.pulls = pulls.copy()
        theta, V = np.full((K, d), math.nan), np.full((K, d, d), math.nan)
        phase.reported = phase.steps < T  # item 8: after step T nobody would use it
        if not phase.reported:
            return theta, V
        for i in range(M):
            for a in range(K):
                if phase.f[i, a] > 0:  # item 3: an arm with f = 0 sends nothing
                    phase.theta_local[i, a] = local_estimate(rewards[i][a], psi[i, a])
                    phase.scalars_up += d
        for a in range(K):
            if any(phase.active[i, a] for i in range(M)):  # a in A^p
                senders = [i for i in range(M) if phase.f[i, a] > 0]
                theta[a], V[a] = aggregate(
                    [phase.f[i, a] for i in senders], [phase.theta_local[i, a] for i in senders], rcond
                )
                for _ in range(M):  # broadcast to all, active there or not
                    phase.scalars_down += d + d * d
        return theta, V

    # Initialisation: each arm c times (item 4), so f^0 = c n^0 is the weight of every estimate.
    nan = np.full(K, math.nan)
    everything = Decision(nan, nan, -1, np.ones(K, dtype=bool), nan, math.inf)
    start = new_phase(0, np.full((M, K), c), [everything] * M, np.full((K, d), math.nan), np.full((K, d, d), math.nan))
    theta, V = play_and_aggregate(start, K * c, 0)
    trace.phases.append(start)

    while trace.phases[-1].steps < T:  # line 4
        p = trace.phases[-1].p + 1
        candidates = trace.phases[-1].active
        decisions = [eliminate(psi[i], candidates[i], theta, V, scale, tol, rcond) for i in range(M)]  # lines 5 to 9
        active = np.array([decision.active for decision in decisions])
        f = allocation(p, active.copy())
        if f is None:
            trace.phases.append(new_phase(p, np.zeros((M, K), dtype=int), decisions, theta, V))
            return trace
        f = np.array(f)
        check_allocation(f, psi, active, c * n**p, rcond)
        phase = new_phase(p, f, decisions, theta, V)
        for i in range(M):
            for a in range(K):
                if active[i, a]:
                    phase.scalars_up += 1  # line 10: A_i^p
                    phase.scalars_down += 1  # line 11: f_{a,i}
        if design is not None:
            pi = np.array(design(p, active.copy()), dtype=float)
            phase.certificate = check_design(pi, f, psi, active, c * n**p, gap, tol, rcond)
        theta, V = play_and_aggregate(phase, c * n**p + K, trace.phases[-1].steps)
        trace.phases.append(phase)
    return trace


# --- variants of Fed-PE --------------------------------------------------------------------------------


def enhanced_widths(
    r: Sequence[float],  # those of one agent and arm in phases 1, 2, ..., p
    norms: Sequence[float],  # ||psi||_V likewise
    M: int,
    K: int,
    d: int,
    delta: float,
    ell: float,  # 1 for Collaborative
    c: int = 1,
    n: int = 2,
) -> tuple[float, float]:
    """(r', u) in phase p."""
    m, N, S = 0.0, 0, d * K / M
    for p in range(1, len(r) + 1):
        f_before = c * n ** (p - 1)
        m += f_before * r[p - 1]
        S += f_before**2 * norms[p - 1] ** 2 / ell**2
        N += f_before
    return m / N, math.sqrt(S * math.log(M / (d * K) * S * (M * K / delta) ** 2)) / N


def collaborative_estimate(
    psi_a: Sequence[Array], f_a: Sequence[int], theta_a: Sequence[Array], rcond: float = RCOND
) -> tuple[Array, Array]:
    """(theta_a, V_a) of one arm from the agents that pulled it, psi known to the server."""
    d = len(psi_a[0])
    S, total = np.zeros((d, d)), np.zeros(d)
    for psi, f, theta in zip(psi_a, f_a, theta_a, strict=True):
        S += f * np.outer(psi, psi)
        total += f * (psi @ psi) * theta
    V = pinv(S, rcond)
    return V @ total, V


def shared_theta_estimate(f: Array, theta_local: Array, rcond: float = RCOND) -> tuple[Array, Array]:
    """One (theta, V) from f (M, K) and theta_{a,i} (M, K, d), which is not read where f = 0."""
    M, K, _ = np.shape(theta_local)
    sent = [(i, a) for i in range(M) for a in range(K) if f[i][a] > 0]
    return aggregate([f[i][a] for i, a in sent], [theta_local[i][a] for i, a in sent], rcond)


# --- step by step: Local UCB, KK-UCB, DisLinUCB -------------------------------------------------


@dataclass
class Steps:
    arms: Array  # (M, T)
    margins: Array  # (M, T) best index minus second best, infinite where there was no choice
    synchronisations: list[int] = field(default_factory=list)  # the steps after which all agents synchronised
    new_blocks: list[int] = field(default_factory=list)  # (agent, arm) blocks with new pulls, at each of them
    sync_margins: list[float] = field(default_factory=list)  # after each step but T: min over i of |statistic - D|
    scalars_up: int = 0
    scalars_down: int = 0


StepReward = Callable[[int, int, int], float]  # (agent, arm, t), t from 1


def argmax_with_margin(values: Sequence[float], tie: float = 0.0) -> tuple[int, float]:
    best = min(a for a in range(len(values)) if values[a] >= max(values) - tie * max(abs(value) for value in values))
    others = [values[a] for a in range(len(values)) if a != best]
    return best, abs(values[best] - max(others)) if others else math.inf


def local_ucb(M: int, K: int, T: int, reward: StepReward) -> Steps:
    steps = Steps(np.zeros((M, T), dtype=int), np.full((M, T), math.inf))
    for i in range(M):
        total, t = [0.0] * K, [0] * K
        for n in range(1, T + 1):
            if 0 in t:
                arm = t.index(0)  # unpulled arms first
            else:
                bonus = 2 * math.log(1 + n * math.log(n) ** 2)
                arm, steps.margins[i, n - 1] = argmax_with_margin(
                    [total[a] / t[a] + math.sqrt(bonus / t[a]) for a in range(K)]
                )
            total[arm] += reward(i, arm, n)
            t[arm] += 1
            steps.arms[i, n - 1] = arm
    return steps


def ridge_ucb(psi: Array, S: Array, b: Array, beta: Callable[[float], float]) -> float:
    """psi^T theta + beta(ln det V) ||psi||_{V^-1} with V = I + S, theta = V^-1 b."""
    V = np.eye(len(psi)) + S
    inverse = np.linalg.inv(V)
    return float(psi @ inverse @ b + beta(math.log(np.linalg.det(V))) * math.sqrt(psi @ inverse @ psi))


def kk_ucb(
    psi: Any, T: int, reward: StepReward, *, delta: float = 0.1, sigma: float = 1.0, B: float = 1.0, hidden: bool = True
) -> Steps:
    psi = np.array(psi, dtype=float)
    M, K, d = psi.shape
    s = math.sqrt(4 + sigma**2) if hidden else sigma

    def beta(log_det: float) -> float:
        return s * math.sqrt(log_det - 2 * math.log(delta / K)) + B

    steps = Steps(np.zeros((M, T), dtype=int), np.full((M, T), math.inf))
    for i in range(M):
        S, b = np.zeros((K, d, d)), np.zeros((K, d))  # per arm: sum psi psi^T, sum y psi
        for t in range(1, T + 1):
            arm, steps.margins[i, t - 1] = argmax_with_margin(
                [ridge_ucb(psi[i, a], S[a], b[a], beta) for a in range(K)]
            )
            S[arm] += np.outer(psi[i, arm], psi[i, arm])
            b[arm] += reward(i, arm, t) * psi[i, arm]
            steps.arms[i, t - 1] = arm
    return steps


def dis_lin_ucb(
    psi: Any,
    T: int,
    reward: StepReward,
    *,
    delta: float = 0.1,
    sigma: float = 1.0,
    B: float = 1.0,
    D: float | None = None,
    v: float = 4.0,
) -> Steps:
    psi = np.array(psi, dtype=float)
    M, K, d = psi.shape
    R = math.sqrt(v + sigma**2)  # v: the variance proxy of the hidden contexts
    if D is None:
        D = T * math.log(M * T) / (K * d * M)

    def beta(log_det: float) -> float:  # for one block; det(V)^(1/2) K / delta, under the logarithm
        return R * math.sqrt(2 * (log_det / 2 - math.log(delta / K))) + B

    def log_det(S: Array) -> float:  # over all blocks of I + S
        return sum(math.log(np.linalg.det(np.eye(d) + S[a])) for a in range(K))

    synced_S, synced_b = np.zeros((K, d, d)), np.zeros((K, d))  # the server's sums, known to every agent
    new_S, new_b = np.zeros((M, K, d, d)), np.zeros((M, K, d))  # each agent's own since the last synchronisation
    last = 0
    steps = Steps(np.zeros((M, T), dtype=int), np.full((M, T), math.inf))
    for t in range(1, T + 1):
        for i in range(M):
            arm, steps.margins[i, t - 1] = argmax_with_margin(
                [ridge_ucb(psi[i, a], synced_S[a] + new_S[i, a], synced_b[a] + new_b[i, a], beta) for a in range(K)],
                TIE,
            )
            new_S[i, arm] += np.outer(psi[i, arm], psi[i, arm])
            new_b[i, arm] += reward(i, arm, t) * psi[i, arm]
            steps.arms[i, t - 1] = arm
        if t == T:
            break  # after step T nothing is sent
        statistics = [(log_det(synced_S + new_S[i]) - log_det(synced_S)) * (t - last) for i in range(M)]
        steps.sync_margins.append(min(abs(statistic - D) for statistic in statistics))
        if max(statistics) > D:
            steps.synchronisations.append(t)
            steps.new_blocks.append(sum(bool(new_S[i, a].any()) for i in range(M) for a in range(K)))
            for i in range(M):
                for a in range(K):
                    synced_S[a] += new_S[i, a]
                    synced_b[a] += new_b[i, a]
                    steps.scalars_up += d * d + d
                    steps.scalars_down += d * d + d
            new_S[:], new_b[:] = 0, 0
            last = t
    return steps


def linear_stream(
    psi: Array,
    rewards: Array,
    *,
    R: float,
    delta: float,
    B: float = 1.0,
    shared: bool = False,
    features: Array | None = None,
    threshold: float = math.inf,
) -> Steps:
    """KK-UCB and DisLinUCB on psi (T, M, K, d) that is new at each step, agent by agent, given the rewards (M, T).

    With `features` (M, T, d) the regression is on these; psi decides all the same. Agents share at the threshold D.
    """
    T, M, K, d = psi.shape
    G = 1 if shared else K
    steps = Steps(np.zeros((M, T), dtype=int), np.full((M, T), math.inf))
    common = [(np.zeros((d, d)), np.zeros(d)) for _ in range(G)]
    own = [[(np.zeros((d, d)), np.zeros(d)) for _ in range(G)] for _ in range(M)]
    last = 0

    def log_det(S: Array) -> float:
        return math.log(np.linalg.det(np.eye(d) + S))

    def beta(value: float) -> float:
        return R * math.sqrt(value - 2 * math.log(delta / G)) + B

    for t in range(T):
        for i in range(M):
            values = []
            for a in range(K):
                g = 0 if shared else a
                S, b = common[g][0] + own[i][g][0], common[g][1] + own[i][g][1]
                values.append(ridge_ucb(psi[t, i, a], S, b, beta))
            arm, steps.margins[i, t] = argmax_with_margin(values)
            steps.arms[i, t] = arm
            g = 0 if shared else arm
            x = psi[t, i, arm] if features is None else features[i, t]
            own[i][g] = (own[i][g][0] + np.outer(x, x), own[i][g][1] + x * rewards[i, t])
        if t == T - 1:
            break
        grown = [sum(log_det(common[g][0] + own[i][g][0]) - log_det(common[g][0]) for g in range(G)) for i in range(M)]
        if any(growth * (t + 1 - last) > threshold for growth in grown):
            steps.synchronisations.append(t + 1)
            last = t + 1
            common = [
                (common[g][0] + sum(own[i][g][0] for i in range(M)), common[g][1] + sum(own[i][g][1] for i in range(M)))
                for g in range(G)
            ]
            own = [[(np.zeros((d, d)), np.zeros(d)) for _ in range(G)] for _ in range(M)]
    return steps


# --- the naive reading, for benchmarks -----------------------------------------------------------------------------


class Design(NamedTuple):
    pi: Array  # (M, K)
    certificate: Certificate
    sweeps: int


def g_optimal_slsqp(directions: Any, active: Any, gap: float = 0.1, max_sweeps: int = 10) -> Design:
    """The published solver: SLSQP on one agent's block after another, to the gap or for max_sweeps, whatever the gap.

    Adding x_a to pi_{a,i} multiplies arm a's determinant by 1 + x_a g_a: agent i maximises sum_a ln(1 + x_a g_a) over
    sum_a x_a = 0. SLSQP's gradient is numerical, as published.
    """
    from scipy.optimize import minimize

    directions = np.array(directions, dtype=float)
    M, K, d = directions.shape
    pi = np.zeros((M, K))
    for i in range(M):
        for a in range(K):
            if active[i][a]:
                pi[i, a] = 1 / sum(active[i])
    V = []
    for a in range(K):
        S = np.zeros((d, d))
        for i in range(M):
            S += pi[i, a] * np.outer(directions[i, a], directions[i, a])
        V.append(pinv(S))

    sweeps = 0
    proof = certificate(pi, directions, active)
    while proof.gap > gap and sweeps < max_sweeps:
        for i in range(M):
            arms = [a for a in range(K) if active[i][a]]
            g = [directions[i, a] @ V[a] @ directions[i, a] for a in arms]

            def loss(x: Array, g: list[float] = g) -> float:
                return -sum(math.log(max(1 + x_a * g_a, 1e-12)) for x_a, g_a in zip(x, g, strict=True))

            solution = minimize(
                loss,
                [0.0] * len(arms),
                method="SLSQP",
                bounds=[(-pi[i, a], 1 - pi[i, a]) for a in arms],
                constraints={"type": "eq", "fun": sum},
            )
            if not loss(solution.x) <= 0:  # it can end worse than it began
                continue
            block = [max(0.0, pi[i, a] + x) for a, x in zip(arms, solution.x, strict=True)]
            for j, a in enumerate(arms):
                x = block[j] / sum(block) - pi[i, a]
                pi[i, a] = block[j] / sum(block)
                Ve = V[a] @ directions[i, a]
                V[a] = V[a] - x * np.outer(Ve, Ve) / (1 + x * g[j])
        sweeps += 1
        proof = certificate(pi, directions, active)
    return Design(pi, proof, sweeps)


def naive_run(
    means: Any,  # (M, K) true expected rewards
    psi: Any,  # (M, K, d)
    T: int,
    seed: int,
    *,
    delta: float = 0.1,
    ell: float | None = None,
    noise_std: float = 1.0,
    gap: float = 0.1,
    max_sweeps: int = 10,
) -> Array:
    """Fed-PECD as a plain script runs it, one draw per pull; the cumulative regret of each agent (M,) at step T."""
    rng = np.random.default_rng(seed)
    psi = np.array(psi, dtype=float)
    M, K, _ = psi.shape
    e = np.array([[unit(psi[i, a]) for a in range(K)] for i in range(M)])
    mean = [[float(x) for x in row] for row in means]
    optimum = [max(row) for row in mean]
    regret = [0.0] * M

    def pull(i: int, a: int, *_: int) -> float:
        regret[i] += optimum[i] - mean[i][a]
        return mean[i][a] + noise_std * rng.standard_normal()

    def allocation(p: int, active: Array) -> Array:
        return allocate(g_optimal_slsqp(e, active, gap, max_sweeps).pi, active, 2**p)

    fed_pecd(psi, T, reward=pull, exploit=pull, allocation=allocation, delta=delta, ell=ell)
    return np.array(regret)
