"""Local UCB in compiled code: the numbers of numpy's, bit for bit, and nothing written where it must not."""

import numpy as np
import pytest
from compiling import NEEDS_NUMBA

import fedbandit_envs as fb
from fedbandit_envs.testing.check import check_policy

pytestmark = NEEDS_NUMBA


def both(num_agents=7, num_arms=5):
    env = fb.make("fedbandit/Synthetic-v0", num_agents=num_agents, num_arms=num_arms, max_cycles=100)
    env.reset(seed=0)
    return [fb.make_policy("Local-UCB", compiled=compiled).agents(env.view()) for compiled in (True, False)]


@pytest.mark.parametrize(("num_agents", "num_arms"), [(1, 1), (1, 9), (7, 5), (64, 16)])
@pytest.mark.parametrize("rewards", ["normal", "bernoulli", "huge", "not finite"])
def test_the_state_is_the_same_bit_for_bit_after_every_step(num_agents, num_arms, rewards):
    compiled, plain = both(num_agents, num_arms)
    rng = np.random.default_rng(1)
    with np.errstate(invalid="ignore", over="ignore"):
        for _ in range(300):
            arm = plain.choose()
            np.testing.assert_array_equal(compiled.choose(), arm, strict=True)
            paid = {
                "normal": rng.standard_normal(num_agents),
                "bernoulli": rng.integers(0, 2, num_agents).astype(float),
                "huge": 1e300 * rng.standard_normal(num_agents),
                "not finite": rng.choice([np.nan, np.inf, -np.inf, 1.0], num_agents, p=[0.01, 0.01, 0.01, 0.97]),
            }[rewards]
            pulls = rng.integers(0, 3, num_agents)
            for side in (compiled, plain):
                side.learn(fb.Outcome(arm, pulls, paid))
            np.testing.assert_equal(compiled.snapshot(), plain.snapshot())


def test_feedback_may_be_arrays_of_any_kind():
    compiled, plain = both()
    rewards = np.random.default_rng(2).standard_normal((7, 2))
    for given in (rewards[:, 0], rewards[:, 1].astype(np.float32), np.arange(7)):
        arm = plain.choose()
        for side in (compiled, plain):
            side.learn(fb.Outcome(arm.astype(np.int32), np.ones(14, dtype=np.int64)[::2], given))
        np.testing.assert_equal(compiled.snapshot(), plain.snapshot())


def test_the_contract_holds():
    assert "no fault" in check_policy(fb.make_policy("Local-UCB", compiled=True))


@pytest.mark.parametrize("name", ["pulls", "sums", "means", "radii"])
def test_a_state_of_another_size_is_refused_and_not_read_beyond_its_end(name):
    compiled, _ = both()
    compiled.restore({name: np.ones(6)})
    with pytest.raises(IndexError):
        compiled.learn(fb.Outcome(compiled.choose(), np.ones(7, dtype=np.int64), np.zeros(7)))


def test_results_of_worker_processes_are_those_of_numpy():
    def regret(**parameters):
        policies = [{"name": "Local-UCB", "parameters": parameters}]
        problem = {"num_agents": 4, "max_cycles": 300}
        experiment = fb.Experiment("fedbandit/Synthetic-v0", policies, problem, trials=2)
        return fb.run(experiment, executor="processes").table("summary")["regret"]

    assert regret(compiled=True) == regret()
