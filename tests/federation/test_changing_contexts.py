"""Contexts that change: clients are shown what holds at each step, and play as one process does, bit for bit."""

from typing import Any

import numpy as np
import pytest
from federation_loop import EACH_ITS_OWN, SEVERAL, Loop, assert_same, coordinator_of, federated, in_process
from refusals import assert_refused

from fedbandit_envs import storage
from fedbandit_envs.federation.client import Client
from fedbandit_envs.federation.settings import Settings
from fedbandit_envs.problems.segments import summed_regrets
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback
from fedbandit_envs.rounds.faults import Faults
from fedbandit_envs.rounds.history import History

STREAM = {"num_agents": 6, "num_arms": 4, "max_cycles": 20, "context": "streaming"}
PIECES = {"num_agents": 6, "num_arms": 4, "max_cycles": 20, "change_every": 7}
FORECAST = {"num_agents": 6, "num_arms": 4, "max_cycles": 20, "members": 3}
PROBLEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "streaming": ("fedbandit/Synthetic-v0", STREAM),
    "revealed": ("fedbandit/Forecast-v0", {**FORECAST, "reveal": "after"}),
    "pieces": ("fedbandit/Synthetic-v0", PIECES),
}


def settings(problem: str, policy: str, **parameters: Any) -> Settings:
    environment, arguments = PROBLEMS[problem]
    return Settings.simulated(policy, parameters, environment, arguments, seed=3)


def assert_same_regret(loop: Loop, history: History) -> None:
    """The regret in the clients' own records, which simulations keep, is that of one process."""
    for number, kind in enumerate(summed_regrets()):
        found = np.zeros(history.regret(kind).shape)
        for node, agents in enumerate(loop.blocks):
            found[:, agents] = storage.from_bytes(loop.states[node], "state")["checkpoints"]["regret"][:, number]
        assert found.tobytes() == history.regret(kind).tobytes()


@pytest.mark.parametrize("blocks", [EACH_ITS_OWN, SEVERAL], ids=["one", "several"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_agents_that_talk_play_as_in_one_process(problem: str, blocks: list[list[int]]) -> None:
    assert_plays_as_in_one_process(settings(problem, "DisLinUCB", threshold=2.0), blocks)


@pytest.mark.parametrize("problem", ["streaming", "revealed"])
def test_fed_ci_plays_streams_as_in_one_process(problem: str) -> None:
    assert_plays_as_in_one_process(settings(problem, "Fed-CI"), SEVERAL)


def assert_plays_as_in_one_process(of: Settings, blocks: list[list[int]]) -> None:
    loop, history = Loop(of, blocks), in_process(of)
    coordinator = federated(loop)
    assert_same(loop, coordinator, history)
    assert_same_regret(loop, history)
    assert coordinator.faults == []
    assert history.ledger.rounds > 1
    assert coordinator.turn >= 20  # each step is a turn, because they may talk after it


def test_peers_are_shown_their_neighbours_at_each_step_too() -> None:
    of = Settings.simulated("DCB", {}, "fedbandit/Synthetic-v0", STREAM, seed=3, network="ring")
    loop, history = Loop(of, SEVERAL), in_process(of)
    coordinator = federated(loop)
    assert_same(loop, coordinator, history)
    assert_same_regret(loop, history)
    assert history.ledger.scalars_peer > 0


@pytest.mark.parametrize(
    ("problem", "policy"),
    [("streaming", "KK-UCB"), ("pieces", "Uniform"), ("streaming", "Oracle"), ("revealed", "KK-UCB-Observed")],
)
def test_agents_without_a_server_play_alone_in_one_turn(problem: str, policy: str) -> None:
    of = settings(problem, policy)
    loop, history = Loop(of, SEVERAL), in_process(of)
    coordinator = federated(loop)
    assert_same(loop, coordinator, history)
    assert_same_regret(loop, history)
    assert coordinator.turn == 1


@pytest.mark.parametrize("problem", ["streaming", "pieces"])
def test_a_client_that_missed_turns_is_shown_all_that_it_missed(problem: str) -> None:
    of = settings(problem, "DisLinUCB", threshold=2.0)
    loop = Loop(of, EACH_ITS_OWN)
    lost = range(9, 14)
    loop.dead = {(2, turn) for turn in lost}
    coordinator = coordinator_of(loop)
    while not coordinator.done:
        coordinator.advance()
    spoken = sorted({fault.round for fault in coordinator.faults})
    assert spoken
    history = in_process(of, Faults(schedule={2: spoken}))
    np.testing.assert_array_equal(loop.pulls(), history.pulls)
    assert_same_regret(loop, history)


class Daily:
    """A source of the user's own: it is shown by a simulation, and pays 1 for each pull; it notes what it is asked."""

    def __init__(self, source: Any):
        self.source, self.asked, self.lengths = source, list[int](), list[int]()

    def view(self, constants: Any, step: int) -> Any:
        self.asked.append(step)
        return self.source.view(constants, step)

    def pull(self, plan: CheckedPlan, number: int) -> Feedback:
        self.lengths.append(plan.length)
        return Feedback.of(plan, plan.explore * 1.0, (plan.length - plan.exploration) * 1.0, None)


@pytest.mark.parametrize(("problem", "every"), [("streaming", 1), ("pieces", 7)])
def test_a_source_is_asked_for_a_view_at_each_change_and_no_plan_outlasts_it(problem: str, every: int) -> None:
    from fedbandit_envs.federation.client import PLAY
    from fedbandit_envs.federation.sources import SimulatedRewards
    from fedbandit_envs.federation.wire import pack

    of = settings(problem, "Uniform")
    source = Daily(SimulatedRewards(np.array([1, 4]), of.source()))
    client = Client(of.make_policy(), of.constants, source, run=of.run)
    client.answer(pack({"verb": PLAY, "turn": 0}, [None]))
    assert source.asked == list(range(0, 20, every))
    assert max(source.lengths) <= every
    assert sum(source.lengths) == 20
    assert not client.snapshot()["checkpoints"]["regret_now"].any()  # nobody knows the truth of real rewards


@pytest.mark.parametrize(
    ("problem", "policy"), [("streaming", "Fed-PECD"), ("pieces", "Fed-PECD"), ("pieces", "Fed-CI")]
)
def test_phased_policies_are_refused_before_a_federation_begins(problem: str, policy: str) -> None:
    assert_refused(lambda: settings(problem, policy), "policy: ", "contexts which change")


def test_a_policy_of_revealed_contexts_is_refused_where_nothing_is_revealed() -> None:
    assert_refused(lambda: settings("streaming", "KK-UCB-Observed"), "reveal='after'")
