"""Fed-CI where contexts are new at each step: the oracle, cases by hand, all ways to play a run, and bad reports."""

import numpy as np
import pytest
import reference_stream
from histories import assert_same_history
from linear_problems import as_problem, drawn, recorded, stream
from refusals import assert_refused
from units import in_units

import fedbandit_envs as fb
from fedbandit_agents import FedCI
from fedbandit_agents.inference.expectation_propagation import upper_triangles
from fedbandit_agents.inference.stream_server import StreamServer

RELATIVES = ("Fed-CI", "Local-Thompson", "Federated-Thompson")

# --- the oracle -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RELATIVES)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("revealed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_oracle_decides_the_same(name, shared, revealed, seed):
    env, psi = stream(seed, shared=shared, reveal="after" if revealed else "never")
    spreads = drawn(seed, shared=shared)[2]
    history, arms, rewards = recorded(env, fb.make_policy(name))
    problem = as_problem(history, psi, arms, rewards)
    played = reference_stream.fed_ci_stream(
        psi,
        np.zeros_like(spreads) if name == "Federated-Thompson" else spreads,
        problem.rewards,
        sigma=0.3,
        shared=shared,
        alone=name == "Local-Thompson",
        features=problem.phi if revealed else None,
    )
    assert min(played.margins) > 1e-9  # no decision hangs on rounding
    np.testing.assert_array_equal(played.arms, arms)
    sent = [turn for turn in history.exchanges if turn.up is not None and turn.up.kind == "sums"]
    assert [turn.step for turn in sent] == sorted({step for step, _ in played.uploads})
    assert history.ledger.scalars == played.numbers
    assert (len(sent) > 1) == (name != "Local-Thompson")


# --- cases by hand ----------------------------------------------------------------------------------------------------


def test_the_first_arms_are_dealt_out_and_then_all_report():
    env = fb.make("fedbandit/Forecast-v0", num_agents=5, num_arms=5, variables=1, max_cycles=40)  # d = 2
    history = fb.play(env, FedCI(), seed=0, record=True)
    pulled = [turn.feedback.arm.tolist() for turn in history.exchanges if turn.plan.length]
    assert pulled[:2] == [[0, 2, 4, 1, 3], [1, 3, 0, 2, 4]]  # 2 = d K / M steps: every arm twice
    assert [turn.step for turn in history.exchanges if turn.up is not None][:2] == [1, 2]
    # Each agent has seen 2 arms: 3 numbers of a matrix and 2 moments each, and 2 of its residuals. All hear of 5 arms.
    assert history.ledger.per_round[1, 4:6].tolist() == [5 * (2 * 5 + 2), 5 * (5 * 5 + 1)]


def told(sigma=0.5, d=1, std=2.0):
    """One agent with one arm and psi = 3, which was told of 8 rewards of 6 and so knows that theta is 2."""
    arms = {"theta": [[2.0] * d], "feature_map": fb.Table(1, d), "noise_std": sigma, "max_cycles": 1000}
    mus = [fb.Gaussian([[3.0] * d], std=std)] * 1000
    env = fb.make("fedbandit/Linear-v0", contexts=mus, context="streaming", **arms)
    env.reset(seed=0)
    agent = FedCI(estimate_sigma=False).agents(env.view())
    agent.steps = agent.first_steps
    heard = np.array([True])
    sums = {"gram": np.array([[8 * 9.0]]), "moments": np.array([[8 * 18.0]])}
    agent.hear(fb.Message("sums", sums, None, {"gram": heard, "moments": heard}))
    return agent


def test_a_reward_has_the_weight_that_mu_says():
    agent = told()
    # s^2 solves s^2 = theta^2 + v / V with V = 72 + v / s^2 and v = 0.25: nearly 4.
    V = 72 + 0.25 / agent.scale.item() ** 2
    theta = 144 / V
    assert agent.scale.item() ** 2 == pytest.approx(theta**2 + 0.25 / V, rel=1e-6)
    tau2 = 2.0**2 * (theta**2 + 0.25 / V)
    agent.learn(fb.Outcome(np.array([0]), np.array([1]), np.array([7.0])))
    weight = 0.25 / (0.25 + tau2)
    assert agent.inverse.item() == pytest.approx(1 / (V + 9 * weight))
    assert agent.moments.item() == pytest.approx(144 + 3 * weight * 7)
    assert agent.own_gram.item() == pytest.approx(9 * weight)
    assert agent.grown.item() == pytest.approx(np.log1p(9 * weight / V))


def test_a_revealed_context_has_weight_1_and_takes_the_place_of_psi():
    agent = told()
    before = agent.moments.item()
    agent.learn(fb.Outcome(np.array([0]), np.array([1]), np.array([7.0]), np.array([[4.0]])))
    assert agent.own_gram.item() == 16
    assert agent.moments.item() == before + 28


def test_pulls_of_one_outcome_count_as_often_as_they_were_made():
    once, twice = told(), told()
    for _ in range(2):
        once.learn(fb.Outcome(np.array([0]), np.array([1]), np.array([7.0])))
    twice.learn(fb.Outcome(np.array([0]), np.array([2]), np.array([14.0])))
    np.testing.assert_allclose(once.inverse, twice.inverse)
    np.testing.assert_allclose(once.moments, twice.moments)


# --- the same run -----------------------------------------------------------------------------------------------------

KINDS = {
    "synthetic": ("Synthetic", {"context": "streaming"}),
    "synthetic, revealed": ("Synthetic", {"context": "streaming", "reveal": "after"}),
    "ensembles": ("Forecast", {"members": 4}),
    "forecasts, revealed": ("Forecast", {"reveal": "after"}),
    "households": ("Household", {"context": "streaming"}),
}


def make(kind, **arguments):
    name, own = KINDS[kind]
    arms = {} if name == "Household" else {"num_arms": 4}
    return fb.make(
        f"fedbandit/{name}-v0", **{"num_agents": 5, "noise_std": 0.3, "max_cycles": 60} | arms | own | arguments
    )


@pytest.mark.parametrize("name", RELATIVES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_the_same_however_it_is_split_or_stopped(kind, name):
    policy = fb.make_policy(name)
    whole = fb.play(make(kind), policy, seed=3)
    assert not whole.faults  # no report of an honest agent is refused
    assert_same_history(whole, fb.play(make(kind), policy, seed=3, blocks=[[4, 0], [2], [1, 3]]))
    rounds = fb.CommunicationRounds(make(kind), policy)
    rounds.start(3)
    while rounds.bandit.steps < 31:
        rounds.advance()
    again = fb.CommunicationRounds(make(kind), policy)
    again.restore(rounds.snapshot())
    again.finish()
    assert_same_history(whole, again.history())


@pytest.mark.parametrize("kind", ["synthetic", "forecasts, revealed"])
def test_a_run_in_shards_is_the_run_of_one_process(kind):
    assert_same_history(fb.play(make(kind), FedCI(), seed=3), fb.play(make(kind), FedCI(), seed=3, shards=2))


def test_known_contexts_are_the_same_run_for_all_who_would_weigh_them():
    env = fb.make("fedbandit/Synthetic-v0", num_agents=5, context="streaming", observe="context", max_cycles=80)
    runs = [fb.play(env, fb.make_policy(name), seed=2) for name in ("Fed-CI", "Exact-Thompson", "Federated-Thompson")]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.pulls, runs[0].pulls)


@pytest.mark.parametrize("name", RELATIVES)
@pytest.mark.parametrize("kind", ["synthetic", "forecasts, revealed"])
def test_rewards_in_other_units_give_the_same_pulls(kind, name):
    env_id, own = KINDS[kind]
    problem = {"Synthetic": fb.Synthetic, "Forecast": fb.Forecast}[env_id]
    arguments = {key: value for key, value in own.items() if key != "reveal"}

    def pulls(factor):
        made = in_units(problem(num_agents=5, num_arms=4, noise_std=0.3, **arguments), factor)
        env = fb.HiddenContextBandit(made, max_cycles=300, reveal=own.get("reveal", "never"))
        return fb.play(env, fb.make_policy(name), seed=3).pulls

    for factor in (2.0**-10, 3.0, 8.0):
        np.testing.assert_array_equal(pulls(factor), pulls(1.0))


@pytest.mark.parametrize("arguments", [{"noise_std": 0.0}, {"num_agents": 1}, {"max_cycles": 1}, {"max_cycles": 2}])
@pytest.mark.parametrize("kind", ["synthetic", "forecasts, revealed"])
def test_extreme_problems_are_played(kind, arguments):
    history = fb.play(make(kind, **arguments), FedCI(), seed=0)
    assert history.steps[-1] == arguments.get("max_cycles", 60)


def test_rewards_that_are_all_0_are_no_trouble():
    env = fb.make(
        "fedbandit/Linear-v0",
        theta=np.zeros((3, 2)),
        features=np.ones((20, 4, 3, 2)),
        context="streaming",
        noise_std=0.0,
        max_cycles=20,
    )
    assert fb.play(env, FedCI(), seed=0).steps[-1] == 20


# --- lost and false reports -------------------------------------------------------------------------------------------


def test_what_is_lost_once_comes_with_a_later_report():
    faults = fb.Faults(schedule={2: [1]})  # agent 2's first sums
    rounds = fb.CommunicationRounds(make("synthetic", max_cycles=300), FedCI(), faults=faults, record=True)
    rounds.start(0)
    arrived = []
    while not rounds.done:
        rounds.advance()
        up = rounds.history().exchanges[-1].up
        if up is not None and up.kind == "sums":
            arrived.append(2 in up.agents)
            same = rounds.carrier.server.gram[2] == rounds.sides[0].own_gram[2]  # the sums over all of its rewards
            assert same.all() == arrived[-1]
    assert arrived[0] is False
    assert all(arrived[1:])


def test_losses_stop_nobody():
    history = fb.play(make("ensembles"), FedCI(), seed=3, faults=fb.Faults(dropout=0.4))
    assert history.faults
    assert history.steps[-1] == 60


def test_reports_that_can_not_be_are_refused():
    constants = fb.Constants(4, 2, 2, 100, ell=0.5, L=1.0, noise_std=1.0, context="streaming")
    gram = np.tile(upper_triangles(np.eye(2)), (4, 2, 1))
    gram[1, 0] = upper_triangles(np.array([[1.0, 2.0], [2.0, 1.0]]))
    residuals = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    moments = np.ones((4, 2, 2))
    moments[3, 1, 0] = np.nan
    up = fb.Message("sums", {"gram": gram, "moments": moments, "residuals": residuals}, np.arange(4))
    found = StreamServer(FedCI(), constants).refuses(up)
    assert found.keys() == {1, 2, 3}
    assert "negative eigenvalue" in found[1]
    assert "negative degrees of freedom" in found[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sign-flip", "scale", "constant", "collude"])
def test_one_attacker_of_ten_costs_at_most_four_times_the_regret(kind):
    # The factor is that of the test on fixed contexts, and was chosen before these runs.
    def regret(faults):
        env = make("forecasts, revealed" if kind == "collude" else "synthetic", num_agents=20, max_cycles=400)
        runs = [fb.play(env, FedCI(), seed=seed, faults=faults) for seed in range(3)]
        return np.mean([run.mean_regret("distribution_regret")[-1] for run in runs])

    attackers = fb.Attackers(kind, share=0.1, factor=1e3, value=100.0)
    assert regret(fb.Faults(attackers=attackers)) < 4 * regret(None)


def test_fed_ci_refuses_contexts_that_stay_for_some_steps():
    env = fb.make("fedbandit/Synthetic-v0", num_agents=5, change_every=10, max_cycles=60)
    assert_refused(lambda: fb.play(env, FedCI(), seed=0), "change every 10 steps", "such as KK-UCB or DisLinUCB")
