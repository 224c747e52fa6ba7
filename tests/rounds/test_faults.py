"""Reports that are lost in simulations: who loses what, what it costs, and that nothing else changes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import fedbandit_envs as fb
from fedbandit_envs.experiments.sweeps import load_sweep, sweep
from fedbandit_envs.reports.sweep_figure import regret_over_grid
from fedbandit_envs.rounds.faults import Fault, Faults, QuorumLost
from fedbandit_envs.rounds.loop import CommunicationRounds

FEDERATED = ["Fed-PECD", "Fed-PE", "Enhanced-Fed-PE", "Collaborative", "Shared-Theta-Fed-PE", "DisLinUCB"]
MULTI_ARMED = ["Fed1-UCB", "Fed2-UCB", "PF-UCB", "Pooled-UCB", "Multi-Round", "One-Round", "Limited-Interaction"]


def environment(policy: fb.Policy, **arguments: object) -> fb.HiddenContextBandit:
    observe = "context" if policy.observes == "context" else "distribution"
    return fb.make("fedbandit/Synthetic-v0", **{"num_agents": 6, "max_cycles": 500, **arguments, "observe": observe})


def played(name: str, faults: Faults | None, **arguments: object) -> fb.History:
    policy = fb.make_policy(name)
    return fb.play(environment(policy, **arguments), policy, seed=5, faults=faults, record=True)


@pytest.mark.parametrize("name", FEDERATED + MULTI_ARMED)
@pytest.mark.parametrize("faults", [None, Faults(), Faults(schedule={2: [999]})])
def test_a_run_without_a_fault_is_the_run_without_faults(name: str, faults: Faults | None) -> None:
    one, other = played(name, None), played(name, faults)
    np.testing.assert_array_equal(one.pulls, other.pulls)
    np.testing.assert_array_equal(one.ledger.per_agent, other.ledger.per_agent)
    assert other.faults == ()


@pytest.mark.parametrize("name", FEDERATED + MULTI_ARMED)
@given(
    dropout=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    schedule=st.dictionaries(st.integers(0, 5), st.sets(st.integers(0, 9))),
    seed=st.integers(0, 99),
)
@hypothesis_settings(max_examples=15, deadline=None)
def test_every_agent_plays_to_the_horizon_whatever_is_lost(
    name: str, dropout: float, schedule: dict[int, set[int]], seed: int
) -> None:
    policy = fb.make_policy(name)
    faults = Faults(dropout=dropout, schedule=schedule)
    history = fb.play(environment(policy, max_cycles=120), policy, seed=seed, faults=faults)
    assert (history.pulls[-1].sum(axis=1) == 120).all()
    assert np.isfinite(history.regret()).all()
    assert all(fault.round < history.ledger.rounds for fault in history.faults)


@pytest.mark.parametrize("name", FEDERATED)
def test_a_lost_report_is_neither_seen_by_the_server_nor_charged(name: str) -> None:
    history = played(name, Faults(schedule={1: [0, 2], 4: [2]}))
    assert history.faults == (Fault(1, 0, "scheduled"), Fault(1, 2, "scheduled"), Fault(4, 2, "scheduled"))
    assert history.exchanges is not None
    ups = [exchange.up for exchange in history.exchanges if exchange.up is not None]
    assert ups[0].agents is not None
    assert ups[2].agents is not None
    if name != "DisLinUCB":  # its agents do not all speak at once
        assert ups[0].agents.tolist() == [0, 2, 3, 4, 5]
        assert ups[2].agents.tolist() == [0, 2, 3, 5]
    assert history.ledger.messages_up == sum(len(up.agents) for up in ups if up.agents is not None)


@pytest.mark.parametrize("name", MULTI_ARMED)
def test_a_lost_report_of_a_multi_armed_policy_is_neither_seen_by_the_server_nor_charged(name: str) -> None:
    history, whole = (played(name, faults, max_cycles=4000) for faults in (Faults(schedule={1: [0]}), None))
    first, of_whole = (
        next(turn.up for turn in one.exchanges or () if turn.up is not None).agents for one in (history, whole)
    )
    assert first is not None
    assert of_whole is not None
    assert history.faults == (Fault(1, 0, "scheduled"),)
    assert first.tolist() == [agent for agent in of_whole.tolist() if agent != 1]
    assert len(first) < len(of_whole)
    ups = [turn.up.agents for turn in history.exchanges or () if turn.up is not None]
    assert history.ledger.messages_up == sum(len(agents) for agents in ups if agents is not None)


def test_agents_whose_call_for_arms_is_never_heard_play_the_arms_of_their_numbers() -> None:
    policy = fb.make_policy("Limited-Interaction")
    history = fb.play(environment(policy), policy, seed=5, faults=Faults(dropout=1.0))
    np.testing.assert_array_equal(history.pulls[-1], 500 * np.eye(10)[:6])
    assert history.ledger.messages == 0


def test_agents_whose_choices_are_lost_choose_again() -> None:
    """With more arms than agents, the second report is a choice: all are lost once, and arrive one step later."""
    policy = fb.make_policy("Limited-Interaction", budget=200)
    faults = Faults(schedule={agent: [1] for agent in range(6)})
    lost, whole = (
        fb.play(environment(policy), policy, seed=5, faults=faults, record=True) for faults in (faults, None)
    )
    first, second = (next(turn for turn in run.exchanges or () if turn.plan.length == 33) for run in (whole, lost))
    assert (first.step, second.step) == (100, 101)
    np.testing.assert_array_equal(first.plan.arm, second.plan.arm)


def test_an_agent_whose_active_set_was_lost_gets_no_allocation_and_plays_its_best_arm() -> None:
    history = played("Fed-PECD", Faults(schedule={3: [1]}))
    assert history.exchanges is not None
    allocation = history.exchanges[2]
    assert allocation.down is not None
    assert allocation.down.agents is not None
    assert 3 not in allocation.down.agents
    assert allocation.plan.explore[3].sum() == 0
    assert allocation.plan.explore[[0, 1, 2, 4, 5]].any(axis=1).all()
    best = allocation.feedback.pulls()[3]
    assert np.count_nonzero(best) == 1


def test_an_agent_whose_first_report_was_lost_comes_back_in_the_next_phase() -> None:
    history = played("Fed-PECD", Faults(schedule={3: [0]}))
    assert history.exchanges is not None
    later = history.exchanges[2]
    assert later.up is not None
    assert later.up.agents is not None
    assert later.plan.explore[3].any()
    assert 3 in later.up.agents


def test_a_round_in_which_everything_is_lost_is_counted_and_the_run_goes_on() -> None:
    history = played("Fed-PECD", Faults(schedule={agent: [0] for agent in range(6)}))
    assert history.ledger.per_round[0, 1:].sum() == 0
    assert history.steps[-1] == 500


def test_the_share_of_lost_reports_is_the_dropout() -> None:
    """Binomial: 5 standard deviations, a false alarm in 2 million seeds, and the seed is fixed."""
    faults = Faults(dropout=0.3)
    lost = np.array([len(faults.of_round(7, number, 100)) for number in range(400)])
    assert abs(lost.mean() / 100 - 0.3) < 5 * np.sqrt(0.3 * 0.7 / 40_000)
    assert lost.std() == pytest.approx(np.sqrt(100 * 0.3 * 0.7), rel=0.2)


def test_faults_depend_on_seed_and_round_alone() -> None:
    faults = Faults(dropout=0.5)
    assert faults.of_round(1, 2, 50) == faults.of_round(1, 2, 50)
    assert faults.of_round(1, 2, 50) != faults.of_round(2, 2, 50)
    assert faults.of_round(1, 2, 50) != [Fault(f.agent, 2, f.reason) for f in faults.of_round(1, 3, 50)]


@pytest.mark.parametrize("name", ["Fed-PECD", "DisLinUCB"])
def test_faults_are_the_same_however_agents_are_split_and_when_a_run_is_resumed(name: str) -> None:
    policy, faults = fb.make_policy(name), Faults(dropout=0.3)
    whole = fb.play(environment(policy), policy, seed=5, faults=faults)
    split = fb.play(environment(policy), policy, seed=5, faults=faults, blocks=[[5, 1], [0], [2, 3, 4]])
    resumed = CommunicationRounds(environment(policy), policy, faults=faults)
    resumed.reset(seed=5)
    while not resumed.done:
        resumed.advance()
        state, resumed = resumed.snapshot(), CommunicationRounds(environment(policy), policy, faults=faults)
        resumed.restore(state)
    assert whole.faults
    for other in (split, resumed.history()):
        np.testing.assert_array_equal(whole.pulls, other.pulls)
        assert whole.faults == other.faults


def test_below_the_quorum_a_run_stops_with_the_reasons_and_can_go_on() -> None:
    policy = fb.make_policy("Fed-PECD")
    faults = Faults(schedule={0: [2], 1: [2], 5: [2]}, quorum=0.6)
    rounds = CommunicationRounds(environment(policy), policy, faults=faults, record=True)
    rounds.reset(seed=5)
    rounds.advance()
    rounds.advance()
    with pytest.raises(
        QuorumLost, match=r"round 2: .* at least 60% of 6 agents, got 3 \(agent 0: scheduled; agent 1: "
    ):
        rounds.advance()
    state = rounds.snapshot()
    again = CommunicationRounds(environment(policy), policy, faults=faults, record=True)
    again.restore(state)
    for one in (rounds, again):
        while not one.done:
            one.advance()
    np.testing.assert_array_equal(rounds.history().pulls, again.history().pulls)
    exact = fb.play(environment(policy), policy, seed=5, faults=Faults(schedule={0: [2], 1: [2]}, quorum=0.6))
    assert exact.steps[-1] == 500


def test_a_lost_quorum_is_told_once_also_when_agents_then_play_for_long_without_a_word() -> None:
    policy = fb.make_policy("Fed-CI")
    rounds = CommunicationRounds(environment(policy), policy, faults=Faults(schedule={0: [0, 1]}, quorum=1.0))
    rounds.reset(seed=5)
    told, turns = [], 0
    while not rounds.done:
        try:
            rounds.advance()
        except QuorumLost as error:
            told.append(str(error).split(":")[0])
        turns += 1
    assert told == ["round 0", "round 1"]
    assert turns > 2 * rounds.history().ledger.rounds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dropout": 1.1}, "dropout: expected a share from 0 to 1, got 1.1"),
        ({"dropout": -0.1}, "dropout: expected a finite number of at least 0"),
        ({"quorum": 2}, "quorum: expected a share"),
        ({"schedule": {-1: [0]}}, "schedule, agent: expected a whole number"),
        ({"schedule": {0: [0.5]}}, "schedule, round: expected a whole number"),
    ],
)
def test_impossible_faults_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Faults(**arguments)  # type: ignore[arg-type]


def test_a_schedule_of_unknown_agents_is_refused() -> None:
    with pytest.raises(ValueError, match="schedule: expected agents from 0 to 5, got 6"):
        played("Fed-PECD", Faults(schedule={6: [0]}))


@pytest.mark.slow
def test_lost_reports_cost_regret() -> None:
    """Paired over 6 seeds; at this horizon 30 % more than doubles the regret (measured), so a reversal is a fault."""
    policy = fb.make_policy("Fed-PECD")

    def regret(seed: int, faults: Faults | None) -> float:
        env = environment(policy, num_agents=50, max_cycles=2**16)
        return float(fb.play(env, policy, seed=seed, faults=faults).mean_regret()[-1])

    for seed in range(6):
        assert regret(seed, None) < regret(seed, Faults(dropout=0.3))


def test_an_experiment_can_be_swept_over_dropout_and_drawn_against_it(tmp_path: Path) -> None:
    experiment = fb.Experiment(
        "fedbandit/Synthetic-v0", ["Fed-PECD"], {"num_agents": 4, "max_cycles": 200}, trials=2, dropout=0.2
    )
    assert fb.Experiment.from_table(experiment.table()) == experiment
    assert experiment.problem() != experiment.with_argument("dropout", 0.0).problem()
    sweep(experiment, {"dropout": [0, 0.1, 0.3]}, out=tmp_path, executor="serial")
    parameters, results = load_sweep(tmp_path)
    assert (parameters, list(results)) == (("dropout",), [(0.0,), (0.1,), (0.3,)])
    none, most = (results[point].final("Fed-PECD", "messages_up") for point in ((0.0,), (0.3,)))
    assert (most < none).all()
    figure = regret_over_grid(results, parameters)
    assert figure.axes[0].get_xlabel() == "probability that a report is lost"


@pytest.mark.parametrize("name", FEDERATED + MULTI_ARMED)
def test_an_audit_of_a_run_with_faults_checks_its_accounts_and_claims_no_theorem(name: str) -> None:
    found = fb.audit(played(name, Faults(dropout=0.3)))
    assert found.ok
    assert not any("regret" in row.claim for row in found.claims)
