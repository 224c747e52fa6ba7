"""Multi-armed policies: hand cases, and a slow oracle that shares no code."""

import math

import numpy as np
import pytest
from scripted import ScriptedBandit, table

import fedbandit_envs as fb
from fedbandit_baselines.pf_ucb import shares
from fedbandit_baselines.pooled_elimination import PooledServer

M, K, T = 5, 4, 4000


def problem(num_agents=M):
    return fb.MultiArmed(num_agents=num_agents, num_arms=K, local_std=0.1, noise_std=1.0)


def played(policy, rewards):
    env = ScriptedBandit(problem(len(rewards)), rewards, max_cycles=rewards.shape[2])
    return fb.play(env, policy, seed=0, record=True)


def constants(**keywords):
    given = {"num_agents": 6, "num_arms": 2, "dim": 2, "horizon": 1000, "ell": 1.0, "L": 1.0, "noise_std": 1.0}
    return fb.Constants(**{**given, "context": "fixed", "context_proxy": 0.04, **keywords})


# --- by hand ---------------------------------------------------------------------------------------------------------


class Waves(fb.make_policy("Fed2-UCB").__class__):
    """Fed2-UCB with waves of 2 and 4 agents, which keeps what its bounds are made of."""

    def radii(self, phase, eta, clients, constants):
        SEEN.append((eta.copy(), clients.copy()))
        return super().radii(phase, eta, clients, constants)


SEEN: list = []


def test_eta_of_fed2_ucb_by_hand():
    SEEN.clear()
    server = PooledServer(Waves(pulls_per_phase=3), constants())
    for agents in (2, 6):
        means = {"means": np.zeros((agents, 2))}
        server.answer(fb.Message("means", means, np.arange(agents), {"means": np.ones((agents, 2), dtype=bool)}))
    (first, two), (second, six) = SEEN
    np.testing.assert_allclose(first, 1 / 6)
    np.testing.assert_allclose(second, (2 / 6 + 4 / 3) / 36)
    assert two.tolist() == [2, 2]
    assert six.tolist() == [6, 6]


def test_bounds_of_fed1_and_fed2_ucb_by_hand():
    eta, clients, log = np.array([1 / 6, 1 / 24]), np.array([2, 2]), math.log(1000)
    fed1 = fb.make_policy("Fed1-UCB").radii(1, eta, clients, constants())
    np.testing.assert_allclose(fed1, [math.sqrt(log), math.sqrt(log / 4)])
    fed2 = fb.make_policy("Fed2-UCB").radii(1, eta, clients, constants())
    np.testing.assert_allclose(fed2, fed1 + math.sqrt(6 * 0.04 * log / 2))
    assert fb.make_policy("Fed1-UCB").pulls(1, constants(horizon=10**6)) == math.ceil(138.155)


def test_fed2_ucb_admits_2_6_14_and_then_all_agents():
    policy = fb.make_policy("Fed2-UCB")
    assert [policy.num_admitted(phase, constants(num_agents=20)) for phase in (1, 2, 3, 4, 99)] == [2, 6, 14, 20, 20]


def test_agents_that_are_not_admitted_play_arms_in_turn_and_then_the_best_of_the_server():
    env = fb.HiddenContextBandit(problem(9), max_cycles=3000)
    history = fb.play(env, fb.make_policy("Fed2-UCB", pulls_per_phase=10), seed=1, record=True)
    first, second = history.exchanges[:2]
    assert first.up.agents.tolist() == [0, 1]
    assert not first.plan.explore[2:].any()
    assert first.plan.arm.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert second.up.agents.tolist() == list(range(6))
    averages = first.up["means"].mean(axis=0)
    assert (second.plan.arm == averages.argmax()).all()
    assert history.admitted[0].sum() == 2
    assert history.admitted[-1].all()
    assert (history.recommended[0] == -1).all()


def test_a_phase_of_fed1_ucb_costs_the_arms_that_were_and_those_that_are_left():
    history = played(fb.make_policy("Fed1-UCB", pulls_per_phase=20, noise_scale=1.0), table(M, K, T))
    turns = [turn for turn in history.exchanges if turn.up is not None]
    left = [int(turn.plan.explore[0].astype(bool).sum()) for turn in turns]
    after = [int(turn.down.present["arms"].sum()) for turn in history.exchanges[1:]]
    assert left[0] == K
    assert after[-1] == 1
    assert history.ledger.scalars_up == M * sum(left)
    assert history.ledger.scalars_down == M * sum(arms + 1 for arms in after)


def test_times_of_multi_round_by_hand():
    policy, rewards_in_0_1 = fb.make_policy("Multi-Round"), constants(num_agents=4, noise_std=0.5)
    assert policy.time(1, rewards_in_0_1) == pytest.approx(2 * math.log(80)) == pytest.approx(8.76, abs=0.01)
    assert policy.time(2, rewards_in_0_1) == pytest.approx(8 * math.log(320)) == pytest.approx(46.1, abs=0.1)
    assert [policy.pulls(r, rewards_in_0_1) for r in (1, 2)] == [9, 47 - 9]
    assert [policy.is_last(r, rewards_in_0_1) for r in (4, 5)] == [False, True]


def test_multi_round_keeps_an_arm_that_is_exactly_e_r_below_the_best():
    for gap, kept in ((0.5, True), (0.51, False)):
        server = PooledServer(fb.make_policy("Multi-Round"), constants(num_agents=1))
        up = fb.Message("means", {"means": np.array([[1.0, 1 - gap]])}, np.arange(1), {"means": np.ones((1, 2), bool)})
        assert server.answer(up).present["arms"].tolist() == [True, kept]


# --- the slow oracle -------------------------------------------------------------------------------------------------


class Paid:
    """The rewards of the table, in the order in which each agent pulls."""

    def __init__(self, rewards):
        self.rewards, self.count = rewards, np.zeros(rewards.shape[:2], dtype=int)
        self.left = rewards.shape[2]

    def pull(self, agent, arm, times):
        start = self.count[agent, arm]
        self.count[agent, arm] += times
        return self.rewards[agent, arm, start : start + times].sum()


def slow_ucb1(rewards):
    """UCB1, agent by agent; returns the pulls."""
    agents, arms, horizon = rewards.shape
    paid = Paid(rewards)
    for m in range(agents):
        sums = [0.0] * arms
        for t in range(horizon):
            new = [a for a in range(arms) if paid.count[m, a] == 0]
            index = [
                sums[a] / max(n, 1) + math.sqrt(2 * math.log(max(t, 1)) / max(n, 1))
                for a, n in enumerate(paid.count[m])
            ]
            arm = new[0] if new else int(np.argmax(index))
            sums[arm] += paid.pull(m, arm, 1)
    return paid.count


def slow_pooled_ucb(rewards):
    agents, arms, horizon = rewards.shape
    paid, sums = Paid(rewards), [0.0] * arms
    for _ in range(horizon):
        n = paid.count.sum(axis=0)
        new = [a for a in range(arms) if n[a] == 0]
        index = [sums[a] / max(n[a], 1) + math.sqrt(2 * math.log(max(n.sum(), 1)) / max(n[a], 1)) for a in range(arms)]
        arm = new[0] if new else int(np.argmax(index))
        for m in range(agents):
            sums[arm] += paid.pull(m, arm, 1)
    return paid.count


def slow_fed1_ucb(rewards, f, scale):
    """Fed1-UCB, agent by agent: the arms that are left before each phase, and the pulls."""
    agents, arms, horizon = rewards.shape
    paid, left, trace, sums, total, taken = Paid(rewards), list(range(arms)), [], np.zeros((agents, arms)), 0, 0
    while len(left) > 1:
        trace.append(list(left))
        if taken + f * len(left) >= horizon:
            return trace
        for m in range(agents):
            for a in left:
                sums[m, a] += paid.pull(m, a, f)
        taken, total = taken + f * len(left), total + f
        x = {a: sum(sums[m, a] / total for m in range(agents)) / agents for a in left}
        bound = math.sqrt(scale * math.log(horizon) / (agents * total))
        left = [a for a in left if not x[a] + bound <= max(x.values()) - bound]
    return [*trace, left]


def slow_pf_ucb(rewards, alpha, width, enhanced=False):
    """PF-UCB, agent by agent: the sets A_m after each phase."""
    agents, arms, horizon = rewards.shape
    paid, own, taken, F, trace = Paid(rewards), [set(range(arms)) for _ in range(agents)], 0, 0.0, []
    sums, best = np.zeros((agents, arms)), [0] * agents
    counts = np.zeros((agents, arms), dtype=int)
    far = [[1.0] * arms for _ in range(agents)]  # D
    last = [[0.0] * arms for _ in range(agents)]  # the last mixed estimates
    for phase in range(1, 40):
        group = set().union(*own)
        f = 2**phase * math.log(horizon)
        F += f
        wants = []
        for m in range(agents):
            wants.append({})
            for a in group:
                others = sum(math.sqrt(far[n][a]) for n in range(agents)) / agents
                root = math.sqrt(far[m][a])
                g = f * (alpha * root + (1 - alpha) * others) / root if enhanced else f
                wants[m][a] = math.ceil((1 - alpha) * g) + (math.ceil(agents * alpha * g) if a in own[m] else 0)
        length = max(sum(want.values()) for want in wants)
        if not group or taken + length >= horizon:
            return trace
        for m, want in enumerate(wants):
            for a in sorted(want):
                sums[m, a] += paid.pull(m, a, want[a])
                counts[m, a] += want[a]
            paid.pull(m, best[m], length - sum(want.values()))
        taken += length
        average = {a: sum(sums[m, a] / counts[m, a] for m in range(agents)) / agents for a in group}
        bound = math.sqrt(width * math.log(horizon) / (agents * F))
        for m in range(agents):
            mixed = {a: alpha * sums[m, a] / counts[m, a] + (1 - alpha) * average[a] for a in own[m]}
            if mixed:
                best[m] = max(sorted(mixed), key=lambda a: mixed[a])
            for a in group:
                last[m][a] = alpha * sums[m, a] / counts[m, a] + (1 - alpha) * average[a]
            far[m] = [min(1.0, max(last[m][best[m]] - last[m][a], 0.0) + 2 * bound) for a in range(arms)]
            own[m] = {a for a in own[m] if max(mixed.values()) - mixed[a] < 2 * bound}
            own[m] = set() if len(own[m]) == 1 else own[m]
        trace.append([sorted(one) for one in own])
    return trace


@pytest.mark.parametrize("seed", range(4))
def test_fast_and_slow_ucb_decide_alike(seed):
    rewards = table(3, K, 200, seed)
    np.testing.assert_array_equal(played(fb.make_policy("UCB1"), rewards).pulls[-1], slow_ucb1(rewards))
    np.testing.assert_array_equal(played(fb.make_policy("Pooled-UCB"), rewards).pulls[-1], slow_pooled_ucb(rewards))


@pytest.mark.parametrize("seed", range(6))
def test_fast_and_slow_fed1_ucb_decide_alike(seed):
    rewards = table(M, K, T, seed)
    history = played(fb.make_policy("Fed1-UCB", pulls_per_phase=20, noise_scale=1.0), rewards)
    found = [list(range(K)), *(np.flatnonzero(t.down.present["arms"]).tolist() for t in history.exchanges[1:])]
    assert found == slow_fed1_ucb(rewards, 20, 1.0)
    assert len(found[-1]) < K


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_fast_and_slow_pf_ucb_decide_alike(alpha, seed):
    rewards = table(M, K, T, seed)
    history = played(fb.make_policy("PF-UCB", alpha=alpha, width=0.5), rewards)
    sets = [turn.up.present["arms"] for turn in history.exchanges if turn.up is not None and turn.up.kind == "sets"]
    found = [[np.flatnonzero(row).tolist() for row in present] for present in sets]
    assert found == slow_pf_ucb(rewards, alpha, 0.5)
    assert len(found) > 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_fast_and_slow_pf_ucb_with_its_enhancement_decide_alike(alpha, seed):
    rewards = table(M, K, T, seed)
    history = played(fb.make_policy("PF-UCB", alpha=alpha, width=0.2, enhanced=True), rewards)
    sets = [turn.up.present["arms"] for turn in history.exchanges if turn.up is not None and turn.up.kind == "sets"]
    found = [[np.flatnonzero(row).tolist() for row in present] for present in sets]
    assert found == slow_pf_ucb(rewards, alpha, 0.2, enhanced=True)
    assert len(found) > 1


def test_enhanced_pf_ucb_explores_by_hand():
    # Two agents, two arms, alpha = 1/2. D_1 = (1, 1/4) and D_2 = (1, 1):
    # e_1 = (1, (1/2) (1/2 + 3/4) / (1/2)) = (1, 5/4), and e_2 = (1, (1/2) (1 + 3/4)) = (1, 7/8).
    roots = np.sqrt([[1.0, 0.25], [1.0, 1.0]])
    np.testing.assert_allclose(shares(roots, roots.sum(axis=0), 2, 0.5), [[1, 5 / 4], [1, 7 / 8]], rtol=1e-15)


def test_the_enhancement_of_pf_ucb_costs_k_numbers_of_every_agent_in_both_directions_and_begins_in_phase_two():
    rewards, sent = table(M, K, T), {}
    for enhanced in (False, True):
        history = played(fb.make_policy("PF-UCB", width=0.1, enhanced=enhanced), rewards)
        first, *later = [turn.plan.explore for turn in history.exchanges if turn.plan.explores]
        downs = [turn.down for turn in history.exchanges if turn.down is not None]
        ups = [turn.up for turn in history.exchanges if turn.up is not None]
        groups = [down for down in downs if down.kind == "group"]
        arms = sum(int(np.sum(one.present[name])) for one, name in sets_of(ups))
        arms_down = M * sum(int(np.sum(one.present[name])) for one, name in sets_of(downs))
        assert history.ledger.scalars_up == arms + enhanced * M * K * len([up for up in ups if up.kind == "sets"])
        assert history.ledger.scalars_down == arms_down + enhanced * M * K * len(groups)
        assert len(groups) > 1
        sent[enhanced] = first, later[0]
    np.testing.assert_array_equal(sent[False][0], sent[True][0])
    assert (sent[False][1] != sent[True][1]).any()


def sets_of(messages):
    """The messages, each with the name of its masked array."""
    return [(one, next(iter(one.present))) for one in messages]
