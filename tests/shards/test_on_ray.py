"""A run whose shards are actors of a local Ray, one of which is killed."""

from importlib.util import find_spec

import pytest
from histories import assert_same_history

import fedbandit_envs as fb
from fedbandit_envs.shards.rounds import ShardedRounds

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("default")]  # its warnings are not ours


@pytest.fixture(autouse=True)
def needs_ray():
    if find_spec("ray") is None:  # not importorskip: Ray must not be imported before it is told to stay on loopback
        pytest.skip("needs ray")


@pytest.mark.parametrize("name", ["Fed-PECD", "DisLinUCB"])
def test_a_run_on_ray_is_the_run_of_one_process_also_when_an_actor_is_killed(name):
    env, policy = fb.make("Synthetic", num_agents=9, max_cycles=100), fb.make_policy(name)
    expected = fb.play(env, policy, seed=4)
    with ShardedRounds(env, policy, shards=3, executor="ray") as rounds:
        rounds.start(seed=4)
        for _ in range(3):
            rounds.advance()
        keeper = rounds._part.keepers[1]
        keeper._host._ray.kill(keeper._host.actor)
        rounds.finish()
        assert_same_history(expected, rounds.history())
        assert [one.losses for one in rounds._part.keepers] == [0, 1, 0]
