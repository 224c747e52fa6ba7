"""What every registered policy keeps: cost, horizon, independence of rows, stopping and resuming, stepping."""

from functools import cache
from importlib.metadata import entry_points

import numpy as np
import pytest
from histories import assert_same_history, assert_same_run, flat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playable import D, K, M, home
from scripted import Permuted, PermutedBandit, ScriptedBandit, table

import fedbandit_envs as fb
from fedbandit_envs import storage
from fedbandit_envs.protocol.policy import partner_of
from fedbandit_envs.protocol.registry import policy_class
from fedbandit_envs.rounds.ledger import COUNTS
from fedbandit_envs.testing.check import check_policy

PHASED = ("Fed-PECD", "Fed-PE", "Enhanced-Fed-PE", "Collaborative", "Shared-Theta-Fed-PE")
# These deal out arms, admit agents or draw edges by number: other numbers, another run.
NUMBERED = (
    *("Fed-CI", "Fed1-UCB", "Fed2-UCB", "Multi-Round", "Limited-Interaction"),
    *("Gossip-UCB", "Private-Gossip-UCB", "Dec-UCB", "GosInE", "DCB"),
    *("DELB", "Feature-Selection"),
)
FEW_ROUNDS = ("Fed-CI-Elimination", "Multi-Round", "One-Round", "Limited-Interaction")  # one, or far apart

ALL = sorted(point.name for point in entry_points(group="fedbandit.policies"))  # not those of other tests
# Policies for shared arms play another kind of environment. Its rewards follow loads, and no script.
POLICIES = [name for name in ALL if not policy_class(name).shares_arms]
SHARED = sorted(set(ALL) - set(POLICIES))
PEERS = [name for name in POLICIES if partner_of(policy_class(name)) == "peers"]
SILENT = [name for name in ALL if partner_of(policy_class(name)) == "nobody"]
every_policy = pytest.mark.parametrize("name", ALL)
every_scripted_policy = pytest.mark.parametrize("name", POLICIES)
phased = pytest.mark.parametrize("name", PHASED)


@cache
def steps_singly(name):
    """Whether the agents decide at each step, or nearly so."""
    history = play(make(name, 50), name, seed=0, record=True)
    return sum(turn.plan.length > 0 for turn in history.exchanges) > 25


def long(name):
    """A horizon at which phased policies have eliminated arms, and others have not taken too many turns."""
    return 110 if steps_singly(name) else 2**14


def make(name, horizon=None, problem=None):
    """A small environment that the policy can play; `problem` is for those that play usual problems."""
    if name in SHARED:
        return fb.make("fedbandit/SharedArms-v0", num_agents=M, num_arms=M + 1, max_cycles=horizon or long(name))
    label, own, shown = home(name)
    chosen = own if problem is None or label != "hidden contexts" else problem
    return fb.HiddenContextBandit(chosen, max_cycles=horizon or long(name), **shown)


def scripted(name, rewards):
    _, problem, shown = home(name)
    return ScriptedBandit(problem, rewards, max_cycles=rewards.shape[2], **shown)


def play(env, name, **how):
    """A run on a ring, which only policies that talk to peers use."""
    return fb.play(env, fb.make_policy(name), **{"network": "ring", **how})


# It takes a second for each policy: the fast suite checks one of each kind. What it checks is also tested below.
CHECKED_FAST = ("Fed-PECD", "Fed-CI", "Multi-Round", "DisLinUCB", "KK-UCB-Observed", "UCB1", "coop-UCB2", "OrchExplore")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in CHECKED_FAST else pytest.mark.slow) for name in ALL]
)
def test_check_policy_finds_no_fault(name):
    assert "no fault" in check_policy(fb.make_policy(name))


# --- communication ---------------------------------------------------------------------------------------------------


def entries(message):
    """Present numbers of a message, counted one by one; of all agents together."""
    total = 0
    for name, array in message.arrays.items():
        mask = message.present.get(name)
        for index in np.ndindex(array.shape):
            total += mask is None or bool(mask[index[: mask.ndim]])
    return total


def arrived(message):
    """The one mask of a message with one array."""
    (mask,) = message.present.values()
    return mask


@pytest.mark.parametrize("name", PEERS)
def test_the_ledger_of_peers_is_what_the_recorded_messages_add_up_to(name):
    history = play(make(name), name, seed=0, record=True)
    downs, ledger = [turn.down for turn in history.exchanges if turn.down is not None], history.ledger
    assert ledger.rounds == len(downs) > 0
    drawn = policy_class(name).delivery
    # A ring of M agents has 2 M directed edges; all of them carry something if some array goes to all neighbours.
    heard = [2 * M if set(down.arrays) - set(drawn) else np.count_nonzero(arrived(down)) for down in downs]
    assert ledger.messages == ledger.messages_peer == sum(heard)
    assert ledger.scalars == ledger.scalars_peer == sum(entries(down) for down in downs)
    assert (ledger.bytes_up, ledger.bytes_down, ledger.bytes_peer) == (0, 0, 8 * ledger.scalars_peer)
    np.testing.assert_array_equal(ledger.per_round[:, 1:].sum(axis=0), ledger.per_agent.sum(axis=0))


@pytest.mark.parametrize("name", sorted(set(ALL) - set(PEERS)))
def test_the_ledger_is_what_the_recorded_messages_add_up_to(name):
    history = play(make(name), name, seed=0, record=True)
    ups = [turn.up for turn in history.exchanges if turn.up is not None]
    downs = [turn.down for turn in history.exchanges if turn.down is not None]
    ledger = history.ledger
    assert ledger.rounds == len(ups)
    assert ledger.messages_up == sum(len(up.agents) for up in ups)
    assert ledger.messages_down == sum(M if down.agents is None else len(down.agents) for down in downs)
    assert ledger.scalars_up == sum(entries(up) for up in ups)
    assert ledger.scalars_down == sum(entries(down) * (M if down.agents is None else 1) for down in downs)
    assert (ledger.bytes_up, ledger.bytes_down) == (8 * ledger.scalars_up, 8 * ledger.scalars_down)
    np.testing.assert_array_equal(ledger.per_round[:, 1:].sum(axis=0), ledger.per_agent.sum(axis=0))


def phase_costs(name, history):
    """(scalars up, scalars down) of each round by the formula for Fed-PECD, from pulls and active sets.

    The server sends theta and V of K arms, of |A^p|, or (shared theta) of one; Collaborative sends psi at the start.
    """
    shared, features = name == "Shared-Theta-Fed-PE", name == "Collaborative"
    turns = history.exchanges[1:]
    costs = []
    if turns:
        costs.append((M * K * D * (2 if features else 1), M * (1 if shared else K) * (D + D**2)))
    for turn, (waiting, exploring) in enumerate(zip(turns[::2], turns[1::2], strict=True)):
        assert waiting.plan.length == 0
        active = waiting.up.present["arms"]
        costs.append((active.sum(), active.sum()))
        if 2 * turn + 2 < len(turns):  # a phase that is cut by the horizon sends no report
            f = exploring.plan.explore
            assert not f[~active].any()
            costs.append((D * (f > 0).sum(), M * (1 if shared else active.any(axis=0).sum()) * (D + D**2)))
    return np.array(costs)


@phased
@pytest.mark.parametrize("horizon", [3, 4, 5, 10, 11, 110, 2**14])
def test_communication_is_the_formula_round_by_round_and_below_its_bound(name, horizon):
    history = fb.play(make(name, horizon), fb.make_policy(name), seed=2, record=True)
    ledger = history.ledger
    columns = [1 + COUNTS.index(count) for count in ("scalars_up", "scalars_down")]
    np.testing.assert_array_equal(ledger.per_round[:, columns], phase_costs(name, history).reshape(-1, 2))
    assert horizon < 2**14 or history.active[-1].sum() < M * K  # ragged messages have been seen
    phases = ledger.rounds // 2
    bound = M * K * (D**2 + 2 * D) + phases * M * K * (D**2 + 2 * D + 2)
    assert ledger.scalars <= bound + (M * K * D if name == "Collaborative" else 0)


@pytest.mark.parametrize("name", SILENT)
def test_policies_that_play_alone_say_nothing(name):
    ledger = fb.play(make(name), fb.make_policy(name), seed=0).ledger
    assert (ledger.rounds, ledger.messages, ledger.scalars) == (0, 0, 0)


def test_a_synchronisation_costs_a_request_a_call_and_the_sums_of_all_agents():
    history = fb.play(make("DisLinUCB", 300), fb.make_policy("DisLinUCB"), seed=0, record=True)
    requests, uploads = history.ledger.per_round[::2], history.ledger.per_round[1::2]
    assert len(uploads) > 1
    assert (requests[:, 1] >= 1).all()
    assert (requests[:, 3:] == 0).all()
    assert (requests[: len(uploads), 2] == M).all()
    sums = M * K * (D**2 + D)
    np.testing.assert_array_equal(
        uploads[:, 1:], np.tile([M, M, 0, sums, sums, 0, 8 * sums, 8 * sums, 0], (len(uploads), 1))
    )


# --- the horizon -----------------------------------------------------------------------------------------------------


@every_policy
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(horizon=st.integers(1, 2 * K) | st.sampled_from([4, 10, 18, 30, 50, 51]) | st.integers(1, 130))
def test_each_agent_pulls_exactly_as_often_as_the_horizon_says(name, horizon):
    history = play(make(name, horizon), name, seed=horizon, record=True)
    assert history.steps[-1] == horizon
    assert (history.pulls[-1].sum(axis=1) == horizon).all()
    pulled = sum(turn.feedback.pulls() for turn in history.exchanges)
    np.testing.assert_array_equal(pulled, history.pulls[-1])
    assert (history.pulls.sum(axis=2) == history.steps[:, None]).all()


@phased
def test_exploration_always_has_room_in_its_phase(name):
    history = fb.play(make(name, 3000), fb.make_policy(name), seed=1, record=True)
    explorations = [turn for turn in history.exchanges[1:] if turn.plan.length]
    assert len(explorations) >= 10
    for phase, turn in enumerate(explorations, start=1):
        assert turn.plan.explore.sum(axis=1).max() <= 2**phase + K
        if turn is not explorations[-1]:
            assert turn.plan.length == 2**phase + K
            assert (turn.plan.explore.sum(axis=1) >= 2**phase).all()


# --- rows ------------------------------------------------------------------------------------------------------------

SPLITS = ([[0], [1], [2], [3], [4]], [[3, 0, 4], [2], [1]], [[4, 3, 2, 1, 0]], [[1, 2], [0, 3, 4]])


@every_policy
def test_the_run_is_the_same_bit_for_bit_however_the_agents_are_split(name):
    whole = play(make(name), name, seed=4, record=True)
    for blocks in SPLITS:
        assert_same_run(whole, play(make(name), name, seed=4, record=True, blocks=blocks))


# A stream draws the contexts of all agents by their numbers: other numbers, other contexts.
@pytest.mark.parametrize(
    "name", [name for name in POLICIES if name not in NUMBERED and home(name)[0] != "revealed contexts"]
)
def test_other_numbers_for_the_same_agents_change_nothing_but_rounding(name):
    order = (3, 0, 4, 1, 2)
    rewards = table(M, K, long(name))
    _, problem, shown = home(name)
    env = PermutedBandit(Permuted(problem, order), rewards[list(order)], max_cycles=long(name), **shown)
    plain = play(scripted(name, rewards), name, seed=5, record=True)
    ring = [(order.index(agent), order.index((agent + 1) % M)) for agent in range(M)]
    permuted = play(env, name, seed=5, record=True, network=ring)
    for one, two in zip(plain.exchanges, permuted.exchanges, strict=True):
        for message, other in ((one.down, two.down), (one.up, two.up)):
            if name in PEERS:  # neighbours come in the order of their numbers
                continue
            assert (message is None) == (other is None)
            if message is None:
                continue
            rows = slice(None)
            if message.agents is not None:
                there = np.array([order.index(agent) for agent in message.agents])
                assert sorted(there) == other.agents.tolist()
                rows = np.searchsorted(other.agents, there)
            for array in message.arrays:
                np.testing.assert_allclose(other[array][rows], message[array], rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(permuted.pulls, plain.pulls[:, list(order)])
    np.testing.assert_array_equal(permuted.ledger.per_agent, plain.ledger.per_agent[list(order)])


def rows_of(message, agent):
    """What one agent says in a message: its arrays, or None."""
    if message is None or agent not in message.agents:
        return None
    return flat(message.rows(message.agents == agent).tree())


@every_scripted_policy
def test_rewards_of_one_agent_change_no_report_of_another_before_the_next_broadcast(name):
    changed, rewards = 2, table(M, K, long(name))
    others = [agent for agent in range(M) if agent != changed]
    usual = play(scripted(name, rewards), name, seed=6, record=True)
    for since in (0, 1, 8, rewards.shape[2] // 16):  # pulls of an arm before its rewards are other ones
        altered = rewards.copy()
        altered[changed, :, since:] += 16
        other = play(scripted(name, altered), name, seed=6, record=True)
        tainted = answered = False
        for one, two in zip(usual.exchanges, other.exchanges, strict=False):
            if tainted and (one.down is not None or two.down is not None):
                answered = True
                break
            np.testing.assert_array_equal(one.plan.explore[others], two.plan.explore[others])
            np.testing.assert_array_equal(one.plan.arm[others], two.plan.arm[others])
            np.testing.assert_array_equal(one.feedback.sums()[others], two.feedback.sums()[others])
            tainted = tainted or (one.feedback.sums() != two.feedback.sums()).any()
            for agent in others:
                np.testing.assert_equal(rows_of(one.up, agent), rows_of(two.up, agent))
        assert tainted
        assert answered or name in (*SILENT, "DisLinUCB", *FEW_ROUNDS)


# --- stopping and resuming -------------------------------------------------------------------------------------------


def finished(rounds):
    while not rounds.done:
        rounds.advance()
    return rounds.history()


@every_policy
@pytest.mark.parametrize("stepwise", [False, True], ids=["bulk", "stepwise"])
def test_a_run_stopped_round_after_round_and_rebuilt_from_the_disk_is_the_same_run(name, stepwise, tmp_path):
    def rounds(blocks):
        env, policy = make(name, 60 if stepwise or steps_singly(name) else 2**14), fb.make_policy(name)
        return fb.CommunicationRounds(env, policy, blocks=blocks, stepwise=stepwise, network="ring")

    whole = rounds(None)
    whole.reset(seed=7)
    history = finished(whole)
    going_on = rounds([[4, 1], [0, 2, 3]])
    going_on.reset(seed=7)
    turn = 0
    while not going_on.done:
        if turn <= 20 or turn % 9 == 0:  # what is lost once is missing to the end
            storage.save(tmp_path / "state", going_on.snapshot())
            going_on = rounds([[4, 1], [0, 2, 3]])
            going_on.restore(storage.load(tmp_path / "state"))
        going_on.advance()
        turn += 1
    assert_same_history(going_on.history(), history)  # check_policy compares the messages of such a run too


# --- stepping through the PettingZoo API -----------------------------------------------------------------------------


@every_scripted_policy
def test_stepping_and_bulk_decide_the_same_on_the_same_rewards(name):
    rewards = table(M, K, 110, seed=3)
    bulk = play(scripted(name, rewards), name, seed=8, record=True)
    stepped = play(scripted(name, rewards), name, seed=8, record=True, stepwise=True)
    assert_same_run(bulk, stepped)


# What is compared is how the environment pays: plans of one step, of one arm for long, and explorations.
@pytest.mark.parametrize("name", ["Local-UCB", "One-Round", "Fed-PECD", "DisLinUCB"])
def test_stepping_and_bulk_have_the_same_mean_regret_and_reward(name):
    # Differences of 40 runs on the same instances: |z| > 5 has a false-alarm rate of 6e-7 for a normal mean, and the
    # seeds are fixed. It sees rewards that are off by a third of the noise.
    problem = fb.Synthetic(num_agents=2, num_arms=3, dim=2, context_std=0.1, noise_std=0.3)

    def means(stepwise):
        env, found = make(name, 40, problem), []
        for seed in range(40):
            history = play(env, name, seed=seed, stepwise=stepwise, record=True)
            reward = sum(turn.feedback.sums().sum() for turn in history.exchanges)
            found.append((history.mean_regret()[-1], reward))
        return np.array(found)

    difference = means(True) - means(False)
    assert (abs(difference.mean(axis=0)) <= 5 * difference.std(axis=0, ddof=1) / np.sqrt(len(difference))).all()


# --- two views, one implementation -----------------------------------------------------------------------------------


def test_without_context_noise_fed_pecd_is_fed_pe_step_for_step():
    problem = fb.Synthetic(num_agents=M, num_arms=K, context_std=0.0)
    hidden, exact = (
        fb.play(make(name, 2000, problem), fb.make_policy(name), seed=9, record=True) for name in PHASED[:2]
    )
    assert_same_run(hidden, exact)
