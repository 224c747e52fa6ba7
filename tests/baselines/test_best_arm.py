"""Best-arm identification: hand cases, a slow oracle that shares no code, and what the papers claim."""

import math
from collections import Counter

import numpy as np
import pytest
from scripted import ScriptedBandit, table

import fedbandit_envs as fb
from fedbandit_baselines.limited_interaction import LimitedInteractionServer
from fedbandit_baselines.one_round import OneRoundServer
from fedbandit_envs.protocol.knowledge import ServerView


def constants(num_agents, num_arms, horizon=1000):
    given = {"dim": 2, "ell": 1.0, "L": 1.0, "noise_std": 0.5, "context": "fixed"}
    return fb.Constants(num_agents=num_agents, num_arms=num_arms, horizon=horizon, **given)


def answer_of(server, policy, known, *messages):
    side = server(policy, ServerView.of_run(known, seed=0))
    return [side.answer(message) for message in messages][-1]


# --- by hand ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agents", "arms", "drawn"), [(36, 16, 16), (144, 16, 8), (576, 16, 4), (4, 16, 16), (99, 1, 1)]
)
def test_an_agent_of_one_round_looks_at_six_times_the_arms_over_the_root_of_the_agents(agents, arms, drawn):
    assert fb.make_policy("One-Round").num_drawn(constants(agents, arms)) == drawn


def test_one_round_takes_the_largest_average_of_arms_with_more_than_root_k_votes():
    policy, known = fb.make_policy("One-Round"), constants(9, 4)
    arm = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2])  # 4, 4 and 1 votes; more than 3 are needed
    mean = np.array([0.5, 0.5, 0.5, 0.5, 0.9, 0.3, 0.5, 0.5, 1.0])  # averages .5, .55 and 1
    vote = fb.Message("vote", {"arm": arm, "mean": mean}, np.arange(9))
    assert answer_of(OneRoundServer, policy, known, vote)["best"].tolist() == [1]
    best = fb.make_policy("One-Round", undecided="best")
    assert answer_of(OneRoundServer, best, known, vote.rows(np.array([0, 4, 8])))["best"].tolist() == [2]


def test_exactly_root_k_votes_are_not_enough():
    policy = fb.make_policy("One-Round")
    arm = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2])  # arm 1 has 3 = sqrt(9) votes, and the largest average
    vote = fb.Message("vote", {"arm": arm, "mean": arm * 1.0}, np.arange(9))
    assert answer_of(OneRoundServer, policy, constants(9, 4), vote)["best"].tolist() == [0]


def test_the_margin_of_limited_interaction_by_hand():
    policy = fb.make_policy("Limited-Interaction", budget=800, rounds=3)
    margin = 2 * math.sqrt(3 * math.log(200 * 64 * 3) / (800 * 4))
    assert policy.margin(16, constants(64, 16)) == pytest.approx(margin) == pytest.approx(0.19896, abs=1e-5)
    alone = 2 * math.sqrt(3 * math.log(200 * 4 * 3) / 800)  # more arms than agents: max(1, M / |S|) = 1
    assert policy.margin(16, constants(4, 16)) == pytest.approx(alone)
    assert (policy.time_alone(constants(64, 16)), policy.round_pulls(constants(64, 16))) == (0, 266)
    assert (policy.time_alone(constants(4, 16)), policy.round_pulls(constants(4, 16))) == (400, 133)


def test_limited_interaction_pools_by_pulls_and_deals_what_is_left_in_turn():
    policy = fb.make_policy("Limited-Interaction", budget=10**6, rounds=2)  # a margin below .02
    ask = fb.Message("ask", {}, np.arange(5))
    assert answer_of(LimitedInteractionServer, policy, constants(5, 3), ask)["arm"].tolist() == [0, 1, 2, 0, 1]
    # Arm 0: (100 * .5 + 300 * .7) / 400 = .65; arm 1: .65; arm 2: .6, which is dropped.
    mean = {"mean": np.array([0.5, 0.65, 0.6, 0.7, 0.65]), "pulls": np.array([100, 100, 100, 300, 100])}
    down = answer_of(LimitedInteractionServer, policy, constants(5, 3), ask, fb.Message("mean", mean, np.arange(5)))
    assert down.kind == "arm"
    assert down["arm"].tolist() == [0, 1, 0, 1, 0]


def test_with_more_arms_than_agents_every_arm_is_dealt_to_one_agent():
    policy = fb.make_policy("Limited-Interaction", budget=200)
    env = fb.make("fedbandit/MultiArmed-v0", num_agents=3, num_arms=8, noise_std=0.5, max_cycles=400)
    history = fb.play(env, policy, seed=0, record=True)
    given = history.exchanges[1].down.present["arms"]
    assert (given.sum(axis=0) == 1).all()
    assert sorted(given.sum(axis=1)) == [2, 3, 3]
    alone = [turn for turn in history.exchanges if turn.plan.explores]
    assert sum(turn.plan.length for turn in alone) <= 100
    assert all(not turn.plan.explore[~given].any() for turn in alone)
    assert {len(turn.up.arrays) for turn in history.exchanges if turn.up is not None} == {0, 1, 2}


def test_best_arm_policies_are_charged_by_the_formulas():
    """One-Round sends a vote and an answer. A round of Limited-Interaction sends 2 numbers up and an arm down."""

    def ledger(name, agents, arms, **parameters):
        env = fb.make("fedbandit/MultiArmed-v0", num_agents=agents, means=[0.5] * arms, max_cycles=500)
        found = fb.play(env, fb.make_policy(name, budget=300, **parameters), seed=0).ledger
        return found.rounds, found.scalars_up, found.scalars_down

    assert ledger("One-Round", 40, 3) == (1, 2 * 40, 40)
    # Equal arms are all left: the call, an arm for each agent, two rounds of means, and the answer with the last.
    assert ledger("Limited-Interaction", 5, 3, rounds=2) == (1 + 2, 2 * 5 * 2, 5 * (1 + 2))
    # With more arms than agents each arm is dealt out once, and each agent chooses one: 1 number more from each.
    assert ledger("Limited-Interaction", 2, 5, rounds=1) == (1 + 1 + 1, 2 + 2 * 2, 5 + 2 + 2)


def test_votes_for_arms_that_do_not_exist_are_refused():
    server = OneRoundServer(fb.make_policy("One-Round"), ServerView.of_run(constants(3, 4), seed=0))
    vote = fb.Message("vote", {"arm": np.array([0, 4, -1]), "mean": np.array([0.5, 0.5, np.nan])}, np.arange(3))
    assert server.refuses(vote) == {
        1: "sent something about arm 4, which does not exist",
        2: "sent NaN or infinity in mean",
    }


# --- the slow oracle -------------------------------------------------------------------------------------------------


class OneAgent:
    """One agent that eliminates arms alone, pull by pull, on the rewards of a table (K, T)."""

    def __init__(self, rewards, arms, most, delta):
        self.rewards, self.left, self.most, self.delta = rewards, list(arms), most, delta
        self.taken = Counter()
        self.kept = {arm: [] for arm in arms}

    def pull(self, arm):
        self.taken[arm] += 1
        return self.rewards[arm, self.taken[arm] - 1]

    def mean(self, arm):
        return sum(self.kept[arm]) / len(self.kept[arm])

    def best(self):
        known = [arm for arm in self.left if self.kept[arm]]
        return max(known, key=self.mean) if known else self.left[0]

    def eliminate(self, time):
        phase, spent = 1, 0
        while spent < time:
            length, best = min(2 ** (phase - 1) * self.most, time - spent), self.best()
            each = length // len(self.left)
            for arm in self.left:
                self.kept[arm] += [self.pull(arm) for _ in range(each)]
            for _ in range(length - each * len(self.left)):
                self.pull(best)
            spent += length
            if all(self.kept.values()):
                bound = {
                    arm: math.sqrt(2 * math.log(4 * self.most * phase**2 / self.delta) / len(self.kept[arm]))
                    for arm in self.left
                }
                low = max(self.mean(arm) - bound[arm] for arm in self.left)
                self.left = [arm for arm in self.left if self.mean(arm) + bound[arm] >= low]
            phase += 1
        return self.best()


def played(policy, rewards):
    problem = fb.MultiArmed(num_agents=len(rewards), num_arms=rewards.shape[1], local_std=0.1, noise_std=1.0)
    env = ScriptedBandit(problem, rewards, max_cycles=rewards.shape[2])
    return fb.play(env, policy, seed=0, record=True)


@pytest.mark.parametrize(("num_agents", "seed"), [(5, 0), (5, 1), (5, 2), (64, 3), (64, 4)])
def test_fast_and_slow_one_round_vote_alike(num_agents, seed):
    num_arms, budget = 6, 1500
    rewards = table(num_agents, num_arms, 3000, seed)
    history = played(fb.make_policy("One-Round", budget=budget, undecided="best"), rewards)
    first = history.exchanges[0].plan.explore
    most = min(num_arms, math.ceil(6 * num_arms / math.sqrt(num_agents)))
    assert (first.sum(axis=1) == most).all()
    votes = {}
    vote = next(turn.up for turn in history.exchanges if turn.up is not None)
    for m in range(num_agents):
        agent = OneAgent(rewards[m], np.flatnonzero(first[m]).tolist(), most, 1 / 3)
        arm = agent.eliminate(budget // 2)
        votes.setdefault(arm, []).append(sum(agent.pull(arm) for _ in range(budget - budget // 2)) / 750)
        assert vote["arm"][m] == arm
        assert vote["mean"][m] == pytest.approx(votes[arm][-1])
    many = {arm: qs for arm, qs in votes.items() if len(qs) > math.sqrt(num_agents)} or votes
    answer = max(sorted(many), key=lambda arm: sum(many[arm]) / len(many[arm]))
    assert set(history.recommended[-1].tolist()) == {answer}
    assert (history.active[-1] == 1).all()


@pytest.mark.parametrize(("num_agents", "num_arms", "seed"), [(6, 4, 0), (6, 4, 1), (9, 9, 2), (3, 7, 3), (3, 7, 4)])
def test_fast_and_slow_limited_interaction_answer_alike(num_agents, num_arms, seed):
    budget, rounds, horizon = 1200, 3, 3000
    rewards = table(num_agents, num_arms, horizon, seed)
    history = played(fb.make_policy("Limited-Interaction", budget=budget, rounds=rounds, undecided="best"), rewards)
    crowded, left, most = num_arms > num_agents, set(range(num_arms)), -(-num_arms // num_agents)
    dealt = history.exchanges[1].down
    own = [np.flatnonzero(dealt.present["arms"][m]).tolist() if crowded else [] for m in range(num_agents)]
    agents = [OneAgent(rewards[m], own[m], most, 0.01) for m in range(num_agents)]
    if crowded:
        left = {agent.eliminate(budget // 2) for agent in agents}
    pulls = (budget - budget // 2 if crowded else budget) // rounds
    for _ in range(rounds):
        if len(left) == 1:
            break
        arms, found = sorted(left), {}
        for m, agent in enumerate(agents):
            found.setdefault(arms[m % len(arms)], []).append(sum(agent.pull(arms[m % len(arms)]) for _ in range(pulls)))
        means = {arm: sum(sums) / (pulls * len(sums)) for arm, sums in found.items()}
        share = max(1, num_agents / len(arms))
        margin = 4 * math.sqrt(rounds * math.log(200 * num_agents * rounds) / (budget * share))  # 2 (2 sigma), sigma 1
        left = {arm for arm in arms if means[arm] >= max(means.values()) - margin}
    answer = max(sorted(left), key=means.get) if len(left) > 1 else left.pop()
    assert set(history.recommended[-1].tolist()) == {answer}


# --- claims ----------------------------------------------------------------------------------------------------------


def wrong(name, num_agents, means, runs, **parameters):
    """The share of runs that recommend a wrong arm; the best arm is at another place in each."""
    errors = 0
    for seed in range(runs):
        shuffled = np.random.default_rng(seed).permutation(means)
        env = fb.make(
            "fedbandit/MultiArmed-v0",
            num_agents=num_agents,
            means=shuffled,
            rewards="bernoulli",
            max_cycles=2 * parameters["budget"],
        )
        history = fb.play(env, fb.make_policy(name, **parameters), seed=seed)
        assert (history.recommended[-1] >= 0).all()
        errors += bool(history.simple_regret()[-1].any())
    return errors / runs


SIXTEEN = [0.7] + 15 * [0.5]


@pytest.mark.slow
def test_the_error_of_one_round_falls_with_time_and_with_agents():
    # Another program had no error at these times, which fall faster than 1 / sqrt(k), and .9 for 36 agents at the last
    # one. If the error were 1 in 100, more than 10 % of 40 runs are wrong with probability below 1e-4; if it were .9,
    # fewer than 70 % with probability below 1e-3. The seeds are fixed.
    # For 144 agents and T = 10,000 it had .8. The paper leaves the routine of a single agent open, and ours ends by
    # then: a first look found no error at 7,000, and .9 at 2,500. So these two times are chosen by what was seen.
    for num_agents, time in ((36, 40_000), (144, 20_000), (576, 5_000)):
        assert wrong("One-Round", num_agents, SIXTEEN, 40, budget=time) <= 0.1
    assert wrong("One-Round", 36, SIXTEEN, 40, budget=10_000) >= 0.7
    assert wrong("One-Round", 144, SIXTEEN, 40, budget=10_000) <= 0.1
    assert wrong("One-Round", 144, SIXTEEN, 40, budget=2_500) >= 0.7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rounds", "time", "theirs"),
    [
        (1, 200, 0.87),
        (1, 400, 0.03),
        (1, 800, 0),
        (1, 1600, 0),
        (3, 200, 0.92),
        (3, 400, 0.92),
        (3, 800, 0.01),
        (3, 1600, 0),
        (6, 200, 0.94),
        (6, 400, 0.94),
        (6, 800, 0.92),
        (6, 1600, 0),
    ],
)
def test_limited_interaction_errs_as_often_as_the_authors_program(rounds, time, theirs):
    # 200 runs: a share of .87 is below .75 with probability 1e-6, one of .03 above .1 with probability 1e-6. These
    # bounds were chosen when the other program's numbers were known, and are the same for all.
    found = wrong("Limited-Interaction", 64, SIXTEEN, 200, rounds=rounds, budget=time)
    assert found >= 0.75 if theirs > 0.5 else found <= 0.1


@pytest.mark.slow
def test_more_rounds_find_the_best_arm_in_the_same_time_where_gaps_differ():
    # With one round two arms are left by the margin at T = 2200, and one of them is taken at random: an error of 1/2.
    # With three the margin of the last rounds, with 32 agents on each of two arms, is below the gap. If both erred in
    # half of the runs, at most 15 wrong of 60 has probability 7e-5; if one round erred never, it could not reach 15.
    means = [0.7, 0.65] + 14 * [0.2]
    assert wrong("Limited-Interaction", 64, means, 60, rounds=3, budget=2200) <= 0.25
    assert wrong("Limited-Interaction", 64, means, 60, rounds=1, budget=2200) > 0.25


@pytest.mark.slow
def test_more_agents_find_the_best_arm_in_the_same_time():
    # Margins shrink as 1 / sqrt(M): with 16 agents nearly all arms are left at T = 400, with 64 one, see above.
    assert wrong("Limited-Interaction", 16, SIXTEEN, 60, rounds=1, budget=400) >= 0.7
    assert wrong("Limited-Interaction", 64, SIXTEEN, 60, rounds=1, budget=400) <= 0.2
