"""A server that is spread over the shards answers as one in one place, and the driver takes over what it can't."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from histories import assert_same_run

import fedbandit_envs as fb
from fedbandit_agents.phased import design, design_problem
from fedbandit_agents.phased.elimination import PhasedAgents, PhasedElimination
from fedbandit_agents.phased.server import PhasedServer
from fedbandit_envs.joint import Joint, sum_jointly
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import observe_for
from fedbandit_envs.protocol.spread import SpreadServer
from fedbandit_envs.shards import hosts
from fedbandit_envs.shards.packing import unpacked
from fedbandit_envs.shards.rounds import ShardedRounds
from fedbandit_envs.shards.spread import ViaShards, _answers

PHASED = ["Fed-PECD", "Fed-PE", "Enhanced-Fed-PE", "Collaborative", "Shared-Theta-Fed-PE"]


def environment(policy, **settings):
    shown = {"num_agents": 21, "max_cycles": 2000, "observe": observe_for(policy)}
    return fb.make("Synthetic", **(shown | settings))


def played(env, policy, shards, **how):
    """A run over shards, and who carried its reports."""
    with ShardedRounds(env, policy, shards=shards, executor="serial", **how) as rounds:
        rounds.start(seed=3)
        rounds.finish()
        return rounds.history(), rounds.carrier


def spread(carrier):
    """Whether the server has been spread over the shards to the end."""
    return isinstance(carrier, ViaShards) and carrier._here is None


@pytest.mark.parametrize("settings", [{}, {"dim": 6, "num_arms": 3}, {"num_agents": 40, "dim": 2, "context_std": 0.0}])
@pytest.mark.parametrize("name", PHASED)
def test_a_spread_server_gives_the_run_of_one_process(name, settings, small_groups):
    policy = fb.make_policy(name)
    env = environment(policy, **settings)
    expected = fb.play(env, policy, seed=3)
    for shards in (1, 2, 3, 5):
        history, carrier = played(env, policy, shards)
        assert_same_run(expected, history)
        assert spread(carrier)


@pytest.mark.parametrize("largest_system", [3000, 1])  # with second-order steps, and without
@pytest.mark.parametrize("name", ["Fed-PE", "Shared-Theta-Fed-PE"])
def test_designs_without_the_settled_agents_are_the_same(name, largest_system, small_groups, monkeypatch):
    monkeypatch.setattr(design_problem, "_FEW_PAIRS", 0)
    monkeypatch.setattr(design, "_LARGEST_SYSTEM", largest_system)
    policy = fb.make_policy(name)
    env = environment(policy)
    history, carrier = played(env, policy, 3)
    assert_same_run(fb.play(env, policy, seed=3), history)
    assert spread(carrier)


def test_directions_that_nearly_lie_in_a_plane_are_decomposed_together(small_groups, monkeypatch):
    """Sums of e e^T lose the digits that tell their rank, so that the singular values of all directions are needed."""
    asked, decomposed = [], design_problem._decomposed
    monkeypatch.setattr(design_problem, "_decomposed", lambda *given: asked.append(1) or decomposed(*given))
    flat = np.random.default_rng(0).normal(size=(21, 4, 3)) * [1.0, 1.0, 1e-5]
    active = np.random.default_rng(1).random((21, 4)) < 0.7
    active[:, 0] = True
    whole = design.g_optimal(flat, active)
    assert asked
    borders = [slice(0, 8), slice(8, 16), slice(16, 21)]
    found = together([design.g_optimal_jointly(flat[rows], active[rows], 0.1, None) for rows in borders])
    np.testing.assert_array_equal(np.concatenate([part.pi for part in found]), whole.pi)
    assert {(part.gap, part.dimension) for part in found} == {(whole.gap, whole.dimension)}


def together(computing):
    """What generators find that run side by side, as in shards."""
    given = [None] * len(computing)
    while True:
        asked, found = [], []
        for one, answer in zip(computing, given, strict=True):
            try:
                asked.append(one.send(answer))
            except StopIteration as end:
                found.append(end.value)
        if found:
            assert len(found) == len(computing)
            return found
        given = _answers(asked)


@dataclass(frozen=True)
class Odd(PhasedElimination):
    """One agent says something else from the third phase on, or nothing."""

    observes: ClassVar[str] = "context"
    agent: int = 13
    silent: bool = False
    phase: int = 3

    def agents(self, view):
        class Agents(PhasedAgents):
            def report(self, feedback):
                message = super().report(feedback)
                odd = self.view.agents == self.policy.agent
                if message is None or message.kind != "estimates" or self.phase < self.policy.phase:
                    return message
                if self.policy.silent:
                    return message.rows(~odd)
                theta = np.where(odd[:, None, None], message["theta"][..., ::-1], message["theta"])
                return Message("estimates", {"theta": theta}, message.agents, dict(message.present))

        return Agents(self, view)


@pytest.mark.parametrize(("silent", "phase"), [(True, 0), (True, 3), (False, 1), (False, 3)])
def test_the_driver_takes_over_when_a_report_is_refused_or_missing(silent, phase, small_groups):
    policy = Odd(silent=silent, phase=phase)
    env = environment(policy)
    expected = fb.play(env, policy, seed=3)
    assert bool(expected.faults) != silent
    for shards in (1, 3):
        history, carrier = played(env, policy, shards)
        assert_same_run(expected, history)
        assert isinstance(carrier, ViaShards)
        assert not spread(carrier)


def test_what_needs_all_reports_in_one_place_goes_to_the_driver(small_groups):
    robust = fb.make_policy("Fed-PECD", aggregation="huber")
    history, carrier = played(environment(robust), robust, 3)
    assert_same_run(fb.play(environment(robust), robust, seed=3), history)
    assert not spread(carrier)
    policy = fb.make_policy("Fed-PECD")
    for how in ({"record": True}, {"faults": fb.Faults(dropout=0.1)}):
        assert not isinstance(played(environment(policy), policy, 3, **how)[1], ViaShards)
    assert spread(played(environment(policy), policy, 3, faults=fb.Faults())[1])


def test_a_server_is_spread_only_where_shards_hold_whole_groups():
    policy = fb.make_policy("Fed-PECD")
    assert not isinstance(played(environment(policy), policy, 2)[1], ViaShards)
    assert spread(played(environment(policy, num_agents=5000, max_cycles=100), policy, 2)[1])


@dataclass(frozen=True)
class Counting(PhasedElimination):
    """Its server overrides the verb of all servers."""

    observes: ClassVar[str] = "context"

    def server(self, view):
        class Server(PhasedServer):
            def answer(self, up):
                return super().answer(up) if self.phase < 4 else None

        return Server(self, view.constants)


def test_a_server_with_an_answer_of_its_own_is_not_spread(small_groups):
    env = environment(Counting())
    history, carrier = played(env, Counting(), 3)
    assert not isinstance(carrier, ViaShards)
    assert_same_run(fb.play(env, Counting(), seed=3), history)


def test_a_design_that_misses_its_gap_is_warned_of_once(small_groups):
    policy = fb.make_policy("Fed-PE", gap=1e-13)
    with pytest.warns(UserWarning, match="expected a design within 1e-13") as one:
        fb.play(environment(policy, max_cycles=100), policy, seed=3)
    with pytest.warns(UserWarning, match="expected a design within 1e-13") as two:
        played(environment(policy, max_cycles=100), policy, 3)
    assert [str(found.message) for found in two] == [str(found.message) for found in one]


class Counted(hosts.Here):
    """A shard in this process of which it is counted what crosses while agents play."""

    crossed = 0

    def send(self, request):
        super().send(request)
        if unpacked(request)[0] in ("plan", "pull", "consult", "go_on"):
            Counted.crossed += sum(len(memoryview(part).cast("B")) for part in (*request, *self._answer))


def test_sums_cross_instead_of_messages(monkeypatch):
    """Without a design only sums by groups and flags cross; a design needs the directions of who has a choice."""
    monkeypatch.setitem(hosts.HOSTS, "serial", hosts.HOSTS["serial"]._replace(make=Counted))
    crossed = {}
    for allocation in ("uniform", "g-optimal"):
        policy, Counted.crossed = fb.make_policy("Fed-PE", allocation=allocation), 0
        env = environment(policy, num_agents=3 * 4096, max_cycles=2**12, context_std=0.0)
        history, carrier = played(env, policy, 3)
        assert spread(carrier)
        crossed[allocation] = Counted.crossed
    assert history.ledger.bytes_up > 7e6
    assert crossed["uniform"] < 2e5
    assert crossed["g-optimal"] < history.ledger.bytes_up


@dataclass(frozen=True)
class Pooling(fb.Policy):
    """Agents explore in turns, and the server tells them the sums of all rewards so far; a test of the contract."""

    differs: bool = False

    def agents(self, view):
        class Agents(fb.AgentSide):
            best = np.zeros(len(view.agents), dtype=np.int64)

            def plan(self, down, remaining):
                if down is not None:
                    self.best = (down["own"] + 0.1 * down["total"]).argmax(axis=1)
                explore = np.ones((len(view.agents), view.constants.num_arms), dtype=np.int64)
                return fb.Plan(explore, self.best, 15)

            def report(self, feedback):
                return Message("sums", {"sums": feedback.sums()}, view.agents)

        return Agents()

    def server(self, view):
        return PoolingServer(view, self.differs)


class PoolingServer(SpreadServer):
    def __init__(self, view, differs):
        self.view, self.differs = view, differs
        self.own = np.zeros((view.constants.num_agents, view.constants.num_arms))

    def answering(self, up):
        self.own += up["sums"]
        if self.differs and up.agents[0]:
            yield Joint(any, iter([True]))
        total = yield from sum_jointly(lambda rows: self.own[rows].sum(axis=0), len(self.own))
        (below,) = yield Joint(_below_the_largest, iter([self.own]), each=True)
        return Message("totals", {"own": below, "total": np.broadcast_to(total, below.shape)}, up.agents)


def _below_the_largest(parts):
    """How far the rows of each part are below the largest of all."""
    listed = list(parts)
    largest = np.concatenate(listed).max(axis=0)
    return [part - largest for part in listed]


def test_any_server_can_be_spread(small_groups):
    env = environment(Pooling(), max_cycles=200)
    expected = fb.play(env, Pooling(), seed=3)
    assert len(np.unique(expected.pulls[-1], axis=0)) > 1
    for shards in (1, 3):
        history, carrier = played(env, Pooling(), shards)
        assert_same_run(expected, history)
        assert spread(carrier)


def test_parts_that_ask_for_different_things_are_refused(small_groups):
    with pytest.raises(fb.ProtocolError, match="expected the parts of a server in all shards to ask the same"):
        played(environment(Pooling(differs=True), max_cycles=200), Pooling(differs=True), 3)
