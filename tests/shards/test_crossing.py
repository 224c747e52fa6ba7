"""What crosses between the driver and its shards: what messages hold, and little more for each request."""

from typing import ClassVar

import pytest

import fedbandit_envs as fb
from fedbandit_envs.protocol.policy import partner_of
from fedbandit_envs.shards import hosts
from fedbandit_envs.shards.packing import unpacked

SHARDS, AGENTS = 3, 120
# Bytes of a request or an answer beside the numbers, such as names and shapes: 100 at most in the mean when this was
# written. One number more for each of a shard's 40 agents would be 320.
_FORM = 300


def size(parts):
    return sum(len(memoryview(part).cast("B")) for part in parts)


class Counted(hosts.Here):
    """A shard in this process of which it is written down what crosses."""

    crossed: ClassVar[list[tuple[str, int, int]]] = []  # the verb, and the bytes of the request and of the answer

    def send(self, request):
        super().send(request)
        Counted.crossed.append((unpacked(request)[0], size(request), size(self._answer)))


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setitem(hosts.HOSTS, "counted", hosts.HOSTS["serial"]._replace(make=Counted))
    monkeypatch.setattr(Counted, "crossed", [])
    return Counted.crossed


def environment(agents, horizon):
    return fb.make("Synthetic", num_agents=agents, max_cycles=horizon)


def held(message):
    """The bytes of a message: what is sent, a bit for each entry of a mask, and the numbers of its agents."""
    if message is None:
        return 0
    masks = sum(mask.size // 8 + SHARDS for mask in message.present.values())
    agents = 0 if message.agents is None else message.agents.nbytes
    return sum(cost.scalars * cost.itemsize for cost in message.costs) + masks + agents


def turns_crossed(counted):
    """The bytes of requests and answers while agents play; what comes before and after them is another matter."""
    return [(down, up) for verb, down, up in counted if verb in ("plan", "pull", "turn", "play_on")]


@pytest.mark.parametrize(
    ("name", "horizon"),
    [("Fed-PECD", 2**12), ("Fed-CI", 2**12), ("DisLinUCB", 60), ("coop-UCB2", 30), ("Local-UCB", 60)],
)
def test_turns_cross_what_messages_hold(name, horizon, counted):
    env, policy = environment(AGENTS, horizon), fb.make_policy(name)
    turns = fb.play(env, policy, seed=2, network="ring", record=True).exchanges
    fb.play(env, policy, seed=2, network="ring", shards=SHARDS, executor="counted")
    crossed = turns_crossed(counted)
    requests, answers = (sum(sizes) for sizes in zip(*crossed, strict=True))
    # A broadcast goes to each shard once, however many agents it holds.
    down = sum(held(turn.down) * (SHARDS if turn.down.agents is None else 1) for turn in turns if turn.down)
    # What peers say is recorded where it arrives, which is at one neighbour at least.
    up = down if partner_of(type(policy)) == "peers" else sum(held(turn.up) for turn in turns)
    assert requests <= down + _FORM * len(crossed)
    assert answers <= up + _FORM * len(crossed)


def test_a_step_in_which_nobody_speaks_crosses_as_much_for_any_number_of_agents(counted):
    crossed = []
    for agents in (12, AGENTS):
        counted.clear()
        policy = fb.make_policy("DisLinUCB", threshold=1e9)  # nobody ever asks
        fb.play(environment(agents, 60), policy, seed=2, shards=SHARDS, executor="counted")
        crossed.append(turns_crossed(counted))
    assert crossed[0] == crossed[1]
    assert len(crossed[0]) == 60 * SHARDS  # one request for each shard and step
    assert max(map(sum, crossed[0])) < 150  # the form alone: a verb, and that it took one step and nobody speaks
