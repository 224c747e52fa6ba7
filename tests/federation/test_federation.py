"""Clients and server that share nothing but packets play as in one process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation_loop import EACH_ITS_OWN, SEVERAL, Loop, assert_same, coordinator_of, federated, in_process, settings
from histories import assert_same_history
from playable import home
from refusals import assert_refused

from fedbandit_envs import ProtocolError, ServerSide, play, policy_names, storage
from fedbandit_envs.federation.client import Client
from fedbandit_envs.federation.record import collected
from fedbandit_envs.federation.settings import Settings
from fedbandit_envs.federation.sources import SimulatedRewards, reward_source
from fedbandit_envs.federation.wire import pack
from fedbandit_envs.protocol.knowledge import ServerView, View
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import Feedback, Plan
from fedbandit_envs.protocol.policy import AgentSide, Policy, partner_of
from fedbandit_envs.protocol.registry import policy_class
from fedbandit_envs.rounds.faults import Faults

NAMES = [name for name in policy_names() if not name.startswith("Test-")]
REGISTERED = [name for name in NAMES if not policy_class(name).shares_arms]  # those play another kind of environment
PEERS = [name for name in REGISTERED if partner_of(policy_class(name)) == "peers"]
# The clients of a federation know contexts that stay.
POLICIES = [name for name in REGISTERED if home(name)[0] == "hidden contexts"]
EACH_STEP_A_TURN = ["Async-LinUCB", "DisLinUCB", "FedLinUCB", "Lin-Hidden", "Residual-LinUCB"]
EACH_STEP_A_TURN += ["FedUCB", "Pooled-UCB", "Private-FedLinUCB", "Weighted-DisLinUCB"]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    "blocks", [pytest.param(EACH_ITS_OWN, id="one", marks=pytest.mark.slow), pytest.param(SEVERAL, id="several")]
)
def test_a_federation_plays_as_one_process_bit_for_bit(name: str, blocks: Sequence[Sequence[int]]) -> None:
    of = settings(name, max_cycles=14 if name in PEERS else 20 if name in EACH_STEP_A_TURN else 300)
    loop = Loop(of, blocks)
    coordinator = federated(loop)
    assert_same(loop, coordinator, in_process(of))
    assert coordinator.faults == []


def test_a_policy_that_talks_to_peers_needs_a_network() -> None:
    assert_refused(lambda: settings("coop-UCB2", network=None), "network: expected one", "network='ring'")
    assert_refused(lambda: settings("coop-UCB2", network="rings"), "did you mean 'ring'")
    config = settings("coop-UCB2").config()
    assert_refused(lambda: Settings.of({**config, "network": ""}).graph, "network: expected one", "network='ring'")
    assert_refused(lambda: Settings.of({**config, "network": "{"}), "run-config: expected pairs of agents in JSON")
    assert_refused(lambda: Settings.of({**config, "network": "[[0, 1]]"}).graph, "a connected graph, got 5 pieces")


def test_arms_that_agents_of_all_clients_share_are_refused() -> None:
    chosen = "fedbandit/SharedArms-v0", {"max_cycles": 20}, 0
    assert_refused(lambda: Settings.simulated("OrchExplore", {}, *chosen), "rewards each client can draw alone, got")


def test_a_random_network_is_the_one_of_a_run_with_the_same_seed() -> None:
    of = settings("GosInE", network="erdos-renyi:0.6", max_cycles=30)
    loop = Loop(of, SEVERAL)
    history = play(of.make_environment(), of.make_policy(), seed=of.seed, network="erdos-renyi:0.6", record=True)
    assert_same(loop, federated(loop), history)


@pytest.mark.parametrize("name", ["coop-UCB2", "Gossip-UCB", "DCB"])
def test_a_client_that_fails_neither_sends_to_its_neighbours_nor_hears_them(name: str) -> None:
    of = settings(name, max_cycles=14)
    loop = Loop(of, EACH_ITS_OWN)
    loop.dead = {(2, 3), (2, 4), (4, 7)}
    coordinator = federated(loop)
    silent = name == "Gossip-UCB"  # there is no round after its start
    rounds = {2: [3 - silent, 4 - silent], 4: [7 - silent]}
    assert_same(loop, coordinator, in_process(of, Faults(schedule=rounds)))
    assert [(fault.agent, fault.round) for fault in coordinator.faults] == [(a, r) for a in rounds for r in rounds[a]]


@pytest.mark.parametrize(
    "arguments",
    [{"context": "resampled"}, {"error": "classical"}, {"context_std": 0.0}, {"num_agents": 6, "noise_std": 0.0}],
)
def test_other_kinds_of_contexts_too(arguments: dict[str, object]) -> None:
    of = settings("Fed-PECD", **arguments)
    loop = Loop(of, SEVERAL)
    assert_same(loop, federated(loop), in_process(of))


def test_a_client_holds_its_own_rows_alone() -> None:
    of = settings("Fed-PECD")
    source = SimulatedRewards(np.array([4, 1]), of.source())
    view = source.view(of.constants, 0)
    assert view.agents.tolist() == [4, 1]
    assert view.psi.shape == (2, 4, 3)
    assert view.truth is None
    episode = source._episode
    assert episode.instance.population is None
    assert episode.instance.contexts is not None
    assert len(episode.instance.contexts) == 2
    state = Client(of.make_policy(), of.constants, source, run=of.run).snapshot()
    assert state["checkpoints"]["now"].shape == (2, 4)


class Unsigned(Policy):
    """First waits, then plays arm 1, in unsigned numbers."""

    def agents(self, view: View) -> AgentSide:
        class Agents(AgentSide):
            length = 0

            def plan(self, down: Message | None, remaining: int) -> Plan:
                n, num_arms = view.psi.shape[:2]
                plan = Plan(np.zeros((n, num_arms), dtype=np.uint64), np.ones(n, dtype=np.uint64), self.length)
                self.length = 1
                return plan

            def report(self, feedback: Feedback) -> None:
                return None

        return Agents()


def test_a_client_plays_plans_in_unsigned_numbers_too() -> None:
    of = settings("Uniform")
    client = Client(Unsigned(), of.constants, SimulatedRewards(np.array([4, 1]), of.source()), run=of.run)
    client.answer(pack({"verb": "play", "turn": 0}, [None]))
    np.testing.assert_array_equal(client.snapshot()["checkpoints"]["now"], [[0, 300, 0, 0]] * 2)


def test_a_client_of_other_constants_is_refused() -> None:
    one, other = settings("Fed-PECD"), settings("Fed-PECD", max_cycles=77)
    with pytest.raises(ValueError, match="constants: expected those of the simulated environment"):
        SimulatedRewards(np.array([0]), one.source()).view(other.constants, 0)


def test_a_client_is_paid_by_the_reward_source_that_it_names_itself(tmp_path: Path) -> None:
    of, agents = settings("Fed-PECD"), np.array([1])
    node = {"agents": "1", "folder": str(tmp_path), "rewards": "failing_rewards:FailsOnce"}
    client = Client(of.make_policy(), of.constants, reward_source(agents, of.source(), node), run=of.run)
    with pytest.raises(RuntimeError, match="the till is closed"):
        client.answer(pack({"verb": "play", "turn": 0}, [None]))
    of_server = {**of.source(), "rewards": "failing_rewards:FailsOnce"}
    assert type(reward_source(agents, of_server, {"agents": "1"})) is SimulatedRewards


class Waits(Policy):
    """Never pulls, and has no server."""

    def agents(self, view: View) -> AgentSide:
        class Agents(AgentSide):
            def plan(self, down: Message | None, remaining: int) -> Plan:
                return Plan.wait(*view.psi.shape[:2])

            def report(self, feedback: Feedback) -> None:
                return None

        return Agents()


class WaitsForServer(Waits):
    """Never pulls, and has a server."""

    def server(self, view: ServerView) -> ServerSide:
        class Server(ServerSide):
            def answer(self, up: Message) -> None:
                return None

        return Server()


def test_clients_that_never_pull_are_stopped_by_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    of = settings("Uniform")
    monkeypatch.setattr(Settings, "make_policy", lambda self: WaitsForServer())
    loop = Loop(of, [range(6)])
    coordinator = coordinator_of(loop)
    for _ in range(999):
        coordinator.advance()
    again = coordinator_of(loop)  # a server that is started again goes on counting
    again.restore(coordinator.snapshot())
    again.advance()
    with pytest.raises(ProtocolError, match="WaitsForServer: expected a pull within 1000 rounds, got none"):
        again.advance()


def test_a_pull_starts_the_count_of_idle_turns_again() -> None:
    of = settings("Fed-PECD")
    coordinator = coordinator_of(Loop(of, SEVERAL))
    seen = []
    while not coordinator.done:
        before = coordinator.step
        coordinator.advance()
        seen.append((coordinator.step > before, coordinator.snapshot()["idle"]))
    assert set(seen) == {(True, 0), (False, 1)}


def test_a_client_without_a_server_that_never_pulls_stops_by_itself() -> None:
    of = settings("Uniform")
    client = Client(Waits(), of.constants, SimulatedRewards(np.array([4, 1]), of.source()), run=of.run)
    with pytest.raises(ProtocolError, match="Waits: expected a pull within 1000 rounds, got none"):
        client.answer(pack({"verb": "play", "turn": 0}, [None]))


def test_settings_survive_flowers_configuration() -> None:
    of = settings("Fed-PECD", seed=2**100)
    assert Settings.of(of.config()) == of
    with pytest.raises(ValueError, match="expected a value for 'policy'"):
        Settings.of({})


def test_waiting_for_clients_ends() -> None:
    of = settings("Fed-PECD")
    with pytest.raises(TimeoutError, match="expected 9 clients within 0 s, got 3"):
        coordinator_of(Loop(of, SEVERAL)).wait_for(9, 0, sleep=lambda _: None)


@pytest.mark.parametrize(
    ("policy", "problem"), [("Fed-PECD", {}), ("coop-UCB2", {}), ("KK-UCB", {"context": "streaming"})]
)
def test_the_history_of_a_folder_is_that_of_one_process(policy: str, problem: dict[str, Any], tmp_path: Path) -> None:
    of = settings(policy, max_cycles=30, **problem)
    loop = Loop(of, SEVERAL)
    coordinator = federated(loop)
    files = {"server": storage.to_bytes(coordinator.snapshot())}
    files |= {f"clients/{node}": state for node, state in loop.states.items()}
    for part, content in files.items():
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "state.npz").write_bytes(content)
    assert_same_history(collected(of, tmp_path), in_process(of))
