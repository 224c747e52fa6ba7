"""The fast policies take the same decisions as the slow oracle on the same rewards."""

from itertools import combinations

import numpy as np
import pytest
import reference as ref
from compiling import COMPILED_OR_NOT, NEEDS_NUMBA
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fedbandit_envs as fb
from fedbandit_agents.phased.elimination import PhasedElimination

TIE = 1e-9


def scripted(seed, *key):
    """A reward that depends on nothing but its key."""
    return float(np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key))).normal())


class PaidByPhase(fb.HiddenContextBandit):
    """Rewards by script: of the index-th exploration pull in a phase, or of a step."""

    def __init__(self, problem, reward, **keywords):
        super().__init__(problem, **keywords)
        self.reward, self.phase, self.arms = reward, -1, []

    def pull(self, plan):
        feedback = super().pull(plan)
        if not plan.explore.any():
            self.arms.append(plan.arm.copy())
            step = [self.reward(i, int(arm), self.steps) for i, arm in enumerate(plan.arm)]
            return fb.Feedback(plan.explore, feedback.explored_sums, plan.arm, feedback.played, np.array(step))
        self.phase += 1
        sums = np.zeros(plan.explore.shape)
        for (i, a), count in np.ndenumerate(plan.explore):
            sums[i, a] = sum(self.reward(i, a, self.phase, index) for index in range(count))
        return fb.Feedback(plan.explore, sums, plan.arm, feedback.played, feedback.played_sums)


@st.composite
def problems(draw):
    """psi (M, K, d), often degenerate: small whole numbers, repeated agents, a common direction, or generic."""
    shape = draw(st.integers(1, 6)), draw(st.integers(2, 6)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["generic", "whole", "repeated", "collinear", "identity"]))
    psi = rng.standard_normal(shape)
    if kind == "whole":
        psi = rng.integers(-1, 2, shape).astype(float)
        psi[..., 0] = np.where((psi == 0).all(axis=-1), 1.0, psi[..., 0])
    elif kind == "repeated":
        psi = np.repeat(psi[:1], shape[0], axis=0)
    elif kind == "collinear":
        psi = rng.uniform(0.5, 2, (*shape[:2], 1)) * psi[:1]
    elif kind == "identity":
        psi = np.repeat(psi[:, :1], shape[1], axis=1)
    return psi / np.linalg.norm(psi, axis=-1).max()


def ranks_are_clear(psi):
    """Whether any agents' features of an arm span a direction either well or not at all: in between readings differ."""
    e = psi / np.linalg.norm(psi, axis=-1, keepdims=True)
    for size in range(2, len(e) + 1):
        for agents in combinations(range(len(e)), size):
            values = np.linalg.svd(e[list(agents)].transpose(1, 0, 2), compute_uv=False)
            share = values / values[:, :1]
            if ((share > 1e-10) & (share < 1e-3)).any():
                return False
    return True


def environment(psi, horizon, reward, hidden):
    num_agents, num_arms, dim = psi.shape
    flat = psi.reshape(num_agents, -1)
    contexts = fb.Gaussian(flat, std=0.1) if hidden else fb.PointMass(flat)
    theta = np.ones((num_arms, dim))
    problem = fb.Linear(theta, contexts=contexts, feature_map=fb.Table(num_arms, dim))
    return PaidByPhase(problem, reward, max_cycles=horizon)


def fast_run(env, policy):
    """The exchanges of a run, and the design pi of each phase."""
    rounds = fb.CommunicationRounds(env, policy, record=True)
    rounds.reset(seed=0)
    designs = {}
    while not rounds.done:
        rounds.advance()
        server = rounds.carrier.server
        designs[server.phase] = server.pi.copy()
    return rounds.history(), designs


@settings(max_examples=120, deadline=None)
@given(
    psi=problems(),
    horizon=st.integers(1, 300),
    seed=st.integers(0, 2**16),
    hidden=st.booleans(),
    zeros=st.booleans(),
    width=st.sampled_from([1.0, 0.2, 0.03]),
    first=st.sampled_from([1, 1, 3]),
    growth=st.sampled_from([2, 3]),
)
@pytest.mark.parametrize("compiled", COMPILED_OR_NOT)
def test_fast_and_slow_phased_elimination_decide_alike(
    compiled, psi, horizon, seed, hidden, zeros, width, first, growth
):
    assume(ranks_are_clear(psi))

    def reward(*key):
        value = scripted(seed, *key)
        return float(value > 0) if zeros else value  # zeros are what leaves a direction undefined

    env = environment(psi, horizon, reward, hidden)
    policy = fb.make_policy("Fed-PECD", width=width, first=first, growth=growth, compiled=compiled)
    history, designs = fast_run(env, policy)
    shown = [x.up.present["arms"] for x in history.exchanges if x.up is not None and x.up.kind == "active"]
    given_out = [x.down["pulls"] for x in history.exchanges if x.down is not None and x.down.kind == "allocation"]
    explored = [x for x in history.exchanges if x.plan.length]

    def allocation(phase, active):
        return given_out[phase - 1] if np.array_equal(active, shown[phase - 1]) else None  # None: they part

    trace = ref.fed_pecd(
        psi,
        horizon,
        reward=reward,
        allocation=allocation,
        design=lambda phase, active: designs[phase],
        ell=history.constants.ell,
        w=width,
        c=first,
        n=growth,
        tol=1e-6,
        rcond=1e-9,
    )
    for phase in trace.phases[1:]:
        if trace.closest_call(phase.p) < TIE:
            return  # two right readings may part here
        np.testing.assert_array_equal(shown[phase.p - 1], phase.active)
        np.testing.assert_array_equal(explored[phase.p].plan.arm, phase.best)
        theta, V = estimates_before(history, phase.p)
        known = ~np.isnan(phase.theta[:, 0])
        np.testing.assert_allclose(theta[known], phase.theta[known], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(V[known], phase.V[known], rtol=1e-6, atol=1e-9)
    assert len(trace.phases) == len(explored)
    np.testing.assert_array_equal(history.pulls[-1], trace.pulls)
    assert history.ledger.scalars_up == trace.scalars_up
    assert history.ledger.scalars_down == trace.scalars_down


def estimates_before(history, phase):
    downs = [x.down for x in history.exchanges if x.down is not None and x.down.kind == "estimates"]
    return downs[phase - 1]["theta"], downs[phase - 1]["V"]


@settings(max_examples=25, deadline=None)
@given(psi=problems(), horizon=st.integers(1, 120), seed=st.integers(0, 2**16))
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Local-UCB", {}),
        pytest.param("Local-UCB", {"compiled": True}, marks=NEEDS_NUMBA),
        ("KK-UCB", {}),
        ("DisLinUCB", {}),
    ],
)
def test_fast_and_slow_step_by_step_policies_decide_alike(name, parameters, psi, horizon, seed):
    def reward(*key):
        return scripted(seed, *key)

    env = environment(psi, horizon, reward, hidden=True)
    history = fb.play(env, fb.make_policy(name, **parameters), seed=0)
    arms = np.array(env.arms).T
    steps = {
        "Local-UCB": lambda: ref.local_ucb(*psi.shape[:2], horizon, reward),
        "KK-UCB": lambda: ref.kk_ucb(psi, horizon, reward),
        "DisLinUCB": lambda: ref.dis_lin_ucb(psi, horizon, reward),
    }[name]()
    margins = steps.margins.min(axis=0)
    margins[1:] = np.minimum(margins[1:], [*steps.sync_margins, *[np.inf] * horizon][: horizon - 1])
    close = np.flatnonzero(margins < TIE)  # from the first of these on, two right readings may part
    until = int(close[0]) if len(close) else horizon
    np.testing.assert_array_equal(arms[:, :until], steps.arms[:, :until])
    if until == horizon:
        assert (history.ledger.scalars_up, history.ledger.scalars_down) == (steps.scalars_up, steps.scalars_down)


@pytest.mark.parametrize("hidden", [True, False])
def test_kk_ucb_explores_less_when_the_context_is_known(hidden):
    psi = np.random.default_rng(3).standard_normal((2, 3, 2))

    def reward(*key):
        return scripted(1, *key)

    env = environment(psi, 60, reward, hidden)
    fb.play(env, fb.make_policy("KK-UCB", sigma=0.5), seed=0)
    steps = ref.kk_ucb(psi, 60, reward, sigma=0.5, hidden=hidden)
    assert steps.margins.min() > TIE
    np.testing.assert_array_equal(np.array(env.arms).T, steps.arms)


@settings(max_examples=40, deadline=None)
@given(psi=problems(), seed=st.integers(0, 2**16))
@pytest.mark.parametrize("name", ["Enhanced-Fed-PE", "Collaborative", "Shared-Theta-Fed-PE"])
def test_the_variants_of_fed_pe_estimate_as_the_oracle_does(name, psi, seed):
    assume(ranks_are_clear(psi))

    def reward(*key):
        return scripted(seed, *key)

    env = environment(psi, 200, reward, hidden=False)
    env.observe = "context"
    policy = fb.make_policy(name, width=0.2)
    assert isinstance(policy, PhasedElimination)
    history, _ = fast_run(env, policy)
    shape = psi.shape
    ups = [x for x in history.exchanges if x.up is not None]
    reports = [(x.plan.explore, x.up["theta"]) for x in ups if x.up.kind == "estimates"]
    downs = [x.down for x in history.exchanges if x.down is not None and x.down.kind == "estimates"]
    shown = [x.up.present["arms"] for x in ups if x.up.kind == "active"]
    r_history, norm_history = [], []
    active = np.ones(shape[:2], dtype=bool)
    for (f, theta_local), down, now in zip(reports, downs, shown, strict=False):
        senders = f.any(axis=1)
        local = np.zeros(shape)
        local[senders] = theta_local
        theta, V = oracle_estimate(name, psi, f, local)
        known = f.any(axis=0)
        sent = down["theta"], down["V"]
        if name == "Shared-Theta-Fed-PE":
            np.testing.assert_allclose(sent[0][0], theta[0], rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(sent[1][0], V[0], rtol=1e-6, atol=1e-9)
            known = np.ones(shape[1], dtype=bool)
        else:
            np.testing.assert_allclose(sent[0][known], theta[known], rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(sent[1][known], V[known], rtol=1e-6, atol=1e-9)
        r = np.einsum("mad,ad->ma", psi, theta)
        norms = np.array([[ref.norm_in(psi[i, a], V[a], 1e-6, 1e-9) for a in range(shape[1])] for i in range(shape[0])])
        r_history.append(r)
        norm_history.append(norms)
        for i in range(shape[0]):
            r_i, u_i = widths(name, policy, history.constants, r_history, norm_history, i)
            decision = ref.decide(r_i, u_i, active[i])
            margins = [decision.best_margin, *decision.elimination_margin[active[i]]]
            if np.nanmin(np.abs(margins)) < 1e-7:
                return
            np.testing.assert_array_equal(now[i], decision.active)
        active = now


def oracle_estimate(name, psi, f, local):
    num_agents, num_arms, dim = psi.shape
    if name == "Shared-Theta-Fed-PE":
        theta, V = ref.shared_theta_estimate(f, local, 1e-9)
        return np.repeat(theta[None], num_arms, axis=0), np.repeat(V[None], num_arms, axis=0)
    theta, V = np.zeros((num_arms, dim)), np.zeros((num_arms, dim, dim))
    for a in range(num_arms):
        senders = [i for i in range(num_agents) if f[i, a] > 0]
        if not senders:
            continue
        if name == "Collaborative":
            theta[a], V[a] = ref.collaborative_estimate(
                [psi[i, a] for i in senders], [f[i, a] for i in senders], [local[i, a] for i in senders], 1e-9
            )
        else:
            theta[a], V[a] = ref.aggregate([f[i, a] for i in senders], [local[i, a] for i in senders], 1e-9)
    return theta, V


def widths(name, policy, constants, r_history, norm_history, i):
    num_arms, dim = constants.num_arms, constants.dim
    if name == "Shared-Theta-Fed-PE":
        return r_history[-1][i], policy.width * policy.alpha(constants) / constants.ell * norm_history[-1][i]
    ell = 1.0 if name == "Collaborative" else constants.ell
    pairs = [
        ref.enhanced_widths(
            [r[i, a] for r in r_history],
            [norm[i, a] for norm in norm_history],
            constants.num_agents,
            num_arms,
            dim,
            policy.delta,
            ell,
        )
        for a in range(num_arms)
    ]
    return np.array([r for r, _ in pairs]), policy.width * np.array([u for _, u in pairs])
